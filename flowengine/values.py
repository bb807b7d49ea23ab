"""Values as nodes share them: lists and dicts that refuse to be changed in place, and what JSON calls them.

It knows no node and no run.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NoReturn, cast

__all__ = ["FrozenDict", "FrozenList", "freeze", "is_json_type", "shown", "thaw"]


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


_ATOMS: Final = frozenset({int, str, float, bool, type(None), FrozenList, FrozenDict})


def freeze(value: Any) -> Any:
    """The value with every plain list and dict in it replaced by one that refuses changes.

    Costs nothing for scalars and for what is frozen already; other objects pass as they are.

    >>> freeze([1, {"a": []}])
    [1, {'a': []}]
    """
    kind = cast(Any, type(value))
    if kind in _ATOMS:
        return value
    if kind is list:
        return FrozenList([freeze(each) for each in value])
    if kind is dict:
        return FrozenDict({key: freeze(each) for key, each in value.items()})
    if kind is tuple:
        return tuple([freeze(each) for each in cast(tuple[Any, ...], value)])
    return value


def thaw(value: Any) -> Any:
    """A deep, changeable copy of a frozen value."""
    if isinstance(value, list):
        return [thaw(each) for each in cast(list[Any], value)]
    if isinstance(value, dict):
        return {key: thaw(each) for key, each in cast(dict[Any, Any], value).items()}
    return value


def shown(value: object) -> str:
    """A value as messages show it: its type, and the beginning of its `repr`.

    >>> shown("abc")
    "str 'abc'"
    """
    return f"{type(value).__name__} {value!r:.60}"


_JSON_TYPES: Final[Mapping[str, tuple[type, ...]]] = {
    "string": (str,),
    "number": (int, float),
    "integer": (int,),
    "boolean": (bool,),
    "array": (list, tuple),
    "object": (dict,),
}


def is_json_type(value: object, kind: str) -> bool:
    """Whether a value is of a JSON type; a boolean is no number.

    >>> is_json_type(1, "number"), is_json_type(True, "integer")
    (True, False)
    """
    return isinstance(value, _JSON_TYPES[kind]) and (kind == "boolean" or not isinstance(value, bool))
