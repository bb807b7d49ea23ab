"""Reads CrewAI's values: texts with `{placeholders}`, names of models, shapes of pydantic classes. Pure."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Mapping
from typing import Any, Final

from flowengine.importers.form import literal
from flowengine.importers.python_code import call_name, literal_of
from flowengine.models.vendor_choice import is_known_name
from flowengine.models.vendors import ALIASES, OTHERS, VENDORS

__all__ = ["model_name", "placeholders_in", "schema_of_class", "text_with_inputs"]

_PLACEHOLDER: Final = re.compile(r"\{([A-Za-z_][A-Za-z0-9_\-]*)\}")
_VENDORS: Final = frozenset({*VENDORS, *OTHERS, *ALIASES})


def placeholders_in(text: str) -> list[str]:
    """The names that a run has to give.

    >>> placeholders_in('Find {topic} in {"a": {year}}')
    ['topic', 'year']
    """
    return list(dict.fromkeys(_PLACEHOLDER.findall(text)))


def text_with_inputs(text: str, expression: Callable[[str], str | None]) -> str:
    """The text as a template of ours; `expression` says what a placeholder is, or that it is none.

    >>> text_with_inputs("About {topic}: {{topic}} {% x", lambda name: f"inputs.{name}")
    'About {{ inputs.topic }}: {{ "{" }}{{ inputs.topic }}} {{ "{%" }} x'
    """
    parts: list[str] = []
    at = 0
    for found in _PLACEHOLDER.finditer(text):
        meant = expression(found[1])
        if meant is None:
            continue
        before = text[at : found.start()]
        is_open = before.endswith("{")
        parts.append(literal(before[:-1] if is_open else before))
        parts += ['{{ "{" }}'] if is_open else []
        parts.append(f"{{{{ {meant} }}}}")
        at = found.end()
    return "".join([*parts, literal(text[at:])])


def model_name(name: str, *, is_openai: bool = False) -> str | None:
    """A model as we call it; None for one that would go to no vendor.

    >>> [model_name(each) for each in ("gpt-4o", "groq/llama-3.1-70b", "my-own", "no/such")]
    ['gpt-4o', 'groq/llama-3.1-70b', None, None]
    """
    name = name.strip().removeprefix("models/")
    if not re.fullmatch(r"[\w.:/@+-]+", name):
        return None
    vendor = name.partition("/")[0] if "/" in name else ""
    if vendor in _VENDORS or (not vendor and is_known_name(name)):
        return name
    return f"openai/{name}" if is_openai else None


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
Find = Callable[[str], ast.ClassDef | None]


def schema_of_class(found: ast.ClassDef, find: Find, unknown: list[str], depth: int = 0) -> dict[str, Any] | None:
    """The JSON Schema of a pydantic class, by its annotations; what is not known is added to `unknown` and left open.

    None: it has no fields.
    """
    bases = [call_name(each).rpartition(".")[2] for each in found.bases]
    if "Enum" in bases or "StrEnum" in bases:
        values = [literal_of(each.value) for each in found.body if isinstance(each, ast.Assign)]
        return {"enum": [each for each in values if isinstance(each, str | int)]}
    if depth > 8:
        return None
    properties: dict[str, Any] = {}
    required: list[str] = []
    for base in bases:
        parent = find(base) if base not in ("BaseModel", "object", "ABC") else None
        inherited = None if parent is None else schema_of_class(parent, find, unknown, depth + 1)
        if inherited is not None:
            properties |= inherited.get("properties", {})
            required += inherited.get("required", [])
    for each in found.body:
        if not isinstance(each, ast.AnnAssign) or not isinstance(each.target, ast.Name):
            continue
        if each.target.id.startswith("_") or each.target.id == "model_config":
            continue
        shape = _schema_of(each.annotation, find, unknown, depth)
        if shape is None:
            unknown.append(ast.unparse(each.annotation))
            shape = {}
        description, is_required = _field(each.value)
        properties[each.target.id] = {**shape, **({"description": description} if description else {})}
        if is_required:
            required.append(each.target.id)
    if not properties:
        return None
    return {"type": "object", "properties": properties, **({"required": required} if required else {})}


def _field(value: ast.expr | None) -> tuple[str, bool]:
    """Returns the schema of a field, and whether it is required."""
    if value is None:
        return "", True
    if not isinstance(value, ast.Call) or call_name(value).rpartition(".")[2] != "Field":
        return "", False
    said = {each.arg: each.value for each in value.keywords if each.arg}
    first = value.args[0] if value.args else said.get("default")
    is_required = (first is None and "default_factory" not in said) or (
        isinstance(first, ast.Constant) and first.value is Ellipsis
    )
    description = literal_of(said.get("description"))
    return (description if isinstance(description, str) else ""), is_required


def _schema_of(node: ast.expr, find: Find, unknown: list[str], depth: int) -> dict[str, Any] | None:
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        try:
            return _schema_of(ast.parse(node.value, mode="eval").body, find, unknown, depth + 1) if depth < 8 else None
        except (SyntaxError, ValueError):
            return None
    if isinstance(node, ast.Constant) and node.value is None:
        return {"type": "null"}
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.BitOr):
        return _any_of([node.left, node.right], find, unknown, depth)
    if isinstance(node, ast.Name | ast.Attribute):
        name = call_name(node).rpartition(".")[2]
        if name in _PLAIN:
            return dict(_PLAIN[name])
        found = find(name)
        return None if found is None else schema_of_class(found, find, unknown, depth + 1)
    if not isinstance(node, ast.Subscript):
        return None
    name = call_name(node.value).rpartition(".")[2]
    inner = list(node.slice.elts) if isinstance(node.slice, ast.Tuple) else [node.slice]
    if name in ("List", "list", "Set", "set", "Sequence", "Tuple", "tuple", "Iterable", "conlist"):
        item = _schema_of(inner[0], find, unknown, depth)
        return None if item is None else {"type": "array", "items": item}
    if name in ("Dict", "dict", "Mapping"):
        value = _schema_of(inner[-1], find, unknown, depth)
        return None if value is None else {"type": "object", **({"additionalProperties": value} if value else {})}
    if name == "Literal":
        return {"enum": [literal_of(each) for each in inner]}
    if name == "Annotated":
        return _schema_of(inner[0], find, unknown, depth)
    if name == "Optional":
        return _any_of([*inner, ast.Constant(None)], find, unknown, depth)
    return _any_of(inner, find, unknown, depth) if name == "Union" else None


def _any_of(nodes: list[ast.expr], find: Find, unknown: list[str], depth: int) -> dict[str, Any] | None:
    shapes = [_schema_of(each, find, unknown, depth) for each in nodes]
    known = [each for each in shapes if each is not None]
    if len(known) < len(shapes):
        return None
    types = [each.get("type") for each in known]
    if all(list(each) == ["type"] for each in known) and all(isinstance(each, str) for each in types):
        return {"type": list(dict.fromkeys(types))}
    return {"anyOf": known}
