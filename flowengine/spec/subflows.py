"""The files that a flow runs as nodes: each is opened once, under the project's root, and never in a circle.

What a file holds is for the loader to say, which hands itself in. Problems of the files inside are kept
here under their own names, errors alone: a file's warnings are told where that file is looked at.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final, NamedTuple, TypeAlias

from flowengine.errors import Diagnostic, ProjectError
from flowengine.spec.files import FlowFiles
from flowengine.spec.project import Problem, Project
from flowengine.spec.schema import FlowSpec

__all__ = ["Located", "Subflows", "located"]

MAX_DEPTH: Final = 16
MAX_FILES: Final = 200

Load: TypeAlias = "Callable[[Path, Project, Subflows], tuple[FlowSpec | None, Sequence[Diagnostic]]]"


class Located(NamedTuple):
    """A file that a flow names."""

    path: Path
    """Where it leads in the end."""
    shown: Path
    """As it is called in messages."""


class _Opened(NamedTuple):
    spec: FlowSpec | None
    height: int
    """Files below each other, itself included."""


class Subflows:
    """What one load has opened so far, and the files that it is in the midst of."""

    def __init__(self, load: Load, first: Path | None, files: FlowFiles) -> None:
        self.problems: list[Diagnostic] = []
        self.files = files
        self._load = load
        self._opened: dict[Path, _Opened] = {}
        self._open: list[Located] = []
        """Files that are being loaded."""
        self._heights = [0]
        if first is not None:
            self._open.append(Located(_real(first), first))

    def open(self, flow: str, base: Path, project: Project) -> FlowSpec | Problem | None:
        """The flow of a path that stands in a file of the folder `base`; None where it has problems of its own."""
        place = located(flow, base, project)
        if isinstance(place, Problem):
            return place
        path, shown = place
        circle = self._circle(path, shown)
        if circle is not None:
            return Problem("FE226", f"the flows run each other without an end: {circle}")
        if path not in self._opened:
            problem = self.files.unreadable(path, shown) or self._too_many()
            if problem is not None:
                return problem
            self._opened[path] = self._loaded(Located(path, shown), project)
        opened = self._opened[path]
        if len(self._open) - 1 + opened.height > MAX_DEPTH:
            return Problem("FE227", f"subflows may be nested {MAX_DEPTH} deep, and '{shown}' goes deeper")
        self._heights[-1] = max(self._heights[-1], opened.height)
        return opened.spec

    def _loaded(self, file: Located, project: Project) -> _Opened:
        self._open.append(file)
        self._heights.append(0)
        spec, problems = self._load(file.shown, project, self)
        self.problems += problems
        self._open.pop()
        return _Opened(spec, self._heights.pop() + 1)

    def _circle(self, path: Path, shown: Path) -> str | None:
        """The files from one to itself, where this one is being loaded already."""
        for number, each in enumerate(self._open):
            if each.path == path:
                return " → ".join(str(file.shown) for file in (*self._open[number:], Located(path, shown)))
        return None

    def _too_many(self) -> Problem | None:
        if len(self._open) > MAX_DEPTH:
            return Problem("FE227", f"subflows may be nested {MAX_DEPTH} deep, and this is one more")
        if len(self._opened) >= MAX_FILES:
            return Problem("FE227", f"a flow may bring along {MAX_FILES} files, and this is one more")
        return None


def located(file: str, base: Path, project: Project) -> Located | Problem:
    """The file of a path that stands in a flow of the folder `base`; a problem where a flow may not name it."""
    if Path(file).is_absolute():
        return Problem("FE503", f"the path '{file}' is not relative; it starts in the folder of this file")
    try:
        path = project.resolve(file, base)
    except ProjectError as error:
        return Problem("FE503", str(error))
    shown = Path(os.path.normpath(base / file))
    # `..` behind a link leads elsewhere than its letters say.
    return Located(path, shown if _real(shown) == path else path)


def _real(path: Path) -> Path:
    """Where a path leads; what leads nowhere cannot be run by another file either."""
    try:
        return Path(os.path.realpath(path))
    except (OSError, ValueError):
        return path
