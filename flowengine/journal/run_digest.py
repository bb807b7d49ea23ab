"""Sums a run up for lists and searches: what it cost, its first input, its error, and the words in it.

A digest is made from the events of a run, as they are recorded: what is masked there is masked here. Stores keep it
beside the run's row. It is bounded, however large the run: `MAX_TEXT` characters each of inputs, outputs and errors.
Pure.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import fields, is_dataclass
from itertools import islice
from math import isfinite
from typing import Any, Final, NamedTuple, cast
from unicodedata import normalize

from pydantic import BaseModel

from flowengine.core import (
    EMPTY,
    Answered,
    ApprovalRequested,
    FileValue,
    ModelCall,
    UsageTotals,
    cut_text,
    question_path,
)
from flowengine.engine import Event, NodeFailed, NodeRecorded, RunFinished, RunResumed, RunStarted

# --- Words

_WORD: Final = (  # Compiled by the first search: that takes 2 ms, and most processes look for nothing.
    r"[\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\uac00-\ud7af]"
    r"|(?:(?![\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\uac00-\ud7af])[^\W_])+"
)
_MAX_TERM: Final = 100
_MAX_WANTED: Final = 8
"""Words or phrases of one search."""
_AROUND: Final = 60
"""Characters on each side of what was found."""


def terms_of(text: str) -> list[str]:
    """The words of a text in lower case; each character of Chinese, Japanese and Korean is one.

    >>> terms_of("Refund_2 for 山田"), terms_of("cafe\\u0301")
    (['refund', '2', 'for', '山', '田'], ['café'])
    """
    return [term[:_MAX_TERM] for term in re.findall(_WORD, normalize("NFC", text.lower()))]


class Phrase(NamedTuple):
    """A word of a search, or several that follow each other. The last may go on: `refu` finds `refund`."""

    text: str
    """In lower case, as it was written."""
    terms: tuple[str, ...]


class Search(NamedTuple):
    """Conditions on runs, all of which must hold: in id, flow, file, labels, inputs, outputs or errors."""

    phrases: tuple[Phrase, ...] = ()

    def excerpt(self, texts: RunTexts) -> str:
        """The place where the first phrase is that the texts have, with the name of its text; empty where none is."""
        for phrase in self.phrases:
            pattern = r"[\W_]*".join(map(re.escape, phrase.terms))
            for name, text in zip(("input", "output", "error"), texts, strict=True):
                match = re.search(rf"(?<![^\W_]){pattern}|{pattern}", text, re.IGNORECASE) if pattern else None
                if match is not None:
                    begin, end = max(0, match.start() - _AROUND), match.end() + _AROUND
                    return f"{name}: {'…' * (begin > 0)}{text[begin:end].strip()}{'…' * (end < len(text))}"
        return ""

    def has_in(self, about: str, texts: RunTexts) -> bool:
        """Tells whether a run has all of it. `about`: its id, flow, file and labels."""
        sought = about.lower()
        words = [terms_of(text) for text in texts]
        return all(each.text in sought or any(_holds(word, each.terms) for word in words) for each in self.phrases)


def _holds(words: Sequence[str], terms: Sequence[str]) -> bool:
    """Tells whether the terms follow each other in the words; the last may be the beginning of one."""
    size = len(terms)
    return size > 0 and any(
        words[at + size - 1].startswith(terms[-1]) and list(words[at : at + size - 1]) == list(terms[:-1])
        for at in range(len(words) - size + 1)
    )


def parse_search(text: str) -> Search:
    """Parses a search: words, and "several words" in sequence.

    >>> [phrase.terms for phrase in parse_search('refund "not found"').phrases]
    [('refund',), ('not', 'found')]
    """
    clean = text[:400].encode("utf-8", "replace").decode().replace("\0", " ")  # As a command line may have it.
    pairs = re.findall(r'"([^"]*)"?|(\S+)', clean.lower())
    phrases = [each for pair in pairs if (each := (pair[0] or pair[1]).strip())]
    return Search(tuple(Phrase(each, tuple(terms_of(each))) for each in phrases[:_MAX_WANTED]))


# --- The texts of values

MAX_TEXT: Final = 6_000
_MAX_LEAVES: Final = 4_000
"""The most parts of one value that are looked at: values in it, and their names."""
_MAX_DEPTH: Final = 12
_MAX_LINE: Final = 200


class RunTexts(NamedTuple):
    """The searchable texts of a run."""

    inputs: str = ""
    outputs: str = ""
    errors: str = ""


EMPTY_TEXTS: Final = RunTexts()


def _text_of(value: Any) -> str:
    """The texts and numbers inside a value, with the names that they have, up to a bound."""
    parts: list[str] = []
    size = 0
    for part in islice(_leaves(value, 0), _MAX_LEAVES):
        if part:
            parts.append(part)
            size += len(part) + 1
        if size > MAX_TEXT:
            break
    return _clean(" ".join(parts), MAX_TEXT)


def _leaves(value: Any, depth: int) -> Iterator[str]:
    """Yields texts and numbers; what has another type, such as a secret that hides itself, has no words. Each value
    yields a text, if an empty one, so that the caller's bound counts it."""
    if depth > _MAX_DEPTH or value is None:
        yield ""
    elif isinstance(value, str):
        yield value[: MAX_TEXT + 1]
    elif isinstance(value, bool | int | float):
        yield f"{value!s:.40}" if not isinstance(value, int) or value.bit_length() < 128 else "…"
    elif isinstance(value, FileValue):
        yield value.name
    elif isinstance(value, Mapping):
        yield ""
        for name, each in cast("Mapping[Any, Any]", value).items():
            if isinstance(name, str):
                yield f"{name[:_MAX_LINE]}:"
            yield from _leaves(each, depth + 1)
    elif isinstance(value, BaseModel):
        yield from _leaves(dict(value), depth + 1)
    elif is_dataclass(value) and not isinstance(value, type):
        yield from _leaves({each.name: getattr(value, each.name, None) for each in fields(value)}, depth + 1)
    elif isinstance(value, list | tuple | set | frozenset):
        yield ""
        for each in cast("Iterable[Any]", value):
            yield from _leaves(each, depth + 1)
    else:
        yield ""


def _clean(text: str, most: int) -> str:
    """The text on one line, without what no store can write; cut where it is long."""
    return cut_text(" ".join(text[: 2 * most].replace("\0", "?").encode(errors="replace").decode().split()), most)


# --- The digest


class RunDigest(NamedTuple):
    """A run's summary for lists."""

    events: int
    """The number of events it was made from."""
    calls: int = 0
    tokens: int | None = None
    cost_usd: float | None = None
    is_whole: bool = True
    """Whether the cost counts every call."""
    model: str = ""
    """Of the first call, and how many others there were."""
    first_input: str = ""
    error: str = ""
    session: str = ""
    asks: Sequence[Sequence[str]] = ()
    """For each open question, who may answer; empty: anybody."""
    forked: str = ""
    """The run that it was forked from."""
    forked_at: str = ""
    """The node that the fork begins with."""
    reuses: Sequence[str] = ()
    """Runs whose results it may take."""
    texts: RunTexts = EMPTY_TEXTS

    @property
    def origins(self) -> Sequence[str]:
        """The runs that it comes from."""
        return list(dict.fromkeys(each for each in (self.forked, *self.reuses) if each))

    def encode(self) -> str:
        """All but the texts, as one line of JSON."""
        return json.dumps(self[:-1], ensure_ascii=False, allow_nan=False)

    @classmethod
    def decode(cls, body: str, texts: Sequence[str] = EMPTY_TEXTS) -> RunDigest | None:
        """The digest that `encode` wrote; None for any other text: it is made anew."""
        try:
            return cls(*json.loads(body))._replace(texts=RunTexts(*texts))
        except (ValueError, TypeError):
            return None


class DigestBuilder:
    """Give it the events of one run in their order; `RunStarted` first. Others than those it knows cost nothing."""

    def __init__(self) -> None:
        self._started: RunStarted | None = None
        self._finished: RunFinished | None = None
        self._usage = UsageTotals()
        self._models: dict[str, None] = {}
        self._errors: list[str] = []
        self._asks: dict[str, Sequence[str]] = {}

    @classmethod
    def of(cls, events: Iterable[Event]) -> DigestBuilder:
        """One that was given these."""
        builder = cls()
        for event in events:
            builder.apply(event)
        return builder

    @property
    def started_at(self) -> float | None:
        return None if self._started is None else self._started.at

    def apply(self, event: Event) -> None:
        kind = type(event)
        if kind is NodeRecorded:
            self._record(cast("NodeRecorded", event))
        elif kind is NodeFailed:
            self._errors = [*self._errors, cast("NodeFailed", event).error.message[:MAX_TEXT]][-20:]
        elif kind is RunFinished:
            self._finished = cast("RunFinished", event)
        elif kind is RunResumed:
            self._finished = None
        elif kind is RunStarted:
            self._started = cast("RunStarted", event)

    def _record(self, event: NodeRecorded) -> None:
        record = event.record
        if type(record) is ModelCall:
            self._usage.add(record)
            if record.model:
                self._models.setdefault(record.model)
        elif type(record) is ApprovalRequested:
            self._asks[question_path(event.node, record)] = list(record.approvers)
        elif type(record) is Answered:
            self._asks.pop(question_path(event.node, record), None)

    def digest(self, events: int) -> RunDigest:
        """The digest of what was applied. `events`: how many those were, with all that were left out."""
        started, finished, usage = self._started, self._finished, self._usage
        settings: Mapping[str, Any] = EMPTY if started is None else started.settings
        inputs: Mapping[str, Any] = EMPTY if started is None else started.inputs
        error = None if finished is None else finished.error
        cost = usage.cost_usd
        first = next(iter(inputs.values()), None)
        messages = [*([] if error is None else [error.message]), *reversed(self._errors)]
        models: list[str] = list(self._models)
        return RunDigest(
            events,
            usage.calls,
            usage.tokens,
            cost if cost is not None and isfinite(cost) else None,
            usage.is_whole,
            _clean(" +".join([*models[:1], *([str(len(models) - 1)] if models[1:] else [])]), _MAX_LINE),
            _clean(first if isinstance(first, str) else _text_of(first), _MAX_LINE),
            "" if error is None else _clean(error.message, _MAX_LINE),
            "" if started is None else session_of(started),
            list(self._asks.values()) if finished is None or finished.status in _OPEN else [],
            _name_in(settings, "forked"),
            _name_in(settings, "from") if settings.get("forked") else "",
            _names_in(settings.get("reuse")),
            RunTexts(
                _text_of(inputs),
                "" if finished is None else _text_of(finished.outputs),
                _clean(" ".join(dict.fromkeys(messages)), MAX_TEXT),
            ),
        )


_OPEN: Final = frozenset({"running", "waiting", "paused"})


def session_of(started: RunStarted) -> str:
    """The session of a run, as lists name it; empty where it has none."""
    return _name_in(started.settings, "session")


def session_name(text: str) -> str:
    """A session as lists name it: on one line, and of a bounded length."""
    return _clean(text, _MAX_LINE)


def _name_in(settings: Mapping[str, Any], name: str) -> str:
    name_value = settings.get(name)
    return _clean(name_value, _MAX_LINE) if isinstance(name_value, str) else ""


def _names_in(names: Any) -> list[str]:
    if isinstance(names, str):
        return [_clean(names, _MAX_LINE)]
    entries = cast("Sequence[Any]", names) if isinstance(names, list | tuple) else ()
    return [_clean(each, _MAX_LINE) for each in entries[:20] if isinstance(each, str)]


# --- What people say of a run


class RunNote(NamedTuple):
    """A remark."""

    id: str
    text: str
    by: str
    at: float
    """Unix seconds."""


class RunMark(NamedTuple):
    """A word that a run is marked with, as `golden`."""

    name: str
    by: str
    at: float


class RunScore(NamedTuple):
    """One person's score of a run in some respect; each person has one per respect."""

    name: str
    value: float
    by: str
    at: float


class RunNotes(NamedTuple):
    """All that people said of a run, the oldest first."""

    notes: Sequence[RunNote] = ()
    marks: Sequence[RunMark] = ()
    scores: Sequence[RunScore] = ()

    def mean(self, name: str) -> float | None:
        """The mean of a score over those who gave it."""
        values = [each.value for each in self.scores if each.name == name]
        return sum(values) / len(values) if values else None
