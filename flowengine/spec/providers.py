"""The table `providers` of a project file: for each vendor its address and its limits, checked.

Which vendors there are is the model column's to say; nothing is opened or asked here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from difflib import get_close_matches
from typing import Any, Final

from flowengine.errors import did_you_mean
from flowengine.llm.provider import ProviderSettings, RateLimits
from flowengine.llm.vendors import ALIASES, OTHERS, VENDORS
from flowengine.spec.shapes import is_map

__all__ = ["read_default_provider", "read_providers"]

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
            tell(f"unknown provider '{name}' in `providers`", _nearest(name))
        elif not is_map(given):
            tell(f"'{name}' in `providers` is a table", "")
        elif provider in found:
            tell(f"'{name}' in `providers` is '{provider}' in another spelling; keep one of them", "")
        else:
            found[provider] = _provider(name, given, tell)
    return found


def read_default_provider(name: str | None, tell: Tell) -> str | None:
    """The provider of that name, under its own; None where there is none."""
    if name is None or name in _NAMES:
        return name and ALIASES.get(name, name)
    tell(f"unknown provider '{name}' in `default_provider`", _nearest(name))
    return None


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


def _nearest(name: str) -> str:
    """The vendor that a name is a misspelling of, else all that there are: a server of one's own is one of them, too.

    >>> _nearest("opnai")
    "; did you mean 'openai'?"
    """
    close = get_close_matches(name, _NAMES, n=1, cutoff=0.75)
    return f"; did you mean '{close[0]}'?" if close else _KNOWN


_KNOWN: Final = (
    f"; it names a vendor, one of {', '.join(_NAMES)}. A server of your own that speaks as OpenAI does is "
    f"hosted_vllm, with its address as `base_url`"
)


def _limits(name: str, given: Mapping[str, Any], tell: Tell) -> Iterator[tuple[str, int]]:
    for key in _LIMITS:
        value = given.get(key)
        if type(value) is int and value >= 1:
            yield key, value
        elif value is not None:
            tell(f"'{key}' of provider '{name}' is a whole number of at least 1", "")


def _is_address(value: object) -> bool:
    return isinstance(value, str) and value.startswith(("http://", "https://"))
