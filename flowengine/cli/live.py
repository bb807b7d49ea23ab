"""Draws the tree of nodes on a terminal's stderr while a run goes on. It only reads the run's progress."""

from __future__ import annotations

from collections import Counter
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from time import time
from typing import Final

from rich.cells import cell_len, set_cell_size
from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.live import Live
from rich.table import Table
from rich.text import Text

from flowengine.cli.terminal import escape_controls, format_dollars, format_span, format_tokens
from flowengine.core.context import NodeStatus
from visualize.progress import SETTLED, NodeRow, Progress

__all__ = ["draw", "draw_bar", "format_progress_line", "live_tree"]

# --- The tree for rich

_NODE_SIGNS: Final[dict[NodeStatus, tuple[str, str]]] = {
    "pending": ("·", "dim"),
    "running": ("●", "cyan"),
    "waiting": ("?", "yellow"),
    "succeeded": ("✓", "green"),
    "failed": ("✗", "red"),
    "skipped": ("–", "dim"),
    "cancelled": ("×", "yellow"),
}
_RUN_STYLES: Final = {"succeeded": "green", "failed": "red", "running": "cyan"}


_NARROW: Final = 70
"""Columns of a terminal below which tokens and cost are left out."""
_VERY_NARROW: Final = 45
"""Below which times are, too."""
_BAR: Final = 6
"""Columns of a container's bar."""
_EIGHTHS: Final = "▏▎▍▌▋▊▉█"


def draw(progress: Progress, now: float, rows: int, width: int = 100) -> RenderableType:
    """The flow's line and, below it, at most `rows` lines of the tree of nodes: where there are more, those that matter
    now. A container that has ended is folded to its line; one that goes on shows what goes on, or failed, inside."""
    table = Table.grid(padding=(0, 2 if width >= _NARROW else 1, 0, 0))
    kept = [0, 4] if width < _VERY_NARROW else [0, 1, 4] if width < _NARROW else [0, 1, 2, 3, 4]
    for column in kept[:-1]:
        table.add_column(justify="right" if column else "left", no_wrap=True, overflow="ellipsis")
    table.add_column()  # where the terminal is narrow, the remark is shortened first

    def add(cells: list[Text]) -> None:
        table.add_row(*(cells[column] for column in kept))

    add(_format_head(progress, now))
    shown, hidden = _choose_rows(progress, rows)
    units = _Units(progress)
    for number, (depth, row) in enumerate(shown):
        is_last = (
            not hidden
            and all(other <= depth for other, _ in shown[number + 1 : number + 2])
            and not any(other == depth for other, _ in _until_above(shown[number + 1 :], depth))
        )
        branch = "│  " * depth + ("└─ " if is_last else "├─ ")
        add(_format_line(row, now if progress.finished is None else None, branch, units, width))
    if hidden:
        table.add_row(Text(f"└─ {hidden:,} more; {progress.settled:,} of {len(progress.nodes):,} done", "dim"))
    return table


def _until_above(lines: Sequence[tuple[int, NodeRow]], depth: int) -> Sequence[tuple[int, NodeRow]]:
    """The lines before the first that stands higher."""
    end = next((at for at, (other, _) in enumerate(lines) if other < depth), len(lines))
    return lines[:end]


class _Units:
    """How far the items and rounds of containers are, of a run as it stands."""

    def __init__(self, progress: Progress) -> None:
        settled: Counter[tuple[str, int]] = Counter()
        failed: set[tuple[str, int]] = set()
        for row in list(progress.nodes.values()):
            spot = row.spot
            if spot.container is not None and spot.number is not None and row.status in SETTLED:
                settled[spot.container, spot.number] += 1
                if row.status == "failed":
                    failed.add((spot.container, spot.number))
        self._settled, self._failed, self._sites = settled, failed, progress.skeleton.sites

    def describe(self, row: NodeRow) -> str:
        """`31/50 ███▌ ✗ 1`; empty for what is no map and no loop."""
        site = self._sites.get(row.spot.site)
        if site is None or site.body is None or not row.units:
            return ""
        size = len(site.body.sites)
        bad = sum(1 for unit in row.units if (row.id, unit) in self._failed)
        done = sum(1 for unit in row.units if self._settled[row.id, unit] >= size or (row.id, unit) in self._failed)
        if row.total is None:
            return f"{done}" + (f" ✗ {bad}" if bad else "")
        return f"{done}/{row.total} {draw_bar(done, row.total)}" + (f" ✗ {bad}" if bad else "")


def draw_bar(done: int, total: int) -> str:
    """A bar in eighths of a column.

    >>> draw_bar(31, 50), draw_bar(0, 5), draw_bar(5, 5)
    ('███▋', '', '██████')
    """
    eighths = min(_BAR * 8, _BAR * 8 * done // max(total, 1))
    return "█" * (eighths // 8) + (_EIGHTHS[eighths % 8 - 1] if eighths % 8 else "")


def format_progress_line(progress: Progress, now: float) -> str:
    """How far a run is, in one line: for logs and pipes."""
    units, usage = _Units(progress), progress.usage
    top = [row for row in list(progress.nodes.values()) if row.spot.container is None]
    done = sum(row.status in SETTLED for row in top)
    going = [f"{row.id} {units.describe(row)}".rstrip() for row in top if row.status in ("running", "waiting")]
    parts = [f"{format_span(progress.seconds(now))}: {done} of {len(top)} nodes", ", ".join(going[:4])]
    if usage.calls:
        parts += [format_tokens(usage.tokens), format_dollars(usage.cost_usd, is_whole=usage.is_whole)]
    return escape_controls(" · ".join(each for each in parts if each))


def _format_head(progress: Progress, now: float) -> list[Text]:
    usage = progress.usage
    run_id = "" if progress.started is None else progress.started.run_id
    return [
        Text.assemble(
            (escape_controls(progress.flow), "bold"),
            "  ",
            (progress.status, _RUN_STYLES.get(progress.status, "yellow")),
        ),
        Text(format_span(progress.seconds(now))),
        Text(format_tokens(usage.tokens) if usage.calls else ""),
        Text(format_dollars(usage.cost_usd, is_whole=usage.is_whole) if usage.calls else ""),
        Text(run_id, "dim", no_wrap=True, overflow="ellipsis"),
    ]


def _format_line(row: NodeRow, now: float | None, branch: str, units: _Units, width: int) -> list[Text]:
    sign, style = _NODE_SIGNS[row.status]
    name = escape_controls(_short_name(row))
    room = max(8, width // 2 - len(branch))
    if cell_len(name) > room:
        name = f"{set_cell_size(name, room - 1).rstrip()}…"
    told = units.describe(row)
    usage = row.usage
    return [
        Text.assemble(
            (branch, "dim"),
            (sign, style),
            " ",
            (name, "" if row.status != "pending" else "dim"),
            (f" {told}" if told else "", "red" if "✗" in told else "cyan"),
        ),
        Text(format_span(row.seconds(now)) if row.has_run else ""),
        Text(format_tokens(usage.tokens) if usage.calls else ""),
        Text(format_dollars(usage.cost_usd, is_whole=usage.is_whole) if usage.calls else ""),
        Text(_format_remark(row), "red" if row.status == "failed" else "dim", no_wrap=True, overflow="ellipsis"),
    ]


def _format_remark(row: NodeRow) -> str:
    """What else there is to say of a node, in one line."""
    if row.error is not None:
        return escape_controls(row.error.message.split("\n")[0])
    if row.cause is not None:
        return row.cause.replace("_", " ")
    if row.result is not None and row.result.route is not None:
        return f"→ {escape_controls(row.result.route)}"
    return f"retry {row.retries}" if row.retries and row.status == "running" else ""


def _short_name(row: NodeRow) -> str:
    """Inside a container, the path from there on: `[3].write`."""
    return row.id if row.spot.container is None else row.id.removeprefix(row.spot.container).lstrip(".")


_MATTERS: Final = ("running", "waiting", "failed")


def _choose_rows(progress: Progress, rows: int) -> tuple[list[tuple[int, NodeRow]], int]:
    """The lines of the tree with their depths, and how many nodes of the shown levels are left out.

    All nodes of the top where they fit; else what runs and what failed, then what settled last, in the flow's order.
    What room is left goes to what matters inside of containers that go on or failed.
    """
    every = list(progress.nodes.values())
    top = [row for row in every if row.spot.container is None]
    hidden = 0
    if len(top) > rows:
        now = [row for row in top if row.status in _MATTERS][: rows - 1]
        done = sorted((row for row in top if row.status == "succeeded"), key=lambda row: row.ended or 0.0)
        kept = {row.id for row in (*now, *done[len(done) - (rows - 1 - len(now)) :])}
        hidden = len(top) - len(kept)
        top = [row for row in top if row.id in kept]
    inside: dict[str, list[NodeRow]] = {}
    for row in every:
        if row.spot.container is not None and row.status in _MATTERS:
            inside.setdefault(row.spot.container, []).append(row)
    room = rows - len(top) - bool(hidden)
    lines: list[tuple[int, NodeRow]] = []

    def add(row: NodeRow, depth: int) -> None:
        nonlocal room
        lines.append((depth, row))
        if row.status in _MATTERS:
            # What goes on first, as failures are counted in the container's line.
            for each in sorted(inside.get(row.id, ()), key=lambda each: each.status == "failed")[: max(0, room)]:
                if room > 0:
                    room -= 1
                    add(each, depth + 1)

    for row in top:
        add(row, 0)
    return lines, hidden


_MAX_ROWS = 200
"""Nodes that the last picture shows at most; it stays on the screen."""


class _LiveTree:
    """Drawn anew whenever rich asks, from its own thread; it only reads."""

    def __init__(self, progress: Progress) -> None:
        self._progress = progress
        self.is_last = False

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        rows = _MAX_ROWS if self.is_last else max(console.height - 4, 3)
        yield draw(self._progress, time(), rows, options.max_width)


@contextmanager
def live_tree(progress: Progress) -> Generator[None]:
    picture = _LiveTree(progress)
    with Live(picture, console=Console(stderr=True), refresh_per_second=8, redirect_stdout=True) as live:
        try:
            yield
        finally:
            picture.is_last = True
            live.vertical_overflow = "visible"
