"""`flowengine submit` and `cancel` put runs into queues and stop them; `queue` and `workers` list what is there."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import partial
from time import time
from typing import TYPE_CHECKING, Any

import anyio
import click

from flowengine.cli import options
from flowengine.cli.options import (
    add_spending_options,
    collect_settings,
    duration,
    format_store,
    label_option,
    open_journal,
    store_option,
)
from flowengine.cli.terminal import Results, complain, format_span, format_table
from flowengine.runtime.queue import QueueStatus, WorkerStatus, problems_of, queues_of, workers_of

if TYPE_CHECKING:
    from flowengine.journal.postgres import PostgresStore
    from flowengine.runtime import RunOptions

# --- `flowengine submit`


def _parse_time(ctx: click.Context, param: click.Parameter, value: str | None) -> datetime | None:
    """`2030-01-31T08:00`, here where no zone is said, or `30m` from now."""
    if value is None:
        return None
    try:
        return datetime.fromisoformat(value).astimezone()
    except ValueError:
        pass
    try:
        return datetime.now(UTC) + timedelta(seconds=duration(ctx, param, value) or 0)
    except (click.BadParameter, OverflowError):
        raise click.BadParameter(f"{value!r} is no time: write 2030-01-31T08:00, or 30m for in half an hour") from None


@click.command("submit")
@click.argument("flow", metavar="FLOW", required=False)
@click.option("-i", "--input", "pairs", multiple=True, metavar="KEY=VALUE", help="An input, as for `flowengine run`.")
@click.option("--inputs", "file", metavar="FILE", help="A JSON object of inputs; - is stdin. -i overrides it.")
@click.option(
    "--run-id",
    callback=options.run_id,
    metavar="ID",
    help="The run's id; default: random. Submitting the same again under it makes no second run.",
)
@click.option("--session", metavar="NAME", help="Continue the session of this name.")
@click.option("--reuse", metavar="RUN", help="Re-use unchanged results of an earlier run: an id or @last.")
@click.option("--queue", metavar="NAME", help="Which workers take it.  [default: default]")
@click.option("--priority", type=int, metavar="N", help="The greater, the sooner.  [default: 0, or as before]")
@click.option("--at", callback=_parse_time, metavar="TIME", help="Not before: 2030-01-31T08:00, or 30m from now.")
@click.option("--resume", "reference", metavar="RUN", help="Instead of FLOW: a run that is to go on in a worker.")
@click.option(
    "--allow-changed", is_flag=True, help="With --resume: also in a worker that has other versions of its functions."
)
@click.option("--model", metavar="NAME", help="Use this model in place of all models of the flow.")
@click.option("--concurrency", type=click.IntRange(min=1), metavar="N", help="Nodes of the run in flight at once.")
@click.option("--timeout", callback=duration, metavar="TIME", help="Time limit of the run: 30s, 10m, 2h.")
@add_spending_options
@label_option("A label to find the run by (`runs list --label`).")
@store_option
@collect_settings
def submit_command(
    flow: str | None,
    pairs: tuple[str, ...],
    file: str | None,
    run_id: str | None,
    session: str | None,
    reuse: str | None,
    queue: str | None,
    priority: int | None,
    at: datetime | None,
    reference: str | None,
    allow_changed: bool,
    labels: Mapping[str, str],
    store: str | None,
    settings: Mapping[str, Any],
) -> int:
    """Put a run of the flow in the file FLOW into a queue; its id is printed.

    The flow's text goes with the run, with the flows that it runs as nodes and what the project says of models. What
    it names beside that, Python code and other files, the workers must have. The store has to be on PostgreSQL.
    """
    if (flow is None) == (reference is None):
        raise click.UsageError("name a FLOW, or a run with --resume")
    if allow_changed and reference is None:
        raise click.UsageError("--allow-changed goes with --resume")
    if reference is not None and (pairs or file or run_id or labels or session or reuse):
        raise click.UsageError("id, inputs, session and labels of a run that goes on are those of its start")
    results = Results()
    with open_journal(store) as journal:
        from flowengine.runtime.local import new_run_id
        from flowengine.runtime.queue import queue_store, requeue  # Needs its extra.

        place = queue_store(journal)
        if reference is not None:
            run_id = place.find(reference)
            with results.alone():
                again = partial(requeue, place, run_id, queue=queue, priority=priority, at=at)
                anyio.run(partial(again, allow_changed=allow_changed, settings=settings))
        else:
            from flowengine.runtime import RunOptions

            when: dict[str, Any] = {"queue": queue or "default", "priority": priority or 0, "at": at}
            earlier = None if reuse is None else place.find(reuse)
            options = RunOptions(session=session, reuse=earlier, settings=settings, labels=labels)
            run_id = _submit(place, str(flow), pairs, file, run_id or new_run_id(), options, when, results)
    results.line(run_id)
    return 0


def _submit(
    store: PostgresStore,
    flow: str,
    pairs: tuple[str, ...],
    file: str | None,
    run_id: str,
    options: RunOptions,
    when: dict[str, Any],
    results: Results,
) -> str:
    from flowengine.cli.options import gather_inputs
    from flowengine.flow import Flow
    from flowengine.models import load_environment
    from flowengine.runtime.queue import submit_runs

    with results.alone():  # Code that the flow names may print.
        plan = Flow.from_yaml(flow, model=options.settings.get("model"), environ=load_environment()).plan
    inputs = gather_inputs(plan.inputs, pairs, file)
    with results.alone():
        options = replace(options, settings={**options.settings, "folder": os.getcwd()})
        new = anyio.run(partial(submit_runs, store, plan, {run_id: inputs}, options, **when))
    if run_id not in new:
        complain(f"run {run_id} is there already")
    return run_id


@click.command("queue")
@click.argument("names", metavar="[QUEUE]...", nargs=-1)
@click.option("--max-age", callback=duration, metavar="TIME", help="Complain of runs that are due for longer: 10m, 2h.")
@click.option("--json", "as_json", is_flag=True, help="Print one object.")
@store_option
def queue_command(names: tuple[str, ...], max_age: float | None, as_json: bool, store: str | None) -> int:
    """Say what the QUEUEs hold (default: all queues of the store), and what is wrong there.

    The exit code is 1 where somebody is needed: runs are due and no worker takes from their queue, workers lack
    something for runs, runs have lost their job, or the oldest one is due for longer than --max-age.
    """
    with open_journal(store) as journal:
        from flowengine.runtime.queue import queue_store  # It says so where its extra is missing.

        place = queue_store(journal)
        from flowengine.runtime.queue import Orphans

        queues = queues_of(place, workers_of(place))
        orphans = {run_id: job.queue for run_id, job in Orphans(place).find().items()}
    if names:
        by_name = {each.queue: each for each in queues}
        queues = [by_name.get(name, QueueStatus(name)) for name in dict.fromkeys(names)]
        orphans = {run_id: queue for run_id, queue in orphans.items() if queue in names}
    problems = list(problems_of(queues, orphans, max_age))
    results = Results()
    if as_json:
        data = {
            "queues": [each._asdict() for each in queues],
            "orphans": orphans,
            "problems": [each._asdict() for each in problems],
        }
        results.value(data)
    elif queues:
        head = ["QUEUE", "DUE", "OLDEST", "LATER", "ASKING", "LACKING", "TAKEN", "LOST", "WORKERS"]
        results.lines(format_table([head, *map(_format_queue, queues)], right=range(1, len(head))))
    else:
        complain(f"the queues of {format_store(store)} hold nothing, and have no workers")
    for each in problems:
        complain(each.text)
    return 1 if problems else 0


def _format_queue(each: QueueStatus) -> list[str]:
    before = [str(each.due), format_span(each.oldest), *map(str, (each.later, each.asking, each.lacking))]
    return [each.queue, *before, *map(str, (each.taken, each.lost, each.workers))]


# --- `flowengine workers`

_MAX_RUNS_SHOWN = 3
"""Runs that are named for each worker."""


@click.command("workers")
@click.option("--json", "as_json", is_flag=True, help="Print an array of objects, with all runs.")
@store_option
def workers_command(as_json: bool, store: str | None) -> int:
    """The workers of the store: where they run, which queue they take from, what they hold, when they last gave a sign.

    A worker that gives none for half a minute is called silent; one that was killed is forgotten by the others then.
    """
    with open_journal(store) as journal:
        from flowengine.runtime.queue import queue_store  # Needs its extra.

        workers = workers_of(queue_store(journal))
    results = Results()
    if as_json:
        results.value([each._asdict() | {"is_live": each.is_live} for each in workers])
        return 0
    if not workers:
        complain(f"there are no workers of {format_store(store)}")
        return 0
    head = ["WORKER", "HOST", "PROCESS", "VERSION", "QUEUE", "RUNS", "UP", "LAST SIGN", "HOLDS"]
    results.lines(format_table([head, *map(_format_worker, workers)]))
    return 0


def _format_worker(each: WorkerStatus) -> list[str]:
    of = "" if each.concurrency is None else f" of {each.concurrency}"
    up = None if each.started is None else time() - each.started
    sign = f"{format_span(each.silent)} ago{'' if each.is_live else ', silent'}"
    more = [f"and {len(each.runs) - _MAX_RUNS_SHOWN} more"] if len(each.runs) > _MAX_RUNS_SHOWN else []
    holds = " ".join([*each.runs[:_MAX_RUNS_SHOWN], *more])
    cells = ["?" if value is None else str(value) for value in (each.host, each.process, each.version, each.queue)]
    return [str(each.id), *cells, f"{len(each.runs)}{of}", format_span(up), sign, holds]


# --- `flowengine cancel`


@click.command("cancel")
@click.argument("reference", metavar="RUN")
@store_option
def cancel_command(reference: str, store: str | None) -> int:
    """Stop RUN (an id, the start of one, or @last) in its queue, in its worker, or where it waits for a person."""
    with open_journal(store) as journal:
        from flowengine.runtime.queue import cancel, queue_store  # Needs its extra.

        place = queue_store(journal)
        run_id = place.find(reference)
        outcome = anyio.run(partial(cancel, place, run_id))
    if outcome == "nothing to stop":
        complain(f"run {run_id} is in no queue and waits for no answer")
        return 1
    complain(f"run {run_id} is asked to stop" if outcome == "asked to stop" else f"run {run_id} is cancelled")
    return 0
