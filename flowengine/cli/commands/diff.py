"""`flowengine diff` compares two runs: inputs, path, outputs, shared state, cost and time. It runs nothing."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from difflib import unified_diff
from typing import Any

import click

from flowengine.cli.format_run import format_usage, indent_lines
from flowengine.cli.run_access import ReadingCommand, choose_store, fold_events, open_journal, read, store_option
from flowengine.cli.terminal import Results, format_span, format_table
from flowengine.journal.run_export import shown
from visualize.progress import NodeRow, Progress
from visualize.states import States

__all__ = ["command", "format_difference"]

# --- Lines of the comparison


def format_difference(one: Progress, other: Progress) -> Iterator[str]:
    """The lines of `flowengine diff`; only what is not the same is listed below the heads."""
    yield from format_table([["", *map(_format_name, (one, other))], *_format_heads(one, other)])
    parts = (
        ("inputs", *(_read_inputs(each) for each in (one, other))),
        ("outputs", *(_read_outputs(each) for each in (one, other))),
        ("shared state", *(States(each).final() for each in (one, other))),
    )
    for title, a, b in parts:
        lines = list(_compare_values(a, b))
        if lines:
            yield from ("", title, *lines)
    rows = list(_compare_nodes(one, other))
    if rows:
        yield from ("", "nodes")
        yield from indent_lines("\n".join(format_table(rows)))


def _format_name(run: Progress) -> str:
    return "" if run.started is None else run.started.run_id


def _format_heads(one: Progress, other: Progress) -> list[list[str]]:
    return [
        ["flow", one.flow, other.flow],
        ["status", one.status, other.status],
        ["took", *(format_span(each.seconds(each.last_at)) for each in (one, other))],
        ["models", *(format_usage(each.usage) if each.usage.calls else "no calls" for each in (one, other))],
    ]


def _read_inputs(run: Progress) -> Mapping[str, Any]:
    return {} if run.started is None else run.started.inputs


def _read_outputs(run: Progress) -> Mapping[str, Any]:
    return {} if run.finished is None else run.finished.outputs or {}


def _compare_values(a: Mapping[str, Any], b: Mapping[str, Any]) -> Iterator[str]:
    for name in dict.fromkeys([*a, *b]):
        if name not in a or name not in b:
            mark, value = ("-", a[name]) if name in a else ("+", b[name])
            yield f"  {mark} {name}: {shown(value)}"
        elif a[name] != b[name]:
            yield f"  {name}"
            before, after = shown(a[name]).splitlines(), shown(b[name]).splitlines()
            yield from (f"    {line}" for line in [*unified_diff(before, after, n=1, lineterm="")][3:])


def _compare_nodes(one: Progress, other: Progress) -> Iterator[Sequence[str]]:
    """Nodes whose part is another one: how they ended, the route that they took, what they gave."""
    for path in dict.fromkeys([*one.nodes, *other.nodes]):
        a, b = one.nodes.get(path), other.nodes.get(path)
        told = _format_part(a), _format_part(b)
        if told[0] != told[1]:
            yield [path, *told]
        elif a is not None and b is not None and _find_output(a) != _find_output(b):
            yield [path, told[0], "another output"]


def _format_part(row: NodeRow | None) -> str:
    if row is None:
        return "not there"
    route = row.result.route if row.result is not None else None
    cause = f" ({row.cause})" if row.cause else ""
    return f"{row.status}{cause}{f' → {route}' if route else ''}"


def _find_output(row: NodeRow) -> Any:
    return None if row.result is None else row.result.output


@click.command("diff", cls=ReadingCommand)
@click.argument("one", metavar="RUN")
@click.argument("other", metavar="RUN")
@store_option
def command(one: str, other: str, store: str | None) -> int:
    """Compare two runs: inputs, the way they took, outputs, shared state, cost and time."""
    with open_journal(choose_store(store)) as kept:
        runs = [fold_events(read(kept, kept.find(each))) for each in (one, other)]
    results = Results()
    for line in format_difference(*runs):
        results.line(line)
    return 0
