"""A run's inputs: declared fields, and the check of what a caller gave."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from flowengine.errors import InputError, did_you_mean
from flowengine.json_check import misfits
from flowengine.values import freeze, is_json_type, shown

__all__ = ["REQUIRED", "InputField", "checked_inputs"]


class _Required:
    def __repr__(self) -> str:
        return "required"


REQUIRED: Final = _Required()
"""The default of an input that has none."""


@dataclass(frozen=True, slots=True)
class InputField:
    """One declared input. `schema` (a JSON Schema) goes instead of `type`."""

    type: str | None = None
    default: Any = REQUIRED
    enum: Sequence[Any] | None = None
    schema: Mapping[str, Any] | None = None
    description: str = ""


def checked_inputs(fields: Mapping[str, InputField] | None, given: Mapping[str, Any]) -> Mapping[str, Any]:
    """The inputs with their defaults, read-only. Without declared fields everything is accepted.

    Raises `InputError` that lists every problem at once.

    >>> checked_inputs({"n": InputField("integer", default=3)}, {})
    {'n': 3}
    """
    if fields is None:
        return freeze(dict(given))
    problems = [f"unknown input '{name}'{did_you_mean(name, fields)}" for name in given if name not in fields]
    values: dict[str, Any] = {}
    for name, field in fields.items():
        if name not in given:
            if field.default is REQUIRED:
                problems.append(f"missing input '{name}'{_wanted(field)}")
            else:
                values[name] = field.default
            continue
        problem = _problem(field, given[name])
        if problem:
            problems.append(f"input '{name}': {problem}")
        values[name] = given[name]
    if problems:
        raise InputError("\n".join(problems))
    try:
        return freeze(values)
    except RecursionError:
        raise InputError("the inputs are nested too deep") from None


def _wanted(field: InputField) -> str:
    described = f": {field.description}" if field.description else ""
    return f" ({field.type or 'see its schema'}{described})"


def _problem(field: InputField, value: Any) -> str | None:
    if field.schema is not None:
        found = misfits(field.schema, value)
        return f"{found[0].message} at {found[0].path}" if found else None
    if field.type is not None and not is_json_type(value, field.type):
        return f"expected {field.type}, found {shown(value)}"
    if field.enum is not None and value not in field.enum:
        allowed = ", ".join(map(str, field.enum))
        return f"{shown(value)} is not one of: {allowed}{did_you_mean(str(value), map(str, field.enum))}"
    return None
