"""Gathers the model calls of many runs into vendors' batches, at half the price, wave by wave.

Theory of operation:

1. A run that meets a request without a recorded answer waits for it; all other runs go on until they wait too.
2. When nothing new has been asked for a while, what is asked is sent, one batch for each vendor, address and model.
3. A batch is written down before it is sent, with a mark, and its id when that is known. So whoever is started again
   finds it at the vendor, and sends nothing a second time. A request is named by its run and by what it asks.
4. An answer goes to the run that waits for it, whose journal has it before it is used. What a batch did not do
   (expired, cancelled, left out) is asked in one more batch, and then alone. A refused batch is an error of its calls.
5. After the deadline batches are cancelled, what they have answered is taken, and the rest is asked alone.

It makes no model call of its own but those, and knows no flow.
"""

from __future__ import annotations

import hashlib
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, nullcontext
from dataclasses import dataclass, field
from time import time
from types import TracebackType
from typing import Any, Final

import anyio
from anyio.abc import TaskGroup

from flowengine.core.context import EMPTY
from flowengine.engine.ports import JournalStore
from flowengine.errors import ModelError, PermanentModelError, TransientModelError
from flowengine.models.http.vendor_batches import BATCHING, BatchableCall, BatchAnswer, VendorBatches, batches_of
from flowengine.runners.row_runs import ROW_RUN

__all__ = ["CONCURRENCY", "BatchCollector", "BatchPace", "batched"]

CONCURRENCY: Final = 1_000
"""Rows in flight at once, where nothing is said: a batch is the better the more wait for it."""
_KIND: Final = "batches"
_MOST: Final = 10_000
"""Requests of one batch, within what the vendors take."""
_MOST_BYTES: Final = 90_000_000
_TRIES: Final = 2
"""Batches that a request may be in."""
_LIVE_SECONDS: Final = 600.0


@dataclass(frozen=True)
class BatchPace:
    """How patient a collector is, in seconds."""

    linger: float = 2.0
    """After which nothing new is expected, and what was asked is sent."""
    first_look: float = 5.0
    longest_pause: float = 60.0
    """Between two looks at a batch."""
    deadline: float | None = None
    """From when on all is asked alone."""


@dataclass(eq=False)
class _Waiting:
    """A call that waits for its answer."""

    name: str
    call: BatchableCall
    done: anyio.Event = field(default_factory=anyio.Event)
    answer: BatchAnswer | None = None
    """None once it is done: it is to be asked alone."""

    def end(self, answer: BatchAnswer | None) -> None:
        self.answer = answer
        self.done.set()


class BatchCollector:
    """Open it with `async with` round what runs the rows. `scope` names what goes on when it is started again."""

    def __init__(
        self,
        store: JournalStore,
        scope: str,
        pace: BatchPace = BatchPace(),
        tell: Callable[[str], object] = lambda text: None,
    ) -> None:
        self._store = store
        self._scope = scope
        self._pace = pace
        self._tell = tell
        self._kept: dict[str, dict[str, Any]] = dict(store.recall(_KIND, scope) or {})
        """Mark → what is on record of a batch: its requests' names, and its id once that is known."""
        self._fresh: dict[str, _Waiting] = {}
        self._waiting: dict[str, _Waiting] = {}
        self._counts: Counter[str] = Counter()
        self._tries: Counter[str] = Counter()
        self._answers: dict[str, Mapping[str, BatchAnswer]] = {}
        """Mark → what an ended batch gave."""
        self._followed: set[str] = set()
        self._asked = anyio.Event()
        self._is_live = False
        self._deadline = anyio.Event()
        self.batches = 0
        """Sent now."""
        self.cheap_calls = 0
        """Answered by batches."""
        self._tasks: TaskGroup

    async def __aenter__(self) -> BatchCollector:
        self._token = BATCHING.set(self)
        self._tasks = await anyio.create_task_group().__aenter__()
        self._tasks.start_soon(self._collect)
        if self._pace.deadline is not None:
            self._tasks.start_soon(self._end_at_deadline, self._pace.deadline)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool | None:
        BATCHING.reset(self._token)
        self._tasks.cancel_scope.cancel()
        if error is None and not self._waiting:
            self._store.revise(_KIND, self._scope, lambda before: None)
        return await self._tasks.__aexit__(kind, error, trace)

    # --- Calls

    async def answer(self, call: BatchableCall, /) -> tuple[Mapping[str, Any], bool]:
        """The vendor's answer, and whether it came at the price of a batch."""
        if not self._is_live:
            waiting = _Waiting(self._name(call), call)
            self._fresh[waiting.name] = self._waiting[waiting.name] = waiting
            self._asked.set()
            try:
                await waiting.done.wait()
            finally:
                self._fresh.pop(waiting.name, None)
                self._waiting.pop(waiting.name, None)
            if waiting.answer is not None:
                if waiting.answer.error is not None:
                    raise waiting.answer.error
                if waiting.answer.body is not None:
                    self.cheap_calls += 1
                    return waiting.answer.body, True
        return await call.endpoint.exchange(call.post, _LIVE_SECONDS), False

    def _name(self, call: BatchableCall) -> str:
        """The same for the same request of the same run, also in another process."""
        asked = hashlib.sha256(ROW_RUN.get().encode() + b"\0" + call.post.url.encode() + b"\0" + call.post.body)
        name = asked.hexdigest()[:40]
        self._counts[name] += 1
        return f"{name}-{self._counts[name]}"

    # --- Waves

    async def _collect(self) -> None:
        while True:
            await self._asked.wait()
            await self._wait_until_quiet()
            fresh, self._fresh = self._fresh, {}
            self._asked = anyio.Event()
            for group in self._grouped(fresh.values()):
                await self._send(group)

    async def _wait_until_quiet(self) -> None:
        count = -1
        while count != len(self._fresh):
            count = len(self._fresh)
            await anyio.sleep(self._pace.linger)

    def _grouped(self, waiting: Iterable[_Waiting]) -> list[list[_Waiting]]:
        """Those that go into one batch each; what is in a batch already is taken from there."""
        marks = {name: mark for mark, kept in self._kept.items() for name in kept["ids"]}
        groups: defaultdict[tuple[str, str, str], list[list[_Waiting]]] = defaultdict(lambda: [[]])
        sizes: Counter[tuple[str, str, str]] = Counter()
        for each in waiting:
            mark = marks.get(each.name)
            if mark is not None and self._tries[each.name] == 0:
                self._take_up(mark, each)
                continue
            key = each.call.provider, each.call.post.url, each.call.model
            sizes[key] += len(each.call.post.body)
            if len(groups[key][-1]) >= _MOST or sizes[key] > _MOST_BYTES:
                groups[key].append([])
                sizes[key] = len(each.call.post.body)
            groups[key][-1].append(each)
        return [group for parts in groups.values() for group in parts if group]

    def _take_up(self, mark: str, waiting: _Waiting) -> None:
        """Wait for a batch that was sent before."""
        if mark in self._answers:
            self._hand_out(mark, [waiting.name])
        elif mark not in self._followed:
            self._followed.add(mark)
            self._tasks.start_soon(self._find_and_follow, mark, waiting.call)

    async def _find_and_follow(self, mark: str, call: BatchableCall) -> None:
        kept, vendor = self._kept[mark], batches_of(call)
        try:
            if kept["batch"] is None:
                found = await vendor.find(mark, kept["ids"], kept["at"])
                if found is None:  # It was never sent.
                    self._forget(mark)
                    return
                self._keep(mark, {**kept, "batch": found})
        except ModelError as error:
            self._give_up(mark, error)
            return
        await self._follow(mark, vendor)

    async def _send(self, group: Sequence[_Waiting]) -> None:
        names, call = [each.name for each in group], group[0].call
        tries = max(self._tries[name] for name in names)
        mark = hashlib.sha256(f"{self._scope} {tries} {' '.join(sorted(names))}".encode()).hexdigest()[:32]
        vendor = batches_of(call)
        self._keep(mark, {"ids": names, "batch": None, "at": time(), "vendor": call.provider})
        try:
            batch = await vendor.submit({each.name: each.call for each in group}, mark)
        except TransientModelError:
            # It may have arrived: looked for, and sent again only where it is not there.
            await anyio.sleep(self._pace.first_look)
            self._followed.add(mark)
            self._tasks.start_soon(self._find_and_follow, mark, call)
            return
        except ModelError as error:
            self._forget(mark, again=False)
            self._fail(names, error)
            return
        self.batches += 1
        self._keep(mark, {**self._kept[mark], "batch": batch})
        self._tell(f"sent {len(names):,} requests to {call.provider} as batch {batch}")
        self._followed.add(mark)
        self._tasks.start_soon(self._follow, mark, vendor)

    async def _follow(self, mark: str, vendor: VendorBatches) -> None:
        """Look at a batch until it has ended, and hand its answers out."""
        batch, pause, is_cancelled = self._kept[mark]["batch"], self._pace.first_look, False
        while True:
            if self._is_live and not is_cancelled:
                is_cancelled = True
                await self._cancel(vendor, batch)
            with anyio.move_on_after(pause):
                await (anyio.sleep_forever() if is_cancelled else self._deadline.wait())
            pause = min(1.5 * pause, self._pace.longest_pause)
            try:
                look = await vendor.look(batch)
                if look.state == "running":
                    continue
                answers = EMPTY if look.state == "failed" else await vendor.answers(batch)
            except TransientModelError:
                continue
            except ModelError as error:
                self._give_up(mark, error)
                return
            if look.state == "failed":
                names = self._kept[mark]["ids"]
                self._forget(mark, again=False)
                self._fail(names, PermanentModelError(f"batch {batch} was refused: {look.error}"))
                return
            self._answers[mark] = answers
            self._hand_out(mark, self._kept[mark]["ids"])
            return

    def _hand_out(self, mark: str, names: Sequence[str]) -> None:
        answers = self._answers[mark]
        for name in names:
            waiting = self._waiting.get(name)
            if waiting is None:
                continue
            found = answers.get(name)
            if found is not None and (found.body is not None or found.error is not None):
                waiting.end(found)
                continue
            self._tries[name] += 1  # It was not done.
            if self._is_live or self._tries[name] >= _TRIES:
                waiting.end(None)
            else:
                self._fresh[name] = waiting
                self._asked.set()

    def _give_up(self, mark: str, error: ModelError) -> None:
        """Fail the calls that wait for a batch; whoever asks for it later looks at it anew."""
        self._followed.discard(mark)
        self._fail(self._kept[mark]["ids"], error)

    def _fail(self, names: Sequence[str], error: ModelError) -> None:
        for name in names:
            if (waiting := self._waiting.get(name)) is not None:
                waiting.end(BatchAnswer(None, error))

    # --- The deadline

    async def _end_at_deadline(self, seconds: float) -> None:
        await anyio.sleep(seconds)
        self._is_live = True
        self._deadline.set()
        self._tell("the deadline has come: what no batch has answered is asked alone")
        for waiting in list(self._fresh.values()):
            waiting.end(None)

    async def _cancel(self, vendor: VendorBatches, batch: str) -> None:
        try:
            await vendor.cancel(batch)
        except ModelError:  # It has ended meanwhile, or is being cancelled.
            return

    # --- What is on record

    def _keep(self, mark: str, kept: dict[str, Any]) -> None:
        self._kept[mark] = kept

        def with_batch(before: Mapping[str, Any] | None) -> Mapping[str, Any]:
            return {**(before or {}), mark: kept}

        self._store.revise(_KIND, self._scope, with_batch)

    def _forget(self, mark: str, *, again: bool = True) -> None:
        """A batch that is not there; `again`: its requests are sent anew."""
        kept = self._kept.pop(mark, None)
        self._followed.discard(mark)

        def without(before: Mapping[str, Any] | None) -> Mapping[str, Any]:
            return {name: each for name, each in (before or {}).items() if name != mark}

        self._store.revise(_KIND, self._scope, without)
        for name in kept["ids"] if kept is not None and again else ():
            if (waiting := self._waiting.get(name)) is not None:
                self._fresh[name] = waiting
                self._asked.set()


def batched(
    store: JournalStore, scope: str, pace: BatchPace | None, tell: Callable[[str], object]
) -> AbstractAsyncContextManager[BatchCollector | None]:
    """A collector, or nothing where calls are made one by one."""
    return nullcontext() if pace is None else BatchCollector(store, scope, pace, tell)
