"""`flowengine diff`: what two runs have different."""

from __future__ import annotations

import click

from flowengine.cli.difference import difference
from flowengine.cli.reading import ReadingCommand
from flowengine.cli.record import folded, read
from flowengine.cli.store import chosen_store, journals, store_option
from flowengine.cli.terminal import Results

__all__ = ["command"]


@click.command("diff", cls=ReadingCommand)
@click.argument("one", metavar="RUN")
@click.argument("other", metavar="RUN")
@store_option
def command(one: str, other: str, store: str | None) -> int:
    """Compare two runs: inputs, the way they took, outputs, shared state, cost and time."""
    with journals(chosen_store(store)) as kept:
        runs = [folded(read(kept, kept.find(each))) for each in (one, other)]
    results = Results()
    for line in difference(*runs):
        results.line(line)
    return 0
