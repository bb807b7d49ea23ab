"""Tells what kind of data a value is, and reads one field or item of it.

Data only: mappings by key, lists and texts by index, named tuples, pydantic models and dataclasses by a
declared field. No method, property or private attribute can be reached, because nothing but a declared
field is ever asked for. A field that is not there is `Missing`; asking a number or a text for a field is
an error, so that `output.passed` of a text does not quietly count as false.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import fields, is_dataclass
from datetime import date, datetime, time
from decimal import Decimal
from enum import Enum
from functools import lru_cache, partial
from itertools import islice
from typing import Any, Final, Literal, NamedTuple, NoReturn, cast, final
from uuid import UUID

from pydantic import BaseModel

from flowengine.core.context import NodeView, NoOutputError
from flowengine.core.templating.limits import Meter
from flowengine.errors import TemplateError, did_you_mean

# --- Missing values

_LONGEST_PATH: Final = 200
_LONGEST_NAME: Final = 60
_NAMES_COMPARED: Final = 200


@final
class Missing:
    """A value that is not there: `path` as the author wrote it, and the reason where one is known.

    `excused`: the run has not made it (a node was skipped), so a condition takes it as false. Otherwise what
    should hold it exists and does not (a key of an output): in a condition that is an error.

    >>> bool(Missing("nodes.widen.output"))
    False
    >>> print(Missing("nodes.widen.output", "node 'widen' was skipped").error())
    nodes.widen.output is not there (node 'widen' was skipped); give it a default: | default(...)
    """

    __slots__ = ("_name", "_names", "excused", "path", "reason")

    def __init__(self, path: str, reason: str = "", names: Iterable[object] = (), *, excused: bool = False) -> None:
        self.path = path
        self.reason = reason
        self.excused = excused
        self._names = names
        self._name = path.rpartition(".")[2]

    def step(self, key: str | int) -> Missing:
        """The same absence, one step further: reading a field of what is not there."""
        tail = f".{key}" if isinstance(key, str) else f"[{key}]"
        further = Missing((self.path + tail)[:_LONGEST_PATH], self.reason, self._names, excused=self.excused)
        further._name = self._name
        return further

    def error(self) -> TemplateError:
        """The error of using it where a value is needed."""
        why = f" ({self.reason})" if self.reason else ""
        advice = self._nearest() or "; give it a default: | default(...)"
        return TemplateError(f"{self.path} is not there{why}{advice}")

    def _nearest(self) -> str:
        """The nearest name beside the one that is not there; long names would take long to compare."""
        names = [name for name in islice(self._names, _NAMES_COMPARED) if type(name) is str]
        return did_you_mean(self._name[:_LONGEST_NAME], [name for name in names if len(name) <= _LONGEST_NAME])

    def __bool__(self) -> bool:
        return False

    def __str__(self) -> NoReturn:
        """Printed from Python it is the same error: a prompt must never say "Missing"."""
        raise self.error()

    def __iter__(self) -> NoReturn:
        raise self.error()

    def __len__(self) -> NoReturn:
        raise self.error()

    def __repr__(self) -> str:
        return f"Missing({self.path!r})"


Kind = Literal["boolean", "enum", "list", "mapping", "missing", "null", "number", "object", "other", "scalar", "string"]

_ABSENT: Final = object()
_get = cast("Callable[[Any, Any, Any], Any]", dict.get)  # pyright: ignore[reportUnknownMemberType] - of any dict
_KEYS: Final = (str, int, float, bool, type(None))
_NEVER_SET: Final = "the field was never set"
_ENDS: Final = {"skipped": "the node was skipped", "cancelled": "the node was cancelled", "failed": "the node failed"}
_UNSEEN_ITEMS: Final = 256
_NO_FIELDS: Final[dict[str, int]] = {}


def _refuse_field(value: Any, name: str, path: str) -> NoReturn:
    raise TemplateError(f"{path}: {describe_kind(value)} has no field '{name:.60}'")


def _read_further(value: Missing, name: str, path: str) -> Missing:
    return value.step(name)


def _read_null(value: None, name: str, path: str) -> Missing:
    return Missing(path, "it is a field of null")


class Shape(NamedTuple):
    """A type's attributes, as templates see them."""

    kind: Kind
    fields: Mapping[str, int] = _NO_FIELDS
    """Declared public fields of an object, with their positions."""
    read: Callable[[Any, str], Any] = getattr
    """Reads a declared field."""
    step: Callable[[Any, str, str], Any] = _refuse_field
    """Reads what stands under a name; the last argument is the whole access as written, for messages."""


def _shape_of(kind: Any) -> Shape:
    if kind is Missing:
        return Shape("missing", step=_read_further)
    if kind is type(None):
        return Shape("null", step=_read_null)
    if issubclass(kind, Enum):
        return Shape("enum")
    for plain, name in _PLAIN:
        if issubclass(kind, plain):
            return Shape(name)
    if issubclass(kind, tuple) and (names := cast("Any", kind).__dict__.get("_fields")):
        shape = _object(names, lambda value, name: value[names.index(name)])
        return shape._replace(step=partial(_read_view, shape.step)) if kind is NodeView else shape
    if issubclass(kind, Mapping):
        return Shape("mapping", step=_read_stored if issubclass(kind, dict) else _read_computed)
    if issubclass(kind, BaseModel):
        return _object(
            tuple(kind.model_fields), lambda value, name: value.__dict__.get(name, Missing(name, _NEVER_SET))
        )
    if is_dataclass(cast("Any", kind)):
        names = tuple(each.name for each in fields(cast("Any", kind)))
        return _object(names, lambda value, name: getattr(value, name, Missing(name, _NEVER_SET)))
    if issubclass(kind, Sequence) and not issubclass(kind, (bytes, bytearray, memoryview)):
        return Shape("list")
    return Shape("other")


shape_of = cast("Callable[[Any], Shape]", lru_cache(maxsize=1024)(_shape_of))
"""The shape of the values of a type."""


_PLAIN: Final[tuple[tuple[type | tuple[type, ...], Kind], ...]] = (
    (bool, "boolean"),
    ((int, float), "number"),
    (str, "string"),
    ((date, datetime, time, Decimal, UUID), "scalar"),
)


def _object(names: tuple[str, ...], read: Callable[[Any, str], Any]) -> Shape:
    public = {name: at for at, name in enumerate(names) if not name.startswith("_")}

    def step(value: Any, name: str, path: str) -> Any:
        return read(value, name) if name in public else Missing(path, names=public)

    return Shape("object", public, read, step)


def kind_of(value: Any) -> Kind:
    """The kind of a value.

    >>> kind_of({}), kind_of("x"), kind_of(1)
    ('mapping', 'string', 'number')
    """
    return shape_of(type(value)).kind


def describe_kind(value: Any) -> str:
    """The kind of a value as a message says it."""
    kind = kind_of(value)
    if kind in ("object", "other", "scalar", "enum"):
        return f"a value of type {type(value).__name__}"
    return "null" if kind == "null" else f"a {kind}"


def read_attribute(value: Any, name: str, path: str) -> Any:
    """The field `name`; `path` is the whole access as written, for messages."""
    return shape_of(type(value)).step(value, name, path)


def _read_view(read: Callable[[NodeView, str, str], Any], view: NodeView, name: str, path: str) -> Any:
    """A node that did not succeed has no output, whatever left it empty."""
    value = read(view, name, path)
    if value is not None or name not in ("output", "result") or view.status == "succeeded":
        return value
    return Missing(path, _ends(view.status), excused=True)


def _ends(status: str) -> str:
    return _ENDS.get(status, f"the node is {status}")


def read_entry(value: Mapping[Any, Any], key: Any, path: str) -> Any:
    """The value under a key, without running what a `dict` subclass does about absent keys, and without listing
    a mapping that computes its values."""
    if not isinstance(key, _KEYS):
        raise TemplateError(f"{path}: {describe_kind(key)} cannot be a key")
    return _read_stored(value, key, path) if isinstance(value, dict) else _read_computed(value, key, path)


def _read_stored(value: Mapping[Any, Any], key: Any, path: str) -> Any:
    entry = _get(value, key, _ABSENT)
    return Missing(path, names=value) if entry is _ABSENT else entry


def _read_computed(value: Mapping[Any, Any], key: Any, path: str) -> Any:
    try:
        return value[key]
    except NoOutputError as error:
        return Missing(path, _ends(error.status), excused=True)
    except KeyError:
        return Missing(path)


def read_item(value: Any, key: Any, path: str) -> Any:
    """`value[key]` for a key that was computed."""
    kind = kind_of(value)
    if isinstance(key, Missing):
        raise key.error()
    if kind in ("list", "string"):
        if type(key) is not int:
            raise TemplateError(f"{path}: {describe_kind(value)} is read by position, not by {describe_kind(key)}")
        return value[key] if -len(value) <= key < len(value) else Missing(path, f"it has {len(value)} items")
    if isinstance(key, str):
        return read_attribute(value, str.__str__(key), path)
    if kind == "mapping":
        return read_entry(value, key, path)
    if kind == "missing":
        return cast(Missing, value).step(key if type(key) is int else "?")
    if kind == "null":
        return Missing(path, "it is an item of null")
    raise TemplateError(f"{path}: {describe_kind(value)} has no items")


def slice_of(meter: Meter, value: Any, start: Any, stop: Any, step: Any) -> Any:
    """`value[start:stop:step]` of a list or a text."""
    if isinstance(value, Missing):
        raise value.error()
    for bound in (start, stop, step):
        if bound is not None and type(bound) is not int:
            raise TemplateError(f"a slice takes whole numbers, not {describe_kind(bound)}")
    if step == 0:
        raise TemplateError("the step of a slice cannot be 0")
    kind = kind_of(value)
    cut = slice(start, stop, step)
    if kind == "string":
        meter.text(len(range(*cut.indices(len(value)))))
    elif kind == "list":
        meter.items(len(range(*cut.indices(len(value)))))
    else:
        raise TemplateError(f"{describe_kind(value)} cannot be sliced")
    return value[cut]


def read_sequence(meter: Meter, value: Any) -> Sequence[Any]:
    """The items of a value that may be walked through; paid for here, one step an item."""
    kind = kind_of(value)
    if kind == "missing":
        raise cast(Missing, value).error()
    if kind not in ("list", "string", "mapping"):
        raise TemplateError(f"{describe_kind(value)} has no items to go through")
    meter.items(len(value))
    return cast("Sequence[Any]", value) if kind == "list" else list(value)


def each_of(meter: Meter, value: Any) -> Iterator[Any]:
    """The items of such a value one by one, with a look at the clock now and then: so what is done with an item
    cannot outlive the deadline by much, even where the meter counts too little for it."""
    items = read_sequence(meter, value)
    for start in range(0, len(items), _UNSEEN_ITEMS):
        if start:
            meter.look()
        yield from items[start : start + _UNSEEN_ITEMS]
