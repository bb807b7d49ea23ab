"""Reduces a text to the lines that matter most, in their order: chosen by words and form, never rewritten.

It finds the facts that must survive, and writes and reads the request for a summary. It knows one text and one query;
when to reduce, and by how much, is decided elsewhere.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence
from math import log
from typing import Final, NamedTuple

from flowengine.agents.retrieval import stems
from flowengine.core import Messages
from flowengine.errors import OutputError
from flowengine.models import MARK, Message, Request, fence, shorten_text

# --- Facts that must survive

_URL: Final = re.compile(r"\b[a-z][a-z0-9+.-]{1,20}://[^\s<>\"'`)\]}、。」』）]+")
_ENDINGS: Final = (
    "bash|c|cc|cfg|cjs|conf|cpp|cs|css|csv|docx?|go|gradle|h|hpp|html|ini|ipynb|java|jpe?g|jsonl?|jsx?|kts?|lock|log|"
    "md|mjs|pdf|php|png|proto|ps1|pyi?|rb|rs|rst|scala|scss|sh|sql|sqlite|svelte|svg|swift|tf|toml|tsv|tsx?|txt|vue|"
    "xlsx?|xml|ya?ml"
)
_PATH_PART: Final = r"[A-Za-z0-9_.@+\-\[\]]{1,128}"  # Bounded, as their number is: a text may be one long path.
_PATH: Final = re.compile(
    r"(?<![A-Za-z0-9_/\\.:@-])(?:"
    rf"(?:~|\.{{1,2}}|[A-Za-z]:)?[/\\](?:{_PATH_PART}[/\\]){{0,32}}{_PATH_PART}"  # from a root
    rf"|(?:{_PATH_PART}[/\\]){{1,32}}{_PATH_PART}\.[A-Za-z0-9]{{1,8}}"  # through folders to what has an ending
    rf"|(?:{_PATH_PART}/){{2,32}}{_PATH_PART}"  # three deep
    rf"|[A-Za-z0-9_][A-Za-z0-9_.\-]*\.(?:{_ENDINGS})"  # alone, with an ending that files have
    r")(?![A-Za-z0-9_/\\-])"
)
_QUOTED_PATH: Final = re.compile(
    rf"[\"'`「『]([^\s\"'`「」『』<>|*?/]+(?:/[^\s\"'`「」『』<>|*?/]+)*\.(?:{_ENDINGS}))[\"'`」』]"
)
"""In any script, where quotes say how far it goes."""
_IDENTIFIER: Final = re.compile(
    r"\b[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}\b"
    r"|\b(?=\d*[a-f])(?=[a-f]*\d)[0-9a-f]{7,64}\b"
    r"|\b[A-Z][A-Z0-9]{1,9}-\d+\b"
    r"|(?<![\w&])#\d{2,}\b"
    r"|\b[a-z]{2,12}[_-](?=[A-Za-z]*\d)[A-Za-z0-9]{5,40}\b"
    r"|\b\d{6,20}\b"
)
_ERROR_LINE: Final = re.compile(
    r"\b[A-Za-z_.]*(?:Error|Exception)\b\s*[:(]"
    r"|(?i:\b(?:error|fatal|panic|failed|failure|traceback|denied|not found)\b|\bexit (?:code|status) [1-9])"
    r"|エラー|失敗|例外|错误|失败|异常|오류|실패"
)
_MAX_FACT_LENGTH: Final = 200
"""Characters that are kept of a line that tells of an error."""
_MAX_LINE_LENGTH: Final = 2000
"""Characters of a line in which an error is looked for."""


class TextFacts(NamedTuple):
    """The facts in a text, each once, in order."""

    paths: tuple[str, ...] = ()
    errors: tuple[str, ...] = ()
    """Whole lines."""
    ids: tuple[str, ...] = ()
    """Addresses of the web among them."""


NO_FACTS: Final = TextFacts()


def facts_of(text: str) -> TextFacts:
    """The facts of a text.

    >>> facts_of("I read src/app.py for ABC-123.\\nValueError: no such key")
    TextFacts(paths=('src/app.py',), errors=('ValueError: no such key',), ids=('ABC-123',))
    """
    plain = _URL.sub(" ", text)
    paths = (*(each.rstrip(".,") for each in _PATH.findall(plain)), *_QUOTED_PATH.findall(plain))
    errors = (
        line.strip()[:_MAX_FACT_LENGTH] for line in text.splitlines() if _ERROR_LINE.search(line, 0, _MAX_LINE_LENGTH)
    )
    ids = (*(each.rstrip(".,;:!?") for each in _URL.findall(text)), *_IDENTIFIER.findall(plain))
    return TextFacts(_unique(each for each in paths if len(each) > 1), _unique(errors), _unique(ids))


def merge_facts(facts: Iterable[TextFacts]) -> TextFacts:
    """The facts of several texts as those of one."""
    return TextFacts(
        *(_unique(each for kind in kinds for each in kind) for kinds in zip(NO_FACTS, *facts, strict=True))
    )


def unseen(facts: TextFacts, visible: TextFacts) -> TextFacts:
    """Those of the facts that are not among others."""
    visible_kinds = map(frozenset[str], visible)
    return TextFacts(
        *(tuple(each for each in kind if each not in others) for kind, others in zip(facts, visible_kinds, strict=True))
    )


def facts_text(words: Messages, facts: TextFacts, room: int, count: Callable[[str], int]) -> str:
    """The facts as a text of so many tokens at most: paths before errors before ids, and the newest of each."""
    if facts == NO_FACTS:
        return ""
    rest = room - count(words("compression.facts"))
    kinds: list[list[str]] = []
    for kind in facts:
        newest: list[str] = []
        for each in reversed(kind):
            cost = count(each) + 2
            if cost > rest:
                break
            rest -= cost
            newest.insert(0, each)
        kinds.append(newest)
    paths, errors, ids = kinds
    lines = [
        words("compression.paths", list=", ".join(paths)) if paths else "",
        *([words("compression.errors"), *(f"- {each}" for each in errors)] if errors else []),
        words("compression.ids", list=", ".join(ids)) if ids else "",
    ]
    return "\n".join([words("compression.facts"), *(line for line in lines if line)]) if any(kinds) else ""


def _unique(values: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(values))


_SENTENCE: Final = re.compile(r"(?<=[.!?])\s+(?=\S)|(?<=[。！？])(?=\S)")
_LINES_AT_ENDS: Final = 2
"""Lines at the beginning and at the end that stay."""


def extract_sentences(text: str, room: int, query_terms: Collection[str], count: Callable[[str], int]) -> str:
    """The text in about `room` tokens, marks included; as it is where it fits or where nothing can be left out.

    Its first and last lines stay; of the rest what holds facts and terms of the query, and what the text says in
    words of its own.
    """
    if count(text) <= room:
        return text
    units = _split_units(text)
    if len(units) <= 2 * _LINES_AT_ENDS:
        return "\n".join(units)  # Blank lines are the first to go.
    costs = [count(unit) + 1 for unit in units]
    numbers = {*range(_LINES_AT_ENDS), *range(len(units) - _LINES_AT_ENDS, len(units))}
    rest = room - sum(costs[each] for each in numbers)
    for number in sorted(
        range(_LINES_AT_ENDS, len(units) - _LINES_AT_ENDS),
        key=_score_units(units, query_terms).__getitem__,
        reverse=True,
    ):
        if costs[number] <= rest:
            numbers.add(number)
            rest -= costs[number]
    return _insert_marks(units, sorted(numbers))


def ends_of(text: str, room: int, count: Callable[[str], int]) -> str:
    """The beginning and the end of a text in `room` tokens, with a mark between them; less where that is too little.

    >>> ends_of("one two three four five six seven eight nine ten", 6, lambda text: len(text.split()))
    'one two […] eight nine ten'
    """
    if count(text) <= room:
        return text
    begin = shorten_text(text, room // 2, count)
    rest = room - count(begin)
    if not begin or rest < 1:
        return begin
    longest = min(len(text), rest * 200)
    length = bisect_right(range(longest + 1), rest, key=lambda number: count(text[len(text) - number :])) - 1
    end = text[len(text) - length :]
    _, space, whole = end.partition(" ")
    return f"{begin} {(whole if space else end).lstrip()}".rstrip()


def _split_units(text: str) -> list[str]:
    """Lines; of long ones the sentences."""
    units: list[str] = []
    for line in text.splitlines():
        if line.strip():
            units += _SENTENCE.split(line) if len(line) > 200 else [line]
    return units


def _score_units(units: Sequence[str], query_terms: Collection[str]) -> list[float]:
    terms = [set(stems(unit)) for unit in units]
    spread = Counter(term for each in terms for term in each)
    query_set = set(query_terms)
    return [_score_unit(unit, each, spread, len(units), query_set) for unit, each in zip(units, terms, strict=True)]


def _score_unit(unit: str, terms: set[str], spread: Counter[str], total: int, query_terms: set[str]) -> float:
    rarity = sum(log(1 + total / spread[term]) for term in terms) / (4 + len(terms))
    return rarity + 2 * len(terms & query_terms) + (1 if facts_of(unit) != NO_FACTS else 0)


def _insert_marks(units: Sequence[str], numbers: Sequence[int]) -> str:
    lines: list[str] = []
    before = -1
    for number in numbers:
        if number != before + 1:
            lines.append(MARK)
        lines.append(units[number])
        before = number
    return "\n".join(lines)


# --- The request for a summary

_TEMPERATURE: Final = 0.2


def summary_request(
    words: Messages, model: str, query: str, material: str, max_tokens: int, *, previous: str = ""
) -> Request:
    """The request for a summary of some material, and of the summary before it."""
    headings = "\n".join(words.section("summary_headings").values())
    task = words("summary.task", headings=headings, max_tokens=max_tokens, none=words("summary.none"))
    parts = [
        words("summary.previous", text=fence("summary", previous)) if previous else "",
        words("summary.material", text=fence("material", material)),
        words("summary.query", text=fence("query", query)) if query.strip() else "",
        task,
    ]
    system = Message("system", words("summary.role").strip())
    user = Message("user", "\n\n".join(part.strip() for part in parts if part))
    return Request(model, (system, user), temperature=_TEMPERATURE, max_tokens=max_tokens * 2)


def summary_of(words: Messages, answer: str) -> str:
    """The summary of an answer; an `OutputError` where it is none of the form that was asked for."""
    headings = words.section("summary_headings").values()
    begins = [at for heading in headings if (at := answer.find(heading)) >= 0]
    if not begins:
        raise OutputError(f"the summary has none of the headings that it should: {answer[:100]!r}")
    return answer[min(begins) :].strip()
