"""Reads compiled functions: whose code it is, which names it uses and how, and what it does, as a text."""

from __future__ import annotations

import dis
import importlib
import os
import sys
import sysconfig
from collections import deque
from collections.abc import Mapping, Sequence
from enum import IntEnum
from functools import lru_cache
from importlib.util import find_spec, resolve_name
from types import CodeType, FunctionType, ModuleType
from typing import Any, Final, NamedTuple, cast

from flowengine.core import is_of_project

# --- Whose code it is

_PATHS: Final = sysconfig.get_paths()
_INSTALLED: Final = tuple(
    {os.path.join(os.path.realpath(_PATHS[each]), "") for each in ("stdlib", "platstdlib", "purelib", "platlib")}
    | {os.path.join(_PATHS[each], "") for each in ("stdlib", "platstdlib", "purelib", "platlib")}
)
_PACKAGES: Final = tuple(f"{os.sep}{each}{os.sep}" for each in ("site-packages", "dist-packages"))
_OWN: Final = frozenset({__name__.partition(".")[0], "visualize"})


@lru_cache(maxsize=4096)
def _is_authors(module: str, file: str | None) -> bool:
    """Tells whether code is of the flow's author: neither Python's, nor of an installed package."""
    top = module.partition(".")[0]
    if is_of_project(module):
        return True
    if top in _OWN or (top in sys.stdlib_module_names and top != "__main__") or (file or "").startswith("<frozen"):
        return False
    return file is None or not (file.startswith(_INSTALLED) or any(each in file for each in _PACKAGES))


def is_authors_function(function: FunctionType) -> bool:
    file = function.__code__.co_filename
    # Code that was made from a text has the place of no file, and a function that was wrapped the name of another.
    module_name = function.__globals__.get("__name__")
    return _is_authors(str(module_name or function.__module__ or "__main__"), file)


def is_authors_module(name: str) -> bool:
    if name == "builtins" or name in sys.builtin_module_names:
        return False
    return _is_authors(name, getattr(sys.modules.get(name), "__file__", None))


def qualified_name(value: Any) -> str:
    kind: Any = value if hasattr(value, "__qualname__") else cast(Any, type(value))
    return f"{getattr(kind, '__module__', '')}:{kind.__qualname__}"


# --- What code names


class NameUse(IntEnum):
    FILLED = 0
    """Only what its method takes in is given to it: `seen.append(value)` tells nothing of what it holds."""
    ATTRIBUTE = 1
    ALONE = 2


_LOADING: Final = frozenset(
    {
        "LOAD_GLOBAL",
        "LOAD_NAME",
        "LOAD_DEREF",
        "LOAD_CLASSDEREF",
        "LOAD_FROM_DICT_OR_DEREF",
        "LOAD_FROM_DICT_OR_GLOBALS",
    }
)
_FILLING: Final = frozenset({"append", "appendleft", "extend", "add", "insert", "update", "clear"})
_FILLED_TYPES: Final = frozenset({list, set, dict, deque})
"""Of their values those methods give nothing back."""


class NamesInCode(NamedTuple):
    """The names in a function's code, and in that of the functions inside it."""

    used: Mapping[str, NameUse]
    """Names of the module, and of variables of functions around."""
    stores: frozenset[str]
    attributes: frozenset[str]
    imports: Sequence[tuple[str, int]]
    """Module → how many packages up it is looked for."""


@lru_cache(maxsize=8192)
def names_in_code(code: CodeType) -> NamesInCode:
    used: dict[str, NameUse] = {}
    stores: set[str] = set()
    attributes: set[str] = set()
    imports: list[tuple[str, int]] = []
    instructions = list(dis.get_instructions(code))
    for number, (at, following) in enumerate(zip(instructions, [*instructions[1:], None], strict=True)):
        if at.opname in _LOADING:
            used[at.argval] = max(used.get(at.argval, NameUse.FILLED), _use(following))
        elif at.opname in ("STORE_GLOBAL", "DELETE_GLOBAL"):
            stores.add(at.argval)
        elif at.opname == "IMPORT_NAME":
            level = instructions[number - 2].argval
            imports.append((at.argval, level if isinstance(level, int) else 0))
        elif at.opname in ("LOAD_ATTR", "LOAD_METHOD", "LOAD_SUPER_ATTR", "IMPORT_FROM"):
            attributes.add(at.argval)
    for each in code.co_consts:
        if isinstance(each, CodeType):
            inner = names_in_code(each)
            for name, use in inner.used.items():
                used[name] = max(used.get(name, NameUse.FILLED), use)
            stores |= inner.stores
            attributes |= inner.attributes
            imports += inner.imports
    return NamesInCode(used, frozenset(stores), frozenset(attributes), imports)


def _use(following: dis.Instruction | None) -> NameUse:
    """How a name is used, by the instruction behind the one that loads it."""
    if following is None or following.opname not in ("LOAD_ATTR", "LOAD_METHOD"):
        return NameUse.ALONE
    # From Python 3.12 on, the lowest bit of LOAD_ATTR says that a method is loaded to be called.
    is_called = following.opname == "LOAD_METHOD" or (sys.version_info >= (3, 12) and bool((following.arg or 0) & 1))
    return NameUse.FILLED if is_called and following.argval in _FILLING else NameUse.ATTRIBUTE


def is_filled_only(names: NamesInCode, name: str, value: Any) -> bool:
    """Tells whether code only puts things into a value, so that it does not depend on it."""
    return names.used.get(name, NameUse.ALONE) is NameUse.FILLED and type(value) in _FILLED_TYPES


def body_of(code: CodeType) -> str:
    counts = (code.co_argcount, code.co_posonlyargcount, code.co_kwonlyargcount, code.co_flags)
    names = (code.co_names, code.co_varnames, code.co_freevars, code.co_cellvars)
    table = getattr(code, "co_exceptiontable", b"").hex()
    return f"{code.co_code.hex()} {[*map(_constant, code.co_consts)]} {names} {counts} {table}"


def _constant(value: Any) -> str:
    if isinstance(value, CodeType):
        return body_of(value)
    if isinstance(value, tuple):
        return f"({', '.join(map(_constant, cast('tuple[Any, ...]', value)))})"
    # A set's order differs from process to process.
    return repr(sorted(map(repr, cast(frozenset[Any], value)))) if isinstance(value, frozenset) else repr(value)


# --- Imports inside functions


def imported_module(name: str, level: int, package: str) -> ModuleType | str | None:
    """The author's module that an import inside a function gives; None for any other; a text says what is wrong."""
    try:
        full = resolve_name("." * level + name, package) if level else name
        if full not in sys.modules:
            top = find_spec(full.partition(".")[0])
            if top is None or not _is_authors(full, top.origin or next(iter(top.submodule_search_locations or ()), "")):
                return None
        module = sys.modules.get(full) or importlib.import_module(full)
    except (Exception, SystemExit) as error:  # Foreign code.
        return f"it cannot be imported here ({type(error).__name__})"
    return module if is_authors_module(module.__name__) else None
