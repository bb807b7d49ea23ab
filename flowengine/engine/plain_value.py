"""Values in JSON's types, for people and scripts. One way: the journal has a codec of its own for the way back.

Events and records become objects with their names: `{"type": "Notice", "text": …}`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import fields, is_dataclass
from math import isfinite
from typing import Any, Final, cast

from pydantic import BaseModel
from pydantic_core import to_jsonable_python

from flowengine.records import RECORDS

__all__ = ["plain", "plain_fields"]

_RECORDS: Final[frozenset[type[Any]]] = frozenset(RECORDS.values())


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
        return _plain_sequence(cast("Sequence[Any]", value))
    if isinstance(value, BaseModel):
        return {name: plain(each) for name, each in value}
    if is_dataclass(value) and not isinstance(value, type):
        return {each.name: plain(getattr(value, each.name)) for each in fields(value)}
    return to_jsonable_python(value, fallback=str)


def plain_fields(value: tuple[Any, ...], names: Sequence[str]) -> dict[str, Any]:
    """The fields of a named tuple by their names."""
    return {name: plain(each) for name, each in zip(names, value, strict=True)}


def _plain_sequence(value: Sequence[Any]) -> Any:
    as_dict = getattr(value, "as_dict", None)
    if as_dict is not None:
        return as_dict()
    names: Sequence[str] | None = getattr(value, "_fields", None)
    if names is None:
        return [plain(each) for each in value]
    typed = {"type": type(value).__name__} if type(value) in _RECORDS else {}
    return typed | plain_fields(tuple(value), names)
