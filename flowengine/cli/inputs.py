"""From `-i key=value` and `--inputs FILE` to a run's inputs.

It turns text into the declared types and knows no more of them; whether the values fit is checked
where every run's inputs are (`flowengine.nodes.inputs`).
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NoReturn, cast

from flowengine.errors import InputError
from flowengine.nodes.inputs import InputField

__all__ = ["gather"]

_PARSED: Final = frozenset({"integer", "number", "boolean", "array", "object", "null"})
"""Types whose text is JSON."""


def gather(fields: Mapping[str, InputField] | None, pairs: Sequence[str], file: str | None) -> dict[str, Any]:
    """The inputs of a command line; `-i` wins over the file.

    A value is text; where its input is declared with another type, it is JSON. `@FILE` stands for a
    file's text (`@-` for stdin), `@@` for an at sign at the start.

    >>> gather({"n": InputField("integer")}, ["n=3"], None)
    {'n': 3}
    """
    given = [_split(pair) for pair in pairs]
    reads_stdin = [name for name, text in given if text == "@-"] + ["--inputs"] * (file == "-")
    if len(reads_stdin) > 1:
        raise InputError(f"stdin can be read once, and is asked for by {' and by '.join(reads_stdin)}")
    values = {} if file is None else _from_file(file)
    problems: list[str] = []
    seen: set[str] = set()
    for name, text in given:
        if name in seen:
            problems.append(f"input '{name}' is given twice")
        seen.add(name)
        try:
            values[name] = _value(name, _text(name, text), (fields or {}).get(name))
        except InputError as error:
            problems.append(str(error))
    if problems:
        raise InputError("\n".join(problems))
    return values


def _split(pair: str) -> tuple[str, str]:
    name, equals, text = pair.partition("=")
    if not equals or not name.strip():
        raise InputError(f"-i {pair!r}: expected key=value")
    return name.strip(), text


def _text(name: str, text: str) -> str:
    if text.startswith("@@"):
        return text[1:]
    return _read(f"input '{name}'", text[1:]) if text.startswith("@") else text


def _read(what: str, path: str) -> str:
    try:
        data = sys.stdin.buffer.read() if path == "-" else Path(path).read_bytes()
        return data.decode("utf-8-sig")
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or "it is not UTF-8 text"
        raise InputError(f"{what}: cannot read '{path}': {reason}") from error


def _from_file(path: str) -> dict[str, Any]:
    text = _read("--inputs", path)
    try:
        values: Any = json.loads(text, parse_constant=_no_constant)
    except (ValueError, RecursionError) as error:
        raise InputError(f"--inputs: '{path}' is not JSON: {error}") from error
    if not isinstance(values, dict):
        raise InputError(f"--inputs: '{path}' must hold a JSON object, found {_kind(values)}")
    return cast("dict[str, Any]", values)


def _value(name: str, text: str, field: InputField | None) -> Any:
    expected = None if field is None else _declared(field)
    if expected is None:
        return text
    try:
        return json.loads(text, parse_constant=_no_constant)
    except (ValueError, RecursionError) as error:
        raise InputError(f"input '{name}': expected {expected} as JSON, found {text!r:.60}") from error


def _declared(field: InputField) -> str | None:
    """The declared type, where its text is JSON."""
    kind: Any = field.type if field.schema is None else field.schema.get("type")
    if isinstance(kind, str):
        return kind if kind in _PARSED else None
    if isinstance(kind, (list, tuple)) and "string" not in kind:
        return " or ".join(map(str, cast("Sequence[Any]", kind)))
    return None


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


def _kind(value: Any) -> str:
    names = {"list": "an array", "str": "a string", "bool": "a boolean", "NoneType": "null"}
    return names.get(type(value).__name__, "a number")
