"""Makes the JSON Schema of flow files, for editors: completion, hover texts, and most errors while typing.

Made from the same models that load a flow; the docstrings under their fields are its descriptions. What
the loader accepts is valid here. Names of nodes, templates and cycles are the loader's alone.
"""

from __future__ import annotations

import ast
import inspect
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cache
from types import ModuleType
from typing import Any, Final, cast

from pydantic import BaseModel

from flowengine.core import is_map
from flowengine.errors import DefinitionError
from flowengine.flowfile.schema import agent_settings as schema_agent
from flowengine.flowfile.schema import fields
from flowengine.flowfile.schema import flow_file as schema
from flowengine.flowfile.schema import keys as schema_keys
from flowengine.flowfile.schema.fields import ID_PATTERN, Keys
from flowengine.flowfile.schema.flow_file import FlowSpec
from flowengine.flowfile.schema.keys import NodeKeys
from flowengine.flowfile.schema.node_kinds import BodyKeys, node_types, spec_of

_DIALECT: Final = "http://json-schema.org/draft-07/schema#"
"""The dialect that editors know best."""
_NOTES: Final = {"^x-": True}
_BY_NAME: Final = ("properties", "patternProperties")
"""Keywords whose keys are the author's names, not JSON Schema's."""


def _fail(message: str) -> None:
    raise DefinitionError(message)


def json_schema(report: Callable[[str], object] = _fail) -> dict[str, Any]:
    """The schema as plain data. `report` is told of each package's kind that cannot be had, and so is not in it."""
    raw = FlowSpec.model_json_schema(by_alias=True)
    definitions = cast("dict[str, Any]", raw.pop("$defs"))
    definitions["FlowSpec"] = dict(raw)
    kinds = _kinds(report)
    models = {model.__name__: model for model in _models(kinds.values())}
    todo = [*(each.__name__ for each in kinds.values()), *_apart_in(raw), *_apart_in(definitions)]
    while todo:
        name = todo.pop()
        if name not in definitions:
            own = models[name].model_json_schema(by_alias=True)
            inner = own.pop("$defs", {})
            definitions |= {**inner, **definitions, name: own}
            todo += [*_apart_in(own), *_apart_in(inner)]
    for name, definition in definitions.items():
        if name in models:
            _describe(definition, models[name])
    definitions["Node"] = _node(kinds)
    holders = [model.__name__ for model in kinds.values() if issubclass(model, BodyKeys)]
    for name in ("FlowSpec", *holders):
        definitions[name]["properties"]["nodes"]["patternProperties"] = {ID_PATTERN: {"$ref": "#/$defs/Node"}}
    definitions["ApprovalNodeSpec"]["dependencies"] = {"expires": ["on_expire"], "on_expire": ["expires"]}
    definitions["Route"] = {"anyOf": [{"type": "string"}, definitions["Route"]]}
    definitions["OnErrorSpec"] = _on_error(definitions["OnErrorSpec"])
    tidy = {name: _tidy(definition) for name, definition in definitions.items()}
    for name, model in kinds.items():
        tidy[model.__name__] = {"title": name, **tidy[model.__name__]}  # What editors call it.
    return {"$schema": _DIALECT, "title": "FlowEngine flow, version 1", **tidy.pop("FlowSpec"), "definitions": tidy}


def _apart_in(value: Any) -> Iterator[str]:
    """The models that a schema names and does not hold."""
    if is_map(value):
        for key, each in value.items():
            if key == "$apart":
                yield each
            yield from _apart_in(each)
    elif isinstance(value, list):
        for each in cast("list[Any]", value):
            yield from _apart_in(each)


def _kinds(report: Callable[[str], object]) -> dict[str, type[NodeKeys]]:
    """The keys of a node by its type, including types of packages."""
    kinds: dict[str, type[NodeKeys]] = {}
    for name in node_types():
        try:
            kinds[name] = spec_of(name)
        except DefinitionError as error:
            report(str(error))
    return kinds


def _models(kinds: Iterable[type[NodeKeys]]) -> Iterable[type[BaseModel]]:
    yield from kinds
    for module in (*_MODULES, *(sys.modules[each.__module__] for each in kinds)):
        for each in vars(module).values():
            if isinstance(each, type) and issubclass(each, Keys):
                yield each


_MODULES: Final[tuple[ModuleType, ...]] = (
    fields, schema_agent, schema_keys, schema,
)  # fmt: skip


def _describe(definition: dict[str, Any], model: type[BaseModel]) -> None:
    """The model's docstrings as descriptions, and room for the author's notes."""
    definition["description"] = inspect.getdoc(model)
    definition["patternProperties"] = _NOTES
    docs: dict[str, str] = {}
    for each in reversed(model.__mro__):
        docs |= field_docs(each.__module__).get(each.__name__, {})
    for name, field in model.model_fields.items():
        definition["properties"][field.alias or name]["description"] = docs.get(name, "")
    if issubclass(model, NodeKeys) and "type" in definition["properties"]:
        definition["properties"]["type"]["description"] = definition["description"]


@cache
def field_docs(module: str) -> Mapping[str, dict[str, str]]:
    """Class → field → the docstring under it, of a module that is imported."""
    if module.partition(".")[0] in ("builtins", "pydantic"):
        return {}
    try:
        tree = ast.parse(inspect.getsource(sys.modules[module]))
    except OSError:  # A package may come without its source.
        return {}
    return {node.name: _docs_in(node) for node in tree.body if isinstance(node, ast.ClassDef)}


def _docs_in(node: ast.ClassDef) -> dict[str, str]:
    docs: dict[str, str] = {}
    for field, text in zip(node.body, node.body[1:], strict=False):
        if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name) and isinstance(text, ast.Expr):
            value = text.value
            if isinstance(value, ast.Constant) and isinstance(value.value, str):
                docs[field.target.id] = inspect.cleandoc(value.value)
    return docs


def _node(types: Mapping[str, type[NodeKeys]]) -> dict[str, Any]:
    """A node: by its `type` one of the kinds; without one an agent."""
    kinds: list[dict[str, Any]] = []
    for name, model in types.items():
        condition: dict[str, Any] = {"type": "object", "properties": {"type": {"const": name}}}
        if name != "agent":
            condition["required"] = ["type"]
        kinds.append({"if": condition, "then": {"$ref": f"#/$defs/{model.__name__}"}})
    described = {
        "enum": list(types),
        "enumDescriptions": [inspect.getdoc(model) for model in types.values()],
        "description": "Kind of the node; left out: agent.",
    }
    return {"type": "object", "properties": {"type": described}, "allOf": kinds}


def _on_error(definition: Mapping[str, Any]) -> dict[str, Any]:
    """Describes `on_error` as it is written: a word, or where to go."""
    then = {"type": "object", "required": ["then"], "additionalProperties": False}
    described = {"then": {"type": "string", "description": definition["properties"]["then"]["description"]}}
    return {"anyOf": [{"enum": ["fail", "skip"]}, then | {"properties": described}]}


def _tidy(value: Any) -> Any:
    """Tidies a schema for editors: no titles, no null as a second type, defaults as they are written, and notes."""
    if isinstance(value, list):
        return [_tidy(each) for each in cast("list[Any]", value)]
    if not is_map(value):
        return value
    branches = value.get("anyOf")
    if isinstance(branches, list) and {"type": "null"} in branches:
        others = [each for each in cast("list[Any]", branches) if each != {"type": "null"}]
        rest = {key: each for key, each in value.items() if key != "anyOf"}
        return _tidy({**(others[0] if len(others) == 1 else {"anyOf": others}), **rest})
    if value.get("patternProperties", {}).keys() == {ID_PATTERN}:
        value = {**value, "patternProperties": {**value["patternProperties"], **_NOTES}, "additionalProperties": False}
    tidy: dict[str, Any] = {}
    for key, each in value.items():
        if (key == "title" and isinstance(each, str)) or (key == "default" and not _is_written(value, each)):
            continue
        if key == "$ref":
            tidy[key] = each.replace("#/$defs/", "#/definitions/")
        elif key == "$apart":
            tidy["$ref"] = f"#/definitions/{each}"
        elif key in _BY_NAME:
            tidy[key] = {name: _tidy(inner) for name, inner in each.items()}
        else:
            tidy[key] = _tidy(each)
    if "`" in tidy.get("description", ""):
        tidy["markdownDescription"] = tidy["description"]  # Else editors show the marks.
    return tidy


def _is_written(description: Mapping[str, Any], default: Any) -> bool:
    """Tells whether a default is what an author could write; durations and parts are not."""
    return isinstance(default, bool | str) or (isinstance(default, int | float) and description.get("type") != "string")
