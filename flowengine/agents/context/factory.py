"""Makes providers from configuration: YAML or plain data in, checked and made providers out.

It finds the class of a name (our own, those that users register, those that packages bring) and imports none before its
name is asked for. It knows both notations, and checks parameters against the schema of the class.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any, Final, NamedTuple, cast

import yaml

from flowengine.agents.context.provider import JSON_TYPES, ContextProvider, ParameterError
from flowengine.core import check_arguments, describe_value, find_entry_points, is_json_type, load_entry_point
from flowengine.errors import DefinitionError, did_you_mean, refuse_other_kind

# --- Our own, by name

GROUP: Final = "flowengine.context_providers"
"""Entry points under which installed packages bring theirs."""

OURS: Final = {
    "conversation": "flowengine.agents.context.conversation:ConversationHistoryProvider",
    "fixed_file": "flowengine.agents.context.fixed_file:FixedFileProvider",
    "source_code": "flowengine.agents.context.source_code.source_code:SourceCodeProvider",
    "compressor": "flowengine.agents.context.compressor.compressor:ContextCompressorProvider",
    "cut": "flowengine.agents.context.cut:CutProvider",
    "filter": "flowengine.agents.context.filter:ContextFilterProvider",
    "long_term_memory": "flowengine.agents.context.long_term_memory:LongTermMemoryProvider",
    "retrieval": "flowengine.agents.context.retrieval:RetrievalProvider",
    "custom_data": "flowengine.agents.context.custom_data:CustomDataProvider",
}
"""Name → `module:Class`."""

ALIASES: Final = {"conversation_history": "conversation"}


_registered: Final[dict[str, type[ContextProvider]]] = {}


def register(name: str, provider: type[ContextProvider]) -> None:
    """Make a class known under a name; a class without one of its own is named so as well."""
    refuse_other_kind(name, str, "a context provider's name is text", DefinitionError)
    if name in OURS or name in ALIASES:
        raise DefinitionError(f"'{name}' is a context provider of FlowEngine's own; choose another name")
    kind: Any = provider
    if not (isinstance(kind, type) and issubclass(kind, ContextProvider)):
        raise DefinitionError(f"'{name}' must be a subclass of ContextProvider, not {provider!r:.80}")
    _registered[name] = provider
    if not provider.provider_name:
        provider.provider_name = name


def known_names() -> list[str]:
    """Every name that there is, aliases left out."""
    return [*dict.fromkeys((*OURS, *_registered, *find_entry_points(GROUP)))]


def provider_class(name: str) -> type[ContextProvider]:
    """The class of a name; an unknown one is a `ParameterError` with the nearest known name."""
    canonical = ALIASES.get(name, name)
    if canonical in OURS:
        return cast("type[ContextProvider]", object_of(OURS[canonical]))
    if canonical not in _registered:
        point = find_entry_points(GROUP).get(canonical)
        if point is None:
            names = (*known_names(), *ALIASES)
            near = did_you_mean(name, names) or f"; there are {', '.join(names)}"
            raise ParameterError(f"there is no context provider '{name}'{near}")
        register(canonical, load_entry_point(point, f"the context provider '{canonical}'"))
    return _registered[canonical]


def object_of(target: str) -> Any:
    """Imports `module:name`; raises `DefinitionError` if that is not possible."""
    module, _, name = target.partition(":")
    try:
        return getattr(import_module(module), name)
    except Exception as error:  # A module is foreign code: whatever it raises is its own failure.
        raise DefinitionError(f"'{target}' cannot be loaded: {type(error).__name__}: {error}") from error


# --- From configuration to providers

_MAX_YAML_LENGTH: Final = 100_000
"""Characters of a configuration in YAML."""

Load = Callable[[str], Any]
"""A function that loads what `module:name` names."""


class ContextProviderFactory:
    """Makes providers from configuration.

    >>> ContextProviderFactory.create_from_yaml("- conversation: {max_items: 5}")[0].max_items
    5
    >>> ContextProviderFactory.create_from_config([{"type": "conversation_history", "max_item": 10}])
    Traceback (most recent call last):
    ...
    flowengine.agents.context.factory.UnknownParameterError: context provider 'conversation_history' has no
    parameter 'max_item'; did you mean 'max_items'?
    """

    @staticmethod
    def register_provider(name: str, provider: type[ContextProvider]) -> None:
        """Make a class of the user's own known under a name."""
        register(name, provider)

    @staticmethod
    def get_available_providers() -> dict[str, dict[str, Any]]:
        """Name → schema (`get_config_schema`) of every provider that can be loaded."""
        schemas: dict[str, dict[str, Any]] = {}
        for name in known_names():
            try:
                schemas[name] = provider_class(name).get_config_schema()
            except Exception as error:  # A class of the user's own, or of a package.
                schemas[name] = {"description": str(error), "parameters": {}, "example": ""}
        return schemas

    @staticmethod
    def create_from_yaml(text: str, *, root: Path | None = None, load: Load = object_of) -> list[ContextProvider]:
        """The providers of a YAML list. `root` and `load` as in `create_from_config`."""
        check_arguments(ContextProviderFactory.create_from_yaml, locals())
        return ContextProviderFactory.create_from_config(_parse_yaml(text), root=root, load=load)

    @staticmethod
    def create_from_config(config: Any, *, root: Path | None = None, load: Load = object_of) -> list[ContextProvider]:
        """The providers of a list of entries, or of a single one, in their order.

        An entry is `{name: {parameter: value}}`, `{"type": name, parameter: value}` or the name alone. Paths stay
        below `root`; None: relative to the current folder, and any path goes. `load` finds what `module:name` is.
        """
        check_arguments(ContextProviderFactory.create_from_config, locals())
        if isinstance(config, str | Mapping):
            config = [config]
        if not isinstance(config, Sequence):
            raise DefinitionError(
                f"context providers are configured by a list of entries, not {describe_value(config)}"
            )
        return [make_provider(parse_entry(each), root, load) for each in cast("Sequence[Any]", config)]


class Configured(NamedTuple):
    """One provider as it was configured."""

    name: str
    parameters: Mapping[str, Any]


def parse_entry(written_entry: Any) -> Configured:
    """An entry of a configuration, in whichever notation.

    >>> parse_entry({"type": "filter", "max_sections": 3}) == parse_entry({"filter": {"max_sections": 3}})
    True
    """
    if isinstance(written_entry, str):
        return Configured(written_entry, {})
    entry: Mapping[str, Any] = cast("Mapping[str, Any]", written_entry) if isinstance(written_entry, Mapping) else {}
    if not entry:
        raise ParameterError(
            f"a context provider is configured by {_FORMS}, not by {describe_value(cast(Any, written_entry))}"
        )
    if "type" in entry:
        if not isinstance(entry["type"], str):
            raise ParameterError(
                f"the type of a context provider is its name, not {describe_value(entry['type'])}", "type"
            )
        return Configured(entry["type"], {key: value for key, value in entry.items() if key != "type"})
    if len(entry) > 1:
        names = ", ".join(map(repr, entry))
        raise ParameterError(f"a context provider is configured by {_FORMS}; here are the keys {names}")
    name, parameters = next(iter(entry.items()))
    if parameters is not None and not isinstance(parameters, Mapping):
        raise ParameterError(
            f"the parameters of context provider '{name}' must be a mapping, not {describe_value(parameters)}"
        )
    return Configured(str(name), cast("Mapping[str, Any]", parameters or {}))


_FORMS: Final = "{name: {parameter: value}} or {type: name, parameter: value}"


def make_provider(entry: Configured, root: Path | None, load: Load) -> ContextProvider:
    """The provider of an entry; whatever is wrong with it is a `ParameterError`."""
    kind = provider_class(entry.name)
    try:
        schema = kind.get_config_schema()
        parameters = check_parameters(entry.name, schema, entry.parameters)
        for name in parameters:
            kinds = kinds_of(schema["parameters"][name])
            if "code" in kinds and "string" not in kinds and isinstance(parameters[name], str):
                parameters[name] = _load_code(entry.name, name, parameters[name], load)
        return kind.from_config(parameters, root=root)
    except ParameterError as error:
        message = str(error)
        text = message if message.startswith("context provider '") else f"context provider '{entry.name}': {message}"
        error.args = (text,)
        raise
    except DefinitionError:
        raise
    except Exception as error:  # A class of the user's own.
        problem = f"{type(error).__name__}: {error}"
        raise ParameterError(f"context provider '{entry.name}' cannot be made: {problem}") from error


def _load_code(provider: str, parameter: str, target: str, load: Load) -> Any:
    try:
        return load(target)
    except DefinitionError as error:
        error.args = (f"context provider '{provider}': '{parameter}': {error}", *error.args[1:])
        raise


# --- Parameters checked


class UnknownParameterError(ParameterError):
    """A provider has no parameter of that name."""


def check_parameters(name: str, schema: Mapping[str, Any], arguments: Mapping[str, Any]) -> dict[str, Any]:
    """The parameters as given, once each is known, of its type, and none that is needed is missing.

    >>> schema = {"parameters": {"max_items": {"type": "integer", "default": 10, "required": False}}}
    >>> check_parameters("conversation", schema, {"max_itms": 5})
    Traceback (most recent call last):
    ...
    flowengine.agents.context.factory.UnknownParameterError: context provider 'conversation' has no parameter
    'max_itms'; did you mean 'max_items'?
    """
    parameters = cast("Mapping[str, Mapping[str, Any]]", schema.get("parameters", {}))
    for key, value in arguments.items():
        if key not in parameters:
            near = did_you_mean(key, parameters) or f"; it has {', '.join(parameters) or 'none'}"
            raise UnknownParameterError(f"context provider '{name}' has no parameter '{key}'{near}", key)
        _check_type(name, key, parameters[key], value)
    for key, parameter in parameters.items():
        if parameter.get("required") and key not in arguments:
            described = f": {parameter['description']}" if parameter.get("description") else ""
            raise ParameterError(f"context provider '{name}' needs '{key}'{described}")
    return dict(arguments)


def _check_type(name: str, key: str, parameter: Mapping[str, Any], value: Any) -> None:
    kinds = kinds_of(parameter)
    if value is None and not parameter.get("required") and parameter.get("default") is None:
        return
    if kinds and not any(_fits_type(value, each) for each in kinds):
        expected = " or ".join("module:name" if each == "code" else each for each in kinds)
        raise ParameterError(
            f"context provider '{name}': '{key}' must be {expected}, found {describe_value(value)}", key
        )


def kinds_of(parameter: Mapping[str, Any]) -> list[str]:
    """The types that a parameter takes, JSON's and `code` (`module:name`); none where any value goes.

    >>> kinds_of({"type": "object|code"}), kinds_of({"type": "any"})
    (['object', 'code'], [])
    """
    kinds = str(parameter.get("type", "any")).split("|")
    return kinds if {*kinds} <= {*JSON_TYPES.values(), "code"} else []


def _fits_type(value: Any, kind: str) -> bool:
    if kind == "code":
        return isinstance(value, str) and _CODE_REFERENCE.fullmatch(value) is not None
    return is_json_type(value, kind)


_CODE_REFERENCE: Final = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_]\w*")


# --- YAML


class _Loader(yaml.SafeLoader):
    """Plain data only, and no key twice."""

    def construct_mapping(self, node: Any, deep: bool = False) -> dict[Any, Any]:
        keys = [each.value for each, _ in node.value if isinstance(each.value, str)]
        twice = next((key for key, count in Counter(keys).items() if count > 1), None)
        if twice is not None:
            raise yaml.constructor.ConstructorError(None, None, f"the key '{twice}' is there twice", node.start_mark)
        return super().construct_mapping(node, deep)


def _parse_yaml(text: str) -> Any:
    if len(text) > _MAX_YAML_LENGTH:
        raise DefinitionError(f"the configuration of context providers has more than {_MAX_YAML_LENGTH:,} characters")
    try:
        return yaml.load(text, _Loader)  # Of the safe loader's kind.
    except yaml.MarkedYAMLError as error:
        mark, problem = error.problem_mark, error.problem or error.context
        where = "" if mark is None else f", line {mark.line + 1}, column {mark.column + 1}"
        raise DefinitionError(f"the configuration of context providers is not YAML{where}: {problem}") from error
    except (yaml.YAMLError, RecursionError, ValueError) as error:
        raise DefinitionError(f"the configuration of context providers is not YAML: {error}") from error
