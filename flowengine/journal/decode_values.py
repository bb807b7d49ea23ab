"""Decodes trees of JSON into the values they were made from: the reading half of `flowengine.journal.encode_values`.

It trusts nothing of what it reads: whatever is wrong is a `JournalError`. Users' classes are found among
those already loaded and filled without calling their constructors or validators, so that a value comes back
as it was, and so that a file cannot make code run.
"""

from __future__ import annotations

from base64 import b64decode
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import fields, is_dataclass
from datetime import date, datetime, time, timedelta, timezone
from decimal import Decimal
from enum import Enum, Flag
from inspect import getattr_static
from pathlib import PosixPath, PurePath, PurePosixPath, PureWindowsPath, WindowsPath
from types import MemberDescriptorType
from typing import Any, Final, cast
from uuid import UUID
from zoneinfo import ZoneInfo

from pydantic import BaseModel
from pydantic_core import TzInfo

from flowengine.core import (
    EvaluationResult,
    FileValue,
    LLMResult,
    RoutingResult,
    frozen_dict,
    frozen_list,
    unprefixed_name,
)
from flowengine.errors import JournalError, StoreCorruptError
from flowengine.journal.encode_values import TUPLES
from flowengine.journal.value_types import (
    FILE_TAG,
    RecordedInstance,
    check_fields,
    find_class,
    is_copying,
    is_only_looking,
)

_ATOMS: Final[frozenset[type[Any]]] = frozenset({type(None), bool, int, float, str})


def unpack(tree: Any) -> Any:
    """The value that `pack` made the tree from; lists and dicts come back frozen."""
    kind = tree.__class__
    if kind in _ATOMS:
        return tree
    if kind is list:
        return frozen_list([each if type(each) in _ATOMS else unpack(each) for each in tree])
    if len(tree) == 1:
        ((tag, content),) = tree.items()
        if tag[:1] == "$":
            return _read_tag(tag, content)
    return frozen_dict({key: each if type(each) in _ATOMS else unpack(each) for key, each in tree.items()})


def _read_tag(tag: str, content: Any) -> Any:
    reader = _READERS.get(tag)
    if reader is None:
        raise StoreCorruptError(f"'{tag}' is no known sort of value")
    return reader(unpack(content))


def _call_with_parts(make: Callable[..., Any]) -> Callable[[Any], Any]:
    return lambda parts: make(*parts)


def _read_text(encoded: str) -> str:
    return b64decode(encoded, validate=True).decode("utf-8", "surrogatepass")


def _read_datetime(plain: str, fold: int = 0, zone: Any = None) -> datetime:
    return datetime.fromisoformat(plain).replace(tzinfo=zone, fold=fold)


def _read_time(plain: str, fold: int = 0, zone: Any = None) -> time:
    return time.fromisoformat(plain).replace(tzinfo=zone, fold=fold)


_PATHS: Final[dict[str, type[PurePath]]] = {
    kind.__name__: kind for kind in (PurePosixPath, PureWindowsPath, PosixPath, WindowsPath)
}


def _read_path(kind: str, path: str) -> PurePath:
    try:
        return _PATHS[kind](path)
    except NotImplementedError as error:  # a WindowsPath elsewhere, or the other way round
        raise JournalError(f"a {kind} was recorded, which this operating system cannot make: {path}") from error


def _reader_of_model(kind: type[BaseModel]) -> Callable[[Any], Any]:
    names = tuple(kind.model_fields)

    def read(parts: Any) -> Any:
        check_fields(kind, parts)
        return _fill_model(kind, dict(zip(names, parts, strict=True)))

    return read


def _reader_of_tuple(kind: type[Any]) -> Callable[[Any], Any]:
    def read(parts: Any) -> Any:
        instance = kind(*parts)
        check_fields(kind, instance)
        return instance

    return read


# --- Instances of users' classes


def _instance_reader(tag: str, read: Callable[..., Any]) -> Callable[[Any], Any]:
    """An instance; for those who only look what it held, and for those who copy what is written."""

    def reading(parts: Any) -> Any:
        if is_copying():
            return RecordedInstance(tag, parts)
        try:
            return read(*parts)
        except JournalError:
            if is_only_looking():
                return parts[1]
            raise

    return reading


def _read_enum(name: str, member: str | int) -> Enum:
    kind, name = find_class(name, Enum), unprefixed_name(name)
    if isinstance(member, str):
        member_value = kind.__members__.get(member)
    else:
        member_value = kind(member) if issubclass(kind, Flag) else None
    if member_value is None:
        raise JournalError(f"member {member!r} of '{name}' was recorded, and '{name}' has no such member now")
    return member_value


def _read_model(name: str, state: Any, extra: Any = None, private: Any = None, was_set: Any = None) -> BaseModel:
    kind, name = find_class(name, BaseModel), unprefixed_name(name)
    _check_fields(name, kind, set(kind.model_fields), state)
    if not set(private or ()) <= set(kind.__private_attributes__):
        raise JournalError(f"'{name}' was recorded with private attributes that it does not declare")
    return _fill_model(kind, dict(state), extra, private, was_set)


def _fill_model(
    kind: type[BaseModel], state: dict[str, Any], extra: Any = None, private: Any = None, was_set: Any = None
) -> BaseModel:
    """Makes a pydantic instance from its four attributes, as unpickling does."""
    instance = object.__new__(kind)
    put = object.__setattr__
    is_root = kind.__pydantic_root_model__  # which has neither of the two, but on the class
    keeps_private = bool(kind.__private_attributes__)
    put(instance, "__dict__", state)
    put(instance, "__pydantic_fields_set__", set(kind.model_fields) if was_set is None else set(was_set))
    if not is_root:
        put(instance, "__pydantic_extra__", dict(extra or {}) if kind.model_config.get("extra") == "allow" else None)
    if keeps_private or not is_root:
        put(instance, "__pydantic_private__", dict(private or {}) if keeps_private else None)
    return instance


def _read_named(name: str, values: Any) -> Any:
    kind, name = cast("Any", find_class(name, tuple)), unprefixed_name(name)
    names: tuple[str, ...] = getattr(kind, "_fields", ())
    if len(names) != len(values):
        raise JournalError(f"'{name}' was recorded with {len(values)} fields and has {len(names)} now")
    return cast("Any", tuple).__new__(kind, values)


def _read_dataclass(name: str, state: Any) -> Any:
    kind, name = find_class(name, object), unprefixed_name(name)
    if not is_dataclass(kind) or kind.__new__ is not object.__new__:
        raise JournalError(f"a dataclass '{name}' was recorded, and '{name}' is none now")
    _check_fields(name, kind, {each.name for each in fields(kind)}, state)
    instance = object.__new__(kind)
    for field, value in state.items():
        if isinstance(getattr_static(kind, field, None), MemberDescriptorType):  # A slot.
            object.__setattr__(instance, field, value)
        else:  # Past whatever the class does when an attribute is set.
            vars(instance)[field] = value
    return instance


def _check_fields(name: str, kind: type[Any], expected: set[str], state: Any) -> None:
    """All fields are there, and nothing that the class has otherwise: a property, a method, a class of its own.

    What an instance had beside its fields (`__post_init__` may set anything) comes back as it was.
    """
    missing = sorted(expected - set(cast("dict[str, Any]", state)))
    if missing:
        raise JournalError(
            f"'{name}' was recorded without its field '{missing[0]}': "
            f"the class has changed since; restore the definition that the run was made with"
        )
    for each in state:
        if not isinstance(each, str) or (each not in expected and getattr_static(kind, each, None) is not None):
            raise JournalError(
                f"'{name}' was recorded with {each!r:.80}, which is no field of it: "
                f"restore the definition that the run was made with"
            )


_MOST_ALIKE: Final = 1_000


def _spread(items: Any, keys: Sequence[Any]) -> Any:
    """The items of a set or a dict. Of very many keys with one hash, which only strangers make: `StoreCorruptError`."""
    if len(keys) > _MOST_ALIKE and max(Counter(map(hash, keys)).values()) > _MOST_ALIKE:
        raise StoreCorruptError(f"a set or a dict was recorded with more than {_MOST_ALIKE:,} keys of one hash")
    return items


_INSTANCES: Final[dict[str, Callable[..., Any]]] = {
    "$enum": _read_enum,
    "$model": _read_model,
    "$named": _read_named,
    "$dataclass": _read_dataclass,
}
_READERS: Final[dict[str, Callable[[Any], Any]]] = {
    "$int": lambda digits: int(digits, 16),
    "$text": _read_text,
    "$dict": lambda entries: frozen_dict(_spread(entries, [key for key, _ in entries])),
    "$tuple": tuple,
    "$set": lambda items: set(_spread(items, items)),
    "$frozenset": lambda items: frozenset(_spread(items, items)),
    "$bytes": lambda encoded: b64decode(encoded, validate=True),
    "$datetime": _call_with_parts(_read_datetime),
    "$time": _call_with_parts(_read_time),
    "$date": date.fromisoformat,
    "$timedelta": _call_with_parts(timedelta),
    "$timezone": _call_with_parts(timezone),
    "$zone": ZoneInfo,
    "$offset": lambda seconds: TzInfo(int(seconds)),
    "$decimal": Decimal,
    "$uuid": lambda digits: UUID(hex=digits),
    FILE_TAG: _call_with_parts(FileValue),
    "$path": _call_with_parts(_read_path),
    **{tag: _instance_reader(tag, read) for tag, read in _INSTANCES.items()},
    **{f"${kind.__name__}": _reader_of_model(kind) for kind in (LLMResult, RoutingResult, EvaluationResult)},
    **{f"${name}": _reader_of_tuple(kind) for name, kind in TUPLES.items()},
}
