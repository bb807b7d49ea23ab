"""Looks up what models cost and can do: the price that the user gave, else the one in litellm's table.

The table is litellm's, read without importing it. Of the rates that may apply to a call the dearest counts, since a
price is asked for before the call: that of a long prompt, of writing to a vendor's cache, of a service tier that is
asked for. What is not in the table is unknown, never free.
"""

from __future__ import annotations

import json
import mmap
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from importlib.util import find_spec
from math import inf
from pathlib import Path
from sys import float_info
from typing import Any, Final, TypeAlias, cast

from flowengine.models.model import Model, Request, read_token_count
from flowengine.models.table_rates import Rate, read_number, read_rates
from flowengine.models.vendors import OTHERS, VENDORS, Vendor

# --- litellm's table of models, read without importing litellm
#
# The file is large, so one model's entry is cut out of it and the rest is not looked into; all of it is read only for a
# question about all names.

TableEntry: TypeAlias = Mapping[str, Any]


@cache
def find_entry(name: str) -> TableEntry | None:
    """Returns the table's entry under a name, or None."""
    file = _file()
    if file is None:
        return None
    try:
        with file.open("rb") as stream, mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ) as content:
            word = json.dumps(name).encode() + b":"
            entry = _cut_out(content, word)
            if isinstance(entry, dict):
                return cast("TableEntry", entry)
            if content.find(word) < 0:
                return None
    except (OSError, ValueError, RecursionError):
        pass
    return whole_table().get(name)


_INDENTS: Final = (b"    ", b"")
"""Before the names of entries; the second one is a slip of the table's authors."""


def _cut_out(content: mmap.mmap, word: bytes) -> Any:
    """The value of a name that begins a line; None where it begins none. Of two, the last counts, as in all JSON."""
    places = ((content.rfind(b"\n" + each + word), each) for each in _INDENTS)
    at, indent = next((place for place in places if place[0] >= 0), (-1, b""))
    if at < 0:
        return None
    end = content.find(b"\n    }", at)
    slipped = content.find(b"\n}", at, end if end >= 0 else len(content))
    end = content.find(b"}", end if slipped < 0 else slipped)
    return json.loads(content[at + 1 + len(indent) + len(word) : end + 1])


@cache
def whole_table() -> Mapping[str, TableEntry]:
    """Every name with its entry; none where there is no table."""
    file = _file()
    try:
        table: Any = {} if file is None else json.loads(file.read_bytes())
    except (OSError, ValueError, RecursionError):
        return {}
    entries = cast("dict[str, Any]", table) if isinstance(table, dict) else {}
    return {name: cast("TableEntry", each) for name, each in entries.items() if isinstance(each, dict)}


@cache
def _file() -> Path | None:
    spec = find_spec("litellm")
    if spec is None or spec.origin is None:
        return None
    return Path(spec.origin).with_name("model_prices_and_context_window_backup.json")


@dataclass(frozen=True, slots=True)
class Price:
    """The price of a model, in dollars per million tokens.

    >>> Price(input=3.0, output=15.0).of(1000, 200)
    0.006
    """

    input: float
    """Dollars for a million tokens of prompts."""
    output: float
    """Dollars for a million tokens of answers."""
    per_call: float = 0.0
    """Dollars for each call, beside its tokens."""
    cache_read: float | None = field(default=None, repr=False)
    """Dollars for those of a prompt that the vendor's cache serves; None: as `input`."""
    cache_write: float | None = field(default=None, repr=False)
    """Dollars for those of a prompt that are written to the vendor's cache; None: as `input`."""

    def __post_init__(self) -> None:
        for name in ("input", "output", "per_call", "cache_read", "cache_write"):
            value = getattr(self, name)
            if value is not None and not 0 <= value <= float_info.max:
                raise ValueError(f"{name} is a number of at least 0, not {value!r}")

    def of(self, prompt_tokens: int, answer_tokens: int, *, read: int = 0, written: int = 0) -> float:
        """Dollars for one call. `read`, `written`: of the prompt, what a cache served and what one was given.

        >>> Price(input=3.0, output=15.0, cache_read=0.3).of(1000, 200, read=900)
        0.00357
        """
        read = min(read, prompt_tokens)
        written = min(written, prompt_tokens - read)
        prompt = (prompt_tokens - read - written) * self.input
        prompt += read * (self.input if self.cache_read is None else self.cache_read)
        prompt += written * (self.input if self.cache_write is None else self.cache_write)
        return round((prompt + answer_tokens * self.output) / _MILLION, 12) + self.per_call

    def dearest(self) -> Price:
        """The same with all of a prompt at the dearer of its rates: for a call that is not made yet."""
        dearer = max(self.input, self.cache_write or 0.0)
        return self if dearer == self.input else replace(self, input=dearer)


_MILLION: Final = 1_000_000


def listed_price(
    provider: str, name: str, *, prompt_tokens: int = 0, extra: Mapping[str, Any] | None = None
) -> Price | None:
    """The most that a call to a vendor's model is charged, by litellm's table; None where it does not say.

    `extra`: further arguments of the call, some of which change the price.
    """
    entry = listed_entry(provider, name)
    options = extra or {}
    if entry is None or ("web_search_options" in options and provider not in _ALWAYS_SEARCHING):
        return None  # How often a model will search is not known before.
    hours = inf if any("cache" in option for option in options) else 0
    rates = [each for each in read_rates(entry) if _may_apply(each, prompt_tokens, hours, "service_tier" in options)]
    input_rates = [each.dollars for each in rates if each.kind in _INPUT]
    output_rates = [each.dollars for each in rates if each.kind in _OUTPUT]
    if not input_rates or not output_rates:
        return None
    surcharge = max(_surcharges(entry, options), default=1.0)
    per_call = max(_fees(entry, provider), default=0.0)
    return Price(max(input_rates) * _MILLION * surcharge, max(output_rates) * _MILLION * surcharge, per_call)


def listed_cache_price(provider: str, name: str) -> float | None:
    """Dollars for a million tokens of a prompt that the vendor's cache serves; None where the table does not say.

    >>> listed_cache_price("anthropic", "claude-haiku-4-5")
    0.1
    """
    rate = read_number((listed_entry(provider, name) or {}).get("cache_read_input_token_cost"))
    return None if rate is None else round(rate * _MILLION, 9)


def longest_answer(provider: str, name: str, *, prompt_tokens: int = 0) -> int | None:
    """The most tokens that a vendor's model writes after such a prompt; None where the table does not say."""
    entry = listed_entry(provider, name) or {}
    longest, window = (read_token_count(entry.get(each)) for each in ("max_output_tokens", "max_input_tokens"))
    if not longest or not window:
        return longest or None
    # Some models have one window for both, and refuse to be asked for more than what is left of it.
    return min(longest, max(window - prompt_tokens, _SHORTEST))


def seconds_of_call(model: Model, request: Request) -> float:
    """Seconds that a call of a model may take in all: as long as its longest answer may take, where nothing is said."""
    return request.seconds(None if request.timeout is not None else longest_answer(model.provider, model.name))


def context_window(provider: str, name: str) -> int | None:
    """The most tokens that a vendor's model reads at once; None where the table does not say."""
    return read_token_count((listed_entry(provider, name) or {}).get("max_input_tokens")) or None


def listed_schema_support(provider: str, name: str) -> bool | None:
    """Tells whether a vendor's model follows a JSON Schema, as the table says; None where it has no such model."""
    entry = listed_entry(provider, name)
    return None if entry is None else entry.get("supports_response_schema") is True


def listed_vision(provider: str, name: str) -> bool | None:
    """Tells whether a vendor's model takes images, as the table says; None where it does not say.

    Of these vendors the table names every model that does.
    """
    entry = listed_entry(provider, name)
    has_vision = None if entry is None else entry.get("supports_vision")
    if isinstance(has_vision, bool):
        return has_vision
    is_chat = entry is not None and entry.get("mode") in ("chat", "responses")
    return False if is_chat and provider in _IMAGES_NAMED else None


_IMAGES_NAMED: Final = frozenset({"openai", "anthropic", "mistral", "deepseek"})


@cache
def listed_entry(provider: str, name: str) -> TableEntry | None:
    """The table's entry of a vendor's model, or None."""
    vendor = VENDORS.get(provider) or OTHERS.get(provider)
    if vendor is None or vendor.is_stand_in:
        return None
    prefixes = (vendor.prefix, provider)
    for spelling in _list_spellings(vendor, name):
        for prefix in prefixes:
            if (entry := _find_meant(f"{prefix}/{spelling}")) is not None:
                return entry
        entry = _find_meant(spelling)
        if entry is not None and str(entry.get("litellm_provider")).startswith(prefixes):
            return entry
    return None


def _find_meant(name: str) -> TableEntry | None:
    """The entry under a name, or that of the model which the name is an alias of."""
    entry = find_entry(name)
    for _ in range(_MOST_ALIASES):
        alias = None if entry is None else entry.get("alias_of")
        if not isinstance(alias, str):
            break
        entry = find_entry(alias)
    return entry


_MOST_ALIASES: Final = 4
"""One behind the other."""


def is_listed(provider: str, name: str) -> bool:
    """Tells whether the table has a model of that name for the vendor."""
    return listed_entry(provider, name) is not None


def listed_vendor(name: str) -> str | None:
    """The vendor whose model the table has under that name alone; None where it has none of one that is known here.

    >>> listed_vendor("text-embedding-3-small"), listed_vendor("gtp-4o")
    ('openai', None)
    """
    entry = next(filter(None, map(_find_meant, _list_spellings(_UNKNOWN, name))), None)
    return None if entry is None else _vendors_by_word().get(str(entry.get("litellm_provider")))


_UNKNOWN: Final = Vendor("", "")


@cache
def _vendors_by_word() -> Mapping[str, str]:
    """litellm's words for the vendors that are known here."""
    vendors = (*VENDORS.values(), *OTHERS.values())
    return {word: vendor.name for vendor in vendors for word in (vendor.prefix, vendor.name)}


def listed_names() -> list[str]:
    """Every name that says by itself whose model it is."""
    return [name for name in whole_table() if "/" not in name and ":" not in name and listed_vendor(name) is not None]


_SHORTEST: Final = 1024
"""Tokens of an answer where the prompt seems to fill the window: its own are an estimate."""

# --- Rates of an entry

_INPUT: Final = frozenset({"input_cost_per_token", "cache_creation_input_token_cost"})
_OUTPUT: Final = frozenset({"output_cost_per_token", "output_cost_per_reasoning_token"})
_ALWAYS_SEARCHING: Final = frozenset({"perplexity"})
"""Vendors whose every call is one search."""


def _may_apply(rate: Rate, prompt_tokens: int, hours: float, with_tiers: bool) -> bool:
    has_tier = not rate.tier or (with_tiers and rate.tier != "batches")
    return has_tier and rate.hours <= hours and prompt_tokens >= rate.above


def _surcharges(entry: TableEntry, options: Mapping[str, Any]) -> Iterator[float]:
    """Factors for a faster or a nearer machine, where one is asked for."""
    if "speed" in options or "inference_geo" in options:
        factors: Any = entry.get("provider_specific_entry")
        yield from _numbers_in(factors)


def _fees(entry: TableEntry, provider: str) -> Iterator[float]:
    if (fee := read_number(entry.get("input_cost_per_request"))) is not None:
        yield fee
    if provider in _ALWAYS_SEARCHING:
        yield from _numbers_in(entry.get("search_context_cost_per_query"))


def _numbers_in(values: Any) -> Iterator[float]:
    items = cast("Mapping[str, Any]", values).values() if isinstance(values, Mapping) else ()
    yield from (number for each in items if (number := read_number(each)) is not None)


def _list_spellings(vendor: Vendor, name: str) -> Iterator[str]:
    """A model's name as given, as its vendor is told it, and without what marks a snapshot or a fine-tuned copy."""
    yield name
    if vendor.model_prefix and "/" not in name:
        yield vendor.model_prefix + name
    if name.startswith("ft:"):
        yield ":".join(name.split(":")[:2])
    elif (family := re.sub(r"-(\d{8}|\d{4}-\d{2}-\d{2}|\d{3})$", "", name)) != name:
        yield family
