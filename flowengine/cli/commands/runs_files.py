"""`flowengine runs export`, `import` and `repair` move a run as one file, and save what a damaged store still holds."""

from __future__ import annotations

import sys
from pathlib import Path, PurePath
from typing import Final

import anyio
import click

from flowengine.cli.options import RUN_ID
from flowengine.cli.run_access import (
    ReadingCommand,
    choose_store,
    format_command,
    format_store,
    open_journal,
    read,
    store_option,
)
from flowengine.cli.terminal import Results, complain, format_table, put_lines
from flowengine.core.file_values import find_files
from flowengine.engine.events import Event, RunStarted
from flowengine.errors import StoreUnavailableError
from flowengine.journal.run_export import dumps, masked, pack_run, read_files, store_run, unpack_with_files
from flowengine.journal.sqlite.repair import Repair, repair_store
from flowengine.journal.sqlite.store import SQLiteStore
from flowengine.journal.stores import open_store

__all__ = ["export_run", "import_run", "repair"]

# --- `flowengine runs repair`


@click.command("repair")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@store_option
def repair(as_json: bool, store: str | None) -> int:
    """Write what can be read of a damaged store into a new one beside it; the damaged one stays as it is.

    Each run is kept up to its first event that is missing or damaged, and `flowengine resume` goes on from there: what
    came after is done again. The exit code is 1 where anything was lost.
    """
    opened = open_store(choose_store(store))
    if not isinstance(opened, SQLiteStore):
        raise click.UsageError(f"only SQLite files are repaired, and {format_store(store)} is none")
    done = repair_store(opened.path)
    results = Results()
    if as_json:
        results.line(dumps(_to_data(done, opened), indent=2))
        return 0 if done.is_whole else 1
    if done.path is None:
        complain(f"nothing is wrong with {opened.path}: {len(done.runs)} runs, all whole")
        return 0
    rows = [[run.run_id, run.state, str(run.kept), str(run.lost), run.reason] for run in done.runs]
    for line in format_table([["RUN", "STATE", "KEPT", "LOST", "WHY"], *rows]):
        results.line(line)
    if done.lost_beside:
        complain(f"lost beside the runs: {done.lost_beside} values of sessions or caches")
    if done.lost_files:
        complain(f"lost: the contents of {done.lost_files} files")
    complain(f"wrote {done.path}; {opened.path} is as it was")
    cut = [run.run_id for run in done.runs if run.state == "cut"]
    if cut:
        complain(f"go on with a run that was cut: {format_command('resume', cut[0], str(done.path))}")
    return 0 if done.is_whole else 1


def _to_data(done: Repair, opened: SQLiteStore) -> dict[str, object]:
    return {
        "store": str(opened.path),
        "repaired": None if done.path is None else str(done.path),
        "runs": [run._asdict() for run in done.runs],
        "lost_beside": done.lost_beside,
        "lost_files": done.lost_files,
    }


_MACHINE_FIELDS: Final = frozenset({"folder", "queue", "priority"})
"""Settings of a run that speak of the machines where it began."""


@click.command("export", cls=ReadingCommand)
@click.argument("reference", metavar="RUN")
@click.option("-o", "--output", metavar="FILE", help="Where to; left out: stdout.")
@click.option(
    "--masked", "hides", is_flag=True, help="Without personal data and secrets, as far as patterns find them."
)
@store_option
def export_run(reference: str, output: str | None, hides: bool, store: str | None) -> int:
    """Write RUN with all its events and files into one file. It holds inputs, prompts and answers as they were.

    With --masked the contents of its files are left out.
    """
    with open_journal(choose_store(store)) as kept:
        events = read(kept, kept.find(reference))
        files = {} if hides else read_files(kept, events)
    lines = list(pack_run(list(masked(events)) if hides else events, files))
    if put_lines(lines, output):
        left_out = " without the contents of files" if hides and any(find_files(events)) else ""
        complain(f"wrote {output}: {len(events)} events{f', {len(files)} files' if files else ''}{left_out}")
    return 0


@click.command("import")
@click.argument("file", metavar="FILE")
@click.option("--as", "run_id", metavar="ID", help="Under another id than its own.")
@store_option
def import_run(file: str, run_id: str | None, store: str | None) -> int:
    """Put the run of an exported FILE (- is stdin) into the store.

    Its flow is then looked for in the working folder, and not where the file says. Who resumes it takes for true
    what the file says has happened.
    """
    if run_id is not None and not RUN_ID.fullmatch(run_id):
        raise click.UsageError(f"--as {run_id!r}: 1 to 64 letters, digits, _ and - are expected")
    try:
        text = sys.stdin.read() if file == "-" else Path(file).read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise StoreUnavailableError(f"{file} cannot be read: {error}") from error
    found = unpack_with_files(text.split("\n"), file)
    events = _drop_foreign_paths(found.events)
    with open_journal(choose_store(store)) as kept:
        complain(f"run {anyio.run(store_run, kept, events, run_id, found.files)} is in {format_store(store)}")
    return 0


def _drop_foreign_paths(events: list[Event]) -> list[Event]:
    """The run, which names no folder and no file of another machine, nor any of this one but below where we are, and
    which no worker takes up: it was not submitted here."""
    started = events[0]
    assert isinstance(started, RunStarted)  # `unpack_with_files` gives no other.
    path = None if started.path is None else PurePath(started.path)
    if path is not None and (path.is_absolute() or ".." in path.parts):
        path = PurePath(path.name)
    settings = {name: value for name, value in started.settings.items() if name not in _MACHINE_FIELDS}
    return [started._replace(path=None if path is None else str(path), settings=settings), *events[1:]]
