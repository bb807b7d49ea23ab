"""Reads the rates in an entry of the price table, and picks those that a call is charged.

A name of a rate says its kind, and may add how long a cache keeps what is written, the prompt's length from which on it
holds, and a service tier: `cache_creation_input_token_cost_above_12hr_above_272k_tokens_priority`. The table is foreign
data: a name or a value that is not understood is left out, and raises nothing.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from typing import Any, Final, NamedTuple, cast

from flowengine.models.model import read_token_count

KINDS: Final = (
    "input_cost_per_token",
    "output_cost_per_token",
    "output_cost_per_reasoning_token",
    "cache_read_input_token_cost",
    "cache_creation_input_token_cost",
)
_NAME: Final = re.compile(
    rf"({'|'.join(KINDS)})(?:_above_(\d{{1,4}})hr)?(?:_above_(\d{{1,9}})k_tokens)?(?:_([a-z]+))?", re.ASCII
)
_MOST: Final = 1e6
"""Dollars that a rate can be."""


class Rate(NamedTuple):
    """The price of a token of one kind, under conditions."""

    kind: str
    """One of `KINDS`."""
    dollars: float
    hours: int = 0
    """Hours for which a cache keeps it at least, where that is more than the least."""
    above: int = 0
    """Tokens of a prompt from which on it holds."""
    tier: str = ""
    """The service tier; empty: the usual one."""

    def holds_for(self, prompt_tokens: int) -> bool:
        """Tells whether the prompt is long enough."""
        return not self.above or prompt_tokens > self.above


def read_number(value: Any) -> float | None:
    """A number that can be a price; None for what cannot.

    >>> [read_number(each) for each in (2e-6, 0, -1, True, "2e-6", 10**400, float("nan"))]
    [2e-06, 0.0, None, None, None, None, None]
    """
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return float(value) if is_number and 0 <= value <= _MOST else None


def read_rates(entry: Mapping[str, Any], at: datetime | None = None) -> list[Rate]:
    """Lists the rates of an entry; with those of a time off the peak, where that is asked for and has such.

    >>> read_rates({"input_cost_per_token_above_272k_tokens_flex": 2e-6, "input_cost_per_token_above_1day": 1})
    [Rate(kind='input_cost_per_token', dollars=2e-06, hours=0, above=272000, tier='flex')]
    """
    cheaper: Any = entry.get("off_peak_pricing")
    if at is not None and isinstance(cheaper, Mapping) and is_off_peak(cheaper.get("windows"), at):  # pyright: ignore[reportUnknownMemberType, reportUnknownArgumentType]
        entry = {**entry, **cast("Mapping[str, Any]", cheaper)}
    rates = list(_read_plain(entry))
    for step in _objects(entry.get("tiered_pricing")):
        begins: Any = next(iter(_list_of(step.get("range"))), 0)
        above = read_token_count(begins)
        if above is not None:
            rates += (each._replace(above=max(above, each.above)) for each in _read_plain(step))
    return rates


def _read_plain(entry: Mapping[str, Any]) -> Iterator[Rate]:
    for name, value in entry.items():
        match = _NAME.fullmatch(name)
        dollars = None if match is None else read_number(value)
        if match is not None and dollars is not None:
            kind, hours, thousands, tier = match.groups()
            yield Rate(kind, dollars, int(hours or 0), int(thousands or 0) * 1000, tier or "")


def pick_rate(rates: Iterable[Rate], kind: str, prompt_tokens: int, tier: str = "", *, hours: int = 0) -> float | None:
    """Dollars a token: of the tier if it has rates, of the longest prompt that this one is above.

    A tier without a rate of its own for long prompts keeps its share of the usual price, and is never dearer than the
    dearest of the rates that are told.
    """
    fitting = [each for each in rates if each.kind == kind and each.hours in (0, hours)]
    usual, special = (_pick_longest(fitting, prompt_tokens, each) for each in ("", tier))
    if special is None or usual is None or special.above >= usual.above:
        rate = special or usual
        return None if rate is None else rate.dollars
    short = min((each for each in fitting if not each.tier), key=lambda each: each.above).dollars
    scaled = special.dollars * usual.dollars / short if short else usual.dollars
    return min(scaled, max(special.dollars, usual.dollars))


def _pick_longest(rates: Iterable[Rate], prompt_tokens: int, tier: str) -> Rate | None:
    holding = [each for each in rates if each.tier == tier and each.holds_for(prompt_tokens)]
    return max(holding, key=lambda each: (each.hours, each.above), default=None)


# --- Times off the peak


def is_off_peak(windows: Any, at: datetime) -> bool:
    """Tells whether a time (UTC) is in one of the windows.

    >>> windows = [{"hours_utc": ["00:00-01:00", "10:00-00:00"], "weekdays": [1, 2, 3, 4, 5]}]
    >>> [is_off_peak(windows, datetime(2026, 11, 27, hour, 30)) for hour in (0, 1, 23)]
    [True, False, True]
    """
    minute = at.hour * 60 + at.minute
    for window in _objects(windows):
        days = _list_of(window.get("weekdays"))
        hours = window.get("hours_utc")
        spans = [hours] if isinstance(hours, str) else _list_of(hours)
        if (not days or at.isoweekday() in days) and any(_holds_minute(each, minute) for each in spans):
            return True
    return False


_SPAN: Final = re.compile(r"([01]\d|2[0-4]):([0-5]\d)-([01]\d|2[0-4]):([0-5]\d)", re.ASCII)


def _holds_minute(span: Any, minute: int) -> bool:
    match = _SPAN.fullmatch(span) if isinstance(span, str) else None
    if match is None:
        return False
    first, first_minute, last, last_minute = map(int, match.groups())
    begins, ends = first * 60 + first_minute, last * 60 + last_minute
    return begins <= minute < ends if begins < ends else minute >= begins or minute < ends


def _list_of(value: Any) -> list[Any]:
    return cast("list[Any]", value) if isinstance(value, list) else []


def _objects(value: Any) -> list[Mapping[str, Any]]:
    return [cast("Mapping[str, Any]", each) for each in _list_of(value) if isinstance(each, Mapping)]
