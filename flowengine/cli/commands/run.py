"""`flowengine run` runs a flow file once, from inputs to outputs."""

from __future__ import annotations

import os
from collections.abc import Mapping

import click

from flowengine.cli import options
from flowengine.cli.execute import Execution
from flowengine.cli.options import add_running_options, collect_settings, gather_inputs, label_option, reporting_of
from flowengine.cli.terminal import Results
from flowengine.engine.ports import Durability, JournalStore
from flowengine.flow import Flow
from flowengine.models.dotenv import load_environment
from flowengine.runners.local import new_run_id, start
from flowengine.runners.run import Live, Run, RunOptions

__all__ = ["command"]


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
def command(
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
    reporting = reporting_of(as_json, events, quiet)
    results = Results()
    with results.alone():
        loaded = Flow.from_yaml(flow, model=model, environ=load_environment())
    plan = loaded.plan
    inputs = gather_inputs(plan.inputs, pairs, file)
    chosen = run_id or new_run_id()
    given = collect_settings(
        model=model,
        concurrency=concurrency,
        timeout=timeout,
        max_cost=max_cost,
        max_calls=max_calls,
        max_tokens=max_tokens,
    )

    if data is not None:
        from flowengine.cli.run_rows import RowsCommand, pace_of  # A single run does without.

        if events:
            raise click.UsageError("--events does not go with --data: --json says how the rows ended")
        return RowsCommand(
            plan,
            data,
            output,
            mapping,
            inputs,
            labels,
            {**given, "folder": os.getcwd()},
            store,
            durability,
            reporting,
            results,
            retry_failed=retry_failed,
            fresh=fresh,
            allow_changed=allow_changed,
            batch=pace_of(batch=batch, deadline=deadline),
        ).run()

    async def job(journals: JournalStore, live: Live) -> Run:
        earlier = None if reuse is None else journals.find(reuse)
        settings = {**given, "folder": os.getcwd()}
        options = RunOptions(run_id=chosen, session=session, reuse=earlier, settings=settings, labels=labels, live=live)
        return await start(plan, inputs, journals, options)

    return Execution(chosen, store, reporting, results, durability, plan=plan).run(job)


def _refuse_options(given: Mapping[str, object], data: str | None) -> None:
    """Options that need --data where it is not given, or do not go with it."""
    for option, value in given.items():
        if value:
            raise click.UsageError(f"{option} {'goes with --data' if data is None else 'does not go with --data'}")
