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
        ("openai", "o3", {"stop": ["a"], "frequency_penalty": 1}, ["frequency_penalty", "stop"]),
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


def test_nothing_is_looked_up_where_nothing_is_said() -> None:
    assert list(find_refusals("openai", "gpt-5", {"temperature": None, "max_tokens": None})) == []
