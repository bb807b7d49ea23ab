"""Checks values against annotations of functions, for programs that no type checker has looked at.

It knows text, numbers, lists, mappings, functions and classes, alone and in unions; what else an annotation says, or
what is there for type checkers only, lets every value pass. It knows no argument's name and no range.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from inspect import unwrap
from types import NoneType, SimpleNamespace, UnionType
from typing import Any, Final, Literal, Union, cast, get_args, get_origin, get_type_hints

from flowengine.core.values import describe_value, is_json_type, is_one_of
from flowengine.errors import DefinitionError, did_you_mean


def check_arguments(
    function: Callable[..., Any], arguments: Mapping[str, Any], error: Callable[[str], Exception] = DefinitionError
) -> None:
    """Raise `error` for the first value of `arguments` that is of another kind than the function's annotation says.

    >>> def wait(seconds: float | None, how: Literal["idle", "busy"] = "idle") -> None: ...
    >>> check_arguments(wait, {"seconds": "5"})
    Traceback (most recent call last):
    flowengine.errors.DefinitionError: seconds must be a number or None, not str '5'
    >>> check_arguments(wait, {"seconds": 5, "how": "busi"})
    Traceback (most recent call last):
    flowengine.errors.DefinitionError: how must be 'idle' or 'busy', not str 'busi'; did you mean 'busy'?
    """
    for name, kind in _kinds_of(function).items():
        if name in arguments and not kind.fits(arguments[name]):
            value = arguments[name]
            near = did_you_mean(value, kind.choices) if isinstance(value, str) else ""
            raise error(f"{name} must be {kind.one}, not {describe_value(value)}{near}")


@dataclass(frozen=True, slots=True)
class _Kind:
    """The kind of value that an annotation asks for."""

    fits: Callable[[Any], bool]
    one: str
    many: str
    choices: tuple[str, ...] = ()
    """The texts that alone are taken."""


@cache
def _kinds_of(function: Callable[..., Any]) -> Mapping[str, _Kind]:
    """The argument's name → its kind, of those that can be checked."""
    kinds: dict[str, _Kind] = {}
    names = vars(sys.modules[function.__module__]) if isinstance(function, type) else unwrap(function).__globals__
    for name, annotation in function.__annotations__.items():
        try:
            hints = get_type_hints(SimpleNamespace(__annotations__={name: annotation}), names)
        except NameError:  # Imported for type checkers only.
            continue
        if name != "return" and (kind := _kind_of(hints[name])) is not None:
            kinds[name] = kind
    return kinds


_NONE: Final = _Kind(lambda value: value is None, "None", "None")
_TEXT: Final = _Kind(lambda value: isinstance(value, str), "a text", "texts")
_PLAIN: Final[Mapping[Any, _Kind]] = {
    NoneType: _NONE,
    str: _TEXT,
    bool: _Kind(lambda value: isinstance(value, bool), "true or false", "true or false"),
    int: _Kind(lambda value: is_json_type(value, "integer"), "a whole number", "whole numbers"),
    float: _Kind(lambda value: is_json_type(value, "number"), "a number", "numbers"),
}


def _kind_of(hint: Any) -> _Kind | None:
    """None where any value passes."""
    origin, arguments = get_origin(hint), get_args(hint)
    kind: Any = hint if origin is None else origin
    if kind in _PLAIN:
        return _PLAIN[kind]
    if kind is Union or kind is UnionType:
        return _union_of([_kind_of(each) for each in arguments])
    if kind is Literal:
        words = _in_words([repr(each) for each in arguments])
        return _Kind(lambda value: is_one_of(value, arguments), words, words, tuple(map(str, arguments)))
    if kind is Callable:
        return _Kind(callable, "a function", "functions")
    if kind is Mapping:
        return _mapping_of(*map(_kind_of, arguments))
    if kind is Sequence or kind is Collection:
        return _sequence_of(*map(_kind_of, arguments))
    if not isinstance(kind, type) or kind in (Any, object) or not _can_be_asked(kind):
        return None
    name = kind.__name__
    return _Kind(lambda value: isinstance(value, kind), f"{_article(name)} {name}", name)


def _can_be_asked(kind: type[Any]) -> bool:
    """Whether `isinstance` can tell its values."""
    return not getattr(kind, "_is_protocol", False) or getattr(kind, "_is_runtime_protocol", False)


def _union_of(kinds: Sequence[_Kind | None]) -> _Kind | None:
    plain_kinds = [each for each in kinds if each is not None]
    if len(plain_kinds) < len(kinds):
        return None
    return _Kind(
        lambda value: any(each.fits(value) for each in plain_kinds),
        _in_words([each.one for each in plain_kinds]),
        _in_words([each.many for each in plain_kinds]),
        tuple(choice for each in plain_kinds for choice in each.choices),
    )


def _sequence_of(item: _Kind | None = None) -> _Kind:
    """Also sets and views; of an iterator, which can be read only once, the items pass unseen."""

    def fits(value: Any) -> bool:
        if not isinstance(value, Collection | Iterator) or isinstance(value, str | bytes | Mapping):
            return False
        return item is None or isinstance(value, Iterator) or all(map(item.fits, cast("Collection[Any]", value)))

    of = "" if item is None else f" of {item.many}"
    return _Kind(fits, f"a list{of}", f"lists{of}")


def _mapping_of(key: _Kind | None = None, entry: _Kind | None = None) -> _Kind:
    def fits(value: Any) -> bool:
        if not isinstance(value, Mapping):
            return False
        entries = cast("Mapping[Any, Any]", value)
        return (key is None or all(map(key.fits, entries))) and (
            entry is None or all(map(entry.fits, entries.values()))
        )

    to = "" if key is None else f" of {key.many} to {'values' if entry is None else entry.many}"
    return _Kind(fits, f"a mapping{to}", f"mappings{to}")


def _in_words(names: Sequence[str]) -> str:
    """The names as a choice in words.

    >>> _in_words(["a text", "a number", "None"])
    'a text, a number or None'
    """
    return f"{', '.join(names[:-1])} or {names[-1]}" if len(names) > 1 else names[0]


def _article(name: str) -> str:
    return "an" if name[0] in "AEIOU" else "a"
