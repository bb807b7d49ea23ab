"""The tree of nodes that a terminal shows on stderr while a run goes on, drawn from its progress."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from time import time

from rich.console import Console, ConsoleOptions, RenderResult
from rich.live import Live

from flowengine.cli.tree import draw
from visualize.progress import Progress

__all__ = ["live_tree"]

_HALL = 200
"""Nodes that the last picture shows at most; it stays on the screen."""


class _Picture:
    """Drawn anew whenever rich asks, from its own thread; it only reads."""

    def __init__(self, progress: Progress) -> None:
        self._progress = progress
        self.is_last = False

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        rows = _HALL if self.is_last else max(console.height - 4, 3)
        yield draw(self._progress, time(), rows)


@contextmanager
def live_tree(progress: Progress) -> Generator[None]:
    picture = _Picture(progress)
    with Live(picture, console=Console(stderr=True), refresh_per_second=8, redirect_stdout=True) as live:
        try:
            yield
        finally:
            picture.is_last = True
            live.vertical_overflow = "visible"
