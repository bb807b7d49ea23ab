"""Names the line that opened a connection to SQLite and left it open, on every Python that the package runs on.

Python says so from 3.13 on, when the garbage is collected: in whichever test runs then, and without the place. Here a
connection that was not closed is a `ResourceWarning`, an error in tests, with the place where it was opened.
"""

from __future__ import annotations

import os
import sqlite3
import sys
import warnings
from types import FrameType
from typing import Any

__all__ = ["WatchedConnection", "watch_connections"]

_LINES = 12
"""Frames that are named, from the innermost: what opens a connection is seldom what should close it."""


class WatchedConnection(sqlite3.Connection):
    _opened_at = ""
    _opened_by = 0

    def __init__(self, *args: Any, **settings: Any) -> None:
        super().__init__(*args, **settings)
        self._opened_by = os.getpid()  # A forked child must not close what is its parent's.
        test = os.environ.get("PYTEST_CURRENT_TEST", "")  # A thread's frames do not lead to it.
        self._opened_at = f"{_name_callers(sys._getframe(1))} in {test}"

    def close(self) -> None:
        super().close()
        self._opened_at = ""

    def __del__(self) -> None:
        place, self._opened_at = self._opened_at, ""
        if place and self._opened_by == os.getpid():
            super().close()
            warnings.warn(f"a connection to SQLite was left open; opened at {place}", ResourceWarning, stacklevel=1)


def watch_connections() -> None:
    """From here on each connection of this process is watched, but for those with a class of their own."""
    connect = sqlite3.connect

    def connect_watched(*args: Any, factory: type[sqlite3.Connection] = WatchedConnection, **settings: Any) -> Any:
        return connect(*args, factory=factory, **settings)

    sqlite3.connect = connect_watched


def _name_callers(frame: FrameType | None) -> str:
    places: list[str] = []
    while frame is not None and len(places) < _LINES:
        if frame.f_code.co_filename != __file__:
            places.append(f"{frame.f_code.co_filename}:{frame.f_lineno}")
        frame = frame.f_back
    return " < ".join(places)
