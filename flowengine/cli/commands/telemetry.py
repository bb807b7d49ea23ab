"""`flowengine telemetry` exports the trace of a run, to an OpenTelemetry collector or as lines of JSON."""

from __future__ import annotations

from collections.abc import Sequence

import click

from flowengine.cli.run_access import ReadingCommand, choose_store, open_journal, read, store_option
from flowengine.cli.terminal import complain, put_lines
from flowengine.telemetry.jsonl import lines_of
from flowengine.telemetry.spans import Span, spans_of

__all__ = ["command"]


@click.command("telemetry", cls=ReadingCommand)
@click.argument("references", metavar="RUN...", nargs=-1, required=True)
@click.option("--otlp", metavar="URL", help="Send to a collector, such as http://localhost:4318.")
@click.option("-o", "--output", metavar="FILE", help="Write lines of JSON there; left out: to stdout.")
@click.option("--content", is_flag=True, help="With prompts, answers and arguments; personal data and secrets masked.")
@store_option
def command(references: tuple[str, ...], otlp: str | None, output: str | None, content: bool, store: str | None) -> int:
    """Export the spans of RUNs: ids, starts of ids, or @last. The journal has all of it, so runs cost nothing more."""
    with open_journal(choose_store(store)) as kept:
        traces = [spans_of(read(kept, kept.find(each)), content=content) for each in references]
    if otlp is not None:
        return _send(traces, otlp)
    lines = [line for spans in traces for line in lines_of(spans)]
    if put_lines(lines, output):
        complain(f"wrote {output}: {len(lines)} spans")
    return 0


def _send(traces: Sequence[Sequence[Span]], url: str) -> int:
    from flowengine.telemetry.otel import send  # Only where it is asked for.

    delivery = send(traces, url)
    if delivery.problem:
        complain(f"error: {delivery.arrived} of {delivery.spans} spans arrived at {url}: {delivery.problem}")
        return 1
    complain(f"sent {delivery.spans} spans to {url}")
    if delivery.metrics_problem:
        complain(f"its metrics were not taken: {delivery.metrics_problem}")
    return 0
