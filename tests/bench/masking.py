"""The rows of masking: how much of a set of lines is found, and how much of what is found was meant.

The lines (`masking_lines.txt`) were written before the patterns and apart from them, but for the last part, which was
written to find what they miss. A value counts as found where a span of its kind covers it; a span that touches no value
is a false alarm.
"""

from __future__ import annotations

import random
import re
import string
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from flowengine.core.masking.masker import Masker
from flowengine.core.masking.patterns import FoundSpan
from tests.bench.measure import Row

__all__ = ["ROWS", "Line", "Score", "lines", "score"]

FILE = Path(__file__).with_name("masking_lines.txt")
ALPHABETS = {
    "a": string.ascii_letters + string.digits,
    "b": string.ascii_letters + string.digits + "-_",
    "c": string.ascii_letters + string.digits + "+/",
    "d": string.digits,
    "h": "0123456789abcdef",
    "u": string.ascii_uppercase + string.digits,
}


class Line(NamedTuple):
    """A text, and where its values are."""

    text: str
    values: tuple[FoundSpan, ...]


class Score(NamedTuple):
    """What was found of a set, and what was missed or wrong."""

    recall: float
    precision: float
    missed: list[str]
    false: list[str]


def lines(seed: int = 0) -> list[Line]:
    drawn = random.Random(seed)
    texts = FILE.read_text(encoding="utf-8").splitlines()
    return [_line(_filled(each, drawn)) for each in texts if not each.startswith("#")]


def _filled(text: str, drawn: random.Random) -> str:
    def draw(found: re.Match[str]) -> str:
        return "".join(drawn.choices(ALPHABETS[found[1]], k=int(found[2])))

    return re.sub(r"\{([abcdhu])([0-9]+)\}", draw, text).replace("\\n", "\n")


def _line(marked: str) -> Line:
    text, values = "", list[FoundSpan]()
    for piece in re.split("(⟦[^⟧]*⟧)", marked):
        if piece.startswith("⟦"):
            kind, _, value = piece[1:-1].partition(":")
            values.append(FoundSpan(len(text), len(text) + len(value), kind.upper()))
            piece = value
        text += piece
    return Line(text, tuple(values))


def score(masker: Masker, given: list[Line]) -> Score:
    missed, false = list[str](), list[str]()
    total = found = alarms = 0
    for line in given:
        spans = masker.spans(line.text)
        hit = [value for value in line.values if any(_covers(span, value) for span in spans)]
        wrong = list(_strangers(spans, line.values))
        total, found, alarms = total + len(line.values), found + len(hit), alarms + len(wrong)
        missed += [f"{each.kind}: {line.text}" for each in line.values if each not in hit]
        false += [f"{each.kind} {line.text[each.start : each.end]!r}: {line.text}" for each in wrong]
    return Score(found / total, found / (found + alarms), missed, false)


def _covers(span: FoundSpan, value: FoundSpan) -> bool:
    return span.kind == value.kind and span.start <= value.start and value.end <= span.end


def _strangers(spans: list[FoundSpan], values: tuple[FoundSpan, ...]) -> Iterator[FoundSpan]:
    for span in spans:
        if all(span.end <= value.start or value.end <= span.start for value in values):
            yield span


def masking_recall() -> Row:
    return Row("masking, missed of 347 lines it was tuned on", 100 * (1 - score(Masker(), lines()).recall), 2, "%")


def masking_precision() -> Row:
    return Row("masking, false alarms in these lines", 100 * (1 - score(Masker(), lines()).precision), 5, "%")


ROWS = (masking_recall, masking_precision)


if __name__ == "__main__":
    measured = score(Masker(), lines())
    print(f"{len(lines())} lines, recall {measured.recall:.3f}, precision {measured.precision:.3f}")
    for title, texts in (("missed", measured.missed), ("false alarms", measured.false)):
        print(title, *texts, sep="\n  ")
