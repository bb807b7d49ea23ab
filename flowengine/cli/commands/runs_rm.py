"""`flowengine runs rm`: forget runs."""

from __future__ import annotations

import click

from flowengine.cli.selection import Selection, selection
from flowengine.cli.store import chosen_store, journals, store_option
from flowengine.cli.terminal import complain
from flowengine.errors import StoreUnavailableError
from flowengine.runners.queue_view import ENDED

__all__ = ["remove"]


@click.command("rm")
@selection
@click.option("--force", is_flag=True, help="Also a RUN that has not ended: queued, waiting, paused or interrupted.")
@click.option("--dry-run", is_flag=True, help="Only say which.")
@store_option
def remove(selected: Selection, force: bool, dry_run: bool, store: str | None) -> int:
    """Forget RUNs with all their events: ids, starts of ids, or @last; or all runs that the filters find.

    Runs that have not ended are left: --force removes those that are named. What a process writes is left in any case.
    """
    if force and not selected.references:
        raise click.UsageError("--force goes with a RUN: filters remove only what has ended")
    with journals(chosen_store(store)) as kept:
        chosen = selected.choose(kept)
        failed = 0
        for run_id, word in chosen.runs.items():
            is_named, has_ended = run_id in chosen.named, word in ENDED
            try:
                if not has_ended and not (force and is_named):
                    raise StoreUnavailableError(f"run '{run_id}' has not ended, it is {word}")
                if not dry_run:
                    kept.remove(run_id)
            except StoreUnavailableError as error:
                failed += is_named or has_ended
                complain(f"left: {error}")
                continue
            complain(f"{'would remove' if dry_run else 'removed'} {run_id}")
    if not chosen.runs:
        complain("there is nothing to remove")
    return 1 if failed else 0
