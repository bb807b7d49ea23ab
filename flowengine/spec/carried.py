"""Where the text of a flow is at home that a run brings along: in a shared database, or in a file from elsewhere.

What such a text may call, and which files it may name, follows from its place (`project`). So the run does not choose
the place. Without a project file it is the working folder and no other. Under one, it may be any place that a flow may
name (`flowengine.flow_paths`) and that the same project file governs, or where a flow file is.
"""

from __future__ import annotations

from pathlib import Path

from flowengine.flow_paths import RefusedPathError, resolve_path
from flowengine.spec.loader import is_flow_file
from flowengine.spec.project import Project, project_of

__all__ = ["place_of"]


def place_of(path: str, folder: str = "", here: Path | None = None) -> Path:
    """The path under which the text is read; `path` and `folder` are what the run says, `here` is the working folder.

    >>> place_of("os.yaml", "/usr/lib/python3", Path("/srv/flows"))
    PosixPath('/srv/flows/os.yaml')
    """
    here = (here or Path()).absolute()
    project, _ = project_of(here)
    if project.file is not None:
        try:
            there = resolve_path(path, project.root, here / folder)
            if _is_governed(there, project) or is_flow_file(there):
                return there
        except (RefusedPathError, OSError, ValueError):
            pass
    return here / _name(path)


def _is_governed(path: Path, project: Project) -> bool:
    """Whether the project file of the working folder says what is allowed there."""
    return project.file is not None and project_of(path)[0].file == project.file.resolve()


def _name(path: str) -> str:
    name = Path(path.replace("\0", "")).name
    return name if name not in ("", "..") else "flow.yaml"
