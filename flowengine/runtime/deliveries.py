"""Has people told of the questions of a run while it goes on, and journals what became of it.

It neither delays nor ends the run: nodes go on meanwhile, and so does the run once an answer is there. What was not
told when the run is put aside is told by the process that goes on with it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Hashable, Sequence
from functools import partial
from time import perf_counter
from typing import Final, TypeVar

import anyio

from flowengine.core import Notified, RunScope
from flowengine.engine import Event, Journal, NodeRecorded
from flowengine.errors import JournalError
from flowengine.journal import Mail, commit_events, told_last
from flowengine.nodes import Notifier, QuestionDelivery

T = TypeVar("T")


_SHARE: Final = 0.1
"""The largest share of the time that is spent on looking for deliveries."""

_MAX_PARALLEL: Final = 8
_LONGEST_WAIT: Final = 30.0
"""Seconds that a run which waits for people is kept open for deliveries."""


_FIRST, _LONGEST, _MOST_TRIES = 60.0, 3600.0, 30
"""Seconds until those are told again who could not be told, which double; and how often that is done, about a day."""


def next_try(events: Sequence[Event]) -> float | None:
    """Returns when to open a waiting run again after a failed delivery; None if all arrived, or after long enough."""
    untold = sum(each.error is not None for each in told_last(events))
    failed = [
        event.at
        for event in events
        if isinstance(event, NodeRecorded) and type(event.record) is Notified and event.record.error is not None
    ]
    if not untold or len(failed) > _MOST_TRIES * untold:
        return None
    rounds = -(-len(failed) // untold)
    return max(failed) + min(_FIRST * 2 ** (rounds - 1), _LONGEST)


class Deliveries:
    """Sends the notices of one run for as long as one process drives it."""

    def __init__(self, notifier: Notifier, journal: Journal, clock: Callable[[], float]) -> None:
        self._notifier, self._journal, self._clock = notifier, journal, clock
        self._keys: set[Hashable] = set()
        self._work_count = 0
        """Deliveries, and looks for them, that are on their way."""
        self._looks = self._is_asked = False
        self._idle = anyio.Event()
        self._turns = anyio.Semaphore(_MAX_PARALLEL)
        self._scope: RunScope
        self._failure: JournalError | None = None

    async def beside(
        self, work: Callable[[Callable[[], None]], Awaitable[T]], waits: Callable[[], bool], mail: Mail
    ) -> T:
        """Runs `work`, which calls its argument when a node asks. If the run then `waits`, also awaits the last
        deliveries.
        """
        results: list[T] = []
        async with RunScope() as self._scope:
            results.append(await work(self._look_soon))
            if waits():
                await self._settle(mail)
        if self._failure is not None:
            raise self._failure
        return results[0]

    def _look_soon(self) -> None:
        """Many nodes may ask at once: they share a look."""
        self._is_asked = True
        if not self._looks:
            self._looks = True
            self._work_count += 1
            self._scope.start_soon(self._look)

    async def _look(self) -> None:
        while self._is_asked:
            self._is_asked, start = False, perf_counter()
            for each in self._notifier.due(self._journal.read()):
                if each.key not in self._keys:
                    self._keys.add(each.key)
                    self._work_count += 1
                    self._scope.start_soon(partial(self._deliver, each))
            await anyio.sleep((perf_counter() - start) / _SHARE)
        self._looks = False
        self._end_one()

    async def _deliver(self, delivery: QuestionDelivery) -> None:
        async with self._turns:
            record = await delivery.send()
        try:
            await commit_events(self._journal, NodeRecorded(delivery.node, self._clock(), record), alone=False)
        except JournalError as error:
            self._failure = self._failure or error
        self._end_one()

    def _end_one(self) -> None:
        self._work_count -= 1
        if not self._work_count:
            self._idle.set()

    async def _settle(self, mail: Mail) -> None:
        """Wait for the deliveries that are on their way, or for an answer."""
        if not self._work_count:
            return
        self._idle = anyio.Event()
        async with anyio.create_task_group() as tasks:

            async def hear() -> None:
                await mail.wait()
                tasks.cancel_scope.cancel()

            tasks.start_soon(hear)
            with anyio.move_on_after(_LONGEST_WAIT):
                await self._idle.wait()
            tasks.cancel_scope.cancel()
