"""Finds what the Python of a crew says: its class, the methods of agents and tasks, and what names stand for.

Values are followed through assignments of the module, the class and its constructor, and through imports of files that
lie in the same folder. Nothing is evaluated.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from functools import cached_property
from pathlib import PurePosixPath
from typing import Final, NamedTuple

from flowengine.errors import DefinitionError
from flowengine.importers.form import SourcePlace
from flowengine.importers.python_code import (
    PythonFunction,
    PythonSource,
    call_name,
    decorators_of,
    last_name,
    method_of,
    parse_python,
    targets_of,
    text_of,
)
from flowengine.importers.source_tree import SourceError, SourceTree

_MARKS: Final = frozenset(
    {"agent", "task", "crew", "llm", "tool", "before_kickoff", "after_kickoff", "output_pydantic"}
)
_CHANGEABLE: Final = (
    "output_file",
    "expected_output",
    "async_execution",
    "human_input",
    "output_json",
    "output_pydantic",
)
"""Settings that code can change on a task that is made, by names that nothing else has."""


class PythonFiles:
    """The Python files below a folder, each parsed once."""

    def __init__(self, tree: SourceTree, base: str) -> None:
        self.base = base
        self._tree = tree
        self._parsed: dict[str, PythonSource | None] = {}
        self.names = [each for each in tree.files(base) if each.endswith(".py")]

    def parse_file(self, file: str, word: str = "") -> PythonSource | None:
        """A file; None for one that is no Python, or in which a word does not stand."""
        try:
            text = self._tree.read_text(file)
            if word in text and file not in self._parsed:
                self._parsed[file] = parse_python(file, text)
        except (SourceError, DefinitionError):
            self._parsed[file] = None
            return None
        return self._parsed[file] if word in text else None

    def home_of(self, source: PythonSource, name: str) -> tuple[str, str, str]:
        """Returns where a name is defined: module, name there, and the file below the folder."""
        for each in source.imports:
            for original, alias in each.names:
                if (alias or original) == name:
                    return each.module, original, self.file_of(source.file, each.module, original)
            if not each.names and (each.module == name or each.module.startswith(f"{name}.")):
                return each.module, "", self.file_of(source.file, each.module, "")
        return "", name, source.file

    def file_of(self, importer: str, module: str, name: str) -> str:
        """The file of a module as another one imports it; empty for one of a package."""
        bare = module.lstrip(".")
        dots = len(module) - len(bare)
        tail = bare.replace(".", "/")
        if dots:
            parents = PurePosixPath(importer).parents
            folder = parents[min(dots - 1, len(parents) - 1)]
            paths = [(folder / tail).as_posix() if tail else folder.as_posix()]
            for each in paths:
                for path in (f"{each}.py", f"{each}/{name}.py", f"{each}/__init__.py"):
                    if path in self.names:
                        return path
            return ""
        ends = [f"{tail}.py", f"{tail}/{name}.py", f"{tail}/__init__.py"] if tail else [f"{name}.py"]
        for end in ends:
            candidates = [each for each in self.names if each == end or each.endswith(f"/{end}")]
            if candidates:
                return min(candidates, key=lambda each: _distance(importer, each))
        return ""

    def class_of(self, source: PythonSource, name: str, depth: int = 0) -> tuple[ast.ClassDef, PythonSource] | None:
        """A class by the name that a file has for it."""
        definition = source.every_class.get(name)
        if definition is not None:
            return definition, source
        other, original = self.other_home(source, name)
        return None if other is None or depth >= 8 else self.class_of(other, original or name, depth + 1)

    def function_of(self, source: PythonSource, name: str) -> tuple[PythonFunction, PythonSource] | None:
        """A function by the name that a file has for it."""
        function = next((each for each in source.functions() if each.name == name), None)
        if function is not None:
            return function, source
        other, original = self.other_home(source, name)
        function = None if other is None else next((each for each in other.functions() if each.name == original), None)
        return None if function is None or other is None else (function, other)

    def other_home(self, source: PythonSource, name: str) -> tuple[PythonSource | None, str]:
        """The file that a name is imported from, and the name there; empty for a module."""
        _, original, file = self.home_of(source, name)
        return self.parse_file(file) if file and file != source.file else None, original


def _distance(one: str, other: str) -> int:
    """Counts the folders between two files."""
    first, second = PurePosixPath(one).parent.parts, PurePosixPath(other).parent.parts
    count = 0
    for part, other_part in zip(first, second, strict=False):
        if part != other_part:
            break
        count += 1
    return len(first) + len(second) - 2 * count


class Entry(NamedTuple):
    """An agent, a task or a crew as the Python makes it."""

    name: str
    """The name of its method."""
    keywords: Mapping[str, ast.expr]
    place: SourcePlace


class CrewClass:
    """A class with agents, tasks and a crew."""

    def __init__(self, definition: ast.ClassDef, source: PythonSource, files: PythonFiles) -> None:
        self.definition = definition
        self.source = source
        self.files = files
        self.name = definition.name
        self.agents: dict[str, Entry] = {}
        self.tasks: dict[str, Entry] = {}
        self.crew: Entry | None = None
        self.hooks: list[tuple[str, PythonFunction]] = []
        for each in definition.body:
            if isinstance(each, PythonFunction):
                self._read(each)

    def find_config_path(self, key: str) -> str | None:
        """The path that `agents_config` or `tasks_config` says; None where it is no text."""
        for each in self.definition.body:
            if any(isinstance(one, ast.Name) and one.id == key for one in targets_of(each)):
                texts = (text_of(one) or "" for one in ast.walk(each) if isinstance(one, ast.Constant))
                return next((one for one in texts if one.endswith((".yaml", ".yml"))), None)
        return f"config/{key.partition('_')[0]}.yaml"

    def resolve(self, node: ast.expr | None, depth: int = 0) -> ast.expr | None:
        """Resolves a name through assignments."""
        if node is None or depth > 8 or not isinstance(node, ast.Name | ast.Attribute):
            return node
        name = call_name(node)
        bare = name.removeprefix("self.").removeprefix("cls.").removeprefix(f"{self.name}.")
        if "." in bare:
            return node
        for each in self._assigned:
            value = each.get(bare if name.startswith(("self.", "cls.", f"{self.name}.")) else name)
            if value is not None:
                return self.resolve(value, depth + 1)
        other, original = self.files.other_home(self.source, bare)
        if other is not None and "." not in name:
            for each in _assignments(None, other.tree):
                if original in each:
                    return each[original]
        return node

    @cached_property
    def _assigned(self) -> list[dict[str, ast.expr]]:
        return list(_assignments(self.definition, self.source.tree))

    def tool_named(self, name: str) -> ast.expr | None:
        """Returns the tool of this name that a method of the class makes."""
        method = method_of(self.definition, name)
        returned = [each.value for each in ast.walk(method) if isinstance(each, ast.Return)] if method else []
        return next((each for each in reversed(returned) if each is not None), None)

    def _read(self, method: PythonFunction) -> None:
        marks = [name.rpartition(".")[2] for name, _ in decorators_of(method)]
        mark = next((each for each in marks if each in _MARKS), None)
        if mark in ("before_kickoff", "after_kickoff"):
            self.hooks.append((mark, method))
        if mark not in ("agent", "task", "crew"):
            return
        call = _find_made_call(method, {"agent": "Agent", "task": "Task", "crew": "Crew"}[mark])
        keywords = {each.arg: each.value for each in call.keywords if each.arg} if call is not None else {}
        entry = Entry(method.name, keywords, self.source.place(call or method))
        if mark == "agent":
            self.agents[method.name] = entry
        elif mark == "task":
            self.tasks[method.name] = entry
        else:
            self.crew = entry


def _find_made_call(method: PythonFunction, ending: str) -> ast.Call | None:
    """The call that makes what a method returns."""
    calls = [each for each in ast.walk(method) if isinstance(each, ast.Call)]
    matches = [each for each in calls if last_name(each).endswith(ending)]
    return matches[0] if matches else None


def _assignments(definition: ast.ClassDef | None, tree: ast.Module) -> Iterator[dict[str, ast.expr]]:
    """Name → value: of the class and its constructor, then of the module."""
    if definition is not None:
        yield _find_assignments(definition.body)
        for each in definition.body:
            if isinstance(each, PythonFunction):
                yield _find_assignments(list(ast.walk(each)), "self.")
    yield _find_assignments(tree.body)


def _find_assignments(body: list[ast.stmt] | list[ast.AST], prefix: str = "") -> dict[str, ast.expr]:
    values: dict[str, ast.expr] = {}
    for each in body:
        value = each.value if isinstance(each, ast.Assign | ast.AnnAssign) else None
        for target in targets_of(each):
            name = call_name(target) if isinstance(target, ast.Name | ast.Attribute) else ""
            if value is not None and name:
                values.setdefault(name.removeprefix(prefix), value)
    return values


def crew_classes(source: PythonSource, files: PythonFiles) -> list[CrewClass]:
    """The classes of a file that are crews."""
    classes = [
        CrewClass(each, source, files)
        for each in source.classes()
        if any(name.rpartition(".")[2] == "CrewBase" for name, _ in decorators_of(each))
    ]
    return [each for each in classes if each.tasks]


def config_key(node: ast.expr | None) -> str | None:
    """`x` of `self.agents_config["x"]`; None for anything else."""
    if isinstance(node, ast.Subscript) and call_name(node.value).endswith("_config"):
        return text_of(node.slice)
    if isinstance(node, ast.Call) and call_name(node).endswith("_config.get") and node.args:
        return text_of(node.args[0])
    return None


def find_rewrites(files: PythonFiles) -> Iterator[tuple[str, SourcePlace]]:
    """Finds where code changes a setting of a task that is made: its new value is known at a run only.

    An attribute that a class has of its own under such a name does not count.
    """
    for key in _CHANGEABLE:
        for file in files.names:
            source = files.parse_file(file, key)
            if source is None:
                continue
            for node in ast.walk(source.tree):
                if any(_sets_key(target, key) for target in targets_of(node)) or _calls_setattr(node, key):
                    yield key, source.place(node)


def _sets_key(target: ast.expr, key: str) -> bool:
    if isinstance(target, ast.Attribute):
        return target.attr == key and call_name(target) != f"self.{key}"
    if not isinstance(target, ast.Subscript) or text_of(target.slice) != key:
        return False
    return isinstance(target.value, ast.Subscript) and call_name(target.value.value).endswith("_config")


def _calls_setattr(node: ast.AST, key: str) -> bool:
    return (
        isinstance(node, ast.Call)
        and call_name(node) == "setattr"
        and len(node.args) == 3
        and text_of(node.args[1]) == key
    )
