"""Makes the page of several runs beside each other: what they differ in and why, in one graph, in figures, in words.

Two runs are told apart word by word, up to `MOST_RUNS` stand in a table. It reads no store; the same page is
served, and written to one file.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import combinations
from shlex import quote
from typing import Any, Final

from flowengine.core import cost_text, seconds_text
from visualize.plain import format_value, jsonable
from visualize.progress import NodeRow
from visualize.run_difference import (
    Figures,
    LikelyCause,
    NodeDifference,
    RunDifference,
    RunSide,
    compare_runs,
    delta_text,
    figures_of,
    models_of,
    outputs_of,
)
from visualize.viewer.feed import preview
from visualize.viewer.html import Child, Markup, compare_url, element, run_url
from visualize.viewer.overlay import overlay_markup
from visualize.viewer.page import file_page, page
from visualize.viewer.parts import badge, clock, difference, fold, format_cost, note, table, took, value
from visualize.viewer.reading import Reading

_MAX_DRAWN: Final = 300
"""Nodes of a graph that is drawn here."""
_MAX_LISTED: Final = 500
"""Nodes that are listed; where there are more, those that differ go first."""
_MAX_COMPARED: Final = 100
"""Nodes whose outputs are told apart word by word."""
_MAX_CAUSES: Final = 30


def compare_page(*runs: Reading, as_file: bool = False) -> str:
    """The page of two runs, or the table of more. `as_file`: one file that opens from a disk, without links."""
    sides = [RunSide(each.events, each.progress) for each in runs]
    title = " and ".join(each.run_id for each in runs) if len(runs) == 2 else f"{len(runs)} runs"
    parts = (
        _show_pair(runs, sides, links=not as_file) if len(runs) == 2 else _show_table(runs, sides, links=not as_file)
    )
    main = element("main", list(parts), class_="wide compare")
    return file_page(title, main) if as_file else page(title, main)


# --- Two runs


def _show_pair(runs: Sequence[Reading], sides: Sequence[RunSide], *, links: bool) -> Iterator[Markup | None]:
    comparison = compare_runs(*sides)
    rows = {each.path: f"node-{number}" for number, each in enumerate(comparison.nodes) if each.differs}
    yield element("h1", "Two runs")
    yield element("div", [_make_side(*each, links=links) for each in zip("AB", runs, strict=True)], class_="two")
    yield _make_causes(comparison, rows)
    yield _make_figures(sides)
    yield _make_graph(runs, comparison, rows)
    inputs = [jsonable(each.inputs) for each in sides]
    yield _make_difference("Inputs", *inputs)
    yield _make_difference("Outputs", *map(outputs_of, sides))
    yield _make_nodes(sides, comparison, rows)
    yield _make_command(sides)


def _make_side(name: str, run: Reading, *, links: bool) -> Markup:
    progress = run.progress
    started, finished = progress.started, progress.finished
    failed = None if finished is None or finished.error is None else note(finished.error.message, kind="bad")
    link = element("a", run.run_id, href=run_url(run.run_id)) if links else run.run_id
    words = [progress.flow, ", started ", clock(None if started is None else started.at)]
    return element("section", element("h2", f"{name}: ", link, " ", badge(progress.status)), note(words), failed)


def _make_causes(comparison: RunDifference, rows: dict[str, str]) -> Markup:
    """Lists the likely causes of the difference, each with its explanation."""
    if comparison.first is None and not comparison.causes:
        return element("section", element("h2", "Nothing that matters differs"))
    where: Child = None
    if comparison.first is not None:
        link = element("a", comparison.first.path, href=f"#{rows[comparison.first.path]}")
        where = note("They differ from ", link, f" on: {', '.join(comparison.first.differs)}.")
    items = [element("li", _show_cause(each)) for each in comparison.causes[:_MAX_CAUSES]]
    more = len(comparison.causes) - len(items)
    return element(
        "section",
        element("h2", "Likely causes" if items else "No cause was found"),
        where,
        element("ul", items, class_="causes") if items else None,
        note(f"And {more:,} more.") if more > 0 else None,
    )


def _show_cause(cause: LikelyCause) -> list[Child]:
    head = [element("span", cause.kind, class_="cause-kind"), " ", cause.title]
    if cause.kind in ("model", "options") or (cause.before is None and cause.after is None):
        return [head]
    return [
        fold(head, difference(cause.before or "", cause.after or ""), is_open=len(format_value(cause.after)) < 2_000)
    ]


def _make_figures(sides: Sequence[RunSide]) -> Markup:
    """Time, cost and tokens of both, and what is more or less."""
    a, b = map(figures_of, sides)
    rows: list[list[str]] = []
    for name, field, tell in _FIGURES:
        one, other = getattr(a, field), getattr(b, field)
        if one is not None or other is not None:
            rows.append([name, tell(one), tell(other), delta_text(one, other, tell)])
    head = element("h2", "Time, cost and tokens")
    return element("section", head, table(["", "A", "B", "Δ"], rows, numbers=(1, 2, 3), class_="figures"))


def _tell(how: Callable[[Any], str], figure: float | None) -> str:
    return "" if figure is None else how(figure)


_FIGURES: Final[Sequence[tuple[str, str, Callable[[Any], str]]]] = (
    ("Took", "seconds", partial(_tell, seconds_text)),
    ("Worked", "worked", partial(_tell, seconds_text)),
    ("Cost", "cost_usd", partial(_tell, cost_text)),
    ("Tokens", "tokens", partial(_tell, "{:,}".format)),
    ("Model calls", "calls", partial(_tell, "{:,}".format)),
)
"""Title, field of `Figures`, and how it is told."""


def _make_graph(runs: Sequence[Reading], comparison: RunDifference, rows: dict[str, str]) -> Markup:
    sites: dict[str, str] = {}
    for each in comparison.nodes:
        row = each.b or each.a
        if each.differs and row is not None:
            sites.setdefault(row.spot.site, rows[each.path])
    overlay = overlay_markup(runs[0].whole_picture, runs[1].whole_picture, sites, _MAX_DRAWN)
    legend = [element("span", words, class_=name) for name, words in _KEYS]
    return element(
        "section",
        element("h2", "Both in one graph"),
        element("p", legend, class_="sides-key"),
        element("div", overlay, class_="picture")
        if overlay is not None
        else note("The graph is too large to be drawn here."),
    )


_KEYS: Final = (("same", "the same"), ("differs", "not the same"), ("only-a", "only A"), ("only-b", "only B"))


def _make_difference(title: str, a: Any, b: Any) -> Markup:
    if a == b:
        return element("section", element("h2", f"{title}: the same"), fold("Show", value(a)) if a else None)
    return element("section", element("h2", f"{title}: different"), difference(a, b))


def _make_nodes(sides: Sequence[RunSide], comparison: RunDifference, rows: dict[str, str]) -> Markup:
    nodes = comparison.nodes
    if len(nodes) > _MAX_LISTED:
        nodes = sorted(nodes, key=lambda each: not each.differs)[:_MAX_LISTED]
    titles = ("Node", "A", "B", "Differs in", "Took A", "Took B", "Δ time", "Δ cost", "Δ tokens")
    head = element("tr", [element("th", each) for each in titles])
    body = [element("tr", [element("td", cell) for cell in _make_cells(sides, each)], id=rows.get(each.path),
                    class_="differs" if each.differs else None) for each in nodes]  # fmt: skip
    count = sum(1 for each in comparison.nodes if each.differs)
    return element(
        "section",
        element("h2", f"Nodes: {count:,} of {len(comparison.nodes):,} differ"),
        element("div", element("table", element("thead", head), element("tbody", body)), class_="scrolls", tabindex=0),
        list(_list_outputs(comparison.nodes)),
    )


def _make_cells(sides: Sequence[RunSide], node: NodeDifference) -> list[Child]:
    a, b = (figures_of(each, node.path) for each in sides)
    return [
        node.path,
        *(_format_part(each) for each in (node.a, node.b)),
        ", ".join(node.differs),
        took(a.seconds),
        took(b.seconds),
        delta_text(a.seconds, b.seconds, seconds_text),
        delta_text(a.cost_usd, b.cost_usd, cost_text),
        delta_text(a.tokens, b.tokens, "{:,}".format),
    ]


def _format_part(row: NodeRow | None) -> Child:
    if row is None:
        return "not there"
    route = "" if row.result is None or row.result.route is None else f" → {row.result.route}"
    return [badge(row.status), route]


def _list_outputs(nodes: Sequence[NodeDifference]) -> Iterator[Markup]:
    changed = [each for each in nodes if "output" in each.differs]
    for node in changed[:_MAX_COMPARED]:
        outputs = [
            None if row is None or row.result is None else jsonable(row.result.output) for row in (node.a, node.b)
        ]
        yield fold(f"Output of {node.path}", difference(*outputs))
    if len(changed) > _MAX_COMPARED:
        yield note(f"The outputs of more than {_MAX_COMPARED} nodes differ; the first ones are shown.")


def _make_command(sides: Sequence[RunSide]) -> Markup:
    """Makes the equivalent command, and the one that writes a file."""
    command = f"flowengine diff {' '.join(quote(each.run_id) for each in sides)}"
    return fold("On the command line", value(f"{command}\n{command} --html comparison.html", is_source=True))


# --- Up to ten runs


def _show_table(runs: Sequence[Reading], sides: Sequence[RunSide], *, links: bool) -> Iterator[Markup | None]:
    """The first one is what the others are measured by."""
    yield element("h1", f"{len(runs)} runs")
    yield note(f"Differences (Δ) are to the first run, {runs[0].run_id}.")
    yield table(_COLUMNS, list(_list_runs(runs, sides, links=links)), numbers=range(4, 11), class_="many")
    pairs = [element("li", element("a", f"{a.run_id} and {b.run_id}", href=compare_url(a.run_id, b.run_id)))
             for a, b in combinations(runs, 2)]  # fmt: skip
    yield _make_command(sides)
    yield fold(f"Two of them word by word: {len(pairs)}", element("ul", pairs)) if links else None


_COLUMNS: Final = (
    *("Run", "Status", "Models", "Inputs", "Took", "Δ", "Cost", "Δ", "Tokens", "Δ", "Calls"),
    *("Likely causes of a difference", "First differs at", "Outputs"),
)


def _list_runs(runs: Sequence[Reading], sides: Sequence[RunSide], *, links: bool) -> Iterator[list[Child]]:
    first: Figures = figures_of(sides[0])
    for run, side in zip(runs, sides, strict=True):
        own, is_first = figures_of(side), side is sides[0]
        comparison = None if is_first else compare_runs(sides[0], side)
        causes = [] if comparison is None else [each.title for each in comparison.causes]
        outputs = outputs_of(side)
        yield [
            element("a", run.run_id, href=run_url(run.run_id)) if links else run.run_id,
            badge(run.progress.status),
            ", ".join(models_of(side)),
            preview(side.inputs) if side.inputs else "",
            took(own.seconds),
            delta_text(first.seconds, own.seconds, seconds_text),
            format_cost(run.progress.usage) if own.calls else "",
            delta_text(first.cost_usd, own.cost_usd, cost_text),
            "" if own.tokens is None else f"{own.tokens:,}",
            delta_text(first.tokens, own.tokens, "{:,}".format),
            f"{own.calls:,}",
            element("ul", [element("li", each) for each in causes[:5]], class_="causes") if causes else "",
            "" if comparison is None or comparison.first is None else comparison.first.path,
            "" if outputs is None else preview(outputs),
        ]
