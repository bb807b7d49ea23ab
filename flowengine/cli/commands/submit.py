"""`flowengine submit` journals a run and puts it into a queue, where a worker takes it up."""

from __future__ import annotations

import os
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, Any

import anyio
import click

from flowengine.cli import options
from flowengine.cli.options import add_spending_options, collect_settings, duration, label_option
from flowengine.cli.run_access import choose_store, open_journal, store_option
from flowengine.cli.terminal import Results, complain

if TYPE_CHECKING:  # the libraries of the queue are imported where one is used
    from flowengine.journal.postgres.store import PostgresStore

__all__ = ["command"]


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
    except click.BadParameter:
        raise click.BadParameter(f"{value!r} is no time: write 2030-01-31T08:00, or 30m for in half an hour") from None


@click.command("submit")
@click.argument("flow", metavar="FLOW", required=False)
@click.option("-i", "--input", "pairs", multiple=True, metavar="KEY=VALUE", help="An input, as for `flowengine run`.")
@click.option("--inputs", "file", metavar="FILE", help="A JSON object of inputs; - is stdin. -i wins over it.")
@click.option(
    "--run-id",
    callback=options.run_id,
    metavar="ID",
    help="Instead of an id drawn at random. Submitting the same again under it makes no second run.",
)
@click.option("--queue", metavar="NAME", help="Which workers take it.  [default: default]")
@click.option("--priority", type=int, metavar="N", help="The greater, the sooner.  [default: 0, or as before]")
@click.option("--at", callback=_parse_time, metavar="TIME", help="Not before: 2030-01-31T08:00, or 30m from now.")
@click.option("--resume", "reference", metavar="RUN", help="Instead of FLOW: a run that is to go on in a worker.")
@click.option(
    "--allow-changed", is_flag=True, help="With --resume: also in a worker that has other versions of its functions."
)
@click.option("--model", metavar="NAME", help="Use this model instead of every model that the flow names.")
@click.option("--concurrency", type=click.IntRange(min=1), metavar="N", help="Nodes of the run in flight at once.")
@click.option("--timeout", callback=duration, metavar="TIME", help="Limit of the whole run: 30s, 10m, 2h.")
@add_spending_options
@label_option("A label, by which the run is found again (`runs list --label`).")
@store_option
def command(
    flow: str | None,
    pairs: tuple[str, ...],
    file: str | None,
    run_id: str | None,
    queue: str | None,
    priority: int | None,
    at: datetime | None,
    reference: str | None,
    allow_changed: bool,
    model: str | None,
    concurrency: int | None,
    timeout: float | None,
    max_cost: float | None,
    max_calls: int | None,
    max_tokens: int | None,
    labels: Mapping[str, str],
    store: str | None,
) -> int:
    """Put a run of the flow in the file FLOW into a queue; its id is printed.

    The flow's text goes with the run, with the flows that it runs as nodes and what the project says of models. What
    it names beside that, Python code and other files, the workers must have. The store has to be on PostgreSQL.
    """
    if (flow is None) == (reference is None):
        raise click.UsageError("name a FLOW, or a run with --resume")
    if allow_changed and reference is None:
        raise click.UsageError("--allow-changed goes with --resume")
    if reference is not None and (pairs or file or run_id or labels):
        raise click.UsageError("id, inputs and labels of a run that goes on are those of its start")
    settings = collect_settings(
        model=model,
        concurrency=concurrency,
        timeout=timeout,
        max_cost=max_cost,
        max_calls=max_calls,
        max_tokens=max_tokens,
    )
    results = Results()
    with open_journal(choose_store(store)) as kept:
        from flowengine.runners.local import new_run_id
        from flowengine.runners.queue.run_queue import queue_store, requeue  # Needs its extra.

        place = queue_store(kept)
        if reference is not None:
            run_id = place.find(reference)
            with results.alone():
                anyio.run(
                    partial(
                        requeue,
                        place,
                        run_id,
                        queue=queue,
                        priority=priority,
                        at=at,
                        allow_changed=allow_changed,
                        settings=settings,
                    )
                )
        else:
            when: dict[str, Any] = {"queue": queue or "default", "priority": priority or 0, "at": at, "labels": labels}
            run_id = _submit(place, str(flow), pairs, file, run_id or new_run_id(), settings, when, results)
    results.line(run_id)
    return 0


def _submit(
    store: PostgresStore,
    flow: str,
    pairs: tuple[str, ...],
    file: str | None,
    run_id: str,
    settings: Mapping[str, Any],
    when: dict[str, Any],
    results: Results,
) -> str:
    from flowengine.cli.environment import load_environment
    from flowengine.cli.options import gather_inputs
    from flowengine.flow import Flow
    from flowengine.runners.queue.run_queue import submit_many

    with results.alone():  # Code that the flow names may print.
        plan = Flow.from_yaml(flow, model=settings.get("model"), environ=load_environment()).plan
    inputs = gather_inputs(plan.inputs, pairs, file)
    with results.alone():
        settings = {**settings, "folder": os.getcwd()}
        new = anyio.run(partial(submit_many, store, plan, {run_id: inputs}, settings=settings, **when))
    if run_id not in new:
        complain(f"run {run_id} is there already")
    return run_id
