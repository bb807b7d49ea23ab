"""`flowengine resume` continues a run where it broke off, with the flow file that it was started from."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

import click

from flowengine.cli.execute import Execution, format_outputs
from flowengine.cli.format_run import to_run_json
from flowengine.cli.options import (
    Reporting,
    add_running_options,
    choose_store,
    collect_settings,
    gather_inputs,
    open_journal,
    reporting_of,
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
from flowengine.runners.run import Run
from flowengine.runners.run_options import Live, RunOptions, settings_of
from visualize.progress import Progress

__all__ = ["command"]

# --- The flow of a run, loaded again


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
def command(
    reference: str,
    allow_changed: bool,
    retry: tuple[str, ...],
    done: tuple[str, ...],
    failed_items: bool,
    start: str | None,
    pairs: tuple[str, ...],
    changed: tuple[str, ...],
    file: str | None,
    model: str | None,
    store: str | None,
    as_json: bool,
    events: bool,
    concurrency: int | None,
    timeout: float | None,
    max_cost: float | None,
    max_calls: int | None,
    max_tokens: int | None,
    quiet: bool,
    durability: Durability,
) -> int:
    """Go on with RUN: an id, the start of one, or @last.

    What had finished is not run again and not paid again. Model and limits are those that the run last went
    on with, unless given anew; what it has spent counts.
    """
    reporting = reporting_of(as_json, events, quiet)
    results = Results()
    with open_journal(choose_store(store)) as kept:
        run_id = kept.find(reference)
        past = read(kept, run_id)
    if pairs and start is None:
        raise click.UsageError("--set goes with --from: it says what the node finds there")
    finished = past[-1]
    if changed and start is None:
        raise click.UsageError("-i goes with --from: a run that goes on has the inputs of its start")
    if failed_items and start is not None:
        raise click.UsageError("--failed-items and --from exclude each other")
    if start is None and not failed_items and isinstance(finished, RunFinished) and finished.status == "succeeded":
        return _tell_succeeded(run_id, past, finished, reporting, results)
    started = beginning(past)
    given = collect_settings(
        model=model,
        concurrency=concurrency,
        timeout=timeout,
        max_cost=max_cost,
        max_calls=max_calls,
        max_tokens=max_tokens,
    )
    with results.alone():
        plan = load_flow_of_run(started, file, model or settings_of(past).get("model")).plan

    if start is not None:
        state, new_id = dict(map(_parse_pair, pairs)), local.new_run_id()
        inputs = {**started.inputs, **gather_inputs(plan.inputs, changed, None)} if changed else None

        async def begin(kept: JournalStore, live: Live) -> Run:
            options = RunOptions(run_id=new_id, settings=given, live=live)
            return await local.fork(plan, run_id, kept, start, state=state, inputs=inputs, options=options)

        return Execution(new_id, store, reporting, results, durability, plan=plan).run(begin)

    async def job(kept: JournalStore, live: Live) -> Run:
        options = RunOptions(
            allow_changed=allow_changed,
            retry_effects=retry,
            assume_done=done,
            settings=given,
            repeat_failed_items=failed_items,
            live=live,
        )
        return await local.resume(plan, run_id, kept, options)

    return Execution(run_id, store, reporting, results, durability, past, plan).run(job)


def _parse_pair(given: str) -> tuple[str, Any]:
    """`key=value`; the value is JSON, or else text."""
    key, found, value = given.partition("=")
    if not found:
        raise click.UsageError(f"--set {given!r}: write KEY=VALUE")
    return key, parse_value(value)


def _tell_succeeded(
    run_id: str, past: Sequence[Event], finished: RunFinished, reporting: Reporting, results: Results
) -> int:
    progress = Progress()
    for event in past:
        progress.apply(event)
    if not reporting.quiet:
        complain(f"run {run_id} has succeeded already; these are its outputs")
    if reporting.json:
        results.json(to_run_json(progress, finished.outputs))
    elif finished.outputs and not reporting.events:
        results.line(format_outputs(finished.outputs))
    return 0
