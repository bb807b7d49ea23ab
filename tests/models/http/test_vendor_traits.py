"""What is known of vendors and their models."""

from __future__ import annotations

from typing import Any

import pytest

from flowengine.models.http.native_model import PROTOCOLS
from flowengine.models.http.vendor_endpoint import join_address
from flowengine.models.http.vendor_traits import NATIVE, traits_of
from flowengine.models.vendors import OTHERS, VENDORS


def test_every_native_vendor_is_one_of_ours_and_names_its_sources() -> None:
    for name, traits in NATIVE.items():
        assert name in VENDORS or name in OTHERS
        assert traits.protocol in PROTOCOLS
        assert traits.sources
        assert all(each.startswith("https://") for each in traits.sources)
        assert traits.address.startswith("https://") or (VENDORS.get(name) or OTHERS[name]).base_variables


@pytest.mark.parametrize(
    ("provider", "model", "known"),
    [
        ("openai", "gpt-4o-mini", {"token_limit": "max_tokens", "strict_schemas": True}),
        ("openai", "o3-mini", {"token_limit": "max_completion_tokens"}),
        ("openai", "gpt-5", {"token_limit": "max_completion_tokens"}),
        ("openai", "gpt-5-chat-latest", {"token_limit": "max_tokens", "strict_schemas": True}),
        ("openai", "gpt-4.1", {"structured_output": "json_schema", "schema_with_tools": True}),
        ("openai", "gpt-3.5-turbo", {"structured_output": "prompt"}),
        ("openai", "gpt-4-turbo", {"structured_output": "prompt"}),
        ("openai", "a-model-to-come", {"structured_output": "json_schema"}),
        ("groq", "openai/gpt-oss-20b", {"structured_output": "json_schema", "schema_with_tools": False}),
        ("groq", "llama-3.3-70b-versatile", {"structured_output": "json_object"}),
        ("deepseek", "deepseek-chat", {"structured_output": "json_object", "kept_fields": ("reasoning_content",)}),
        ("mistral", "mistral-large-latest", {"takes_stream_options": False, "options": {"seed": "random_seed"}}),
        ("ollama", "llama3.2:3b", {"structured_output": "json_schema"}),
        ("ollama", "gpt-oss:120b-cloud", {"structured_output": "prompt"}),
        ("openrouter", "openai/gpt-4o", {"structured_output": "json_schema"}),
        ("openrouter", "somebody/unknown", {"structured_output": "prompt"}),
        ("xai", "grok-4", {"token_limit": "max_completion_tokens", "reasoning_is_apart": True}),
    ],
)
def test_what_is_known_of_a_model(provider: str, model: str, known: dict[str, Any]) -> None:
    traits = traits_of(provider, model)
    assert {name: getattr(traits, name) for name in known} == known


def test_at_another_address_only_names_of_the_vendor_are_known() -> None:
    assert traits_of("openai", "gpt-4o", is_elsewhere=True).structured_output == "json_schema"
    assert traits_of("openai", "a-model-to-come", is_elsewhere=True).structured_output == "prompt"
    assert traits_of("openai", "mine", is_elsewhere=True, structured_output="json_schema").structured_output == (
        "json_schema"
    )


@pytest.mark.parametrize(
    ("provider", "given", "address"),
    [
        ("openai", None, "https://api.openai.com/v1"),
        ("openai", "https://api.openai.com", "https://api.openai.com/v1"),
        ("openai", "https://gateway.example/team/", "https://gateway.example/team"),
        ("groq", "https://api.groq.com", "https://api.groq.com/openai/v1"),
        (
            "google",
            "https://generativelanguage.googleapis.com/",
            "https://generativelanguage.googleapis.com/v1beta/openai",
        ),
        ("perplexity", "https://api.perplexity.ai", "https://api.perplexity.ai"),
        ("ollama", "gpu:11434", "http://gpu:11434/v1"),
        ("lmstudio", "http://127.0.0.1:1234/v1/chat/completions", "http://127.0.0.1:1234/v1"),
        ("hosted_vllm", "http://h/v1?tenant=a", "http://h/v1?tenant=a"),
        ("azure", "https://x.openai.azure.com/openai/deployments/d/chat/completions?a=1", "https://x.openai.azure.com"),
    ],
)
def test_an_address_is_the_vendors_own_or_the_one_that_was_given(provider: str, given: str, address: str) -> None:
    assert join_address(given, NATIVE[provider]) == address
