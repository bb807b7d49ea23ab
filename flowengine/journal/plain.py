"""Values and events as JSON that people and scripts read."""

from __future__ import annotations

import json
from typing import Any

from flowengine.engine.events import Event
from flowengine.engine.plain_value import plain

__all__ = ["dumps", "event_line", "plain", "shown"]


def dumps(value: Any, *, indent: int | None = None) -> str:
    """One JSON text; characters stay as they are."""
    return json.dumps(plain(value), ensure_ascii=False, indent=indent)


def event_line(event: Event) -> str:
    """One event on one line."""
    return json.dumps(event.as_dict(), ensure_ascii=False)


def shown(value: Any) -> str:
    """A value for people: text as it is, anything else as JSON.

    >>> shown("text"), shown({"a": [1]})
    ('text', '{"a": [1]}')
    """
    return value if isinstance(value, str) else dumps(value)
