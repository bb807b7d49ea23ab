"""Which options models are known to refuse."""

from __future__ import annotations

from typing import Any

import pytest

from flowengine.models.option_refusals import find_refusals

THINKING = {"thinking": {"budget_tokens": 2048}}


@pytest.mark.parametrize(
    ("provider", "name", "options", "refused"),
    [
        ("openai", "gpt-4o-mini", {"seed": 1, "top_p": 0.5, "presence_penalty": 1, "stop": ["a"]}, []),
        ("openai", "gpt-4o-mini", {"reasoning_effort": "low", "verbosity": "low"}, ["reasoning_effort", "verbosity"]),
        ("openai", "gpt-4o-mini", {"stop": ["a"] * 5}, ["stop"]),
        ("openai", "gpt-4o-mini", THINKING, ["thinking"]),
        ("openai", "gpt-4o-mini", {"service_tier": "standard_only"}, ["service_tier"]),
        ("openai", "ft:gpt-4o-mini:org::id", {"reasoning_effort": "low"}, ["reasoning_effort"]),
        ("openai", "gpt-5-mini", {"reasoning_effort": "minimal", "verbosity": "low", "seed": 1}, []),
        ("openai", "gpt-5-mini", {"top_p": 0.5, "stop": ["a"]}, ["stop", "top_p"]),
        ("openai", "gpt-5-mini", {"temperature": 0.2}, ["temperature"]),
        ("azure", "gpt-35-turbo", {"temperature": 0.2}, []),
        ("openai", "gpt-5-mini", {"temperature": 1}, []),
        ("openai", "gpt-5", {"reasoning_effort": "xhigh"}, ["reasoning_effort"]),
        ("openai", "gpt-5.1", {"reasoning_effort": "none", "top_p": 0.5, "temperature": 0.3}, []),
        ("openai", "gpt-5.1", {"reasoning_effort": "low", "top_p": 0.5}, ["top_p"]),
        ("openai", "gpt-5-chat-latest", {"temperature": 0.3, "top_p": 0.3}, []),
        ("openai", "o3", {"stop": ["a"], "frequency_penalty": 1}, ["stop", "frequency_penalty"]),
        ("openai", "o3-mini", {"stop": ["a"]}, []),
        ("openai", "a-model-of-my-own", {"reasoning_effort": "low", "temperature": 0.3}, []),
        ("azure", "my-deployment", {"reasoning_effort": "low", "top_p": 0.3}, []),
        ("azure", "my-deployment", THINKING, ["thinking"]),
        ("anthropic", "claude-haiku-4-5", {"seed": 1, "presence_penalty": 1}, ["seed", "presence_penalty"]),
        ("anthropic", "claude-haiku-4-5", {"top_k": 5, "stop": ["a"] * 5, "service_tier": "auto"}, []),
        ("anthropic", "claude-haiku-4-5", {**THINKING, "max_tokens": 4096}, []),
        ("anthropic", "claude-haiku-4-5", {**THINKING, "max_tokens": 2048}, ["thinking"]),
        ("anthropic", "claude-haiku-4-5", {"thinking": {"budget_tokens": 1000}}, ["thinking"]),
        ("anthropic", "claude-haiku-4-5", {**THINKING, "temperature": 0.3}, ["temperature"]),
        ("anthropic", "claude-haiku-4-5", {**THINKING, "top_p": 0.3}, ["top_p"]),
        ("anthropic", "claude-haiku-4-5", {"temperature": 1.5}, ["temperature"]),
        ("anthropic", "claude-haiku-4-5", {"temperature": 0.5, "top_p": 0.3}, ["top_p"]),
        ("anthropic", "claude-opus-4-7", THINKING, ["thinking"]),
        ("anthropic", "claude-opus-4-7", {"temperature": 0.5, "top_k": 3}, ["temperature", "top_k"]),
        ("anthropic", "claude-opus-4-7", {"reasoning_effort": "max"}, []),
        ("anthropic", "a-claude-to-come", {**THINKING, "top_p": 0.97}, []),
        ("anthropic", "a-claude-to-come", {"thinking": {"type": "adaptive"}}, []),
        ("openai", "gpt-6-astra", {"temperature": 0.7, "stop": ["a"], "top_p": 0.5}, ["stop", "top_p", "temperature"]),
        ("openai", "gpt-6-astra", {"reasoning_effort": "none"}, ["reasoning_effort"]),
        ("openai", "gpt-6-astra", {"reasoning_effort": "max", "seed": 1}, ["seed"]),
        (
            "openai",
            "gpt-5-pro",
            {"seed": 1, "max_tokens": 8, "reasoning_effort": "low"},
            ["reasoning_effort", "seed", "max_tokens"],
        ),
        ("openai", "gpt-5.5", {"seed": 1, "temperature": 0.5, "reasoning_effort": "none"}, []),
        ("openai", "gpt-5", {"reasoning_effort": "max"}, ["reasoning_effort"]),
        ("azure", "gpt-5", {"temperature": 0.2}, ["temperature"]),
        ("anthropic", "claude-haiku-4-5", {"reasoning_effort": "high", "max_tokens": 1000}, ["reasoning_effort"]),
        ("anthropic", "claude-haiku-4-5", {"reasoning_effort": "high", "max_tokens": 5000}, []),
        ("anthropic", "claude-haiku-4-5", {"reasoning_effort": "high", "temperature": 0.3}, ["temperature"]),
        ("anthropic", "claude-opus-4-5", {"reasoning_effort": "max"}, ["reasoning_effort"]),
        ("anthropic", "claude-opus-4-6", {"reasoning_effort": "xhigh"}, ["reasoning_effort"]),
        ("anthropic", "claude-sonnet-4-6", {"reasoning_effort": "xhigh"}, ["reasoning_effort"]),
        ("anthropic", "claude-opus-5-5", {"reasoning_effort": "none"}, ["reasoning_effort"]),
        ("anthropic", "claude-sonnet-5", {"reasoning_effort": "none"}, []),
        ("google", "gemini-2.5-flash", {"reasoning_effort": "xhigh"}, ["reasoning_effort"]),
        ("google", "gemini-2.5-pro", {"reasoning_effort": "none"}, ["reasoning_effort"]),
        ("google", "gemini-2.5-flash", {"top_k": 3, "presence_penalty": 1}, ["top_k", "presence_penalty"]),
        ("groq", "openai/gpt-oss-20b", {"reasoning_effort": "minimal"}, ["reasoning_effort"]),
        ("mistral", "mistral-medium-latest", {"reasoning_effort": "low"}, ["reasoning_effort"]),
        ("xai", "grok-4.5", {"stop": ["a"], "presence_penalty": 1}, ["stop", "presence_penalty"]),
        ("xai", "grok-4.20-reasoning", {"reasoning_effort": "low"}, ["reasoning_effort"]),
        ("deepseek", "deepseek-v4-pro", {"reasoning_effort": "none"}, []),
        ("mistral", "mistral-large-latest", {"verbosity": "low", "seed": 1}, ["verbosity"]),
        ("hosted_vllm", "anything", {"seed": 1, "top_k": 3, "min_p": 0.1, **THINKING}, []),
        ("ollama", "llama3", {"seed": 1, "num_ctx": 4096}, []),
        ("offline", "offline", {"seed": 1, "stop": ["a"] * 9, **THINKING}, []),
        ("scripted", "scripted", {"seed": 1, "stop": ["a"] * 9, **THINKING}, []),
    ],
)
def test_a_model_refuses_what_its_vendor_says(
    provider: str, name: str, options: dict[str, Any], refused: list[str]
) -> None:
    assert [each.option for each in find_refusals(provider, name, options)] == refused


def test_tools_decide_what_openai_is_asked_and_so_what_it_takes() -> None:
    def refused(name: str, **options: Any) -> list[str]:
        return [each.option for each in find_refusals("openai", name, options, has_tools=True)]

    assert refused("gpt-5.5", seed=1, max_tokens=8) == ["seed", "max_tokens"]
    assert refused("gpt-5.5", seed=1, reasoning_effort="none") == []
    assert refused("gpt-5", seed=1) == []
    assert refused("o3-deep-research") == ["tools"]


def test_what_a_project_says_of_a_model_goes_first() -> None:
    def refused(said: dict[str, Any], **options: Any) -> list[str]:
        return [each.option for each in find_refusals("azure", "prod", options, said)]

    assert refused({}, temperature=0.2, reasoning_effort="low") == []
    assert refused({"same_as": "openai/gpt-5"}, temperature=0.2, reasoning_effort="xhigh") == [
        *("reasoning_effort", "temperature")
    ]
    assert refused({"thinks": True}, temperature=0.2) == ["temperature"]
    assert refused({"efforts": ("low",)}, reasoning_effort="high") == ["reasoning_effort"]
    assert refused({"api": "responses"}, seed=1) == ["seed"]


def test_through_litellm_google_is_asked_otherwise() -> None:
    assert list(find_refusals("google", "gemini-2.5-flash", {"top_k": 3}, adapter="litellm")) == []


def test_nothing_is_looked_up_where_nothing_is_said() -> None:
    assert list(find_refusals("openai", "gpt-5", {"temperature": None, "max_tokens": None})) == []
