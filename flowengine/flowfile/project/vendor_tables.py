"""Reads the table `providers` of a project file: for each vendor its address and its limits, checked.

Which vendors there are is the model column's to say; nothing is opened or asked here.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from sys import float_info
from typing import Any, Final

from flowengine.core.values import is_map
from flowengine.errors import did_you_mean, find_nearest
from flowengine.flowfile.project.toml_positions import TellProblem
from flowengine.models.http.vendor_traits import STRUCTURED_OUTPUTS, is_native
from flowengine.models.key_command import find_key_command_problem, find_variable_problem, split_command
from flowengine.models.pricing import Price
from flowengine.models.vendors import ALIASES, ProviderSettings, RateLimits, is_stand_in, is_vendor, vendor_names

__all__ = ["read_default_provider", "read_prices", "read_providers"]

# --- The table `prices` of a project file


_NEEDED: Final = ("input", "output")
_KEYS: Final = (*_NEEDED, "per_call", "cache_read", "cache_write")


def read_prices(table: Mapping[str, Any], tell: TellProblem) -> dict[str, Price]:
    """Model, as flows write it, → its price."""
    found: dict[str, Price] = {}
    for model, given in table.items():
        if not is_map(given):
            tell(
                f"'{model}' in `prices` is a table with 'input' and 'output', in USD for a million tokens",
                "",
                ("prices", model),
            )
        elif _is_sound(model, given, tell):
            found[model] = Price(**{key: float(value) for key, value in given.items()})
    return found


def _is_sound(model: str, given: Mapping[str, Any], tell: TellProblem) -> bool:
    sound = True
    for key in dict.fromkeys((*_NEEDED, *given)):
        if key not in _KEYS:
            tell(f"unknown key '{key}' of the price of '{model}'", did_you_mean(key, _KEYS), ("prices", model, key))
        elif key not in given:
            tell(f"the price of '{model}' lacks '{key}'", "", ("prices", model))
        elif not _is_amount(given[key]):
            tell(f"'{key}' of the price of '{model}' is a number of at least 0", "", ("prices", model, key))
        else:
            continue
        sound = False
    return sound


def _is_amount(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value <= float_info.max


_LIMITS: Final = ("requests_per_minute", "tokens_per_minute", "max_parallel")
_CHOICES: Final[Mapping[str, Sequence[str]]] = {
    "adapter": ("native", "litellm"),
    "structured_output": STRUCTURED_OUTPUTS,
}
_OF_KEYS: Final = ("key_env", "key_command")
_PROVIDER_KEYS: Final = ("base_url", *_LIMITS, *_CHOICES, *_OF_KEYS)
_HINT: Final = f"; it takes {', '.join(_PROVIDER_KEYS)}"


def _is_known(name: str) -> bool:
    """Tells whether it is a vendor of which there is something to say: the stand-in asks no server."""
    return not is_stand_in(name) and is_vendor(ALIASES.get(name, name))


def read_providers(table: Mapping[str, Any], tell: TellProblem) -> dict[str, ProviderSettings]:
    """Provider → its settings, under its own name where the file has another spelling of it."""
    found: dict[str, ProviderSettings] = {}
    for name, given in table.items():
        provider = ALIASES.get(name, name)
        if not _is_known(name):
            tell(f"unknown provider '{name}' in `providers`", _nearest(name), ("providers", name))
        elif not is_map(given):
            tell(f"'{name}' in `providers` is a table", "", ("providers", name))
        elif provider in found:
            tell(
                f"'{name}' in `providers` is '{provider}' in another spelling; keep one of them",
                "",
                ("providers", name),
            )
        else:
            found[provider] = _provider(name, given, tell)
    return found


def read_default_provider(name: str | None, tell: TellProblem) -> str | None:
    """The provider of that name, under its own; None where there is none."""
    if name is None or _is_known(name):
        return name and ALIASES.get(name, name)
    tell(f"unknown provider '{name}' in `default_provider`", _nearest(name), ("default_provider",))
    return None


def _provider(name: str, given: Mapping[str, Any], tell: TellProblem) -> ProviderSettings:
    for key in given:
        if key not in _PROVIDER_KEYS:
            tell(
                f"unknown key '{key}' of provider '{name}'",
                did_you_mean(key, _PROVIDER_KEYS) or _HINT,
                ("providers", name, key),
            )
    limits = dict(_limits(name, given, tell))
    base = given.get("base_url")
    if base is not None and not _is_address(base):
        tell(
            f"'base_url' of provider '{name}' is an address that starts with http:// or https://",
            "",
            ("providers", name, "base_url"),
        )
        base = None
    chosen = {key: _read_choice(name, key, given[key], tell) for key in _CHOICES if key in given}
    if chosen.get("adapter") == "native" and not is_native(ALIASES.get(name, name)):
        tell(
            f"'adapter' of provider '{name}' cannot be native: it is reached through litellm only",
            "",
            ("providers", name, "adapter"),
        )
    keys = _read_key_source(name, {key: given[key] for key in _OF_KEYS if key in given}, tell)
    return ProviderSettings(
        base,
        RateLimits(**limits) if limits else None,
        adapter=chosen.get("adapter"),
        structured_output=chosen.get("structured_output"),
        **keys,
    )


def _read_choice(name: str, key: str, value: object, tell: TellProblem) -> str | None:
    words = _CHOICES[key]
    if isinstance(value, str) and value in words:
        return value
    tell(f"'{key}' of provider '{name}' is one of {', '.join(words)}, not {value!r}", "", ("providers", name, key))
    return None


def _read_key_source(name: str, given: Mapping[str, Any], tell: TellProblem) -> dict[str, Any]:
    """Reads where a key comes from. Errors do not repeat the value, which may be the key itself."""
    sound = True
    for key, value in given.items():
        expected = find_key_command_problem(value) if key == "key_command" else find_variable_problem(value)
        if expected is not None:
            tell(f"'{key}' of provider '{name}' is {expected}", "", ("providers", name, key))
            sound = False
    if len(given) == 2:
        tell(
            f"the key of provider '{name}' comes from a variable or from a command, not from both",
            "",
            ("providers", name, "key_command"),
        )
        sound = False
    if not sound:
        return {}
    return {key: split_command(value) if key == "key_command" else value for key, value in given.items()}


def _nearest(name: str) -> str:
    """The vendor that a name is a misspelling of, else all that there are: a server of one's own is one of them, too.

    >>> _nearest("opnai")
    "; did you mean 'openai'?"
    """
    known = [each for each in vendor_names() if not is_stand_in(each)]
    if nearest := find_nearest(name, known, 0.75):
        return f"; did you mean '{nearest}'?"
    return (
        f"; it names a vendor, one of {', '.join(known)}. A server of your own that speaks as OpenAI does is "
        f"hosted_vllm, with its address as `base_url`"
    )


def _limits(name: str, given: Mapping[str, Any], tell: TellProblem) -> Iterator[tuple[str, int]]:
    for key in _LIMITS:
        value = given.get(key)
        if type(value) is int and value >= 1:
            yield key, value
        elif value is not None:
            tell(f"'{key}' of provider '{name}' is a whole number of at least 1", "", ("providers", name, key))


def _is_address(value: object) -> bool:
    return isinstance(value, str) and value.startswith(("http://", "https://"))
