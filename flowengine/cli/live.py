"""Draws the tree of nodes on a terminal's stderr while a run goes on. It only reads what is known of the run.

What agents write stands below their nodes, its last line, made safe: a terminal obeys nothing of it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from time import time
from typing import Final

from rich.cells import cell_len, get_character_cell_size, set_cell_size
from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.live import Live
from rich.text import Text

from flowengine.cli.run_outlook import RunOutlook
from flowengine.cli.terminal import (
    cut_cell,
    escape_controls,
    format_dollars,
    format_seconds,
    format_span,
    format_tokens,
)
from flowengine.core import CAUSE_TEXTS, NodeStatus
from visualize.progress import SETTLED, NodeRow, Progress

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


_MODEL: Final = 22
"""Columns of a model's name."""


def draw(
    progress: Progress, now: float, rows: int, width: int = 100, outlook: RunOutlook | None = None
) -> RenderableType:
    """The flow's line and, below it, at most `rows` lines of the tree of nodes: where there are more, those that matter
    now. A container that has ended is folded to its line; one that goes on shows what goes on, or failed, inside."""
    outlook = outlook or RunOutlook(progress)
    gap = 2 if width >= _NARROW else 1
    columns = [0, 4] if width < _VERY_NARROW else [0, 1, 4] if width < _NARROW else [0, 1, 2, 3, 4]
    texts = {row.id: text for row in list(progress.running.values()) if (text := _read_text(outlook, row))}
    visible, hidden = _choose_rows(progress, rows - min(len(texts), rows // 4))
    room = rows - len(visible) - bool(hidden)
    units = _Units(progress)
    cells = [_format_head(progress, now, outlook)]
    goes_on = now if progress.status in ("running", "waiting") else None
    below: dict[int, Text] = {}
    for number, (depth, row) in enumerate(visible):
        is_last = (
            not hidden
            and all(other <= depth for other, _ in visible[number + 1 : number + 2])
            and not any(other == depth for other, _ in _until_above(visible[number + 1 :], depth))
        )
        branch = "│  " * depth + ("└─ " if is_last else "├─ ")
        cells.append(_format_line(row, goes_on, branch, units, width, outlook))
        if row.id in texts and len(below) < room:
            begin = "│  " * depth + ("   " if is_last else "│  ") + "  "
            below[len(cells)] = Text.assemble(
                (begin, "dim"), (cut_to_end(texts[row.id], width - len(begin) - 1), "italic")
            )
    lines = _align([[line[column] for column in columns] for line in cells], width, gap)
    for at in sorted(below, reverse=True):
        lines.insert(at, below[at])
    if hidden:
        lines.append(Text(f"└─ {hidden:,} more; {progress.settled:,} of {len(progress.nodes):,} done", "dim"))
    for line in lines:
        line.no_wrap, line.overflow = True, "ellipsis"
    return Group(*lines)


def _align(lines: Sequence[Sequence[Text]], width: int, gap: int) -> list[Text]:
    """Columns of a width each, the second and those up to the last one flush right; the last has what is left."""
    sizes = [max(line[column].cell_len for line in lines) for column in range(len(lines[0]) - 1)]
    gaps = gap * sum(size > 0 for size in sizes)
    sizes[0] = min(sizes[0], max(8, width - sum(sizes[1:]) - gaps - 1))
    aligned: list[Text] = []
    for line in lines:
        whole = Text()
        for number, size in enumerate(sizes):
            if size:
                cell = line[number].copy()
                cell.truncate(size, overflow="ellipsis")
                blank = Text(" " * (size - cell.cell_len))
                whole.append_text(blank + cell if number else cell + blank).append(" " * gap)
        rest = line[-1].copy()
        rest.truncate(max(0, width - whole.cell_len - 1), overflow="ellipsis")
        whole.append_text(rest).rstrip()
        aligned.append(whole)
    return aligned


def _read_text(outlook: RunOutlook, row: NodeRow) -> str:
    """The last line of what a node is writing that has something on it."""
    stream = outlook.of(row.id)
    lines = [line for line in stream.text.splitlines() if line.strip()] if stream is not None else []
    return lines[-1] if lines else ""


def cut_to_end(text: str, width: int) -> str:
    r"""The end of a text, on one line, in at most so many columns; nothing in it moves the cursor.

    >>> cut_to_end("one two three", 9), cut_to_end("\x1b[2Jお茶をどうぞ", 7)
    ('…wo three', '…どうぞ')
    """
    line = " ".join(escape_controls(text.encode(errors="replace").decode()).split())
    if cell_len(line) <= width:
        return line
    room, at = width - 1, len(line)
    while at and (room := room - get_character_cell_size(line[at - 1])) >= 0:
        at -= 1
    return f"…{line[at:].lstrip()}" if width > 0 else ""


def _until_above(lines: Sequence[tuple[int, NodeRow]], depth: int) -> Sequence[tuple[int, NodeRow]]:
    """The lines before the first that stands higher."""
    end = next((at for at, (other, _) in enumerate(lines) if other < depth), len(lines))
    return lines[:end]


class _Units:
    """The progress of the items and rounds of containers."""

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


def format_progress_line(progress: Progress, now: float, outlook: RunOutlook | None = None) -> str:
    """Formats the progress of a run as one line, for logs and pipes."""
    outlook = outlook or RunOutlook(progress)
    units, usage = _Units(progress), progress.usage
    top = [row for row in list(progress.nodes.values()) if row.spot.container is None]
    done = sum(row.status in SETTLED for row in top)
    going = [
        " ".join(each for each in (row.id, units.describe(row).strip(), _format_asked(row, now, outlook)) if each)
        for row in top
        if row.status in ("running", "waiting")
    ]
    parts = [f"{format_span(progress.seconds(now))}: {done} of {len(top)} nodes", ", ".join(going[:4])]
    if usage.calls:
        parts += [format_tokens(usage.tokens), format_dollars(usage.cost_usd, is_whole=usage.is_whole)]
    parts.append(outlook.describe_left(now))
    return escape_controls(" · ".join(each for each in parts if each))


def _format_head(progress: Progress, now: float, outlook: RunOutlook) -> list[Text]:
    usage, started = progress.usage, progress.started
    remark = [outlook.describe_left(now), "" if started is None else started.run_id]
    return [
        Text.assemble(
            (escape_controls(progress.flow), "bold"),
            "  ",
            (progress.status, _RUN_STYLES.get(progress.status, "yellow")),
        ),
        Text(format_span(progress.seconds(now))),
        Text(format_tokens(usage.tokens) if usage.calls else ""),
        Text(format_dollars(usage.cost_usd, is_whole=usage.is_whole) if usage.calls else ""),
        Text("  ".join(each for each in remark if each), "dim"),
    ]


def _format_line(
    row: NodeRow, now: float | None, branch: str, units: _Units, width: int, outlook: RunOutlook
) -> list[Text]:
    sign, style = _NODE_SIGNS[row.status]
    name = escape_controls(_short_name(row))
    room = max(8, width // 2 - len(branch))
    if cell_len(name) > room:
        name = f"{set_cell_size(name, room - 1).rstrip()}…"
    progress_text = units.describe(row)
    usage = row.usage
    return [
        Text.assemble(
            (branch, "dim"),
            (sign, style),
            " ",
            (name, "" if row.status != "pending" else "dim"),
            (f" {progress_text}" if progress_text else "", "red" if "✗" in progress_text else "cyan"),
        ),
        Text(format_span(row.seconds(now)) if row.has_run else ""),
        Text(format_tokens(usage.tokens) if usage.calls else ""),
        Text(format_dollars(usage.cost_usd, is_whole=usage.is_whole) if usage.calls else ""),
        Text(_format_remark(row, now, outlook), "red" if row.status == "failed" else "dim"),
    ]


def _format_remark(row: NodeRow, now: float | None, outlook: RunOutlook) -> str:
    """Formats further remarks on a node as one line."""
    if row.error is not None:
        return cut_cell(row.error.message.split("\n")[0], 400)
    question = "" if now is None else _format_asked(row, now, outlook)
    if question:
        return question
    if row.cause is not None:
        return CAUSE_TEXTS[row.cause]
    if row.result is not None and row.result.route is not None:
        return f"→ {escape_controls(row.result.route)}"
    return f"retry {row.retries}" if row.retries and row.status == "running" else ""


def _format_asked(row: NodeRow, now: float, outlook: RunOutlook) -> str:
    """Formats who was asked and when: a model, or people with their remaining time."""
    if row.status == "waiting" and row.questions:
        question = next(iter(row.questions.values()))
        rest = "" if question.expires is None else f", {format_seconds(question.expires - now)} left"
        return f"asks{rest}: {cut_cell(' or '.join(question.choices), 40)}"
    stream = outlook.of(row.id)
    if stream is None or not stream.model:
        return ""
    retried = f", retry {row.retries}" if row.retries else ""
    model = cut_cell(stream.model.rsplit("/", 1)[-1], _MODEL)
    return f"asked {model} {format_seconds(now - stream.asked)} ago{retried}"


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
        visible = {row.id for row in (*now, *done[len(done) - (rows - 1 - len(now)) :])}
        hidden = len(top) - len(visible)
        top = [row for row in top if row.id in visible]
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

    def __init__(self, progress: Progress, outlook: RunOutlook) -> None:
        self._progress = progress
        self._outlook = outlook
        self.is_last = False

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        rows = _MAX_ROWS if self.is_last else max(console.height - 4, 3)
        yield draw(self._progress, time(), rows, options.max_width, self._outlook)


@contextmanager
def live_tree(progress: Progress, outlook: RunOutlook) -> Generator[None]:
    picture = _LiveTree(progress, outlook)
    with Live(picture, console=Console(stderr=True), refresh_per_second=8, redirect_stdout=True) as live:
        try:
            yield
        finally:
            picture.is_last = True
            live.vertical_overflow = "visible"
