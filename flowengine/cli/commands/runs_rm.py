"""`flowengine runs rm`: forget runs."""

from __future__ import annotations

from time import time

import click

from flowengine.cli.options import duration
from flowengine.cli.store import chosen_store, journals, store_option
from flowengine.cli.terminal import complain
from flowengine.engine.ports import JournalStore
from flowengine.errors import StoreUnavailableError

__all__ = ["remove"]


@click.command("rm")
@click.argument("references", metavar="[RUN]...", nargs=-1)
@click.option("--older-than", callback=duration, metavar="TIME", help="All runs that began earlier: 30m, 12h, 30d.")
@click.option("--dry-run", is_flag=True, help="Only say which.")
@store_option
def remove(references: tuple[str, ...], older_than: float | None, dry_run: bool, store: str | None) -> int:
    """Forget RUNs with all their events: ids, starts of ids, or @last. Runs that go on are left alone."""
    if not references and older_than is None:
        raise click.UsageError("name a run, or give --older-than")
    with journals(chosen_store(store)) as kept:
        chosen = list(dict.fromkeys([*map(kept.find, references), *_older(kept, older_than)]))
        failed = 0
        for run_id in chosen:
            try:
                if not dry_run:
                    kept.remove(run_id)
            except StoreUnavailableError as error:
                failed += 1
                complain(f"left: {error}")
                continue
            complain(f"{'would remove' if dry_run else 'removed'} {run_id}")
    if not chosen:
        complain("there is nothing to remove")
    return 1 if failed else 0


def _older(kept: JournalStore, seconds: float | None) -> list[str]:
    """By their start; those that wait for a person are among them."""
    if seconds is None:
        return []
    return [run.run_id for run in kept.list() if run.started < time() - seconds]
