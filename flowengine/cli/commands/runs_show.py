"""`flowengine runs show`: what happened in a run, or in one of its nodes."""

from __future__ import annotations

from collections.abc import Sequence

import click

from flowengine.cli.interrupt import INTERRUPTED
from flowengine.cli.node_sheet import node_sheet
from flowengine.cli.outcome import code_of, node_object, run_object
from flowengine.cli.plain import dumps, event_line
from flowengine.cli.reading import ReadingCommand
from flowengine.cli.record import folded, node_events, read, records_of
from flowengine.cli.sheet import run_sheet
from flowengine.cli.standing import lines_of
from flowengine.cli.store import chosen_store, journals, store_option
from flowengine.cli.terminal import Results
from flowengine.cli.watch import Reporting, follow
from flowengine.engine.events import Event

__all__ = ["show"]


@click.command("show", cls=ReadingCommand)
@click.argument("reference", metavar="RUN")
@click.option("--node", metavar="NODE", help="One node: its prompts, model calls, retries, output and errors.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object; nothing is cut.")
@click.option("--events", is_flag=True, help="Print each event as a line of JSON; nothing is cut.")
@click.option("--watch", is_flag=True, help="Follow the run until it ends, whichever process it runs in.")
@store_option
def show(reference: str, node: str | None, as_json: bool, events: bool, watch: bool, store: str | None) -> int:
    """What happened in RUN: an id, the start of one, or @last.

    With --watch the exit code is that of the run, as `flowengine run` has it.
    """
    code = 0
    if as_json and events:
        raise click.UsageError("--json and --events exclude each other")
    if watch:
        if node is not None or as_json:
            raise click.UsageError("--watch goes with --events only: the whole run is followed")
        with journals(chosen_store(store)) as kept:
            followed = follow(kept, kept.find(reference), Reporting(events=events), Results()).finished
        code = INTERRUPTED if followed is None else code_of(followed.status, followed.error)
        if events:
            return code
    with journals(chosen_store(store)) as kept:
        run_id = kept.find(reference)
        everything = read(kept, run_id)
        standing = list(lines_of(kept, run_id))
        is_left = run_id in kept.abandoned()
    chosen = everything if node is None else node_events(everything, node)
    results = Results()
    if events:
        for event in chosen:
            results.json(event_line(event))
    elif as_json:
        results.json(_object(everything, chosen, node))
    else:
        progress = folded(everything)
        lines = (
            run_sheet(progress, "interrupted" if is_left else "")
            if node is None
            else node_sheet(progress.nodes[node], records_of(chosen))
        )
        results.line("\n".join(lines))
        if node is None and standing:
            results.line("\n" + "\n".join(standing))
    return code


def _object(everything: Sequence[Event], chosen: Sequence[Event], node: str | None) -> str:
    progress = folded(everything)
    if node is None:
        return run_object(progress, None if progress.finished is None else progress.finished.outputs)
    row = progress.nodes[node]
    detail = {"id": row.id, **node_object(row), "result": row.result, "records": records_of(chosen)}
    return dumps(detail, indent=2)
