"""Groups the settings of agents, and checks them when an agent is made.

Everything here is frozen data and the rules it must satisfy; a broken rule is a `DefinitionError`
that says what was found and what to write instead. Nothing here calls anything.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cache
from inspect import Parameter, signature
from sys import float_info
from types import NoneType
from typing import Any, Final, TypeAlias, cast, get_args

from flowengine.agents.structured import AnswerShape
from flowengine.core import EvaluationResult, LLMResult
from flowengine.errors import DefinitionError, find_nearest, refuse_other_kind
from flowengine.models import (
    DECIDING,
    OPTIONS,
    PROCESS_ENVIRONMENT,
    SAID_OTHERWISE,
    VENDOR_OPTIONS,
    Model,
    ModelDefinition,
    Price,
    PromptCaching,
    ProviderSettings,
    find_option_problems,
    missing_members,
    normalize_options,
)
from flowengine.models.wrappers import Limiters, limiter_for

# --- Where agents find models, keys and prices


@dataclass(frozen=True, slots=True)
class Surroundings:
    """The environment, provider → its settings, and model → its price.

    >>> Surroundings({"OPENAI_API_KEY": "sk-1"})
    Surroundings(providers={}, prices={})
    """

    environ: Mapping[str, str] = field(default_factory=lambda: PROCESS_ENVIRONMENT, repr=False)
    """Holds keys, so it is not shown."""
    providers: Mapping[str, ProviderSettings] = field(default_factory=dict[str, ProviderSettings])
    prices: Mapping[str, Price] = field(default_factory=dict[str, Price])
    limiters: Limiters = field(default=limiter_for, repr=False)
    """Keep the limits of `providers`."""
    default_provider: str | None = field(default=None, repr=False)
    """The provider of models whose names no table knows."""
    stand_in: str | None = field(default=None, repr=False)
    """A model that is asked in place of every other that is given by name."""
    models: Mapping[str, ModelDefinition] = field(default_factory=dict[str, ModelDefinition], repr=False)
    """Names of a project's own, and what they stand for."""
    flow: str = field(default="", repr=False)
    """The name of the flow that the agents are of."""
    repeats: bool = field(default=False, repr=False)
    """Whether the agents are asked more than once in a run, as in a map or a loop."""
    approve_external: bool = field(default=False, repr=False)
    """Whether a person is asked before each call of a tool whose effect is `external`."""


PROCESS: Final = Surroundings()
"""The process's own environment, and nothing said of any vendor."""


ModelChoice: TypeAlias = str | Model | None
"""A model's name, a model, or None for the default one."""

Guardrail: TypeAlias = Callable[[Any], bool | Awaitable[bool]]
"""True lets the value pass."""


class UsualTemperature(float):
    """The temperature of an agent that is given none. It gives way to options that decide about chance, too."""


ImprovementCallback: TypeAlias = Callable[[LLMResult, EvaluationResult], str | Awaitable[str]]


@dataclass(frozen=True, slots=True)
class CallSettings:
    """Settings of one agent's model calls."""

    model: ModelChoice = None
    fallbacks: tuple[str | Model, ...] = ()
    """Models asked in turn when the one before fails for good."""
    temperature: float | None = None
    max_tokens: int | None = None
    timeout: float | None = None
    """Seconds a call may take."""
    max_retries: int = 3
    """Retries of a call that failed and may work when tried again, and of an answer that does not fit its shape."""
    extra: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """Further keyword arguments of the model call."""
    surroundings: Surroundings = PROCESS
    """The source of keys, addresses and limits, for models that are given by name."""
    prompt_cache: PromptCaching | None = None
    """Whether prompts are marked for the vendor's cache; None: so they are, as long as every server takes it."""
    agent: str = ""
    """The name of the agent whose settings these are."""

    def __post_init__(self) -> None:
        if self.extra:
            _check_options(self.extra)
        if self.model is not None:
            _check_model("model", self.model)
        for each in self.fallbacks:
            _check_model("one of fallbacks", each)
        if self.temperature is not None and not (is_number(self.temperature) and 0 <= self.temperature <= 2):
            raise DefinitionError(f"temperature must be between 0 and 2, not {self.temperature!r}")
        if self.max_tokens is not None:
            check_count("max_tokens", self.max_tokens, 1)
        if self.timeout is not None and not (is_number(self.timeout) and 0 < self.timeout <= float_info.max):
            raise DefinitionError(f"timeout must be a number of seconds above 0, not {self.timeout!r}")
        if self.prompt_cache not in (None, *get_args(PromptCaching)):
            raise DefinitionError(f"prompt_cache is auto or off, not {self.prompt_cache!r}")
        check_count("max_retries", self.max_retries, 0)

    def temperature_beside(self, options: Mapping[str, Any]) -> float | None:
        """The temperature of a call that has these options; None where it is left to the vendor.

        >>> CallSettings(temperature=UsualTemperature(0.7)).temperature_beside({"top_p": 0.5}) is None
        True
        """
        if isinstance(self.temperature, UsualTemperature):
            return None if DECIDING & options.keys() else float(self.temperature)
        return self.temperature

    def with_options(self, options: Mapping[str, Any], arguments: frozenset[str]) -> CallSettings:
        """These settings with the options of one run: own fields replaced, all others added to `extra`.

        `arguments` are those that the agent is made with; the ones that hold for all its runs are refused.
        Another model stands alone, without the fallbacks; a `model` that is None changes nothing.
        """
        changes = {name: value for name, value in options.items() if name != "model" or value is not None}
        if not changes:
            return self
        own = {name: value for name, value in changes.items() if name in _OVERRIDES}
        further = {name: value for name, value in changes.items() if name not in _OVERRIDES}
        for option in further:
            for argument in (option, *_ELSEWHERE.get(option, ())):
                if argument in arguments:
                    raise DefinitionError(f"'{argument}' is given when the agent is made, not for one run")
        check_options(further, _OVERRIDES)
        if "model" in own:
            own["fallbacks"] = ()
        return replace(self, **own, extra={**self.extra, **_read_options(further)})


_OF_CALLS: Final = frozenset(each.name for each in fields(CallSettings)) - {"agent", "extra"}
"""The arguments of agents that are settings of their calls, under the same names."""
_OVERRIDES: Final = _OF_CALLS - {"fallbacks", "max_retries", "surroundings"}
"""Those that may be said for one run."""


@dataclass(frozen=True, slots=True)
class Generation:
    """Settings of what an agent writes, accepts and returns."""

    instructions: str
    system_message: str
    shape: AnswerShape | None
    """None for free text."""
    input_guardrails: tuple[Guardrail, ...]
    output_guardrails: tuple[Guardrail, ...]
    history: list[str] | None
    """The caller's list: read for the prompt, and each exchange is appended to it."""
    history_size: int
    """Entries of the history that enter a prompt, the newest."""

    def __post_init__(self) -> None:
        refuse_other_kind(self.instructions, str, "generation_instructions is text", DefinitionError)
        refuse_other_kind(self.system_message, str, "system_message is text", DefinitionError)
        refuse_other_kind(self.history, (list, NoneType), "session_history is a list", DefinitionError)
        check_count("history_size", self.history_size, 0)

    def remember(self, exchange: str) -> None:
        """Append an exchange to the caller's list, and remove what no prompt would have any more; with a size of 0,
        which reads nothing, all of it stays."""
        if self.history is not None:
            self.history.append(exchange)
            if self.history_size:
                del self.history[: -self.history_size]

    def recent(self) -> Sequence[str]:
        """The part of the history that enters a prompt."""
        return self.history[-self.history_size :] if self.history and self.history_size else ()


PATIENCE: Final = 2
"""Improvements in a row without a gain before it stops early, where nothing else is said."""


@dataclass(frozen=True, slots=True)
class Improvement:
    """Orchestration mode: judge, and improve what does not pass."""

    max_iterations: int = 3
    """Improvements after the first generation."""
    patience: int | None = PATIENCE
    """Improvements in a row without a better score after which it stops; None: it stops for no such reason."""
    callback: ImprovementCallback | None = None
    """Turns a result and its evaluation into the guidance of the next try."""

    def __post_init__(self) -> None:
        check_count("max_improvement_iterations", self.max_iterations, 0)
        if self.patience is not None:
            check_count("improvement_patience", self.patience, 1)
        refuse_other_kind(self.callback, (Callable, NoneType), "improvement_callback is a function", DefinitionError)


def is_settled_late(generation: Generation, improvement: Improvement | None) -> bool:
    """Tells whether an answer counts only once all of it is there: then none of it is shown before."""
    return generation.shape is not None or improvement is not None or bool(generation.output_guardrails)


def _check_model(name: str, model: str | Model) -> None:
    if not isinstance(model, str) and (lacking := missing_members(model)):
        kind = type(model).__name__
        raise DefinitionError(f"{name} is a model's name or a model, not {kind}, which has no {', '.join(lacking)}")


_NO_OPTIONS: Final = frozenset(
    {
        *("provider", "messages", "stream", "n", "tools", "tool_choice"),
        *("response_format", "response_schema", "response_name"),
        *("mcp_servers", "context_providers", "context_providers_config", "contexts", "memory", "skills"),
        *("skill_sandbox", "context_budget"),
    }
)
"""The options that the agent itself decides about a call, and those that would reach a vendor that can do nothing with
it."""


_ELSEWHERE: Final[Mapping[str, Sequence[str]]] = {
    "instructions": ("generation_instructions", "evaluation_instructions", "routing_instruction"),
    "instruction": ("routing_instruction", "evaluation_instructions"),
    "system": ("system_message",),
    "system_prompt": ("system_message",),
    "retries": ("max_retries",),
    "output": ("output_model",),
    "output_type": ("output_model",),
    "history": ("session_history",),
    "max_iterations": ("max_improvement_iterations",),
    "threshold": ("evaluation_threshold", "pass_threshold"),
    "evaluation_threshold": ("pass_threshold",),
    "criteria": ("evaluation_criteria",),
    "guardrails": ("input_guardrails",),
}
"""Names that flow files, other agents and other libraries have for an argument → the agent's own; no vendor has
an option of that name."""


@cache
def arguments_of(agent: type[Any]) -> frozenset[str]:
    """The arguments that an agent's class declares."""
    parameters = signature(agent).parameters.values()
    return frozenset(each.name for each in parameters if each.kind is not Parameter.VAR_KEYWORD)


def check_options(options: Mapping[str, Any], names: frozenset[str]) -> None:
    """Refuse what is neither an argument of the agent nor an option that all vendors' calls have."""
    names = names | OPTIONS.keys() | {"model_options"}
    for option in options:
        if option in OPTIONS or option == "model_options" or option in VENDOR_OPTIONS:
            continue
        from flowengine.foreign_names import find_foreign_argument  # Only a wrong argument needs the table.

        if option in _NO_OPTIONS:
            raise DefinitionError(f"'{option}' is neither an argument here nor an option of a model call")
        # Vendors' own options resemble ours, so only a near miss counts.
        alternatives = (*_ELSEWHERE.get(option, ()), SAID_OTHERWISE.get(option))
        near = find_nearest(option, names, 0.85) or next((each for each in alternatives if each in names), None)
        answer = f"did you mean '{near}'?" if near else find_foreign_argument("Agent", option, names)
        known_place = "options that only some vendors have go into `model_options`"
        raise DefinitionError(f"unknown argument '{option}'; {answer or known_place}")


def call_settings(agent: type[Any], arguments: Mapping[str, Any]) -> CallSettings:
    """The settings of an agent's model calls. `arguments`: the arguments of its constructor, by their names."""
    refuse_other_kind(arguments["name"], str, "name is text", DefinitionError)
    check_options(arguments["options"], arguments_of(agent))
    own = {name: arguments[name] for name in _OF_CALLS}
    own["fallbacks"] = check_list("fallbacks", arguments["fallbacks"], " of models")
    return CallSettings(**own, agent=arguments["name"], extra=_read_options(arguments["options"]))


def _read_options(options: Mapping[str, Any]) -> dict[str, Any]:
    if not options:
        return {}
    _check_options(options)
    return normalize_options(options)


def _check_options(options: Mapping[str, Any]) -> None:
    for problem in find_option_problems(options):
        raise DefinitionError(str(problem))


# --- Checks of arguments: numbers, lists, functions and names with their descriptions


def is_number(value: object) -> bool:
    """Tells whether a value is a number; True and False are none."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def check_share(name: str, value: float) -> float:
    """A value from 0.0 to 1.0; one above proposes the value / 100, since percentages are a common slip.

    >>> check_share("pass_threshold", 85)
    Traceback (most recent call last):
    flowengine.errors.DefinitionError: pass_threshold must be between 0.0 and 1.0, not 85; did you mean 0.85?
    """
    fits = is_number(value)
    if fits and 0 <= value <= 1:
        return value
    hint = f"; did you mean {value / 100:g}?" if fits and 1 < value <= 100 else ""
    raise DefinitionError(f"{name} must be between 0.0 and 1.0, not {value!r}{hint}")


def check_count(name: str, value: int, least: int) -> int:
    """A whole number that is not too small.

    >>> check_count("max_retries", "3", 0)
    Traceback (most recent call last):
    flowengine.errors.DefinitionError: max_retries must be a whole number of at least 0, not '3'
    """
    if type(value) is int and value >= least:
        return value
    raise DefinitionError(f"{name} must be a whole number of at least {least}, not {value!r}")


def check_functions(name: str, values: Iterable[Any]) -> tuple[Any, ...]:
    """A list of functions, as a tuple."""
    functions = check_list(name, values, " of functions")
    for each in functions:
        refuse_other_kind(each, Callable, f"one of {name} is a function", DefinitionError)
    return functions


def check_list(name: str, values: Iterable[Any], items: str = "") -> tuple[Any, ...]:
    """A list, as a tuple. `items`: what it consists of, as ` of models`."""
    if isinstance(values, str | Mapping) or not isinstance(cast(object, values), Iterable):
        raise DefinitionError(f"{name} must be a list{items}, not {values!r:.80}")
    return tuple(values)


def check_descriptions(name: str, descriptions: Mapping[str, str], what: str = "name") -> dict[str, str]:
    """Names with what each means, which is empty where it is not said."""
    refuse_other_kind(descriptions, Mapping, f"{name} are a mapping, as {{{what}: description}}", DefinitionError)
    for key, text in descriptions.items():
        refuse_other_kind(key, str, f"{name}: a {what} is text", DefinitionError)
        if not key or key != key.strip():
            raise DefinitionError(f"{name}: a {what} must be text without spaces around it, not {key!r}")
        refuse_other_kind(text, (str, NoneType), f"{name}: the description of {key!r} is text", DefinitionError)
    return {key: text or "" for key, text in descriptions.items()}
