"""How long the last runs of a flow took and what they cost, as a drawing in two strips."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from statistics import median
from typing import Final, NamedTuple

from visualize.progress import Progress
from visualize.style import dollars, seconds_text
from visualize.viewer.html import Markup, element
from visualize.viewer.urls import run_url

__all__ = ["RunPoint", "plot_svg", "point_of"]

_WIDTH: Final = 860.0
_HEIGHT: Final = 130.0
"""Of one strip."""
_LEFT: Final = 72.0
_TOP: Final = 26.0
_FOOT: Final = 12.0


class RunPoint(NamedTuple):
    """One run, as the plot needs it."""

    run_id: str
    status: str
    seconds: float | None
    cost_usd: float | None


def point_of(progress: Progress) -> RunPoint:
    """A run's point, from its fold; the time in which it was not going on is none of its work."""
    run_id = "" if progress.started is None else progress.started.run_id
    return RunPoint(run_id, progress.status, progress.working_seconds(progress.last_at), progress.usage.cost_usd)


def plot_svg(points: Sequence[RunPoint]) -> Markup:
    """The runs from left to right in the order given, the oldest first; each point leads to its run."""
    strips = [
        list(_strip(points, "Time", [each.seconds for each in points], seconds_text, 0.0)),
        list(_strip(points, "Cost", [each.cost_usd for each in points], dollars, _HEIGHT + 14)),
    ]
    return element(
        "svg", strips, class_="plot", viewBox=f"0 0 {_WIDTH:.0f} {2 * _HEIGHT + 14:.0f}", role="img",
        aria_label=f"Time and cost of the last {len(points)} runs",
    )  # fmt: skip


def _strip(
    points: Sequence[RunPoint], title: str, values: Sequence[float | None], words: Callable[[float], str], top: float
) -> Iterator[Markup]:
    known = [each for each in values if each is not None]
    most = max(known, default=0.0) or 1.0
    said = f"{title}: median {words(median(known))}, most {words(max(known))}" if known else f"{title}: not known"
    yield element("text", said, class_="plot-title", x=f"{_LEFT:.0f}", y=f"{top + 14:.0f}")
    for share in (0.0, 0.5, 1.0):
        y = _y(share, top)
        yield element("line", class_="axis", x1=f"{_LEFT:.0f}", x2=f"{_WIDTH - 8:.0f}", y1=f"{y:.1f}", y2=f"{y:.1f}")
        yield element("text", words(most * share), x=f"{_LEFT - 8:.0f}", y=f"{y + 4:.1f}", text_anchor="end")
    places = [(_x(number, len(points)), _y(each / most, top)) for number, each in enumerate(values) if each is not None]
    yield element("polyline", class_="series", points=" ".join(f"{x:.1f},{y:.1f}" for x, y in places))
    for number, (point, each) in enumerate(zip(points, values, strict=True)):
        if each is not None:
            yield _dot(point, words(each), _x(number, len(points)), _y(each / most, top))


def _x(number: int, count: int) -> float:
    return _LEFT + 10 + (_WIDTH - _LEFT - 28) * (number / (count - 1) if count > 1 else 0.5)


def _y(share: float, top: float) -> float:
    return top + _TOP + (_HEIGHT - _TOP - _FOOT) * (1 - max(0.0, share))


def _dot(point: RunPoint, words: str, x: float, y: float) -> Markup:
    """A circle; a cross where the run failed, so that it is not told by colour alone."""
    title = element("title", f"{point.run_id}: {words}, {point.status}")
    if point.status == "failed":
        shape = element("path", class_="dot bad", d=f"M{x - 4:.1f} {y - 4:.1f}l8 8m0 -8l-8 8", stroke_width=2)
    else:
        shape = element("circle", class_="dot", cx=f"{x:.1f}", cy=f"{y:.1f}", r=3.5)
    return element("a", title, shape, href=run_url(point.run_id))
