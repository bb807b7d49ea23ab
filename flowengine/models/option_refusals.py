"""Says which options of a call a model refuses, as far as that is known before it is asked.

Facts with their sources. Of a vendor or a model that is not listed nothing is said: it is asked, and answers. What
models can do (think, be sampled, think this hard) is read from litellm's table, all else stands here.

Sources, as of November 2026:
    [openai]     platform.openai.com/docs/api-reference/chat/create and /docs/guides/reasoning: reasoning models take
                 neither penalties nor `top_p`; only models that think take `reasoning_effort`, only those of GPT-5 and
                 later `verbosity`; up to 4 texts in `stop`, none with o3 and o4-mini; `thinking` is no parameter
    [anthropic]  platform.claude.com/docs/en/api/messages and /build-with-claude/extended-thinking: the parameters are
                 listed, with neither seed nor penalties; a budget is at least 1,024 tokens and less than `max_tokens`;
                 thinking goes with no temperature but 1 and with `top_p` from 0.95; temperatures go to 1; models with
                 adaptive thinking alone take no budget, those since Opus 4.7 no sampling parameters
    [mistral]    docs.mistral.ai/api
    [groq]       console.groq.com/docs/openai#currently-unsupported-openai-features
    [perplexity] docs.perplexity.ai/api-reference
    [litellm]    its table of models, and the parameters that it maps for a vendor that only it serves
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple

from flowengine.models.pricing import listed_entry

__all__ = ["OptionRefusal", "find_refusals"]


class OptionRefusal(NamedTuple):
    """An option that a model refuses."""

    option: str
    reason: str


def find_refusals(provider: str, name: str, options: Mapping[str, Any]) -> Iterator[OptionRefusal]:
    """Lists the options that a vendor's model refuses, in the form of `Request.extra`, including `temperature` and
    `max_tokens`.

    >>> [each.option for each in find_refusals("anthropic", "claude-haiku-4-5", {"seed": 7, "top_p": 0.5})]
    ['seed']
    >>> list(find_refusals("offline", "offline", {"seed": 7}))
    []
    """
    said = {option: value for option, value in options.items() if value is not None}
    if not said:
        return
    refused = _OF_VENDORS.get(provider, {})
    yield from (OptionRefusal(option, refused[option]) for option in said if option in refused)
    left = {option: value for option, value in said.items() if option not in refused}
    yield from _of_values(provider, left)
    if provider in _OPENAI:
        yield from _of_openai(provider, name, left)
    elif provider == "anthropic":
        yield from _of_anthropic(name, left)


# --- vendors

_OPENAI: Final = frozenset({"openai", "azure"})
_NO_PARAMETER: Final = "it is no parameter of this vendor's"
_EFFORT: Final = "how much its models think is said by `reasoning_effort`"


def _without(*options: str) -> dict[str, str]:
    return dict.fromkeys(options, _NO_PARAMETER)


_OF_VENDORS: Final[Mapping[str, Mapping[str, str]]] = {
    "openai": {"thinking": _EFFORT, **_without("top_k", "min_p", "repetition_penalty")},
    "azure": {"thinking": _EFFORT, **_without("top_k", "min_p", "repetition_penalty")},
    "anthropic": _without(
        *("seed", "verbosity", "presence_penalty", "frequency_penalty", "logit_bias", "logprobs", "top_logprobs"),
        *("min_p", "repetition_penalty"),
    ),
    "bedrock": _without("verbosity"),
    "mistral": _without("verbosity", "thinking", "service_tier"),
    "groq": {"thinking": _EFFORT, **_without("verbosity", "logit_bias", "logprobs", "top_logprobs")},
    "google": _without("verbosity"),
    "deepseek": _without("verbosity"),
    "perplexity": _without("seed", "verbosity", "thinking", "service_tier", "parallel_tool_calls"),
    "cohere": _without("reasoning_effort", "verbosity", "thinking", "service_tier", "parallel_tool_calls"),
    "xai": {"thinking": _EFFORT, **_without("verbosity", "service_tier")},
}
"""Vendor → option that none of its models takes → why. [openai] [anthropic] [mistral] [groq] [perplexity] [litellm]"""

_TIERS: Final = {
    "openai": ("auto", "default", "flex", "scale", "priority"),
    "azure": ("auto", "default", "priority"),
    "anthropic": ("auto", "standard_only"),
    "groq": ("auto", "on_demand", "flex", "performance"),
}
_MOST_STOPS: Final = {"openai": 4, "azure": 4, "groq": 4}
_HOTTEST: Final = {"anthropic": 1.0}


def _of_values(provider: str, said: Mapping[str, Any]) -> Iterator[OptionRefusal]:
    tiers = _TIERS.get(provider)
    if "service_tier" in said and tiers is not None and said["service_tier"] not in tiers:
        yield OptionRefusal("service_tier", f"it takes {', '.join(tiers)}")
    most = _MOST_STOPS.get(provider)
    if most is not None and len(said.get("stop", ())) > most:
        yield OptionRefusal("stop", f"it takes {most} texts at most")
    if said.get("temperature", 0) > _HOTTEST.get(provider, 2):
        yield OptionRefusal("temperature", f"it takes 0 to {_HOTTEST[provider]:g}")


# --- models

_THINKING_SERIES: Final = re.compile(r"(?:ft:)?(?:o\d|gpt-(?!35)(?:[5-9]|\d\d)(?!-chat))")
"""Models of OpenAI that think; `gpt-5-chat-latest` does not, and neither does `gpt-35-turbo`, as Azure calls it."""
_VERBOSE_SERIES: Final = re.compile(r"(?:ft:)?gpt-(?!35)(?:[5-9]|\d\d)")
_ANSWERING: Final = re.compile(r"(?:ft:)?(?:gpt-(?:3|4)|chatgpt-4)")
"""Models of OpenAI that are known not to think."""
_UNSTOPPED: Final = re.compile(r"(?:ft:)?(?:o3(?!-mini)|o4-mini|gpt-5)")
_THINKS: Final = "it thinks before it answers, and takes none"
_EFFORTS: Final = ("none", "minimal", "xhigh", "max")
"""Efforts that only some models know, and of which the table says which."""


def _of_openai(provider: str, name: str, said: Mapping[str, Any]) -> Iterator[OptionRefusal]:
    facts = listed_entry(provider, name) or {}
    if provider == "azure" and not facts:
        return  # The name is that of a deployment.
    effort = said.get("reasoning_effort")
    if effort is not None and _ANSWERING.match(name):
        yield OptionRefusal("reasoning_effort", "it does not think before it answers")
    elif effort in _EFFORTS and facts.get(f"supports_{effort}_reasoning_effort") is False:
        yield OptionRefusal("reasoning_effort", f"it does not know the effort '{effort}'")
    if "verbosity" in said and not _VERBOSE_SERIES.match(name) and (_ANSWERING.match(name) or name[:1] == "o"):
        yield OptionRefusal("verbosity", "only models since GPT-5 take it")
    if not _THINKING_SERIES.match(name):
        return
    yield from (OptionRefusal(each, _THINKS) for each in ("presence_penalty", "frequency_penalty") if each in said)
    if "stop" in said and _UNSTOPPED.match(name):
        yield OptionRefusal("stop", _THINKS)
    if effort == "none" or (effort is None and facts.get("supports_none_reasoning_effort")):
        return  # It does not think, or may by itself or not.
    if "top_p" in said:
        yield OptionRefusal("top_p", _THINKS)
    if said.get("temperature", 1) != 1:
        yield OptionRefusal("temperature", "it thinks before it answers, and takes 1 alone")


_LEAST_BUDGET: Final = 1024
_LEAST_SHARE: Final = 0.95
"""Of `top_p`, where the model thinks."""


def _of_anthropic(name: str, said: Mapping[str, Any]) -> Iterator[OptionRefusal]:
    if not said.keys() & {"thinking", "reasoning_effort", "temperature", "top_p", "top_k"}:
        return
    facts = listed_entry("anthropic", name) or {}
    budget = said["thinking"].get("budget_tokens") if "thinking" in said else None
    if facts and not facts.get("supports_reasoning"):
        told = "it does not think"
        yield from (OptionRefusal(each, told) for each in ("thinking", "reasoning_effort") if each in said)
    if facts.get("supports_sampling_params") is False:
        told = "it takes no sampling parameters"
        yield from (OptionRefusal(each, told) for each in ("temperature", "top_p", "top_k") if each in said)
    elif budget is not None and said.get("temperature", 1) != 1:
        yield OptionRefusal("temperature", "where it thinks, it takes 1 alone")
    elif budget is not None and said.get("top_p", 1) < _LEAST_SHARE:
        yield OptionRefusal("top_p", f"where it thinks, it takes {_LEAST_SHARE} to 1")
    elif "temperature" in said and "top_p" in said and re.match(_ONE_OF_BOTH, name):
        yield OptionRefusal("top_p", "it takes either a temperature or `top_p`")
    if budget is None:
        return
    if facts.get("supports_adaptive_thinking") and not facts.get("supports_legacy_thinking"):
        yield OptionRefusal("thinking", "how much it thinks is said by `reasoning_effort`: it takes no budget")
    elif budget < _LEAST_BUDGET:
        yield OptionRefusal("thinking", f"a budget is at least {_LEAST_BUDGET} tokens")
    elif budget >= said.get("max_tokens", budget + 1):
        yield OptionRefusal("thinking", "the budget is part of `max_tokens`, which has to be more")


_ONE_OF_BOTH: Final = r"claude-(?:opus-4-[1-9]|sonnet-4-5|haiku-4-5)"
"""platform.claude.com/docs/en/about-claude/models/migrating-to-claude-4"""
