"""`flowengine export` writes a run with all its details into one HTML file, which opens without a server."""

from __future__ import annotations

from pathlib import Path

import click

from flowengine.cli.run_access import ReadingCommand, choose_store, open_journal, read, store_option
from flowengine.cli.terminal import Results, complain
from flowengine.journal.blob_owners import blobs_of
from flowengine.journal.run_export import masked
from visualize.viewer.reading import Reading
from visualize.viewer.run import export_page

__all__ = ["command"]


@click.command("export", cls=ReadingCommand)
@click.argument("reference", metavar="RUN")
@click.option("-o", "--output", "file", metavar="FILE", help="Write to this file instead of stdout.")
@click.option("--unmasked", is_flag=True, help="With mail addresses, phone numbers, keys and the like as they are.")
@store_option
def command(reference: str, file: str | None, unmasked: bool, store: str | None) -> int:
    """Write RUN (an id, the start of one, or @last) into one HTML file.

    Graph, timeline, prompts, answers and errors are all in it; it asks nothing of any server. Personal data and
    secrets are masked, as far as patterns find them. Small images are in it with --unmasked only; other files never.
    """
    results = Results()
    if file is None and results.on_terminal:
        raise click.UsageError("a page is no text for a terminal: write it to a file with -o FILE")
    with open_journal(choose_store(store)) as kept:
        events = read(kept, kept.find(reference))
        shown = Reading(events if unmasked else list(masked(events)))
        page = export_page(shown, blobs_of(kept).read_blob if unmasked else None).encode()
    if file is None:
        results.bytes(page)
        return 0
    try:
        Path(file).write_bytes(page)
    except OSError as error:
        raise click.UsageError(f"cannot write '{file}': {error.strerror}") from error
    complain(f"{file}: {len(page):,} bytes")
    return 0
