"""Where the text of a flow is at home that a run brings along: in a shared database, or in a file from elsewhere.

What such a text may call, and which files it may name, follows from its place (`project`). So the run does not choose
the place. It is below the root of the project that this process works in, beside a flow or under the same project
file, and where the run says another one, it is the working folder.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

from flowengine.spec.project import Project, project_of

__all__ = ["place_of"]

_MARK: Final = re.compile(rb"^\s*\{?\s*flowengine\s*:", re.MULTILINE)
_HEAD: Final = 8_000
"""Bytes in which a flow file says that it is one."""


def place_of(path: str, folder: str = "", here: Path | None = None) -> Path:
    """The path under which the text is read; `path` and `folder` are what the run says, `here` is the working folder.

    >>> place_of("os.yaml", "/usr/lib/python3", Path("/srv/flows"))
    PosixPath('/srv/flows/os.yaml')
    """
    here = (here or Path()).absolute()
    project, _ = project_of(here)
    try:
        there = (here / folder / path).resolve()
        if there.is_relative_to(project.root.resolve()) and (_is_flow(there) or _is_governed(there, project)):
            return there
    except (OSError, ValueError, RuntimeError):  # No path at all, or a circle of links.
        pass
    return here / _name(path)


def _is_flow(path: Path) -> bool:
    """Whether there is a flow file: whoever keeps flows in a folder has the code for them beside it."""
    if path.suffix not in (".yaml", ".yml") or not path.is_file():
        return False
    with path.open("rb") as file:
        return _MARK.search(file.read(_HEAD)) is not None


def _is_governed(path: Path, project: Project) -> bool:
    """Whether the project file of the working folder says what is allowed there."""
    return project.file is not None and project_of(path)[0].file == project.file.resolve()


def _name(path: str) -> str:
    name = Path(path.replace("\0", "")).name
    return name if name not in ("", "..") else "flow.yaml"
