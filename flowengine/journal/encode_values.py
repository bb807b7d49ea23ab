"""Encodes values as trees of JSON, without loss: the writing half (`flowengine.journal.decode_values` is the other).

It knows which Python types can be written down, and nothing of events, files or stores.

    as they are                  None, bool, int, float, str; lists and dicts of these
    {"$tuple": …}                tuples, sets, bytes, dates, decimals, UUIDs, paths, dicts that are no
                                 JSON objects, text with lone surrogates, integers of thousands of digits
    {"$file": […]}               files: hash, media type, name and size; the content is kept beside the events
    {"$NodeResult": […]}         the engine's own named tuples and results: their fields by position
    {"$model": ["module:Class", …]}  users' pydantic models, dataclasses, enums and named tuples

A tag is an object whose one key starts with `$`; a user's dict that has such a key is written as `$dict`.
Exact types only: a subclass of `str`, `int`, `list` or `dict` would come back as something else, so it is
refused unless it is listed here. Sharing inside a value is not kept: a list that is seen twice is written twice.
"""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Callable, Iterator, Sequence
from dataclasses import fields, is_dataclass
from datetime import date, datetime, time, timedelta, timezone
from decimal import Decimal
from enum import Enum, Flag
from functools import cached_property
from pathlib import PosixPath, PurePath, PurePosixPath, PureWindowsPath, WindowsPath
from typing import Any, Final, cast
from uuid import UUID
from zoneinfo import ZoneInfo

from pydantic import BaseModel
from pydantic_core import TzInfo

from flowengine.core import (
    EMPTY,
    RECORDS,
    EvaluationResult,
    FailedEvaluation,
    FailedRouting,
    FileValue,
    FrozenDict,
    FrozenList,
    LLMResult,
    MixedDict,
    MixedList,
    NodeResult,
    RoutingResult,
)
from flowengine.engine import EVENTS, ErrorInfo
from flowengine.journal.value_types import FILE_TAG, RecordedInstance, check_fields, class_name

MAX_DEPTH: Final = 120
"""Levels of JSON that a value may have; readers of JSON stop at 200."""
_MOST_BITS: Final = 13_000
"""Python reads and writes decimal integers up to 4,300 digits, which are at least 14,280 bits."""

_STORED_NAMES: Final = {"ContextGathered": "Brought", "ApprovalRequested": "Asked"}
"""Class → its name in journals, for classes that were renamed: a stored name never changes."""
TUPLES: Final[dict[str, type[Any]]] = {
    _STORED_NAMES.get(kind.__name__, kind.__name__): kind
    for kind in (NodeResult, FailedEvaluation, FailedRouting, ErrorInfo, *RECORDS.values())
}
"""Named tuples of the engine that values may hold, by the tag's name."""
_TAGS: Final = {kind: f"${name}" for name, kind in TUPLES.items()}
_ABSENT: Final = object()
_DEFAULTS: Final[dict[type[Any], tuple[Any, ...]]] = {
    kind: tuple(kind._field_defaults.get(name, _ABSENT) for name in kind._fields)
    for kind in (*TUPLES.values(), *EVENTS.values())
}
_ATOMS: Final[frozenset[type[Any]]] = frozenset({type(None), bool, float, str})


class UnpackableError(Exception):
    """A value that has no form here; the message says what it is. Stays inside the codec."""


class TooDeepError(UnpackableError):
    """A value whose end was not reached."""

    def __init__(self) -> None:
        super().__init__(f"is nested more than {MAX_DEPTH} levels deep, or contains itself")


def pack(value: object, depth: int = 0) -> Any:
    """The value as a tree of JSON; `depth` counts the levels above it."""
    kind = type(value)
    if kind in _ATOMS or (type(value) is int and value.bit_length() < _MOST_BITS):
        return value
    if depth > MAX_DEPTH:
        raise TooDeepError
    packer = _PACKERS.get(kind)
    return packer(value, depth) if packer is not None else _pack_instance(value, kind, depth)


def pack_fields(value: tuple[Any, ...], depth: int = 0) -> list[Any]:
    """The fields of one of the engine's named tuples by position; defaults at the end are left out."""
    defaults = _DEFAULTS[type(value)]
    end = len(defaults)
    while end and value[end - 1] is defaults[end - 1]:
        end -= 1
    return [each if type(each) in _ATOMS else pack(each, depth + 1) for each in value[:end]]


def protect(tree: Any) -> Any:
    """The tree with its lone surrogates, which no encoding can carry, written as bytes."""
    if isinstance(tree, str):
        return tree if _is_text(tree) else _tagged_bytes("$text", tree.encode("utf-8", "surrogatepass"))
    if isinstance(tree, list):
        return [protect(each) for each in cast("list[Any]", tree)]
    if isinstance(tree, dict):
        entries = cast("dict[str, Any]", tree).items()
        if all(_is_text(key) for key, _ in entries):
            return {key: protect(each) for key, each in entries}
        return {"$dict": [[protect(key), protect(each)] for key, each in entries]}
    return tree


def locate(value: Any, error: UnpackableError, path: str = "") -> tuple[str, str]:
    """Returns the path and the problem of the innermost part that cannot be packed."""
    if not (path and isinstance(error, TooDeepError)):  # of a value without end, its own name says most
        for step, part in _parts(value):
            try:
                pack(part)
            except UnpackableError as inner:
                return locate(part, inner, path + step if path else step.removeprefix("."))
    return path, str(error)


# --- One function for each sort of value


def _pack_list(value: list[Any], depth: int) -> Any:
    depth += 1
    return [each if type(each) in _ATOMS else pack(each, depth) for each in value]


def _pack_dict(value: dict[Any, Any], depth: int) -> Any:
    tree: dict[str, Any] = {}
    for key, each in value.items():
        if type(key) is not str or key[:1] == "$":
            return {"$dict": [[pack(key, depth + 3), pack(each, depth + 3)] for key, each in value.items()]}
        tree[key] = each if type(each) in _ATOMS else pack(each, depth + 1)
    return tree


def _pack_zone(value: ZoneInfo, depth: int) -> Any:
    if not isinstance(value.key, str):  # pyright: ignore[reportUnnecessaryIsInstance] -- None for ZoneInfo.from_file
        raise UnpackableError("is a time zone without a name")
    return {"$zone": value.key}


def _pack_timezone(value: timezone, depth: int) -> Any:
    offset, name = value.utcoffset(None), value.tzname(None)
    return {"$timezone": [pack(offset)] if timezone(offset).tzname(None) == name else [pack(offset), name]}


def _pack_moment(value: datetime | time, depth: int) -> Any:
    """ISO 8601 without the zone, then `fold` and the zone where there are any."""
    plain = value.replace(tzinfo=None, fold=0).isoformat()
    rest = [value.fold, pack(value.tzinfo, depth + 2)] if value.fold or value.tzinfo is not None else []
    return {f"${type(value).__name__}": [plain, *rest]}


def _pack_as_list(tag: str) -> Callable[[Any, int], Any]:
    return lambda value, depth: {tag: _pack_list(value, depth + 1)}


def _pack_set(tag: str) -> Callable[[Any, int], Any]:
    """Sets in one order in every process: digests are made of what is written."""
    return lambda value, depth: {tag: sorted(_pack_list(value, depth + 1), key=lambda each: json.dumps(each))}


def _tagged_bytes(tag: str, value: bytes) -> dict[str, str]:
    return {tag: b64encode(value).decode()}


def _pack_path(value: PurePath, depth: int) -> Any:
    return {"$path": [type(value).__name__, str(value)]}


def _pack_tuple_of_ours(value: Any, depth: int) -> Any:
    if type(value) is not NodeResult:  # One a node, whose fields were looked at when its function returned it.
        _refuse_misfit(value, value)
    return {_TAGS[type(value)]: pack_fields(value, depth + 1)}


def _pack_result(value: BaseModel, depth: int) -> Any:
    field_values = [vars(value)[name] for name in type(value).model_fields]
    _refuse_misfit(value, field_values)
    return {f"${type(value).__name__}": [pack(each, depth + 2) for each in field_values]}


def _refuse_misfit(value: object, fields: Sequence[Any]) -> None:
    """Refuse what readers would take for damage: a model, or a scorer, of somebody's own may give anything."""
    try:
        check_fields(type(value), fields)
    except TypeError as error:
        raise UnpackableError(f"holds what no reader takes: {error}") from None


_PACKERS: Final[dict[type[Any], Callable[[Any, int], Any]]] = {
    int: lambda value, depth: {"$int": hex(value)},  # One of thousands of digits.
    list: _pack_list,
    FrozenList: _pack_list,
    MixedList: _pack_list,
    dict: _pack_dict,
    FrozenDict: _pack_dict,
    MixedDict: _pack_dict,
    type(EMPTY): lambda value, depth: {},
    tuple: _pack_as_list("$tuple"),
    set: _pack_set("$set"),
    frozenset: _pack_set("$frozenset"),
    bytes: lambda value, depth: _tagged_bytes("$bytes", value),
    datetime: _pack_moment,
    time: _pack_moment,
    date: lambda value, depth: {"$date": value.isoformat()},
    timedelta: lambda value, depth: {"$timedelta": [value.days, value.seconds, value.microseconds]},
    timezone: _pack_timezone,
    ZoneInfo: _pack_zone,
    TzInfo: lambda value, depth: {"$offset": value.utcoffset(None).total_seconds()},
    Decimal: lambda value, depth: {"$decimal": str(value)},
    UUID: lambda value, depth: {"$uuid": value.hex},
    FileValue: lambda value, depth: {FILE_TAG: [value.blob, value.media_type, value.name, value.size]},
    **dict.fromkeys((PurePosixPath, PureWindowsPath, PosixPath, WindowsPath), _pack_path),
    **dict.fromkeys((LLMResult, RoutingResult, EvaluationResult), _pack_result),
    **dict.fromkeys(TUPLES.values(), _pack_tuple_of_ours),
    RecordedInstance: lambda value, depth: {value.tag: [pack(each, depth + 2) for each in value.parts]},
}


# --- Instances of users' classes


def _pack_instance(value: Any, kind: type[Any], depth: int) -> Any:
    if isinstance(value, Enum):
        return {"$enum": [_name_of_class(kind), _name_of_member(value)]}
    if isinstance(value, BaseModel):
        return {"$model": [_name_of_class(kind), *_model_state(value, depth + 2)]}
    if tuple in kind.__mro__ and hasattr(kind, "_fields"):
        return {"$named": [_name_of_class(kind), _pack_list(value, depth + 2)]}
    if is_dataclass(kind) and kind.__new__ is object.__new__:
        return {"$dataclass": [_name_of_class(kind), _pack_dict(_attributes(value, _field_names(value)), depth + 2)]}
    raise UnpackableError(f"is of type {kind.__module__}.{kind.__qualname__}")


def _name_of_class(kind: type[Any]) -> str:
    name = class_name(kind)
    if name is None:
        type_arguments = getattr(kind, "__pydantic_generic_metadata__", {}).get("args")
        advice = (
            f"give it a name of its own: class Name({kind.__qualname__}): ..."
            if type_arguments
            else "define it at the top level of a module"
        )
        raise UnpackableError(
            f"is of class {kind.__module__}.{kind.__qualname__}, which cannot be found by that name again ({advice})"
        )
    return name


def _name_of_member(value: Enum) -> str | int:
    """The member's name; a combination of flags has none and goes by its number."""
    if type(value).__members__.get(str(value.name)) is value:
        return str(value.name)
    if isinstance(value, Flag):
        return value.value
    raise UnpackableError(f"is a member of {type(value).__name__} that has no name")


def _model_state(value: BaseModel, depth: int) -> Iterator[Any]:
    """Fields, and where they say something: extra fields, private attributes, the names that were set."""
    names = type(value).model_fields
    yield _pack_dict(_attributes(value, names), depth)
    rest: list[Any] = [
        value.__pydantic_extra__ or None,
        value.__pydantic_private__ or None,
        None if value.__pydantic_fields_set__ == set(names) else sorted(value.__pydantic_fields_set__),
    ]
    while rest and rest[-1] is None:
        rest.pop()
    yield from (pack(each, depth) for each in rest)


def _field_names(value: Any) -> list[str]:
    return [each.name for each in fields(value)]


def _attributes(value: object, names: Any) -> dict[str, Any]:
    """All that an instance holds, except what its cached properties can work out again."""
    attributes: dict[str, Any] = getattr(value, "__dict__", {})
    kind = type(value)
    values = {
        name: each
        for name, each in attributes.items()
        if name in names or not isinstance(getattr(kind, name, None), cached_property)
    }
    for name in names:
        if name not in values:
            if not hasattr(value, name):
                raise UnpackableError(f"is a {kind.__qualname__} whose field '{name}' was never set")
            values[name] = getattr(value, name)
    return values


def _parts(value: Any) -> Iterator[tuple[str, Any]]:
    """Yields the parts of a value, each with its step in a path."""
    if isinstance(value, dict):
        for key, each in cast("dict[Any, Any]", value).items():
            yield ".keys()", key
            yield (f".{key}" if isinstance(key, str) and key.isidentifier() else f"[{key!r}]"), each
    elif isinstance(value, tuple) and hasattr(cast("Any", value), "_fields"):
        yield from ((f".{name}", getattr(cast("Any", value), name)) for name in cast("Any", value)._fields)
    elif isinstance(value, (list, tuple, set, frozenset)):
        yield from ((f"[{index}]", each) for index, each in enumerate(cast("list[Any]", value)))
    elif isinstance(value, BaseModel):
        attributes = vars(value) | (value.__pydantic_extra__ or {}) | (value.__pydantic_private__ or {})
        yield from ((f".{name}", each) for name, each in attributes.items())
    elif is_dataclass(value) and not isinstance(value, type):
        yield from ((f".{name}", getattr(value, name, None)) for name in _field_names(value))


def _is_text(text: str) -> bool:
    if text.isascii():
        return True
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
