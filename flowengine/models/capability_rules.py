"""Holds what litellm's table does not say of models, vendor by vendor, each rule with its source.

Sources, as of November 2026:
    [checklist]  developers.openai.com/api/docs/guides/deployment-checklist: GPT-6 Astra and 6.1 Sol take tools at the
                 Responses API alone, 6 Sol and Luna at chat completions without thinking; temperature, `top_p` and
                 logprobs go where the effort is not `none`; GPT-5.6 takes none, low, medium, high, xhigh, max
    [tools]      github.com/BerriAI/litellm/pull/34569 (July 2026, the raw API asked): tools of GPT-5.6 at chat
                 completions are refused, also where no effort is said; github.com/livekit/agents/pull/5088 (March
                 2026): those of GPT-5.2 and 5.4 where an effort is said; github.com/livekit/agents/pull/7169: chat
                 completions take no `max`
    [caching]    developers.openai.com/api/docs/guides/prompt-caching: from GPT-5.6 on prompts are written to the
                 cache unasked, for a quarter more than asking costs, and with the mode `explicit` they are not
    [efforts]    learn.microsoft.com/javascript/api/@azure/ai-projects/reasoningeffort: `gpt-5-pro` takes high alone,
                 GPT-5.1 none to high and tools at each, xhigh what is newer than gpt-5.1-codex-max
    [thinking]   platform.claude.com/docs/en/build-with-claude/thinking and /effort: Opus 4.5 takes low to high, 4.6 max
                 too, those since Opus 4.7 xhigh too; models of the 5th generation think unasked
    [between]    platform.claude.com/docs/en/models/sonnet-5-5/whats-new-sonnet-5-5: `between_tools` in place of
                 `disabled`
    [gemini]     ai.google.dev/gemini-api/docs/openai: minimal to high; `none` for 2.5 but not its Pro, nor for 3
    [groq]       console.groq.com/docs/reasoning: gpt-oss takes low, medium, high
    [mistral]    docs.mistral.ai/api: none and high
    [grok]       docs.x.ai/developers/model-capabilities/text/reasoning: which models take which effort
    [deepseek]   api-docs.deepseek.com/guides/thinking_mode: V4 thinks unasked, and `thinking` says that it does not
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, Final, TypeAlias, cast

from flowengine.models.capabilities import Capabilities, kind_of

Facts: TypeAlias = Mapping[str, Any]
"""The entry of a model in litellm's table; empty where it has none."""

_EVERY: Final = ("none", "minimal", "low", "medium", "high", "xhigh", "max")
_USUAL: Final = ("low", "medium", "high")


def _efforts_in_table(facts: Facts) -> tuple[str, ...] | None:
    """The efforts that the table names; None where it names none."""
    levels = facts.get("reasoning_effort_levels")
    if isinstance(levels, list):
        return tuple(each for each in _EVERY if each in levels)
    flags = {each: facts.get(f"supports_{each}_reasoning_effort") for each in _EVERY}
    if all(each is None for each in flags.values()):
        return None
    return tuple(each for each in _EVERY if flags[each] or (each in _USUAL and flags[each] is None))


# --- OpenAI

_THINKING: Final = re.compile(r"(?:ft:)?(?:o\d|gpt-(?!35)(?:[5-9]|\d\d))")
_ANSWERING: Final = re.compile(r"(?:ft:)?(?:gpt-(?:3|4)|chatgpt-4|gpt-5-chat)")
"""Models that are known not to think."""
_RESPONSES: Final = re.compile(r"(?:o\d|gpt-\d+(?:\.\d+)?)-pro|gpt-[\d.]+-codex|codex-|o\d(?:-mini)?-deep-research")
"""Models that only the Responses API has."""


def _of_openai(name: str, facts: Facts) -> Capabilities:
    bare = name.rpartition("/")[2]
    version = _gpt_version(bare)
    thinks = _thinks_at_openai(bare, facts)
    efforts = _openai_efforts(bare, version, facts) if thinks else () if thinks is False else None
    usual = str(facts.get("default_reasoning_effort") or "")
    if not usual and efforts is not None and "none" in efforts and (5, 1) <= version < (5, 5):
        usual = "none"  # [efforts]
    sampling = "always" if thinks is False else None if thinks is None else "never"
    if efforts is not None and "none" in efforts:
        sampling = "unless it thinks"  # [checklist]
    return Capabilities(
        api=_api(bare, facts),
        thinks=thinks,
        efforts=efforts,
        usual_effort=usual,
        sampling="never" if "search-preview" in bare else sampling,
        tools=facts.get("supports_function_calling"),
        takes_tools_thinking=_takes_tools_thinking(bare, version, facts),
        chat_efforts=tuple(each for each in efforts or _EVERY if each != "max") if thinks else None,  # [tools]
        streams=facts.get("supports_native_streaming") is not False,
        writes_cache_unasked=bool(facts.get("supports_prompt_cache_breakpoint")) or version >= (5, 6),  # [caching]
    )


def _gpt_version(name: str) -> tuple[int, int]:
    kind = kind_of(name)
    return kind.version if kind is not None and kind.family == "gpt-" and kind.version < (35, 0) else (0, 0)


def _takes_tools_thinking(name: str, version: tuple[int, int], facts: Facts) -> bool:
    """A listed model without a version is one of the newest. [tools] [checklist]"""
    if version == (0, 0):
        return (
            not facts or re.match(r"o\d", name) is not None or "responses" not in str(facts.get("supported_endpoints"))
        )
    return version < (5, 2)


def _thinks_at_openai(name: str, facts: Facts) -> bool | None:
    if _ANSWERING.match(name):
        return False
    if facts.get("supports_reasoning") or _THINKING.match(name):
        return True
    return None


def _openai_efforts(name: str, version: tuple[int, int], facts: Facts) -> tuple[str, ...] | None:
    if name.startswith("gpt-5-pro"):
        return ("high",)  # [efforts]
    if re.match(r"gpt-[\d.]+-pro", name):
        return ("medium", "high", "xhigh")  # developers.openai.com/api/docs/models/gpt-5.4-pro
    if "-chat" in name:
        return ("medium",)  # As the table says of `chat-latest`.
    if "codex" in name and not version > (5, 2):
        return (*_USUAL, "xhigh") if "max" in name or version == (5, 2) else _USUAL  # [efforts]
    efforts = _efforts_in_table(facts)
    if efforts is None:
        return _USUAL if re.match(r"o\d", name) else (*_USUAL, "xhigh") if version > (5, 1) else None  # [efforts]
    return efforts if "max" in efforts or version < (5, 6) else (*efforts, "max")  # [checklist]


def _api(name: str, facts: Facts) -> Any:
    endpoints = facts.get("supported_endpoints")
    paths = set(map(str, cast("list[Any]", endpoints))) if isinstance(endpoints, list) else set[str]()
    if facts.get("mode") == "responses" or (any("responses" in each for each in paths) and not _has_chat(paths)):
        return "responses"
    if not facts and _RESPONSES.match(name):
        return "responses"
    return "chat" if _has_chat(paths) and not any("responses" in each for each in paths) else None


def _has_chat(endpoints: set[str]) -> bool:
    return any("chat/completions" in each for each in endpoints)


# --- Anthropic


def _of_anthropic(name: str, facts: Facts) -> Capabilities:
    """The capabilities of a model: what the table leaves out goes by its version; without one it counts as new."""
    kind = kind_of(name)
    version: tuple[int, int] = _NEWEST if kind is None else kind.version
    is_adaptive = bool(facts.get("supports_adaptive_thinking", version >= (4, 6)))
    takes_effort = is_adaptive or (version == (4, 5) and "opus" in name)  # [thinking]
    takes_budget = not is_adaptive or bool(facts.get("supports_legacy_thinking", version == (4, 6)))
    takes_sampling = facts.get("supports_sampling_params", version < (4, 7))
    is_always_on = bool(facts.get("thinking_always_on", _is_5_5(name, version)))
    thinks_unasked = is_adaptive and version >= (5, 0)  # [thinking]
    stop = "disabled" if thinks_unasked and not is_always_on else ""
    if "sonnet" in name and version >= (5, 5) and kind is not None:
        stop = "between_tools"  # [between]
    return Capabilities(
        thinks=facts.get("supports_reasoning") if facts else None,
        efforts=_anthropic_efforts(facts, takes_effort, bool(stop) or not (thinks_unasked or is_always_on)),
        usual_effort="" if thinks_unasked else "none",
        sampling="never" if takes_sampling is False else "always",
        tools=facts.get("supports_function_calling"),
        thinks_by="both" if takes_effort and takes_budget else "effort" if takes_effort else "budget",
        thinks_adaptively=is_adaptive,
        stops_thinking_by=stop,
        takes_forced_tool=bool(facts.get("supports_forced_tool_use", not _is_5_5(name, version))),
    )


_NEWEST: Final[tuple[int, int]] = (99, 0)


def _is_5_5(name: str, version: tuple[int, int]) -> bool:
    """Those that think always, and cannot be made to call a tool. [thinking]"""
    least = (5, 1) if "fable" in name or "mythos" in name else (5, 5)
    return least <= version < _NEWEST and "haiku" not in name


def _anthropic_efforts(facts: Facts, takes_effort: bool, can_stop: bool) -> tuple[str, ...] | None:
    """`minimal` is sent as `low`; a model without efforts is given tokens for each."""
    if not facts.get("supports_reasoning"):
        return () if facts else None
    more = [each for each in ("xhigh", "max") if not takes_effort or facts.get(f"supports_{each}_reasoning_effort")]
    return (*(["none"] if can_stop else []), "minimal", *_USUAL, *more)


# --- Others


def _of_google(name: str, facts: Facts) -> Capabilities:
    kind = kind_of(name)
    thinks = facts.get("supports_reasoning") if facts else None
    efforts: tuple[str, ...] | None = None
    if kind is not None and kind.family == "gemini-" and thinks:  # [gemini]
        can_stop = kind.version == (2, 5) and "pro" not in kind.variant
        least = [] if facts.get("supports_minimal_reasoning_effort") is False else ["minimal"]
        most = ["xhigh"] if facts.get("supports_xhigh_reasoning_effort") else []
        efforts = (*(["none"] if can_stop else []), *least, *_USUAL, *most)
    elif name.startswith("gemini") and thinks:
        efforts = _USUAL  # A name without a version is that of one of the newest.
    elif thinks is None and facts:
        efforts = ()
    return Capabilities(
        thinks=thinks,
        efforts=efforts,
        sampling="never" if facts.get("supports_sampling_params") is False else None,
        tools=facts.get("supports_function_calling"),
    )


def _of_groq(name: str, facts: Facts) -> Capabilities:
    return Capabilities(
        thinks=facts.get("supports_reasoning"),
        efforts=_USUAL if "gpt-oss" in name else None,  # [groq]
        tools=facts.get("supports_function_calling"),
    )


def _of_mistral(name: str, facts: Facts) -> Capabilities:
    levels = _efforts_in_table(facts)
    return Capabilities(
        thinks=facts.get("supports_reasoning"),
        efforts=("none", "high") if levels is None else levels,  # [mistral]
        usual_effort="none",
        tools=facts.get("supports_function_calling"),
    )


def _of_grok(name: str, facts: Facts) -> Capabilities:
    kind = kind_of(name)
    thinks = False if "non-reasoning" in name else facts.get("supports_reasoning")
    efforts: tuple[str, ...] | None = None
    if kind is not None and kind.family == "grok-" and facts:  # [grok]
        if kind.version == (4, 20) or not thinks:
            efforts = (*_USUAL, "xhigh") if "multi-agent" in name else ()
        elif kind.version == (3, 0):
            efforts = ("low", "high")
        else:
            efforts = ("none", *_USUAL) if kind.version == (4, 3) else _USUAL if kind.version > (4, 3) else ()
    elif "code-fast" in name:
        efforts = ()
    return Capabilities(
        api=_api(name, facts),
        thinks=thinks,
        efforts=efforts,
        tools=facts.get("supports_function_calling"),
    )


def _of_deepseek(name: str, facts: Facts) -> Capabilities:
    thinks = bool(facts.get("supports_reasoning")) if facts else None
    can_stop = thinks is True and re.search(r"v[4-9]|v3\.[2-9]|flash", name) is not None  # [deepseek]
    return Capabilities(
        thinks=thinks,
        efforts=None if thinks is None or can_stop else (),
        tools=facts.get("supports_function_calling"),
        stops_thinking_by="disabled" if can_stop else "",
    )


RULES: Final[Mapping[str, Callable[[str, Facts], Capabilities]]] = {
    "openai": _of_openai,
    "azure": _of_openai,
    "anthropic": _of_anthropic,
    "google": _of_google,
    "groq": _of_groq,
    "mistral": _of_mistral,
    "xai": _of_grok,
    "deepseek": _of_deepseek,
}
"""Vendor → what its models can do, by name and entry."""
