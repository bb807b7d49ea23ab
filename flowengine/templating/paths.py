"""Reading a name and the fields after it: `nodes.plan.output.questions`, in one closure for the whole path."""

from __future__ import annotations

from typing import Any, Final

from flowengine.templating.access import attribute, item
from flowengine.templating.frame import UNSET, Closure, Frame, Slot
from flowengine.templating.undefined import Missing
from flowengine.values import FrozenDict, MixedDict

__all__ = ["computed_path", "local_path", "outer_path"]

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
        for key, text in steps:
            value = _step(value, key, text)
        return value

    return evaluate


def local_path(slot: Slot, steps: tuple[Step, ...]) -> Closure:
    """A path that starts at one of the template's own names."""
    name, at = slot

    def evaluate(frame: Frame) -> Any:
        value = frame.slots[at]
        if value is UNSET:
            value = Missing(name, "the branch that sets it was not taken", excused=True)
        for key, text in steps:
            value = _step(value, key, text)
        return value

    return evaluate


def computed_path(start: Closure, steps: tuple[Step, ...]) -> Closure:
    """A path that starts at a computed value."""

    def evaluate(frame: Frame) -> Any:
        value = start(frame)
        for key, text in steps:
            value = _step(value, key, text)
        return value

    return evaluate


def _step(value: Any, key: str | int, text: str) -> Any:
    if type(value) in _DICTS:
        found = value.get(key, _ABSENT)
        return Missing(text, known=value) if found is _ABSENT else found
    return attribute(value, key, text) if type(key) is str else item(value, key, text)
