"""`flowengine run` runs a flow file, from inputs to outputs; `flowengine resume` continues a run where it broke off."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

import click

from flowengine.cli import options
from flowengine.cli.execute import Execution, format_outputs
from flowengine.cli.options import (
    Reporting,
    add_running_options,
    choose_store,
    gather_inputs,
    label_option,
    open_journal,
)
from flowengine.cli.run_access import beginning, read
from flowengine.cli.terminal import Results, complain
from flowengine.core.json_values import parse_value
from flowengine.engine.events import Event, RunFinished, RunStarted
from flowengine.engine.ports import Durability, JournalStore
from flowengine.errors import DefinitionError
from flowengine.flow import Flow
from flowengine.flowfile.run_bundle import place_of
from flowengine.models.dotenv import load_environment
from flowengine.runners import local
from flowengine.runners.run import Live, Run, RunOptions, settings_of
from visualize.progress import fold_events

__all__ = ["load_flow_of_run", "resume_command", "resume_run", "run_command"]


@click.command("run")
@click.argument("flow", metavar="FLOW")
@click.option(
    "-i",
    "--input",
    "pairs",
    multiple=True,
    metavar="KEY=VALUE",
    help="An input; JSON for other types than text, @FILE for a file's text.",
)
@click.option("--inputs", "file", metavar="FILE", help="A JSON object of inputs; - is stdin. -i overrides it.")
@click.option("--run-id", callback=options.run_id, metavar="ID", help="The run's id; default: random.")
@click.option("--reuse", metavar="RUN", help="Re-use unchanged results of an earlier run: an id or @last.")
@click.option("--session", metavar="NAME", help="Continue the session of this name.")
@label_option("A label to find the run by (`runs list --label`).")
@click.option("--data", metavar="FILE", help="Run once for each row: .jsonl, or .csv with inputs as columns.")
@click.option("-o", "--output", metavar="FILE", help="With --data: file for the results, .jsonl or .csv.")
@click.option("--map", "mapping", multiple=True, metavar="COLUMN=INPUT", help="With --data: the input for a column.")
@click.option("--retry-failed", is_flag=True, help="With --data: resume failed rows.")
@click.option("--fresh", is_flag=True, help="With --data: run finished rows again.")
@click.option("--allow-changed", is_flag=True, help="With --data: continue although the flow was edited.")
@click.option("--batch", is_flag=True, help="With --data: use the vendors' batch APIs, at half the price.")
@click.option(
    "--deadline", callback=options.duration, metavar="TIME", help="With --batch: after this time, make calls directly."
)
@add_running_options
def run_command(
    flow: str,
    pairs: tuple[str, ...],
    file: str | None,
    run_id: str | None,
    reuse: str | None,
    session: str | None,
    labels: Mapping[str, str],
    data: str | None,
    output: str | None,
    mapping: tuple[str, ...],
    retry_failed: bool,
    fresh: bool,
    allow_changed: bool,
    batch: bool,
    deadline: float | None,
    store: str | None,
    settings: Mapping[str, Any],
    reporting: Reporting,
    durability: Durability,
) -> int:
    """Run the flow in the file FLOW.

    One output that is text is printed alone, several as `name: value`. On a terminal the nodes are
    shown while they run.

    With --data it runs once for each row, --concurrency rows at once (by default 20). Stopped and started again with
    the same FLOW and FILE, it goes on where it was. The limits --max-cost, --max-calls and --max-tokens are those of
    all rows together, each time.
    """
    only_data = {"-o": output, "--map": mapping, "--retry-failed": retry_failed, "--fresh": fresh}
    only_data |= {"--allow-changed": allow_changed, "--batch": batch, "--deadline": deadline}
    _refuse_options(only_data if data is None else {"--run-id": run_id, "--reuse": reuse, "--session": session}, data)
    results = Results()
    with results.alone():
        plan = Flow.from_yaml(flow, model=settings.get("model"), environ=load_environment()).plan
    inputs = gather_inputs(plan.inputs, pairs, file)
    settings = {**settings, "folder": os.getcwd()}
    if data is not None:
        from flowengine.cli.run_rows import RowsCommand, pace_of  # A single run does without.

        if reporting.events:
            raise click.UsageError("--events does not go with --data: --json says how the rows ended")
        return RowsCommand(
            plan,
            data,
            output,
            mapping,
            inputs,
            labels,
            settings,
            store,
            durability,
            reporting,
            results,
            retry_failed=retry_failed,
            fresh=fresh,
            allow_changed=allow_changed,
            batch=pace_of(batch=batch, deadline=deadline),
        ).run()

    chosen = run_id or local.new_run_id()

    async def job(kept: JournalStore, live: Live) -> Run:
        earlier = None if reuse is None else kept.find(reuse)
        begun = RunOptions(run_id=chosen, session=session, reuse=earlier, settings=settings, labels=labels, live=live)
        return await local.start(plan, inputs, kept, begun)

    return Execution(chosen, store, reporting, results, durability, plan=plan).run(job)


def _refuse_options(given: Mapping[str, object], data: str | None) -> None:
    """Options that need --data where it is not given, or do not go with it."""
    for option, value in given.items():
        if value:
            raise click.UsageError(f"{option} {'goes with --data' if data is None else 'does not go with --data'}")


# --- `flowengine resume`


@click.command("resume")
@click.argument("reference", metavar="RUN")
@click.option("--allow-changed", is_flag=True, help="Go on although the flow was edited since the run started.")
@click.option(
    "--retry-effect", "retry", metavar="NODE", multiple=True, help="Run the node's interrupted external call again."
)
@click.option(
    "--assume-done", "done", metavar="NODE", multiple=True, help="Take the node's interrupted external call as done."
)
@click.option(
    "--failed-items",
    is_flag=True,
    help="Run again the items that failed under `on_item_error: collect` or `skip`, and all that is behind them.",
)
@click.option(
    "--from", "start", metavar="NODE", help="Begin a new run at NODE that shares RUN's past; RUN stays as it is."
)
@click.option("--set", "pairs", metavar="KEY=VALUE", multiple=True, help="With --from: shared state as NODE finds it.")
@click.option(
    "-i", "--input", "changed", metavar="KEY=VALUE", multiple=True, help="With --from: another value of an input."
)
@click.option("--flow", "file", metavar="FILE", help="The flow file; default: that of the run.")
@add_running_options
def resume_command(
    reference: str,
    allow_changed: bool,
    retry: tuple[str, ...],
    done: tuple[str, ...],
    failed_items: bool,
    start: str | None,
    pairs: tuple[str, ...],
    changed: tuple[str, ...],
    file: str | None,
    store: str | None,
    settings: Mapping[str, Any],
    reporting: Reporting,
    durability: Durability,
) -> int:
    """Go on with RUN: an id, the start of one, or @last.

    What had finished is not run again and not paid again. Model and limits are those that the run last went
    on with, unless given anew; what it has spent counts.
    """
    if pairs and start is None:
        raise click.UsageError("--set goes with --from: it says what the node finds there")
    if changed and start is None:
        raise click.UsageError("-i goes with --from: a run that goes on has the inputs of its start")
    if failed_items and start is not None:
        raise click.UsageError("--failed-items and --from exclude each other")
    if start is not None:
        return _fork_run(reference, start, pairs, changed, file, store, settings, reporting, durability)
    return resume_run(
        reference,
        store,
        settings,
        reporting,
        durability,
        file,
        allow_changed=allow_changed,
        retry_effects=retry,
        assume_done=done,
        repeat_failed_items=failed_items,
    )


def resume_run(
    reference: str,
    store: str | None,
    settings: Mapping[str, Any],
    reporting: Reporting,
    durability: Durability,
    file: str | None = None,
    **chosen: Any,
) -> int:
    """Go on with a run, and give the exit code. `file`: of the flow; None: the run's own. `chosen`: `RunOptions`."""
    results = Results()
    run_id, past = _read_run(reference, store)
    finished = past[-1]
    repeats = chosen.get("repeat_failed_items")
    if isinstance(finished, RunFinished) and finished.status == "succeeded" and not repeats:
        return _tell_succeeded(run_id, past, finished, reporting, results)
    with results.alone():
        plan = load_flow_of_run(beginning(past), file, settings.get("model") or settings_of(past).get("model")).plan

    async def job(kept: JournalStore, live: Live) -> Run:
        return await local.resume(plan, run_id, kept, RunOptions(settings=settings, live=live, **chosen))

    return Execution(run_id, store, reporting, results, durability, past, plan).run(job)


def _fork_run(
    reference: str,
    start: str,
    pairs: tuple[str, ...],
    changed: tuple[str, ...],
    file: str | None,
    store: str | None,
    settings: Mapping[str, Any],
    reporting: Reporting,
    durability: Durability,
) -> int:
    results, new_id = Results(), local.new_run_id()
    run_id, past = _read_run(reference, store)
    started = beginning(past)
    with results.alone():
        plan = load_flow_of_run(started, file, settings.get("model") or settings_of(past).get("model")).plan
    state = dict(map(_parse_pair, pairs))
    inputs = {**started.inputs, **gather_inputs(plan.inputs, changed, None)} if changed else None

    async def begin(kept: JournalStore, live: Live) -> Run:
        options = RunOptions(run_id=new_id, settings=settings, live=live)
        return await local.fork(plan, run_id, kept, start, state=state, inputs=inputs, options=options)

    return Execution(new_id, store, reporting, results, durability, plan=plan).run(begin)


def _read_run(reference: str, store: str | None) -> tuple[str, Sequence[Event]]:
    with open_journal(choose_store(store)) as kept:
        run_id = kept.find(reference)
        return run_id, read(kept, run_id)


def load_flow_of_run(started: RunStarted, file: str | None, model: Any) -> Flow:
    """From the file that is named, else from the run's own file, else from the text that the run keeps."""
    if file is not None:
        return Flow.from_yaml(file, model=model, environ=load_environment())
    if started.path is None:
        raise DefinitionError(
            f"run {started.run_id} was started from a flow built in Python: resume it with Flow.resume(), "
            f"or name a flow file with --flow"
        )
    path = _localize_path(started.path, str(started.settings.get("folder", "")))
    if os.path.isfile(path):
        return Flow.from_yaml(path, model=model, environ=load_environment())
    if started.source is None:
        raise DefinitionError(f"the flow file '{path}' of run {started.run_id} is gone: name it with --flow FILE")
    complain(f"notice: '{path}' is gone; the run goes on with the text that it was started with")
    place = place_of(started.path, str(started.settings.get("folder", "")))
    return Flow.from_text(started.source, place, model=model, environ=load_environment())


def _localize_path(path: str, folder: str) -> str:
    """The flow's path as seen from here: it was given in the folder where the run was started."""
    return path if not folder or folder == os.getcwd() else os.path.join(folder, path)


def _parse_pair(given: str) -> tuple[str, Any]:
    """`key=value`; the value is JSON, or else text."""
    key, found, value = given.partition("=")
    if not found:
        raise click.UsageError(f"--set {given!r}: write KEY=VALUE")
    return key, parse_value(value)


def _tell_succeeded(
    run_id: str, past: Sequence[Event], finished: RunFinished, reporting: Reporting, results: Results
) -> int:
    if not reporting.quiet:
        complain(f"run {run_id} has succeeded already; these are its outputs")
    if reporting.json:
        from flowengine.cli.format_run import to_run_json  # Most runs are printed as their outputs.

        results.json(to_run_json(fold_events(past), finished.outputs))
    elif finished.outputs and not reporting.events:
        results.line(format_outputs(finished.outputs))
    return 0
