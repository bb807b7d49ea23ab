"""Reads the table `models` of a project file: names of the project's own for models of vendors, checked.

Nothing is opened or asked, no key is looked for, and no command runs here.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, Final, cast, get_args

from flowengine.core import describe_value, is_map
from flowengine.errors import ModelConfigError, did_you_mean
from flowengine.flowfile.project.toml_positions import TellProblem, TomlPath
from flowengine.flowfile.project.vendor_tables import (
    ADAPTERS,
    choose_from,
    find_address_problem,
    find_doubled_key,
    read_prices,
)
from flowengine.models import (
    ALIASES,
    APIS,
    OPTIONS,
    OTHERS,
    SAMPLINGS,
    VENDORS,
    ModelDefinition,
    ReasoningEffort,
    VendorQuestion,
    capabilities_of,
    check_name,
    choose,
    find_key_command_problem,
    find_option_problems,
    find_refusals,
    find_variable_problem,
    is_known_name,
    normalize_options,
    split_command,
)
from flowengine.models.http import STRUCTURED_OUTPUTS, is_native

_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_MOST_TOKENS: Final = 1_000_000_000
_OPTION_NAMES: Final = (*OPTIONS, "model_options")


def read_models(
    table: Mapping[str, Any], tell: TellProblem, place_of: Callable[[TomlPath], str]
) -> dict[str, ModelDefinition]:
    """Name → what is said of it, for those without an error."""
    models: dict[str, ModelDefinition] = {}
    for name, entry in table.items():
        path = ("models", name)
        if (problem := _problem_of_name(name)) is not None:
            tell(*problem, path)
        elif not is_map(entry):
            tell(f"'{name}' in `models` is a table with the key 'model'", "", path)
        else:
            read = _Reader(name, entry, tell, frozenset(table)).read(place_of(path))
            if read is not None:
                models[name] = read
    return models


_VENDOR_NAMES: Final = frozenset({*VENDORS, *OTHERS, *ALIASES})
"""The providers of this house; those of packages are looked for when a name is asked for, and end before a slash."""


def _problem_of_name(name: str) -> tuple[str, str] | None:
    if not _NAME.fullmatch(name):
        return f"'{name:.80}' in `models` is no name", "; letters, digits, '-', '_' and '.', without a vendor before it"
    if name in _VENDOR_NAMES:
        return f"'{name}' in `models` is the name of a vendor", "; choose another name"
    if is_known_name(name):
        return f"'{name}' in `models` is the name of a vendor's own model", "; choose another name"
    return None


def _is_flag(value: Any) -> str | None:
    return None if isinstance(value, bool) else "true or false"


def _is_tokens(value: Any) -> str | None:
    return None if type(value) is int and 1 <= value <= _MOST_TOKENS else "a whole number of at least 1"


def _is_map(value: Any) -> str | None:
    return None if is_map(value) else "a table"


def _is_efforts(value: Any) -> str | None:
    efforts = cast("list[Any]", value) if isinstance(value, list) else [None]
    return None if all(each in _EFFORTS for each in efforts) else f"a list of {', '.join(_EFFORTS)}"


def _find_listed_problem(value: Any) -> str | None:
    provider, _, name = value.partition("/") if isinstance(value, str) else ("", "", "")
    is_known = bool(name) and provider in _VENDOR_NAMES and capabilities_of(provider, name).is_known
    return None if is_known else "a model of the table, such as 'openai/gpt-5.5'"


_EFFORTS: Final = get_args(ReasoningEffort)
_CAPABILITIES: Final[Mapping[str, Callable[[Any], str | None]]] = {
    "same_as": _find_listed_problem,
    "api": choose_from(APIS),
    "thinks": _is_flag,
    "efforts": _is_efforts,
    "usual_effort": choose_from(_EFFORTS),
    "sampling": choose_from(SAMPLINGS),
    "tools": _is_flag,
    "streams": _is_flag,
}
"""The keys for a model's capabilities, and the test of each value."""
_WORDS: Final[Mapping[str, tuple[str, ...]]] = {
    "structured_output": STRUCTURED_OUTPUTS,
    "adapter": ADAPTERS,
    "api": APIS,
    "sampling": SAMPLINGS,
}
MODEL_KEYS: Final[Mapping[str, Callable[[Any], str | None]]] = {
    "model": lambda value: None if isinstance(value, str) and value else "a text such as 'openai/gpt-4o-mini'",
    "base_url": find_address_problem,
    "key_env": find_variable_problem,
    "key_command": find_key_command_problem,
    "options": _is_map,
    "price": _is_map,
    "window": _is_tokens,
    "longest_answer": _is_tokens,
    "structured_output": choose_from(STRUCTURED_OUTPUTS),
    "images": _is_flag,
    **_CAPABILITIES,
    "adapter": choose_from(ADAPTERS),
}
"""Key → what is expected of its value where that is something else."""
_SECRET: Final = frozenset({"key_env", "key_command"})
"""Keys whose values are not told: somebody may have written the key itself there."""
_MEANT: Final = {
    "api_key": "key_env",
    "key": "key_env",
    "api_key_env": "key_env",
    "api_base": "base_url",
    "context_window": "window",
    "max_tokens": "longest_answer",
    "vision": "images",
}


class _Reader:
    """Reads one name's table."""

    def __init__(self, name: str, table: Mapping[str, Any], tell: TellProblem, names: frozenset[str]) -> None:
        self._name = name
        self._table = table
        self._tell = tell
        self._names = names
        self._is_sound = True

    def read(self, place: str) -> ModelDefinition | None:
        """Reads the table; None if it has errors."""
        self._check_keys()
        self._check_model()
        if (problem := find_doubled_key(self._table, f"model '{self._name}'")) is not None:
            self._say(problem, "", "key_command")
        options = self._options()
        prices = read_prices({self._name: self._table["price"]}, self._say_of_price) if "price" in self._table else {}
        if not self._is_sound:
            return None
        command = self._table.get("key_command")
        apart = ("options", "price", "key_command", *_CAPABILITIES)
        settings = {key: value for key, value in self._table.items() if key not in apart}
        return ModelDefinition(
            self._name,
            key_command=None if command is None else split_command(command),
            options=options,
            capabilities=self._capabilities(),
            price=prices.get(self._name),
            place=place,
            **settings,
        )

    def _say(self, message: str, hint: str = "", *keys: str) -> None:
        self._is_sound = False
        self._tell(message, hint, ("models", self._name, *keys))

    def _say_of_price(self, message: str, hint: str = "", path: TomlPath = ()) -> None:
        self._say(message, hint, "price", *path[2:])

    def _check_keys(self) -> None:
        for key, value in self._table.items():
            check = MODEL_KEYS.get(key)
            if check is None:
                proposal = f"; did you mean '{_MEANT[key]}'?" if key in _MEANT else did_you_mean(key, MODEL_KEYS)
                self._say(
                    f"unknown key '{key}' of model '{self._name}'",
                    proposal or f"; it takes {', '.join(MODEL_KEYS)}",
                    key,
                )
            elif (expected := check(value)) is not None:
                actual = "" if key in _SECRET else f", not {describe_value(value)}"
                hint = did_you_mean(value, _WORDS[key]) if key in _WORDS and isinstance(value, str) else ""
                self._say(f"'{key}' of model '{self._name}' is {expected}{actual}", hint, key)
        if "model" not in self._table:
            self._say(f"model '{self._name}' lacks the key 'model', as in model = 'openai/gpt-4o-mini'")

    def _check_model(self) -> None:
        model = self._table.get("model")
        if not isinstance(model, str) or not model:
            return
        if model in self._names:
            self._say(
                f"'model' of model '{self._name}' is another name of the project's own", "; name a vendor's", "model"
            )
            return
        try:
            check_name(model)
        except ModelConfigError as error:
            self._say(f"'model' of model '{self._name}': {error}", "", "model")
            return
        provider = self._vendors_model()[0]
        if self._table.get("adapter") == "native" and provider and not is_native(provider):
            message = f"'adapter' of model '{self._name}' cannot be native: {provider} is reached through litellm"
            self._say(message, "", "adapter")

    def _vendors_model(self) -> tuple[str, str]:
        """Provider and name, where the name itself says whose it is; others depend on the environment."""
        model = self._table["model"]
        if "/" not in model and not is_known_name(model):
            return "", ""  # To be asked for it would take as long as to propose another one.
        try:
            return choose(VendorQuestion(model, None, {}))[:2]
        except ModelConfigError:
            return "", ""

    def _options(self) -> dict[str, Any]:
        table = self._table.get("options")
        if not is_map(table):
            return {}
        for option in table:
            if option not in _OPTION_NAMES:
                message = f"unknown option '{option}' of model '{self._name}'"
                hint = "; the node or the agent says it" if option in ("temperature", "max_tokens") else ""
                self._say(message, hint or did_you_mean(option, _OPTION_NAMES), "options", option)
        for problem in find_option_problems(table):
            at = () if problem.option in _OPTION_NAMES else ("model_options",)
            self._say(f"model '{self._name}': {problem.message}", problem.hint, "options", *at, problem.option)
        if not self._is_sound:
            return {}
        options = normalize_options(table)
        self._check_taken(options)
        return options

    def _capabilities(self) -> dict[str, Any]:
        capabilities = {key: self._table[key] for key in _CAPABILITIES if self._table.get(key) is not None}
        return capabilities | {"efforts": tuple(capabilities["efforts"])} if "efforts" in capabilities else capabilities

    def _check_taken(self, options: Mapping[str, Any]) -> None:
        provider, name = self._vendors_model()
        for option, reason, _ in find_refusals(provider, name, options, self._capabilities()):
            at = (option,) if option in _OPTION_NAMES else ("model_options", option)
            self._say(f"model '{self._name}' ({provider}/{name}) refuses `{option}`: {reason}", "", "options", *at)
