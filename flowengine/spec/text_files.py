"""Texts of agents that stand in files of their own: `prompt: {file: prompts/triage.md}`.

A file's text takes the place of the map that names it before the flow is looked at, so whatever reads a flow (checks,
sizes, definitions of nodes, a worker) meets a text and no file. A line break at the end of the file is no part of it.
It knows which keys may name a file; which files may be named is said by `flowengine.flow_paths`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeAlias

from flowengine.errors import Diagnostic
from flowengine.spec.files import FlowFiles
from flowengine.spec.levels import node_at
from flowengine.spec.positions import KeyPath, SourceText
from flowengine.spec.project import Problem, Project
from flowengine.spec.shapes import is_map
from flowengine.spec.subflows import located
from flowengine.spec.yaml_text import MAX_BYTES, refuse_characters

__all__ = ["BroughtTexts", "named_text_files", "names_text_files", "read_text_files", "with_texts"]

_TEXTS: Final = frozenset({"prompt", "instructions", "instruction", "system_message"})
_HOLDERS: Final = frozenset({"agent", "improve", "evaluate", "routing", "defaults"})
_MAPS_OF_HOLDERS: Final = frozenset({"nodes", "agents"})

STAND_IN_TEXT: Final = "-"
"""The text of a file that cannot be read."""

Read: TypeAlias = Callable[[str, KeyPath], str]


class BroughtTexts(NamedTuple):
    """A flow's data with the texts in place, and where they come from."""

    data: dict[str, Any]
    files: Mapping[Path, str]
    """Each file that was read, by the name that is shown of it, and its text."""
    places: Mapping[KeyPath, Path]
    problems: list[Diagnostic]
    lost: list[KeyPath]
    """Places whose text is not known."""


def with_texts(data: Mapping[str, Any], read: Read = lambda file, path: STAND_IN_TEXT) -> dict[str, Any]:
    """A copy in which each map that names a text's file is what `read` gives for it.

    >>> with_texts({"nodes": {"a": {"prompt": {"file": "a.md"}}}})
    {'nodes': {'a': {'prompt': '-'}}}
    """
    return _filled(data, (), read)


def names_text_files(data: Mapping[str, Any]) -> bool:
    """Whether a text of the flow stands in a file of its own."""
    return bool(named_text_files(data))


def named_text_files(data: Mapping[str, Any]) -> list[str]:
    """The files that texts of the flow stand in, as it names them."""
    found: list[str] = []

    def note(file: str, path: KeyPath) -> str:
        found.append(file)
        return STAND_IN_TEXT

    with_texts(data, note)
    return found


def read_text_files(data: Mapping[str, Any], source: SourceText, project: Project, files: FlowFiles) -> BroughtTexts:
    """The texts of all files that a flow names, each read once."""
    reader = _Reader(source, project, files)
    return BroughtTexts(with_texts(data, reader.read), reader.texts, reader.places, reader.problems, reader.lost)


def _filled(value: Mapping[str, Any], path: KeyPath, read: Read) -> dict[str, Any]:
    filled = dict(value)
    for key, each in value.items():
        at = (*path, key)
        if not is_map(each):
            continue
        if key in _TEXTS and list(each) == ["file"] and isinstance(each["file"], str):
            filled[key] = read(each["file"], at)
        elif key in _HOLDERS:
            filled[key] = _filled(each, at, read)
        elif key in _MAPS_OF_HOLDERS:
            filled[key] = {
                name: _filled(inner, (*at, name), read) if is_map(inner) else inner for name, inner in each.items()
            }
    return filled


class _Reader:
    def __init__(self, source: SourceText, project: Project, files: FlowFiles) -> None:
        self.texts: dict[Path, str] = {}
        self.places: dict[KeyPath, Path] = {}
        self.problems: list[Diagnostic] = []
        self.lost: list[KeyPath] = []
        self._source = source
        self._project = project
        self._files = files
        self._base = project.root if source.path is None else source.path.parent
        self._found: dict[str, tuple[Path, str] | Problem | Diagnostic] = {}
        self._size = 0

    def read(self, file: str, path: KeyPath) -> str:
        if file not in self._found:
            self._found[file] = self._opened(file)
        found = self._found[file]
        if isinstance(found, Problem):
            self._tell(found, (*path, "file"))
        elif isinstance(found, Diagnostic):
            if found not in self.problems:
                self.problems.append(found)
        else:
            shown, text = found
            self._size += len(text)
            if self._size <= MAX_BYTES:
                self.texts[shown], self.places[path] = text, shown
                return text
            told = f"the texts that the flow takes from files have more than {MAX_BYTES:,} characters together"
            self._tell(Problem("FE102", told), path)
        self.lost.append(path)
        return STAND_IN_TEXT

    def _opened(self, file: str) -> tuple[Path, str] | Problem | Diagnostic:
        place = located(file, self._base, self._project)
        if isinstance(place, Problem):
            return place
        problem = self._files.unreadable(*place)
        if problem is not None:
            return problem._replace(code="FE229")
        text = self._files.text(place.shown)
        if isinstance(text, Diagnostic):
            return text
        text = text.replace("\r\n", "\n").removesuffix("\n")
        return refuse_characters(text, str(place.shown)) or (place.shown, text)

    def _tell(self, problem: Problem, path: KeyPath) -> None:
        file = None if self._source.path is None else str(self._source.path)
        node = ".".join(node_at(path)) or None
        position = self._source.position(path)
        self.problems.append(Diagnostic(problem.code, problem.message, file, *position, node, problem.hint))
