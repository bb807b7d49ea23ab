"""Finds what two versions of a flow have in files beside its own: code that it calls, texts that it takes, and the
project file.

Code is told apart by its functions, classes and constants, each a part of its own; a file whose imports or other
statements differ too is one part, and so is a text. A version with some of them taken back is written into a folder of
its own.
"""

from __future__ import annotations

import ast
import os
import re
import shutil
import tempfile
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from io import StringIO
from pathlib import Path
from typing import Final, NamedTuple

from flowengine.errors import Diagnostic
from flowengine.flow import Flow
from flowengine.flowfile import DISK, below, load_flow
from flowengine.flowfile.project import ProjectProblem, find_project, imported_files

_SKIPPED: Final = shutil.ignore_patterns(".git", "__pycache__", ".venv", "node_modules")
_DATABASE: Final = re.compile(r"\.(db|sqlite3?)(-\w+)?\Z")
"""A file that is written in place: a version that writes it has its own."""


class FileEdit(NamedTuple):
    """Something that another file has in another way."""

    file: str
    """Its place in the project."""
    name: str = ""
    """The name of the function, class or constant; empty: the whole file."""

    def __str__(self) -> str:
        kind = "code" if self.file.endswith(".py") else "project file" if self.file.endswith(".toml") else "text"
        return f"{kind} {self.file}{f':{self.name}' if self.name else ''}"


# --- The files of a version


class _Listening:
    """The disk, and what is read from it."""

    def __init__(self) -> None:
        self.read: set[Path] = set()

    def unreadable(self, path: Path, name: Path) -> ProjectProblem | None:
        return DISK.unreadable(path, name)

    def text(self, path: Path) -> str | Diagnostic:
        self.read.add(path)
        return DISK.text(path)


def _files_of(flow: Flow, path: Path) -> Mapping[str, Path]:
    """Name in the project → file, of all that a flow is made of beside its own."""
    project, listening = find_project(path), _Listening()
    load_flow(path, project=project, files=listening)
    files = {*listening.read, *([] if project.file is None else [project.file])}
    for node in flow.plan.all_nodes.values():
        for function in node.code:
            files.update(imported_files(getattr(function, "__module__", None) or ""))
    by_name = {below(project.root, each): each for each in files if each.resolve() != path.resolve()}
    return {name: each for name, each in sorted(by_name.items()) if not name.startswith("..")}


def edits_between(good: Flow, good_path: Path, bad: Flow, bad_path: Path) -> list[FileEdit]:
    """Lists the differences, also names that only one of both has."""
    then, now = _files_of(good, good_path), _files_of(bad, bad_path)
    edits: list[FileEdit] = []
    for name in sorted({*then, *now}):
        old, new = (_text_in(find_project(path).root / name) for path in (good_path, bad_path))
        if old != new:
            edits += [FileEdit(name, each) for each in _edited_names(name, old, new)]
    return edits


def _text_in(file: Path) -> str | None:
    """A file's text; line ends are a part of it, as of a prompt, but not of code."""
    try:
        return file.read_text("utf-8-sig") if file.suffix == ".py" else file.read_bytes().decode("utf-8-sig")
    except (OSError, UnicodeDecodeError):
        return None


# --- The parts of a Python file


class _Part(NamedTuple):
    first: int
    """Its first line, from 0, decorators included."""
    end: int
    says: str


def _edited_names(file: str, old: str | None, new: str | None) -> Sequence[str]:
    """The names whose definitions differ; an empty one for the file as a whole."""
    then, now = (None if text is None or not file.endswith(".py") else _parts_of(text) for text in (old, new))
    if then is None or now is None or then[1] != now[1]:
        return [""]
    old_says, new_says = ({name: part.says for name, part in parts.items()} for parts, _ in (then, now))
    return [each for each in {**new_says, **old_says} if old_says.get(each) != new_says.get(each)]


def _parts_of(text: str) -> tuple[Mapping[str, _Part], Sequence[str]] | None:
    """Name → its definition, and what the other statements say; None where that cannot be told apart."""
    try:
        body = ast.parse(text).body
    except (SyntaxError, ValueError, RecursionError):
        return None
    parts: dict[str, _Part] = {}
    others: list[str] = []
    for each in body:
        name = _name_of(each)
        if name is None:
            others.append(ast.dump(each))
            continue
        if name in parts:
            return None
        first = min([each.lineno, *(at.lineno for at in getattr(each, "decorator_list", ()))])
        parts[name] = _Part(first - 1, each.end_lineno or each.lineno, ast.dump(each))
    return parts, others


def _name_of(statement: ast.stmt) -> str | None:
    if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        return statement.name
    targets = statement.targets if isinstance(statement, ast.Assign) else [getattr(statement, "target", None)]
    return targets[0].id if len(targets) == 1 and isinstance(targets[0], ast.Name) else None


def _with_names(old: str, new: str, names: Sequence[str]) -> str:
    """A Python file with some definitions as they were."""
    then, now = _parts_of(old), _parts_of(new)
    assert then is not None
    assert now is not None  # Only of such files single names are known.
    lines, before = ([*StringIO(each)] for each in (new, old))  # Python's lines end in a line feed alone.
    added: list[str] = []
    for name in sorted(names, key=lambda each: -now[0][each].first if each in now[0] else 1):
        part, was = now[0].get(name), then[0].get(name)
        text = [] if was is None else before[was.first : was.end]
        if part is None:
            added += ["\n", *text]
        else:
            lines[part.first : part.end] = text
    return "".join([*lines, *added])


# --- A version with some parts taken back


@contextmanager
def version_with(edits: Iterable[FileEdit], good: Path, bad: Path) -> Generator[Path]:
    """Where the flow's file of the bad version is, in a folder in which these parts are those of the good one."""
    edit_list = list(edits)
    if not edit_list:
        yield bad
        return
    then, now = find_project(good).root, find_project(bad).root
    with tempfile.TemporaryDirectory(prefix="flowengine-probe-") as folder:
        there = Path(folder) / "project"
        shutil.copytree(now, there, ignore=_SKIPPED, symlinks=True, copy_function=_link)
        for name, text in _texts_with(edit_list, then, now):
            place = there / name
            place.unlink(missing_ok=True)
            if text is not None:
                place.parent.mkdir(parents=True, exist_ok=True)
                place.write_bytes(text.encode())
        yield there / below(now, bad)


def _texts_with(edits: Sequence[FileEdit], then: Path, now: Path) -> Iterator[tuple[str, str | None]]:
    for file in dict.fromkeys(each.file for each in edits):
        names = [each.name for each in edits if each.file == file]
        old, new = _text_in(then / file), _text_in(now / file)
        yield file, old if "" in names or old is None or new is None else _with_names(old, new, names)


def _link(source: str, target: str) -> object:
    """Files that stay as they are need no copy, where the system lets a file have two names."""
    if _DATABASE.search(source):
        return shutil.copy2(source, target)
    try:
        return os.link(source, target)
    except OSError:
        return shutil.copy2(source, target)
