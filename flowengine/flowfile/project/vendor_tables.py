"""Reads the table `providers` of a project file: for each vendor its address and its limits, checked.

Which vendors there are is the model column's to say; nothing is opened or asked here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from sys import float_info
from typing import Any, Final
from urllib.parse import urlsplit

from flowengine.core import is_map
from flowengine.errors import did_you_mean, find_nearest
from flowengine.flowfile.project.toml_positions import TellProblem
from flowengine.models import (
    ALIASES,
    Price,
    ProviderSettings,
    RateLimits,
    find_key_command_problem,
    find_variable_problem,
    is_stand_in,
    is_vendor,
    split_command,
    vendor_names,
)
from flowengine.models.http import STRUCTURED_OUTPUTS, is_native

# --- The table `prices` of a project file


_NEEDED: Final = ("input", "output")
_KEYS: Final = (*_NEEDED, "per_call", "cache_read", "cache_write")


def read_prices(table: Mapping[str, Any], tell: TellProblem) -> dict[str, Price]:
    """Model, as flows write it, → its price."""
    prices: dict[str, Price] = {}
    for model, entry in table.items():
        vendor, _, rest = model.partition("/")
        if not model.strip() or (rest and not is_vendor(vendor) and is_vendor(vendor.lower())):
            message = f"'{model}' in `prices` is no model as flows write it"
            tell(message, f"; did you mean '{vendor.lower()}/{rest}'?" if rest else "", ("prices", model))
        elif not is_map(entry):
            message = f"'{model}' in `prices` is a table with 'input' and 'output', in USD for a million tokens"
            tell(message, "", ("prices", model))
        elif _is_sound(model, entry, tell):
            prices[model] = Price(**{key: float(value) for key, value in entry.items()})
    return prices


def _is_sound(model: str, price: Mapping[str, Any], tell: TellProblem) -> bool:
    sound = True
    for key in dict.fromkeys((*_NEEDED, *price)):
        if key not in _KEYS:
            tell(f"unknown key '{key}' of the price of '{model}'", did_you_mean(key, _KEYS), ("prices", model, key))
        elif key not in price:
            tell(f"the price of '{model}' lacks '{key}'", "", ("prices", model))
        elif not _is_amount(price[key]):
            tell(f"'{key}' of the price of '{model}' is a number of at least 0", "", ("prices", model, key))
        else:
            continue
        sound = False
    return sound


def _is_amount(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value <= float_info.max


def find_address_problem(value: object) -> str | None:
    """Says what is expected where the value is no address that requests can go to.

    >>> [find_address_problem(each) is None for each in ("https://a.com/v1", "http://", "http://a:99999", "http://a b")]
    [True, False, False, False]
    """
    if not (isinstance(value, str) and value.startswith(("http://", "https://"))):
        return "an address that starts with http:// or https://"
    try:
        parts = urlsplit(value)
        is_sound = bool(parts.hostname) and parts.port != 0 and not (parts.query or parts.fragment)
    except ValueError:
        is_sound = False
    is_sound = is_sound and value.isprintable() and " " not in value
    return None if is_sound else "an address like https://host:8000/v1, without a query"


def choose_from(words: Sequence[str]) -> Callable[[object], str | None]:
    """Makes a check of a value that is one of some words."""
    return lambda value: None if isinstance(value, str) and value in words else f"one of {', '.join(words)}"


def _find_limit_problem(value: object) -> str | None:
    return None if type(value) is int and value >= 1 else "a whole number of at least 1"


def find_doubled_key(table: Mapping[str, Any], whose: str) -> str | None:
    """Says that a key comes from two places."""
    if "key_env" in table and "key_command" in table:
        return f"the key of {whose} comes from a variable or from a command, not from both"
    return None


ADAPTERS: Final = ("native", "litellm")
_LIMITS: Final = ("requests_per_minute", "tokens_per_minute", "max_parallel")
_CHOICES: Final[Mapping[str, Sequence[str]]] = {"adapter": ADAPTERS, "structured_output": STRUCTURED_OUTPUTS}
_PROVIDER_KEYS: Final[Mapping[str, Callable[[Any], str | None]]] = {
    "base_url": find_address_problem,
    **dict.fromkeys(_LIMITS, _find_limit_problem),
    **{key: choose_from(words) for key, words in _CHOICES.items()},
    "key_env": find_variable_problem,
    "key_command": find_key_command_problem,
}
"""Key → what is expected of its value where that is something else."""
_HINT: Final = f"; it takes {', '.join(_PROVIDER_KEYS)}"


def _is_known(name: str) -> bool:
    """Tells whether it is a vendor of which there is something to say: the stand-in asks no server."""
    return not is_stand_in(name) and is_vendor(ALIASES.get(name, name))


def read_providers(table: Mapping[str, Any], tell: TellProblem) -> dict[str, ProviderSettings]:
    """Provider → its settings, under its own name where the file has another spelling of it."""
    providers: dict[str, ProviderSettings] = {}
    for name, entry in table.items():
        provider = ALIASES.get(name, name)
        if not _is_known(name):
            tell(f"unknown provider '{name}' in `providers`", _nearest(name), ("providers", name))
        elif not is_map(entry):
            tell(f"'{name}' in `providers` is a table", "", ("providers", name))
        elif provider in providers:
            message = f"'{name}' in `providers` is '{provider}' in another spelling; keep one of them"
            tell(message, "", ("providers", name))
        else:
            providers[provider] = _read_provider(name, entry, tell)
    return providers


def read_default_provider(name: str | None, tell: TellProblem) -> str | None:
    """The provider of that name, under its own; None where there is none."""
    if name is None or _is_known(name):
        return name and ALIASES.get(name, name)
    tell(f"unknown provider '{name}' in `default_provider`", _nearest(name), ("default_provider",))
    return None


def _read_provider(name: str, entry: Mapping[str, Any], tell: TellProblem) -> ProviderSettings:
    """The table of one provider. What is wrong in it is told, and left out; no error repeats what may be a key."""
    sound: dict[str, Any] = {}
    for key, value in entry.items():
        at = ("providers", name, key)
        if key not in _PROVIDER_KEYS:
            near = did_you_mean(key, _PROVIDER_KEYS) or _HINT
            tell(f"unknown key '{key}' of provider '{name}'", near, at)
        elif value is None:  # Said by a run from elsewhere, in JSON.
            continue
        elif (expected := _PROVIDER_KEYS[key](value)) is not None:
            actual = f", not {value!r}" if key in _CHOICES else ""
            tell(f"'{key}' of provider '{name}' is {expected}{actual}", "", at)
        else:
            sound[key] = split_command(value) if key == "key_command" else value
    if sound.get("adapter") == "native" and not is_native(ALIASES.get(name, name)):
        message = f"'adapter' of provider '{name}' cannot be native: it is reached through litellm only"
        tell(message, "", ("providers", name, "adapter"))
    if (problem := find_doubled_key(entry, f"provider '{name}'")) is not None:
        tell(problem, "", ("providers", name, "key_command"))
        sound = {key: value for key, value in sound.items() if key not in ("key_env", "key_command")}
    limits = {key: sound.pop(key) for key in _LIMITS if key in sound}
    return ProviderSettings(limits=RateLimits(**limits) if limits else None, **sound)


def _nearest(name: str) -> str:
    """The vendor that a name is a misspelling of, else all that there are: a server of one's own is one of them, too.

    >>> _nearest("opnai")
    "; did you mean 'openai'?"
    """
    names = [each for each in vendor_names() if not is_stand_in(each)]
    if nearest := find_nearest(name, names, 0.75):
        return f"; did you mean '{nearest}'?"
    own = "A server of your own that speaks as OpenAI does is hosted_vllm, with its address as `base_url`"
    return f"; it names a vendor, one of {', '.join(names)}. {own}"
