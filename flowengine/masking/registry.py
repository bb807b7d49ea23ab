"""Recognizers by name: the built-in ones, those that are registered here, and those of installed packages.

A package offers its own under the entry point group `flowengine.masking`: a name, and a function that makes one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib.metadata import entry_points
from typing import Final

from flowengine.errors import DefinitionError, did_you_mean
from flowengine.masking import patterns
from flowengine.masking.recognizer import Recognizer

__all__ = ["BUILT_IN", "DEFAULT", "known", "recognizers", "register"]

BUILT_IN: Final[dict[str, tuple[Recognizer, ...]]] = {
    "private_key": (patterns.PRIVATE_KEY,),
    "jwt": (patterns.JWT,),
    "key": patterns.KEY,
    "mail": patterns.MAIL,
    "ip": patterns.IP,
    "card": patterns.CARD,
    "phone": patterns.PHONE,
}
"""Where two find the same text, the earlier one names it."""

DEFAULT: Final[tuple[Recognizer, ...]] = tuple(each for found in BUILT_IN.values() for each in found)

_GROUP: Final = "flowengine.masking"
_made: Final[dict[str, Callable[[], Recognizer]]] = {}


def register(name: str, make: Callable[[], Recognizer]) -> None:
    """Make a recognizer known by name, for this process. A name that is taken is a `DefinitionError`."""
    if name in BUILT_IN or name in _made:
        raise DefinitionError(f"there is a recognizer named '{name}' already")
    _made[name] = make


def recognizers(names: Sequence[str]) -> tuple[Recognizer, ...]:
    """The recognizers of these names, in this order; an unknown one is a `DefinitionError`.

    >>> len(recognizers(["jwt"]))
    1
    """
    return tuple(each for name in names for each in _of(name))


def known() -> list[str]:
    """All names that `recognizers` takes."""
    return [*BUILT_IN, "presidio", *_made, *(each.name for each in entry_points(group=_GROUP))]


def _of(name: str) -> tuple[Recognizer, ...]:
    if name in BUILT_IN:
        return BUILT_IN[name]
    if name == "presidio":
        from flowengine.masking.presidio import PresidioRecognizer  # An extra that few have.

        return (PresidioRecognizer(),)
    if name in _made:
        return (_made[name](),)
    for each in entry_points(group=_GROUP, name=name):
        return (each.load()(),)
    raise DefinitionError(f"there is no recognizer '{name}'{did_you_mean(name, known())}")
