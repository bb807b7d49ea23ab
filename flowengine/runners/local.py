"""Runs a compiled flow in this process, on this event loop: start, go on, finish. One journal, one owner.

What happens round the nodes is here (inputs, the first and the last event, the run's timeout, the
outputs); what happens between them is the scheduler's, and which of them run is the walk's.
"""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from time import time
from typing import Any, NamedTuple, TypeAlias

import anyio

from flowengine.core.batching import BATCHING
from flowengine.core.budget import Ledger
from flowengine.core.context import EMPTY
from flowengine.core.file_keeper import FileKeeper
from flowengine.core.file_values import FileValue, find_files
from flowengine.core.records import node_of_question
from flowengine.core.run_scope import Fence, RunScope
from flowengine.core.user_code import is_interrupt
from flowengine.core.values import freeze
from flowengine.engine.events import Event, NodeRecorded, RunFinished, RunResumed, RunStarted, TokenStreamed
from flowengine.engine.parked import Parked
from flowengine.engine.ports import Journal, JournalStore, run_clock
from flowengine.engine.restoring import History
from flowengine.engine.scheduler import Scheduler, error_info
from flowengine.engine.state import StateStore
from flowengine.engine.walk import Walk
from flowengine.errors import (
    DefinitionError,
    FlowChangedError,
    JournalError,
    LimitError,
    RunBusyError,
    RunError,
    StoreCorruptError,
)
from flowengine.journal.approvals import Mail, answers_left, open_questions
from flowengine.journal.blob_owners import blobs_of
from flowengine.journal.codec import reading_record
from flowengine.journal.replay import decided_effects
from flowengine.journal.run_export import store_run
from flowengine.journal.run_lookup import check_labels, check_run_id
from flowengine.nodes.compiled_flow import CompiledFlow, checked_inputs, outputs_of, partial_outputs_of
from flowengine.nodes.file_inputs import take_files
from flowengine.nodes.node import RunLimits
from flowengine.runners.forking import failed_items, forked, patches_of, refuse_repeated_deeds
from flowengine.runners.run import Run, chosen_limits, limits_under, settings_of
from flowengine.runners.sessions import leave_behind, load_session
from flowengine.version import __version__

__all__ = [
    "Live",
    "beginning",
    "changed_nodes",
    "fork",
    "inputs_with_files",
    "new_run_id",
    "read_run",
    "resume",
    "start",
    "unheard",
    "write_fork",
]

Live: TypeAlias = Callable[[TokenStreamed], None]
"""Hears what agents write while they write it; must not block and must not raise."""


def unheard(piece: TokenStreamed) -> None:
    """The listener of a run that nobody follows in this process: others read in its store what agents write."""


def _tell_elsewhere(live: Live, store: JournalStore, run_id: str, scope: RunScope, piece: TokenStreamed) -> None:
    """Hand a piece on, and show it to those who follow the run from other processes."""
    from flowengine.runners.live_board import LiveBoard  # Most runs have nothing to show.

    scope.once(LiveBoard, lambda: LiveBoard(store, run_id, scope)).hear(piece)
    live(piece)


class _Refused(NamedTuple):
    """A node that must not run, which is known before any has."""

    node: str
    error: DefinitionError


def new_run_id() -> str:
    """Twelve random hex digits: short enough to type a unique prefix of."""
    return os.urandom(6).hex()


async def start(
    plan: CompiledFlow,
    inputs: Mapping[str, Any],
    store: JournalStore,
    *,
    run_id: str | None = None,
    limits: RunLimits | None = None,
    session: str | None = None,
    reuse: str | Sequence[str] | None = None,
    settings: Mapping[str, Any] = EMPTY,
    labels: Mapping[str, str] = EMPTY,
    live: Live | None = None,
    above: Ledger | None = None,
    journal: Journal | None = None,
) -> Run:
    """A new run, to its end. A node's failure is told in the `Run`, not raised.

    `session`: what earlier runs of that name have left is there, and what this one leaves is kept if it
    succeeds. `reuse`: id of an earlier run of this flow (or of several, the best first), whose results are taken where
    they still hold (`nodes.reuse_rules`). `settings` are kept in the journal for a resumption of the run (model
    override, and limits by the names that a flow file gives them); `limits` hold instead of the flow's and of those,
    and are kept as well. By `labels` it is found again (`journal.run_lookup`). `live` hears what agents write while
    they write it.
    `above`: what the run shares with others of what may be spent. `journal`: the run's, where the caller has created
    it already; it is closed once the run has begun, and left open before that.
    """
    under = limits_under(plan.limits, settings)
    limits = limits or under
    run_id = new_run_id() if run_id is None else check_run_id(run_id)
    started = beginning(
        plan,
        await inputs_with_files(plan, inputs, store, run_id),
        store,
        run_id=run_id,
        session=session,
        reuse=reuse,
        settings=settings if limits is under else {**settings, **chosen_limits(limits, under)},
        labels=labels,
    )
    await plan.ready()
    kept = started.kept
    thrifty = _reuse_results(plan, store, run_id, reuse)
    journal = journal or store.create(run_id)
    walk = Walk(thrifty.graph, StateStore(plan.rules, kept), inputs=started.inputs, env=started.env, run_id=run_id)
    leave = partial(leave_behind, thrifty, store, started, walk)
    run = await _drive(thrifty, walk, journal, [started], limits, leave, store, live, above)
    return await _taken_up(plan, run, store, limits, live, above) if run.status == "waiting" else run


async def inputs_with_files(
    plan: CompiledFlow, inputs: Mapping[str, Any], store: JournalStore, run_id: str
) -> Mapping[str, Any]:
    """The inputs for `beginning`, with the files among them in the store."""
    if not inputs and not plan.inputs:
        return inputs
    return await take_files(plan.inputs, inputs, _keeper(plan, store, run_id))


def beginning(
    plan: CompiledFlow,
    inputs: Mapping[str, Any],
    store: JournalStore,
    *,
    run_id: str,
    session: str | None = None,
    reuse: str | Sequence[str] | None = None,
    settings: Mapping[str, Any] = EMPTY,
    labels: Mapping[str, str] = EMPTY,
) -> RunStarted:
    """The first event of a new run, as `start` writes it; a run that has it can be resumed by anybody.

    Whether the plan could run here is not asked.
    """
    given = checked_inputs(plan.inputs, inputs)
    kept = load_session(store, session)
    if labels:
        settings = {**settings, "labels": freeze(check_labels(labels))}
    if session is not None:
        settings = {**settings, "session": session}
    if reuse is not None:
        settings = {**settings, "reuse": freeze(reuse)}
    env = {name: plan.environ[name] for name in plan.allow_env if name in plan.environ}
    return RunStarted(
        run_id,
        plan.name,
        time(),
        given,
        env,
        plan.fingerprints,
        plan.path,
        plan.source,
        __version__,
        settings,
        plan.skeleton,
        kept,
        plan.code,
    )


async def resume(
    plan: CompiledFlow,
    run_id: str,
    store: JournalStore,
    *,
    allow_changed: bool = False,
    retry_effects: Collection[str] = (),
    assume_done: Collection[str] = (),
    limits: RunLimits | None = None,
    settings: Mapping[str, Any] = EMPTY,
    repeat_failed_items: bool = False,
    live: Live | None = None,
    journal: Journal | None = None,
    above: Ledger | None = None,
) -> Run:
    """Go on with a run that was interrupted or failed; what had finished is not run again.

    A run that succeeded is read back as it is. Raises `FlowChangedError` where the flow was edited
    since, unless `allow_changed`: then what had finished stays finished, the rest runs as it is now.

    `repeat_failed_items`: items that failed in maps which went on without them run again, also those of a run that
    succeeded, and with them all that is behind these maps. `RunError` where something with an external effect or a
    person's answer is behind them, whose node is not in `retry_effects`.

    `EffectPendingError` where nobody saw how a call to an external tool ended: the nodes in
    `retry_effects` make theirs again, those in `assume_done` take them as done.

    Its limits are those that it last went on with. `settings` are chosen anew, as for `start`, and `limits` hold
    instead of all; both are kept in the journal for the next time.

    `journal`: the run's, where the caller has become its writer already; it is closed in any case. `above`: as
    for `start`; what the run has spent before is not counted there again.
    """
    journal = journal or store.open(run_id)
    try:
        events = journal.read()
        started = _read_start(run_id, events)
        changed = changed_nodes(plan, events)
        if changed and not allow_changed:
            raise FlowChangedError(
                f"the flow was edited since run {run_id} started; changed nodes: {', '.join(changed)}", changed
            )
        repeats = sorted(failed_items(plan, events)) if repeat_failed_items else ()
        if isinstance(events[-1], RunFinished) and events[-1].status == "succeeded" and not repeats:
            await journal.close()
            return read_run(plan, events)
        await plan.ready()
        acts = started.settings.get("acts", True) is not False
        with reading_record(run_id):
            thrifty = _reuse_results(plan, store, run_id, started.settings.get("reuse"), acts=acts)
        repeated: Collection[str] = ()
        if repeats:
            repeated = refuse_repeated_deeds(plan, events, repeats, retry_effects)
        walk = _make_walk(thrifty, started, [*events, RunResumed(time(), repeats=repeats)] if repeats else events)
        retry = [each for each in retry_effects if each not in repeated]
        decided = decided_effects(run_id, walk.attempts, retry=retry, done=assume_done)
        answers = answers_left(store, run_id, events)
        if not decided and not answers:
            _refuse_batched(run_id, events)
        records = [*decided, *((node_of_question(path, given), given) for path, given in answers.items())]
        for node, record in records:
            walk.attempts.add(node, record)
        code = EMPTY if plan.code == _last_code(events) else plan.code
        before = settings_of(events)
        under = limits_under(plan.limits, {**before, **settings})
        limits = limits or under
        anew = {**settings, **chosen_limits(limits, under)}
        anew = {name: value for name, value in anew.items() if name not in before or before[name] != value}
        resumed = RunResumed(time(), plan.fingerprints if changed else EMPTY, code, freeze(anew), repeats)
        first = [resumed, *(NodeRecorded(node, time(), record) for node, record in records)]
        leave = partial(leave_behind, thrifty, store, started, walk) if acts else _leave_nothing
    except BaseException:
        await journal.close()
        raise
    run = await _drive(thrifty, walk, journal, first, limits, leave, store, live, above)
    return await _taken_up(plan, run, store, limits, live, above)


def _refuse_batched(run_id: str, events: Sequence[Event]) -> None:
    """`RunError` for a run that waits for nobody but a vendor's batch, where none is looked at: it would pay again."""
    last = events[-1]
    waits = isinstance(last, RunFinished) and last.status == "waiting"
    if waits and BATCHING.get() is None and not open_questions(events):
        raise RunError(
            f"run {run_id} waits for a batch that may be paid for already: the command that began it, with the same "
            "--batch, goes on with it; with --deadline 1s that takes what the batch has, and asks the rest alone"
        )


async def _taken_up(
    plan: CompiledFlow, run: Run, store: JournalStore, limits: RunLimits, live: Live | None, above: Ledger | None
) -> Run:
    """The run, or what becomes of it where it was answered while it was being put aside."""
    if run.status != "waiting" or not answers_left(store, run.id, run.events):
        return run
    try:
        return await resume(plan, run.id, store, allow_changed=True, limits=limits, live=live, above=above)
    except RunBusyError:  # The process that answered goes on with it.
        return run


async def fork(
    plan: CompiledFlow,
    run_id: str,
    store: JournalStore,
    node: str,
    *,
    state: Mapping[str, Any] = EMPTY,
    inputs: Mapping[str, Any] | None = None,
    new_id: str | None = None,
    limits: RunLimits | None = None,
    settings: Mapping[str, Any] = EMPTY,
    live: Live | None = None,
    above: Ledger | None = None,
    acts: bool = True,
    labels: Mapping[str, str] | None = None,
    begun: Sequence[Event] = (),
) -> Run:
    """A new run that shares the past of an earlier one and begins at `node`: what is not behind it keeps its result.

    `state`: key → value, as `node` is to find it. `inputs`: all of them, in the place of the earlier run's. That run
    stays as it is; what was chosen for it holds for the new one, unless chosen anew (see `resume`). `InputError` for an
    unknown node, key or input, and for a run of another flow.

    Without `acts` it only tells what would have been: results behind `node` are taken where they still hold, nothing
    has an effect outside and nobody is asked. `labels` instead of the earlier run's. `begun`: the beginning of an
    attempt of `node`: what it asks again is answered by what is on record there.
    """
    new_id = new_id or new_run_id()
    how: Any = {"state": state, "inputs": inputs, "acts": acts, "labels": labels, "begun": begun}
    await write_fork(plan, run_id, store, node, new_id=new_id, **how)
    return await resume(plan, new_id, store, limits=limits, settings=settings, live=live, above=above)


async def write_fork(
    plan: CompiledFlow,
    run_id: str,
    store: JournalStore,
    node: str,
    *,
    new_id: str,
    state: Mapping[str, Any] = EMPTY,
    inputs: Mapping[str, Any] | None = None,
    acts: bool = True,
    labels: Mapping[str, str] | None = None,
    settings: Mapping[str, Any] = EMPTY,
    begun: Sequence[Event] = (),
) -> None:
    """The beginning of `fork`, which whoever resumes it goes on with; `settings` beside those of the earlier run."""
    events = store.events(run_id)
    if inputs is not None:
        inputs = checked_inputs(plan.inputs, await inputs_with_files(plan, inputs, store, new_id))
    started, *shared = forked(plan, events, new_id, node, state, time(), inputs)
    if isinstance(started, RunStarted):
        own = {**started.settings, **settings}
        if not (acts and labels is None):
            own = {name: value for name, value in own.items() if name not in ("reuse", "session")}
            asked = own if acts else {**own, "acts": False, "reuse": run_id}
            own = {**asked, **({} if labels is None else {"labels": freeze(labels)})}
        started = started._replace(settings=own)
    await store_run(store, [started, *shared, *begun], new_id)


async def _leave_nothing(fence: Fence | None) -> None:
    """A run that only asks what would have been leaves nothing behind."""


def _reuse_results(
    plan: CompiledFlow,
    store: JournalStore,
    run_id: str,
    reuse: str | Sequence[str] | None,
    *,
    acts: bool = True,
) -> CompiledFlow:
    """The plan whose nodes look for results that are known already, where it has such nodes or such a run."""
    if acts and reuse is None and not plan.caches:
        return plan
    from flowengine.nodes.reuse import reusing  # Knows agents, which most flows built in Python do without.

    return reusing(plan, store, run_id, reuse, acts=acts)


def read_run(plan: CompiledFlow, events: Sequence[Event]) -> Run:
    """A run as its journal has it; nothing is run and nothing is written."""
    started = _read_start("", events)
    last = events[-1]
    finished = last if isinstance(last, RunFinished) else RunFinished(last.at, "running")
    limits = limits_under(plan.limits, settings_of(events))
    return Run(started.run_id, _make_walk(plan, started, events), finished, lambda: events, limits)


def changed_nodes(plan: CompiledFlow, events: Sequence[Event]) -> list[str]:
    """Nodes whose definition is not what the run last went on with; added and removed ones too."""
    known: Mapping[str, str] = EMPTY
    for event in events:
        if isinstance(event, RunStarted) or (isinstance(event, RunResumed) and event.fingerprints):
            known = event.fingerprints
    now = plan.fingerprints
    return [name for name in dict.fromkeys([*now, *known]) if now.get(name) != known.get(name)]


def _last_code(events: Sequence[Event]) -> Mapping[str, str]:
    """Of the functions that nodes called when the run last went on."""
    told = [each.code for each in events if isinstance(each, RunStarted | RunResumed)]
    return next((code for code in reversed(told) if code), EMPTY)


def _read_start(run_id: str, events: Sequence[Event]) -> RunStarted:
    if not events or not isinstance(events[0], RunStarted):
        raise StoreCorruptError(f"run {run_id}: the journal does not begin with its start")
    return events[0]


def _make_walk(plan: CompiledFlow, started: RunStarted, events: Sequence[Event]) -> Walk:
    with reading_record(started.run_id):
        return Walk(
            plan.graph,
            StateStore(plan.rules, started.kept),
            inputs=started.inputs,
            env=started.env,
            run_id=started.run_id,
            history=History(events),
            patches=patches_of(plan, started),
        )


async def _drive(
    plan: CompiledFlow,
    walk: Walk,
    journal: Journal,
    first: Sequence[Event],
    limits: RunLimits,
    leave: Callable[[Fence | None], Awaitable[None]],
    store: JournalStore,
    live: Live | None = None,
    above: Ledger | None = None,
) -> Run:
    """Journal the first events, run, journal the last one; the journal is closed whatever happens.

    A run that succeeds leaves what it leaves before that is on record: if it is interrupted meanwhile, it is resumed,
    and leaves it again, of which nothing is kept twice.
    """
    run_id = walk.run_id or ""
    fence: Fence | None = getattr(journal, "fence", None)  # Only where others can take the run over.
    clock, mail = run_clock(), Mail(store, run_id)
    try:
        await _commit(journal, *first)  # From here on the run can be found and resumed.
        with mail:
            files = _keeper(plan, store, run_id, lambda: find_files(list(store.events(run_id))))
            ledger = _ledger(walk, limits, above)
            shown = (
                partial(_tell_elsewhere, live, store, run_id) if live and getattr(store, "is_shared", False) else None
            )
            scheduled = partial(_schedule, plan, walk, journal, limits, live, shown, clock, fence, mail, files, ledger)
            if plan.notifier is None and limits.timeout is None:  # Nothing beside it: two waits less for every step.
                stop = await scheduled(None)
            else:
                stop = await _tell_beside(plan, walk, journal, clock, mail, limits, scheduled)
        finished = _finish(plan, walk, stop, clock())
        if finished.status == "succeeded":
            await leave(fence)
        await _commit(journal, finished)
    except BaseException as error:
        with anyio.CancelScope(shield=True):
            is_stopped = isinstance(error, anyio.get_cancelled_exc_class()) or is_interrupt(error)
            await _close_quietly(journal, *([RunFinished(clock(), "cancelled")] if is_stopped else []))
        raise
    await journal.close()
    if finished.status in ("succeeded", "partial"):
        mail.forget()
    return Run(run_id, walk, finished, partial(store.events, run_id), limits)


def _keeper(
    plan: CompiledFlow, store: JournalStore, run_id: str, known: Callable[[], Iterable[FileValue]] = tuple
) -> FileKeeper | None:
    """Takes files in for a run; None where the store, of another package, keeps none."""
    return FileKeeper(blobs_of(store), run_id, plan.files, known) if hasattr(store, "put_blob") else None


async def _commit(journal: Journal, *events: Event) -> None:
    for event in events:
        journal.append(event)
    waiting = journal.commit(True)
    if waiting is not None:
        await waiting


async def _tell_beside(
    plan: CompiledFlow,
    walk: Walk,
    journal: Journal,
    clock: Callable[[], float],
    mail: Mail,
    limits: RunLimits,
    scheduled: Callable[[Callable[[], None] | None], Awaitable[LimitError | _Refused | None]],
) -> LimitError | _Refused | None:
    """`_schedule` within the run's time, while people are told of its questions; that takes none of the time."""

    async def run(tell: Callable[[], None] | None = None) -> LimitError | _Refused | None:
        return await (
            scheduled(tell) if limits.timeout is None else _run_in_time(limits, limits.timeout, scheduled, tell)
        )

    if plan.notifier is None:
        return await run()
    from flowengine.runners.deliveries import Deliveries  # Few flows ask people, and fewer tell them.

    waits = partial(_waits_for_people, walk)
    return await Deliveries(plan.notifier, journal, clock).beside(run, waits, mail)


def _waits_for_people(walk: Walk) -> bool:
    return walk.waits and walk.failure() is None


async def _run_in_time(
    limits: RunLimits,
    seconds: float,
    scheduled: Callable[[Callable[[], None] | None], Awaitable[LimitError | _Refused | None]],
    tell: Callable[[], None] | None,
) -> LimitError | _Refused | None:
    """`_schedule` for as long as the run may take."""
    stop: LimitError | _Refused | None = None
    with anyio.move_on_after(seconds) as scope:
        stop = await scheduled(tell)
    if not scope.cancelled_caught:
        return stop
    return LimitError(
        f"the run took longer than its limit of {seconds:g} s", part="", on_limit=limits.on_limit, limit="timeout"
    )


async def _schedule(
    plan: CompiledFlow,
    walk: Walk,
    journal: Journal,
    limits: RunLimits,
    live: Live | None,
    shown: Callable[[RunScope, TokenStreamed], None] | None,
    clock: Callable[[], float],
    fence: Fence | None,
    mail: Mail,
    files: FileKeeper | None,
    ledger: Ledger | None,
    tell: Callable[[], None] | None,
) -> LimitError | _Refused | None:
    """Run what can run; the limit that ended it early, or what kept it from beginning."""
    has_tasks = plan.starts_tasks or shown is not None
    async with RunScope(fence, limits.concurrency, files, has_tasks=has_tasks) as scope:
        refused = await _check_servers(plan, walk, scope)
        if refused is not None:
            return refused
        scheduler = Scheduler(
            walk,
            plan.nodes,
            journal,
            concurrency=limits.concurrency,
            on_failure=limits.on_failure,
            live=live if shown is None else partial(shown, scope),
            scope=scope,
            ledger=ledger,
            clock=clock,
            parked=Parked(mail, journal, walk.history, clock, scope.start_soon, tell),
            interruptible=plan.interruptible,
        )
        await scheduler.run()
    return scheduler.limited


async def _check_servers(plan: CompiledFlow, walk: Walk, scope: RunScope) -> _Refused | None:
    """The first node that is still to run and whose servers do not go with its definition."""
    for path, node in plan.server_checks:
        number = walk.graph.index.get(path.partition(".")[0])
        if number is None or walk.status_of(number) in ("pending", "running", "cancelled", "failed"):
            try:
                await node.check_servers(path, scope)
            except DefinitionError as error:
                return _Refused(path, error)
    return None


def _ledger(walk: Walk, limits: RunLimits, above: Ledger | None) -> Ledger | None:
    """Returns the run's limits less its earlier spending; None without limits and counts."""
    if above is None and not any(limits.bounds):
        return None
    return Ledger(limits.bounds, on_limit=limits.on_limit, spent=walk.history.spent(), above=above)


async def _close_quietly(journal: Journal, *last: Event) -> None:
    """Another error is on its way already: a journal that takes nothing more, or cannot be closed, must not hide it."""
    with suppress(JournalError):
        for event in last:
            journal.append(event)
    with suppress(JournalError):
        await journal.close()


def _finish(plan: CompiledFlow, walk: Walk, stop: LimitError | _Refused | None, at: float) -> RunFinished:
    if isinstance(stop, _Refused):
        return RunFinished(at, "failed", None, error_info(stop.error), stop.node)
    limit = stop
    failure = walk.failure()
    if failure is not None:
        node, error = failure
        return RunFinished(at, "failed", None, error, node)
    if limit is not None:
        told = error_info(limit)
        if limit.on_limit == "partial":
            return RunFinished(at, "partial", partial_outputs_of(plan, walk), told, limit.part or None)
        return RunFinished(at, "paused" if limit.on_limit == "pause" else "failed", None, told, limit.part or None)
    if walk.waits:
        return RunFinished(at, "waiting")
    try:
        return RunFinished(at, "succeeded", outputs_of(plan, walk))
    except Exception as error:
        return RunFinished(at, "failed", None, error_info(error))
