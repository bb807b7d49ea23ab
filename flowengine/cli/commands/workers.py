"""`flowengine workers` lists the workers of a store, and what they hold."""

from __future__ import annotations

from time import time

import click

from flowengine.cli.run_access import choose_store, format_store, open_journal, store_option
from flowengine.cli.terminal import Results, complain, format_span, format_table
from flowengine.journal.run_export import dumps
from flowengine.runners.queue.status import WorkerStatus, workers_of

__all__ = ["command"]

_MAX_RUNS_SHOWN = 3
"""Runs that are named for each worker."""


@click.command("workers")
@click.option("--json", "as_json", is_flag=True, help="Print an array of objects, with all runs.")
@store_option
def command(as_json: bool, store: str | None) -> int:
    """The workers of the store: where they run, which queue they take from, what they hold, when they last gave a sign.

    A worker that gives none for half a minute is called silent; one that was killed is forgotten by the others then.
    """
    with open_journal(choose_store(store)) as kept:
        from flowengine.runners.queue.run_queue import queue_store  # Needs its extra.

        workers = workers_of(queue_store(kept))
    results = Results()
    if as_json:
        results.line(dumps([each._asdict() | {"is_live": each.is_live} for each in workers], indent=2))
        return 0
    if not workers:
        complain(f"there are no workers of {format_store(store)}")
        return 0
    head = ["WORKER", "HOST", "PROCESS", "VERSION", "QUEUE", "RUNS", "UP", "LAST SIGN", "HOLDS"]
    for line in format_table([head, *map(_format_row, workers)]):
        results.line(line)
    return 0


def _format_row(each: WorkerStatus) -> list[str]:
    of = "" if each.concurrency is None else f" of {each.concurrency}"
    up = None if each.started is None else time() - each.started
    sign = f"{format_span(each.silent)} ago{'' if each.is_live else ', silent'}"
    more = [f"and {len(each.runs) - _MAX_RUNS_SHOWN} more"] if len(each.runs) > _MAX_RUNS_SHOWN else []
    holds = " ".join([*each.runs[:_MAX_RUNS_SHOWN], *more])
    said = ["?" if value is None else str(value) for value in (each.host, each.process, each.version, each.queue)]
    return [str(each.id), *said, f"{len(each.runs)}{of}", format_span(up), sign, holds]
