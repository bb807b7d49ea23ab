"""Reads the fields of classes in CrewAI's code: a flow's state, which methods write, and the JSON Schema of an output.

Annotations and defaults are read from the syntax tree; nothing is evaluated.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

from flowengine.errors import DefinitionError
from flowengine.importers.crew_ai.crew_classes import PythonFiles
from flowengine.importers.python_code import (
    PythonSource,
    call_name,
    last_name,
    literal_of,
    parse_python,
    plain_value,
    targets_of,
    text_of,
)

_TYPES: Final = {"str": "string", "int": "integer", "float": "number", "bool": "boolean"}
_LISTS: Final = frozenset({"list", "List", "set", "Set", "tuple", "Tuple"})
_MUTATING: Final = frozenset(
    {
        *("append", "extend", "insert", "update", "add", "pop", "remove", "clear", "setdefault", "sort", "reverse"),
        "popleft",
    }
)
_METHODS: Final = frozenset(
    {
        *("get", "setdefault", "update", "keys", "items", "values", "pop", "model_dump", "model_dump_json", "dict"),
        *("json", "copy"),
    }
)


class StateField(NamedTuple):
    name: str
    type: str | None
    """Its JSON type, where it is a plain one."""
    value: Any
    """The default as JSON; `_NONE` where it has none, `_MADE` where code makes it."""
    line: int
    file: str

    @property
    def has_default(self) -> bool:
        return self.value is not _NONE

    @property
    def is_made(self) -> bool:
        return self.value is _MADE

    @property
    def default(self) -> Any:
        return None if self.value in (_NONE, _MADE) else self.value


def fields_of(definition: ast.ClassDef, source: PythonSource, files: PythonFiles) -> dict[str, StateField]:
    """The fields of a flow's state: of its class, or those that the code names."""
    kind = next((each.slice for each in definition.bases if isinstance(each, ast.Subscript)), None)
    for each in definition.body:
        if kind is None and isinstance(each, ast.Assign) and call_name(each.targets[0]) == "initial_state":
            kind = each.value
    base = files.class_of(source, last_name(kind)) if kind is not None and call_name(kind) else None
    fields: dict[str, StateField] = {}
    if base is not None:
        for each in base[0].body:
            if (
                isinstance(each, ast.AnnAssign)
                and isinstance(each.target, ast.Name)
                and each.target.id != "model_config"
            ):
                name = each.target.id
                kind_of_it, default = _type_of(each.annotation), _default_of(each.value)
                fields[name] = StateField(name, kind_of_it, default, each.lineno, base[1].file)
    if isinstance(kind, ast.Dict):
        for key, value in zip(kind.keys, kind.values, strict=True):
            name = text_of(key)
            if name is not None:
                fields[name] = StateField(name, None, _default_of(value), kind.lineno, source.file)
    for each in ast.walk(definition):
        name = _named_field(each)
        if name is not None and name not in fields and not name.startswith("_"):
            fields[name] = StateField(name, None, None, getattr(each, "lineno", 1), source.file)
    return fields


def state_field(node: ast.AST) -> str | None:
    """`x` of `self.state.x` and of `self.state["x"]`."""
    if isinstance(node, ast.Attribute | ast.Subscript) and call_name(node.value) == "self.state":
        return node.attr if isinstance(node, ast.Attribute) else text_of(node.slice)
    return None


def _named_field(node: ast.AST) -> str | None:
    """The field that a read or a write of the state names."""
    if isinstance(node, ast.Call) and call_name(node) in ("self.state.get", "self.state.setdefault") and node.args:
        return text_of(node.args[0])
    name = state_field(node)
    return None if isinstance(node, ast.Attribute) and name in _METHODS else name


def written_fields(method: ast.AST) -> set[str]:
    """The fields of the state that a method may change."""
    fields: set[str] = set()
    for node in ast.walk(method):
        targets = list(node.targets) if isinstance(node, ast.Delete) else targets_of(node)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in _MUTATING:
            targets = [node.func.value]
            name = text_of(node.args[0]) if node.args and call_name(node) == "self.state.setdefault" else None
            fields |= {name} if name is not None else set()
            if call_name(node) == "self.state.update":
                fields |= {str(each.arg) for each in node.keywords if each.arg}
                argument = node.args[0] if node.args else None
                keys = map(text_of, argument.keys) if isinstance(argument, ast.Dict) else ()
                fields |= {each for each in keys if each is not None}
        for each in targets:
            fields |= _fields_in(each)
    return fields


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


_NONE: Final = object()
_MADE: Final = object()
_EMPTY: Final[Mapping[str, Any]] = {"list": [], "List": [], "set": [], "dict": {}, "str": ""}


def _default_of(value: ast.expr | None) -> Any:
    """The default of a field as JSON; `_NONE` where it has none, `_MADE` where code makes it."""
    if value is None:
        return _NONE
    if isinstance(value, ast.Call) and last_name(value) == "Field":
        keywords = {each.arg: each.value for each in value.keywords if each.arg}
        if "default_factory" in keywords:
            factory = keywords["default_factory"]
            if isinstance(factory, ast.Lambda):
                return _default_of(factory.body)
            return _EMPTY.get(call_name(factory), _MADE)
        first = value.args[0] if value.args else keywords.get("default")
        is_open = isinstance(first, ast.Constant) and first.value is Ellipsis
        return _NONE if first is None or is_open else _default_of(first)
    if isinstance(value, ast.Call) and call_name(value) in ("set", "list", "dict") and not value.args:
        return _EMPTY[call_name(value)]
    result = literal_of(value, _MADE)
    plain = None if result is _MADE else plain_value(result)
    return plain if result is None or plain is not None else _MADE


def _type_of(node: ast.expr) -> str | None:
    if isinstance(node, ast.Name):
        return _TYPES.get(node.id) or (
            "array" if node.id in _LISTS else "object" if node.id in ("dict", "Dict") else None
        )
    if isinstance(node, ast.Subscript):
        name = last_name(node.value)
        return "array" if name in _LISTS else "object" if name in ("dict", "Dict") else None
    return None


# --- Shapes

_PLAIN: Final[Mapping[str, dict[str, Any]]] = {
    "str": {"type": "string"},
    "int": {"type": "integer"},
    "float": {"type": "number"},
    "bool": {"type": "boolean"},
    "dict": {"type": "object"},
    "Dict": {"type": "object"},
    "list": {"type": "array"},
    "List": {"type": "array"},
    "Any": {},
    "EmailStr": {"type": "string"},
    "HttpUrl": {"type": "string"},
    "date": {"type": "string"},
    "datetime": {"type": "string"},
    "Decimal": {"type": "number"},
    "UUID": {"type": "string"},
    "object": {},
}
_MOST_SHAPES: Final = 500
"""Classes in one shape: those that hold each other many times would never end."""


class ClassShapes:
    """Makes JSON Schemas of pydantic classes, by their annotations."""

    def __init__(self, find: Callable[[str], ast.ClassDef | None]) -> None:
        self._find = find
        self._budget = _MOST_SHAPES
        self.unknown: list[str] = []
        """Annotations that are not known; their fields are left open."""

    def of_class(self, definition: ast.ClassDef, depth: int = 0) -> dict[str, Any] | None:
        """The schema of a class; None: it has no fields, or there are too many in one another."""
        bases = [last_name(each) for each in definition.bases]
        if "Enum" in bases or "StrEnum" in bases:
            values = [literal_of(each.value) for each in definition.body if isinstance(each, ast.Assign)]
            return {"enum": [each for each in values if isinstance(each, str | int)]}
        self._budget -= 1
        if depth > 8 or self._budget < 0:
            return None
        properties: dict[str, Any] = {}
        required: dict[str, None] = {}
        for base in bases:
            parent = self._find(base) if base not in ("BaseModel", "object", "ABC") else None
            parent_shape = None if parent is None else self.of_class(parent, depth + 1)
            if parent_shape is not None:
                properties |= parent_shape.get("properties", {})
                required |= dict.fromkeys(parent_shape.get("required", []))
        for each in definition.body:
            if not isinstance(each, ast.AnnAssign) or not isinstance(each.target, ast.Name):
                continue
            if each.target.id.startswith("_") or each.target.id == "model_config":
                continue
            shape = self._of_type(each.annotation, depth)
            if shape is None:
                self.unknown.append(ast.unparse(each.annotation))
                shape = {}
            description, is_required = _field(each.value)
            properties[each.target.id] = {**shape, **({"description": description} if description else {})}
            required.pop(each.target.id, None)  # The last of several definitions counts.
            required |= {each.target.id: None} if is_required else {}
        if not properties:
            return None
        return {"type": "object", "properties": properties, **({"required": list(required)} if required else {})}

    def _of_type(self, node: ast.expr, depth: int) -> dict[str, Any] | None:
        if (text := text_of(node)) is not None:
            try:
                [statement] = parse_python("annotation", text.strip()).tree.body if depth < 8 else [None]
            except (DefinitionError, ValueError):
                return None
            return self._of_type(statement.value, depth + 1) if isinstance(statement, ast.Expr) else None
        if isinstance(node, ast.Constant) and node.value is None:
            return {"type": "null"}
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.BitOr):
            return self._of_any([node.left, node.right], depth)
        if isinstance(node, ast.Name | ast.Attribute):
            name = last_name(node)
            if name in _PLAIN:
                return dict(_PLAIN[name])
            definition = self._find(name)
            return None if definition is None else self.of_class(definition, depth + 1)
        if not isinstance(node, ast.Subscript):
            return None
        name = last_name(node.value)
        inner = list(node.slice.elts) if isinstance(node.slice, ast.Tuple) else [node.slice]
        if name in ("List", "list", "Set", "set", "Sequence", "Tuple", "tuple", "Iterable", "conlist"):
            item = self._of_type(inner[0], depth)
            return None if item is None else {"type": "array", "items": item}
        if name in ("Dict", "dict", "Mapping"):
            value = self._of_type(inner[-1], depth)
            return None if value is None else {"type": "object", **({"additionalProperties": value} if value else {})}
        if name == "Literal":
            return {"enum": [plain_value(literal_of(each)) for each in inner]}
        if name == "Annotated":
            return self._of_type(inner[0], depth)
        if name == "Optional":
            return self._of_any([*inner, ast.Constant(None)], depth)
        return self._of_any(inner, depth) if name == "Union" else None

    def _of_any(self, nodes: list[ast.expr], depth: int) -> dict[str, Any] | None:
        shapes = [self._of_type(each, depth) for each in nodes]
        members = [each for each in shapes if each is not None]
        if len(members) < len(shapes):
            return None
        types = [each.get("type") for each in members]
        if all(list(each) == ["type"] for each in members) and all(isinstance(each, str) for each in types):
            return {"type": list(dict.fromkeys(types))}
        return {"anyOf": members}


def _field(value: ast.expr | None) -> tuple[str, bool]:
    """Returns the schema of a field, and whether it is required."""
    if value is None:
        return "", True
    if not isinstance(value, ast.Call) or last_name(value) != "Field":
        return "", False
    keywords = {each.arg: each.value for each in value.keywords if each.arg}
    first = value.args[0] if value.args else keywords.get("default")
    is_required = (first is None and "default_factory" not in keywords) or (
        isinstance(first, ast.Constant) and first.value is Ellipsis
    )
    return text_of(keywords.get("description")) or "", is_required
