"""Options of model calls: their values, one shape for them, and the list of what `model_options` takes."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flowengine.models.call_options import (
    OPTIONS,
    VENDOR_OPTIONS,
    find_option_problems,
    find_vendor_option_problem,
    normalize_options,
)
from flowengine.models.litellm.model import LiteLLMModel
from flowengine.models.messages import Message
from flowengine.models.model import Request, plain_request

FINE: list[tuple[str, Any]] = [
    ("top_p", 0),
    ("top_p", 0.5),
    ("seed", -(2**63)),
    ("stop", "END"),
    ("stop", ["a", "b"]),
    ("reasoning_effort", "minimal"),
    ("verbosity", "low"),
    ("thinking", 1024),
    ("thinking", {"budget_tokens": 1024}),
    ("thinking", {"type": "enabled", "budget_tokens": 1024}),
    ("presence_penalty", -2),
    ("frequency_penalty", 2.0),
    ("service_tier", "flex"),
    ("parallel_tool_calls", False),
    ("model_options", {"top_k": 5, "metadata": {"a": "b"}}),
    ("top_p", None),
    ("colour", object()),
]
WRONG: list[tuple[str, Any, str]] = [
    ("top_p", 1.01, "top_p must be a number from 0 to 1, not 1.01"),
    ("top_p", True, "top_p must be a number"),
    ("top_p", float("nan"), "top_p must be a number"),
    ("top_p", 10**400, "top_p must be a number"),
    ("seed", 2**63, "seed must be a whole number of 64 bits"),
    ("seed", 1.0, "seed must be a whole number"),
    ("seed", True, "seed must be a whole number"),
    ("stop", "", "stop must be a text that is not empty"),
    ("stop", [], "stop must be"),
    ("stop", ["a", 1], "stop must be"),
    ("stop", ["a"] * 17, "a list of up to 16"),
    ("reasoning_effort", "lwo", "not 'lwo'; did you mean 'low'?"),
    ("verbosity", ["low"], "verbosity must be one of low, medium, high"),
    ("thinking", 0, "thinking must be a number of tokens of at least 1"),
    ("thinking", {"budget": 5}, "thinking must be"),
    ("thinking", {"budget_tokens": 5, "api_base": "x"}, "thinking must be"),
    ("presence_penalty", 2.5, "from -2 to 2"),
    ("service_tier", "fast", "service_tier must be one of"),
    ("parallel_tool_calls", "no", "parallel_tool_calls must be true or false"),
    ("model_options", ["top_k"], "model_options must be a map"),
    ("model_options", {"top_kk": 1}, "unknown model option 'top_kk'; did you mean 'top_k'?"),
    ("model_options", {"top_k": None}, "'top_k' has no value"),
    ("model_options", {"top_k": float("inf")}, "'top_k' is no JSON value"),
    ("model_options", {"logit_bias": {50256: -100, "a": 1}}, "'logit_bias' is no JSON value"),
    ("model_options", {"metadata": {"a": "x" * 30_000}}, "'metadata' is longer than"),
]


@pytest.mark.parametrize(("name", "value"), FINE)
def test_a_value_that_fits_is_taken(name: str, value: Any) -> None:
    assert list(find_option_problems({name: value})) == []


@pytest.mark.parametrize(("name", "value", "told"), WRONG, ids=lambda value: f"{value!r:.40}")
def test_a_value_that_does_not_fit_is_told(name: str, value: Any, told: str) -> None:
    (problem,) = find_option_problems({name: value})
    assert told in str(problem)


@pytest.mark.parametrize(
    "name",
    [
        *("api_base", "base_url", "api_key", "key", "extra_headers", "headers", "authorization", "proxy", "extra_body"),
        *("messages", "model", "models", "tools", "tool_choice", "stream", "response_format", "n", "fallbacks"),
        *("mock_response", "custom_llm_provider", "litellm_params", "ssl_verify", "organization", "temperature"),
        *("API_BASE", "api-base", "chat_template", "plugins", "provider", "timeout", "client", "cache", "hooks"),
    ],
)
def test_nothing_that_leads_elsewhere_or_replaces_the_call_is_a_model_option(name: str) -> None:
    problem = find_vendor_option_problem(name, "sk-very-secret")
    assert problem is not None
    assert "sk-very-secret" not in str(problem)


@settings(deadline=None, max_examples=25)
@given(st.text(max_size=20))
def test_only_names_of_the_list_are_model_options(name: str) -> None:
    assert (find_vendor_option_problem(name, 1) is None) == (name in VENDOR_OPTIONS)


def test_options_have_one_shape() -> None:
    assert normalize_options(
        {"stop": ("a", "b"), "thinking": {"type": "enabled", "budget_tokens": 9}, "seed": None}
    ) == {
        "stop": ["a", "b"],
        "thinking": {"budget_tokens": 9},
    }
    assert normalize_options({"model_options": {"top_k": 1, "min_p": 0.1}, "top_k": 2}) == {"min_p": 0.1, "top_k": 2}
    assert normalize_options({"thinking": {"type": "adaptive"}}) == {"thinking": {"type": "adaptive"}}
    assert normalize_options({"extra_headers": None}) == {"extra_headers": None}


def test_options_count_in_the_key_of_a_request_and_stand_in_its_record() -> None:
    question = (Message("user", "hi"),)
    values: dict[str, Any] = {name: value for name, value in FINE if name in OPTIONS and value is not None}
    keys = {Request("m", question, extra=normalize_options({name: value})).key() for name, value in values.items()}
    assert len({Request("m", question).key(), *keys}) == len(values) + 1
    said = normalize_options(values | {"model_options": {"prompt_mode": "reasoning", "user": "ann"}})
    assert plain_request(Request("m", (), extra=said))["extra"] == {**said, "user": "***"}


async def test_litellm_is_given_the_options_under_its_names(server: Any) -> None:
    model = LiteLLMModel("gpt-4o-mini", "openai", settings={"api_base": server.url, "api_key": "k"})
    said = {"seed": 5, "stop": ["a"], "parallel_tool_calls": False, "presence_penalty": 0.5, "service_tier": "flex"}
    await model.complete(Request("gpt-4o-mini", (Message("user", "hi"),), timeout=10, extra=said))
    body = server.requests[0].body
    assert {name: body.get(name) for name in said} == {**said, "parallel_tool_calls": None}
    tool: dict[str, Any] = {
        "type": "function",
        "function": {"name": "look", "parameters": {"type": "object", "properties": {}}},
    }
    await model.complete(Request("gpt-4o-mini", (Message("user", "hi"),), timeout=10, tools=(tool,), extra=said))
    assert server.requests[1].body["parallel_tool_calls"] is False


async def test_litellm_is_given_a_budget_for_thinking_in_its_shape(server: Any) -> None:
    settings = {"api_base": server.url, "api_key": "k"}
    model = LiteLLMModel("claude-haiku-4-5", "litellm_proxy", settings=settings)
    said = {"thinking": {"budget_tokens": 2000}}
    await model.complete(Request("m", (Message("user", "hi"),), timeout=10, max_tokens=3000, extra=said))
    assert server.requests[0].body["thinking"] == {"type": "enabled", "budget_tokens": 2000}
