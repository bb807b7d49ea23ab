"""Declares the kinds of value that a flow file's keys take: durations, scores, names, templates, routes.

Each kind is an annotated type: it checks, brings the value into one shape, and describes itself for
the JSON Schema. A value that does not fit raises a `PydanticCustomError` whose type is one of our
codes. It knows no node and no file.

`Template`, `Expression` and `Plain` mark texts by what becomes of them; the checks and the builder
read these marks (`text_fields`) instead of lists of field names.
"""

from __future__ import annotations

import re
from functools import cache
from typing import Annotated, Any, Final, Literal, NamedTuple, TypeVar, cast

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    GetJsonSchemaHandler,
    SerializerFunctionWrapHandler,
    Strict,
    WithJsonSchema,
    model_validator,
)
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema, PydanticCustomError, core_schema

from flowengine.core import cut_text, is_map, label_key
from flowengine.errors import DefinitionError

T = TypeVar("T")


RACE: Final = (
    "no node goes on with whichever branch ends first, for what a node sees never depends on timing",
    "; let a map try the alternatives with `until: results | length >= 1`, which cancels the rest",
)
"""The message where a race is asked for, and what does it instead."""


def refuse(code: str, message: str, **context: Any) -> PydanticCustomError:
    """A problem with one of our codes; `at` in the context is the key (or path of keys) that it belongs to."""
    return PydanticCustomError(cast(Any, code), "{text}", {"text": message, **context})


def check_header_names(headers: Any) -> Any:
    """Returns the headers of a request, each of which is the author's to set."""
    from flowengine.nodes import check_header_name  # Few flows send requests.

    for name in headers if is_map(headers) else ():
        try:
            check_header_name(name)
        except DefinitionError as error:
            raise refuse("FE401", str(error), path=(name,)) from error
    return headers


def format_found(value: Any) -> str:
    """A value as messages show it.

    >>> format_found("abc"), format_found(True), format_found(None), format_found([1])
    ("'abc'", 'true', 'nothing', 'a list')
    """
    if value is None:
        return "nothing"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list | tuple):
        return "a list"
    if isinstance(value, dict):
        return "a map"
    text = "'{}'".format(value.replace("\n", "\\n")) if isinstance(value, str) else str(value)
    return text if len(text) <= 60 else f"{text[:56]}…'"


def shorten_message(text: str) -> str:
    """A message that stays readable whatever name is in it."""
    return cut_text(text, 400)


class Keys(BaseModel):
    """A map whose keys are known. Keys that begin with `x-` are the author's notes."""

    # The pattern of a name costs 1.4 MB in pydantic's own engine, whose classes know all of Unicode.
    model_config = ConfigDict(
        frozen=True, extra="forbid", strict=True, allow_inf_nan=False, defer_build=True, regex_engine="python-re"
    )

    @model_validator(mode="before")
    @classmethod
    def _without_notes(cls, data: Any) -> Any:
        return without_notes(data)


def without_notes(data: Any) -> Any:
    """A map without the keys that are free."""
    if is_map(data):
        for key in data:
            if key.startswith("x-"):
                return {key: value for key, value in data.items() if not key.startswith("x-")}
    return cast(Any, data)


def _refuse_empty(value: Any) -> Any:
    if value is None:
        raise refuse("FE408", "the key has no value; give one, or remove the key")
    return value


class _Apart:
    """Has a model checked by its own validator, which is made once, for whichever place has such a value first."""

    def __get_pydantic_core_schema__(self, model: type[BaseModel], handler: object) -> CoreSchema:
        def describe(_: CoreSchema, inner: GetJsonSchemaHandler) -> JsonSchemaValue:
            return {"$apart": model.__name__}  # `editor_schema` makes a reference of it.

        def dump(value: Any, inner: SerializerFunctionWrapHandler) -> Any:
            return inner(value)

        return core_schema.no_info_plain_validator_function(
            model.model_validate,
            serialization=core_schema.wrap_serializer_function_ser_schema(dump, schema=core_schema.any_schema()),
            metadata={"pydantic_js_functions": [describe]},
        )


APART: Final = _Apart()
"""Marks a model inside another: most files have none, and each place that has a validator of its own costs memory."""

Maybe = Annotated[T | None, BeforeValidator(_refuse_empty)]
"""May be left out, but not left empty."""

ListOf = Annotated[tuple[T, ...], Strict(False)]
"""A list in the file, a tuple here."""

# --- names -------------------------------------------------------------------------------------------

ID_PATTERN: Final = r"^[a-z][a-z0-9_]*$(?!\n)"
"""Python's `$` also matches before a line break at the end, and JavaScript, whose editors read it, has no `\\Z`."""
Identifier = Annotated[str, Field(pattern=ID_PATTERN)]
"""A name that the author gives."""
NodeId = Annotated[str, Field()]
"""A name of a node, given elsewhere; the checks say whether it exists."""
_CODE_PATH: Final = r"^[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*$(?!\n)"
CodePath = Annotated[str, Field(pattern=_CODE_PATH)]
"""`module:function` or `module:Class`."""


def is_code(target: str) -> bool:
    """Tells whether a tool is a function of the project, and not one of a server.

    >>> is_code("shop:find_order"), is_code("crm.find_order")
    (True, False)
    """
    return re.match(_CODE_PATH, target) is not None


def _nowhere(value: Any) -> Any:
    return None if value == {} else value


Target = Annotated[
    NodeId | None,
    BeforeValidator(_nowhere),
    BeforeValidator(_refuse_empty),
    WithJsonSchema({"anyOf": [{"type": "string"}, {"type": "object", "maxProperties": 0}]}),
]
"""A node's name, or `{}` for nowhere (None here)."""

# --- texts, and what becomes of them -----------------------------------------------------------------

TextKind = Literal["template", "expression", "plain", "values"]


class _Text(NamedTuple):
    kind: TextKind


def _in_place(value: Any) -> Any:
    if is_map(value):
        raise refuse("FE401", f"expected a text, or {{file: path}} alone, found {format_found(value)}")
    return value


Template = Annotated[str, _Text("template")]
"""Rendered once, when the node runs; a lone `{{ x }}` keeps its type."""
Prompt = Annotated[
    str,
    _Text("template"),
    BeforeValidator(_in_place),
    WithJsonSchema(
        {
            "anyOf": [
                {"type": "string"},
                {
                    "type": "object",
                    "properties": {"file": {"type": "string"}},
                    "required": ["file"],
                    "additionalProperties": False,
                },
            ]
        }
    ),
]
"""A template, in place or in a file of its own, `{file: path}`, whose text the loader has put in its place."""
Expression = Annotated[str, _Text("expression")]
"""A bare expression, without braces."""
Plain = Annotated[str, _Text("plain")]
"""Never rendered; braces in it are refused."""
UNRENDERED: Final = _Text("plain")
"""Marks any value, in which no string is rendered and braces are refused."""
Values = Annotated[dict[Identifier, Any], BeforeValidator(without_notes), _Text("values")]
"""Name → any value; every string in it, however deep, is a template."""
Rendered = Annotated[Any, _Text("values")]
"""Any value; every string in it is a template."""


@cache
def text_fields(model: type[BaseModel]) -> tuple[tuple[str, str, TextKind | None], ...]:
    """A model's fields that hold texts: (attribute, key in the file, kind); no kind: models that may hold some."""
    marks: list[tuple[str, str, TextKind | None]] = []
    for name, field in model.model_fields.items():
        kinds: list[TextKind] = [
            each.kind for each in _marks(field.annotation, field.metadata) if isinstance(each, _Text)
        ]
        if kinds:
            marks.append((name, field.alias or name, kinds[0]))
        elif _holds_models(field.annotation):
            marks.append((name, field.alias or name, None))
    return tuple(marks)


def _holds_models(annotation: Any) -> bool:
    parts: tuple[Any, ...] = getattr(annotation, "__args__", ())
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return True
    return any(_holds_models(part) for part in parts)


def _marks(annotation: Any, metadata: list[Any]) -> list[Any]:
    """The metadata of a field, `Maybe[…]` and lists looked through."""
    marks = list(metadata)
    for part in getattr(annotation, "__args__", ()):
        marks += _marks(part, list(getattr(part, "__metadata__", ())))
    return marks


# --- what is meant -----------------------------------------------------------------------------------

_REASON: Final = {"type": "string", "minLength": 1}


def as_reason(value: Any) -> str:
    """Why untrusted text is meant to be where it is."""
    if not isinstance(value, str) or not value.strip():
        raise refuse("FE401", f"say why it is meant, as in `trust: <reason>`; found {format_found(value) or 'nothing'}")
    return value


def _as_trust(value: Any) -> Any:
    if not is_map(value):
        return {"": as_reason(value)}
    for key, reason in value.items():
        if not isinstance(reason, str) or not reason.strip():
            raise refuse("FE401", f"say why '{key}' is meant, found {format_found(reason)}", at=key)
    return value


Reason = Annotated[str, BeforeValidator(as_reason), WithJsonSchema(_REASON)]
"""Why something is meant."""
Trust = Annotated[
    dict[str, str],
    BeforeValidator(_as_trust),
    WithJsonSchema({"anyOf": [_REASON, {"type": "object", "additionalProperties": _REASON, "minProperties": 1}]}),
]
"""Why untrusted text is meant to reach the node ("" here), or one of its keys: `trust: {url: <reason>}`."""

# --- numbers -----------------------------------------------------------------------------------------

_DURATION: Final = re.compile(r"(\d+(?:\.\d{1,3})?)(ms|s|m|h)", re.ASCII)
_MOST_DIGITS: Final = 9
_UNITS: Final = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}


def seconds(value: Any) -> Any:
    """A duration of the file in seconds.

    >>> seconds("500ms"), seconds("2h")
    (0.5, 7200.0)
    """
    if isinstance(value, float):
        raise refuse("FE405", f"expected a duration such as 30s, found {format_found(value)}")
    if isinstance(value, int) and not isinstance(value, bool):
        raise refuse("FE405", f"expected a duration such as 30s, found {value}", hint=f"; did you mean '{value}s'?")
    match = _DURATION.fullmatch(value) if isinstance(value, str) else None
    if match is None:
        raise refuse("FE405", f"expected a duration such as 500ms, 30s, 10m or 2h, found {format_found(value)}")
    if len(match[1].partition(".")[0]) > _MOST_DIGITS:
        raise refuse(
            "FE405", f"a duration has at most {_MOST_DIGITS} digits before its unit, found {format_found(value)}"
        )
    return round(float(match[1]) * _UNITS[match[2]], 6)


Duration = Annotated[
    float,
    Field(gt=0),
    BeforeValidator(seconds),
    WithJsonSchema({"type": "string", "pattern": r"^\d{1,9}(\.\d{1,3})?(ms|s|m|h)$", "examples": ["500ms", "30s"]}),
]
"""`500ms 30s 10m 2h`; seconds here."""


def _share(value: Any) -> Any:
    if isinstance(value, int | float) and not isinstance(value, bool) and 1 < value <= 100:
        proposed = f"{value / 100:g}"
        raise refuse("FE404", f"scores go from 0.0 to 1.0, found {value}", hint=f"; did you mean {proposed}?")
    return value


Score = Annotated[float, Field(ge=0, le=1), BeforeValidator(_share)]
"""0.0–1.0."""

# --- routes ------------------------------------------------------------------------------------------


class Route(Keys):
    """The target of one label."""

    to: Maybe[NodeId] = None
    """The node that runs when this label is taken. Without it the label leads nowhere."""
    description: Plain = ""
    """The label's meaning, for the model that chooses."""


def _as_route(value: Any) -> Any:
    if isinstance(value, str):
        return {"to": value}
    if not is_map(value):
        nowhere = "; a label that leads nowhere is written {}" if value is None else ""
        raise refuse(
            "FE401", f"expected a node's id, or a map such as {{to: id}}, found {format_found(value)}{nowhere}"
        )
    return value


AsRoute = Annotated[Route, BeforeValidator(_as_route)]
Routes = dict[str, AsRoute]
"""Label → where it leads."""


def check_name(name: str, what: str, *at: str) -> None:
    """Refuse a label or a name that a model cannot repeat: empty, or with spaces around it."""
    if not name or name != name.strip():
        raise refuse("FE401", f"{what} is text without spaces around it, found {format_found(name)}", at=(*at, name))


def check_choices(routes: Routes) -> None:
    """Refuse routes among which no model can choose: none at all, or labels that its answer could not tell apart."""
    if not routes:
        raise refuse("FE214", "there is nothing to choose from: give at least one route", at="routes")
    labels: dict[str, str] = {}
    for label in routes:
        check_name(label, "a label", "routes")
        other = labels.setdefault(label_key(label, in_any_case=True), label)
        if other != label:
            text = f"the labels '{other}' and '{label}' differ in upper and lower case only, or in composed letters"
            raise refuse("FE212", text, at=("routes", label))
