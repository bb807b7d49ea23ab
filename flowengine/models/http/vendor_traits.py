"""Lists what vendors differ in where they speak one protocol: data only, each entry with its source.

A vendor that is not here is reached through litellm. What holds for some of its models only is a `ModelRule`; which
models follow a JSON Schema is in litellm's table of models too, where a vendor's entry says `schemas_are_listed`.
What a model can do is the matter of `capability_lookup`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any, Final, Literal, NamedTuple, TypeAlias, get_args

from flowengine.core import EMPTY
from flowengine.models.capabilities import Capabilities
from flowengine.models.capability_lookup import capabilities_of
from flowengine.models.model import PromptCache
from flowengine.models.pricing import listed_entry, listed_schema_support

StructuredOutput: TypeAlias = Literal["json_schema", "json_object", "tool", "prompt"]
"""How an answer's shape is asked for: by the schema, as some JSON, as a tool that has to be called, in the prompt."""

STRUCTURED_OUTPUTS: Final[tuple[StructuredOutput, ...]] = get_args(StructuredOutput)


class ModelRule(NamedTuple):
    """Traits of the models whose name matches a pattern."""

    pattern: str
    changes: Mapping[str, Any]
    """Fields of `VendorTraits` with their values."""


@dataclass(frozen=True, slots=True)
class VendorTraits:
    """The traits of a vendor, or of one of its models."""

    protocol: Literal["openai", "azure", "anthropic"]
    sources: tuple[str, ...]
    """Pages of the vendor that say so."""
    address: str = ""
    """The vendor's address; empty: somebody has to say it."""
    path: str = "/v1"
    """The path that an address gets which has none of its own."""
    token_limit: str = "max_tokens"
    """The parameter that bounds an answer."""
    limit_of_thinking: str = ""
    """The same where a model thinks, if that is another one."""
    structured_output: StructuredOutput = "json_schema"
    schemas_are_listed: bool = False
    """Whether only those models follow a schema of which the table says so; the others are told in the prompt."""
    schema_with_tools: bool = False
    """Whether a schema may be sent beside tools."""
    strict_schemas: bool = False
    """Whether it is asked to hold to a schema that is in its part of JSON Schema."""
    strict_tools: bool = False
    """The same of the arguments of tools."""
    takes_stream_options: bool = True
    """Whether a stream's usage has to be asked for; where False, it comes by itself."""
    cached_tokens: tuple[str, ...] = ("prompt_tokens_details.cached_tokens",)
    """Places in the usage of the tokens that a cache served; the first one that is there counts."""
    cache_write_tokens: tuple[str, ...] = ()
    api_version: str = ""
    """The version that is asked for at the vendor's own address; empty: the one that all its models know."""
    call_id_length: int = 0
    """Letters and digits of a tool call's id, where the vendor takes no others."""
    told_cost: str = ""
    """The place in the usage of what the call cost."""
    told_cost_unit: float = 1.0
    """Dollars."""
    reasoning_tokens: tuple[str, ...] = ("completion_tokens_details.reasoning_tokens",)
    reasoning_is_apart: bool = False
    """Whether the tokens of reasoning may not be among those of the answer; then the total tells."""
    longest_answer: int = 0
    """Tokens, where a request has to have a bound."""
    kept_fields: tuple[str, ...] = ()
    """Fields of its messages that it wants back with them."""
    kept_of_calls: tuple[str, ...] = ()
    """The same of the tool calls in its messages."""
    thinking_budget: Literal["", "openrouter", "google"] = ""
    """The vendor as whose parameter tokens for thinking are sent; empty: `thinking`, as Anthropic has it."""
    cache_marks: Literal["none", "key", "key if asked for", "blocks"] = "none"
    """How a prompt is marked for the vendor's cache: by a key of requests that begin alike, or at its blocks."""
    cache_minimum: int = 0
    """Tokens of the shortest prefix that the vendor's cache keeps; 0: it has none, or does not say."""
    options: Mapping[str, str] = field(default_factory=dict[str, str])
    """Our names of options → the vendor's, where they differ; an empty one: it is left out."""
    untaken_options: tuple[str, ...] = ()
    """Parameters that the vendor takes elsewhere, and leaves unread here."""
    models: tuple[ModelRule, ...] = ()
    """The first that fits a model's name counts."""
    name: str = ""
    """The vendor's."""
    can: Capabilities = field(default_factory=Capabilities)
    """The model's capabilities."""

    @property
    def marks_beginnings(self) -> bool:
        """Whether OpenAI's cache is told how far prompts begin alike."""
        return self.can.writes_cache_unasked and self.cache_marks == "key"

    def cache_options(self, cache: PromptCache | None) -> dict[str, Any]:
        """Makes the options of OpenAI's protocols for the cache: a key of requests that begin alike, or that none is
        written."""
        if cache is None:
            return {}
        if self.marks_beginnings and not cache.is_wanted:
            return {"prompt_cache_options": {"mode": "explicit"}}
        is_sent = self.cache_marks == "key" or (self.cache_marks == "key if asked for" and cache.is_asked_for)
        return {"prompt_cache_key": cache.key} if is_sent and cache.key else {}


def is_native(provider: str) -> bool:
    """Tells whether a vendor is reached over HTTP from here, without litellm."""
    return provider in NATIVE


def traits_of(
    provider: str,
    model: str,
    *,
    structured_output: str | None = None,
    is_elsewhere: bool = False,
    overrides: Mapping[str, Any] = EMPTY,
) -> VendorTraits:
    """Returns the traits of a vendor's model. `structured_output`: what the user says of it; `is_elsewhere`: it is
    asked at another address than the vendor's own, so what it follows is known for names of the vendor's only;
    `overrides`: what a project says that it can do.

    >>> traits_of("openai", "gpt-5-mini").token_limit, traits_of("openai", "gpt-4o").token_limit
    ('max_completion_tokens', 'max_tokens')
    """
    traits = _traits_of(provider, model, is_elsewhere)
    if overrides:
        can = capabilities_of(provider, model, overrides)
        traits = replace(traits, can=can, token_limit=_token_limit(traits, can))
    return traits if structured_output is None else replace(traits, structured_output=structured_output)


def cache_minimum(provider: str, model: str) -> int | None:
    """Tokens of the shortest prefix that a vendor keeps; None where nothing is known of a cache."""
    return (traits_of(provider, model).cache_minimum or None) if provider in NATIVE else None


@lru_cache(maxsize=256)
def _traits_of(provider: str, model: str, is_elsewhere: bool) -> VendorTraits:
    vendor, can = NATIVE[provider], capabilities_of(provider, model)
    traits = replace(vendor, name=provider, can=can, token_limit=_token_limit(vendor, can))
    for rule in vendor.models:
        if re.search(rule.pattern, model):
            traits = replace(traits, **rule.changes)
            break
    traits = _as_listed(provider, model, traits)
    if traits.structured_output == "json_schema" and (traits.schemas_are_listed or (is_elsewhere and vendor.address)):
        is_listed = listed_schema_support(provider, model)
        follows = is_listed is True or (is_listed is None and not traits.schemas_are_listed and not is_elsewhere)
        if not follows:
            traits = replace(traits, structured_output="prompt")
    if is_elsewhere and vendor.address:
        traits = replace(traits, strict_schemas=False, strict_tools=False)
    if is_elsewhere and traits.cache_marks == "key":  # Another server may refuse what it does not know.
        traits = replace(traits, cache_marks="key if asked for")
    return traits


def _token_limit(vendor: VendorTraits, can: Capabilities) -> str:
    return (vendor.limit_of_thinking if can.thinks else "") or vendor.token_limit


def _as_listed(provider: str, model: str, traits: VendorTraits) -> VendorTraits:
    """The traits with what the table says of shapes, bounds and caches."""
    entry = listed_entry(provider, model) or {}
    if provider in ("openai", "azure") and entry.get("supports_response_schema") is False:
        traits = replace(traits, structured_output="prompt")
    if provider == "anthropic" and isinstance(minimum := entry.get("prompt_cache_min_tokens"), int):
        traits = replace(traits, cache_minimum=minimum)
    return traits


_BEFORE_SCHEMAS: Final = (
    r"^(ft:)?(gpt-4-turbo|gpt-4-\d|gpt-3\.5|gpt-4$|gpt-4o-2024-05-13|chatgpt-4o|o1-mini|o1-preview)"
)

_FOUR_FIVE: Final = {"structured_output": "json_schema", "schema_with_tools": True, "strict_tools": True}
_ADAPTIVE: Final = {**_FOUR_FIVE, "longest_answer": 128_000, "cache_minimum": 512}
"""Anthropic's models that decide themselves how long they think."""

NATIVE: Final[Mapping[str, VendorTraits]] = {
    "openai": VendorTraits(
        "openai",
        (
            "https://platform.openai.com/docs/api-reference/chat/create",  # max_tokens, stream_options
            "https://platform.openai.com/docs/guides/structured-outputs",  # which models, beside tools
            "https://platform.openai.com/docs/guides/reasoning",  # no temperature
            "https://platform.openai.com/docs/guides/prompt-caching",  # the key and the minimum
        ),
        "https://api.openai.com/v1",
        cache_write_tokens=("prompt_tokens_details.cache_write_tokens",),  # from GPT-5.6 on
        limit_of_thinking="max_completion_tokens",
        schema_with_tools=True,
        strict_schemas=True,
        strict_tools=True,
        cache_marks="key",
        cache_minimum=1024,
        models=(ModelRule(_BEFORE_SCHEMAS, {"structured_output": "prompt"}),),
    ),
    "anthropic": VendorTraits(
        "anthropic",
        (
            "https://platform.claude.com/docs/en/api/messages",
            "https://platform.claude.com/docs/en/about-claude/models/overview",  # the longest answers
            "https://platform.claude.com/docs/en/build-with-claude/structured-outputs",  # from 4.5 on
            "https://platform.claude.com/docs/en/agents-and-tools/tool-use/strict-tool-use",
            "https://platform.claude.com/docs/en/build-with-claude/adaptive-thinking",
            "https://platform.claude.com/docs/en/build-with-claude/effort",
            "https://platform.claude.com/docs/en/build-with-claude/prompt-caching",  # the minimum
        ),
        "https://api.anthropic.com",
        path="",
        api_version="2026-10-21",  # https://platform.claude.com/docs/en/api/versioning
        structured_output="tool",
        longest_answer=64_000,
        cache_marks="blocks",
        cache_minimum=1024,
        options={"seed": "", "presence_penalty": "", "frequency_penalty": "", "verbosity": ""},
        models=(
            ModelRule("claude-3-haiku", {"longest_answer": 4096, "cache_minimum": 2048}),
            ModelRule("claude-3-(opus|sonnet)|claude-[12]", {"longest_answer": 4096}),
            ModelRule("claude-3-5-haiku", {"longest_answer": 8192, "cache_minimum": 2048}),
            ModelRule("claude-3-5", {"longest_answer": 8192}),
            ModelRule(r"claude-opus-4(-[01](-|$)|-2025|@|$)", {"longest_answer": 32_000}),
            ModelRule(r"claude-(3-7|sonnet-4(-0|-2025|@|$))", {}),
            ModelRule("claude-sonnet-4-5", _FOUR_FIVE),
            ModelRule("claude-haiku-4-5", {**_FOUR_FIVE, "cache_minimum": 4096}),
            ModelRule("claude-opus-4-5", {**_FOUR_FIVE, "cache_minimum": 4096}),
            ModelRule("claude-sonnet-4-6", {**_ADAPTIVE, "cache_minimum": 1024}),
            ModelRule("claude-opus-4-6", {**_ADAPTIVE, "cache_minimum": 4096}),
            ModelRule("claude-opus-4-7", {**_ADAPTIVE, "cache_minimum": 2048}),
            ModelRule("claude-opus-4-8|claude-sonnet-5(-2|@|$)", {**_ADAPTIVE, "cache_minimum": 1024}),
            ModelRule("claude", _ADAPTIVE),
        ),
    ),
    "azure": VendorTraits(
        "azure",
        (
            "https://learn.microsoft.com/azure/ai-services/openai/reference",
            "https://learn.microsoft.com/azure/ai-services/openai/how-to/structured-outputs",
            "https://learn.microsoft.com/azure/ai-services/openai/how-to/reasoning",
        ),
        path="",
        cache_write_tokens=("prompt_tokens_details.cache_write_tokens",),
        limit_of_thinking="max_completion_tokens",
        schema_with_tools=True,
        strict_schemas=True,
        strict_tools=True,
        models=(ModelRule(r"gpt-?35|gpt-4-|gpt-4$", {"structured_output": "prompt"}),),
    ),
    "google": VendorTraits(
        "openai",
        (
            "https://ai.google.dev/gemini-api/docs/openai",
            "https://ai.google.dev/gemini-api/docs/structured-output",  # not beside tools before Gemini 3
        ),
        "https://generativelanguage.googleapis.com/v1beta/openai",
        path="/v1beta/openai",
        kept_of_calls=("extra_content",),  # https://ai.google.dev/gemini-api/docs/thought-signatures
        thinking_budget="google",
        reasoning_is_apart=True,  # https://discuss.ai.google.dev/t/127400
        models=(ModelRule(r"^gemma", {"structured_output": "prompt"}),),
    ),
    "openrouter": VendorTraits(
        "openai",
        (
            "https://openrouter.ai/docs/api-reference/overview",
            "https://openrouter.ai/docs/features/structured-outputs",
            "https://openrouter.ai/docs/use-cases/usage-accounting",
        ),
        "https://openrouter.ai/api/v1",
        path="/api/v1",
        schemas_are_listed=True,
        told_cost="cost",
        cache_write_tokens=("prompt_tokens_details.cache_write_tokens",),
        kept_fields=("reasoning_details",),  # https://openrouter.ai/docs/use-cases/reasoning-tokens
        thinking_budget="openrouter",
        models=(ModelRule(r"^openai/(gpt-4o|gpt-4\.1|gpt-5|o\d)", {"schemas_are_listed": False}),),
    ),
    "groq": VendorTraits(
        "openai",
        (
            "https://console.groq.com/docs/api-reference#chat-create",  # max_completion_tokens
            "https://console.groq.com/docs/structured-outputs",  # which models; neither tools nor streams beside it
        ),
        "https://api.groq.com/openai/v1",
        path="/openai/v1",
        token_limit="max_completion_tokens",
        structured_output="json_object",
        cached_tokens=("prompt_tokens_details.cached_tokens", "x_groq.usage.prompt_tokens_details.cached_tokens"),
        models=(
            ModelRule("gpt-oss", {"structured_output": "json_schema", "strict_schemas": True}),
            ModelRule("llama-4|kimi-k2", {"structured_output": "json_schema"}),
        ),
    ),
    "deepseek": VendorTraits(
        "openai",
        (
            "https://api-docs.deepseek.com/api/create-chat-completion",  # prompt_cache_hit_tokens
            "https://api-docs.deepseek.com/guides/json_mode",
        ),
        "https://api.deepseek.com/v1",
        structured_output="json_object",
        schema_with_tools=True,
        cached_tokens=("prompt_cache_hit_tokens", "prompt_tokens_details.cached_tokens"),
        kept_fields=("reasoning_content",),  # https://api-docs.deepseek.com/guides/thinking_mode
    ),
    "mistral": VendorTraits(
        "openai",
        (
            "https://docs.mistral.ai/api/#tag/chat",  # random_seed, no stream_options
            "https://docs.mistral.ai/capabilities/structured-output/custom_structured_output/",
        ),
        "https://api.mistral.ai/v1",
        takes_stream_options=False,
        strict_schemas=True,
        options={"seed": "random_seed"},
        call_id_length=9,  # https://github.com/mistralai/mistral-common, its validators
        models=(ModelRule("codestral-mamba|^mathstral", {"structured_output": "prompt"}),),
    ),
    "together_ai": VendorTraits(
        "openai",
        (
            "https://docs.together.ai/reference/chat-completions-1",
            "https://docs.together.ai/docs/json-mode",
        ),
        "https://api.together.xyz/v1",
        schemas_are_listed=True,
    ),
    "fireworks_ai": VendorTraits(
        "openai",
        (
            "https://docs.fireworks.ai/api-reference/post-chatcompletions",
            "https://docs.fireworks.ai/structured-responses/structured-response-formatting",
        ),
        "https://api.fireworks.ai/inference/v1",
        path="/inference/v1",
    ),
    "xai": VendorTraits(
        "openai",
        (
            "https://docs.x.ai/docs/api-reference#chat-completions",  # max_completion_tokens, usage
            "https://docs.x.ai/docs/guides/structured-outputs",
            "https://docs.x.ai/developers/cost-tracking",
        ),
        "https://api.x.ai/v1",
        token_limit="max_completion_tokens",
        reasoning_is_apart=True,
        told_cost="cost_in_usd_ticks",
        told_cost_unit=1e-10,
        models=(ModelRule("grok-2-vision|grok-beta", {"structured_output": "prompt"}),),
    ),
    "cerebras": VendorTraits(
        "openai",
        (
            "https://inference-docs.cerebras.ai/api-reference/chat-completions",
            "https://inference-docs.cerebras.ai/capabilities/structured-outputs",  # not beside tools
        ),
        "https://api.cerebras.ai/v1",
        token_limit="max_completion_tokens",
    ),
    "perplexity": VendorTraits(
        "openai",
        (
            "https://docs.perplexity.ai/api-reference/chat-completions-post",
            "https://docs.perplexity.ai/guides/structured-outputs",
        ),
        "https://api.perplexity.ai",
        path="",
        takes_stream_options=False,
        told_cost="cost.total_cost",
        reasoning_tokens=("completion_tokens_details.reasoning_tokens", "reasoning_tokens"),
    ),
    "ollama": VendorTraits(
        "openai",
        (
            "https://github.com/ollama/ollama/blob/main/docs/openai.md",
            "https://ollama.com/blog/structured-outputs",
            "https://github.com/ollama/ollama/issues/12362",  # models in its cloud are held to no schema
        ),
        untaken_options=("keep_alive", "mirostat", "num_ctx", "num_gpu", "num_predict", "num_thread", "repeat_penalty"),
        models=(ModelRule("-cloud$", {"structured_output": "prompt"}),),
    ),
    "lmstudio": VendorTraits(
        "openai",
        (
            "https://lmstudio.ai/docs/app/api/endpoints/openai",
            "https://lmstudio.ai/docs/app/api/structured-output",
        ),
    ),
    "hosted_vllm": VendorTraits(
        "openai",
        (
            "https://docs.vllm.ai/en/latest/serving/openai_compatible_server.html",
            "https://docs.vllm.ai/en/latest/features/structured_outputs.html",
        ),
    ),
    "llamacpp": VendorTraits(
        "openai",
        ("https://github.com/ggml-org/llama.cpp/blob/master/tools/server/README.md",),
    ),
}
"""The vendors that are reached without litellm, by their own names."""
