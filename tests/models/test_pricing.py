"""What models cost: by the list that ships with litellm, and as somebody says it."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from flowengine.models import pricing
from flowengine.models import pricing as model_table
from flowengine.models.pricing import Price, listed_price, longest_answer

LISTED: dict[str, dict[str, Any]] = {
    "gpt-4o-mini": {
        "litellm_provider": "openai",
        "input_cost_per_token": 1e-6,
        "input_cost_per_token_batches": 9e-6,
        "input_cost_per_token_priority": 3e-6,
        "output_cost_per_token": 4e-6,
        "output_cost_per_token_priority": 5e-6,
        "cache_read_input_token_cost": 8e-6,
        "max_input_tokens": 10_000,
        "max_output_tokens": 4_000,
    },
    "claude-x": {
        "litellm_provider": "anthropic",
        "input_cost_per_token": 3e-6,
        "cache_creation_input_token_cost": 4e-6,
        "cache_creation_input_token_cost_above_1hr": 6e-6,
        "output_cost_per_token": 15e-6,
        "provider_specific_entry": {"fast": 2.0},
    },
    "gemini/gemini-x": {
        "litellm_provider": "gemini",
        "input_cost_per_token": 1e-6,
        "input_cost_per_token_above_200k_tokens": 2e-6,
        "output_cost_per_token": 10e-6,
        "output_cost_per_token_above_200k_tokens": 20e-6,
        "output_cost_per_reasoning_token": 12e-6,
    },
    "dashscope/steps": {
        "litellm_provider": "dashscope",
        "tiered_pricing": [
            {"range": [0, 1000], "input_cost_per_token": 1e-6, "output_cost_per_token": 2e-6},
            {"range": [1000, 9000], "input_cost_per_token": 3e-6, "output_cost_per_token": 6e-6},
        ],
    },
    "perplexity/sonar": {
        "litellm_provider": "perplexity",
        "input_cost_per_token": 1e-6,
        "output_cost_per_token": 1e-6,
        "search_context_cost_per_query": {"low": 0.005, "high": 0.012},
    },
    "groq/pictures": {"litellm_provider": "groq", "output_cost_per_image": 0.1},
    "mistral-small": {"litellm_provider": "azure_ai", "input_cost_per_token": 1e-6, "output_cost_per_token": 1e-6},
    "vertex-model": {
        "litellm_provider": "vertex_ai-language-models",
        "input_cost_per_token": 1e-6,
        "output_cost_per_token": 1e-6,
    },
}


@pytest.fixture
def listed(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    table: Mapping[str, Any] = LISTED
    monkeypatch.setattr(pricing, "find_entry", table.get)
    monkeypatch.setattr(pricing, "whole_table", lambda: table)
    pricing.listed_entry.cache_clear()
    yield
    pricing.listed_entry.cache_clear()


def test_a_price_is_for_a_million_tokens_and_for_a_call() -> None:
    assert Price(2.0, 8.0, 0.01).of(1000, 500) == pytest.approx(0.016)


@pytest.mark.parametrize("given", [(-1.0, 1.0), (1.0, float("inf")), (1.0, 1.0, -0.1), (10**400, 1)])
def test_a_price_is_a_number_of_at_least_nothing(given: tuple[float, ...]) -> None:
    with pytest.raises(ValueError, match="at least 0"):
        Price(*given)


@pytest.mark.usefixtures("listed")
class TestTheList:
    """How the list is read."""

    @pytest.mark.parametrize(
        ("provider", "name", "price"),
        [
            ("openai", "gpt-4o-mini", Price(1.0, 4.0)),
            ("openai", "gpt-4o-mini-2024-07-18", Price(1.0, 4.0)),
            ("openai", "ft:gpt-4o-mini:ours::1", None),
            ("google", "gemini-x", Price(1.0, 12.0)),
            ("google", "gemini-x-001", Price(1.0, 12.0)),
            ("vertex_ai", "vertex-model", Price(1.0, 1.0)),
            ("perplexity", "sonar", Price(1.0, 1.0, 0.012)),
            ("mistral", "mistral-small", None),
            ("groq", "pictures", None),
            ("groq", "gpt-4o-mini", None),
            ("ollama", "llama3.2:3b", None),
            ("offline", "offline", None),
            ("scripted", "gpt-4o-mini", None),
        ],
    )
    def test_a_vendors_model_is_found_and_no_other_vendors(self, provider: str, name: str, price: Price | None) -> None:
        assert listed_price(provider, name) == price

    @pytest.mark.parametrize(
        ("provider", "name", "tokens", "extra", "price"),
        [
            ("anthropic", "claude-x", 10, {}, Price(4.0, 15.0)),
            ("anthropic", "claude-x", 10, {"cache_control": {"ttl": "1h"}}, Price(6.0, 15.0)),
            ("anthropic", "claude-x", 10, {"speed": "fast"}, Price(8.0, 30.0)),
            ("google", "gemini-x", 199_999, {}, Price(1.0, 12.0)),
            ("google", "gemini-x", 200_001, {}, Price(2.0, 20.0)),
            ("dashscope", "steps", 999, {}, Price(1.0, 2.0)),
            ("dashscope", "steps", 1001, {}, Price(3.0, 6.0)),
            ("openai", "gpt-4o-mini", 10, {"service_tier": "priority"}, Price(3.0, 5.0)),
            ("openai", "gpt-4o-mini", 10, {"web_search_options": {}}, None),
        ],
    )
    def test_the_dearest_rate_that_may_apply_counts(
        self, provider: str, name: str, tokens: int, extra: dict[str, Any], price: Price | None
    ) -> None:
        assert listed_price(provider, name, prompt_tokens=tokens, extra=extra) == price

    def test_an_answer_is_as_long_as_the_model_may_write_and_its_window_has_room(self) -> None:
        assert longest_answer("openai", "gpt-4o-mini", prompt_tokens=100) == 4000
        assert longest_answer("openai", "gpt-4o-mini", prompt_tokens=7000) == 3000
        assert longest_answer("openai", "gpt-4o-mini", prompt_tokens=9999) == 1024
        assert longest_answer("anthropic", "claude-x") is None
        assert longest_answer("scripted", "scripted") is None


def test_the_list_that_ships_with_litellm_is_read_without_importing_it() -> None:
    code = (
        "import sys\n"
        "from flowengine.models.pricing import listed_price, longest_answer\n"
        "price = listed_price('openai', 'gpt-4o-mini')\n"
        "print(price.input > 0, price.output > price.input, longest_answer('openai', 'gpt-4o-mini') > 1000)\n"
        "print('litellm' in sys.modules)\n"
    )
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert told.stdout == "True True True\nFalse\n"


@pytest.mark.parametrize("content", [None, "", "[", "\x00"])
def test_without_a_list_every_price_is_unknown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: str | None
) -> None:
    class Spec:
        origin = str(tmp_path / "__init__.py")

    if content is not None:
        (tmp_path / "model_prices_and_context_window_backup.json").write_text(content)
    monkeypatch.setattr(model_table, "find_spec", lambda name: Spec())  # type: ignore[misc] - a stand-in
    forget = (model_table._file, model_table.find_entry, model_table.whole_table, pricing.listed_entry)
    for each in forget:
        each.cache_clear()
    try:
        assert listed_price("openai", "gpt-4o-mini") is None
    finally:
        for each in forget:
            each.cache_clear()


def test_an_entry_that_is_cut_out_of_the_file_is_the_one_of_the_whole() -> None:
    table = model_table.whole_table()
    assert len(table) > 1000
    for name in [*sorted(table)[::20], "no-such-model", 'a"b', "input_cost_per_token"]:
        assert model_table.find_entry(name) == table.get(name)


def test_a_table_of_another_layout_is_read_as_a_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "table.json"
    file.write_text('{"m": {"a": 1}}')
    monkeypatch.setattr(model_table, "_file", lambda: file)
    for each in (model_table.find_entry, model_table.whole_table):
        each.cache_clear()
    try:
        assert (model_table.find_entry("m"), model_table.find_entry("n")) == ({"a": 1}, None)
    finally:
        for each in (model_table.find_entry, model_table.whole_table):
            each.cache_clear()


def test_an_entry_that_stands_at_the_edge_of_the_file_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "table.json"
    file.write_text('{\n    "a": {\n        "mode": "x"\n    },\n"b": {\n        "mode": "y"\n    },\n"c": 3\n}')
    monkeypatch.setattr(model_table, "_file", lambda: file)
    for each in (model_table.find_entry, model_table.whole_table):
        each.cache_clear()
    try:
        found = [model_table.find_entry(each) for each in ("a", "b", "c", "mode")]
        assert found == [{"mode": "x"}, {"mode": "y"}, None, None]
    finally:
        for each in (model_table.find_entry, model_table.whole_table):
            each.cache_clear()


def test_the_small_model_of_anthropic_has_a_price_and_a_name_of_ours_the_vendor_s_entry() -> None:
    assert listed_price("anthropic", "claude-haiku-5-5") is not None
    assert listed_price("fireworks_ai", "deepseek-v3p1") is not None


@pytest.mark.usefixtures("listed")
def test_an_alias_has_the_price_of_what_it_stands_for(monkeypatch: pytest.MonkeyPatch) -> None:
    table = {**LISTED, "gpt-latest": {"alias_of": "gpt-next"}, "gpt-next": {"alias_of": "gpt-4o-mini"}}
    table |= {"round": {"alias_of": "about"}, "about": {"alias_of": "round"}}
    monkeypatch.setattr(pricing, "find_entry", table.get)
    assert listed_price("openai", "gpt-latest") == listed_price("openai", "gpt-4o-mini") is not None
    assert listed_price("openai", "round") is None


@pytest.mark.parametrize(
    ("provider", "name"),
    [
        ("openai", "gpt-4o-mini"),
        ("anthropic", "claude-haiku-4-5"),
        ("google", "gemini-2.5-flash"),
        ("groq", "openai/gpt-oss-20b"),
    ],
)
def test_the_default_models_of_the_vendors_are_on_the_list(provider: str, name: str) -> None:
    price = listed_price(provider, name)
    assert price is not None
    assert 0 < price.input < price.output
    assert (longest_answer(provider, name) or 0) >= 4096


@pytest.mark.long
def test_what_litellm_reckons_for_an_answer_is_never_above_the_listed_price() -> None:
    """In a process of its own: the import takes seconds."""
    models = ["gpt-4o-mini", "claude-haiku-4-5", "gemini/gemini-2.5-pro", "groq/openai/gpt-oss-20b"]
    code = (
        "import os, json, warnings\n"
        "os.environ['LITELLM_LOCAL_MODEL_COST_MAP'] = 'True'\n"
        "warnings.simplefilter('ignore')\n"
        "import litellm\n"
        f"models = {models}\n"
        "print(json.dumps([[sum(litellm.cost_per_token(model=m, prompt_tokens=p, completion_tokens=c))\n"
        "                   for p, c in ((10, 10), (250_000, 500))] for m in models]))\n"
    )
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    vendors = ["openai", "anthropic", "google", "groq"]
    for vendor, model, (small, large) in zip(vendors, models, json.loads(told.stdout), strict=True):
        name = model.removeprefix("gemini/").removeprefix("groq/")
        for tokens, answer, cost in ((10, 10, small), (250_000, 500, large)):
            price = listed_price(vendor, name, prompt_tokens=tokens)
            assert price is not None
            assert cost <= price.of(tokens, answer) * (1 + 1e-9), (model, tokens)
            assert cost >= price.of(tokens, answer) / 2, (model, tokens)
