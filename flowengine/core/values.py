"""Freezes the values that nodes share, and names their JSON types. Knows no node and no run.

Theory of operation:

1. `freeze` takes a value in: lists and dicts become ones that refuse changes, and of every other object that could be
   changed (a pydantic model, a dataclass, a set) a copy of our own is kept.
2. `copy_mutable` gives a value out: plain data as it is, for it refuses changes; of objects that could be changed a
   copy, so that no reader sees what another one did to its own.
3. A list or dict with such objects inside is a `MixedList` or a `MixedDict`, so that both cost one look at the type
   where there are none.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from copy import deepcopy
from datetime import date, datetime, time, timedelta, timezone
from decimal import Decimal
from pathlib import PosixPath, PurePosixPath, PureWindowsPath
from typing import Any, Final, NoReturn, TypeGuard, cast
from uuid import UUID

from flowengine.core.file_values import FileValue
from flowengine.core.user_code import unprefixed_text


def _refuse(self: Any, *args: Any, **kwargs: Any) -> NoReturn:
    raise TypeError(
        "this value is shared with other nodes of the run and cannot be changed in place: "
        "change a copy (list(x), dict(x), copy.deepcopy(x)) and return it in NodeResult"
    )


class FrozenList(list[Any]):
    """A list that several nodes see: reading is as ever, changing it in place is refused."""

    __slots__ = ()
    append = extend = insert = remove = pop = clear = sort = reverse = _refuse
    __setitem__ = __delitem__ = __iadd__ = __imul__ = _refuse

    def __copy__(self) -> list[Any]:
        return list(self)

    def __deepcopy__(self, memo: dict[int, Any]) -> list[Any]:
        return [thaw(each) for each in self]

    def __reduce__(self) -> tuple[Any, ...]:
        return (list, (list(self),))


class FrozenDict(dict[str, Any]):
    """A dict that several nodes see: reading is as ever, changing it in place is refused."""

    __slots__ = ()
    update = setdefault = pop = popitem = clear = _refuse
    __setitem__ = __delitem__ = __ior__ = _refuse

    def __copy__(self) -> dict[str, Any]:
        return dict(self)

    def __deepcopy__(self, memo: dict[int, Any]) -> dict[str, Any]:
        return {key: thaw(value) for key, value in self.items()}

    def __reduce__(self) -> tuple[Any, ...]:
        return (dict, (dict(self),))


class MixedList(FrozenList):
    """A frozen list with objects in it that could be changed."""

    __slots__ = ()


class MixedDict(FrozenDict):
    """A frozen dict with objects in it that could be changed."""

    __slots__ = ()


UNCHANGEABLE: Final[frozenset[type[Any]]] = frozenset(
    {
        *(int, str, float, bool, type(None), FrozenList, FrozenDict),
        *(bytes, complex, date, datetime, time, timedelta, timezone, Decimal, UUID),
        *(PosixPath, PurePosixPath, PureWindowsPath, FileValue),
    }
)
"""Types of values that cannot be changed."""


def frozen_list(items: Iterable[Any]) -> FrozenList:
    """The list of items that are frozen already."""
    plain_list = FrozenList(items)
    return plain_list if UNCHANGEABLE.issuperset(map(type, plain_list)) else MixedList(plain_list)


def frozen_dict(entries: Mapping[Any, Any] | Iterable[tuple[Any, Any]]) -> FrozenDict:
    """The dict of entries that are frozen already."""
    plain_dict = FrozenDict(entries)
    return plain_dict if UNCHANGEABLE.issuperset(map(type, plain_dict.values())) else MixedDict(plain_dict)


def freeze(value: Any) -> Any:
    """The value as it can be shared: plain lists and dicts refuse changes, other objects are copies.

    Costs nothing for scalars and for what is frozen already. What cannot be copied passes as it is: it cannot be
    written down either, and the journal refuses it. `RecursionError` for a value that contains itself.

    >>> freeze([1, {"a": []}])
    [1, {'a': []}]
    """
    if type(value) in UNCHANGEABLE:
        return value
    try:
        return _freeze(value)
    except RecursionError:
        raise RecursionError("a value contains itself, or is nested too deep") from None


def _freeze(value: Any) -> Any:
    kind = cast(Any, type(value))
    if kind in UNCHANGEABLE or kind is MixedList or kind is MixedDict:
        return value
    if kind is list:
        return frozen_list([_freeze(each) for each in value])
    if kind is dict:
        return frozen_dict({key: _freeze(each) for key, each in value.items()})
    if kind is tuple:
        return tuple([_freeze(each) for each in cast(tuple[Any, ...], value)])
    return copy_mutable(value)


def copy_mutable(value: Any) -> Any:
    """The value with a copy of its own of each object in it that could be changed; plain data comes as it is.

    An object that stands in several places is copied for each, as it comes back from a journal.

    >>> tags = {"a"}
    >>> copy_mutable(tags) is tags, copy_mutable(tags) == tags
    (False, True)
    """
    kind = cast(Any, type(value))
    if kind in UNCHANGEABLE:
        return value
    if kind in _SEQUENCES:
        return kind([copy_mutable(each) for each in value])
    if kind in _MAPPINGS:
        return kind({key: copy_mutable(each) for key, each in value.items()})
    try:
        return deepcopy(value, _NoMemory())
    except RecursionError:  # It leads back to itself, and no journal takes it.
        with suppress(Exception):
            return deepcopy(value)
    except Exception:  # See `freeze`.
        pass
    return value


class _NoMemory(dict[int, Any]):
    """The memory of one copying, which knows nothing again; only what must stay alive meanwhile is in it."""

    def get(self, key: int, default: Any = None, /) -> Any:
        return default

    def __setitem__(self, key: int, value: Any) -> None:
        if key == id(self):
            super().__setitem__(key, value)
            return
        self.copied = getattr(self, "copied", 0) + 1
        if self.copied > _MOST_COPIED:
            raise RecursionError("it stands in too many places of itself")


_MOST_COPIED: Final = 1_000_000


_SEQUENCES: Final[frozenset[type[Any]]] = frozenset({MixedList, list, tuple, set, frozenset})
_MAPPINGS: Final[frozenset[type[Any]]] = frozenset({MixedDict, dict})


def thaw(value: Any) -> Any:
    """A deep, changeable copy of a frozen value."""
    if isinstance(value, list):
        return [thaw(each) for each in cast(list[Any], value)]
    if isinstance(value, dict):
        return {key: thaw(each) for key, each in cast(dict[Any, Any], value).items()}
    return copy_mutable(value)


def describe_value(value: object) -> str:
    """A value as messages show it: its type, and the beginning of its `repr`.

    >>> describe_value("abc"), describe_value(None)
    ("str 'abc'", 'None')
    """
    return "None" if value is None else f"{type(value).__name__} {brief_repr(value, 60):.60}"


def cut_text(text: str, most: int) -> str:
    """The text, or where it has more than `most` characters its beginning and `…`.

    >>> cut_text("abc", 3), cut_text("abcd", 3)
    ('abc', 'ab…')
    """
    return text if len(text) <= most else f"{text[: most - 1]}…"


def brief_repr(value: object, most: int) -> str:
    """A value's `repr`, which ends with `…` and takes no more work than that where it has more than `most` characters.

    Modules have their plain names in it, and a `repr` that fails is told of.

    >>> brief_repr([1, {"a": "b"}], 60), brief_repr(list(range(10**6)), 9)
    ("[1, {'a': 'b'}]", '[0, 1, 2,…')
    """
    text = ""
    for piece in _repr_pieces(value, most):
        text += piece
        if len(text) > most:
            return f"{text[:most]}…"
    return text


_LIST_REPR: Final[Any] = cast(Any, list).__repr__
_DICT_REPR: Final[Any] = cast(Any, dict).__repr__


def _repr_pieces(value: Any, most: int) -> Iterator[str]:
    """Parts of a `repr`, from its beginning; the reader stops where it has enough."""
    method: Any = type(value).__repr__
    if method is _LIST_REPR:
        yield "["
        for number, each in enumerate(value):
            yield ", " if number else ""
            yield from _repr_pieces(each, most)
        yield "]"
    elif method is _DICT_REPR:
        yield "{"
        for number, (key, each) in enumerate(value.items()):
            yield ", " if number else ""
            yield from _repr_pieces(key, most)
            yield ": "
            yield from _repr_pieces(each, most)
        yield "}"
    elif method is str.__repr__ or method is bytes.__repr__:
        yield repr(value[: most + 1])
    else:
        try:
            yield unprefixed_text(repr(value))
        except Exception as problem:
            yield f"<{type(value).__name__} whose `repr` raised {type(problem).__name__}>"


_JSON_TYPES: Final[Mapping[str, tuple[type, ...]]] = {
    "string": (str,),
    "number": (int, float),
    "integer": (int,),
    "boolean": (bool,),
    "array": (list, tuple),
    "object": (dict,),
    "file": (FileValue,),
}


def is_json_type(value: object, kind: str) -> bool:
    """Tells whether a value is of a JSON type, or a `file`; a boolean is no number.

    >>> is_json_type(1, "number"), is_json_type(True, "integer")
    (True, False)
    """
    return isinstance(value, _JSON_TYPES[kind]) and (kind == "boolean" or not isinstance(value, bool))


def number_key(value: int | float) -> str:
    """A text that equal numbers share, and by which they are looked up.

    Strangers can choose numbers of one and the same hash, among which each look-up takes as long as there are numbers;
    they cannot foresee the hash of a text.

    >>> number_key(1) == number_key(1.0) == number_key(True), number_key(0.5), hash(2**61 - 1)
    (True, '0x1.0000000000000p-1', 0)
    """
    if isinstance(value, float) and not value.is_integer():
        return value.hex()
    return hex(int(value))


def is_one_of(value: object, allowed: Iterable[object]) -> bool:
    """Tells whether a value is among others, as JSON has them: `true` is not 1.

    >>> is_one_of(1.0, [1, 2]), is_one_of(True, [1, 2])
    (True, False)
    """
    return any(value == each and isinstance(value, bool) is isinstance(each, bool) for each in allowed)


# --- Labels of routes and choices


def label_key(label: str, *, in_any_case: bool = False) -> str:
    """Normalizes a label: surrounding spaces removed, letters composed (NFC)."""
    text = unicodedata.normalize("NFC", label.strip())
    return unicodedata.normalize("NFC", text.casefold()) if in_any_case else text


def find_label(answer: str, labels: Iterable[str], *, in_any_case: bool = False) -> str | None:
    """The label that an answer names, written as it was declared; None where it names none.

    >>> find_label("Cafe\u0301", ["tea", "Caf\u00e9"])
    'Café'
    """
    names = list(labels)
    if answer in names:
        return answer
    keys = {label_key(each, in_any_case=in_any_case): each for each in names}
    return keys.get(label_key(answer, in_any_case=in_any_case))


def is_map(value: Any) -> TypeGuard[dict[str, Any]]:
    """Tells whether a value of a file is a map; its keys are strings already."""
    return isinstance(value, dict)
