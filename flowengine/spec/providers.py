"""The table `providers` of a project file: for each vendor its address and its limits, checked.

Which vendors there are is the model column's to say; nothing is opened or asked here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from flowengine.errors import did_you_mean
from flowengine.llm.provider import ProviderSettings, RateLimits
from flowengine.llm.vendors import ALIASES, OTHERS, VENDORS
from flowengine.spec.shapes import is_map

__all__ = ["read_providers"]

Tell = Callable[[str, str], None]
"""Takes what is wrong, and the hint that goes with it."""

_LIMITS: Final = ("requests_per_minute", "tokens_per_minute", "max_parallel")
_KEYS: Final = ("base_url", *_LIMITS)
_HINT: Final = f"; it takes {', '.join(_KEYS)}"
_NAMES: Final = [name for name in (*VENDORS, *OTHERS, *ALIASES) if name != "offline"]
"""The stand-in asks nobody, so there is nothing to say of it."""


def read_providers(table: Mapping[str, Any], tell: Tell) -> dict[str, ProviderSettings]:
    """Provider → its settings, under its own name where the file has another spelling of it."""
    found: dict[str, ProviderSettings] = {}
    for name, given in table.items():
        provider = ALIASES.get(name, name)
        if name not in _NAMES:
            tell(f"unknown provider '{name}' in `providers`", did_you_mean(name, _NAMES))
        elif not is_map(given):
            tell(f"'{name}' in `providers` is a table", "")
        elif provider in found:
            tell(f"'{name}' in `providers` is '{provider}' in another spelling; keep one of them", "")
        else:
            found[provider] = _provider(name, given, tell)
    return found


def _provider(name: str, given: Mapping[str, Any], tell: Tell) -> ProviderSettings:
    for key in given:
        if key not in _KEYS:
            tell(f"unknown key '{key}' of provider '{name}'", did_you_mean(key, _KEYS) or _HINT)
    limits = dict(_limits(name, given, tell))
    base = given.get("base_url")
    if base is not None and not _is_address(base):
        tell(f"'base_url' of provider '{name}' is an address that starts with http:// or https://", "")
        base = None
    return ProviderSettings(base, RateLimits(**limits) if limits else None)


def _limits(name: str, given: Mapping[str, Any], tell: Tell) -> Iterator[tuple[str, int]]:
    for key in _LIMITS:
        value = given.get(key)
        if type(value) is int and value >= 1:
            yield key, value
        elif value is not None:
            tell(f"'{key}' of provider '{name}' is a whole number of at least 1", "")


def _is_address(value: object) -> bool:
    return isinstance(value, str) and value.startswith(("http://", "https://"))
