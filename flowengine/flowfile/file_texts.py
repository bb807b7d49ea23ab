"""Reads texts of agents that stand in files of their own: `prompt: {file: prompts/triage.md}`.

A file's text takes the place of the map that names it before the flow is looked at, so whatever reads a flow (checks,
sizes, definitions of nodes, a worker) meets a text and no file. A line break at the end of the file is no part of it.
It knows which keys may name a file; which files may be named is said by `flowengine.core.flow_paths`.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any, Final, NamedTuple, Protocol, TypeAlias

from flowengine.core import is_map, is_withheld
from flowengine.errors import Diagnostic, ProjectError, did_you_mean, find_nearest
from flowengine.flowfile.analysis import node_at
from flowengine.flowfile.project import Project, ProjectProblem
from flowengine.flowfile.schema import FlowSpec
from flowengine.flowfile.yaml import MAX_BYTES, KeyPath, SourceText, decode, refuse_characters

# --- Where the texts of flow files come from

_LIKE: Final = {".yaml": "*.y*ml", ".yml": "*.y*ml"}
"""Suffix → the files that may be meant by a name that is not there."""
_MAX_NAMES: Final = 1_000
"""Files of a folder that are compared with such a name."""


class FlowFiles(Protocol):
    """The files that a flow may run as nodes, or take texts from."""

    def unreadable(self, path: Path, name: Path) -> ProjectProblem | None:
        """Explains why a file must not be opened; `path` is the resolved path of `name`."""
        ...

    def text(self, path: Path) -> str | Diagnostic:
        """Returns a file's text, or why it cannot be read."""
        ...


class _Disk:
    def unreadable(self, path: Path, name: Path) -> ProjectProblem | None:
        try:
            if path.is_file():
                return None
            if path.exists():
                return ProjectProblem("FE225", f"'{name}' is no file")
        except (OSError, ValueError) as error:
            return ProjectProblem("FE225", f"'{name}' cannot be read: {error}")
        return ProjectProblem("FE225", f"there is no file '{name}'", _nearest_file(path))

    def text(self, path: Path) -> str | Diagnostic:
        file = str(path)
        try:
            with path.open("rb") as stream:
                data = stream.read(MAX_BYTES + 1)  # A device has no size, and no end.
            return _too_large(max(path.stat().st_size, len(data)), file) or decode(data, file)
        except (OSError, ValueError) as error:
            reason = getattr(error, "strerror", None) or str(error)
            hint = _nearest_file(path) if isinstance(error, FileNotFoundError) else ""
            return Diagnostic("FE101", f"cannot read the file: {reason}", file, hint=hint)


def _nearest_file(path: Path) -> str:
    """The end of a message: the file beside a missing one that is probably meant."""
    try:
        beside = sorted(islice(path.parent.glob(_LIKE.get(path.suffix, "*")), _MAX_NAMES))
        names = {each.stem: each.name for each in beside if each.is_file() and not is_withheld(each.name)}
    except (OSError, ValueError):
        return ""
    nearest = path.stem if path.stem in names else find_nearest(path.stem, names)  # Without what all endings share.
    return f"; did you mean '{names[nearest]}'?" if nearest in names else ""


DISK: Final[FlowFiles] = _Disk()


class BroughtFiles:
    """The files of a run, by their paths below `root`.

    >>> BroughtFiles(Path("/project"), {"parts/a.yaml": "flowengine: v1"}).text(Path("/project/parts/../parts/a.yaml"))
    'flowengine: v1'
    """

    def __init__(self, root: Path, texts: Mapping[str, str]) -> None:
        self._root = root
        self._texts = texts

    def unreadable(self, path: Path, name: Path) -> ProjectProblem | None:
        key = below(self._root, name)
        if key in self._texts:
            return None
        return ProjectProblem("FE225", f"the run has brought no file '{key}'", did_you_mean(key, self._texts))

    def text(self, path: Path) -> str | Diagnostic:
        text = self._texts.get(below(self._root, path))
        if text is None:
            return Diagnostic("FE101", "the run has not brought the file", str(path))
        data = text.encode("utf-8", "surrogatepass")
        return _too_large(len(data), str(path)) or decode(data, str(path))


def _too_large(size: int, file: str) -> Diagnostic | None:
    if size <= MAX_BYTES:
        return None
    return Diagnostic("FE102", f"the file has {size:,} bytes; it may have {MAX_BYTES:,}", file, 1, 1)


def below(root: Path, path: Path) -> str:
    """Returns a file's path relative to a folder, with / on every system.

    >>> below(Path("/project"), Path("/project/flows/../parts/a.yaml"))
    'parts/a.yaml'
    """
    return Path(os.path.relpath(os.path.abspath(path), os.path.abspath(root))).as_posix()


# --- The files that a flow runs as nodes

MAX_DEPTH: Final = 16
MAX_FILES: Final = 200

Load: TypeAlias = "Callable[[Path, Project, Subflows], tuple[FlowSpec | None, Sequence[Diagnostic]]]"


class FileReference(NamedTuple):
    """A file that a flow names."""

    path: Path
    """The resolved path."""
    name: Path
    """Its path in messages."""


class _LoadedFile(NamedTuple):
    spec: FlowSpec | None
    height: int
    """Files below each other, itself included."""


class Subflows:
    """The files that one load has opened, and those that it is loading."""

    def __init__(self, load: Load, first: Path | None, files: FlowFiles) -> None:
        self.problems: list[Diagnostic] = []
        self.files = files
        self._load = load
        self._files_by_path: dict[Path, _LoadedFile] = {}
        self._open: list[FileReference] = []
        """Files that are being loaded."""
        self._heights = [0]
        if first is not None:
            self._open.append(FileReference(_real(first), first))

    def open(self, flow: str, base: Path, project: Project) -> FlowSpec | ProjectProblem | None:
        """The flow of a path that stands in a file of the folder `base`; None where it has problems of its own."""
        place = locate_file(flow, base, project)
        if isinstance(place, ProjectProblem):
            return place
        path, name = place
        circle = self._circle(path, name)
        if circle is not None:
            return ProjectProblem("FE226", f"the flows run each other without an end: {circle}")
        if path not in self._files_by_path:
            problem = self.files.unreadable(path, name) or self._too_many()
            if problem is not None:
                return problem
            self._files_by_path[path] = self._load_file(FileReference(path, name), project)
        file = self._files_by_path[path]
        if len(self._open) - 1 + file.height > MAX_DEPTH:
            return ProjectProblem("FE227", f"subflows may be nested {MAX_DEPTH} deep, and '{name}' goes deeper")
        self._heights[-1] = max(self._heights[-1], file.height)
        return file.spec

    def _load_file(self, file: FileReference, project: Project) -> _LoadedFile:
        self._open.append(file)
        self._heights.append(0)
        spec, problems = self._load(file.name, project, self)
        self.problems += problems
        self._open.pop()
        return _LoadedFile(spec, self._heights.pop() + 1)

    def _circle(self, path: Path, name: Path) -> str | None:
        """The files from one to itself, where this one is being loaded already."""
        for number, each in enumerate(self._open):
            if each.path == path:
                return " → ".join(str(file.name) for file in (*self._open[number:], FileReference(path, name)))
        return None

    def _too_many(self) -> ProjectProblem | None:
        if len(self._open) > MAX_DEPTH:
            return ProjectProblem("FE227", f"subflows may be nested {MAX_DEPTH} deep, and this is one more")
        if len(self._files_by_path) >= MAX_FILES:
            return ProjectProblem("FE227", f"a flow may bring along {MAX_FILES} files, and this is one more")
        return None


def locate_file(file: str, base: Path, project: Project) -> FileReference | ProjectProblem:
    """The file of a path that stands in a flow of the folder `base`; a problem where a flow may not name it."""
    if Path(file).is_absolute():
        return ProjectProblem("FE503", f"the path '{file}' is not relative; it starts in the folder of this file")
    try:
        path = project.resolve(file, base)
    except ProjectError as error:
        return ProjectProblem("FE503", str(error))
    name = Path(os.path.normpath(base / file))
    # `..` behind a link leads elsewhere than its letters say.
    return FileReference(path, name if _real(name) == path else path)


def _real(path: Path) -> Path:
    """Resolves a path; a path that does not exist stays as it is."""
    try:
        return Path(os.path.realpath(path))
    except (OSError, ValueError):
        return path


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
    gaps: list[KeyPath]
    """Places whose text is not known."""


def with_texts(data: Mapping[str, Any], read: Read = lambda file, path: STAND_IN_TEXT) -> dict[str, Any]:
    """A copy in which each map that names a text's file is what `read` gives for it.

    >>> with_texts({"nodes": {"a": {"prompt": {"file": "a.md"}}}})
    {'nodes': {'a': {'prompt': '-'}}}
    """
    return _fill_texts(data, (), read)


def named_text_files(data: Mapping[str, Any]) -> list[str]:
    """The files that texts of the flow stand in, as it names them."""
    files: list[str] = []

    def note(file: str, path: KeyPath) -> str:
        files.append(file)
        return STAND_IN_TEXT

    with_texts(data, note)
    return files


def read_text_files(data: Mapping[str, Any], source: SourceText, project: Project, files: FlowFiles) -> BroughtTexts:
    """The texts of all files that a flow names, each read once."""
    reader = _Reader(source, project, files)
    return BroughtTexts(with_texts(data, reader.read), reader.texts, reader.places, reader.problems, reader.gaps)


def _fill_texts(value: Mapping[str, Any], path: KeyPath, read: Read) -> dict[str, Any]:
    copy = dict(value)
    for key, each in value.items():
        at = (*path, key)
        if not is_map(each):
            continue
        if key in _TEXTS and list(each) == ["file"] and isinstance(each["file"], str):
            copy[key] = read(each["file"], at)
        elif key in _HOLDERS:
            copy[key] = _fill_texts(each, at, read)
        elif key in _MAPS_OF_HOLDERS:
            copy[key] = {
                name: _fill_texts(inner, (*at, name), read) if is_map(inner) else inner for name, inner in each.items()
            }
    return copy


class _Reader:
    def __init__(self, source: SourceText, project: Project, files: FlowFiles) -> None:
        self.texts: dict[Path, str] = {}
        self.places: dict[KeyPath, Path] = {}
        self.problems: list[Diagnostic] = []
        self.gaps: list[KeyPath] = []
        self._source = source
        self._project = project
        self._files = files
        self._base = project.root if source.path is None else source.path.parent
        self._outcomes: dict[str, tuple[Path, str] | ProjectProblem | Diagnostic] = {}
        self._size = 0

    def read(self, file: str, path: KeyPath) -> str:
        if file not in self._outcomes:
            self._outcomes[file] = self._open(file)
        outcome = self._outcomes[file]
        if isinstance(outcome, ProjectProblem):
            self._tell(outcome, (*path, "file"))
        elif isinstance(outcome, Diagnostic):
            if outcome not in self.problems:
                self.problems.append(outcome)
        else:
            name, text = outcome
            self._size += len(text)
            if self._size <= MAX_BYTES:
                self.texts[name], self.places[path] = text, name
                return text
            message = f"the texts that the flow takes from files have more than {MAX_BYTES:,} characters together"
            self._tell(ProjectProblem("FE102", message), path)
        self.gaps.append(path)
        return STAND_IN_TEXT

    def _open(self, file: str) -> tuple[Path, str] | ProjectProblem | Diagnostic:
        place = locate_file(file, self._base, self._project)
        if isinstance(place, ProjectProblem):
            return place
        problem = self._files.unreadable(*place)
        if problem is not None:
            return problem._replace(code="FE229")
        text = self._files.text(place.name)
        if isinstance(text, Diagnostic):
            return text
        text = text.replace("\r\n", "\n").removesuffix("\n")
        return refuse_characters(text, str(place.name)) or (place.name, text)

    def _tell(self, problem: ProjectProblem, path: KeyPath) -> None:
        file = None if self._source.path is None else str(self._source.path)
        node = ".".join(node_at(path)) or None
        position = self._source.position(path)
        self.problems.append(Diagnostic(problem.code, problem.message, file, *position, node, problem.hint))
