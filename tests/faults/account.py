"""What a disturbed world has cost, from what the model server saw and from what the journals say. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import inf
from statistics import median
from typing import NamedTuple

from flowengine.engine.events import Event, RunResumed
from tests.faults import story
from tests.support.model_server import Received

__all__ = [
    "OVERTAKEN",
    "Cut",
    "Record",
    "Recorded",
    "Repeat",
    "owner_of",
    "recorded_answers",
    "repeats",
    "seconds",
    "takeovers",
    "unexcused",
]

OVERTAKEN = 0.1
"""Seconds by which an answer may leave the server before another one and be on record after it."""


class Record(NamedTuple):
    """A completion that a run's journal has."""

    prompt: str
    at: float
    """When it was committed."""


class Recorded(NamedTuple):
    """An answer that came on record."""

    request: Received
    at: float

    @property
    def seconds(self) -> float:
        """How long that took."""
        return self.at - (self.request.answered or self.at)


@dataclass(frozen=True)
class Cut:
    """A time in which workers could record nothing: killed for good, stopped for a while, or without PostgreSQL."""

    at: float
    until: float = inf
    worker: int | None = None
    """None: all of them."""

    def excuses(self, repeat: Repeat, recorded: Sequence[Recorded]) -> bool:
        """Whether the answer to the first call could not be on record by then.

        How late a worker is with that depends on what else the machine does, so its other answers say it: they come
        on record in their order. An answer that is not, where a later one to the same worker is, was lost.
        """
        first, second = repeat.first, repeat.second
        if self.worker is not None and self.worker != owner_of(first):
            return self.worker == owner_of(second) and self._was_on_its_way(second)
        if any(each.request is first and each.at < second.arrived for each in recorded):
            return False
        known = (
            each.request.answered or 0.0
            for each in recorded
            if each.at <= self.at and owner_of(each.request) == owner_of(first)
        )
        was_in_flight = first.answered is None or first.answered > max(known, default=0.0) - OVERTAKEN
        return was_in_flight and first.arrived <= min(self.at + OVERTAKEN, self.until) and second.arrived > self.at

    def _was_on_its_way(self, request: Received) -> bool:
        """Whether a worker that was stopped sent it as the first thing when it went on."""
        return self.until < request.arrived < self.until + 1.0


@dataclass(frozen=True)
class Repeat:
    """A completion that was asked for again."""

    run: str
    first: Received
    second: Received

    def __str__(self) -> str:
        first, second = self.first, self.second
        ended = "never" if first.answered is None else f"{first.answered:.2f}"
        return (
            f"run {self.run}: asked by worker {owner_of(first)} at {first.arrived:.2f}, answered {ended}; "
            f"again by worker {owner_of(second)} at {second.arrived:.2f}"
        )


def owner_of(request: Received) -> int:
    """The number of the worker that asked."""
    return int(request.path.split("/")[1].removeprefix("w"))


def repeats(requests: Sequence[Received]) -> list[Repeat]:
    """Every completion that was asked for again, each time that it was."""
    last: dict[str, Received] = {}
    found: list[Repeat] = []
    for request in requests:
        key = story.identity(request.body)
        if key in last:
            found.append(Repeat(story.run_of(request.body), last[key], request))
        last[key] = request
    return found


def unexcused(found: Iterable[Repeat], cuts: Sequence[Cut], recorded: Sequence[Recorded]) -> list[Repeat]:
    """Those that nothing allows."""
    return [each for each in found if not any(cut.excuses(each, recorded) for cut in cuts)]


def recorded_answers(requests: Sequence[Received], records: Iterable[Record]) -> list[Recorded]:
    """Each record with the answer that it is of: the last one to its prompt before."""
    asked: dict[str, list[Received]] = {}
    for request in requests:
        asked.setdefault(story.prompt_of(request.body["messages"]), []).append(request)
    found: list[Recorded] = []
    for record in records:
        before = [each for each in asked[record.prompt] if each.answered is not None and each.answered <= record.at]
        assert before, f"on record at {record.at:.2f} without an answer: {record.prompt[:200]}"
        found.append(Recorded(max(before, key=lambda each: each.answered or 0.0), record.at))
    return found


def takeovers(requests: Sequence[Received], events: Mapping[str, Sequence[Event]], cut: Cut) -> dict[str, float | None]:
    """Run → seconds from a worker's end until another went on with what it had; None: nobody did."""
    last: dict[str, Received] = {}
    for request in requests:
        if request.arrived <= cut.at:
            last[story.run_of(request.body)] = request
    held = [
        run
        for run, request in last.items()
        if owner_of(request) == cut.worker and run in events and events[run][-1].at > cut.at
    ]
    return {
        run: next((each.at - cut.at for each in events[run] if type(each) is RunResumed and each.at > cut.at), None)
        for run in held
    }


def seconds(values: Iterable[float]) -> str:
    """The middle one and the worst.

    >>> seconds([1.0, 2.0, 4.0])
    '2.0 s, at worst 4.0 s (3)'
    """
    found = sorted(values)
    return f"{median(found):.1f} s, at worst {found[-1]:.1f} s ({len(found)})" if found else "none"
