"""`flowengine export` writes runs with all their details into one HTML file, which opens without a server.

`flowengine telemetry` exports its trace, to an OpenTelemetry collector or as lines of JSON.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import click

from flowengine.cli.options import open_journal, store_option
from flowengine.cli.run_access import ReadingCommand, read
from flowengine.cli.run_selection import Selection, selection
from flowengine.cli.terminal import Results, complain, put_lines
from flowengine.core import write_output
from flowengine.engine import JournalStore
from flowengine.models.http import show_address
from flowengine.runtime.telemetry import Span, spans_of

# --- Spans as lines of JSON: an exporter that needs no SDK and no collector


def lines_of(spans: Sequence[Span]) -> Iterator[str]:
    """One object a span, parents first, with the ids that collectors get too."""
    for span in spans:
        row: dict[str, Any] = {
            "trace_id": span.trace_id,
            "span_id": span.id,
            "parent_id": None if span.parent is None else span.parent.id,
            "name": span.name,
            "start": span.start,
            "end": span.end,
            "status": "error" if span.error is not None else "ok",
            "attributes": span.attributes,
        }
        if span.error is not None:
            row["error"] = span.error
        if span.marks:
            row["events"] = [{"name": mark.name, "at": mark.at, "attributes": mark.attributes} for mark in span.marks]
        if span.link is not None:
            row["links"] = [span.link.id]
        yield json.dumps(row, ensure_ascii=False, default=str)


@click.command("export", cls=ReadingCommand)
@selection
@click.option("--limit", type=click.IntRange(1), metavar="N", help="Of the runs that filters find, the newest N.")
@click.option("-o", "--output", "file", metavar="FILE", help="Write to this file instead of stdout.")
@click.option("--unmasked", is_flag=True, help="Do not mask mail addresses, phone numbers, keys and the like.")
@store_option
def export_command(selected: Selection, limit: int | None, file: str | None, unmasked: bool, store: str | None) -> int:
    """Write RUNs (ids, starts of ids, or @last), or all that the filters find, into one HTML file.

    Graph, timeline, prompts, answers and errors are all in it, with what people said of the run; of several runs there
    is a list, too. It asks nothing of any server. Personal data and secrets are masked, as far as patterns find them.
    Small files are in it with --unmasked only.
    """
    with open_journal(store) as journal:
        return write_page(journal, selected.choose(journal, limit).runs, file, unmasked=unmasked)


def write_page(journal: JournalStore, words: Mapping[str, str], file: str | None, *, unmasked: bool) -> int:
    """Write the page of these runs (run → how it stands); 1 where some of several cannot be read."""
    from visualize.viewer import run_file, runs_file  # A trace needs no page.

    results = Results()
    if not words:
        complain("there is nothing to export")
        return 0
    if file is None and results.on_terminal:
        raise click.UsageError("a page is no text for a terminal: write it to a file with -o FILE")
    missing: list[str] = []
    pieces = (
        runs_file(journal, words, missing.append, unmasked=unmasked)
        if len(words) > 1
        else [run_file(journal, next(iter(words)), unmasked=unmasked)]
    )
    if file is None:
        for piece in pieces:
            results.bytes(piece.encode())
    else:
        size = write_output(file, pieces)
        runs = f"{len(words) - len(missing):,} runs, " if len(words) > 1 else ""
        complain(f"{file}: {runs}{size:,} bytes")
    for each in missing:
        complain(f"left: {each}")
    return 1 if missing else 0


# --- `flowengine telemetry`


@click.command("telemetry", cls=ReadingCommand)
@click.argument("references", metavar="RUN...", nargs=-1, required=True)
@click.option("--otlp", metavar="URL", help="Send to a collector, such as http://localhost:4318.")
@click.option("-o", "--output", metavar="FILE", help="Write lines of JSON there; left out: to stdout.")
@click.option("--content", is_flag=True, help="With prompts, answers and arguments; personal data and secrets masked.")
@store_option
def telemetry_command(
    references: tuple[str, ...], otlp: str | None, output: str | None, content: bool, store: str | None
) -> int:
    """Export the spans of RUNs: ids, starts of ids, or @last. The journal has all of it, so runs cost nothing more."""
    with open_journal(store) as journal:
        traces = [spans_of(read(journal, journal.find(each)), content=content) for each in references]
    if otlp is not None:
        return _send(traces, otlp)
    lines = [line for spans in traces for line in lines_of(spans)]
    if put_lines(lines, output):
        complain(f"wrote {output}: {len(lines)} spans")
    return 0


def _send(traces: Sequence[Sequence[Span]], url: str) -> int:
    from flowengine.runtime.telemetry import send  # Only where it is asked for.

    delivery, address = send(traces, url), show_address(url)
    if delivery.problem:
        complain(f"error: {delivery.arrived} of {delivery.spans} spans arrived at {address}: {delivery.problem}")
        return 1
    complain(f"sent {delivery.spans} spans to {address}")
    if delivery.metrics_problem:
        complain(f"its metrics were not taken: {delivery.metrics_problem}")
    return 0
