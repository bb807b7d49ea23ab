"""`flowengine runs export` and `import`: a run as one file, for bug reports and other machines."""

from __future__ import annotations

import sys
from pathlib import Path, PurePath
from typing import Final

import anyio
import click

from flowengine.cli.lines import put_lines
from flowengine.cli.options import RUN_ID
from flowengine.cli.reading import ReadingCommand
from flowengine.cli.record import read
from flowengine.cli.store import chosen_store, journals, shown_store, store_option
from flowengine.cli.terminal import complain
from flowengine.engine.events import Event, RunStarted
from flowengine.errors import StoreUnavailableError
from flowengine.journal.masked import masked
from flowengine.journal.parcel import pack_run, store_run, unpack_run

__all__ = ["export_run", "import_run"]

_ELSEWHERE: Final = frozenset({"folder", "queue", "priority"})
"""Settings of a run that speak of the machines where it began."""


@click.command("export", cls=ReadingCommand)
@click.argument("reference", metavar="RUN")
@click.option("-o", "--output", metavar="FILE", help="Where to; left out: stdout.")
@click.option(
    "--masked", "hides", is_flag=True, help="Without personal data and secrets, as far as patterns find them."
)
@store_option
def export_run(reference: str, output: str | None, hides: bool, store: str | None) -> int:
    """Write RUN with all its events into one file. It holds inputs, prompts and answers as they were."""
    with journals(chosen_store(store)) as kept:
        events = read(kept, kept.find(reference))
    lines = list(pack_run(list(masked(events)) if hides else events))
    if put_lines(lines, output):
        complain(f"wrote {output}: {len(lines) - 1} events")
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
    events = _at_home_here(unpack_run(text.split("\n"), file))
    with journals(chosen_store(store)) as kept:
        complain(f"run {anyio.run(store_run, kept, events, run_id)} is in {shown_store(store)}")
    return 0


def _at_home_here(events: list[Event]) -> list[Event]:
    """The run, which names no folder and no file of another machine, nor any of this one but below where we are, and
    which no worker takes up: it was not submitted here."""
    started = events[0]
    assert isinstance(started, RunStarted)  # `unpack_run` gives no other.
    path = None if started.path is None else PurePath(started.path)
    if path is not None and (path.is_absolute() or ".." in path.parts):
        path = PurePath(path.name)
    settings = {name: value for name, value in started.settings.items() if name not in _ELSEWHERE}
    return [started._replace(path=None if path is None else str(path), settings=settings), *events[1:]]
