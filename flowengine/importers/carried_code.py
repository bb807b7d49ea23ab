"""Carries Python files along: what they import of the framework they were written for is led to a module of ours.

A file whose imports can all be kept goes along with its other lines untouched. A function that needs packages is
called by a function of `imported_steps`, which imports the file when it is called: so a flow can be checked, drawn and
tested where the packages are not installed. It knows no framework, and runs nothing.
"""

from __future__ import annotations

import ast
import keyword
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import PurePosixPath
from typing import Final, NamedTuple

from flowengine.errors import DefinitionError
from flowengine.importers.form import CarriedFile
from flowengine.importers.project_writer import OWN_FILES
from flowengine.importers.python_code import (
    Import,
    PythonFunction,
    PythonSource,
    call_name,
    is_standard,
    parameters_of,
    parse_python,
    targets_of,
)
from flowengine.importers.source_tree import SourceError, SourceTree

STEPS: Final = "imported_steps"
_OWN_MODULES: Final = tuple(f"imported_{each}" for each in ("values", "stubs", "files", "templates", "embedding"))
_STEPS_HEAD: Final = '''\
"""Calls functions that need packages; each imports its own file when it is called."""

from __future__ import annotations

from typing import Any
'''


@dataclass(frozen=True)
class StandIn:
    """The module that stands in a new project for the framework that the code was written for."""

    framework: str
    """Its package."""
    module: str
    text: str
    homes: str = ".*"
    """The modules of the framework that its names come from, as a regular expression."""

    @cached_property
    def names(self) -> frozenset[str]:
        """The framework's names that it defines at its top."""
        names: set[str] = set()
        for each in ast.parse(self.text).body:
            if isinstance(each, PythonFunction | ast.ClassDef):
                names.add(each.name)
            names |= {name for target in targets_of(each) for name in map(call_name, [target])}
        return frozenset(each for each in names if not each.startswith("_"))

    def lead(self, statement: Import) -> str | None:
        """The line that stands for an import of the framework; None where nothing can."""
        has_all = statement.names and all(name in self.names for name, _ in statement.names)
        if not has_all or not re.fullmatch(self.homes, statement.module):
            return None
        names = ", ".join(f"{name} as {alias}" if alias else name for name, alias in statement.names)
        return f"from {self.module} import {names}"


class CarriedModule(NamedTuple):
    """A Python file of the source."""

    source: PythonSource
    carried: str
    """Its text in the new project."""
    problem: str
    uses_parts: bool


class Wrapper(NamedTuple):
    """A function of `imported_steps`: it imports what it calls when it is called, as `original`."""

    parameters: Sequence[str]
    """The parameters as Python writes them."""
    module: str
    imported: str
    """The function or the class of the module."""
    body: str
    """The lines behind the import."""
    first: str = ""
    """A line before it: a docstring, or another import."""
    returns: str = "Any"
    is_async: bool = False

    def write(self, name: str) -> str:
        """Its text; where the import fails, it says what to do."""
        return (
            f"\n\n{'async ' if self.is_async else ''}def {name}({', '.join(self.parameters)}) -> {self.returns}:\n"
            f"{f'    {self.first}' + chr(10) if self.first else ''}"
            f"    try:\n        from {self.module} import {self.imported} as original\n"
            f"    except ImportError as error:\n"
            f'        raise RuntimeError(f"install what {self.module} needs: {{error}}") from error\n\n'
            f"    {self.body}\n"
        )


class CarriedCode:
    """The Python files of one source; `files` are those that go along."""

    def __init__(self, tree: SourceTree, paths: Mapping[str, str], stand_in: StandIn) -> None:
        """`paths`: path in the new project → path in the tree, of every Python file."""
        self.paths = {name: path for name, path in paths.items() if name.endswith(".py")}
        self._tree = tree
        self._modules: dict[str, CarriedModule] = {}
        self._stand_in = stand_in
        self._needed: set[str] | None = None
        self._wrappers: dict[str, Wrapper] = {}
        self._owners = dict.fromkeys((STEPS, stand_in.module, *_OWN_MODULES), "the import")
        for name, path in self.paths.items():
            self._owners.setdefault(module_name(name) or name, path)

    def module(self, name: str) -> CarriedModule:
        """A Python file of the source, read when it is first asked for."""
        if name not in self._modules:
            path = self.paths[name]
            module = self._read(self._tree, path)
            owner = self._owners[module_name(name) or name]
            if name.partition("/")[0] in OWN_FILES:
                module = module._replace(problem=f"{path} lies where the new project has files of its own")
            elif owner != path and not module.problem:
                module = module._replace(problem=f"{path} is the same module as that of {owner}")
            self._modules[name] = module
        return self._modules[name]

    def replace(self, name: str, module: CarriedModule) -> None:
        """Carry another text in the place of a file."""
        self._modules[name] = module

    @property
    def uses_parts(self) -> bool:
        """Whether a file that goes along imports what stands in for the framework."""
        return any(self.carried_path(name) and self.module(name).uses_parts for name in self.paths)

    def problem_of(self, name: str) -> str:
        """Explains why a file, or one that it imports, cannot be copied; empty if it can."""
        return next((problem for each in self.closure(name) if (problem := self.module(each).problem)), "")

    def needs_of(self, name: str) -> list[str]:
        """The packages that have to be installed for a file."""
        return sorted({package for each in self.closure(name) for package in self._packages(each)})

    def need(self, name: str) -> None:
        """Lets only files that are needed go along from here on: this one and those that it imports."""
        self._needed = {*(self._needed or ()), *self.closure(name)}

    def need_nothing(self) -> None:
        """No file goes along unless it is needed."""
        self._needed = self._needed or set()

    def carried_files(self) -> Iterator[CarriedFile]:
        """The functions that call into the files, then the files without a problem."""
        if self._wrappers:
            functions = (each.write(name) for name, each in self._wrappers.items())
            yield CarriedFile(f"{STEPS}.py", _STEPS_HEAD + "".join(functions))
        for name in self.paths:
            if (path := self.carried_path(name)) is not None:
                yield CarriedFile(path, self.module(name).carried)

    def carried_path(self, name: str) -> str | None:
        """The path of a file in the new project; None where it does not go along."""
        module, is_needed = module_name(name), self._needed is None or name in self._needed
        fits = is_needed and module is not None and not self.module(name).problem
        return f"{module.replace('.', '/')}.py" if fits and module is not None else None

    def texts(self) -> dict[str, set[str]]:
        """The texts that stand in each file that goes along."""
        return {name: self.module(name).source.texts() for name in self.paths if self.carried_path(name)}

    def add_wrapper(self, base: str, wrapper: Wrapper) -> str:
        """A function of `imported_steps`, as a node calls it, under a name like `base`."""
        name, number = base, 1
        while self._wrappers.get(name, wrapper) != wrapper:
            number += 1
            name = f"{base}_{number}"
        self._wrappers[name] = wrapper
        return f"{STEPS}:{name}"

    def closure(self, name: str) -> Iterator[str]:
        """The file and those of the source that it imports, directly or not, with the packages they lie in."""
        members: set[str] = set()
        waiting = [name]
        while waiting:
            at = waiting.pop()
            if at in members:
                continue
            members.add(at)
            yield at
            waiting += [
                each for one in self.module(at).source.imports for each in self.own_files(one.module, one.names, at)
            ]

    def own_files(self, module: str, names: tuple[tuple[str, str | None], ...], at: str) -> Iterator[str]:
        """The files of the flow that an import names."""
        bare = module.lstrip(".")
        dots = len(module) - len(bare)
        base = PurePosixPath(at).parents[dots - 1] if 0 < dots <= len(PurePosixPath(at).parents) else PurePosixPath()
        path = base / bare.replace(".", "/") if bare else base
        for each in (f"{path}.py", f"{path}/__init__.py", *(f"{path / name}.py" for name, _ in names)):
            if each in self.paths:
                yield each

    def _packages(self, name: str) -> Iterator[str]:
        for each in self.module(name).source.imports:
            first = each.module.partition(".")[0]
            is_ours = first in (self._stand_in.framework, "__future__", "flowengine") or bool(
                list(self.own_files(each.module, each.names, name))
            )
            is_local = any(one.startswith((f"{first}/", f"{first}.py")) for one in self.paths)
            if first and not (is_ours or is_local or is_standard(first) or each.module.startswith(".")):
                yield first

    def _read(self, tree: SourceTree, path: str) -> CarriedModule:
        try:
            source = parse_python(path, tree.read_text(path))
        except (SourceError, DefinitionError) as error:
            return CarriedModule(PythonSource(path, "", ast.Module([], [])), "", str(error), False)
        edits: dict[int, tuple[int, str]] = {}
        problem = ""
        for each in source.imports:
            if each.module.partition(".")[0] != self._stand_in.framework:
                continue
            line = self._stand_in.lead(each) if each.is_alone else None
            if line is not None:
                edits[each.line] = (each.end, line)
            elif not problem:
                what = f"{', '.join(name for name, _ in each.names)} of " if each.names else ""
                problem = f"{path}:{each.line} uses {what}{each.module}"
        return CarriedModule(source, source.with_lines(edits), problem, bool(edits))


def module_name(name: str) -> str | None:
    """The module of a path; None where it cannot be one. No code imports what Python cannot call so: it gets a prefix.

    >>> [module_name(each) for each in ("a.py", "tools/b-c.py", "x/__init__.py", "1 x/2.py", "class.py")]
    ['a', 'tools.b_c', 'x.__init__', 'n_1_x.n_2', 'n_class']
    """
    parts = [re.sub(r"\W", "_", each) for each in PurePosixPath(name).with_suffix("").parts]
    parts = [each if each.isidentifier() and not keyword.iskeyword(each) else f"n_{each}" for each in parts]
    return ".".join(parts) if parts and all(map(str.isidentifier, parts)) else None


def argument_name(name: str) -> str:
    """A parameter as `with` of a node may call it.

    >>> [argument_name(each) for each in ("text", "fileName", "_raw", "X", "__import__")]
    ['text', 'file_name', 'raw', 'x', 'import_']
    """
    if re.fullmatch(r"[a-z][a-z0-9_]*", name) and not keyword.iskeyword(name):
        return name
    result = re.sub(r"\W", "_", re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name)).lower().strip("_")
    result = f"{result}_" if keyword.iskeyword(result) else result
    return result if re.fullmatch(r"[a-z][a-z0-9_]*", result) else f"a_{len(name)}"


def wrap_function(
    module: str, function: PythonFunction, called: str = "original", *, is_method: bool = False
) -> Wrapper:
    """A function that calls one of a module, with parameters as `with` of a node may call them.

    `is_method`: its first parameter is the object that `called` names.
    """
    signature = function.args
    head = [re.sub(r"^\w+", lambda one: argument_name(one[0]), each) for each in parameters_of(function)][is_method:]
    arguments = [argument_name(each.arg) for each in signature.posonlyargs][is_method:]
    by_name = [*signature.args, *signature.kwonlyargs][is_method and not signature.posonlyargs :]
    arguments += [f"{each.arg}={argument_name(each.arg)}" for each in by_name]
    arguments += [f"**{signature.kwarg.arg}"] if signature.kwarg and not is_method else []
    is_async = isinstance(function, ast.AsyncFunctionDef)
    body = f"return {'await ' if is_async else ''}{called}({', '.join(arguments)})"
    return Wrapper(head, module, function.name, body, is_async=is_async)
