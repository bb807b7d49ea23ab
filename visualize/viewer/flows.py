"""The list of flows, and the page of one: its picture, its source with what is wrong with it, and its last runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from flowengine.errors import Diagnostic
from visualize.picture import Picture, closed
from visualize.viewer.forms import Acting, fields_for, form
from visualize.viewer.graph import graph_markup
from visualize.viewer.html import Child, Markup, element
from visualize.viewer.page import page
from visualize.viewer.parts import badge, note, table
from visualize.viewer.plot import RunPoint, plot_svg
from visualize.viewer.reading import OPEN_NODES
from visualize.viewer.urls import flow_url, run_url, start_url

__all__ = ["FlowLine", "flow_page", "flows_page", "start_form"]

_DRAWN: Final = 2_000
"""Nodes of a picture that is drawn in the page."""


class FlowLine(NamedTuple):
    """One line of the list."""

    name: str
    path: str
    description: str = ""
    errors: int = 0
    warnings: int = 0
    last_run: tuple[str, str] | None = None
    """Id and status."""


def flows_page(flows: Sequence[FlowLine]) -> str:
    """The page at `/flows`."""
    rows = [
        [
            element("a", flow.name, href=flow_url(flow.name)),
            element("code", flow.path),
            flow.description,
            _counts(flow.errors, flow.warnings),
            None if flow.last_run is None else [element("a", flow.last_run[0], href=run_url(flow.last_run[0])), " ",
                                                badge(flow.last_run[1])],
        ]
        for flow in flows
    ]  # fmt: skip
    listed = table(["Flow", "File", "Description", "Checks", "Last run"], rows) if rows else note("There are no flows.")
    return page(
        "Flows", element("main", element("h1", "Flows"), element("div", listed, data_list="still"), class_="wide")
    )


def flow_page(
    name: str,
    source: str | None,
    picture: Picture | None,
    problems: Sequence[Diagnostic] = (),
    history: Sequence[RunPoint] = (),
    description: str = "",
    start: Markup | None = None,
) -> str:
    """The page at `/flows/{name}`; no picture where the file has errors, no source for a flow built in Python."""
    main = element(
        "main",
        element("h1", name),
        note(description) if description else None,
        start,
        element("section", element("h2", "Last runs"), element("div", plot_svg(history), class_="scrolls"))
        if history
        else None,
        element("section", element("h2", "Checks"), _problems(problems)),
        _drawn(picture) if picture is not None else None,
        element("section", element("h2", "Source"), _source(source, problems)) if source is not None else None,
        class_="wide",
    )
    return page(name, main)


def start_form(name: str, inputs: Mapping[str, Any], acting: Acting) -> Markup:
    """The form that starts the flow; `inputs` is a JSON Schema of them."""
    fields = fields_for(inputs, "Inputs, as JSON")
    button = element("div", element("button", "Start"), class_="choices")
    return element(
        "section",
        element(
            "details", element("summary", "Start it"), form(start_url(name), acting, fields, button, class_="asks")
        ),
        class_="start",
    )


def _counts(errors: int, warnings: int) -> Child:
    if not errors and not warnings:
        return "✓"
    said = [f"✗ {errors} error{'s' * (errors != 1)}"] if errors else []
    return ", ".join([*said, *([f"⚠ {warnings} warning{'s' * (warnings != 1)}"] if warnings else [])])


def _problems(problems: Sequence[Diagnostic]) -> Markup:
    if not problems:
        return note("✓ Nothing is wrong with it.")
    return element("ul", [element("li", element("code", str(each))) for each in problems])


def _drawn(picture: Picture) -> Markup:
    shown = closed(picture, OPEN_NODES)
    if len(shown.nodes) > _DRAWN:
        told: Child = note(f"{len(shown.nodes):,} nodes are too many for this page; `flowengine graph` draws them.")
    else:
        told = element("div", graph_markup(shown), class_="picture")
    return element("section", element("h2", "Picture"), told)


def _source(source: str, problems: Sequence[Diagnostic]) -> Markup:
    """The text with a mark below each line that something is wrong with."""
    found: dict[int, list[Diagnostic]] = {}
    for each in problems:
        if each.line is not None:
            found.setdefault(each.line, []).append(each)
    lines = [_line(text, found.get(number, ())) for number, text in enumerate(source.split("\n"), 1)]
    return element("pre", lines, class_="source", tabindex=0)


def _line(text: str, problems: Sequence[Diagnostic]) -> list[Markup]:
    severity = min((each.severity for each in problems), default=None)  # An error goes before a warning.
    line = element("span", text, class_=f"line {severity}" if severity else "line")
    marks = [
        element("span", f"{' ' * ((each.column or 1) - 1)}^ {each.code} {each.message}{each.hint}", class_="mark")
        for each in problems
    ]
    return [line, *marks]
