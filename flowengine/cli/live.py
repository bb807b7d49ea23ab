"""Draws the tree of nodes on a terminal's stderr while a run goes on. It only reads the run's progress."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from time import time
from typing import Final

from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.live import Live
from rich.table import Table
from rich.text import Text

from flowengine.cli.terminal import escape_controls, format_dollars, format_span, format_tokens
from flowengine.core.context import NodeStatus
from visualize.progress import NodeRow, Progress

__all__ = ["draw", "live_tree"]

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


def draw(progress: Progress, now: float, rows: int) -> RenderableType:
    """The flow's line and, below it, at most `rows` nodes: where there are more, those that matter now."""
    table = Table.grid(padding=(0, 2, 0, 0))
    for justify in ("left", "right", "right", "right"):
        table.add_column(justify=justify, no_wrap=True, overflow="ellipsis")
    table.add_column()  # where the terminal is narrow, the remark is shortened first
    table.add_row(*_format_head(progress, now))
    shown = _choose_rows(progress, rows)
    hidden = len(progress.nodes) - len(shown)
    for number, row in enumerate(shown):
        is_last = number == len(shown) - 1 and not hidden
        table.add_row(*_format_line(row, now if progress.finished is None else None, "└─ " if is_last else "├─ "))
    if hidden:
        table.add_row(Text(f"└─ {hidden:,} more; {progress.settled:,} of {len(progress.nodes):,} done", "dim"))
    return table


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


def _format_line(row: NodeRow, now: float | None, branch: str) -> list[Text]:
    sign, style = _NODE_SIGNS[row.status]
    usage = row.usage
    return [
        Text.assemble(
            (branch, "dim"), (sign, style), " ", (escape_controls(row.id), "" if row.status != "pending" else "dim")
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


def _choose_rows(progress: Progress, rows: int) -> list[NodeRow]:
    """All nodes where they fit; else what runs and what failed, then what settled last, in the flow's order."""
    every = list(progress.nodes.values())
    if len(every) <= rows:
        return every
    now = [row for row in every if row.status in ("running", "waiting", "failed")][: rows - 1]
    done = sorted((row for row in every if row.status == "succeeded"), key=lambda row: row.ended or 0.0)
    kept = {row.id for row in (*now, *done[len(done) - (rows - 1 - len(now)) :])}
    return [row for row in every if row.id in kept]


_MAX_ROWS = 200
"""Nodes that the last picture shows at most; it stays on the screen."""


class _LiveTree:
    """Drawn anew whenever rich asks, from its own thread; it only reads."""

    def __init__(self, progress: Progress) -> None:
        self._progress = progress
        self.is_last = False

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        rows = _MAX_ROWS if self.is_last else max(console.height - 4, 3)
        yield draw(self._progress, time(), rows)


@contextmanager
def live_tree(progress: Progress) -> Generator[None]:
    picture = _LiveTree(progress)
    with Live(picture, console=Console(stderr=True), refresh_per_second=8, redirect_stdout=True) as live:
        try:
            yield
        finally:
            picture.is_last = True
            live.vertical_overflow = "visible"
