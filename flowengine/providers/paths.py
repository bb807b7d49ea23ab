"""Files and folders that a provider's configuration names: found, and kept below their root."""

from __future__ import annotations

import os
from pathlib import Path

from flowengine.providers.parameters import ParameterError

__all__ = ["MissingFileError", "OutsideError", "located"]


class MissingFileError(ParameterError):
    """A file or folder that is not there, or cannot be read as what it should be."""


class OutsideError(ParameterError):
    """A path that leaves its root."""


def located(path: str | os.PathLike[str], root: Path | None, *, parameter: str) -> Path:
    """The absolute form of a path; `root` None: relative to the current folder, and any path goes.

    Links are followed before it is judged: one that leads out of the root is outside.

    >>> located("../secrets.txt", Path("/srv/flows"), parameter="file_path")
    Traceback (most recent call last):
    ...
    flowengine.providers.paths.OutsideError: the path '../secrets.txt' leaves the folder /srv/flows
    """
    if root is None:
        return Path(path).expanduser().absolute()
    top = root.resolve()
    found = (top / path).resolve()
    if not found.is_relative_to(top):
        raise OutsideError(f"the path '{path}' leaves the folder {top}", parameter)
    return found
