"""Makes the page of two runs beside each other: heads, graphs and nodes, and what differs. It reads no store."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from visualize.plain import jsonable
from visualize.progress import NodeRow
from visualize.viewer.graph import graph_markup
from visualize.viewer.html import Child, Markup, element, run_url
from visualize.viewer.page import page
from visualize.viewer.parts import badge, clock, difference, facts, fold, note, spent, took, usage_facts, value
from visualize.viewer.reading import Reading

__all__ = ["compare_page"]

_MAX_DRAWN: Final = 300
"""Nodes of a graph that is drawn here."""
_MAX_LISTED: Final = 500
"""Nodes that are listed; where there are more, those that differ go first."""
_MAX_COMPARED: Final = 100
"""Nodes whose outputs are told apart line by line."""


def compare_page(a: Reading, b: Reading) -> str:
    """The page at `/compare?a=…&b=…`."""
    main = element(
        "main",
        element("h1", "Two runs"),
        element("div", _make_side("A", a), _make_side("B", b), class_="two"),
        _make_difference("Inputs", _read_inputs(a), _read_inputs(b)),
        _make_difference("Outputs", _read_outputs(a), _read_outputs(b)),
        _make_nodes(a, b),
        class_="wide compare",
    )
    return page(f"{a.run_id} and {b.run_id}", main)


def _make_side(name: str, run: Reading) -> Markup:
    progress = run.progress
    started, finished = progress.started, progress.finished
    told: list[tuple[str, Child]] = [
        ("Flow", progress.flow),
        ("Started", clock(None if started is None else started.at)),
        ("Took", took(progress.seconds(progress.last_at))),
        *usage_facts(progress.usage),
    ]
    failed = None if finished is None or finished.error is None else note(finished.error.message, kind="bad")
    is_small = len(run.picture.nodes) <= _MAX_DRAWN
    drawn = (
        graph_markup(run.picture, f"graph-{name.lower()}") if is_small else note(f"{len(run.picture.nodes):,} nodes")
    )
    link = element("a", run.run_id, href=run_url(run.run_id))
    return element("section", element("h2", f"{name}: ", link, " ", badge(progress.status)), facts(told), failed,
                   element("div", drawn, class_="picture"))  # fmt: skip


def _read_inputs(run: Reading) -> Any:
    return {} if run.progress.started is None else jsonable(run.progress.started.inputs)


def _read_outputs(run: Reading) -> Any:
    finished = run.progress.finished
    return None if finished is None or finished.outputs is None else jsonable(finished.outputs)


def _make_difference(title: str, a: Any, b: Any) -> Markup:
    if a == b:
        return element("section", element("h2", f"{title}: the same"), fold("Show", value(a)) if a else None)
    return element("section", element("h2", f"{title}: different"), difference(a, b))


def _make_nodes(a: Reading, b: Reading) -> Markup:
    paths = list(dict.fromkeys(row.id for row in (*a.rows, *b.rows)))
    told = [(path, _make_cells(a.row(path), b.row(path))) for path in paths]
    same = [not any(differs for _, differs in cells) for _, cells in told]
    order = sorted(range(len(told)), key=same.__getitem__) if len(told) > _MAX_LISTED else range(len(told))
    listed = [told[number] for number in list(order)[:_MAX_LISTED]]
    head = element(
        "tr", [element("th", each) for each in ("Node", "Status", "", "Took", "", "Cost", "", "Route", "", "Output")]
    )
    sides = element("tr", element("th"), [element("th", side) for side in "ABABABAB"], element("th"))
    rows = [element("tr", element("td", path), [_make_cell(*cell) for cell in cells]) for path, cells in listed]
    return element(
        "section",
        element("h2", f"Nodes: {same.count(False):,} of {len(told):,} differ"),
        element("div", element("table", element("thead", head, sides), element("tbody", rows)), class_="scrolls"),
        list(_list_outputs(a, b, paths)),
    )


def _make_cell(child: Child, differs: bool) -> Markup:
    return element("td", child, class_="differs" if differs else None)


def _make_cells(a: NodeRow | None, b: NodeRow | None) -> list[tuple[Child, bool]]:
    """What both say of a node, side by side, and whether they differ. Times always do, so they are not marked."""
    statuses, routes = [_format_status(each) for each in (a, b)], [_format_route(each) for each in (a, b)]
    costs = [spent(each.usage) if each is not None and each.usage.calls else "" for each in (a, b)]
    times = [took(each.seconds()) if each is not None and each.has_run else "" for each in (a, b)]
    return [
        *[(badge(each) if each else "", statuses[0] != statuses[1]) for each in statuses],
        *[(each, False) for each in times],
        *[(each, costs[0] != costs[1]) for each in costs],
        *[(each, routes[0] != routes[1]) for each in routes],
        ("differs", True) if _compare_outputs(a, b) is not None else ("", False),
    ]


def _format_status(row: NodeRow | None) -> str:
    return "" if row is None else row.status


def _format_route(row: NodeRow | None) -> str:
    return "" if row is None or row.result is None or row.result.route is None else f"→ {row.result.route}"


def _compare_outputs(a: NodeRow | None, b: NodeRow | None) -> tuple[Any, Any] | None:
    """What came out of both, where both finished and it is not the same."""
    if a is None or b is None or a.result is None or b.result is None:
        return None
    before, after = jsonable(a.result.output), jsonable(b.result.output)
    return None if before == after else (before, after)


def _list_outputs(a: Reading, b: Reading, paths: list[str]) -> Iterator[Markup]:
    told = 0
    for path in paths:
        outputs = _compare_outputs(a.row(path), b.row(path))
        if outputs is None:
            continue
        told += 1
        if told > _MAX_COMPARED:
            yield note(f"The outputs of more than {_MAX_COMPARED} nodes differ; the first ones are shown.")
            return
        yield fold(f"Output of {path}", difference(*outputs))
