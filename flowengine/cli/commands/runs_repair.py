"""`flowengine runs repair`: what can be read of a damaged store, as a new one."""

from __future__ import annotations

import click

from flowengine.cli.plain import dumps
from flowengine.cli.store import again, chosen_store, shown_store, store_option
from flowengine.cli.table import table
from flowengine.cli.terminal import Results, complain
from flowengine.journal.repair import Repair, repair_store
from flowengine.journal.sqlite import SQLiteStore
from flowengine.journal.stores import open_store

__all__ = ["repair"]


@click.command("repair")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@store_option
def repair(as_json: bool, store: str | None) -> int:
    """Write what can be read of a damaged store into a new one beside it; the damaged one stays as it is.

    Each run is kept up to its first event that is missing or damaged, and `flowengine resume` goes on from there: what
    came after is done again. The exit code is 1 where anything was lost.
    """
    opened = open_store(chosen_store(store))
    if not isinstance(opened, SQLiteStore):
        raise click.UsageError(f"only SQLite files are repaired, and {shown_store(store)} is none")
    done = repair_store(opened.path)
    results = Results()
    if as_json:
        results.line(dumps(_as_dict(done, opened), indent=2))
        return 0 if done.is_whole else 1
    if done.path is None:
        complain(f"nothing is wrong with {opened.path}: {len(done.runs)} runs, all whole")
        return 0
    rows = [[run.run_id, run.state, str(run.kept), str(run.lost), run.reason] for run in done.runs]
    for line in table([["RUN", "STATE", "KEPT", "LOST", "WHY"], *rows]):
        results.line(line)
    if done.lost_beside:
        complain(f"lost beside the runs: {done.lost_beside} values of sessions or caches")
    complain(f"wrote {done.path}; {opened.path} is as it was")
    cut = [run.run_id for run in done.runs if run.state == "cut"]
    if cut:
        complain(f"go on with a run that was cut: {again('resume', cut[0], str(done.path))}")
    return 0 if done.is_whole else 1


def _as_dict(done: Repair, opened: SQLiteStore) -> dict[str, object]:
    return {
        "store": str(opened.path),
        "repaired": None if done.path is None else str(done.path),
        "runs": [run._asdict() for run in done.runs],
        "lost_beside": done.lost_beside,
    }
