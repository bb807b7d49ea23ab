"""The table `prices` of a project file: what models cost that no list has, or that cost something else here.

Dollars for a million tokens, as vendors' price lists have them. Which model a name means is the model
column's to say.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import isfinite
from typing import Any, Final

from flowengine.errors import did_you_mean
from flowengine.llm.pricing import Price
from flowengine.spec.shapes import is_map

__all__ = ["read_prices"]

Tell = Callable[[str, str], None]
"""Takes what is wrong, and the hint that goes with it."""

_NEEDED: Final = ("input", "output")
_KEYS: Final = (*_NEEDED, "per_call")


def read_prices(table: Mapping[str, Any], tell: Tell) -> dict[str, Price]:
    """Model, as flows write it, → its price."""
    found: dict[str, Price] = {}
    for model, given in table.items():
        if not is_map(given):
            tell(f"'{model}' in `prices` is a table with 'input' and 'output', in USD for a million tokens", "")
        elif _is_sound(model, given, tell):
            found[model] = Price(**{key: float(value) for key, value in given.items()})
    return found


def _is_sound(model: str, given: Mapping[str, Any], tell: Tell) -> bool:
    sound = True
    for key in dict.fromkeys((*_NEEDED, *given)):
        if key not in _KEYS:
            tell(f"unknown key '{key}' of the price of '{model}'", did_you_mean(key, _KEYS))
        elif key not in given:
            tell(f"the price of '{model}' lacks '{key}'", "")
        elif not _is_amount(given[key]):
            tell(f"'{key}' of the price of '{model}' is a number of at least 0", "")
        else:
            continue
        sound = False
    return sound


def _is_amount(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and isfinite(value) and value >= 0
