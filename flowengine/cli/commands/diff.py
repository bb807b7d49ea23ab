"""`flowengine diff` compares runs: likely causes, path, outputs, shared state, time and cost. It runs nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

import click

from flowengine.cli.format_parts import mark_words
from flowengine.cli.format_run import indent_lines, shorten
from flowengine.cli.options import open_journal, store_option
from flowengine.cli.run_access import ReadingCommand, read
from flowengine.cli.terminal import Results, complain, format_dollars, format_span, format_table
from flowengine.core import format_value, write_output
from flowengine.engine import Event
from flowengine.journal import mask_events
from visualize.progress import NodeRow, fold_events
from visualize.run_difference import (
    MOST_RUNS,
    LikelyCause,
    RunSide,
    compare_runs,
    delta_text,
    figures_of,
    models_of,
    outputs_of,
)
from visualize.states import States
from visualize.viewer import run_before

# --- Two runs


def format_difference(a: RunSide, b: RunSide) -> Iterator[str]:
    """The lines of `flowengine diff` of two runs; only what is not the same is listed below the heads."""
    comparison = compare_runs(a, b)
    yield from format_table([["", a.run_id, b.run_id, ""], *_format_heads(a, b)])
    if comparison.first is not None:
        yield from ("", f"first differs at {comparison.first.path}: {', '.join(comparison.first.differs)}")
    if comparison.causes:
        yield from ("", "likely causes")
        for cause in comparison.causes:
            yield from _format_cause(cause)
    parts: Sequence[tuple[str, Mapping[str, Any], Mapping[str, Any]]] = (
        ("outputs", outputs_of(a) or {}, outputs_of(b) or {}),
        ("shared state", States(a.progress).final(), States(b.progress).final()),
    )
    for title, before, after in parts:
        lines = list(_compare_values(before, after))
        if lines:
            yield from ("", title, *lines)
    rows = [row for node in comparison.nodes if node.differs for row in [_format_node(a, b, node.path, node.differs)]]
    if rows:
        yield from ("", "nodes")
        yield from indent_lines("\n".join(format_table(rows)))


def _format_heads(a: RunSide, b: RunSide) -> Iterator[list[str]]:
    yield ["flow", a.progress.flow, b.progress.flow, ""]
    yield ["status", a.progress.status, b.progress.status, ""]
    if models_of(a) or models_of(b):
        yield ["models", *(", ".join(models_of(each)) or "no calls" for each in (a, b)), ""]
    one, other = figures_of(a), figures_of(b)
    for name, field, tell in _FIGURES:
        before, after = getattr(one, field), getattr(other, field)
        if before or after:
            yield [
                name,
                *("unknown" if each is None else tell(each) for each in (before, after)),
                delta_text(before, after, tell),
            ]


_FIGURES: Final[Sequence[tuple[str, str, Callable[[Any], str]]]] = (
    ("took", "seconds", format_span),
    ("worked", "worked", format_span),
    ("cost", "cost_usd", format_dollars),
    ("tokens", "tokens", "{:,}".format),
    ("calls", "calls", "{:,}".format),
)


def _format_cause(cause: LikelyCause) -> Iterator[str]:
    yield f"  {cause.kind}: {shorten(cause.title)}"
    if cause.kind not in ("model", "options", "settings") and (cause.before is not None or cause.after is not None):
        yield from indent_lines("\n".join(mark_words(cause.before, cause.after)), "      ")


def _compare_values(a: Mapping[str, Any], b: Mapping[str, Any]) -> Iterator[str]:
    for name in dict.fromkeys([*a, *b]):
        if name not in a or name not in b:
            mark, value = ("-", a[name]) if name in a else ("+", b[name])
            yield f"  {mark} {name}: {shorten(format_value(value))}"
        elif a[name] != b[name]:
            yield f"  {name}"
            yield from indent_lines("\n".join(mark_words(a[name], b[name])), "    ")


def _format_node(a: RunSide, b: RunSide, path: str, differs: Sequence[str]) -> list[str]:
    rows = [each.progress.nodes.get(path) for each in (a, b)]
    one, other = (figures_of(each, path) for each in (a, b))
    deltas = [
        delta_text(one.seconds, other.seconds, format_span),
        delta_text(one.cost_usd, other.cost_usd, format_dollars),
        delta_text(one.tokens, other.tokens, "{:,} tokens".format),
    ]
    return [path, *map(_format_part, rows), ", ".join(differs), ", ".join(each for each in deltas if each)]


def _format_part(row: NodeRow | None) -> str:
    if row is None:
        return "not there"
    route = row.result.route if row.result is not None else None
    cause = f" ({row.cause})" if row.cause else ""
    return f"{row.status}{cause}{f' → {route}' if route else ''}"


# --- More runs


def _format_many(sides: Sequence[RunSide]) -> Iterator[str]:
    """A row a run; differences are to the first one."""
    first = figures_of(sides[0])
    rows = [["run", "status", "models", "took", "", "cost", "", "tokens", ""]]
    causes: list[str] = []
    for side in sides:
        own = figures_of(side)
        rows.append([side.run_id, side.progress.status, ", ".join(models_of(side))])
        for name in ("seconds", "cost_usd", "tokens"):
            tell = next(tell for _, field, tell in _FIGURES if field == name)
            figure = getattr(own, name)
            rows[-1] += ["" if figure is None else tell(figure), delta_text(getattr(first, name), figure, tell)]
        if side is not sides[0]:
            comparison = compare_runs(sides[0], side)
            causes += ["", side.run_id, *(f"  {each.kind}: {shorten(each.title)}" for each in comparison.causes)]
            at = (
                "nothing that matters differs"
                if comparison.first is None
                else f"first differs at {comparison.first.path}"
            )
            causes.append(f"  {at}")
    yield from format_table(rows, right=(3, 5, 7))
    yield from causes


def _to_objects(sides: Sequence[RunSide]) -> list[dict[str, Any]]:
    """A JSON object a run; those behind the first say in what they differ from it."""
    objects: list[dict[str, Any]] = []
    for side in sides:
        about: dict[str, Any] = {"run_id": side.run_id, "flow": side.progress.flow, "status": side.progress.status}
        about |= {"models": models_of(side), **figures_of(side)._asdict()}
        if side is not sides[0]:
            compared = compare_runs(sides[0], side)
            about["causes"] = [each._asdict() for each in compared.causes]
            about["first"] = None if compared.first is None else compared.first.path
            about["nodes"] = {each.path: list(each.differs) for each in compared.nodes if each.differs}
        objects.append(about)
    return objects


@click.command("diff", cls=ReadingCommand)
@click.argument("references", metavar="RUN [RUN]...", nargs=-1, required=True)
@click.option("--json", "as_json", is_flag=True, help="Print an object a run; differences are to the first.")
@click.option("--html", metavar="FILE", help="Write the comparison as one HTML page, with personal data masked.")
@click.option("--unmasked", is_flag=True, help="With --html: mail addresses, keys and the like as they are.")
@store_option
def command(references: Sequence[str], as_json: bool, html: str | None, unmasked: bool, store: str | None) -> int:
    """Compare two runs, or up to ten as a table: what most likely made the difference, where it begins, and its price.

    One RUN is compared with the run of its flow before it.
    Words that only the first run has are [-marked so-], those of the second {+so+}.
    """
    if len(references) > MOST_RUNS:
        raise click.UsageError(f"up to {MOST_RUNS} runs are compared, and {len(references)} are named")
    if as_json and html is not None:
        raise click.UsageError("--json and --html exclude each other")
    if unmasked and html is None:
        raise click.UsageError("--unmasked goes with --html only: nothing is masked elsewhere")
    with open_journal(store) as journal:
        run_ids = [journal.find(each) for each in references]
        if len(run_ids) == 1:
            before = run_before(journal.list(), run_ids[0])
            if before is None:
                raise click.UsageError(f"there is no earlier run of the flow of run '{run_ids[0]}': name two runs")
            run_ids.insert(0, before)
        recorded = [read(journal, each) for each in run_ids]
    if html is not None:
        page = _make_page(recorded if unmasked else [list(mask_events(each)) for each in recorded])
        write_output(html, [page])
        complain(f"{html}: {len(page):,} bytes")
        return 0
    sides = [RunSide(each, fold_events(each)) for each in recorded]
    results = Results()
    if as_json:
        results.value(_to_objects(sides))
        return 0
    results.lines(format_difference(*sides) if len(sides) == 2 else _format_many(sides))
    return 0


def _make_page(recorded: Sequence[Sequence[Event]]) -> bytes:
    from visualize.viewer import Reading, compare_page  # Pages are made for this option alone.

    return compare_page(*map(Reading, recorded), as_file=True).encode()
