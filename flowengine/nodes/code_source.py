"""What a function does, as a text that is the same on every machine: its own code and that of the project it leads to.

A result may be taken over only while the code that gave it is what it was. A function's code is not its own alone: it
calls others of its module, reads the module's constants and uses other modules of the project. All that its names lead
to is followed; installed packages are not. Of a value that can be changed in place, what the module assigns to its name
counts, not what it holds by now; where another module imports that name, it is not followed.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from pathlib import Path
from types import CodeType, FunctionType, ModuleType
from typing import Any, Final, NamedTuple, cast

from flowengine.module_names import is_of_project, plain_text

__all__ = ["source_of"]

_PLAIN: Final = (str, bytes, int, float, complex, type(None))


def source_of(function: Callable[..., Any]) -> str:
    """The function's name and what it does, for its node's fingerprint: constants, names and bytecode.

    Cheaper than the source text and needs no file; comments and places do not count, nor does the folder of a
    project's module, so that the same function on two machines is the same.
    """
    parts: dict[str, str] = {}
    waiting: list[tuple[str, Any]] = [("", function)]
    seen: dict[int, Any] = {id(function): function}  # With the values, so that no other one comes to have such an id.
    while waiting:
        name, value = waiting.pop()
        text, leads_to = _read(value)
        parts[f"{name} {_name(value)}"] = text
        for each in leads_to:
            if id(each[1]) not in seen:
                seen[id(each[1])] = each[1]
                waiting.append(each)
    own, *others = parts.items()
    return plain_text(" ".join(f"{name}{text}" for name, text in (own, *sorted(others))))


def _name(value: Any) -> str:
    kind = type(value).__qualname__
    return f"{getattr(value, '__module__', '')}:{getattr(value, '__qualname__', kind)}"


def _read(value: Any) -> tuple[str, list[tuple[str, Any]]]:
    """What a value does or is, as a text, and the values of the project that it leads to, by name."""
    function = getattr(value, "__func__", value)
    code = getattr(function, "__code__", None)
    if isinstance(code, CodeType):
        return _body(code), list(_used(function, code))
    if isinstance(value, type):
        members = {name: each for name, each in vars(value).items() if not name.startswith("__") or callable(each)}
        inner = [(name, each) for name, each in members.items() if isinstance(each, FunctionType)]
        plain = {name: each for name, each in members.items() if _is_plain(each)}
        bases = [(each.__qualname__, each) for each in value.__bases__ if is_of_project(each.__module__)]
        return repr(sorted(plain.items())), [*inner, *bases]
    return (value.text if isinstance(value, _Assigned) else repr(value)), []


class _Assigned(NamedTuple):
    """What a module assigns to a name."""

    text: str


def _used(function: Any, code: CodeType) -> Iterator[tuple[str, Any]]:
    """What the names in a function's code stand for, as far as it is of the project or a plain constant."""
    if not is_of_project(getattr(function, "__module__", None) or ""):
        return
    names = set(_names(code))
    known: Mapping[str, Any] = getattr(function, "__globals__", {})
    for name in sorted(names):
        value = known.get(name)
        if isinstance(value, ModuleType):
            yield from _of_module(value, names)
        elif value is not None:
            yield from _of_name(known, name, value)


def _of_module(module: ModuleType, names: set[str]) -> Iterator[tuple[str, Any]]:
    if is_of_project(module.__name__):
        for name in sorted(names & vars(module).keys()):
            value = vars(module)[name]
            if not isinstance(value, ModuleType):
                yield from _of_name(vars(module), name, value)


def _of_name(known: Mapping[str, Any], name: str, value: Any) -> Iterator[tuple[str, Any]]:
    """What counts of a name of a module."""
    if _is_plain(value):
        yield f"{known.get('__name__', '')}.{name}", value
    elif isinstance(value, FunctionType | type):
        if is_of_project(value.__module__):
            yield name, value
    elif assigned := _assignments(str(known.get("__file__") or "")).get(name):
        yield f"{known.get('__name__', '')}.{name}", _Assigned(assigned)


def _is_plain(value: Any) -> bool:
    """Whether a value is one that stays as it is, and its text says all of it."""
    if isinstance(value, tuple):
        return all(_is_plain(each) for each in cast("tuple[Any, ...]", value))
    return isinstance(value, _PLAIN)


def _assignments(file: str) -> Mapping[str, str]:
    """Name → what the top level of a file assigns to it, without places and comments."""
    try:
        return _read_assignments(file, Path(file).stat().st_mtime_ns)
    except (OSError, SyntaxError, ValueError):
        return {}


@cache
def _read_assignments(file: str, changed: int) -> Mapping[str, str]:
    found: dict[str, str] = {}
    for node in ast.parse(Path(file).read_bytes()).body:
        targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
        for target in targets:
            if isinstance(target, ast.Name) and getattr(node, "value", None) is not None:
                found[target.id] = found.get(target.id, "") + ast.dump(node)
    return found


def _names(code: CodeType) -> Iterator[str]:
    yield from code.co_names
    for each in code.co_consts:
        if isinstance(each, CodeType):
            yield from _names(each)


def _body(code: CodeType) -> str:
    constants = [_constant(each) for each in code.co_consts]
    return f"{code.co_code.hex()} {constants} {code.co_names} {code.co_varnames}"


def _constant(value: Any) -> str:
    if isinstance(value, CodeType):
        return _body(value)
    # A set's order differs from process to process.
    return repr(sorted(map(repr, cast(frozenset[Any], value)))) if isinstance(value, frozenset) else repr(value)
