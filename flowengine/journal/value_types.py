"""Checks what the engine's own events, records and results hold, by their annotations, when they are read.

A journal may come from elsewhere. Its readers (pictures, pages, a resumed run) rely on the types that the classes
declare, and on times that are dates. Values of flows are anything; they are not looked into.
"""

from __future__ import annotations

import sys
import types
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache
from types import ModuleType
from typing import Any, Final, Literal, TypeAlias, Union, cast, get_args, get_origin, get_type_hints

from flowengine.core import current_name, unprefixed_name
from flowengine.errors import JournalError, StoreCorruptError

FILE_TAG: Final = "$file"
"""The key under which a record has a file (`flowengine.journal.encode_values`)."""

# --- Names of users' classes

_looking: Final = ContextVar("only_looking", default=False)


@contextmanager
def only_looking() -> Generator[None]:
    """For code that shows a run and does not go on with it: a value whose class is not loaded, or has changed
    since, comes as what it held (the fields of a model as a dict, the name of an enum's member)."""
    token = _looking.set(True)
    try:
        yield
    finally:
        _looking.reset(token)


def is_only_looking() -> bool:
    return _looking.get()


class RecordedInstance:
    """An instance of a user's class as it is written down: for those who copy a run, and need not know the class."""

    def __init__(self, tag: str, parts: Any) -> None:
        self.tag = tag
        self.parts = parts


_copying: Final = ContextVar("copying_values", default=False)


@contextmanager
def copying_values() -> Generator[None]:
    """For code that writes a run down again: instances of users' classes come as `RecordedInstance`, whether their
    classes are loaded or not, and are written as they were."""
    token = _copying.set(True)
    try:
        yield
    finally:
        _copying.reset(token)


def is_copying() -> bool:
    return _copying.get()


def class_name(kind: type[Any]) -> str | None:
    """`module:QualName`, or None where that name does not lead back to the class.

    >>> from decimal import Decimal
    >>> class_name(Decimal)
    'decimal:Decimal'
    >>> class_name(type("Made", (), {})) is None
    True
    """
    return f"{kind.__module__}:{kind.__qualname__}" if _lookup(kind.__module__, kind.__qualname__) is kind else None


def find_class(name: str, family: type[Any]) -> type[Any]:
    """The loaded class of that name; it must be a subclass of `family`."""
    module, _, qualname = name.partition(":")
    kind = _lookup(module, qualname) or _lookup(current_name(module), qualname) or _lookup_elsewhere(module, qualname)
    plain = unprefixed_name(name)
    if kind is None:
        raise JournalError(
            f"a value of class '{plain}' was recorded and there is no such class now: "
            f"import the module that defines '{plain}' before reading this run"
        )
    if not isinstance(kind, type) or not issubclass(kind, family):
        raise JournalError(
            f"a value of class '{plain}' was recorded, but '{plain}' is not a class of that sort now; "
            f"restore the definition that the run was made with"
        )
    return cast("type[Any]", kind)


def _lookup_elsewhere(module: str, qualname: str) -> object:
    """What the name leads to where the project lies in another folder than when it was recorded, or is imported by
    the program around; None where it leads nowhere or to several."""
    plain = unprefixed_name(module)
    same = [each for each in list(sys.modules) if unprefixed_name(each) == plain]
    classes_by_id = {id(each): each for name in same if (each := _lookup(name, qualname)) is not None}
    return next(iter(classes_by_id.values())) if len(classes_by_id) == 1 else None


def _lookup(module: str, qualname: str) -> object:
    """Resolves a name through `__dict__` alone; None if it does not exist."""
    place: object = sys.modules.get(module)
    for part in qualname.split("."):
        if not isinstance(place, (type, ModuleType)):
            return None
        place = vars(place).get(part)
    return place


_LATEST: Final = 253_402_300_799
"""Unix seconds of the end of the year 9999, after which there are no dates."""
_DEEPEST: Final = 64

_LARGEST: Final = sys.float_info.max
"""No infinity, and no integer that is no float any more."""

Fits: TypeAlias = Callable[[Any], bool]


def check_fields(kind: type[Any], values: Sequence[Any]) -> None:
    """`TypeError` where a value cannot be that of its field; `values` are in the order of the class's fields."""
    for (name, fits), value in zip(_fields_of(kind), values, strict=True):
        if fits is not None and not fits(value):
            raise TypeError(f"'{name}' of {kind.__name__} cannot be {value!r:.80}")


def check_graph(graph: Any, depth: int = 0) -> None:
    """`TypeError` where a picture's skeleton is none (`RunStarted.graph`)."""
    nodes, edges = graph.get("nodes", ()), graph.get("edges", ())
    state, most = graph.get("state", {}), graph.get("most")
    names = {each[0] for each in nodes if _is_node(each)} if _is_list(nodes) else set[str]()
    if not (_is_list(nodes) and all(map(_is_node, nodes)) and len(names) == len(nodes) and depth < _DEEPEST):
        raise TypeError(f"these are no nodes of a graph: {nodes!r:.80}")
    if not (_is_list(edges) and all(_is_edge(each, names) for each in edges)):
        raise TypeError(f"these are no edges of a graph: {edges!r:.80}")
    if not (isinstance(state, Mapping) and all(map(_is_rule, cast("Mapping[str, Any]", state).values()))):
        raise TypeError(f"these are no rules of a state: {state!r:.80}")
    if not (most is None or type(most) is int):
        raise TypeError(f"this is no number of rounds: {most!r:.80}")
    for each in nodes:
        if len(each) > 2:
            check_graph(each[2], depth + 1)


def _is_list(value: Any) -> bool:
    return isinstance(value, list | tuple)


def _is_node(value: Any) -> bool:
    if not _is_list(value) or not 2 <= len(value) <= 3:
        return False
    return isinstance(value[0], str) and isinstance(value[1], str) and (len(value) < 3 or isinstance(value[2], Mapping))


def _is_rule(value: Any) -> bool:
    return _is_list(value) and len(value) == 2


def _is_edge(value: Any, names: set[str]) -> bool:
    if not _is_list(value) or len(value) != 3 or not _is_list(value[2]):
        return False
    ends = isinstance(value[0], str) and isinstance(value[1], str) and {value[0], value[1]} <= names
    return ends and all(isinstance(each, str) for each in value[2])


@cache
def _fields_of(kind: type[Any]) -> Sequence[tuple[str, Fits | None]]:
    hints = get_type_hints(kind)
    names = cast("Sequence[str]", getattr(kind, "_fields", None) or getattr(kind, "model_fields", ()))
    return [(name, _is_time if name == "at" else _checker_of(hints[name])) for name in names]


def _checker_of(hint: Any) -> Fits | None:
    """Returns a check of a type's values; None if any value is allowed."""
    origin, inner = get_origin(hint), get_args(hint)
    if hint is Any:
        return None
    if origin is Literal:
        return lambda value: isinstance(value, str) and value in inner
    if origin in (Union, types.UnionType):
        return _any_of([_checker_of(each) for each in inner])
    if origin is not None and issubclass(origin, Mapping):
        return _mapping(*map(_checker_of, inner))
    if origin is not None and issubclass(origin, Sequence):
        return _sequence(_checker_of(inner[0]))
    return _SIMPLE.get(hint) or (lambda value: isinstance(value, hint))


def _any_of(choices: Sequence[Fits | None]) -> Fits | None:
    checks = [each for each in choices if each is not None]
    return (lambda value: any(each(value) for each in checks)) if len(checks) == len(choices) else None


def _mapping(key: Fits | None, value: Fits | None) -> Fits:
    def fits(candidate: Any) -> bool:
        if not isinstance(candidate, Mapping):
            return False
        items = cast("Mapping[Any, Any]", candidate)
        return (key is None or all(map(key, items))) and (value is None or all(map(value, items.values())))

    return fits


def _sequence(item: Fits | None) -> Fits:
    return lambda value: _is_list(value) and (item is None or all(map(item, value)))


def _is_time(value: Any) -> bool:
    return _is_number(value) and 0 <= value <= _LATEST


def _is_number(value: Any) -> bool:
    return type(value) in (int, float) and -_LARGEST <= value <= _LARGEST


_SIMPLE: Final[dict[Any, Fits]] = {
    str: lambda value: isinstance(value, str),
    bool: lambda value: type(value) is bool,
    int: lambda value: type(value) is int,
    float: _is_number,
    type(None): lambda value: value is None,
}


# --- Errors of unreadable records

_DAMAGE: Final = (ArithmeticError, AssertionError, AttributeError, LookupError, RecursionError, TypeError, ValueError)
"""The errors of code that reads a broken record as if it were sound."""


@contextmanager
def reading_record(run_id: str = "") -> Generator[None]:
    """Raises errors inside the block as `StoreCorruptError` with the run's name."""
    try:
        yield
    except _DAMAGE as error:
        name = f"of run {run_id} " if run_id else ""
        problem = f"{type(error).__name__}: {error}"
        raise StoreCorruptError(f"the record {name}does not fit together ({problem:.200})") from error
