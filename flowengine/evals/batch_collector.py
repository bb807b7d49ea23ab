"""Gathers the model calls of many runs into vendors' batches, at half the price, wave by wave.

Theory of operation:

1. A run that meets a request without a recorded answer parks, as for a person's answer: it is put aside, and takes no
   memory but a name. What it asks is kept in a file of this process that has no name; a run that is interrupted asks
   it again.
2. When no run is at work and nothing new has been asked for a while, what is asked is sent, one batch for each
   vendor, address and model.
3. A batch is written down before it is sent, with a mark, and its id when that is known. So a process that is
   started again finds it at the vendor, and sends nothing a second time. A request is named by its run, its node and
   what it asks.
4. Runs go on when a batch of theirs has ended. They ask again, and have the answer under their request, in their
   journals as any other, before it is used. What a batch did not do (expired, cancelled, left out) is asked in one more
   batch, and then alone. A refused batch is an error of its calls. So is one that cannot be looked at: it stays on
   record, and a later process that comes to its calls looks at it again. One that the vendor does not find then either
   is gone, and its calls are sent anew.
5. After the deadline batches are cancelled, what they have answered is taken, and the rest is asked alone.
6. What a call has reserved of a limit stays reserved while it is put aside. A call that does not fit beside that is
   put aside as well, and looks again when a batch has ended.

It makes no model call of its own but those, and knows no flow.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, nullcontext
from dataclasses import dataclass
from tempfile import TemporaryFile
from time import time
from types import TracebackType
from typing import IO, Any, Final, NamedTuple, NoReturn, TypeAlias

import anyio
from anyio.abc import TaskGroup

from flowengine.core import BATCHING, AwaitsAnswer, CallPlace, Reservation
from flowengine.engine import JournalStore
from flowengine.errors import ModelError, PermanentModelError, TransientModelError
from flowengine.models.http import BatchableCall, BatchAnswer, VendorBatches, batches_of

_KIND: Final = "batches"
_MOST: Final = 10_000
"""Requests of one batch, within what the vendors take."""
_MOST_BYTES: Final = 48_000_000
_TRIES: Final = 2
"""Batches that a request may be in."""
_LIVE_SECONDS: Final = 600.0
_GONE: Final = frozenset({404, 410})
"""HTTP statuses of what a vendor does not have, or not for this key."""
_LINGERS: Final = 30
"""For which runs that are at work are waited for at most."""
_TOGETHER: Final = 0.002
"""Seconds in which the calls that a node makes at once are asked together."""


@dataclass(frozen=True)
class BatchPace:
    """The delays of a batch collector, in seconds."""

    linger: float = 2.0
    """The wait after which nothing new is expected, and what was asked is sent."""
    first_look: float = 5.0
    longest_pause: float = 60.0
    """The longest time between two looks at a batch."""
    deadline: float | None = None
    """The time after which all is asked alone."""


class _Place(NamedTuple):
    """The position of a text in the file."""

    at: int
    size: int


class _BatchRequest(NamedTuple):
    """A request that is to be sent."""

    run_id: str
    group: BatchableCall
    """The first call, of those with the same vendor, address and model."""
    body: _Place


_Outcome: TypeAlias = _Place | ModelError | None
"""An answer, why there is none, or None: it is to be asked alone."""


class _Texts:
    """A file that only this process sees, and that is gone with it."""

    def __init__(self) -> None:
        self._file: IO[bytes] = TemporaryFile()  # noqa: SIM115 - closed with its owner

    def add(self, text: bytes) -> _Place:
        at = self._file.seek(0, 2)
        self._file.write(text)
        return _Place(at, len(text))

    def read(self, place: _Place) -> bytes:
        self._file.seek(place.at)
        return self._file.read(place.size)

    def clear(self) -> None:
        self._file.truncate(0)

    def close(self) -> None:
        self._file.close()


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
        self._entries: dict[str, dict[str, Any]] = dict(store.recall(_KIND, scope) or {})
        """Mark → what is on record of a batch: its requests' names, its id once that is known, and of one that could
        not be looked at, whether it was missing."""
        older = sorted(self._entries.items(), key=lambda each: each[1]["at"])
        self._marks = {name: mark for mark, entry in older for name in entry["ids"]}
        """Request → the batch of an earlier go that it was last sent in."""
        self._were_missing = {mark for mark, entry in older if entry.get("missing")}
        """Batches that an earlier go did not find at their vendor."""
        self._groups: dict[tuple[object, ...], BatchableCall] = {}
        self._to_send: dict[str, _BatchRequest] = {}
        """Request → what is to be sent."""
        self._runs_by_request: dict[str, str] = {}
        """Request in a batch that has not ended → its run."""
        self._outcomes: dict[str, _Outcome] = {}
        self._ended: set[str] = set()
        """Marks whose answers are known."""
        self._followed: set[str] = set()
        self._tries = Counter[str]()
        self._requests, self._answers = _Texts(), _Texts()
        self._news = anyio.Event()
        self._is_live = False
        self._deadline = anyio.Event()
        self._at_work: set[str] = set()
        """Runs."""
        self._short: set[str] = set()
        """Runs that a limit has put aside."""
        self._touched: set[str] = set()
        """Runs at work that have put a call aside."""
        self._woken: set[str] = set()
        """Runs at work for which an answer has come."""
        self._wakes: dict[str, Callable[[], None]] = {}
        """Run that is put aside → what has it go on."""
        self._reservations: defaultdict[str, dict[str, Reservation]] = defaultdict(dict)
        """Run → call → what it has reserved."""
        self._unclaimed: dict[str, set[str]] = {}
        """Run at work → its calls that had something reserved, and that it has not come to again."""
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
        try:
            is_caught = await self._tasks.__aexit__(kind, error, trace)
        except BaseExceptionGroup as group:  # What ended the runs, or the sending of batches, comes out alone.
            first: BaseException = group.exceptions[0]
            if first is error:
                return False
            raise first from None
        finally:
            self._requests.close()
            self._answers.close()
        if error is None and not self._wakes and not self._runs_by_request:
            unread = {mark: self._entries[mark] for mark in self._unread()}
            self._store.revise(_KIND, self._scope, lambda before: unread or None)
        return is_caught

    def _unread(self) -> list[str]:
        """Batches that could not be looked at."""
        return [mark for mark, entry in self._entries.items() if "missing" in entry and mark not in self._ended]

    @property
    def is_complete(self) -> bool:
        """Whether no batch is left that could not be looked at, and that may be paid for."""
        return not self._unread()

    # --- Calls

    async def answer(self, place: CallPlace, call: BatchableCall, /) -> tuple[Mapping[str, Any], bool]:
        """The vendor's answer, and whether it came at the price of a batch; or `AwaitsAnswer`."""
        name = place.name_request(call.post.url, call.post.body)
        if name not in self._outcomes and not self._ask(name, place.run_id, call):
            self._touched.add(place.run_id)
            await anyio.sleep(_TOGETHER)
            raise AwaitsAnswer
        outcome = self._outcomes.get(name)
        if isinstance(outcome, ModelError):
            raise outcome
        if outcome is None:
            return await call.endpoint.exchange(call.post, _LIVE_SECONDS), False
        self.cheap_calls += 1
        return json.loads(self._answers.read(outcome)), True

    def _ask(self, name: str, run_id: str, call: BatchableCall) -> bool:
        """Have a request answered by a batch; whether it is to be asked alone."""
        if name in self._runs_by_request or name in self._to_send:
            return False
        mark = self._marks.get(name)
        if mark is not None and mark in self._entries and self._tries[name] == 0:
            if mark not in self._ended:
                self._runs_by_request[name] = run_id
                if mark not in self._followed:
                    self._followed.add(mark)
                    self._tasks.start_soon(self._find_and_follow, mark, call)
                return False
            self._tries[name] = 1  # It was left out there.
        if self._is_live:
            return True
        alike = call.provider, call.model, call.post.url, tuple(call.post.headers)
        group = self._groups.setdefault(alike, call)
        self._to_send[name] = _BatchRequest(run_id, group, self._requests.add(call.post.body))
        self._news.set()
        return False

    # --- What calls have reserved

    def find_reservation(self, place: CallPlace, /) -> Reservation | None:
        self._unclaimed.get(place.run_id, set()).discard(place.name)
        return self._reservations[place.run_id].pop(place.name, None)

    def hold(self, place: CallPlace, reservation: Reservation, /) -> None:
        self._reservations[place.run_id][place.name] = reservation

    def may_reserve(self, place: CallPlace, /) -> bool:
        return not self._unclaimed.get(place.run_id)

    def wait_for_room(self, place: CallPlace, /) -> NoReturn:
        self._short.add(place.run_id)
        self._touched.add(place.run_id)
        raise AwaitsAnswer

    # --- Runs

    def begin(self, run_id: str, /) -> None:
        self._at_work.add(run_id)
        self._unclaimed[run_id] = set(self._reservations[run_id])
        for run_ids in (self._touched, self._woken, self._short):
            run_ids.discard(run_id)

    def leave(self, run_id: str, wake: Callable[[], None] | None, /) -> bool:
        self._at_work.discard(run_id)
        waits = wake is not None and run_id in self._touched
        reservations = self._reservations[run_id]
        for name in self._unclaimed.pop(run_id, set()) if waits else list(reservations):
            if name in reservations:  # It was paid, and not collected.
                reservations.pop(name).settle_in_full()
        if not reservations:
            del self._reservations[run_id]
        if wake is not None and waits:
            self._wakes[run_id] = wake
            if run_id in self._woken:
                self._wake(run_id)
        if not (self._at_work or self._to_send or self._runs_by_request):
            self._wake_short()
        return waits

    def _wake(self, run_id: str) -> None:
        wake = self._wakes.pop(run_id, None)
        if wake is not None:
            wake()
        elif run_id in self._at_work:
            self._woken.add(run_id)

    def _wake_short(self) -> None:
        for run_id in list(self._short):
            if run_id not in self._at_work:
                self._short.discard(run_id)
            self._wake(run_id)

    # --- Waves

    async def _collect(self) -> None:
        while True:
            await self._news.wait()
            await self._wait_until_quiet()
            requests, self._to_send, self._news = self._to_send, {}, anyio.Event()
            self._runs_by_request.update((name, each.run_id) for name, each in requests.items())
            for group in _group_requests(requests):
                if self._is_live:  # The deadline has come while another batch was sent.
                    self._end(group, None)
                else:
                    await self._send(group, requests[group[0]].group, requests)
            if not self._to_send:
                self._requests.clear()

    async def _wait_until_quiet(self) -> None:
        count, patience = -1, _LINGERS
        while count != len(self._to_send) or (self._at_work and patience):
            patience -= count == len(self._to_send)
            count = len(self._to_send)
            await anyio.sleep(self._pace.linger)

    async def _send(self, names: Sequence[str], call: BatchableCall, requests: Mapping[str, _BatchRequest]) -> None:
        tries = max(self._tries[name] for name in names)
        mark = hashlib.sha256(f"{self._scope} {tries} {' '.join(sorted(names))}".encode()).hexdigest()[:32]
        vendor = batches_of(call)
        self._keep(mark, {"ids": names, "batch": None, "at": time(), "vendor": call.provider})
        self._followed.add(mark)
        try:
            batch = await vendor.submit({name: self._requests.read(requests[name].body) for name in names}, mark)
        except TransientModelError:
            # It may have arrived: looked for, and sent again only where it is not there.
            self._tasks.start_soon(self._find_and_follow, mark, call, self._pace.first_look)
            return
        except ModelError as error:
            self._forget(mark)
            self._end(names, error)
            return
        self.batches += 1
        self._keep(mark, {**self._entries[mark], "batch": batch})
        self._tell(f"sent {len(names):,} requests to {call.provider} as batch {batch}")
        self._tasks.start_soon(self._follow, mark, vendor)

    async def _find_and_follow(self, mark: str, call: BatchableCall, pause: float = 0.0) -> None:
        entry, vendor = self._entries[mark], batches_of(call)
        while entry["batch"] is None:
            await self._rest(pause)
            pause = min(max(1.5 * pause, self._pace.first_look), self._pace.longest_pause)
            try:
                batch_id = await vendor.find(mark, entry["ids"], entry["at"])
            except TransientModelError:
                if self._is_live:
                    self._give_up(mark, None)
                    return
                continue
            except ModelError as error:
                self._give_up(mark, error)
                return
            if batch_id is None:  # It was never sent: a call that asks again is sent with others.
                self._forget(mark)
                self._ask_again(entry["ids"])
                return
            entry = dict(entry, batch=batch_id)
            self._keep(mark, entry)
        await self._follow(mark, vendor)

    async def _rest(self, seconds: float) -> None:
        with anyio.move_on_after(seconds):
            await (anyio.sleep_forever() if self._is_live else self._deadline.wait())

    async def _follow(self, mark: str, vendor: VendorBatches) -> None:
        """Look at a batch until it has ended, and hand its answers out."""
        entry, pause, is_cancelled = self._entries[mark], self._pace.first_look, False
        batch = entry["batch"]
        while True:
            if self._is_live and not is_cancelled:
                is_cancelled = await self._cancel(vendor, batch)
            await self._rest(pause)
            pause = min(1.5 * pause, self._pace.longest_pause)
            try:
                look = await vendor.look(batch)
                if look.state == "running":
                    continue
                if look.state == "ended":
                    await vendor.read_answers(batch, self._take)
            except TransientModelError:
                continue
            except ModelError as error:
                if error.status in _GONE:
                    self._miss(mark, error)
                else:
                    self._give_up(mark, error)
                return
            if look.state == "failed":
                self._forget(mark)
                self._end(entry["ids"], PermanentModelError(f"batch {batch} was refused: {look.error}"))
                return
            self._ended.add(mark)
            self._hand_out(entry["ids"])
            return

    def _take(self, name: str, answer: BatchAnswer) -> None:
        """Keep an answer of a batch; one that was not done is none."""
        if answer.body is not None:
            self._outcomes[name] = self._answers.add(json.dumps(answer.body).encode())
        elif answer.error is not None:
            self._outcomes[name] = answer.error

    def _hand_out(self, names: Sequence[str]) -> None:
        """Have the runs of a batch that has ended go on."""
        for name in names:
            if name in self._runs_by_request and name not in self._outcomes:  # It was not done.
                self._tries[name] += 1
                if self._is_live or self._tries[name] >= _TRIES:
                    self._outcomes[name] = None
        self._ask_again(names)

    def _end(self, names: Sequence[str], outcome: _Outcome) -> None:
        self._outcomes.update(dict.fromkeys((name for name in names if name in self._runs_by_request), outcome))
        self._ask_again(names)

    def _ask_again(self, names: Sequence[str]) -> None:
        """Have the runs that wait for these requests come to them again."""
        for name in names:
            if (run_id := self._runs_by_request.pop(name, None)) is not None:
                self._wake(run_id)
        self._wake_short()

    def _give_up(self, mark: str, error: ModelError | None) -> None:
        """End the wait for a batch: its calls fail, or are asked alone. A later call looks at it anew."""
        self._followed.discard(mark)
        entry = self._entries[mark]
        if error is not None:
            self._keep(mark, {**entry, "missing": error.status in _GONE})
        self._end(entry["ids"], error)

    def _miss(self, mark: str, error: ModelError) -> None:
        """The vendor does not find a batch. Nothing is paid twice unless that was said, and the calls came again."""
        entry = self._entries[mark]
        batch = f"batch {entry['batch']} with {len(entry['ids']):,} requests"
        if mark in self._were_missing:
            self._tell(f"{entry['vendor']} still does not find {batch}: those that are asked again are sent anew")
            self._forget(mark)
            self._ask_again(entry["ids"])
            return
        message = (
            f"{entry['vendor']} does not find {batch}: it was removed, or it belongs to another project than the key. "
            "When these calls are tried again, with the same key or another, it is looked for once more; if it is "
            f"still missing, they are sent anew, and may be paid a second time ({error})"
        )
        explained = PermanentModelError(message)
        explained.status = error.status
        self._give_up(mark, explained)

    # --- The deadline

    async def _end_at_deadline(self, seconds: float) -> None:
        await anyio.sleep(seconds)
        self._is_live = True
        self._deadline.set()
        self._tell("the deadline has come: what no batch has answered is asked alone")
        requests, self._to_send = self._to_send, {}
        self._runs_by_request.update((name, each.run_id) for name, each in requests.items())
        self._end(list(requests), None)

    async def _cancel(self, vendor: VendorBatches, batch: str) -> bool:
        """Have a batch end; False where the vendor may not have heard of it."""
        try:
            await vendor.cancel(batch)
        except TransientModelError:
            return False
        except ModelError:  # It has ended meanwhile, or is being cancelled.
            return True
        return True

    # --- What is on record

    def _keep(self, mark: str, entry: dict[str, Any]) -> None:
        self._entries[mark] = entry

        def with_batch(before: Mapping[str, Any] | None) -> Mapping[str, Any]:
            return {**(before or {}), mark: entry}

        self._store.revise(_KIND, self._scope, with_batch)

    def _forget(self, mark: str) -> None:
        """A batch that is not there."""
        self._entries.pop(mark, None)
        for marks in (self._followed, self._were_missing):
            marks.discard(mark)

        def without(before: Mapping[str, Any] | None) -> Mapping[str, Any]:
            return {name: each for name, each in (before or {}).items() if name != mark}

        self._store.revise(_KIND, self._scope, without)


def _group_requests(requests: Mapping[str, _BatchRequest]) -> Iterable[list[str]]:
    """The names of the requests that go into one batch each."""
    parts: defaultdict[BatchableCall, list[list[str]]] = defaultdict(lambda: [[]])
    sizes = Counter[BatchableCall]()
    for name, each in requests.items():
        sizes[each.group] += each.body.size
        if len(parts[each.group][-1]) >= _MOST or sizes[each.group] > _MOST_BYTES:
            parts[each.group].append([])
            sizes[each.group] = each.body.size
        parts[each.group][-1].append(name)
    return [names for group in parts.values() for names in group if names]


def open_collector(
    store: JournalStore, scope: str, pace: BatchPace | None, tell: Callable[[str], object] = lambda text: None
) -> AbstractAsyncContextManager[BatchCollector | None]:
    """A collector; nothing without a pace."""
    return nullcontext() if pace is None else BatchCollector(store, scope, pace, tell)
