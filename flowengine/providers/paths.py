"""Files, folders and stores that a provider's configuration names: found, and judged where a flow names them."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from flowengine.flow_paths import RefusedPathError, resolve_path, resolve_store
from flowengine.providers.parameters import ParameterError

__all__ = ["MissingFileError", "OutsideError", "located", "located_store"]


class MissingFileError(ParameterError):
    """A file or folder that is not there, or cannot be read as what it should be."""


class OutsideError(ParameterError):
    """A path that a flow may not name, such as one that leaves its root."""


def located(path: str | os.PathLike[str], root: Path | None, *, parameter: str) -> Path:
    """The absolute form of a path; `root` None: relative to the current folder, and any path goes.

    Links are followed before it is judged (`flowengine.flow_paths`): one that leads out of the root is outside.

    >>> located("../secrets.txt", Path("/srv/flows"), parameter="file_path")
    Traceback (most recent call last):
    ...
    flowengine.providers.paths.OutsideError: the path '../secrets.txt' leaves the project's root /srv/flows
    """
    return _judged(resolve_path, path, root, parameter)


def located_store(path: str | os.PathLike[str], root: Path | None, *, parameter: str) -> Path:
    """As `located`, of a file that is made and written to."""
    return _judged(resolve_store, path, root, parameter)


def _judged(
    resolve: Callable[[str | os.PathLike[str], Path], Path],
    path: str | os.PathLike[str],
    root: Path | None,
    parameter: str,
) -> Path:
    if root is None:
        return Path(path).expanduser().absolute()
    try:
        return resolve(path, root)
    except RefusedPathError as error:
        raise OutsideError(str(error), parameter) from None
