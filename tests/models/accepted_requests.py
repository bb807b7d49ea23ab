"""Says which requests vendors accept, by their own documents: a table of its own, which reads nothing of the product's.

Sources, read in November 2026:
    [chat]       developers.openai.com/api/reference/resources/chat/subresources/completions/methods/create
    [responses]  developers.openai.com/api/reference/resources/responses/methods/create
    [cache]      developers.openai.com/api/docs/guides/prompt-caching
    [models]     developers.openai.com/api/docs/models: interfaces and efforts of each model
    [checklist]  developers.openai.com/api/docs/guides/deployment-checklist
    [tools]      "Function tools with reasoning_effort are not supported for gpt-5.x in /v1/chat/completions": the API's
                 own words, in openai/openai-openapi#541, BerriAI/litellm#34569 and livekit/agents#7169
    [messages]   platform.claude.com/docs/en/api/messages, /build-with-claude/thinking and /effort, and the pages
                 "what's new" of Opus 4.7, Sonnet 5, Sonnet 5.5 and Opus 5.5
    [gemini]     ai.google.dev/gemini-api/docs/openai
    [mistral]    docs.mistral.ai/api
    [grok]       docs.x.ai/developers/model-capabilities/text/reasoning
    [groq]       console.groq.com/docs/api-reference and /docs/reasoning
    [deepseek]   api-docs.deepseek.com/api/create-chat-completion and /guides/thinking_mode
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

__all__ = ["find_faults"]

_COMMON: Final = frozenset(
    {
        *("model", "messages", "temperature", "top_p", "max_tokens", "stop", "tools", "tool_choice", "response_format"),
        *("stream", "stream_options", "n"),
    }
)
_KEYS: Final[Mapping[str, frozenset[str]]] = {
    "chat": _COMMON
    | {"max_completion_tokens", "seed", "presence_penalty", "frequency_penalty", "reasoning_effort", "verbosity"}
    | {"parallel_tool_calls", "prompt_cache_key", "service_tier", "logit_bias", "metadata", "store", "user"}
    | {"prompt_cache_options"},
    "responses": frozenset(
        {
            *("model", "input", "instructions", "store", "include", "reasoning", "text", "tools", "tool_choice"),
            *("parallel_tool_calls", "max_output_tokens", "temperature", "top_p", "service_tier", "prompt_cache_key"),
            *("stream", "metadata", "prompt_cache_options"),
        }
    ),
    "anthropic": frozenset(
        {
            *("model", "messages", "system", "max_tokens", "temperature", "top_p", "top_k", "stop_sequences", "tools"),
            *("tool_choice", "thinking", "output_config", "stream", "metadata", "service_tier"),
        }
    ),
    "google": _COMMON | {"reasoning_effort", "seed", "extra_body"},
    "mistral": (_COMMON | {"random_seed", "presence_penalty", "frequency_penalty", "reasoning_effort"})
    - {"stream_options"},
    "xai": _COMMON
    | {
        "max_completion_tokens",
        "seed",
        "presence_penalty",
        "frequency_penalty",
        "reasoning_effort",
        "parallel_tool_calls",
    },
    "groq": _COMMON
    | {"max_completion_tokens", "seed", "reasoning_effort", "reasoning_format", "parallel_tool_calls"}
    | {"presence_penalty", "frequency_penalty"},
    "deepseek": _COMMON | {"presence_penalty", "frequency_penalty", "thinking", "reasoning_effort", "seed"},
}


def find_faults(provider: str, name: str, path: str, body: Mapping[str, Any]) -> list[str]:
    """Why a vendor would refuse a request; nothing where it accepts it."""
    kind = "responses" if path.endswith("/responses") else "chat" if provider == "openai" else provider
    found = [f"unknown parameter {each}" for each in sorted(body.keys() - _KEYS[kind])]
    return [*found, *_JUDGES[provider](name, kind, body)]


def _first(table: Mapping[str, Any], name: str) -> Any:
    return next((value for pattern, value in table.items() if re.match(pattern, name)), None)


# --- OpenAI

_USUAL: Final = ("low", "medium", "high")
_OPENAI_EFFORTS: Final = {
    r"gpt-5-pro": ("high",),
    r"gpt-5\.\d-pro": ("medium", "high", "xhigh"),
    r"(gpt-5\.\d-)?chat-latest": ("medium",),
    r"gpt-5-(?!chat)|gpt-5$": ("minimal", *_USUAL),
    r"gpt-5\.1-codex-max": (*_USUAL, "xhigh"),
    r"gpt-5(\.1)?-codex": _USUAL,
    r"gpt-5\.1": ("none", *_USUAL),
    r"gpt-5\.2-codex": (*_USUAL, "xhigh"),
    r"gpt-5\.[2-5]": ("none", *_USUAL, "xhigh"),
    r"gpt-5\.6|gpt-6-(sol|luna)|gpt-6\.1-terra": ("none", *_USUAL, "xhigh", "max"),
    r"gpt-6": (*_USUAL, "xhigh", "max"),
    r"o\d": _USUAL,
}
"""[models] [checklist]; of one that is not here nothing is known."""
_CODEX: Final = {r"gpt-5(\.1)?-codex(-mini)?$": _USUAL}
_THINKING: Final = re.compile(r"o\d|gpt-5(?!-chat)|gpt-6|chat-latest|(gpt-)?daybreak")
_UNASKED_NONE: Final = re.compile(r"gpt-5\.[1-4](?!-(pro|codex|chat))|gpt-5\.3-codex")
"""Think only where they are asked to. [models]"""
_UNMARKED: Final = re.compile(r"o\d|gpt-[34]|chatgpt|gpt-5(\.[0-5])?(?![.\d])")
"""Whose prompts can have no marks for the cache. [cache]"""
_RESPONSES_ALONE: Final = re.compile(r"(o\d|gpt-[\d.]+)-pro|.*codex|.*deep-research|gpt-daybreak")


def _judge_openai(name: str, kind: str, body: Mapping[str, Any]) -> Iterator[str]:
    effort = body.get("reasoning_effort", (body.get("reasoning") or {}).get("effort"))
    efforts = _first(_CODEX, name) or _first(_OPENAI_EFFORTS, name)
    if "prompt_cache" in str({**body, "prompt_cache_key": ""}).replace("prompt_cache_key", "") and _UNMARKED.match(
        name
    ):
        yield "its cache takes no marks"
    if _RESPONSES_ALONE.match(name) and kind == "chat":
        yield "it has no chat completions"
    if not _THINKING.match(name):
        if not re.match("gpt-[34]|chatgpt-4|gpt-5-chat", name):
            return  # Nothing is known of it.
        if effort is not None:
            yield "it takes no reasoning effort"
        if "include" in body:
            yield "it has no encrypted reasoning"
        return
    if effort is not None and efforts is not None and effort not in efforts:
        yield f"effort {effort}, it takes {efforts}"
    is_thinking = effort != "none" and not (effort is None and _UNASKED_NONE.match(name))
    yield from (f"{each} beside thinking" for each in ("temperature", "top_p") if each in body and is_thinking)
    yield from (
        f"{each} of a model that thinks" for each in ("max_tokens", "stop") if each in body and not _takes(name, each)
    )
    yield from (f"{each} of a model that thinks" for each in ("presence_penalty", "frequency_penalty") if each in body)
    if kind == "chat":
        yield from _judge_chat(name, effort, body)
    else:
        yield from _judge_responses(body)


def _takes(name: str, option: str) -> bool:
    return option == "stop" and name.startswith(("o1", "o3-mini"))


def _judge_chat(name: str, effort: str | None, body: Mapping[str, Any]) -> Iterator[str]:
    if effort == "max":
        yield "chat completions take no effort max"
    needs_none = re.match(r"gpt-5\.[56]|gpt-6", name) is not None
    takes_unasked = re.match(r"gpt-5\.[24]", name) is not None and effort is None
    if "tools" in body and effort != "none" and (needs_none or re.match(r"gpt-5\.[24]", name)) and not takes_unasked:
        yield "function tools beside thinking"


def _judge_responses(body: Mapping[str, Any]) -> Iterator[str]:
    if body.get("store") is not False:
        yield "the vendor would keep it"
    if body.get("max_output_tokens", 16) < 16:
        yield "fewer than 16 tokens"
    yield from (
        "a tool that does not say whether it is strict" for each in body.get("tools", ()) if "strict" not in each
    )


# --- Anthropic [messages]

_ADAPTIVE: Final = {"adaptive"}
_THINKING_TYPES: Final = {
    r"claude-sonnet-5-5": {*_ADAPTIVE, "between_tools"},
    r"claude-opus-5-5|claude-fable|claude-mythos": _ADAPTIVE,
    r"claude-(opus|sonnet)-5|claude-haiku-5-5|claude-opus-4-[78]": {*_ADAPTIVE, "disabled"},
    r"claude-(opus|sonnet)-4-6": {*_ADAPTIVE, "enabled", "disabled"},
    r"claude": {"enabled", "disabled"},
}
_CLAUDE_EFFORTS: Final = {
    r"claude-opus-4-5": _USUAL,
    r"claude-(opus|sonnet)-4-6": (*_USUAL, "max"),
    r"claude-mythos-preview": (*_USUAL, "max", "xhigh"),
    r"claude-(haiku|sonnet)-4-5": (),
    r"claude": (*_USUAL, "xhigh", "max"),
}


def _judge_anthropic(name: str, kind: str, body: Mapping[str, Any]) -> Iterator[str]:
    thinking = body.get("thinking") or {}
    effort = (body.get("output_config") or {}).get("effort")
    if thinking and thinking["type"] not in _first(_THINKING_TYPES, name):
        yield f"thinking {thinking['type']}"
    if effort is not None and effort not in _first(_CLAUDE_EFFORTS, name):
        yield f"effort {effort}"
    budget = thinking.get("budget_tokens")
    if budget is not None and not 1024 <= budget < body["max_tokens"]:
        yield f"a budget of {budget} within {body['max_tokens']}"
    if not re.match(r"claude-\w+-4-[56]", name):
        yield from (f"{each}, which it has not" for each in ("temperature", "top_p", "top_k") if each in body)
    if thinking.get("type") in ("enabled", "adaptive") and "temperature" in body:
        yield "a temperature beside thinking"
    forced = (body.get("tool_choice") or {}).get("type") in ("any", "tool")
    if forced and re.match(r"claude-(opus|sonnet)-5-5|claude-(fable|mythos)-5-1", name):
        yield "a forced tool"


# --- Others

_GEMINI_EFFORTS: Final = {
    r"gemini-2\.5-flash": ("none", "minimal", *_USUAL),
    r"gemini-2\.5-pro": ("minimal", *_USUAL),
    r"gemini-3\.[78]|gemini-4-argon": _USUAL,
    r"gemini-4-hydrogen": (*_USUAL, "xhigh"),
    r"gemini-3": ("minimal", *_USUAL),
}


def _judge_google(name: str, kind: str, body: Mapping[str, Any]) -> Iterator[str]:
    efforts, effort = _first(_GEMINI_EFFORTS, name), body.get("reasoning_effort")
    if "gemma" not in name and effort is not None and effort not in (efforts or (*_USUAL, "minimal")):
        yield f"effort {effort}"


def _judge_mistral(name: str, kind: str, body: Mapping[str, Any]) -> Iterator[str]:
    if body.get("reasoning_effort") not in (None, "none", "high") and "glm" not in name:
        yield f"effort {body['reasoning_effort']}"


_GROK_EFFORTS: Final = {
    r"grok-4\.20-multi-agent": (*_USUAL, "xhigh"),
    r"grok-4\.20|grok-code-fast": (),
    r"grok-4\.3": ("none", *_USUAL),
    r"grok-4\.[567]": _USUAL,
}


def _judge_xai(name: str, kind: str, body: Mapping[str, Any]) -> Iterator[str]:
    effort = body.get("reasoning_effort", (body.get("reasoning") or {}).get("effort"))
    efforts = _first(_GROK_EFFORTS, name)
    if effort is not None and efforts is not None and effort not in efforts:
        yield f"effort {effort}"
    if "non-reasoning" not in name:
        refused = ("presence_penalty", "frequency_penalty", "stop")
        yield from (f"{each} of a model that thinks" for each in refused if each in body)
    if "multi-agent" in name and kind != "responses":
        yield "it has no chat completions"


def _judge_groq(name: str, kind: str, body: Mapping[str, Any]) -> Iterator[str]:
    if "gpt-oss" in name and body.get("reasoning_effort") not in (None, *_USUAL):
        yield f"effort {body['reasoning_effort']}"


def _judge_deepseek(name: str, kind: str, body: Mapping[str, Any]) -> Iterator[str]:
    if body.get("reasoning_effort") == "none":
        yield "effort none"
    if (body.get("thinking") or {}).get("type") not in (None, "enabled", "disabled"):
        yield "thinking"


_JUDGES: Final[Mapping[str, Callable[[str, str, Mapping[str, Any]], Iterator[str]]]] = {
    "openai": _judge_openai,
    "anthropic": _judge_anthropic,
    "google": _judge_google,
    "mistral": _judge_mistral,
    "xai": _judge_xai,
    "groq": _judge_groq,
    "deepseek": _judge_deepseek,
}
