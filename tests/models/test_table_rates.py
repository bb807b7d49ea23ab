"""Rates of the price table: what their names say, which of them a call is charged, and that none of them can raise."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flowengine.models import pricing
from flowengine.models.model import TokenUsage
from flowengine.models.pricing import Price
from flowengine.models.table_rates import KINDS, is_off_peak, pick_rate, read_rates
from flowengine.models.wrappers import priced
from flowengine.models.wrappers.priced import cost_of
from tests.price_table import find_problems

ENTRY = {
    "litellm_provider": "openai",
    "input_cost_per_token": 4e-6,
    "input_cost_per_token_flex": 2e-6,
    "input_cost_per_token_priority": 8e-6,
    "input_cost_per_token_above_272k_tokens": 8e-6,
    "input_cost_per_token_above_272k_tokens_priority": 16e-6,
    "output_cost_per_token": 20e-6,
    "cache_creation_input_token_cost": 5e-6,
    "cache_creation_input_token_cost_above_12hr": 10e-6,
    "cache_creation_input_token_cost_above_12hr_above_272k_tokens": 20e-6,
    "input_cost_per_token_above_a_thing_nobody_knows": 1.0,
}


@pytest.mark.parametrize(
    ("prompt", "tier", "dollars"),
    [
        (1000, "", 4e-6),
        (300_000, "", 8e-6),
        (1000, "priority", 8e-6),
        (300_000, "priority", 16e-6),
        (1000, "flex", 2e-6),
        (300_000, "flex", 4e-6),  # Its share of the usual price.
        (1000, "scale", 4e-6),
    ],
)
def test_a_tier_and_a_long_prompt_are_charged_together(prompt: int, tier: str, dollars: float) -> None:
    assert pick_rate(read_rates(ENTRY), "input_cost_per_token", prompt, tier) == pytest.approx(dollars)


@pytest.mark.parametrize(("prompt", "hours", "dollars"), [(9, 0, 5e-6), (9, 12, 10e-6), (300_000, 12, 20e-6)])
def test_what_a_cache_keeps_for_long_is_written_at_its_own_rate(prompt: int, hours: int, dollars: float) -> None:
    found = pick_rate(read_rates(ENTRY), "cache_creation_input_token_cost", prompt, hours=hours)
    assert found == pytest.approx(dollars)


def test_steps_of_a_price_count_by_the_length_of_the_prompt() -> None:
    steps = [{"range": [0, 1000], "input_cost_per_token": 1e-6}, {"range": [1000, 9000], "input_cost_per_token": 3e-6}]
    rates = read_rates({"tiered_pricing": steps})
    assert [pick_rate(rates, "input_cost_per_token", each) for each in (10, 5000)] == [1e-6, 3e-6]


def test_off_the_peak_the_lower_rates_are_charged() -> None:
    windows = [{"hours_utc": "00:00-00:00", "weekdays": [6, 7]}, {"hours_utc": ["22:00-02:00"]}]
    entry = {"input_cost_per_token": 2e-6, "off_peak_pricing": {"input_cost_per_token": 1e-6, "windows": windows}}
    friday, saturday = datetime(2026, 11, 27, 12, tzinfo=UTC), datetime(2026, 11, 28, 12, tzinfo=UTC)
    assert [read_rates(entry, at)[0].dollars for at in (None, friday, saturday)] == [2e-6, 2e-6, 1e-6]
    assert [is_off_peak(windows, friday.replace(hour=hour)) for hour in (1, 2, 21, 22)] == [True, False, False, True]


# --- Nothing that a table says can raise

ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5) | st.just(10**400),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)
ENDS = ("", "_above_12hr_above_272k_tokens", "_above_272k_tokens", "_flex", "_above_x", "_above_200k_tokens_priority")
NAMES = st.sampled_from(
    [
        *(kind + end for kind in KINDS for end in ENDS),
        *("tiered_pricing", "off_peak_pricing", "input_cost_per_request", "search_context_cost_per_query"),
        *("provider_specific_entry", "max_input_tokens", "max_output_tokens", "mode", "supports_vision", "alias_of"),
    ]
)
COUNT = st.none() | st.integers(0, 10**12)


@given(
    st.dictionaries(NAMES, ANYTHING | st.floats(0, 1e-3), max_size=12),
    st.builds(TokenUsage, COUNT, COUNT, COUNT, COUNT, COUNT),
    st.sampled_from([{}, {"service_tier": "flex"}, {"speed": "fast", "prompt_cache_retention": "24h"}]),
)
def test_whatever_a_table_says_an_answer_has_a_price_or_none(
    entry: Mapping[str, Any], usage: TokenUsage, extra: Mapping[str, Any]
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        for module in (priced, pricing):
            patch.setattr(module, "listed_entry", lambda provider, name: entry)
        cost = cost_of("perplexity", "m", usage, extra)
        assert cost is None or cost >= 0
        price = pricing.listed_price("perplexity", "m", prompt_tokens=usage.prompt_tokens or 0, extra=extra)
        assert price is None or isinstance(price, Price)
        assert (pricing.context_window("perplexity", "m") or 1) > 0
        assert (pricing.longest_answer("perplexity", "m", prompt_tokens=9) or 1) > 0
        pricing.listed_cache_price("perplexity", "m")
        pricing.listed_vision("perplexity", "m")


@pytest.mark.long
def test_every_entry_of_the_table_is_read_and_no_answer_costs_more_than_its_plan() -> None:
    assert [each for each in find_problems() if each.kind != "no price"] == []
