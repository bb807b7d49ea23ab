"""Reads the testing kit's YAML files into checked data, or reports every problem with its line and column.

It uses the reader of flow files, so all files speak of problems in one way. It writes nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from os import PathLike
from pathlib import Path
from typing import Any, Final, TypeVar, get_args

from pydantic import BaseModel, ValidationError

from flowengine.core import is_map, open_regular
from flowengine.errors import Diagnostic, FlowError, did_you_mean
from flowengine.flowfile import Problem, problems_of
from flowengine.flowfile.yaml import KeyPath, SourceText, decode, parse_yaml

M = TypeVar("M", bound=BaseModel)

_MAX_BYTES: Final = 50_000_000


def read_yaml(path: str | PathLike[str], model: type[M], what: str, error: type[FlowError]) -> tuple[M, SourceText]:
    """The file as a model, and its text with the place of everything; `error` holds what is wrong with it.

    `what` names the sort of file.
    """
    where = Path(path)
    text = _read_text(where)
    if isinstance(text, Diagnostic):
        raise error([text])
    parsed = parse_yaml(text, str(where))
    if parsed.problems:
        raise error(parsed.problems)
    if not is_map(parsed.data):
        keys = ", ".join(_keys_of(model))
        raise error([Diagnostic("FE115", f"{what} is a map with the keys {keys}", str(where), 1, 1)])
    source = SourceText(text, where, parsed.place)
    try:
        return model.model_validate(parsed.data), source
    except ValidationError as invalid:
        raise error(_to_diagnostics(problems_of(invalid, source), model)) from None


def _read_text(path: Path) -> str | Diagnostic:
    try:
        with open_regular(path) as file:
            return decode(file.read(_MAX_BYTES + 1), str(path), _MAX_BYTES)
    except OSError as error:
        return Diagnostic("FE101", f"cannot read the file: {error.strerror or error}", str(path))


def _to_diagnostics(problems: Sequence[Problem], model: type[BaseModel]) -> list[Diagnostic]:
    """The problems with their hints, by place; a missing key is not told where a misspelt one is."""
    hinted = [(each, _add_hint(each, model)) for each in problems]
    hints = {(each.path[:-1], diagnostic.hint) for each, diagnostic in hinted if diagnostic.code == "FE201"}
    diagnostics = [
        diagnostic for each, diagnostic in hinted if (each.path, f"; did you mean '{each.lacks}'?") not in hints
    ]
    return sorted(diagnostics, key=lambda each: (each.line or 0, each.column or 0))


def _add_hint(problem: Problem, model: type[BaseModel]) -> Diagnostic:
    """The nearest key that exists, where one is unknown."""
    diagnostic = problem.diagnostic
    at = _find_model(model, problem.path[:-1]) if diagnostic.code == "FE201" else None
    near = "" if at is None else did_you_mean(str(problem.path[-1]), _keys_of(at))
    return replace(diagnostic, hint=near) if near else diagnostic


def _keys_of(model: type[BaseModel]) -> Sequence[str]:
    return [field.alias or name for name, field in model.model_fields.items()]


def _find_model(model: type[BaseModel], path: KeyPath) -> type[BaseModel] | None:
    """The model of the map at a path; numbers and names of free maps lead to what is in them."""
    at: type[BaseModel] | None = model
    for part in path:
        for name, field in at.model_fields.items() if at is not None else ():
            if part == (field.alias or name):
                at = _unwrap_model(field.annotation)
                break
    return at


def _unwrap_model(annotation: Any) -> type[BaseModel] | None:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    return next((inner for each in get_args(annotation) if (inner := _unwrap_model(each)) is not None), None)
