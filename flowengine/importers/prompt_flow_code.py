"""Carries the Python of a Prompt flow: what it imports of promptflow is led to a module of the new project.

A file whose imports can all be kept goes along with its other lines untouched. A function that needs packages is
called by a function of `imported_steps`, which imports the file when it is called: so the flow can be checked, drawn
and tested where the packages are not installed.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import PurePosixPath
from typing import Final, NamedTuple

from flowengine.errors import DefinitionError
from flowengine.importers.form import CarriedFile
from flowengine.importers.python_code import (
    PythonSource,
    call_name,
    decorators_of,
    is_standard,
    parameters_of,
    parse_python,
)
from flowengine.importers.source_tree import SourceError, SourceTree

__all__ = ["PARTS", "CarriedCode", "Function", "argument_name"]

PARTS: Final = "promptflow_parts"
STEPS: Final = "imported_steps"
_CONNECTIONS: Final = frozenset(
    {
        *("AzureOpenAIConnection", "OpenAIConnection", "CustomConnection", "CognitiveSearchConnection"),
        *("SerpConnection", "FormRecognizerConnection", "AzureContentSafetyConnection", "QdrantConnection"),
        *("WeaviateConnection", "ServerlessConnection", "CustomStrongTypeConnection"),
    }
)
_NAMES: Final = frozenset(
    {
        *(
            "tool",
            "trace",
            "start_trace",
            "log_metric",
            "get_logger",
            "Secret",
            "InputSetting",
            "FilePath",
            "PromptTemplate",
        ),
        *("SystemErrorException", "UserErrorException"),
        *_CONNECTIONS,
    }
)
"""What the module has that stands in for promptflow."""
_HOMES: Final = re.compile(
    r"promptflow(\.(core|tracing|connections|_core\.tool|contracts\.types|exceptions|_utils\.logger_utils|entities))?"
)
_STEPS_HEAD: Final = '''\
"""Calls functions that need packages; each imports its own file when it is called."""

from __future__ import annotations

from typing import Any
'''
PARTS_MODULE: Final = '''\
"""Stands in for the parts of promptflow that the code of this project imports."""

from __future__ import annotations

import functools
import inspect
import logging
import os
import re
import typing
from typing import Any


class Connection:
    """What code reads of a connection; each value is a variable of the environment: NAME_API_KEY for `api_key`."""

    _named = {"api_key": (), "api_base": (), "endpoint": ()}
    _fixed: dict[str, Any] = {}

    def __init__(self, name: str = "", **values: Any) -> None:
        self.name = name
        self._values = values

    def _prefix(self) -> str:
        return re.sub(r"[^A-Za-z0-9]+", "_", self.name).upper()

    def _items(self) -> dict[str, Any]:
        prefix = f"{self._prefix()}_"
        found = {key[len(prefix) :].lower(): text for key, text in os.environ.items() if key.startswith(prefix)}
        usual = {key: os.environ[each] for key, names in self._named.items() for each in names if each in os.environ}
        return {**self._fixed, **usual, **found, **self._values}

    def __getattr__(self, key: str) -> Any:
        if key.startswith("_"):
            raise AttributeError(key)
        found = {re.sub(r"[^a-z0-9]", "_", each.lower()): value for each, value in self._items().items()}
        wanted = re.sub(r"[^a-z0-9]", "_", key.lower())
        if wanted not in found:
            raise AttributeError(f"set {self._prefix()}_{wanted.upper()}: the connection '{self.name}' has no '{key}'")
        return found[wanted]

    def __getitem__(self, key: str) -> Any:
        return getattr(self, key)

    def get(self, key: str, default: Any = None) -> Any:
        return getattr(self, key, default)

    def keys(self) -> list[str]:
        return list(self._items())

    def __contains__(self, key: object) -> bool:
        return isinstance(key, str) and hasattr(self, key)

    @property
    def secrets(self) -> Connection:
        return self

    @property
    def configs(self) -> Connection:
        return self


class AzureOpenAIConnection(Connection):
    _named = {"api_key": ("AZURE_OPENAI_API_KEY",), "api_base": ("AZURE_OPENAI_ENDPOINT",)}
    _fixed = {"api_type": "azure", "api_version": "2024-06-01"}


class OpenAIConnection(Connection):
    _named = {"api_key": ("OPENAI_API_KEY",), "base_url": ("OPENAI_BASE_URL",)}
    _fixed = {"organization": None, "base_url": None}


class CustomConnection(Connection): ...


class CustomStrongTypeConnection(Connection): ...


class CognitiveSearchConnection(Connection): ...


class SerpConnection(Connection): ...


class FormRecognizerConnection(Connection): ...


class AzureContentSafetyConnection(Connection): ...


class QdrantConnection(Connection): ...


class WeaviateConnection(Connection): ...


class ServerlessConnection(Connection): ...


def tool(function: Any = None, **settings: Any) -> Any:
    """The function; where it takes a connection and is given a name, it gets the connection of that name."""
    if function is None:
        return tool
    if inspect.iscoroutinefunction(function):

        @functools.wraps(function)
        async def call_async(*args: Any, **kwargs: Any) -> Any:
            return await function(*args, **_connect(function, kwargs))

        return call_async

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        found = function(*args, **_connect(function, kwargs))
        return "".join(str(each) for each in found) if inspect.isgenerator(found) else found

    return call


def _connect(function: Any, kwargs: dict[str, Any]) -> dict[str, Any]:
    try:
        hints = typing.get_type_hints(function)
    except Exception:
        return kwargs
    for name, value in kwargs.items():
        kinds = [hints.get(name), *typing.get_args(hints.get(name))]
        kind = next((each for each in kinds if isinstance(each, type) and issubclass(each, Connection)), None)
        if kind is not None and isinstance(value, str):
            kwargs[name] = kind(value)
    return kwargs


def trace(function: Any = None, **settings: Any) -> Any:
    return trace if function is None else function


def start_trace(*args: Any, **settings: Any) -> None: ...


def log_metric(key: str, value: Any, **settings: Any) -> None:
    logging.getLogger("metrics").info("%s = %s", key, value)


def get_logger(name: str = "flow", *args: Any, **settings: Any) -> logging.Logger:
    return logging.getLogger(name)


class InputSetting:
    def __init__(self, **settings: Any) -> None: ...


class Secret(str): ...


class FilePath(str): ...


class PromptTemplate(str): ...


class UserErrorException(Exception): ...


class SystemErrorException(Exception): ...
'''


class Function(NamedTuple):
    """A function of the source, as a node can call it."""

    call: str
    parameters: tuple[str, ...]
    """Names; `**` where it takes any."""
    required: frozenset[str]
    connections: frozenset[str]
    """Parameters that take a connection."""
    needs: tuple[str, ...]
    """Packages that have to be installed."""
    line: int


class _Module(NamedTuple):
    source: PythonSource
    carried: str
    """Its text in the new project."""
    problem: str
    uses_parts: bool


class CarriedCode:
    """The Python files of one flow; `files` are those that go along."""

    def __init__(self, tree: SourceTree, paths: Mapping[str, str]) -> None:
        """`paths`: path in the flow's folder → path in the tree, of every Python file."""
        self._modules: dict[str, _Module] = {}
        self._wrappers: dict[str, str] = {}
        self.variables: dict[str, str] = {}
        """Variables of the environment that are set before the code is imported."""
        for name, path in paths.items():
            if name.endswith(".py"):
                self._modules[name] = _read(tree, path)

    def function(self, name: str) -> Function | str:
        """The tool of a file, or why it cannot be called."""
        module = self._modules.get(name)
        if module is None:
            return f"there is no file '{name}'"
        if module.source.text == "" and module.problem:
            return module.problem
        found = _tool_of(module.source)
        if isinstance(found, str):
            return found
        closure = list(self._closure(name))
        for each in closure:
            if self._modules[each].problem:
                return self._modules[each].problem
        path = _module_name(name)
        if path is None:
            return f"'{name}' is no name of a module"
        needs = sorted({package for each in closure for package in self._packages(each)})
        call = f"{path}:{found.name}"
        given = [*found.args.posonlyargs, *found.args.args, *found.args.kwonlyargs]
        if needs or found.name.startswith("_") or any(argument_name(each.arg) != each.arg for each in given):
            call = self._wrap(path, found)
        arguments = found.args
        every = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]
        optional = (
            {each.arg for each in [*arguments.posonlyargs, *arguments.args][-len(arguments.defaults) :]}
            if arguments.defaults
            else set[str]()
        )
        optional |= {
            each.arg
            for each, default in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True)
            if default is not None
        }
        names = [each.arg for each in every] + (["**"] if arguments.kwarg else [])
        connected = {
            each.arg
            for each in every
            if each.annotation and _CONNECTIONS & set(re.findall(r"\w+", ast.unparse(each.annotation)))
        }
        return Function(
            call,
            tuple(names),
            frozenset({each.arg for each in every} - optional),
            frozenset(connected),
            tuple(needs),
            found.lineno,
        )

    @property
    def uses_parts(self) -> bool:
        """Whether a file that goes along imports the part of promptflow."""
        return any(each.uses_parts and not each.problem for each in self._modules.values())

    def stub_of(self, name: str) -> tuple[list[str], str]:
        """Parameters and text of a file's tool, for a stub."""
        module = self._modules.get(name)
        found = "" if module is None else _tool_of(module.source)
        return (
            ([], "")
            if module is None or isinstance(found, str)
            else (parameters_of(found), module.source.segment(found))
        )

    def files(self) -> Iterator[CarriedFile]:
        """What goes along: all files without a problem, the wrappers, the part of promptflow that they use."""
        uses_parts = False
        for name, module in self._modules.items():
            path = _module_name(name)
            if not module.problem and path is not None:
                uses_parts = uses_parts or module.uses_parts
                yield CarriedFile(f"{path.replace('.', '/')}.py", module.carried)
        if uses_parts:
            lines = [f"os.environ.setdefault({key!r}, {value!r})\n" for key, value in self.variables.items()]
            text = "".join(["\n\n# What the flow said of the environment\n\n", *lines]) if lines else ""
            yield CarriedFile(f"{PARTS}.py", PARTS_MODULE + text)
        if self._wrappers:
            yield CarriedFile(f"{STEPS}.py", _STEPS_HEAD + "".join(self._wrappers.values()))

    def add_package_tool(self, parts: Sequence[str], names: Sequence[str]) -> str:
        """A function that calls one of a package when it is called."""
        head = ", ".join(f"{each}: Any = None" for each in names)
        text = (
            f"\n\ndef {parts[-1]}({head}) -> Any:\n"
            f"{_format_import('.'.join(parts[:-1]), parts[-1])}"
            f"    return original({', '.join(f'{each}={each}' for each in names)})\n"
        )
        return self._add_wrapper(parts[-1], lambda name: text.replace(f"def {parts[-1]}(", f"def {name}(", 1))

    def _add_wrapper(self, base: str, write: Callable[[str], str]) -> str:
        name, number = base, 1
        while self._wrappers.get(name, write(name)) != write(name):
            number += 1
            name = f"{base}_{number}"
        self._wrappers[name] = write(name)
        return f"{STEPS}:{name}"

    def _wrap(self, path: str, found: ast.FunctionDef | ast.AsyncFunctionDef) -> str:
        return self._add_wrapper(found.name.strip("_") or "step", lambda name: _format_wrapper(name, path, found))

    def _closure(self, name: str) -> Iterator[str]:
        """The file and those of the flow that it imports, directly or not."""
        seen: set[str] = set()
        waiting = [name]
        while waiting:
            at = waiting.pop()
            if at in seen:
                continue
            seen.add(at)
            yield at
            waiting += [
                each for one in self._modules[at].source.imports() for each in self._own(one.module, one.names, at)
            ]

    def _own(self, module: str, names: tuple[tuple[str, str | None], ...], at: str) -> Iterator[str]:
        """The files of the flow that an import names."""
        bare = module.lstrip(".")
        dots = len(module) - len(bare)
        base = PurePosixPath(at).parents[dots - 1] if 0 < dots <= len(PurePosixPath(at).parents) else PurePosixPath()
        path = base / bare.replace(".", "/") if bare else base
        for each in (f"{path}.py", f"{path}/__init__.py", *(f"{path / name}.py" for name, _ in names)):
            if each in self._modules:
                yield each

    def _packages(self, name: str) -> Iterator[str]:
        for each in self._modules[name].source.imports():
            first = each.module.partition(".")[0]
            is_ours = first in ("promptflow", "__future__", "flowengine") or bool(
                list(self._own(each.module, each.names, name))
            )
            is_local = any(one.startswith((f"{first}/", f"{first}.py")) for one in self._modules)
            if first and not (is_ours or is_local or is_standard(first) or each.module.startswith(".")):
                yield first


def _read(tree: SourceTree, path: str) -> _Module:
    try:
        source = parse_python(path, tree.read_text(path))
    except (SourceError, DefinitionError) as error:
        return _Module(PythonSource(path, "", ast.Module([], [])), "", str(error), False)
    edits: dict[int, tuple[int, str]] = {}
    problem = ""
    for each in source.imports():
        if each.module.partition(".")[0] != "promptflow":
            continue
        unknown = [name for name, _ in each.names if name not in _NAMES]
        if each.names and not unknown and _HOMES.fullmatch(each.module) and each.is_alone:
            names = ", ".join(f"{name} as {alias}" if alias else name for name, alias in each.names)
            edits[each.line] = (each.end, f"from {PARTS} import {names}")
        elif not problem:
            what = f"{each.module}.{unknown[0]}" if unknown else each.module
            problem = f"{path}:{each.line} uses {what} of promptflow"
    return _Module(source, source.with_lines(edits), problem, bool(edits))


def _tool_of(source: PythonSource) -> ast.FunctionDef | ast.AsyncFunctionDef | str:
    functions = source.functions()
    marked = [each for each in functions if any(name.rpartition(".")[2] == "tool" for name, _ in decorators_of(each))]
    found = marked or ([] if len(functions) != 1 else functions)
    if found:
        return found[0]
    for each in source.classes():
        if any(call_name(base).endswith("ToolProvider") for base in each.bases):
            return f"the tool is a method of the class '{each.name}', which promptflow makes"
    return "no function in it is marked with @tool"


def _module_name(name: str) -> str | None:
    """The module of a path; None where it cannot be one.

    >>> [_module_name(each) for each in ("a.py", "tools/b-c.py", "x/__init__.py", "1.py")]
    ['a', 'tools.b_c', 'x.__init__', None]
    """
    parts = [re.sub(r"\W", "_", each) for each in PurePosixPath(name).with_suffix("").parts]
    return ".".join(parts) if parts and all(each.isidentifier() for each in parts) else None


def argument_name(name: str) -> str:
    """A parameter as `with` of a node may call it.

    >>> [argument_name(each) for each in ("text", "fileName", "_raw", "X")]
    ['text', 'file_name', 'raw', 'x']
    """
    if re.fullmatch(r"[a-z][a-z0-9_]*", name):
        return name
    found = re.sub(r"\W", "_", re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name)).lower().strip("_")
    return found if re.fullmatch(r"[a-z][a-z0-9_]*", found) else f"a_{len(name)}"


def _format_import(module: str, name: str) -> str:
    """The lines that import a function when it is called, and say what to do where that fails."""
    return (
        f"    try:\n        from {module} import {name} as original\n"
        f"    except ImportError as error:\n"
        f'        raise RuntimeError(f"install what {module} needs: {{error}}") from error\n\n'
    )


def _format_wrapper(name: str, path: str, found: ast.FunctionDef | ast.AsyncFunctionDef) -> str:
    is_async = isinstance(found, ast.AsyncFunctionDef)
    given = found.args
    every = [each.arg for each in [*given.posonlyargs, *given.args, *given.kwonlyargs]]
    head = ", ".join(re.sub(r"^\w+", lambda one: argument_name(one[0]), each) for each in parameters_of(found))
    passed = ", ".join(
        [*(f"{each}={argument_name(each)}" for each in every), *([f"**{given.kwarg.arg}"] if given.kwarg else [])]
    )
    return (
        f"\n\n{'async ' if is_async else ''}def {name}({head}) -> Any:\n"
        f"{_format_import(path, found.name)}"
        f"    return {'await ' if is_async else ''}original({passed})\n"
    )
