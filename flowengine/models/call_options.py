"""Names the options of model calls and checks their values, whichever vendor is asked.

The names here are the canonical ones of `Request.extra`; how a vendor spells them is the matter of its client, and
which vendor refuses one that of `option_refusals`. Further parameters of vendors are taken by an allow-list: nothing
in it is an address, a header, a key, or replaces what the engine itself says of a call.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Final, Literal, NamedTuple, TypeAlias, cast, get_args

from typing_extensions import TypedDict

from flowengine.errors import did_you_mean

ReasoningEffort: TypeAlias = Literal["none", "minimal", "low", "medium", "high", "xhigh", "max"]
Verbosity: TypeAlias = Literal["low", "medium", "high"]
PromptCaching: TypeAlias = Literal["auto", "off"]
"""Whether prompts are marked for the caches of vendors; no option of the vendor's call."""
ServiceTier: TypeAlias = Literal[
    "auto", "default", "flex", "priority", "scale", "standard_only", "on_demand", "performance"
]


class ModelOptions(TypedDict, total=False, extra_items=Any):
    """Options of a model call, by their names in flow files; agents take each as a keyword. In Python, what else a
    vendor takes may stand beside them."""

    top_p: float
    """0.0–1.0: the share of the likeliest tokens that are chosen from."""
    seed: int
    stop: str | Sequence[str]
    """Texts that end the answer; they are not part of it."""
    reasoning_effort: ReasoningEffort
    verbosity: Verbosity
    thinking: int | Mapping[str, Any]
    """Tokens for thinking, as a number or `{"budget_tokens": …}`."""
    presence_penalty: float
    frequency_penalty: float
    service_tier: ServiceTier
    parallel_tool_calls: bool
    model_options: Mapping[str, Any]
    """Further parameters of the vendor, of `VENDOR_OPTIONS`."""


class OptionProblem(NamedTuple):
    """The reason why an option cannot be used."""

    option: str
    message: str
    hint: str = ""

    def __str__(self) -> str:
        return f"{self.message}{self.hint}"


OF_GENERATING: Final = frozenset(
    {"top_p", "stop", "verbosity", "presence_penalty", "frequency_penalty", "parallel_tool_calls"}
)
"""Options that shape the text of an agent; its judge and its router, who answer in a shape, go without them."""

DECIDING: Final = frozenset({"top_p", "reasoning_effort", "thinking"})
"""Options with which vendors want no temperature: they take one of them, or think and are not sampled."""

# --- The values

MOST_STOPS: Final = 16
_SEEDS: Final = 2**63
"""A seed is an integer of 64 bits."""


def _check_between(low: int, high: int, value: Any) -> str | None:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return None if is_number and low <= value <= high else f"a number from {low} to {high}"


def _check_word(words: Sequence[str], value: Any) -> str | None:
    return None if isinstance(value, str) and value in words else f"one of {', '.join(words)}"


def _check_seed(value: Any) -> str | None:
    return None if type(value) is int and -_SEEDS <= value < _SEEDS else "a whole number of 64 bits"


def _check_stop(value: Any) -> str | None:
    texts = [value] if isinstance(value, str) else value
    stops = cast("list[Any]", texts) if isinstance(texts, list | tuple) else []
    if 0 < len(stops) <= MOST_STOPS and all(isinstance(each, str) and each for each in stops):
        return None
    return f"a text that is not empty, or a list of up to {MOST_STOPS} of them"


def _check_thinking(value: Any) -> str | None:
    if isinstance(value, Mapping):
        thinking = cast("Mapping[str, Any]", value)
        if thinking.get("type", "enabled") != "enabled":
            return None  # A vendor's own mode without a budget, which Python code may ask for.
        value = thinking.get("budget_tokens") if set(thinking) <= {"type", "budget_tokens"} else None
    return None if type(value) is int and value >= 1 else "a number of tokens of at least 1, or {budget_tokens: …}"


def _check_flag(value: Any) -> str | None:
    return None if isinstance(value, bool) else "true or false"


OPTIONS: Final[Mapping[str, Callable[[Any], str | None]]] = {
    "top_p": partial(_check_between, 0, 1),
    "seed": _check_seed,
    "stop": _check_stop,
    "reasoning_effort": partial(_check_word, get_args(ReasoningEffort)),
    "verbosity": partial(_check_word, get_args(Verbosity)),
    "thinking": _check_thinking,
    "presence_penalty": partial(_check_between, -2, 2),
    "frequency_penalty": partial(_check_between, -2, 2),
    "service_tier": partial(_check_word, get_args(ServiceTier)),
    "parallel_tool_calls": _check_flag,
}
"""Option → what is expected of its value where that is something else; None: the value is fine."""

_WORDS: Final = {
    "reasoning_effort": get_args(ReasoningEffort),
    "verbosity": get_args(Verbosity),
    "service_tier": get_args(ServiceTier),
}


def find_option_problems(options: Mapping[str, Any]) -> Iterator[OptionProblem]:
    """Lists invalid option values; names outside `OPTIONS` are ignored, except in `model_options`.

    >>> [str(each) for each in find_option_problems({"top_p": 2, "verbosity": "hihg", "colour": "red"})]
    ['top_p must be a number from 0 to 1, not 2', "verbosity must be one of low, medium, high, not 'hihg'; did you \
mean 'high'?"]
    """
    for name, value in options.items():
        check = OPTIONS.get(name)
        expected = None if check is None or value is None else check(value)
        if expected is not None:
            hint = did_you_mean(value, _WORDS[name]) if name in _WORDS and isinstance(value, str) else ""
            yield OptionProblem(name, f"{name} must be {expected}, not {value!r:.80}", hint)
    vendor_options = options.get("model_options")
    if vendor_options is not None and not isinstance(vendor_options, Mapping):
        yield OptionProblem(
            "model_options", f"model_options must be a map of the vendor's parameters, not {vendor_options!r:.80}"
        )
    elif vendor_options is not None:
        for name, value in cast("Mapping[str, Any]", vendor_options).items():
            problem = find_vendor_option_problem(name, value)
            if problem is not None:
                yield problem


def normalize_options(options: Mapping[str, Any]) -> dict[str, Any]:
    """Checked options in one shape, as `Request.extra` has them: those of `model_options` among the others, `stop` a
    list, `thinking` a map. What is None is left out where None means nothing.

    >>> normalize_options({"stop": "END", "thinking": 2048, "model_options": {"top_k": 5}})
    {'stop': ['END'], 'thinking': {'budget_tokens': 2048}, 'top_k': 5}
    """
    plain_options: dict[str, Any] = {}
    for name, value in options.items():
        if value is None and (name in OPTIONS or name == "model_options"):
            continue
        if name == "model_options":
            further = cast("Mapping[str, Any]", value)
            plain_options |= {key: each for key, each in further.items() if key not in options}
        elif name == "stop":
            plain_options[name] = [value] if isinstance(value, str) else list(cast("Sequence[str]", value))
        elif name == "thinking":
            plain_options[name] = _as_thinking(value)
        else:
            plain_options[name] = value
    return plain_options


def _as_thinking(value: Any) -> dict[str, Any]:
    if not isinstance(value, Mapping):
        return {"budget_tokens": value}
    thinking = dict(cast("Mapping[str, Any]", value))
    return {"budget_tokens": thinking["budget_tokens"]} if thinking.get("type", "enabled") == "enabled" else thinking


# --- Further parameters of vendors

VENDOR_OPTIONS: Final = frozenset(
    {
        # OpenAI's, and what others took over from it
        *("logit_bias", "logprobs", "top_logprobs", "user", "safety_identifier", "store", "metadata", "prediction"),
        *("prompt_cache_key", "prompt_cache_retention", "web_search_options"),
        # sampling of Anthropic, Google, open models and their servers
        *("top_k", "min_p", "top_a", "typical_p", "tfs_z", "repetition_penalty", "repeat_penalty", "repeat_last_n"),
        *("length_penalty", "min_tokens", "ignore_eos", "bad_words", "skip_special_tokens", "stop_token_ids"),
        *("include_stop_str_in_output", "mirostat", "mirostat_tau", "mirostat_eta", "dynatemp_range"),
        *("dynatemp_exponent", "xtc_probability", "xtc_threshold", "dry_multiplier", "dry_base"),
        *(
            "dry_allowed_length",
            "dry_penalty_last_n",
            "samplers",
            "cache_prompt",
            "num_ctx",
            "num_predict",
            "keep_alive",
        ),
        # thinking
        *("reasoning", "reasoning_format", "include_reasoning", "enable_thinking", "thinking_budget"),
        *("chat_template_kwargs", "disable_reasoning", "clear_thinking", "prompt_mode"),
        # where and how fast it is served
        *("inference_geo", "speed", "transforms"),
        # safety and search
        *("safe_prompt", "safety_settings", "search_mode", "search_domain_filter", "search_recency_filter"),
        *("search_parameters", "return_images", "return_related_questions"),
    }
)
"""Names that `model_options` takes. None of them is an address, a header, a key, or the call itself."""

_LONGEST: Final = 20_000
"""Characters of one value as JSON."""
_OF_THE_ENGINE: Final = frozenset(
    {
        *("messages", "model", "models", "tools", "tool_choice", "functions", "function_call", "stream"),
        *("stream_options", "response_format", "n", "provider", "route", "input", "prompt", "system"),
    }
)
_OF_THE_NODE: Final = frozenset({*OPTIONS, "temperature", "max_tokens", "timeout", "max_retries", "fallbacks"})
SAID_OTHERWISE: Final = {
    "max_completion_tokens": "max_tokens",
    "max_output_tokens": "max_tokens",
    "stop_sequences": "stop",
    "random_seed": "seed",
    "effort": "reasoning_effort",
}
"""Vendor's word for an option → ours."""


def find_vendor_option_problem(name: str, value: Any) -> OptionProblem | None:
    """Explains why a parameter is not allowed in `model_options`; None if it is.

    >>> print(find_vendor_option_problem("top_kk", 5))
    unknown model option 'top_kk'; did you mean 'top_k'?
    >>> print(find_vendor_option_problem("api_base", "http://elsewhere"))
    'api_base' may not be a model option: addresses, headers and keys are said in the project file
    """
    if name in VENDOR_OPTIONS:
        return _problem_of_value(name, value)
    if name in _OF_THE_NODE:
        return OptionProblem(name, f"'{name}' is a key of its own", f"; write it beside `model_options`, as `{name}:`")
    if name in SAID_OTHERWISE:
        own_name = SAID_OTHERWISE[name]
        return OptionProblem(
            name, f"'{name}' is said as `{own_name}`", f"; write it beside `model_options`, as `{own_name}:`"
        )
    if name in _OF_THE_ENGINE:
        return OptionProblem(name, f"'{name}' may not be a model option: the engine says it of each call itself")
    if any(word in name.lower() for word in _SENSITIVE):
        message = f"'{name}' may not be a model option: addresses, headers and keys are said in the project file"
        return OptionProblem(name, message)
    return OptionProblem(name, f"unknown model option '{name:.80}'", did_you_mean(name, VENDOR_OPTIONS))


_SENSITIVE: Final = ("api_", "apikey", "base", "url", "header", "auth", "key", "token_", "secret", "password", "proxy")


def _problem_of_value(name: str, value: Any) -> OptionProblem | None:
    if value is None:
        return OptionProblem(name, f"the model option '{name}' has no value; give one, or remove it")
    try:
        length = len(json.dumps(value, allow_nan=False, sort_keys=True))  # As keys of requests are made.
    except (TypeError, ValueError, RecursionError):
        return OptionProblem(name, f"the model option '{name}' is no JSON value")
    if length > _LONGEST:
        return OptionProblem(name, f"the model option '{name}' is longer than {_LONGEST} characters")
    return None
