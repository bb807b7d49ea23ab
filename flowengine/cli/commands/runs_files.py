"""`flowengine runs export` and `import`: a run as one file, for bug reports and other machines."""

from __future__ import annotations

import sys
from pathlib import Path

import anyio
import click

from flowengine.cli.lines import put_lines
from flowengine.cli.options import RUN_ID
from flowengine.cli.record import read
from flowengine.cli.store import chosen_store, journals, store_option
from flowengine.cli.terminal import complain
from flowengine.errors import StoreUnavailableError
from flowengine.journal.masked import masked
from flowengine.journal.parcel import pack_run, store_run, unpack_run

__all__ = ["export_run", "import_run"]


@click.command("export")
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
    """Put the run of an exported FILE (- is stdin) into the store."""
    if run_id is not None and not RUN_ID.fullmatch(run_id):
        raise click.UsageError(f"--as {run_id!r}: 1 to 64 letters, digits, _ and - are expected")
    try:
        text = sys.stdin.read() if file == "-" else Path(file).read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise StoreUnavailableError(f"{file} cannot be read: {error}") from error
    events = unpack_run(text.splitlines(), file)
    with journals(chosen_store(store)) as kept:
        complain(f"run {anyio.run(store_run, kept, events, run_id)} is in {chosen_store(store)}")
    return 0
