"""Makes the list of flows, and the page of one: its picture, its source with its problems, and its last runs.

It reads no file and builds no flow.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from statistics import median
from typing import Any, Final, NamedTuple

from flowengine.core import cost_text, seconds_text
from flowengine.errors import Diagnostic
from visualize.picture import Picture, close_containers
from visualize.usual_times import RunPoint
from visualize.viewer.actions import ActionField, command_line, compose_command, group_fields
from visualize.viewer.forms import Acting, fields_for, form, simple_properties
from visualize.viewer.graph import graph_markup, legend_markup
from visualize.viewer.html import Child, Markup, element, flow_url, run_url, start_url
from visualize.viewer.page import page
from visualize.viewer.parts import badge, note, table
from visualize.viewer.reading import OPEN_NODES

# --- The plot of the last runs

_WIDTH: Final = 860.0
_HEIGHT: Final = 130.0
"""The height of one strip."""
_LEFT: Final = 72.0
_TOP: Final = 26.0
_FOOT: Final = 12.0


def plot_svg(points: Sequence[RunPoint]) -> Markup:
    """The runs from left to right in the order given, the oldest first; each point leads to its run."""
    strips = [
        list(_draw_strip(points, "Time", [each.seconds for each in points], seconds_text, 0.0)),
        list(_draw_strip(points, "Cost", [each.cost_usd for each in points], cost_text, _HEIGHT + 14)),
    ]
    return element(
        "svg", strips, class_="plot", viewBox=f"0 0 {_WIDTH:.0f} {2 * _HEIGHT + 14:.0f}", role="group",
        aria_label=f"Time and cost of the last {len(points)} runs",
    )  # fmt: skip


def _draw_strip(
    points: Sequence[RunPoint], title: str, values: Sequence[float | None], words: Callable[[float], str], top: float
) -> Iterator[Markup]:
    numbers = [each for each in values if each is not None]
    most = max(numbers, default=0.0) or 1.0
    heading = (
        f"{title}: median {words(median(numbers))}, most {words(max(numbers))}" if numbers else f"{title}: not known"
    )
    yield element("text", heading, class_="plot-title", x=f"{_LEFT:.0f}", y=f"{top + 14:.0f}")
    for share in (0.0, 0.5, 1.0) if any(numbers) else (0.0,):
        y = _y(share, top)
        yield element("line", class_="axis", x1=f"{_LEFT:.0f}", x2=f"{_WIDTH - 8:.0f}", y1=f"{y:.1f}", y2=f"{y:.1f}")
        yield element("text", words(most * share), x=f"{_LEFT - 8:.0f}", y=f"{y + 4:.1f}", text_anchor="end")
    places = [(_x(number, len(points)), _y(each / most, top)) for number, each in enumerate(values) if each is not None]
    yield element("polyline", class_="series", points=" ".join(f"{x:.1f},{y:.1f}" for x, y in places))
    for number, (point, each) in enumerate(zip(points, values, strict=True)):
        if each is not None:
            yield _draw_point(point, words(each), _x(number, len(points)), _y(each / most, top))


def _x(number: int, count: int) -> float:
    return _LEFT + 10 + (_WIDTH - _LEFT - 28) * (number / (count - 1) if count > 1 else 0.5)


def _y(share: float, top: float) -> float:
    return top + _TOP + (_HEIGHT - _TOP - _FOOT) * (1 - max(0.0, share))


def _draw_point(point: RunPoint, words: str, x: float, y: float) -> Markup:
    """A circle; a cross where the run failed, so that it is not told by colour alone."""
    title = element("title", f"{point.run_id}: {words}, {point.status}")
    if point.status == "failed":
        shape = element("path", class_="dot bad", d=f"M{x - 4:.1f} {y - 4:.1f}l8 8m0 -8l-8 8", stroke_width=2)
    else:
        shape = element("circle", class_="dot", cx=f"{x:.1f}", cy=f"{y:.1f}", r=3.5)
    return element("a", title, shape, href=run_url(point.run_id))


_MAX_DRAWN: Final = 2_000
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
            _format_counts(flow.errors, flow.warnings),
            None if flow.last_run is None else [element("a", flow.last_run[0], href=run_url(flow.last_run[0])), " ",
                                                badge(flow.last_run[1])],
        ]
        for flow in flows
    ]  # fmt: skip
    content = (
        table(["Flow", "File", "Description", "Checks", "Last run"], rows) if rows else note("There are no flows.")
    )
    return page(
        "Flows", element("main", element("h1", "Flows"), element("div", content, data_list="still"), class_="wide")
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
        element("section", element("h2", "Last runs"), element("div", plot_svg(history), class_="scrolls", tabindex=0))
        if history
        else None,
        element("section", element("h2", "Checks"), _list_problems(problems)),
        _draw_picture(picture) if picture is not None else None,
        element("section", element("h2", "Source"), _format_source(source, problems)) if source is not None else None,
        class_="wide",
    )
    return page(name, main)


def start_form(
    name: str,
    inputs: Mapping[str, Any],
    acting: Acting,
    words: Sequence[str] = (),
    more: Sequence[ActionField] = (),
    once: str = "",
) -> Markup:
    """The form that starts the flow; `inputs` is a JSON Schema of them.

    `words`: of the command line that does the same; `more`: what else may be chosen, with the inputs one by one, which
    are left out where the schema makes better fields.
    """
    is_simple = simple_properties(inputs) is not None or not more
    fields = fields_for(inputs, "Inputs, as JSON", option="-i") if is_simple else []
    more = [each for each in more if not (is_simple and each.name.startswith("input."))]
    hidden = element("input", type="hidden", name="once", value=once)
    button = element("div", element("button", "Start", class_="primary"), class_="sends")
    command = command_line(compose_command(words, more, acting.options), [words, acting.options])
    parts = [fields, group_fields(more), element("h4", "On the command line"), command, button]
    return element(
        "section",
        element(
            "details",
            element("summary", "Start it"),
            form(start_url(name), acting, hidden, parts, class_="asks act"),
        ),
        class_="start",
    )


def _format_counts(errors: int, warnings: int) -> Child:
    if not errors and not warnings:
        return "✓"
    parts = [f"✗ {errors} error{'s' * (errors != 1)}"] if errors else []
    return ", ".join([*parts, *([f"⚠ {warnings} warning{'s' * (warnings != 1)}"] if warnings else [])])


def _list_problems(problems: Sequence[Diagnostic]) -> Markup:
    if not problems:
        return note("✓ Nothing is wrong with it.")
    return element("ul", [element("li", element("code", str(each))) for each in problems])


def _draw_picture(picture: Picture) -> Markup:
    visible = close_containers(picture, OPEN_NODES)
    if len(visible.nodes) > _MAX_DRAWN:
        content: Child = note(
            f"{len(visible.nodes):,} nodes are too many for this page; `flowengine graph` draws them."
        )
    else:
        legend = legend_markup({node.kind for node in visible.nodes}, is_run=False)
        content = [element("div", graph_markup(visible), class_="picture"), legend]
    return element("section", element("h2", "Picture"), content)


def _format_source(source: str, problems: Sequence[Diagnostic]) -> Markup:
    """The text with a mark below each line that something is wrong with."""
    problems_by_line: dict[int, list[Diagnostic]] = {}
    for each in problems:
        if each.line is not None:
            problems_by_line.setdefault(each.line, []).append(each)
    lines = [
        _format_line(text, problems_by_line.get(number, ()), number)
        for number, text in enumerate(source.split("\n"), 1)
    ]
    return element("pre", lines, class_="source", tabindex=0)


def _format_line(text: str, problems: Sequence[Diagnostic], number: int) -> list[Markup]:
    severity = min((each.severity for each in problems), default=None)  # An error goes before a warning.
    line = element("span", text, class_=f"line {severity}" if severity else "line", id=f"L{number}")
    marks = [
        element("span", f"{' ' * ((each.column or 1) - 1)}^ {each.code} {each.message}{each.hint}", class_="mark")
        for each in problems
    ]
    return [line, *marks]
