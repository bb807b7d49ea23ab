"""Reads the state of a CrewAI flow: its fields with their types and defaults, and which of them a method writes."""

from __future__ import annotations

import ast
from typing import Any, Final, NamedTuple

from flowengine.importers.crew_ai_classes import PythonFiles
from flowengine.importers.python_code import PythonSource, call_name, literal_of

__all__ = ["StateField", "fields_of", "written_fields"]

_TYPES: Final = {"str": "string", "int": "integer", "float": "number", "bool": "boolean"}
_LISTS: Final = frozenset({"list", "List", "set", "Set", "tuple", "Tuple"})
_MUTATING: Final = frozenset(
    {
        "append",
        "extend",
        "insert",
        "update",
        "add",
        "pop",
        "remove",
        "clear",
        "setdefault",
        "sort",
        "reverse",
        "popleft",
    }
)


class StateField(NamedTuple):
    name: str
    type: str | None
    """Its JSON type, where it is a plain one."""
    default: Any
    has_default: bool
    line: int
    file: str


def fields_of(found: ast.ClassDef, source: PythonSource, files: PythonFiles) -> dict[str, StateField]:
    """The fields of a flow's state: of its class, or those that the code names."""
    kind = next((each.slice for each in found.bases if isinstance(each, ast.Subscript)), None)
    for each in found.body:
        if kind is None and isinstance(each, ast.Assign) and call_name(each.targets[0]) == "initial_state":
            kind = each.value
    held = files.class_of(source, call_name(kind).rpartition(".")[2]) if kind is not None and call_name(kind) else None
    fields: dict[str, StateField] = {}
    if held is not None:
        for each in held[0].body:
            if (
                isinstance(each, ast.AnnAssign)
                and isinstance(each.target, ast.Name)
                and each.target.id != "model_config"
            ):
                name = each.target.id
                default, has_default = _default_of(each.value)
                fields[name] = StateField(
                    name, _type_of(each.annotation), default, has_default, each.lineno, held[1].file
                )
    if isinstance(kind, ast.Dict):
        for key, value in zip(kind.keys, kind.values, strict=True):
            name = literal_of(key)
            if isinstance(name, str):
                fields[name] = StateField(name, None, literal_of(value), True, kind.lineno, source.file)
    for each in ast.walk(found):
        name = _named_field(each)
        if name is not None and name not in fields and not name.startswith("_"):
            fields[name] = StateField(name, None, None, True, getattr(each, "lineno", 1), source.file)
    return fields


def _named_field(node: ast.AST) -> str | None:
    """The field that a read or a write of the state names."""
    if isinstance(node, ast.Attribute) and call_name(node.value) == "self.state":
        return None if node.attr in _METHODS else node.attr
    if isinstance(node, ast.Subscript) and call_name(node.value) == "self.state":
        found = literal_of(node.slice)
        return found if isinstance(found, str) else None
    if isinstance(node, ast.Call) and call_name(node) in ("self.state.get", "self.state.setdefault") and node.args:
        found = literal_of(node.args[0])
        return found if isinstance(found, str) else None
    return None


_METHODS: Final = frozenset(
    {
        "get",
        "setdefault",
        "update",
        "keys",
        "items",
        "values",
        "pop",
        "model_dump",
        "model_dump_json",
        "dict",
        "json",
        "copy",
    }
)


def written_fields(method: ast.AST) -> set[str]:
    """The fields of the state that a method may change."""
    found: set[str] = set()
    for node in ast.walk(method):
        targets: list[ast.expr] = []
        if isinstance(node, ast.Assign):
            targets = list(node.targets)
        elif isinstance(node, ast.AugAssign | ast.AnnAssign):
            targets = [node.target]
        elif isinstance(node, ast.Delete):
            targets = list(node.targets)
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in _MUTATING:
            targets = [node.func.value]
            name = literal_of(node.args[0]) if node.args and call_name(node) == "self.state.setdefault" else None
            found |= {name} if isinstance(name, str) else set()
            if call_name(node) == "self.state.update":
                found |= {str(each.arg) for each in node.keywords if each.arg}
                given = node.args[0] if node.args else None
                found |= {str(literal_of(each)) for each in given.keys} if isinstance(given, ast.Dict) else set()
        for each in targets:
            found |= _fields_in(each)
    return found


def _fields_in(target: ast.expr) -> set[str]:
    """The fields that stand at the root of a target."""
    if isinstance(target, ast.Tuple | ast.List):
        return set[str]().union(*(_fields_in(each) for each in target.elts))
    at: ast.AST = target
    while isinstance(at, ast.Attribute | ast.Subscript | ast.Call):
        name = _named_field(at)
        if name is not None:
            return {name}
        at = at.func if isinstance(at, ast.Call) else at.value
    return set()


def _default_of(value: ast.expr | None) -> tuple[Any, bool]:
    if value is None:
        return None, False
    if isinstance(value, ast.Call) and call_name(value).rpartition(".")[2] == "Field":
        said = {each.arg: each.value for each in value.keywords if each.arg}
        if "default_factory" in said:
            made: dict[str, Any] = {"list": [], "dict": {}, "set": [], "List": [], "str": ""}
            return made.get(call_name(said["default_factory"])), True
        first = value.args[0] if value.args else said.get("default")
        if first is None or (isinstance(first, ast.Constant) and first.value is Ellipsis):
            return None, False
        value = first
    if isinstance(value, ast.Call) and call_name(value) in ("set", "list", "dict"):
        return ({} if call_name(value) == "dict" else []), True
    if isinstance(value, ast.Set | ast.Tuple):
        return [literal_of(each) for each in value.elts], True
    return literal_of(value), True


def _type_of(node: ast.expr) -> str | None:
    if isinstance(node, ast.Name):
        return _TYPES.get(node.id) or (
            "array" if node.id in _LISTS else "object" if node.id in ("dict", "Dict") else None
        )
    if isinstance(node, ast.Subscript):
        name = call_name(node.value).rpartition(".")[2]
        return "array" if name in _LISTS else "object" if name in ("dict", "Dict") else None
    return None
