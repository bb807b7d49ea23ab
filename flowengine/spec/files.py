"""Where the texts of flow files come from: the disk, or what a run has brought along from another machine.

The loader asks for a text by its path and does not know which of the two answers. A run's files are looked up by
the path that leads to them from the project's root, letter by letter: no link is followed, nothing on the disk is
looked at.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Final, Protocol

from flowengine.errors import Diagnostic, did_you_mean
from flowengine.flow_paths import is_withheld
from flowengine.spec.project import Problem
from flowengine.spec.yaml_text import MAX_BYTES, decode

__all__ = ["DISK", "BroughtFiles", "FlowFiles", "below"]


_LIKE: Final = {".yaml": "*.y*ml", ".yml": "*.y*ml"}
"""Suffix → the files that may be meant by a name that is not there."""


class FlowFiles(Protocol):
    """The files that a flow may run as nodes, or take texts from."""

    def unreadable(self, path: Path, shown: Path) -> Problem | None:
        """Why a file is not even to be opened; `path` is where `shown` leads in the end."""
        ...

    def text(self, path: Path) -> str | Diagnostic:
        """What a file holds, or why that is not known."""
        ...


class _Disk:
    def unreadable(self, path: Path, shown: Path) -> Problem | None:
        try:
            if path.is_file():
                return None
            if path.exists():
                return Problem("FE225", f"'{shown}' is no file")
            names = (each.name for each in path.parent.glob(_LIKE.get(path.suffix, "*")))
            near = [name for name in names if not is_withheld(name)]
        except (OSError, ValueError) as error:
            return Problem("FE225", f"'{shown}' cannot be read: {error}")
        return Problem("FE225", f"there is no file '{shown}'", did_you_mean(path.name, near))

    def text(self, path: Path) -> str | Diagnostic:
        file = str(path)
        try:
            with path.open("rb") as opened:
                data = opened.read(MAX_BYTES + 1)  # A device has no size, and no end.
            return _too_large(max(path.stat().st_size, len(data)), file) or decode(data, file)
        except (OSError, ValueError) as error:
            reason = getattr(error, "strerror", None) or str(error)
            return Diagnostic("FE101", f"cannot read the file: {reason}", file)


DISK: Final[FlowFiles] = _Disk()


class BroughtFiles:
    """The files of a run, by their paths below `root`.

    >>> BroughtFiles(Path("/project"), {"parts/a.yaml": "flowengine: v1"}).text(Path("/project/parts/../parts/a.yaml"))
    'flowengine: v1'
    """

    def __init__(self, root: Path, texts: Mapping[str, str]) -> None:
        self._root = root
        self._texts = texts

    def unreadable(self, path: Path, shown: Path) -> Problem | None:
        name = below(self._root, shown)
        if name in self._texts:
            return None
        return Problem("FE225", f"the run has brought no file '{name}'", did_you_mean(name, self._texts))

    def text(self, path: Path) -> str | Diagnostic:
        found = self._texts.get(below(self._root, path))
        if found is None:
            return Diagnostic("FE101", "the run has not brought the file", str(path))
        data = found.encode("utf-8", "surrogatepass")
        return _too_large(len(data), str(path)) or decode(data, str(path))


def _too_large(size: int, file: str) -> Diagnostic | None:
    if size <= MAX_BYTES:
        return None
    return Diagnostic("FE102", f"the file has {size:,} bytes; it may have {MAX_BYTES:,}", file, 1, 1)


def below(root: Path, path: Path) -> str:
    """How a file is called from a folder, with / on every system.

    >>> below(Path("/project"), Path("/project/flows/../parts/a.yaml"))
    'parts/a.yaml'
    """
    return Path(os.path.relpath(os.path.abspath(path), os.path.abspath(root))).as_posix()
