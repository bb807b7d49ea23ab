"""`flowengine record` makes a cassette for tests from the record of a run. No model is called."""

from __future__ import annotations

from pathlib import Path

import click

from flowengine.cli.run_access import ReadingCommand, choose_store, open_journal, read, store_option
from flowengine.cli.terminal import Results, complain

__all__ = ["command"]


@click.command("record", cls=ReadingCommand)
@click.argument("reference", metavar="RUN")
@click.option("-o", "--output", metavar="FILE", help="The cassette to write.  [default: stdout]")
@store_option
def command(reference: str, output: str | None, store: str | None) -> int:
    """Make a cassette of the model calls of RUN: an id, the start of one, or @last.

    Nothing is asked again: every call of a run is in its record. Tests play the cassette back. Keys and
    headers do not get into it; what the prompts say does.
    """
    from flowengine.testing.cassette_file import cassette_text, recorded_calls, write_cassette

    with open_journal(choose_store(store)) as kept:
        calls = recorded_calls(read(kept, kept.find(reference)))
    if output is None:
        Results().document(cassette_text(calls).rstrip("\n"))
        return 0
    write_cassette(Path(output), calls)
    complain(f"{len(calls)} call{'s' * (len(calls) != 1)} in {output}")
    return 0
