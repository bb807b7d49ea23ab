"""Runs what the walk says is ready, and journals what happens. It decides nothing.

Theory of operation:

- Workers take nodes from the walk's ready queue. The first worker is the caller's own task; others
  are hired only while nodes are waiting, and when all that were hired before have begun: two, and
  three more for each node that is in flight besides, for that one has suspended. A chain, or a
  thousand nodes that never suspend, run on in one task; those that do suspend are four times as many
  at each turn of the loop, so that a thousand have all begun after five. Hired faster, most workers
  would come too late: nodes that suspend for one turn leave theirs free. Hired more slowly, the
  loop would turn more often, and a turn costs as much as a node.
- A node's result is journaled, then applied, and only then can its successors start.
- Each node runs in a copy of the run's context variables, as it would in a task of its own.
- After a millisecond without a pause a worker lets others run, so that no flow starves its loop.

A node that raises becomes a `NodeFailed`; what that means is the walk's to say. Being cancelled
from outside cancels the nodes in flight (their clean-up runs), journals them as cancelled, whatever their
code makes of it, and starts nothing more. Code that was not told (it shields itself, it blocks the loop) ends
like any other. Whether a level has come to its end is the walk's to say as well.
"""

from __future__ import annotations

import contextvars
import os
import traceback
from collections.abc import Callable, Coroutine, Sequence
from functools import partial
from time import perf_counter, time
from typing import Any, Final, Literal

import anyio
from anyio.abc import TaskGroup

from flowengine.core import (
    ForeignExitError,
    Ledger,
    NodeResult,
    Note,
    Retry,
    RunScope,
    Tell,
    describe_error,
    describe_value,
    drive,
    forget_cancellations,
    is_being_cancelled,
    is_interrupt,
)
from flowengine.engine.events import (
    ErrorInfo,
    Event,
    NodeCancelled,
    NodeFailed,
    NodeFinished,
    NodeRecorded,
    NodeSkipped,
    NodeStarted,
    TokenStreamed,
)
from flowengine.engine.parked import Parked
from flowengine.engine.ports import CalledOff, Ended, Journal, Known, Node, Park, Skip
from flowengine.engine.tasks import NodeSlots, meet_deadline, wait_until_cancelled
from flowengine.engine.view import view_of
from flowengine.engine.walk import Walk
from flowengine.errors import (
    FlowEngineError,
    JournalError,
    LimitError,
    NotJournalableError,
    OverdueError,
    SupersededError,
)

OnFailure = Literal["drain", "cancel"]


_new: Final[Any] = vars(tuple)["__new__"]


class BodyError(FlowEngineError):
    """A node inside a container failed, and the container with it."""

    def __init__(self, path: str, info: ErrorInfo) -> None:
        super().__init__(f"{info.node or path}: {info.message}")
        self.info = info if info.node else info._replace(node=path)


YIELD_AFTER: Final = 0.001
"""Seconds that a worker runs on before it lets other tasks of the loop run."""
MAX_HIRED: Final = 2
"""Workers that are hired at once, where no node is known to suspend."""
HIRED_PER_SUSPENDED: Final = 3
"""Workers that are hired besides, for each node that has suspended."""


class Scheduler:
    """Drives one walk to its end.

    `nodes` are in the graph's topological order. `concurrency` bounds the nodes in flight.
    `on_failure`: after an unhandled failure nodes in flight finish (`drain`) or are cancelled. `live` hears
    what nodes tell while they write it; it must not block and must not raise. `scope` and `ledger` are what
    every node is handed. With `parked`, nodes that wait for a person go on as soon as they are answered. A
    `KeyboardInterrupt` out of a node's code interrupts the run, unless it is not `interruptible`: then the node fails.
    """

    def __init__(
        self,
        walk: Walk,
        nodes: Sequence[Node],
        journal: Journal,
        *,
        concurrency: int | None = None,
        on_failure: OnFailure = "drain",
        live: Callable[[TokenStreamed], None] | None = None,
        scope: RunScope | None = None,
        ledger: Ledger | None = None,
        clock: Callable[[], float] = time,
        parked: Parked | None = None,
        interruptible: bool = True,
    ) -> None:
        self._journal = journal
        self._slots = NodeSlots(concurrency)
        self._cancels = on_failure == "cancel"
        self._live = live
        self._clock = clock
        self._own = contextvars.copy_context()
        self.scope = scope
        self._parked = parked
        self._interruptible = interruptible
        self._is_inside = False
        self._drive(walk, nodes, ledger)

    def _drive(self, walk: Walk, nodes: Sequence[Node], ledger: Ledger | None) -> None:
        self._walk = walk
        self._nodes = nodes
        self.ledger = ledger
        self.limited: LimitError | None = None
        """The limit that ended the walk early, where it is not a failure."""
        self._in_flight = 0
        self._on_their_way = 0
        self._queueing = False
        self._scopes: set[anyio.CancelScope] = set()
        self._tasks: TaskGroup | None = None
        self._fatal: JournalError | None = None
        self._interrupt: KeyboardInterrupt | None = None
        self._fence = None if self.scope is None else self.scope.fence

    def inside(self, walk: Walk, nodes: Sequence[Node], ledger: Ledger | None) -> Scheduler:
        """The scheduler of a level inside one of this one's nodes: same journal, same slots, same listeners."""
        level = Scheduler.__new__(Scheduler)
        level._journal, level._slots, level._cancels = self._journal, self._slots, self._cancels
        level._live, level._clock, level._own, level.scope = self._live, self._clock, self._own, self.scope
        level._parked, level._interruptible, level._is_inside = self._parked, self._interruptible, True
        level._drive(walk, nodes, ledger)
        return level

    def run(self) -> Coroutine[Any, Any, None]:
        """Run until nothing is left to start and nothing is in flight; the walk then tells whether that is its end.

        Raises a `JournalError` when the record can no longer be kept: then nothing goes on.
        """
        forget_cancellations()
        interval = self._journal.flush_interval
        return self._run_on() if interval is None else self._run_and_flush(interval)

    async def _run_and_flush(self, interval: float) -> None:
        """`run`, where readers of the store are shown what nothing commits for a while."""
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._flush_every, interval)
            try:
                await self._run_on()
            except JournalError as error:
                self.give_up(error)  # Raised once the group is closed, so that it comes out alone.
            except KeyboardInterrupt as error:
                self._interrupt = error  # As well.
            tasks.cancel_scope.cancel()
        self._raise_end()

    async def _run_on(self) -> None:
        """The level, and again what parked and was answered while the rest of it ended."""
        await self.run_level()
        while self._parked is not None and self._walk.waits:
            await self._parked.take_in()
            if not self._walk.ready:
                break
            await self.run_level()

    async def run_level(self) -> None:
        """`run`, where the journal is shown to readers by somebody else."""
        self._journal_decisions()
        await self._work(None)
        if self._walk.ready:
            async with anyio.create_task_group() as tasks:
                self._tasks = tasks
                await self._work(tasks)
            self._tasks = None
        if self._is_inside and self._parked is not None:
            self._parked.leave(self)
        self._raise_end()
        if self._walk.is_cut:
            await anyio.lowlevel.checkpoint()  # The cancellation that cut it is told here, if only workers know of it.

    def _raise_end(self) -> None:
        """Raises the error that ended the level early."""
        if self._interrupt is not None:
            raise self._interrupt
        if self._fatal is not None:
            raise self._fatal

    async def _flush_every(self, seconds: float) -> None:
        """Show starts to readers of the store while nothing commits them."""
        while True:
            await anyio.sleep(seconds)
            try:
                self._journal.flush()
            except JournalError as error:
                self.give_up(error)

    async def _work(self, tasks: TaskGroup | None, hired: int = 0) -> None:
        """Take and run ready nodes until there is none, or no slot for one.

        Without a task group no worker can be hired: then it ends where two nodes could run at once. `hired`: 1 for a
        worker that was on its way.
        """
        self._on_their_way -= hired
        walk, slots = self._walk, self._slots
        ready, vertices = walk.ready, walk.graph.vertices
        run = self._run_cancellable if self._cancels else self._run_node
        try:
            while ready and (tasks is not None or len(ready) == 1):
                leaf = not vertices[ready[0]].container
                if leaf and slots.used < slots.limit:
                    slots.used += 1
                elif leaf:
                    if self._queueing or not await self._queue():
                        return  # One of this level's workers waits for a slot already; or there is nothing left.
                    leaf = not vertices[ready[0]].container
                    if not leaf:
                        slots.give_back()
                number = ready.popleft()
                self._in_flight += 1
                if tasks and ready and not self._on_their_way:
                    self._hire(tasks, len(ready))
                try:
                    suspended = await run(number)
                finally:
                    self._in_flight -= 1
                    if leaf and slots.waiting:
                        slots.give_back()
                    elif leaf:
                        slots.used -= 1
                now = perf_counter()
                if suspended or now - slots.rested > YIELD_AFTER:
                    if now > slots.looks_next and slots.has_stopped(now):
                        walk.stop()
                        await wait_until_cancelled()
                    elif not suspended:
                        await anyio.lowlevel.checkpoint()
                        now = perf_counter()
                    slots.rested = now
        except JournalError as error:
            self.give_up(error)
            if tasks is not None and not isinstance(error, SupersededError):  # What is paid for is stored all the same.
                tasks.cancel_scope.cancel()
        except KeyboardInterrupt as error:
            walk.stop()
            if tasks is None:
                raise
            self._interrupt = error  # Raised when the others have ended: out of a task it would stop asyncio's loop.
            tasks.cancel_scope.cancel()
        except anyio.get_cancelled_exc_class():
            walk.stop()
            raise

    async def _queue(self) -> bool:
        """Wait for a slot; whether there is still a node to use it."""
        self._queueing = True
        try:
            await self._slots.take()
        finally:
            self._queueing = False
        if not self._walk.ready:
            self._slots.give_back()
        return bool(self._walk.ready)

    def _hire(self, tasks: TaskGroup, waiting: int) -> None:
        """Workers for the nodes that wait, as many as may be on their way and as there are slots for."""
        most = MAX_HIRED + HIRED_PER_SUSPENDED * (self._in_flight - 1)
        free = max(self._slots.limit - self._slots.used, 0 if self._queueing else 1)
        for _ in range(min(most, waiting, free) - self._on_their_way):
            self._on_their_way += 1
            tasks.start_soon(self._work, tasks, 1, name="flowengine worker")

    def give_up(self, error: JournalError) -> None:
        """Without a record nothing may go on: the first such error ends the run."""
        self._fatal = self._fatal or error
        self._walk.stop()

    async def _run_cancellable(self, number: int) -> bool:
        """Runs a node as `_run_node` does, in a scope of its own that an unhandled failure elsewhere cancels."""
        suspended = True
        with anyio.CancelScope() as scope:
            self._scopes.add(scope)
            try:
                suspended = await self._run_node(number)
            finally:
                self._scopes.discard(scope)
        if scope.cancelled_caught:
            self._walk.apply(NodeCancelled(self._walk.path_of(number), self._clock()))
            self._journal_decisions()
        return suspended

    async def _run_node(self, number: int) -> bool:
        """Run a node and journal how it ended; whether it has let others run meanwhile."""
        suspended, result = False, None
        walk, journal, clock = self._walk, self._journal, self._clock
        path = walk.start(number)
        if self._fence is not None:
            await self._fence()
            suspended = True
        # Events as their classes make them, without their keyword handling: this is done for every node.
        journal.append(_new(NodeStarted, (path, clock())))
        if number in walk.joined:
            journal.append(NodeRecorded(path, clock(), walk.explain(number)))
        event: Event | None
        try:
            own = self._own.copy()
            steps = self._nodes[number].run(view_of(walk, number, self))
            try:
                waits_for = own.run(steps.send, None)
                suspended = True
                result = await drive(own, steps, waits_for, not walk.graph.vertices[number].container)
            except StopIteration as stop:
                result = stop.value  # It never suspended: there is nothing to drive.
            except GeneratorExit as error:
                if suspended:  # This task itself is being closed.
                    raise
                raise ForeignExitError(describe_error(error)) from error
            except OverdueError as error:
                await meet_deadline(error)
            if type(result) is NodeResult:
                at = clock()
                result = walk.admit(number, result)
                event = _new(NodeFinished, (path, at, result))
            else:
                event = self._ended(number, path, result)
            if event is not None:
                journal.append(event)
        except LimitError as error:
            event = self._at_limit(number, error)
        except NotJournalableError as error:
            event = self._fail(number, error)
        except JournalError:
            raise
        except Exception as error:
            event = self._fail(number, error)
        except BaseException as error:
            if isinstance(error, GeneratorExit):
                raise
            is_told = isinstance(error, anyio.get_cancelled_exc_class()) and is_being_cancelled()
            if not is_told and not (self._interruptible and is_interrupt(error)):
                event = self._fail(number, error)  # It exits, or what it awaited was cancelled: that ends it alone.
            else:
                journal.append(NodeCancelled(path, clock()))
                walk.abandon(number)
                if is_told or isinstance(error, KeyboardInterrupt):
                    raise
                raise KeyboardInterrupt from error
        if type(result) is not Known:  # What is known from elsewhere is not lost with this record.
            waiting = journal.commit(self._slots.used <= 1)
            if waiting is not None:
                await waiting
        if type(event) is NodeFinished:
            walk.finish(number, event.result)
        elif event is not None:
            walk.apply(event, number)
        if self._parked is not None:
            if event is None:
                await self._parked.add(path, self, number)
            elif self._parked.nodes:
                await self._parked.look()
        if walk.decided:
            self._journal_decisions()
        if self._cancels and type(event) is NodeFailed and walk.failure() is not None:
            for scope in list(self._scopes):
                scope.cancel()
        return suspended

    def _ended(self, number: int, path: str, result: Ended) -> Event | None:
        """Returns the event that ends a node without a result; None if it continues to wait."""
        if type(result) is Skip:
            return NodeSkipped(path, self._clock(), result.cause, result.why)
        if type(result) is Park:
            self._walk.park(number)
            return None
        if type(result) is Known:
            self._journal.append(NodeRecorded(path, self._clock(), result.record))
            return NodeFinished(path, self._clock(), self._walk.admit(number, result.result))
        if type(result) is CalledOff:
            return NodeCancelled(path, self._clock())
        raise TypeError(f"a node returns a NodeResult, found {describe_value(result)}")

    def enter_again(self, number: int) -> bool:
        """Make a parked node ready, and find a worker for it; False where the level is about to end."""
        if (self._is_inside and not self._in_flight) or not self._walk.enter_again(number):
            return False
        if self._tasks is not None and self._in_flight:
            self._hire(self._tasks, 1)
        return True

    def _fail(self, number: int, error: BaseException) -> NodeFailed:
        """Journals a node's failure; one that cannot be written down is told as that."""
        walk, info = self._walk, error_info(error)
        event = NodeFailed(walk.path_of(number), self._clock(), info, walk.answer_to(number, info) == "skip")
        try:
            self._journal.append(event)
        except NotJournalableError as refused:
            if isinstance(error, NotJournalableError):
                raise
            return self._fail(number, refused)
        return event

    def _at_limit(self, number: int, error: LimitError) -> Event:
        """A limit is a failure, or it ends the walk here: what is in flight goes on to its end, nothing starts."""
        if error.on_limit == "fail":
            return self._fail(number, error)
        self.limited = self.limited or error
        self._walk.stop()
        event = NodeCancelled(self._walk.path_of(number), self._clock())
        self._journal.append(event)
        return event

    def _journal_decisions(self) -> None:
        """Skips that followed ride in the next commit: a crash before it decides them again, alike."""
        walk = self._walk
        for number, cause in walk.decided:
            self._journal.append(NodeSkipped(walk.path_of(number), self._clock(), cause, walk.explain(number)))
        walk.decided.clear()

    def note_of(self, node: str, /) -> Note:
        return partial(self._note, node)

    def tell_of(self, node: str, /) -> Tell | None:
        return None if self._live is None else partial(self._tell, self._live, node)

    def note_with_next(self, node: str, record: Any, /) -> None:
        """Journals a record with the next commit; after a crash before it, the same is done again."""
        self._journal.append(_new(NodeRecorded, (node, self._clock(), record)))

    async def _note(self, path: str, record: Any) -> None:
        """Journals a record before the node continues."""
        self._journal.append(NodeRecorded(path, self._clock(), record))
        if type(record) is Retry:
            self._walk.attempts.add(path, record)  # What the failed attempt was given is not the next one's.
        waiting = self._journal.commit(self._slots.used <= 1)
        if waiting is not None:
            await waiting

    def _tell(
        self,
        live: Callable[[TokenStreamed], None],
        path: str,
        text: str,
        begins: bool = False,
        model: str = "",
        /,
    ) -> None:
        live(TokenStreamed(path, self._clock(), text, begins, model))


def error_info(error: BaseException) -> ErrorInfo:
    """A failure as data; foreign exceptions keep their traceback for the author of the node.

    >>> error_info(ValueError("no"))[:2]
    ('ValueError', 'ValueError: no')
    """
    if isinstance(error, BodyError):
        return error.info
    if isinstance(error, ForeignExitError) and error.__cause__ is not None:
        error = error.__cause__
    kind = type(error).__name__
    if isinstance(error, LimitError):
        return ErrorInfo(kind, str(error), part=error.part, limit=error.limit, needed=error.needed)
    if isinstance(error, FlowEngineError):
        is_told = error.__cause__ is None or (bool(text := _text_of(error.__cause__)) and text in str(error))
        cause = "" if is_told else f" ({describe_error(error.__cause__)})"
        return ErrorInfo(kind, f"{error}{cause}")
    return ErrorInfo(kind, describe_error(error), _format_traceback(error))


def _text_of(error: BaseException) -> str:
    try:
        return str(error)
    except Exception:  # See `describe_error`.
        return ""


def _format_traceback(error: BaseException) -> str:
    """The traceback, after the last frame that is neither ours nor a library's: where its author looks first."""
    whole = "".join(traceback.format_exception(error))
    own = [frame for frame in traceback.extract_tb(error.__traceback__) if not _is_foreign(frame.filename)]
    return f"{''.join(traceback.format_list(own[-1:]))}\n{whole}" if own else whole


_OURS: Final = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep
_LIBRARIES: Final = (f"{os.sep}site-packages{os.sep}", f"{os.sep}dist-packages{os.sep}", f"{os.sep}lib{os.sep}python3.")


def _is_foreign(file: str) -> bool:
    return file.startswith((_OURS, "<frozen ")) or any(part in file for part in _LIBRARIES)
