"""Checks the inputs of a run against what its flow declares, and takes in the files among them."""

from __future__ import annotations

import re
from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass
from json import JSONDecodeError
from pathlib import PurePath
from typing import Any, Final, cast

from flowengine.core import (
    FileKeeper,
    FileValue,
    RefusedFileError,
    allows_media_type,
    brief_repr,
    describe_value,
    freeze,
    is_json_type,
    is_one_of,
    load_json,
)
from flowengine.errors import InputError, did_you_mean, names_fields, refuse_other_kind

_MOST_TOLD: Final = 20
"""Inputs that an error names, and values that one may have: there may be very many."""
_LONGEST_NAME: Final = 80
"""Characters of what is shown, and likened to known names."""
_ADDRESS: Final = re.compile(r"data:|https?://", re.IGNORECASE)
_JSON_TYPES: Final = frozenset({"integer", "number", "boolean", "array", "object", "null"})
"""Types whose text is JSON."""


class _Required:
    def __repr__(self) -> str:
        return "required"


REQUIRED: Final = _Required()
"""The default of an input that has none."""


@names_fields
@dataclass(frozen=True, slots=True)
class InputField:
    """One declared input. `schema` (a JSON Schema) goes instead of `type`."""

    type: str | None = None
    default: Any = REQUIRED
    enum: Sequence[Any] | None = None
    schema: Mapping[str, Any] | None = None
    description: str = ""
    media_types: Sequence[str] | None = None
    """Of a file: what it may be, by its content (`image/*`); None: what the project allows."""


def checked_inputs(fields: Mapping[str, InputField] | None, inputs: Mapping[str, Any]) -> Mapping[str, Any]:
    """The inputs with their defaults, read-only. Without declared fields everything is accepted.

    Raises `InputError` that lists every problem at once; of very many unknown inputs the first.

    >>> checked_inputs({"n": InputField("integer", default=3)}, {})
    {'n': 3}
    """
    if fields is None:
        for name in inputs:
            refuse_other_kind(name, str, "an input is named by text", InputError)
        return _freeze_inputs(dict(inputs))
    unknown = [str(name)[:_LONGEST_NAME] for name in inputs if name not in fields]
    declared_ones = f"; there are {', '.join([*fields][:_MOST_TOLD])}" if fields else "; the flow has none"
    problems = [f"unknown input '{name}'{did_you_mean(name, fields) or declared_ones}" for name in unknown[:_MOST_TOLD]]
    if len(unknown) > _MOST_TOLD:
        problems.append(f"and {len(unknown) - _MOST_TOLD:,} more unknown inputs")
    values: dict[str, Any] = {}
    for name, declared in fields.items():
        if name not in inputs:
            if declared.default is REQUIRED:
                problems.append(f"missing input '{name}'{_describe_wanted(declared)}")
            else:
                values[name] = declared.default
            continue
        problem = _problem(declared, inputs[name])
        if problem:
            problems.append(f"input '{name}': {problem}")
        values[name] = inputs[name]
    if problems:
        raise InputError("\n".join(problems))
    return _freeze_inputs(values)


def may_take_long(fields: Mapping[str, InputField] | None, inputs: Mapping[str, Any]) -> bool:
    """Tells whether `checked_inputs` should work beside an event loop: over lists and maps, and by schemas."""
    by_schema = {name for name, field in (fields or {}).items() if field.schema is not None}
    return any(name in by_schema or isinstance(value, list | tuple | Mapping) for name, value in inputs.items())


def _freeze_inputs(values: dict[str, Any]) -> Mapping[str, Any]:
    try:
        return freeze(values)
    except RecursionError:
        raise InputError("the inputs are nested too deep") from None


def _describe_wanted(field: InputField) -> str:
    described = f": {field.description}" if field.description else ""
    return f" ({field.type or 'see its schema'}{described})"


def find_wrong_default(field: InputField) -> str | None:
    """What is wrong with the default of an input; None, of a file and of no value nothing is asked."""
    if field.default is REQUIRED or field.default is None or field.type == "file":
        return None
    return _problem(field, field.default)


def _problem(field: InputField, value: Any) -> str | None:
    if field.schema is not None:
        from flowengine.core import find_misfits  # The library is slow to load, and few inputs have one.

        misfits = find_misfits(field.schema, value)
        return f"{misfits[0].message} at {misfits[0].path}" if misfits else None
    if field.type is not None and not is_json_type(value, field.type):
        forms = " (a path, bytes, an address, or data:TYPE;base64,CONTENT)" if field.type == "file" else ""
        return f"expected {field.type}{forms}, found {describe_value(value)}"
    if field.media_types is not None and not allows_media_type(field.media_types, value.media_type):
        return f"expected {' or '.join(field.media_types)}, found {value.media_type}, by the file's content"
    if field.enum is not None and not is_one_of(value, field.enum):
        allowed = [str(each) for each in field.enum]
        more = f" or {len(allowed) - _MOST_TOLD:,} more" if len(allowed) > _MOST_TOLD else ""
        text = value[:_LONGEST_NAME] if isinstance(value, str) else brief_repr(value, _LONGEST_NAME)
        hint = f"{brief_repr(value, _LONGEST_NAME)}{did_you_mean(text, allowed)}"
        return f"expected one of {', '.join(allowed[:_MOST_TOLD])}{more}, not {hint}"
    return None


def parse_text(name: str, text: str, field: InputField | None) -> Any:
    """Parses an input's text: as JSON if the declared type is not text.

    >>> parse_text("n", "3", InputField("integer")), parse_text("n", "3", None)
    (3, '3')
    """
    expected = None if field is None else _find_declared_type(field)
    if expected is None:
        return text
    try:
        return load_json(text)
    except (ValueError, RecursionError) as error:
        why = "" if isinstance(error, (JSONDecodeError, RecursionError)) else f": {error}"
        why = why or _EXAMPLES.get(expected, "")
        raise InputError(f"input '{name}': expected {expected} as JSON, found {text!r:.60}{why}") from error


_EXAMPLES: Final = {
    "array": """; such as ["a", "b"]""",
    "object": """; such as {"name": "a"}""",
    "boolean": "; it is true or false",
}
"""Declared type → what a text for it looks like."""


def _find_declared_type(field: InputField) -> str | None:
    """The declared type, where its text is JSON."""
    kind: Any = field.type if field.schema is None else field.schema.get("type")
    if isinstance(kind, str):
        return kind if kind in _JSON_TYPES else None
    if isinstance(kind, (list, tuple)) and "string" not in kind:
        return " or ".join(map(str, cast("Sequence[Any]", kind)))
    return None


def refuse_paths(fields: Mapping[str, InputField] | None, inputs: Mapping[str, Any], own: Container[str] = ()) -> None:
    """Raises `InputError` for a file that is named by its path.

    What comes from outside (a caller, a model, a tool) gives files as contents or addresses: a path would be one of
    this machine, which it may not read. `own`: inputs whose text stands in the flow's own file, and may be one.
    """
    for name, field in (fields or {}).items():
        value = inputs.get(name)
        if field.type != "file" or name in own or not isinstance(value, str | PurePath):
            continue
        if isinstance(value, PurePath) or not _ADDRESS.match(value):
            raise InputError(
                f"input '{name}': a file is given as data:TYPE;base64,CONTENT or as an address, and no path "
                "that a run works out is read"
            )


async def take_files(
    fields: Mapping[str, InputField] | None, inputs: Mapping[str, Any], keeper: FileKeeper | None
) -> Mapping[str, Any]:
    """The inputs with their files taken in, defaults included; `InputError` lists those that are refused.

    Without declared fields, bytes and files are taken in wherever they stand. `keeper`: None where the store
    keeps none.
    """
    if keeper is None:
        return inputs
    if fields is None:
        return {name: await _take_loose(name, value, keeper) for name, value in inputs.items()}
    result, problems = dict(inputs), list[str]()
    for name, field in fields.items():
        value = inputs.get(name, field.default)
        if field.type == "file" and value is not REQUIRED and value is not None:
            try:
                result[name] = await _take(value, keeper)
            except RefusedFileError as error:
                problems.append(f"input '{name}': {error}")
    if problems:
        raise InputError("\n".join(problems))
    return result


async def _take(value: Any, keeper: FileKeeper) -> Any:
    if not (isinstance(value, str) and value.lower().startswith(("http://", "https://"))):
        return await keeper.take(value)
    from flowengine.nodes.http_sender import fetch_file  # Few fetch files, and it loads what the web needs.

    name, content = await fetch_file(value, keeper.rules)
    return await keeper.keep_soon(content, name)


async def _take_loose(name: str, value: Any, keeper: FileKeeper) -> Any:
    try:
        return await keeper.take(value) if isinstance(value, FileValue) else await keeper.keep_in(value, name)
    except RefusedFileError as error:
        raise InputError(f"input '{name}': {error}") from error
