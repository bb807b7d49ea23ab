"""Makes providers from configuration: YAML or plain data in, checked and made providers out.

It knows both notations and asks each class for its schema. Which classes there are is the registry's matter.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple, cast

import yaml

from flowengine.context_providers.parameters import ParameterError, check_parameters, kinds_of
from flowengine.context_providers.provider import ContextProvider
from flowengine.context_providers.registry import known_names, object_of, provider_class, register
from flowengine.core.argument_kinds import check_arguments
from flowengine.core.values import describe_value
from flowengine.errors import DefinitionError

__all__ = ["Configured", "ContextProviderFactory", "make_provider", "parse_entry"]

_MAX_YAML_LENGTH: Final = 100_000
"""Characters of a configuration in YAML."""

Load = Callable[[str], Any]
"""What `module:name` is."""


class ContextProviderFactory:
    """Makes providers from configuration.

    >>> ContextProviderFactory.create_from_yaml("- conversation: {max_items: 5}")[0].max_items
    5
    >>> ContextProviderFactory.create_from_config([{"type": "conversation_history", "max_item": 10}])
    Traceback (most recent call last):
    ...
    flowengine.context_providers.parameters.UnknownParameterError: context provider 'conversation_history' has no
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
            except DefinitionError as error:
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


def parse_entry(given: Any) -> Configured:
    """An entry of a configuration, in whichever notation.

    >>> parse_entry({"type": "filter", "max_sections": 3}) == parse_entry({"filter": {"max_sections": 3}})
    True
    """
    if isinstance(given, str):
        return Configured(given, {})
    entry: Mapping[str, Any] = cast("Mapping[str, Any]", given) if isinstance(given, Mapping) else {}
    if not entry:
        raise ParameterError(f"a context provider is configured by {_FORMS}, not by {describe_value(cast(Any, given))}")
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
    schema = kind.get_config_schema()
    parameters = check_parameters(entry.name, schema, entry.parameters)
    for name in parameters:
        kinds = kinds_of(schema["parameters"][name])
        if "code" in kinds and "string" not in kinds and isinstance(parameters[name], str):
            parameters[name] = _load_code(entry.name, name, parameters[name], load)
    try:
        return kind.from_config(parameters, root=root)
    except ParameterError as error:
        message = str(error)
        named = message if message.startswith("context provider '") else f"context provider '{entry.name}': {message}"
        error.args = (named,)
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
