"""The log of a worker on stderr: a line for each thing that happened, with its time in UTC, as text or as JSON.

It is the standard library's logging, so what libraries and a flow's code log from warnings up is told in the same form.
"""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Generator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any, Final, Literal

from flowengine.cli.terminal import safe
from flowengine.runners.notices import Notice

__all__ = ["LogFormat", "tell", "worker_log"]

LogFormat = Literal["text", "json"]

_LOGGER: Final = logging.getLogger("flowengine.worker")
_WARNINGS: Final = frozenset({"left", "queue_lost", "look_failed"})
"""Events that may need somebody."""
_ERRORS: Final = frozenset({"error"})
"""Events that end the worker."""


def tell(notice: Notice) -> None:
    """Log what a worker tells."""
    _LOGGER.log(_level(notice.event), "%s", notice, extra={"event": notice.event, "run": notice.run_id})


@contextmanager
def worker_log(form: LogFormat, *, quiet: bool) -> Generator[None]:
    """Log to stderr for as long as the block lasts; `quiet`: errors only."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_Json() if form == "json" else _Text())
    handler.setLevel(logging.ERROR if quiet else logging.INFO)
    root, level = logging.getLogger(), _LOGGER.level
    root.addHandler(handler)
    _LOGGER.setLevel(logging.INFO)
    try:
        yield
    finally:
        _LOGGER.setLevel(level)
        root.removeHandler(handler)


def _level(event: str) -> int:
    if event in _ERRORS:
        return logging.ERROR
    return logging.WARNING if event in _WARNINGS else logging.INFO


class _Text(logging.Formatter):
    """Time and message; what is of several lines stays one line."""

    def format(self, record: logging.LogRecord) -> str:
        return f"{_time(record)} {safe(_message(self, record))}".replace("\n", "\\n")


class _Json(logging.Formatter):
    """An object on a line: time, level, event, run, message, logger."""

    def format(self, record: logging.LogRecord) -> str:
        found: dict[str, Any] = {"time": _time(record), "level": record.levelname.lower()}
        found |= {name: value for name in ("event", "run") if (value := getattr(record, name, None)) is not None}
        return json.dumps(found | {"message": _message(self, record), "logger": record.name})


def _message(form: logging.Formatter, record: logging.LogRecord) -> str:
    trace = f"\n{form.formatException(record.exc_info)}" if record.exc_info else ""
    return f"{record.getMessage()}{trace}"


def _time(record: logging.LogRecord) -> str:
    moment = datetime.fromtimestamp(record.created, UTC)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")
