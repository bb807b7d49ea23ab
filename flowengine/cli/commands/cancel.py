"""`flowengine cancel` stops a submitted run: in its queue, in its worker, or where it waits for a person."""

from __future__ import annotations

from functools import partial

import anyio
import click

from flowengine.cli.run_access import choose_store, open_journal, store_option
from flowengine.cli.terminal import complain

__all__ = ["command"]


@click.command("cancel")
@click.argument("reference", metavar="RUN")
@store_option
def command(reference: str, store: str | None) -> int:
    """Stop RUN (an id, the start of one, or @last) in its queue, in its worker, or where it waits for a person."""
    with open_journal(choose_store(store)) as kept:
        from flowengine.runners.queue.run_queue import cancel, queue_store  # Needs its extra.

        place = queue_store(kept)
        run_id = place.find(reference)
        found = anyio.run(partial(cancel, place, run_id))
    if found == "nothing to stop":
        complain(f"run {run_id} is in no queue, and waits for nobody")
        return 1
    complain(f"run {run_id} is asked to stop" if found == "asked to stop" else f"run {run_id} is cancelled")
    return 0
