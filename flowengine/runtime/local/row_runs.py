"""Runs a flow once for each row of data: some at once, each a journaled run, its results in the rows' order.

A set of rows goes on where it was: each row's run has an id that follows from the set and from what the row gives, so
a process that starts the set again finds what has finished, goes on with what was interrupted, and runs the rest. It
reads no file and prints nothing; what a row is to give the flow is for others to say.
"""

from __future__ import annotations

import hashlib
import os
from collections import Counter, deque
from collections.abc import (
    AsyncGenerator,
    AsyncIterable,
    AsyncIterator,
    Awaitable,
    Callable,
    Container,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import pairwise
from math import inf
from time import monotonic
from typing import Any, Final, Literal, NamedTuple, TypeAlias

import anyio

from flowengine.core import (
    BATCHING,
    EMPTY,
    Budget,
    Ledger,
    ModelCall,
    RunStatus,
    Spending,
    dumps,
    explain_unpriced,
    start_apart,
)
from flowengine.engine import (
    ErrorInfo,
    Event,
    History,
    JournalStore,
    NodeRecorded,
    RunFinished,
    RunInfo,
    RunResumed,
    error_info,
)
from flowengine.errors import (
    DefinitionError,
    EffectPendingError,
    FlowChangedError,
    InputError,
    NotJournalableError,
    RunError,
)
from flowengine.journal import check_labels
from flowengine.models import is_stand_in
from flowengine.nodes import CompiledFlow
from flowengine.runtime.local.local import resume, start
from flowengine.runtime.run import DEFAULTS, Run, RunOptions
from flowengine.runtime.set_lease import hold_set

RowStatus: TypeAlias = RunStatus | Literal["refused"]
"""How a row stands; `refused`: its run did not begin, since what it gives does not fit the flow."""

_WINDOW: Final = 4096
"""Rows that may be ahead of the first one that has not ended."""
_BATCHED_WINDOW: Final = 50_000
"""The same, where rows that wait for a batch are put aside."""
_ENDED: Final = ("succeeded", "failed", "partial")
"""The statuses of a row that is done, unless failed ones are to be tried again."""
_LISTED: Final = "set"
"""The label that holds a run's set."""


class DataRow(NamedTuple):
    """The inputs of one row."""

    number: int
    """Its place in the data, from 1 on."""
    inputs: Mapping[str, Any]
    problem: str | None = None
    """Why it cannot be run."""
    data: Any = None
    """The row as it was read, for reports."""
    labels: Mapping[str, str] = EMPTY
    """Beside those of the set."""
    reuse: str | Sequence[str] | None = None
    """An earlier run, or several, whose results are taken where they still hold."""
    variant: str = ""
    """Tells rows apart that give the same: the number of a sample."""


AnyRow: TypeAlias = DataRow | Mapping[str, Any]


class RowResult(NamedTuple):
    """The result of one row."""

    row: DataRow
    run_id: str | None
    """None where no run began."""
    status: RowStatus
    outputs: Mapping[str, Any]
    error: ErrorInfo | None
    node: str | None
    """The node that failed."""
    spent: Spending
    """By its run, on all its ways; a known result that was taken costs nothing."""
    seconds: float
    """The time that it took now, or by its record where it had ended before."""
    was_there: bool = False
    """Whether it had ended before, and was read from its record."""
    run: Run | None = None
    """None where it was read from its record, did not begin, or was put aside meanwhile."""
    has_stand_in: bool = False
    """Whether the offline stand-in gave an answer in it."""

    @property
    def succeeded(self) -> bool:
        """Whether its run ended with outputs."""
        return self.status == "succeeded"


# --- A set of rows in a store


class RowSet(NamedTuple):
    """A set of rows that was begun before, or is begun now."""

    id: str
    name: str
    """What its runs have as the label `data`."""
    known: Mapping[str, RunInfo] = EMPTY
    """Run → how it stands, of those that began before."""
    was_edited: bool = False
    """Whether the flow is another one than when rows were last run, which was allowed."""

    def labels(self, row: DataRow, labels: Mapping[str, str]) -> Mapping[str, str]:
        """The labels of a row's run."""
        return {"data": self.name, "row": str(row.number), _LISTED: self.id, **labels, **row.labels}


def open_row_set(
    plan: CompiledFlow, store: JournalStore, name: str, key: str, *, fresh: bool = False, allow_changed: bool = False
) -> RowSet:
    """The set that was begun under a key, or a new one. `FlowChangedError` where the flow was edited since, or where
    its nodes that name no model would ask another one.

    `fresh`: begin a new one in any case. `key` tells sets of one flow apart.
    """
    models = ", ".join(sorted({each.name for each in plan.default_models.values()}))
    definition = _hash(dict(plan.fingerprints), dict(plan.code))
    new = os.urandom(4).hex()
    record: dict[str, str] = {}
    was_edited = False

    def choose(entry: Mapping[str, str] | None) -> Mapping[str, str]:
        """In one step with keeping it: of two processes that begin a set at once, one goes on with the other's."""
        nonlocal was_edited
        was_edited = entry is not None and not fresh and entry["flow"] != definition
        if was_edited and not allow_changed:
            raise FlowChangedError(f"the flow '{plan.name}' was edited since its runs over '{name}' began")
        # A set of before this was kept does not say it.
        if entry is not None and not fresh and entry.get("models", models) != models and not allow_changed:
            raise FlowChangedError(
                f"the nodes of flow '{plan.name}' that name no model asked {entry['models']} when its runs over "
                f"'{name}' began, and would ask {models} now"
            )
        record.update(set=new if entry is None or fresh else entry["set"], flow=definition, models=models)
        return dict(record)

    store.revise("rows", _hash(plan.name, key), choose)
    label = _label_of(name)
    if record["set"] == new:
        return RowSet(new, label)
    return RowSet(record["set"], label, _list_runs(store, record["set"]), was_edited)


def _list_runs(store: JournalStore, set_id: str) -> Mapping[str, RunInfo]:
    return {each.run_id: each for each in store.list() if each.labels.get(_LISTED) == set_id}


def _label_of(name: str) -> str:
    """A name as a label's value."""
    printable = "".join(each if each.isprintable() else "?" for each in name)
    return printable[-200:] or "rows"


def _hash(*values: Any) -> str:
    return hashlib.sha256(dumps(values).encode("utf-8", "surrogatepass")).hexdigest()


# --- Running the rows


@dataclass(slots=True, kw_only=True)
class RowRuns:
    """Settings for the runs of a set of rows."""

    plan: CompiledFlow
    store: JournalStore
    rows: RowSet
    concurrency: int = 20
    """Maximum number of rows running at once."""
    budget: Budget = Budget()  # noqa: RUF009 - frozen
    """What all rows may spend together now; a row that it stops is paused, and no other begins."""
    options: RunOptions = DEFAULTS
    """Of each run; each has an id, labels and a ledger of its own besides."""
    retry_failed: bool = False
    """Go on with rows that failed before."""
    begin: Callable[[DataRow, str, Ledger, Mapping[str, str]], Awaitable[Run]] | None = None
    """Begins a row's run (row, id, what it may spend, labels), where it is not simply started."""
    plan_of: Callable[[DataRow], CompiledFlow] | None = None
    """What a row is run with, where that is not the same for all."""
    heard: Callable[[RowResult], None] | None = None
    """Called when a row has ended, in whatever order; must not block."""
    tell: Callable[[str], object] = lambda text: None
    """Hears of each model once for which a limit of money is not kept."""
    ledger: Ledger | None = None
    """What is spent now, where it is kept for more than these rows: its bounds hold then, instead of `budget`."""
    _shared: Ledger = field(init=False)
    _counts: Counter[str] = field(init=False, default_factory=Counter[str])

    def __post_init__(self) -> None:
        self._shared = self.ledger or Ledger(self.budget, of="the set of rows", on_limit="pause")
        if self.concurrency < 1:
            raise InputError(f"at least one row is in flight at once, not {self.concurrency}")
        check_labels({**self.options.labels, "data": self.rows.name})

    async def results(self, rows: Iterable[AnyRow] | AsyncIterable[AnyRow]) -> AsyncGenerator[RowResult]:
        """Run the rows (a mapping is the inputs of one), and give their results in the rows' order.

        A reader that leaves early stops the rows at work; `contextlib.aclosing` waits until they have ended. Rows that
        a spent budget kept from beginning have no result. What keeps records from being written ends it with a
        `JournalError`, a `RunBusyError` where another process is at work on the set.
        """
        await self.plan.ready()
        order = _InOrder(_WINDOW if BATCHING.get() is None else _BATCHED_WINDOW)
        order.workers = self.concurrency
        scope, ended = anyio.CancelScope(), anyio.Event()
        # Its tasks are none of the reader's: one that leaves early may never close this generator, or in another task.
        thread = start_apart(partial(self._run_all, rows, order, scope, ended))
        try:
            while (result := await order.take()) is not None:
                yield result
        finally:
            scope.cancel()
            with anyio.CancelScope(shield=True):
                await ended.wait()
            del thread
        if order.failure is not None:
            raise order.failure

    def read_ended(self, rows: Iterable[AnyRow], numbers: Container[int]) -> Iterator[RowResult]:
        """Yields the recorded results of the other rows that have ended, now or before, once `results` has ended early.
        `numbers`: the numbers of the rows that had a result."""
        infos = _list_runs(self.store, self.rows.id)
        self._counts.clear()
        for number, each in enumerate(rows, 1):
            row = each if isinstance(each, DataRow) else DataRow(number, each, data=each)
            info = None if row.problem is not None else infos.get(self.id_of(row))
            if info is not None and info.status in _ENDED and row.number not in numbers:
                yield self._read(row, info)

    async def _run_all(
        self,
        rows: Iterable[AnyRow] | AsyncIterable[AnyRow],
        order: _InOrder,
        scope: anyio.CancelScope,
        ended: anyio.Event,
    ) -> None:
        """Runs the rows until the scope is cancelled."""
        try:
            with scope, hold_set(self.store, self.rows.id) as keep_holding:
                async with order.wake, order.woken, anyio.create_task_group() as tasks:
                    tasks.start_soon(self._hold_lease, keep_holding, order)
                    source = _Source(rows, order)
                    for _ in range(self.concurrency):
                        tasks.start_soon(self._work, source, order)
                        if BATCHING.get() is not None:
                            tasks.start_soon(self._go_on, order)
                    await anyio.sleep_forever()
        except BaseException as error:  # It is the reader's, and not the event loop's.
            order.fail(error)
        finally:
            ended.set()

    async def _hold_lease(self, keep_holding: Callable[[], Awaitable[None]], order: _InOrder) -> None:
        try:
            await keep_holding()
        except Exception as error:
            order.fail(error)

    async def _work(self, source: _Source, order: _InOrder) -> None:
        try:
            while not self._shared.has_refused and (item := await source.next()) is not None:
                await self._take(_Row(*item), order)
        except Exception as error:
            order.fail(error)
        finally:
            order.leave()

    async def _go_on(self, order: _InOrder) -> None:
        """Go on with rows that were put aside, once there is reason to."""
        while True:
            each = await order.woken.receive()
            try:
                await self._take(each, order)
            except Exception as error:
                order.fail(error)
            finally:
                order.leave()

    async def _take(self, each: _Row, order: _InOrder) -> None:
        """Run a row until it ends, or is put aside."""
        batcher = BATCHING.get()
        result = await self._run_row(each, None if batcher is None else batcher.begin)
        if batcher is not None and each.run_id:
            is_over = result.status != "waiting"
            if is_over:
                result = result._replace(run=None)  # Others may be long before it.
            else:
                order.workers += 1  # Somebody comes back to it.
            if batcher.leave(each.run_id, None if is_over else partial(order.wake.send_nowait, each)):
                each.is_aside = True
                return
            order.workers -= not is_over
        order.put(each.place, result)
        for name in [name for name, is_told in self._shared.unpriced_models.items() if not is_told]:
            self._shared.unpriced_models[name] = True
            self.tell(f"notice: {explain_unpriced(name)}")
        if self.heard is not None:
            self.heard(result)

    async def _run_row(self, each: _Row, begin: Callable[[str], None] | None) -> RowResult:
        row = each.row
        if row.problem is not None:
            return _refuse_row(row, ErrorInfo("InputError", row.problem))
        try:
            run_id = each.run_id or self.id_of(row)
        except (RecursionError, UnicodeError, ValueError, TypeError) as error:
            return _refuse_row(row, error_info(InputError(f"the row cannot be written down: {error}")))
        info = self.rows.known.get(run_id)
        if info is not None and self._has_ended(info):
            return self._read(row, info)
        before = Spending() if info is None else History(self.store.events(run_id)).sum_spending()
        ledger, start = each.ledger or Ledger(Budget(), above=self._shared, spent=before), monotonic()
        each.ledger = ledger
        if begin is not None:
            each.run_id = run_id
            begin(run_id)
        try:
            run = await self._run(row, run_id, info is not None or each.is_aside, ledger)
        except (EffectPendingError, NotJournalableError, DefinitionError, RunError) as error:
            if info is None and not each.is_aside:
                return _refuse_row(row, error_info(error))
            return RowResult(row, run_id, "failed", EMPTY, error_info(error), None, before, monotonic() - start)
        each.seconds += monotonic() - start
        took, spent = each.seconds, ledger.spent
        return RowResult(
            row,
            run_id,
            run.status,
            run.outputs,
            run.error,
            run.failed_node,
            spent,
            took,
            run=run,
            has_stand_in=_has_stand_in(run.events),
        )

    async def _run(self, row: DataRow, run_id: str, is_known: bool, ledger: Ledger) -> Run:
        plan = self.plan if self.plan_of is None else self.plan_of(row)
        if is_known:
            return await resume(plan, run_id, self.store, replace(self.options, settings=EMPTY, above=ledger))
        labels = self.rows.labels(row, self.options.labels)
        if self.begin is not None:
            return await self.begin(row, run_id, ledger, labels)
        options = replace(self.options, run_id=run_id, reuse=row.reuse, labels=labels, above=ledger)
        return await start(plan, row.inputs, self.store, options)

    def id_of(self, row: DataRow) -> str:
        """The id of the next row that gives what this one gives: a row keeps its run where others came before it."""
        content = content_key(row.inputs, row.variant)
        self._counts[content] += 1
        again = self._counts[content]
        return f"{self.rows.id}-{content}" + (f"-{again}" if again > 1 else "")

    def _has_ended(self, info: RunInfo) -> bool:
        return info.status in _ENDED and (info.status == "succeeded" or not self.retry_failed)

    def _read(self, row: DataRow, info: RunInfo) -> RowResult:
        events = self.store.events(info.run_id)
        last = events[-1]
        if not isinstance(last, RunFinished):  # Somebody goes on with it.
            return RowResult(row, info.run_id, "running", EMPTY, None, None, Spending(), 0.0, was_there=True)
        spent, took = History(events).sum_spending(), _sum_working_seconds(events)
        return RowResult(
            row, info.run_id, last.status, last.outputs or EMPTY, last.error, last.node, spent, took, was_there=True,
            has_stand_in=_has_stand_in(events),
        )  # fmt: skip


def _has_stand_in(events: Sequence[Event]) -> bool:
    records = (each.record for each in events if isinstance(each, NodeRecorded))
    return any(isinstance(each, ModelCall) and is_stand_in(each.provider) for each in records)


def _sum_working_seconds(events: Sequence[Event]) -> float:
    """Sums the seconds from the beginning of a run to its end, without the time before each resumption."""
    idle = sum(after.at - before.at for before, after in pairwise(events) if type(after) is RunResumed)
    return max(0.0, events[-1].at - events[0].at - idle)


def content_key(inputs: Mapping[str, Any], variant: str = "") -> str:
    """Returns the key that identifies a row by its inputs."""
    return _hash(dict(inputs), variant)[:16]


def _refuse_row(row: DataRow, error: ErrorInfo) -> RowResult:
    return RowResult(row, None, "refused", EMPTY, error, None, Spending(), 0.0)


@dataclass(slots=True)
class _Row:
    """A row that is worked on, now and then."""

    place: int
    row: DataRow
    run_id: str = ""
    """Empty until it has one."""
    ledger: Ledger | None = None
    seconds: float = 0.0
    is_aside: bool = False
    """Whether its run began, and waits for a batch or did so before."""


class _Source:
    """Gives out the rows one by one, and only as far ahead as their results can be kept."""

    def __init__(self, rows: Iterable[AnyRow] | AsyncIterable[AnyRow], order: _InOrder) -> None:
        self._rows = aiter(rows) if isinstance(rows, AsyncIterable) else iter(rows)
        self._order = order
        self._lock = anyio.Lock()
        self._next = 0

    async def next(self) -> tuple[int, DataRow] | None:
        async with self._lock:
            await self._order.wait_for_room(self._next)
            rows = self._rows
            row = await anext(rows, None) if isinstance(rows, AsyncIterator) else next(rows, None)
            if row is None:
                return None
            self._next += 1
            if not isinstance(row, DataRow):
                row = DataRow(self._next, row, data=row)
            return self._next - 1, row


class _InOrder:
    """Puts results into the rows' order; the reader is told that there are no more when all workers left."""

    def __init__(self, window: int) -> None:
        self.workers = 0
        self.failure: BaseException | None = None
        self._window = window
        self._ready: dict[int, RowResult] = {}
        self._at = 0
        self.wake, self.woken = anyio.create_memory_object_stream["_Row"](inf)
        """Rows that were put aside, and that are worth another look."""
        self._changed = anyio.Event()
        self._waiting: deque[anyio.Event] = deque()

    def put(self, place: int, result: RowResult) -> None:
        self._ready[place] = result
        self._wake()

    def fail(self, error: BaseException) -> None:
        self.failure = self.failure or error
        self._wake()

    def leave(self) -> None:
        self.workers -= 1
        self._wake()

    def _wake(self) -> None:
        self._changed.set()
        self._changed = anyio.Event()

    async def wait_for_room(self, place: int) -> None:
        while place >= self._at + self._window:
            woken = anyio.Event()
            self._waiting.append(woken)
            await woken.wait()

    async def take(self) -> RowResult | None:
        """The next result; None at the end, or after a failure."""
        while self._at not in self._ready and self.workers > 0 and self.failure is None:
            await self._changed.wait()
        if self.failure is not None or not self._ready:
            return None
        if self._at not in self._ready:  # A budget ended it: rows before it began and were left.
            self._at = min(self._ready)
        self._at += 1
        while self._waiting:
            self._waiting.popleft().set()
        return self._ready.pop(self._at - 1)
