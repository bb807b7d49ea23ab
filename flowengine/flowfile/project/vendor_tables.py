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
            told = f"'{model}' in `prices` is a table with 'input' and 'output', in USD for a million tokens"
            tell(told, "", ("prices", model))
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
            told = f"'{name}' in `providers` is '{provider}' in another spelling; keep one of them"
            tell(told, "", ("providers", name))
        else:
            found[provider] = _Provider(name, given, tell).read()
    return found


def read_default_provider(name: str | None, tell: TellProblem) -> str | None:
    """The provider of that name, under its own; None where there is none."""
    if name is None or _is_known(name):
        return name and ALIASES.get(name, name)
    tell(f"unknown provider '{name}' in `default_provider`", _nearest(name), ("default_provider",))
    return None


class _Provider:
    """The table of one provider. What is wrong in it is told, and left out."""

    def __init__(self, name: str, given: Mapping[str, Any], tell: TellProblem) -> None:
        self._name = name
        self._given = given
        self._tell_at = tell

    def _tell(self, key: str, what: str) -> None:
        self._tell_at(f"'{key}' of provider '{self._name}' {what}", "", ("providers", self._name, key))

    def read(self) -> ProviderSettings:
        for key in self._given:
            if key not in _PROVIDER_KEYS:
                near = did_you_mean(key, _PROVIDER_KEYS) or _HINT
                self._tell_at(f"unknown key '{key}' of provider '{self._name}'", near, ("providers", self._name, key))
        limits = dict(self._limits())
        base = self._given.get("base_url")
        if base is not None and not _is_address(base):
            self._tell("base_url", "is an address that starts with http:// or https://")
            base = None
        chosen = dict(self._choices())
        if chosen.get("adapter") == "native" and not is_native(ALIASES.get(self._name, self._name)):
            self._tell("adapter", "cannot be native: it is reached through litellm only")
        return ProviderSettings(base, RateLimits(**limits) if limits else None, **chosen, **self._key_source())

    def _limits(self) -> Iterator[tuple[str, int]]:
        for key in _LIMITS:
            value = self._given.get(key)
            if type(value) is int and value >= 1:
                yield key, value
            elif value is not None:
                self._tell(key, "is a whole number of at least 1")

    def _choices(self) -> Iterator[tuple[str, Any]]:
        for key, words in _CHOICES.items():
            value = self._given.get(key)
            if isinstance(value, str) and value in words:
                yield key, value
            elif key in self._given:
                self._tell(key, f"is one of {', '.join(words)}, not {value!r}")

    def _key_source(self) -> dict[str, Any]:
        """Where the key comes from. Errors do not repeat the value, which may be the key itself."""
        given = {key: self._given[key] for key in _OF_KEYS if key in self._given}
        sound = True
        for key, value in given.items():
            expected = find_key_command_problem(value) if key == "key_command" else find_variable_problem(value)
            if expected is not None:
                self._tell(key, f"is {expected}")
                sound = False
        if len(given) == 2:
            told = f"the key of provider '{self._name}' comes from a variable or from a command, not from both"
            self._tell_at(told, "", ("providers", self._name, "key_command"))
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
    own = "A server of your own that speaks as OpenAI does is hosted_vllm, with its address as `base_url`"
    return f"; it names a vendor, one of {', '.join(known)}. {own}"


def _is_address(value: object) -> bool:
    return isinstance(value, str) and value.startswith(("http://", "https://"))
