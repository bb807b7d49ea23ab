"""Runs a plan in this process, on this event loop: start, go on, finish. One journal, one owner.

What happens round the nodes is here (inputs, the first and the last event, the run's timeout, the
outputs); what happens between them is the scheduler's, and which of them run is the walk's.
"""

from __future__ import annotations

import secrets
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from functools import partial
from math import inf
from time import time
from typing import Any, TypeAlias

import anyio

from flowengine.context import EMPTY
from flowengine.engine.clock import run_clock
from flowengine.engine.events import Event, NodeRecorded, RunFinished, RunResumed, RunStarted, TokenStreamed
from flowengine.engine.ports import Journal, JournalStore
from flowengine.engine.restoring import History
from flowengine.engine.scheduler import Scheduler, error_info
from flowengine.engine.state import StateStore
from flowengine.engine.walk import Walk
from flowengine.errors import FlowChangedError, JournalError, LimitError, StoreCorruptError
from flowengine.journal.effects import decided_effects
from flowengine.journal.parcel import store_run
from flowengine.ledger import Ledger
from flowengine.nodes.inputs import checked_inputs
from flowengine.nodes.limits import FlowLimits
from flowengine.nodes.plan import Plan, outputs_of, partial_outputs_of
from flowengine.run_scope import Fence, RunScope
from flowengine.runners.forking import forked, patches_of
from flowengine.runners.run import Run
from flowengine.runners.sessions import leave_behind, load_session
from flowengine.version import __version__

__all__ = ["beginning", "changed_nodes", "fork", "new_run_id", "read_run", "resume", "start"]

Live: TypeAlias = Callable[[TokenStreamed], None]
"""Hears what agents write while they write it; must not block and must not raise."""


def new_run_id() -> str:
    """Twelve random hex digits: short enough to type a unique prefix of."""
    return secrets.token_hex(6)


async def start(
    plan: Plan,
    inputs: Mapping[str, Any],
    store: JournalStore,
    *,
    run_id: str | None = None,
    limits: FlowLimits | None = None,
    session: str | None = None,
    reuse: str | None = None,
    settings: Mapping[str, Any] = EMPTY,
    live: Live | None = None,
) -> Run:
    """A new run, to its end. A node's failure is told in the `Run`, not raised.

    `session`: what earlier runs of that name have left is there, and what this one leaves is kept if it
    succeeds. `reuse`: id of an earlier run of this flow, whose results are taken where they still hold
    (`nodes.earlier`). `settings` are kept in the journal for whoever resumes the run (model override, concurrency,
    timeout). `live` hears what agents write while they write it.
    """
    started = beginning(
        plan, inputs, store, run_id=run_id or new_run_id(), session=session, reuse=reuse, settings=settings
    )
    plan.prepare()
    run_id, kept = started.run_id, started.kept
    plan = _thrifty(plan, store, run_id, reuse)
    journal = store.create(run_id)
    walk = Walk(plan.graph, StateStore(plan.state, kept), inputs=started.inputs, env=started.env, run_id=run_id)
    leave = partial(leave_behind, store, started, walk)
    return await _drive(
        plan, walk, journal, [started], limits or plan.limits, leave, partial(store.events, run_id), live
    )


def beginning(
    plan: Plan,
    inputs: Mapping[str, Any],
    store: JournalStore,
    *,
    run_id: str,
    session: str | None = None,
    reuse: str | None = None,
    settings: Mapping[str, Any] = EMPTY,
) -> RunStarted:
    """The first event of a new run, as `start` writes it; a run that has it can be resumed by anybody.

    Whether the plan could run here is not asked.
    """
    given = checked_inputs(plan.inputs, inputs)
    kept = load_session(store, session)
    if session is not None:
        settings = {**settings, "session": session}
    if reuse is not None:
        settings = {**settings, "reuse": reuse}
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
    plan: Plan,
    run_id: str,
    store: JournalStore,
    *,
    allow_changed: bool = False,
    retry_effects: Collection[str] = (),
    assume_done: Collection[str] = (),
    limits: FlowLimits | None = None,
    live: Live | None = None,
    journal: Journal | None = None,
) -> Run:
    """Go on with a run that was interrupted or failed; what had finished is not run again.

    A run that succeeded is read back as it is. Raises `FlowChangedError` where the flow was edited
    since, unless `allow_changed`: then what had finished stays finished, the rest runs as it is now.

    `EffectPendingError` where nobody saw how a call to an external tool ended: the nodes in
    `retry_effects` make theirs again, those in `assume_done` take them as done.

    `journal`: the run's, where the caller has become its writer already; it is closed in any case.
    """
    journal = journal or store.open(run_id)
    try:
        events = journal.read()
        started = _first(run_id, events)
        changed = changed_nodes(plan, events)
        if changed and not allow_changed:
            raise FlowChangedError(
                f"the flow was edited since run {run_id} started; changed nodes: {', '.join(changed)}", changed
            )
        if isinstance(events[-1], RunFinished) and events[-1].status == "succeeded":
            await journal.close()
            return read_run(plan, events)
        plan.prepare()
        plan = _thrifty(plan, store, run_id, started.settings.get("reuse"))
        walk = _walked(plan, started, events)
        decided = decided_effects(run_id, walk.attempts, retry=retry_effects, done=assume_done)
    except BaseException:
        await journal.close()
        raise
    for node, decision in decided:
        walk.attempts.add(node, decision)
    resumed = RunResumed(time(), plan.fingerprints if changed else EMPTY)
    first = [resumed, *(NodeRecorded(node, time(), decision) for node, decision in decided)]
    leave = partial(leave_behind, store, started, walk)
    return await _drive(plan, walk, journal, first, limits or plan.limits, leave, partial(store.events, run_id), live)


async def fork(
    plan: Plan,
    run_id: str,
    store: JournalStore,
    node: str,
    *,
    state: Mapping[str, Any] = EMPTY,
    new_id: str | None = None,
    limits: FlowLimits | None = None,
    live: Live | None = None,
) -> Run:
    """A new run that shares the past of an earlier one and begins at `node`: what is not behind it keeps its result.

    `state`: key → value, as `node` is to find it. The earlier run stays as it is. `InputError` for an unknown
    node or key, and for a run of another flow.
    """
    new_id = new_id or new_run_id()
    first = forked(plan, store.events(run_id), new_id, node, state, time())
    await store_run(store, first, new_id)
    return await resume(plan, new_id, store, limits=limits, live=live)


def _thrifty(plan: Plan, store: JournalStore, run_id: str, reuse: str | None) -> Plan:
    """The plan whose nodes look for results that are known already, where it has such nodes or such a run."""
    if reuse is None and not plan.caches:
        return plan
    from flowengine.nodes.reuse import reusing  # Knows agents, which most flows built in Python do without.

    return reusing(plan, store, run_id, reuse)


def read_run(plan: Plan, events: Sequence[Event]) -> Run:
    """A run as its journal has it; nothing is run and nothing is written."""
    started = _first("", events)
    last = events[-1]
    finished = last if isinstance(last, RunFinished) else RunFinished(last.at, "running")
    return Run(started.run_id, _walked(plan, started, events), finished, lambda: events)


def changed_nodes(plan: Plan, events: Sequence[Event]) -> list[str]:
    """Nodes whose definition is not what the run last went on with; added and removed ones too."""
    known: Mapping[str, str] = EMPTY
    for event in events:
        if isinstance(event, RunStarted) or (isinstance(event, RunResumed) and event.fingerprints):
            known = event.fingerprints
    now = plan.fingerprints
    return [name for name in dict.fromkeys([*now, *known]) if now.get(name) != known.get(name)]


def _first(run_id: str, events: Sequence[Event]) -> RunStarted:
    if not events or not isinstance(events[0], RunStarted):
        raise StoreCorruptError(f"run {run_id}: the journal does not begin with its start")
    return events[0]


def _walked(plan: Plan, started: RunStarted, events: Sequence[Event]) -> Walk:
    return Walk(
        plan.graph,
        StateStore(plan.state, started.kept),
        inputs=started.inputs,
        env=started.env,
        run_id=started.run_id,
        history=History(events),
        patches=patches_of(plan, started),
    )


async def _drive(
    plan: Plan,
    walk: Walk,
    journal: Journal,
    first: Sequence[Event],
    limits: FlowLimits,
    leave: Callable[[Fence | None], Awaitable[None]],
    read: Callable[[], Sequence[Event]],
    live: Live | None = None,
) -> Run:
    """Journal the first events, run, journal the last one; the journal is closed whatever happens.

    A run that succeeds leaves what it leaves before that is on record: if it is interrupted meanwhile, it is resumed,
    and leaves it again, of which nothing is kept twice.
    """
    fence: Fence | None = getattr(journal, "fence", None)  # Only where others can take the run over.
    clock = run_clock()
    try:
        await _committed(journal, *first)  # From here on the run can be found and resumed.
        limit: LimitError | None = None
        with anyio.move_on_after(inf if limits.timeout is None else limits.timeout) as scope:
            limit = await _schedule(plan, walk, journal, limits, live, clock, fence)
        if scope.cancelled_caught:
            limit = LimitError(
                f"the run took longer than its limit of {limits.timeout:g} s", part="", on_limit=limits.on_limit
            )
        finished = _finish(plan, walk, limit, clock())
        if finished.status == "succeeded":
            await leave(fence)
        await _committed(journal, finished)
    except anyio.get_cancelled_exc_class():
        with anyio.CancelScope(shield=True):
            journal.append(RunFinished(clock(), "cancelled"))
            await _close_quietly(journal)
        raise
    except BaseException:
        with anyio.CancelScope(shield=True):
            await _close_quietly(journal)
        raise
    await journal.close()
    return Run(walk.run_id or "", walk, finished, read)


async def _committed(journal: Journal, *events: Event) -> None:
    for event in events:
        journal.append(event)
    waiting = journal.commit(True)
    if waiting is not None:
        await waiting


async def _schedule(
    plan: Plan,
    walk: Walk,
    journal: Journal,
    limits: FlowLimits,
    live: Live | None,
    clock: Callable[[], float],
    fence: Fence | None,
) -> LimitError | None:
    """Run what can run; the limit that ended it early, where that is no failure."""
    async with RunScope(fence) as scope:
        scheduler = Scheduler(
            walk,
            plan.nodes,
            journal,
            concurrency=limits.concurrency,
            on_failure=limits.on_failure,
            live=live,
            scope=scope,
            ledger=_ledger(walk, limits),
            clock=clock,
        )
        await scheduler.run()
    return scheduler.limited


def _ledger(walk: Walk, limits: FlowLimits) -> Ledger | None:
    """What the run may spend, less what it has spent before; None where nothing bounds it."""
    if not any(limits.bounds):
        return None
    return Ledger(limits.bounds, on_limit=limits.on_limit, spent=walk.history.spent())


async def _close_quietly(journal: Journal) -> None:
    """Another error is on its way already: a journal that cannot be closed must not hide it."""
    try:
        await journal.close()
    except JournalError:
        return


def _finish(plan: Plan, walk: Walk, limit: LimitError | None, at: float) -> RunFinished:
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
