"""Reads the parameters of providers off their constructors, checks them, and resolves the paths among them.

It knows names, types, defaults and paths. It knows no provider and makes none.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from inspect import Parameter, cleandoc, signature
from pathlib import Path
from typing import Any, Final, cast

from flowengine.core.flow_paths import RefusedPathError, resolve_path, resolve_store
from flowengine.core.values import describe_value, is_json_type
from flowengine.errors import DefinitionError, did_you_mean

__all__ = [
    "MissingFileError",
    "OutsideError",
    "ParameterError",
    "UnknownParameterError",
    "check_parameters",
    "kinds_of",
    "locate_path",
    "located_store",
    "schema_of_constructor",
]


class ParameterError(DefinitionError):
    """A parameter of a provider is wrong; `parameter` is its name, None where it is not one of them alone."""

    def __init__(self, message: str, parameter: str | None = None) -> None:
        super().__init__(message)
        self.parameter = parameter


class UnknownParameterError(ParameterError):
    """A provider has no parameter of that name."""


_JSON_TYPES: Final[Mapping[str, str]] = {
    "str": "string",
    "int": "integer",
    "float": "number",
    "bool": "boolean",
    "list": "array",
    "dict": "object",
    "Mapping": "object",
    "Sequence": "array",
}


def schema_of_constructor(provider: type[Any], name: str) -> dict[str, Any]:
    """The configuration schema that a class's docstring and constructor amount to."""
    described = cleandoc(provider.__doc__ or "").partition("\n")[0]
    parameters: dict[str, dict[str, Any]] = {}
    for each in list(signature(provider.__init__).parameters.values())[1:]:
        if each.kind not in (Parameter.VAR_POSITIONAL, Parameter.VAR_KEYWORD):
            parameters[each.name] = _describe_parameter(each)
    return {"description": described, "parameters": parameters, "example": _format_example(name, parameters)}


def _describe_parameter(given: Parameter) -> dict[str, Any]:
    required = given.default is Parameter.empty
    return {
        "type": _name_type(given.annotation),
        "default": None if required else given.default,
        "required": required,
        "description": "",
    }


def _name_type(annotation: Any) -> str:
    """The JSON type of an annotation, `any` where it says nothing that JSON has a word for."""
    written = annotation if isinstance(annotation, str) else cast(str, getattr(annotation, "__name__", ""))
    first = written.removesuffix(" | None").partition("[")[0]
    return _JSON_TYPES.get(first, "any")


def _format_example(name: str, parameters: Mapping[str, Mapping[str, Any]]) -> str:
    needed = ", ".join(f"{key}: …" for key, each in parameters.items() if each["required"])
    return f"- {name}: {{{needed}}}"


def check_parameters(name: str, schema: Mapping[str, Any], given: Mapping[str, Any]) -> dict[str, Any]:
    """The parameters as given, once each is known, of its type, and none that is needed is missing.

    >>> schema = {"parameters": {"max_items": {"type": "integer", "default": 10, "required": False}}}
    >>> check_parameters("conversation", schema, {"max_itms": 5})
    Traceback (most recent call last):
    ...
    flowengine.context_providers.parameters.UnknownParameterError: context provider 'conversation' has no parameter
    'max_itms'; did you mean 'max_items'?
    """
    parameters = cast("Mapping[str, Mapping[str, Any]]", schema.get("parameters", {}))
    for key, value in given.items():
        if key not in parameters:
            near = did_you_mean(key, parameters) or f"; it has {', '.join(parameters) or 'none'}"
            raise UnknownParameterError(f"context provider '{name}' has no parameter '{key}'{near}", key)
        _check_type(name, key, parameters[key], value)
    for key, parameter in parameters.items():
        if parameter.get("required") and key not in given:
            raise ParameterError(f"context provider '{name}' needs '{key}'{_explain_parameter(parameter)}")
    return dict(given)


def _check_type(name: str, key: str, parameter: Mapping[str, Any], value: Any) -> None:
    kinds = kinds_of(parameter)
    if value is None and not parameter.get("required") and parameter.get("default") is None:
        return
    if kinds and not any(_fits_type(value, each) for each in kinds):
        expected = " or ".join(_TYPE_WORDS.get(each, each) for each in kinds)
        raise ParameterError(
            f"context provider '{name}': '{key}' must be {expected}, found {describe_value(value)}", key
        )


def kinds_of(parameter: Mapping[str, Any]) -> list[str]:
    """The types that a parameter takes, JSON's and `code` (`module:name`); none where any value goes.

    >>> kinds_of({"type": "object|code"}), kinds_of({"type": "any"})
    (['object', 'code'], [])
    """
    kinds = str(parameter.get("type", "any")).split("|")
    return kinds if all(each in _KNOWN_TYPES for each in kinds) else []


_TYPE_WORDS: Final[Mapping[str, str]] = {"code": "module:name"}
_KNOWN_TYPES: Final = frozenset({*_JSON_TYPES.values(), "code"})
_CODE_REFERENCE: Final = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_]\w*")


def _fits_type(value: Any, kind: str) -> bool:
    if kind == "code":
        return isinstance(value, str) and _CODE_REFERENCE.fullmatch(value) is not None
    return is_json_type(value, kind)


def _explain_parameter(parameter: Mapping[str, Any]) -> str:
    return f": {parameter['description']}" if parameter.get("description") else ""


# --- Paths in a provider's configuration


class MissingFileError(ParameterError):
    """A file or folder that is not there, or cannot be read as what it should be."""


class OutsideError(ParameterError):
    """A path that a flow may not name, such as one that leaves its root."""


def locate_path(path: str | os.PathLike[str], root: Path | None, *, parameter: str) -> Path:
    """The absolute form of a path; `root` None: relative to the current folder, and any path goes.

    Links are followed before it is judged (`flowengine.core.flow_paths`): one that leads out of the root is outside.

    >>> locate_path("../secrets.txt", Path("/srv/flows"), parameter="file_path")
    Traceback (most recent call last):
    ...
    flowengine.context_providers.parameters.OutsideError: the path '../secrets.txt' leaves the project's root /srv/flows
    """
    return _resolve_checked(resolve_path, path, root, parameter)


def located_store(path: str | os.PathLike[str], root: Path | None, *, parameter: str) -> Path:
    """As `locate_path`, of a file that is made and written to."""
    return _resolve_checked(resolve_store, path, root, parameter)


def _resolve_checked(
    resolve: Callable[[str | os.PathLike[str], Path], Path],
    path: str | os.PathLike[str],
    root: Path | None,
    parameter: str,
) -> Path:
    if root is None:
        return Path(path).expanduser().absolute()
    try:
        return resolve(path, root)
    except RefusedPathError as error:
        raise OutsideError(str(error), parameter) from None
