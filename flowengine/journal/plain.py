"""Values as JSON that people and scripts read. One way: the journal has a codec of its own for the way back.

An event becomes `{"type": "NodeFinished", "node": "draft", "at": 1700000000.5, "result": {…}}`: its
name and its fields, and so do the records in it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence, Set
from dataclasses import fields, is_dataclass
from math import isfinite
from typing import Any, cast

from pydantic import BaseModel
from pydantic_core import to_jsonable_python

from flowengine.engine.events import EVENTS, Event
from flowengine.records import RECORDS

__all__ = ["dumps", "event_line", "plain", "shown"]

_NAMED = frozenset([*EVENTS.values(), *RECORDS.values()])


def plain(value: Any) -> Any:
    """The value in JSON's types; what has no such form becomes its text.

    >>> from flowengine.engine.events import NodeStarted
    >>> plain({"a": (1, float("inf")), "b": NodeStarted("draft", 1.5)})
    {'a': [1, 'inf'], 'b': {'type': 'NodeStarted', 'node': 'draft', 'at': 1.5}}
    """
    if value is None or isinstance(value, (bool, int, str)):
        return value
    if isinstance(value, float):
        return value if isfinite(value) else str(value)
    if isinstance(value, Mapping):
        return {str(key): plain(each) for key, each in cast("Mapping[Any, Any]", value).items()}
    if isinstance(value, (list, tuple, Set)):
        return _sequence(cast("Sequence[Any]", value))
    if isinstance(value, BaseModel):
        return {name: plain(each) for name, each in value}
    if is_dataclass(value) and not isinstance(value, type):
        return {each.name: plain(getattr(value, each.name)) for each in fields(value)}
    return to_jsonable_python(value, fallback=str)


def _sequence(value: Sequence[Any]) -> Any:
    names: Sequence[str] | None = getattr(value, "_fields", None)
    if names is None:
        return [plain(each) for each in value]
    typed = {"type": type(value).__name__} if type(value) in _NAMED else {}
    return typed | {name: plain(each) for name, each in zip(names, value, strict=True)}


def dumps(value: Any, *, indent: int | None = None) -> str:
    """One JSON text; characters stay as they are."""
    return json.dumps(plain(value), ensure_ascii=False, indent=indent)


def event_line(event: Event) -> str:
    """One event on one line."""
    return dumps(event)


def shown(value: Any) -> str:
    """A value for people: text as it is, anything else as JSON.

    >>> shown("text"), shown({"a": [1]})
    ('text', '{"a": [1]}')
    """
    return value if isinstance(value, str) else dumps(value)
