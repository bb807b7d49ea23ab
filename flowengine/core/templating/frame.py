"""Carries the state of one evaluation: the scope, the template's own names, the fuel and the text made so far."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, NamedTuple, Protocol

from flowengine.core.templating.access import Missing, read_item, shape_of
from flowengine.core.templating.limits import FUEL, MAX_TEXT, UNSEEN, Meter
from flowengine.core.values import FrozenDict, MixedDict
from flowengine.errors import TemplateError

UNSET: Final = object()
"""In the slot of a name that no `set` has reached yet."""


class Scope(Protocol):
    """The outer names of a template: `inputs`, `nodes`, `shared_state`, …

    It is only ever asked for one name at a time and never listed, so it may compute values when they are
    asked for. An unknown name is a `KeyError`; every other error passes through to the caller.
    """

    def __getitem__(self, name: str, /) -> Any: ...


class Frame(Meter):
    """One evaluation."""

    __slots__ = ("out", "readings", "room", "scope", "slots")

    out: list[str]
    room: int
    slots: list[Any]

    def __init__(self, scope: Scope, readings: dict[str, str] | None = None) -> None:
        """`readings`: where the values that are read are told, for a reader of the decision."""
        self.left, self.pause = FUEL, FUEL - UNSEEN  # As a meter begins; one call less for each expression.
        self.scope = scope
        self.readings = readings

    def begin_text(self, slots: int) -> None:
        """Make room for a template's text and its own names; an expression has neither."""
        self.slots = [UNSET] * slots
        self.out = []
        self.room = MAX_TEXT

    def emit(self, text: str) -> None:
        """Append to the template's text."""
        self.room -= len(text)
        if self.room < 0:
            raise TemplateError(f"the template makes a text of more than {MAX_TEXT:,} characters")
        self.out.append(text)


Closure = Callable[[Frame], Any]
"""A piece of a template, compiled: a function of the evaluation."""


class Loop(NamedTuple):
    """`loop` in the body of a `for`."""

    index: int  # pyright: ignore[reportIncompatibleMethodOverride] - the name that templates know
    index0: int
    revindex: int
    revindex0: int
    first: bool
    last: bool
    length: int
    previtem: Any
    nextitem: Any
    depth: int = 1  # Loops that call themselves are refused.
    depth0: int = 0


class Slot(NamedTuple):
    """The place of a value of the template's own names."""

    name: str
    at: int
    outer: Slot | None
    """The slot that the name means while no `set` has reached it; None for the outer name."""


class Bindings:
    """The template's own names while it is compiled, block by block.

    Only a `set` under an `if` may be passed by: until one is reached, its name means what it meant before.
    """

    def __init__(self) -> None:
        self.count = 0
        self.read: set[int] = set()
        self._blocks: list[dict[str, Slot]] = [{}]

    def open(self) -> None:
        self._blocks.append({})

    def close(self) -> None:
        self._blocks.pop()

    def declare(self, name: str) -> Slot:
        """The slot of a name in the innermost block; a new one the first time."""
        block = self._blocks[-1]
        if name not in block:
            block[name] = Slot(name, self.count, self.find(name))
            self.count += 1
        return block[name]

    def find(self, name: str) -> Slot | None:
        """The slot that a name means here; None for an outer name."""
        for block in reversed(self._blocks):
            if name in block:
                self.read.add(block[name].at)
                return block[name]
        return None


# --- Names and the fields after them

Step = tuple[str | int, str]
"""A field or a position, and the text of the path up to it."""

_ABSENT: Final = object()
_DICTS: Final = frozenset({dict, FrozenDict, MixedDict})


def outer_path(name: str, steps: tuple[Step, ...]) -> Closure:
    """A path that starts at a name of the scope."""

    def evaluate(frame: Frame) -> Any:
        try:
            value = frame.scope[name]
        except KeyError:
            value = Missing(name, "no such name")
        return follow(value, steps)

    return evaluate


def local_path(slot: Slot, steps: tuple[Step, ...]) -> Closure:
    """A path that starts at one of the template's own names."""
    at = slot.at

    def evaluate(frame: Frame) -> Any:
        value = frame.slots[at]
        return follow(_value_before(frame, slot) if value is UNSET else value, steps)

    return evaluate


def _value_before(frame: Frame, slot: Slot) -> Any:
    """The value of a name whose `set` was passed by."""
    while slot.outer is not None:
        slot = slot.outer
        if (value := frame.slots[slot.at]) is not UNSET:
            return value
    try:
        return frame.scope[slot.name]
    except KeyError:
        return Missing(slot.name, "the branch that sets it was not taken", excused=True)


def computed_path(start: Closure, steps: tuple[Step, ...]) -> Closure:
    """A path that starts at a computed value."""
    return lambda frame: follow(start(frame), steps)


def follow(value: Any, steps: tuple[Step, ...]) -> Any:
    """Returns the value at the end of a path of fields and positions."""
    for key, text in steps:
        if type(value) in _DICTS:
            entry = value.get(key, _ABSENT)
            value = Missing(text, names=value) if entry is _ABSENT else entry
        elif type(key) is str:
            value = shape_of(type(value)).step(value, key, text)
        else:
            value = read_item(value, key, text)
    return value
