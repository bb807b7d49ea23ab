"""Runs a compiled flow in this process, on this event loop: start, go on, finish. One journal, one owner.

How a run begins, goes on and is forked is here; what happens between its first and its last event is
`LocalExecution`'s.
"""

from __future__ import annotations

import os
import time
from collections.abc import Collection, Mapping, Sequence
from functools import partial
from typing import Any, Final, cast

import anyio.to_thread

from flowengine.core import BATCHING, EMPTY, ApprovalRequested, ModelCall, ToolCall, freeze, node_of_question
from flowengine.engine import (
    Attempts,
    Event,
    History,
    Journal,
    JournalStore,
    NodeFailed,
    NodeFinished,
    NodeRecorded,
    NodeSkipped,
    NodeStarted,
    RunFinished,
    RunResumed,
    RunStarted,
    StateStore,
    Walk,
    start_of,
)
from flowengine.errors import (
    FlowChangedError,
    InputError,
    RunBusyError,
    RunError,
    StoreCorruptError,
    refuse_other_kind,
)
from flowengine.journal import answers_left, commit_events, decided_effects, open_questions, reading_record
from flowengine.nodes import CompiledFlow, are_others, checked_inputs, file_path, may_take_long, take_files
from flowengine.runtime.local.forking import failed_items, fork_events, forked_nodes, patches_of, refuse_repeated_deeds
from flowengine.runtime.local.local_execution import LocalExecution, keeper_of
from flowengine.runtime.run import DEFAULTS, Run, RunOptions, chosen_limits, limits_under, settings_of
from flowengine.runtime.sessions import leave_behind, load_session
from flowengine.version import __version__


def new_run_id() -> str:
    """Twelve random hex digits: short enough to type a unique prefix of."""
    return os.urandom(6).hex()


async def start(
    plan: CompiledFlow, inputs: Mapping[str, Any], store: JournalStore, options: RunOptions = DEFAULTS
) -> Run:
    """A new run, to its end. A node's failure is told in the `Run`, not raised."""
    limits = options.limits or limits_under(plan.limits, options.settings)
    run_id = options.run_id or new_run_id()
    checked = await inputs_with_files(plan, inputs, store, run_id)
    begin = partial(beginning, plan, checked, store, run_id, options)
    started = await anyio.to_thread.run_sync(begin) if may_take_long(plan.inputs, checked) else begin()
    await plan.ready()
    plan.check_options()
    thrifty = _reuse_results(plan, store, run_id, options.reuse)
    journal = options.journal or store.create(run_id)
    state = StateStore(plan.rules, started.kept)
    walk = Walk(thrifty.graph, state, inputs=started.inputs, env=started.env, run_id=run_id)
    run = await LocalExecution(thrifty, walk, journal, limits, store, options).run([started], started)
    return await _resume_if_answered(plan, run, store, options) if run.status == "waiting" else run


async def inputs_with_files(
    plan: CompiledFlow, inputs: Mapping[str, Any], store: JournalStore, run_id: str
) -> Mapping[str, Any]:
    """The inputs for `beginning`, with the files among them in the store."""
    refuse_other_kind(inputs, Mapping, "the inputs of a run are a mapping, as {'name': value}", InputError)
    if not plan.takes_files or (not inputs and not plan.inputs):
        return inputs
    return await take_files(plan.inputs, inputs, keeper_of(plan, store, run_id))


def beginning(
    plan: CompiledFlow,
    inputs: Mapping[str, Any],
    store: JournalStore,
    run_id: str,
    options: RunOptions = DEFAULTS,
    *,
    begins_later: bool = False,
) -> RunStarted:
    """The first event of a new run, as `start` writes it; a run that has it can be resumed by anybody.

    Whether the plan could run here is not asked. `begins_later`: it is resumed once it is its turn, and has its
    session as it is then.
    """
    values = checked_inputs(plan.inputs, inputs)
    kept_values: Mapping[str, Any] = EMPTY
    if options.session is not None and not begins_later:
        kept_values = load_session(plan, store, options.session)
    settings = options.settings
    if options.limits is not None:
        settings = {**settings, **chosen_limits(options.limits, limits_under(plan.limits, settings))}
    if options.labels:
        settings = {**settings, "labels": freeze(dict(options.labels))}
    if options.session is not None:
        settings = {**settings, "session": options.session}
    if options.reuse is not None:
        settings = {**settings, "reuse": freeze(options.reuse)}
    env = {name: plan.environ[name] for name in plan.allow_env if name in plan.environ}
    return RunStarted(
        run_id,
        plan.name,
        time.time(),
        values,
        env,
        plan.fingerprints,
        plan.path,
        plan.source,
        __version__,
        settings,
        plan.skeleton,
        kept_values,
        plan.code,
    )


async def resume(plan: CompiledFlow, run_id: str, store: JournalStore, options: RunOptions = DEFAULTS) -> Run:
    """Go on with a run that was interrupted or failed; what had finished is not run again.

    A run that succeeded is read back as it is, unless failed items are to be repeated. Its limits are those that it
    last went on with.

    Raises `FlowChangedError` where the flow was edited since, unless `allow_changed`; `EffectPendingError` where nobody
    saw how a call to an external tool ended, and neither `retry_effects` nor `assume_done` names its node; `RunError`
    where items are to be repeated, and something behind them has an external effect or a person's answer, whose node
    is not in `retry_effects`.
    """
    journal = options.journal or store.open(run_id)
    try:
        events = journal.read()
        started = _read_start(run_id, events)
        changed = changed_nodes(plan, events)
        if changed and not options.allow_changed:
            raise FlowChangedError(
                f"the flow was edited since run {run_id} started; changed nodes: {', '.join(changed)}", changed
            )
        repeats = sorted(failed_items(plan, events)) if options.repeat_failed_items else ()
        if isinstance(events[-1], RunFinished) and events[-1].status == "succeeded" and not repeats:
            finished = await _leave_again(plan, store, journal, started, events) if events[-1].unkept else None
            await journal.close()
            return read_run(plan, events if finished is None else [*events, finished])
        await plan.ready()
        acts = started.settings.get("acts", True) is not False
        with reading_record(run_id):
            own = forked_nodes(plan, started) if acts else ()
            thrifty = _reuse_results(plan, store, run_id, started.settings.get("reuse"), acts=acts, anew=own)
        repeated: Collection[str] = ()
        if repeats:
            repeated = refuse_repeated_deeds(plan, events, repeats, options.retry_effects)
        session_values = None if _has_begun(events) else _session_of(plan, started, store)
        started = started if session_values is None else started._replace(kept=session_values)
        walk = _make_walk(thrifty, started, [*events, RunResumed(time.time(), repeats=repeats)] if repeats else events)
        retry = [each for each in options.retry_effects if each not in repeated]
        # What only tells what would have been does nothing outside again.
        pending = walk.attempts if acts else Attempts()
        decided = decided_effects(run_id, pending, retry=retry, done=options.assume_done)
        answers = answers_left(store, run_id, events)
        if not decided and not answers:
            _refuse_batched(run_id, events)
        records = [*decided, *((node_of_question(path, answer), answer) for path, answer in answers.items())]
        for node, record in records:
            walk.attempts.add(node, record)
        code = EMPTY if plan.code == _last_code(events) else plan.code
        before = settings_of(events)
        under = limits_under(plan.limits, {**before, **options.settings})
        limits = options.limits or under
        anew = {**options.settings, **chosen_limits(limits, under)}
        anew = {name: value for name, value in anew.items() if name not in before or before[name] != value}
        resumed = RunResumed(
            time.time(), plan.fingerprints if changed else EMPTY, code, freeze(anew), repeats, session_values
        )
        first = [resumed, *(NodeRecorded(node, time.time(), record) for node, record in records)]
    except BaseException:
        await journal.close()
        raise
    run = await LocalExecution(thrifty, walk, journal, limits, store, options).run(first, started if acts else None)
    return await _resume_if_answered(plan, run, store, options)


async def _leave_again(
    plan: CompiledFlow, store: JournalStore, journal: Journal, started: RunStarted, events: Sequence[Event]
) -> RunFinished:
    """Keep what a run could not keep that has succeeded; its end as it is on record now."""
    walk, fence = _make_walk(plan, started, events), getattr(journal, "fence", None)
    unkept = await leave_behind(plan, store, started, walk, fence)
    finished = cast(RunFinished, events[-1])._replace(at=time.time(), unkept=tuple(unkept))
    await commit_events(journal, finished)
    return finished


def _refuse_batched(run_id: str, events: Sequence[Event]) -> None:
    """`RunError` for a run that waits only for a vendor's batch, where none is looked at: it would pay again."""
    last = events[-1]
    waits = isinstance(last, RunFinished) and last.status == "waiting"
    if waits and BATCHING.get() is None and not open_questions(events):
        raise RunError(
            f"run {run_id} waits for a batch that may be paid for already: the command that began it, with the same "
            "--batch, goes on with it; with --deadline 1s that takes what the batch has, and asks the rest alone"
        )


async def _resume_if_answered(plan: CompiledFlow, run: Run, store: JournalStore, options: RunOptions) -> Run:
    """The run, or what becomes of it where it was answered while it was being put aside."""
    if run.status != "waiting" or not answers_left(store, run.id, run.events):
        return run
    try:
        again = RunOptions(allow_changed=True, limits=run.limits, live=options.live, above=options.above)
        return await resume(plan, run.id, store, again)
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
    acts: bool = True,
    begun: Sequence[Event] = (),
    options: RunOptions = DEFAULTS,
) -> Run:
    """A new run that shares the past of an earlier one and begins at `node`: what is not behind it keeps its result.

    `state`: key → value, as `node` is to find it. `inputs`: all of them, in the place of the earlier run's. That run
    stays as it is; what was chosen for it holds for the new one, unless chosen anew in `options`, where id and labels
    are those of the new one. `InputError` for an unknown node, key or input, and for a run of another flow.

    Without `acts` it only tells what would have been: results behind `node` are taken where they still hold, nothing
    has an effect outside and no person is asked. `begun`: the beginning of an attempt of `node`: what it asks again is
    answered by what is on record there.
    """
    new_id, labels = options.run_id or new_run_id(), options.labels or None
    how: Any = {"state": state, "inputs": inputs, "acts": acts, "labels": labels, "begun": begun}
    await write_fork(plan, run_id, store, node, new_id=new_id, **how)
    return await resume(plan, new_id, store, options)


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
    """The beginning of `fork`, for a later resumption; `settings` beside those of the earlier run,
    `labels` instead of its own."""
    events = store.events(run_id)
    if inputs is not None:
        inputs = checked_inputs(plan.inputs, await inputs_with_files(plan, inputs, store, new_id))
    started, *shared = fork_events(plan, events, new_id, node, state, time.time(), inputs)
    if isinstance(started, RunStarted):
        own = {**started.settings, **settings}
        if not acts:
            own = {name: value for name, value in own.items() if name != "session"}
            own |= {"acts": False, "reuse": run_id}
        if labels is not None:
            own["labels"] = freeze(labels)
        started = started._replace(settings=own)
    from flowengine.journal import store_run  # Only forks write whole runs.

    await store_run(store, [started, *shared, *begun], new_id)


def _reuse_results(
    plan: CompiledFlow,
    store: JournalStore,
    run_id: str,
    reuse: str | Sequence[str] | None,
    *,
    acts: bool = True,
    anew: Collection[str] = (),
) -> CompiledFlow:
    """The plan whose nodes look for results that are known already, where it has such nodes or such a run. `anew`:
    nodes that take none of a run."""
    if acts and reuse is None and not plan.caches:
        return plan
    from flowengine.nodes import reusing  # Knows agents, which most flows built in Python do without.

    return reusing(plan, store, run_id, reuse, acts=acts, anew=anew)


def read_run(plan: CompiledFlow, events: Sequence[Event]) -> Run:
    """A run as its journal has it; nothing is run and nothing is written."""
    started = _read_start("", events)
    last = events[-1]
    finished = last if isinstance(last, RunFinished) else RunFinished(last.at, "running")
    limits = limits_under(plan.limits, settings_of(events))
    return Run(plan, started.run_id, _make_walk(plan, started, events), finished, lambda: events, limits)


def changed_nodes(plan: CompiledFlow, events: Sequence[Event]) -> list[str]:
    """Nodes whose definition is not what the run last went on with, added and removed ones too; and those whose code
    is another, where something that it gave, or was answered, stays."""
    names = dict.fromkeys(changed_definitions(plan, events))
    code, now = _last_code(events), plan.code
    for event in events if code else ():
        path = file_path(event.node) if isinstance(event, NodeFinished | NodeRecorded) else ""
        if path and path not in names and are_others(code.get(path), now.get(path)) and _keeps_something(event):
            names[path] = None
    return list(names)


def _keeps_something(event: Event) -> bool:
    return isinstance(event, NodeFinished) or type(getattr(event, "record", None)) in _ANSWERED


_ANSWERED: Final = (ModelCall, ToolCall, ApprovalRequested)
"""Records of what was given, and of what a person is asked about the node as it was."""


def changed_definitions(plan: CompiledFlow, events: Sequence[Event]) -> list[str]:
    """Nodes whose definition is not what the run last went on with; added and removed ones too."""
    fingerprints: Mapping[str, str] = EMPTY
    for event in events:
        if isinstance(event, RunStarted) or (isinstance(event, RunResumed) and event.fingerprints):
            fingerprints = event.fingerprints
    now = plan.fingerprints
    return [
        name
        for name in dict.fromkeys([*now, *fingerprints])
        if (name in now) is not (name in fingerprints) or are_others(fingerprints.get(name), now.get(name))
    ]


def _last_code(events: Sequence[Event]) -> Mapping[str, str]:
    """Of the functions that nodes called when the run last went on."""
    codes = [each.code for each in events if isinstance(each, RunStarted | RunResumed)]
    return next((code for code in reversed(codes) if code), EMPTY)


def _read_start(run_id: str, events: Sequence[Event]) -> RunStarted:
    started = start_of(events)
    if started is None:
        raise StoreCorruptError(f"run {run_id}: the journal does not begin with its start")
    return started


def _has_begun(events: Sequence[Event]) -> bool:
    """Whether anything of a run has happened. What shares the past of another begins with the session that this had."""
    node_events = (NodeStarted, NodeFinished, NodeFailed, NodeSkipped)
    return isinstance(events[0], RunStarted) and (
        "forked" in events[0].settings
        or any(
            isinstance(each, node_events) or (isinstance(each, RunResumed) and each.kept is not None) for each in events
        )
    )


def _session_of(plan: CompiledFlow, started: RunStarted, store: JournalStore) -> Mapping[str, Any] | None:
    session = started.settings.get("session")
    return None if session is None else load_session(plan, store, session)


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
