"""Says which options of a call a model refuses, as far as that is known before it is asked.

Facts with their sources. Of a vendor or a model that is not listed nothing is said: it is asked, and answers. What
models can do (think, be sampled, think this hard) is the matter of `capability_lookup`, all else stands here.

Sources, as of November 2026:
    [openai]     platform.openai.com/docs/api-reference/chat/create and /docs/guides/reasoning: reasoning models take
                 neither penalties nor `top_p`; only models that think take `reasoning_effort`, only those of GPT-5 and
                 later `verbosity`; up to 4 texts in `stop`, none with o3 and o4-mini; `thinking` is no parameter
    [anthropic]  platform.claude.com/docs/en/api/messages and /build-with-claude/extended-thinking: the parameters are
                 listed, with neither seed nor penalties; a budget is at least 1,024 tokens and less than `max_tokens`;
                 thinking goes with no temperature but 1 and with `top_p` from 0.95; temperatures go to 1; models with
                 adaptive thinking alone take no budget, those since Opus 4.7 no sampling parameters
    [google]     ai.google.dev/gemini-api/docs/openai: its endpoint of OpenAI's protocol answers what it does not know
                 with status 400 (github.com/n4ze3m/page-assist/issues/418)
    [mistral]    docs.mistral.ai/api
    [groq]       console.groq.com/docs/openai#currently-unsupported-openai-features
    [perplexity] docs.perplexity.ai/api-reference
    [litellm]    its table of models, and the parameters that it maps for a vendor that only it serves
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple

from flowengine.core import EMPTY
from flowengine.models.capabilities import EFFORT_BUDGETS, Capabilities
from flowengine.models.capability_lookup import capabilities_of


class OptionRefusal(NamedTuple):
    """An option that a model refuses."""

    option: str
    reason: str
    is_left_out: bool = False
    """Whether the call is made without it, and so works."""


def find_refusals(
    provider: str,
    name: str,
    options: Mapping[str, Any],
    overrides: Mapping[str, Any] = EMPTY,
    *,
    has_tools: bool = False,
    adapter: str | None = None,
) -> Iterator[OptionRefusal]:
    """Lists the options that a vendor's model refuses, in the form of `Request.extra`, including `temperature` and
    `max_tokens`. `overrides`: what a project says that the model can do; `has_tools`: whether it is offered tools;
    `adapter`: `litellm` where that asks the vendor.

    >>> [each.option for each in find_refusals("anthropic", "claude-haiku-4-5", {"seed": 7, "top_p": 0.5})]
    ['seed']
    >>> list(find_refusals("offline", "offline", {"seed": 7}))
    []
    """
    options = {option: value for option, value in options.items() if value is not None}
    if not options and not has_tools:
        return
    can = capabilities_of(provider, name, overrides)
    if has_tools and can.tools is False:
        yield OptionRefusal("tools", "it calls none")
    refused = {**_OF_VENDORS.get(provider, {}), **({} if adapter == "litellm" else _AT_CHAT.get(provider, {}))}
    yield from (OptionRefusal(option, refused[option]) for option in options if option in refused)
    options = {option: value for option, value in options.items() if option not in refused}
    yield from _of_values(provider, options)
    yield from _of_effort(provider, can, options)
    if provider in _OPENAI:
        yield from _of_openai(provider, name, can, options, has_tools=has_tools)
    elif provider == "anthropic":
        yield from _of_anthropic(name, can, options)
    else:
        yield from _of_others(provider, can, options)


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

_AT_CHAT: Final[Mapping[str, Mapping[str, str]]] = {
    "google": dict.fromkeys(
        (
            "presence_penalty",
            "frequency_penalty",
            "top_k",
            "min_p",
            "repetition_penalty",
            "logit_bias",
            "safety_settings",
        ),
        'Google is asked in OpenAI\'s protocol, which has none; `adapter = "litellm"` asks it otherwise',
    ),
}
"""The same of vendors where they are asked in OpenAI's protocol. [google]"""

_TIERS: Final = {
    "openai": ("auto", "default", "flex", "scale", "priority"),
    "azure": ("auto", "default", "priority"),
    "anthropic": ("auto", "standard_only"),
    "groq": ("auto", "on_demand", "flex", "performance"),
}
_MOST_STOPS: Final = {"openai": 4, "azure": 4, "groq": 4}
_HOTTEST: Final = {"anthropic": 1.0}


def _of_values(provider: str, options: Mapping[str, Any]) -> Iterator[OptionRefusal]:
    tiers = _TIERS.get(provider)
    if "service_tier" in options and tiers is not None and options["service_tier"] not in tiers:
        yield OptionRefusal("service_tier", f"it takes {', '.join(tiers)}")
    most = _MOST_STOPS.get(provider)
    if most is not None and len(options.get("stop", ())) > most:
        yield OptionRefusal("stop", f"it takes {most} texts at most")
    if options.get("temperature", 0) > _HOTTEST.get(provider, 2):
        yield OptionRefusal("temperature", f"it takes 0 to {_HOTTEST[provider]:g}")


# --- models

_VERBOSE_SERIES: Final = re.compile(r"(?:ft:)?gpt-(?!35)(?:[5-9]|\d\d)")
_ANSWERING: Final = re.compile(r"(?:ft:)?(?:gpt-(?:3|4)|chatgpt-4)")
"""Models of OpenAI that are known not to think."""
_STOPPED: Final = re.compile(r"(?:ft:)?(?:o1|o3-mini)")
"""Models that think and take texts that end the answer."""
_THINKS: Final = "it thinks before it answers, and takes none"
_PENALTIES: Final = ("presence_penalty", "frequency_penalty")


def _of_effort(provider: str, can: Capabilities, options: Mapping[str, Any]) -> Iterator[OptionRefusal]:
    effort, efforts = options.get("reasoning_effort"), can.efforts
    if effort is None or efforts is None or effort in efforts or (provider == "azure" and not can.is_known):
        return
    if not efforts:
        reason = "it does not think before it answers" if not can.thinks else "how much it thinks cannot be said"
    elif effort == "none" and can.thinks:
        reason = f"its thinking cannot be stopped; it takes {', '.join(efforts)}"
    else:
        reason = f"it takes {', '.join(efforts)}"
    yield OptionRefusal("reasoning_effort", reason)


def _of_openai(
    provider: str, name: str, can: Capabilities, options: Mapping[str, Any], *, has_tools: bool
) -> Iterator[OptionRefusal]:
    if provider == "azure" and not can.is_known:
        return  # The name is that of a deployment.
    if "verbosity" in options and not _VERBOSE_SERIES.match(name) and (_ANSWERING.match(name) or name[:1] == "o"):
        yield OptionRefusal("verbosity", "only models since GPT-5 take it")
    refused: dict[str, str] = {}
    if can.thinks:
        refused |= dict.fromkeys(_PENALTIES, _THINKS)
    if can.thinks and not _STOPPED.match(name):
        refused["stop"] = _THINKS
    if can.needs_responses(options, has_tools=has_tools):
        refused = {**_at_responses(options), **refused}
    yield from (OptionRefusal(each, refused[each]) for each in options if each in refused)
    yield from _of_sampling(can, options)


def _of_sampling(can: Capabilities, options: Mapping[str, Any]) -> Iterator[OptionRefusal]:
    if can.is_sampled_at(options.get("reasoning_effort")) is not False:
        return
    if "top_p" in options:
        yield OptionRefusal("top_p", _THINKS, is_left_out=True)
    if options.get("temperature", 1) != 1:
        yield OptionRefusal("temperature", "it thinks before it answers, and takes 1 alone", is_left_out=True)


def _at_responses(options: Mapping[str, Any]) -> dict[str, str]:
    """Option → why OpenAI's Responses API refuses it."""
    refused = dict.fromkeys(_NOT_OF_RESPONSES, "OpenAI's Responses API, which it needs, has none")
    if options.get("max_tokens", _LEAST_ANSWER) < _LEAST_ANSWER:
        refused["max_tokens"] = f"at OpenAI's Responses API, which it needs, it is at least {_LEAST_ANSWER}"
    return refused


_NOT_OF_RESPONSES: Final = frozenset(
    {"seed", "stop", *_PENALTIES, "logit_bias", "logprobs", "prediction", "web_search_options"}
)
"""developers.openai.com/api/reference/resources/responses/methods/create: parameters of chat completions alone."""
_LEAST_ANSWER: Final = 16
"""Tokens; the same source."""


def _of_others(provider: str, can: Capabilities, options: Mapping[str, Any]) -> Iterator[OptionRefusal]:
    refused = _at_responses(options) if can.api == "responses" else {}
    if provider == "xai" and can.thinks:  # docs.x.ai/developers/model-capabilities/text/reasoning
        refused |= dict.fromkeys((*_PENALTIES, "stop"), _THINKS)
    yield from (OptionRefusal(each, refused[each]) for each in options if each in refused)
    if can.sampling == "never":
        reason = "it takes no sampling parameters"
        yield from (OptionRefusal(each, reason) for each in ("temperature", "top_p", "top_k") if each in options)


_LEAST_BUDGET: Final = 1024
_LEAST_SHARE: Final = 0.95
"""The least `top_p` where the model thinks."""


def _of_anthropic(name: str, can: Capabilities, options: Mapping[str, Any]) -> Iterator[OptionRefusal]:
    if not options.keys() & {"thinking", "reasoning_effort", "temperature", "top_p", "top_k"}:
        return
    effort, budget = options.get("reasoning_effort"), options.get("thinking", {}).get("budget_tokens")
    is_thinking = budget is not None or effort not in (None, "none")
    if can.is_known and not can.thinks and "thinking" in options:
        yield OptionRefusal("thinking", "it does not think")
    if can.is_known and can.sampling == "never":
        reason = "it takes no sampling parameters"
        yield from (OptionRefusal(each, reason) for each in ("temperature", "top_p", "top_k") if each in options)
    elif is_thinking and options.get("temperature", 1) != 1:
        yield OptionRefusal("temperature", "where it thinks, it takes 1 alone", is_left_out=True)
    elif is_thinking and options.get("top_p", 1) < _LEAST_SHARE:
        yield OptionRefusal("top_p", f"where it thinks, it takes {_LEAST_SHARE} to 1")
    elif "temperature" in options and "top_p" in options and re.match(_ONE_OF_BOTH, name):
        yield OptionRefusal("top_p", "it takes either a temperature or `top_p`")
    if budget is not None:
        yield from _of_budget(can, budget, options)
    elif can.is_known and can.thinks_by == "budget" and is_thinking:
        least = EFFORT_BUDGETS.get(str(effort), 0)
        if options.get("max_tokens", least + 1) <= least:
            reason = f"for it, it thinks with {least} tokens, which are part of `max_tokens`, and that has to be more"
            yield OptionRefusal("reasoning_effort", reason)


def _of_budget(can: Capabilities, budget: int, options: Mapping[str, Any]) -> Iterator[OptionRefusal]:
    if can.is_known and can.thinks_by == "effort":
        yield OptionRefusal("thinking", "how much it thinks is said by `reasoning_effort`: it takes no budget")
    elif budget < _LEAST_BUDGET:
        yield OptionRefusal("thinking", f"a budget is at least {_LEAST_BUDGET} tokens")
    elif budget >= options.get("max_tokens", budget + 1):
        yield OptionRefusal("thinking", "the budget is part of `max_tokens`, which has to be more")


_ONE_OF_BOTH: Final = r"claude-(?:opus-4-[1-9]|sonnet-4-5|haiku-4-5)"
"""platform.claude.com/docs/en/about-claude/models/migrating-to-claude-4"""
