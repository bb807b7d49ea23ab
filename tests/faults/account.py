"""What a disturbed world has cost, from what the model server saw and from what the journals say. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from flowengine.engine.events import Event, RunResumed
from tests.faults import story
from tests.support.model_server import Received

__all__ = ["RECORDED", "Repeat", "owner_of", "repeats", "takeovers"]

RECORDED = 0.1
"""Seconds from an answer's leaving the server to its being on record."""


@dataclass(frozen=True)
class Repeat:
    """A completion that was asked for again."""

    run: str
    first: Received
    second: Received

    @property
    def was_answered(self) -> float | None:
        return self.first.answered

    def is_excused(self, cut: Iterable[float]) -> bool:
        """Whether it was in flight when its asker was cut off, or had been answered less than `RECORDED` before."""
        ended = self.first.answered
        return any(
            self.first.arrived <= at + RECORDED and (ended is None or ended > at - RECORDED) and self.second.arrived > at
            for at in cut
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


def takeovers(
    requests: Sequence[Received], events: Mapping[str, Sequence[Event]], number: int, at: float
) -> dict[str, float | None]:
    """Run → seconds from a worker's end at `at` until another went on with what it had; None: nobody did."""
    last: dict[str, Received] = {}
    for request in requests:
        if request.arrived <= at:
            last[story.run_of(request.body)] = request
    held = [run for run, request in last.items() if owner_of(request) == number and events[run][-1].at > at]
    return {
        run: next((event.at - at for event in events[run] if isinstance(event, RunResumed) and event.at > at), None)
        for run in held
    }
