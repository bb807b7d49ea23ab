"""What models can do, as far as that is known before they are asked."""

from __future__ import annotations

from typing import Any

import pytest

from flowengine.models.capabilities import kind_of
from flowengine.models.capability_lookup import capabilities_of, find_kin

USUAL = ("low", "medium", "high")


@pytest.mark.parametrize(
    ("provider", "name", "known"),
    [
        ("openai", "gpt-4o", {"thinks": False, "efforts": (), "sampling": "always", "api": None}),
        ("openai", "gpt-5", {"efforts": ("minimal", *USUAL), "sampling": "never", "takes_tools_thinking": True}),
        ("openai", "gpt-5.1", {"usual_effort": "none", "sampling": "unless it thinks", "takes_tools_thinking": True}),
        ("openai", "gpt-5.4", {"usual_effort": "none", "takes_tools_thinking": False}),
        ("openai", "gpt-5.5", {"usual_effort": "", "takes_tools_thinking": False}),
        ("openai", "gpt-5.6-sol", {"efforts": ("none", *USUAL, "xhigh", "max")}),
        ("openai", "gpt-6-astra", {"efforts": (*USUAL, "xhigh", "max"), "sampling": "never"}),
        ("openai", "gpt-5-pro", {"efforts": ("high",), "api": "responses", "streams": False}),
        ("openai", "gpt-5-pro-2025-10-06", {"efforts": ("high",), "api": "responses"}),
        ("openai", "o3-pro", {"efforts": USUAL, "api": "responses"}),
        ("openai", "gpt-5-chat-latest", {"thinks": False, "sampling": "always"}),
        ("openai", "ft:gpt-4o-mini:org::id", {"thinks": False}),
        ("openai", "a-model-of-my-own", {"is_known": False, "thinks": None, "efforts": None, "sampling": None}),
        ("azure", "prod", {"is_known": False, "thinks": None, "takes_tools_thinking": True}),
        ("azure", "gpt-5", {"thinks": True}),
        ("anthropic", "claude-haiku-4-5", {"thinks_by": "budget", "sampling": "always", "stops_thinking_by": ""}),
        ("anthropic", "claude-opus-4-5", {"thinks_by": "both", "efforts": ("none", "minimal", *USUAL)}),
        ("anthropic", "claude-opus-4-6", {"thinks_by": "both", "efforts": ("none", "minimal", *USUAL, "max")}),
        ("anthropic", "claude-opus-4-7", {"thinks_by": "effort", "sampling": "never", "stops_thinking_by": ""}),
        ("anthropic", "claude-sonnet-5", {"stops_thinking_by": "disabled", "takes_forced_tool": True}),
        ("anthropic", "claude-sonnet-5-5", {"stops_thinking_by": "between_tools", "takes_forced_tool": False}),
        ("anthropic", "claude-opus-5-5", {"efforts": ("minimal", *USUAL, "xhigh", "max"), "takes_forced_tool": False}),
        ("anthropic", "claude-3-opus-20240229", {"thinks_by": "budget", "sampling": "always", "efforts": None}),
        ("anthropic", "a-claude-to-come", {"thinks_by": "effort", "thinks_adaptively": True, "efforts": None}),
        ("google", "gemini-2.5-flash", {"efforts": ("none", "minimal", *USUAL)}),
        ("google", "gemini-2.5-pro", {"efforts": ("minimal", *USUAL)}),
        ("google", "gemini-3.8-flash", {"efforts": USUAL, "sampling": "never"}),
        ("groq", "openai/gpt-oss-20b", {"efforts": USUAL}),
        ("mistral", "mistral-medium-latest", {"efforts": ("none", "high")}),
        ("xai", "grok-4.3", {"efforts": ("none", *USUAL)}),
        ("xai", "grok-4.5", {"efforts": USUAL}),
        ("xai", "grok-4.20-reasoning", {"efforts": ()}),
        ("deepseek", "deepseek-v4-pro", {"stops_thinking_by": "disabled"}),
        ("hosted_vllm", "anything", {"is_known": False, "thinks": None, "efforts": None}),
    ],
)
def test_what_is_known_of_a_model(provider: str, name: str, known: dict[str, Any]) -> None:
    found = capabilities_of(provider, name)
    assert {field: getattr(found, field) for field in known} == known


@pytest.mark.parametrize(
    ("provider", "name", "like"),
    [
        ("openai", "gpt-9-astra", "gpt-6-astra"),
        ("anthropic", "claude-opus-9-5", "claude-opus-5-5"),
        ("google", "gemini-9-pro", "gemini-3.1-pro-preview"),
        ("xai", "grok-9", "grok-4.7"),
    ],
)
def test_a_model_newer_than_the_table_is_as_the_newest_of_its_family(provider: str, name: str, like: str) -> None:
    assert find_kin(provider, name) is not None
    assert capabilities_of(provider, name).efforts == capabilities_of(provider, like).efforts
    assert capabilities_of(provider, name).is_known


@pytest.mark.parametrize("name", ["gpt-4o-mine", "mine", "gpt-4", "claude-opus-4-5", "llama9"])
def test_other_names_have_no_kin(name: str) -> None:
    assert find_kin("openai", name) is None


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("gpt-4o-2024-08-06", None),
        ("gpt-5.4-mini-2026-03-17", ("gpt-", (5, 4), "-mini")),
        ("claude-haiku-4-5@20251001", ("claude-haiku-", (4, 5), "")),
        ("gemini-3.1-flash-lite-preview", ("gemini-", (3, 1), "-flash-lite")),
        ("deepseek-v4-flash", ("deepseek-v", (4, 0), "-flash")),
    ],
)
def test_a_name_has_a_family_a_version_and_a_variant(name: str, kind: Any) -> None:
    assert kind_of(name) == kind


def test_a_project_has_the_last_word() -> None:
    said = capabilities_of("azure", "prod", {"same_as": "openai/gpt-5.5", "tools": False})
    assert (said.is_known, said.thinks, said.tools) == (True, True, False)
    thinking = capabilities_of("azure", "prod", {"thinks": True})
    assert (thinking.sampling, thinking.efforts) == ("never", None)
    plain = capabilities_of("openai", "gpt-5", {"thinks": False})
    assert (plain.sampling, plain.efforts) == ("always", ())
