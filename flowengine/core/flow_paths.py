"""Judges every path that stands in a flow or that a run brings along: which files a flow may name.

1. It lies below the root, after links are followed.
2. After links are followed, no part of it below the root begins with a dot: no `.env`, no `.git`, no `.venv`.
3. It is no `*.pem` and no `*.key`.
4. It is a regular file or a folder: no pipe, no socket, no device.
5. A store, which is made and written to, ends in `.db`, `.sqlite` or `.sqlite3`, so it is never taken for anything
   that this program reads as text: a flow, a project file, a module.

Paths that people and projects choose (the flow that is run, the store of runs, `@file` of a command line) are not
judged here.
It knows names and kinds of files. It knows neither flows nor projects, and reads nothing.
"""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path
from typing import BinaryIO, Final

from flowengine.errors import DefinitionError

_SECRETS: Final = (".pem", ".key")
_STORES: Final = (".db", ".sqlite", ".sqlite3")
_FLAGS: Final = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_CLOEXEC", 0)


class RefusedPathError(DefinitionError):
    """A path that a flow may not name; the message says why."""


def resolve_path(path: str | os.PathLike[str], root: Path, base: Path | None = None) -> Path:
    """The file or folder of a path, links followed; `RefusedPathError` where a flow may not name it.

    `base` is the folder that the path starts in; None: the root.

    >>> resolve_path("../secrets.txt", Path("/srv/flows"))
    Traceback (most recent call last):
    ...
    flowengine.core.flow_paths.RefusedPathError: the path '../secrets.txt' leaves the project's root /srv/flows
    >>> resolve_path("a/.env", Path("/srv/flows"))
    Traceback (most recent call last):
    ...
    flowengine.core.flow_paths.RefusedPathError: the path 'a/.env' is hidden ('.env'): a flow may not name it
    """
    try:
        top = root.resolve()
        target = ((top if base is None else base) / path).resolve()
    except (OSError, ValueError, RuntimeError) as error:  # A NUL in it, or a circle of links.
        raise RefusedPathError(f"'{path!s:.100}' cannot be a path: {error}") from error
    check_path(target, top, os.fspath(path))
    return target


def resolve_store(path: str | os.PathLike[str], root: Path) -> Path:
    """The file of a store; `RefusedPathError` where a flow may not have one made or written there."""
    store = resolve_path(path, root)
    if store.suffix.lower() not in _STORES:
        raise RefusedPathError(f"the path '{path}' is no store's: it must end in {', '.join(_STORES)}")
    return store


def check_path(target: Path, root: Path, label: str) -> None:
    """Refuse a path that a flow may not name. `target` and `root` have no links in them, `label` is as it was named."""
    if not target.is_relative_to(root):
        raise RefusedPathError(f"the path '{label}' leaves the project's root {root}")
    for part in target.relative_to(root).parts:
        if is_withheld(part):
            why = f"is hidden ('{part}')" if part.startswith(".") else f"is that of a key ('{part}')"
            raise RefusedPathError(f"the path '{label}' {why}: a flow may not name it")
    try:
        mode = target.stat().st_mode
    except (FileNotFoundError, NotADirectoryError, PermissionError):  # Told when it is opened.
        return
    except OSError as error:  # Too long a name.
        raise RefusedPathError(f"'{label:.100}' cannot be a path: {error.strerror}") from error
    if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):
        raise RefusedPathError(f"the path '{label}' is neither a file nor a folder: a flow may not name it")


def is_withheld(name: str) -> bool:
    """Tells whether a file or folder of this name is kept from flows.

    >>> [is_withheld(each) for each in (".env", ".git", "server.KEY", "ca.pem", "keys.md", "a.b")]
    [True, True, True, True, False, False]
    """
    return name.startswith(".") or name.lower().endswith(_SECRETS)


def open_regular(path: str | os.PathLike[str], *, follow: bool = True) -> BinaryIO:
    """A regular file, opened for reading; `OSError` for anything else, without waiting for a pipe's other end.

    `follow`: whether the file may be a link.
    """
    try:
        handle = os.open(path, _FLAGS if follow else _FLAGS | getattr(os, "O_NOFOLLOW", 0))
    except ValueError as error:  # A NUL in the name, or what no encoding has.
        raise OSError(errno.EINVAL, f"no file can have this name ({error})", os.fspath(path)) from error
    try:
        mode = os.fstat(handle).st_mode
        if stat.S_ISDIR(mode):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), os.fspath(path))
        if not stat.S_ISREG(mode):
            raise OSError(errno.EINVAL, "it is no regular file", os.fspath(path))
        return os.fdopen(handle, "rb")
    except BaseException:
        os.close(handle)
        raise
