"""Who writes, and whether it is still alive, among all processes of a machine.

A writer has a name that is never given again, and holds an advisory lock of the operating system on a small
file of that name for as long as it may write. The kernel lets go of the lock when the process dies, however
it dies, and never mistakes a new process for an old one; so what a killed process was writing can be
continued at once. A file that is not there, or whose lock is free, is that of a writer which is gone for good.

What a writer writes is not known here: a run names its writer in the store. (A file for each run instead
costs 100 to 500 µs a run.) The name begins with the process id, for messages only.

Needs `flock` (Linux, macOS, BSD). A process that forks without exec shares its locks with the child.
"""

from __future__ import annotations

import fcntl
import os
import re
import secrets
from contextlib import suppress
from pathlib import Path
from typing import Final

from flowengine.errors import StoreUnavailableError

__all__ = ["Ownership", "claim", "is_alive", "process_of"]

_NAME: Final = re.compile(r"[0-9]+-[0-9a-f]{12}")
"""A store may be damaged or hostile: what it calls a writer must not lead to any other file."""


class Ownership:
    """A writer's name, and the lock that is held until `release`."""

    def __init__(self, path: Path, descriptor: int) -> None:
        self.name = path.name
        self._path = path
        self._descriptor: int | None = descriptor
        self._process = os.getpid()

    def release(self) -> None:
        if self._descriptor is None:
            return
        if self._process == os.getpid():  # a forked child has the lock too, and must leave it to its parent
            _remove(self._path)
        os.close(self._descriptor)
        self._descriptor = None


def claim(folder: Path) -> Ownership:
    """A new name with its lock; the files of writers that died are removed."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for left in os.listdir(folder):
            is_alive(folder, left)
        while True:
            path = folder / f"{os.getpid()}-{secrets.token_hex(6)}"
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o644)
            if _locked(path, descriptor):
                return Ownership(path, descriptor)
            os.close(descriptor)
    except OSError as error:
        raise StoreUnavailableError(
            f"no run can be claimed for writing through {folder}: {error.strerror}; "
            f"the folder must be writable and support file locks"
        ) from error


def is_alive(folder: Path, name: str) -> bool:
    """Whether the writer of that name may still write. The file of one that is dead is removed."""
    if not _NAME.fullmatch(name):
        return False
    try:
        descriptor = os.open(folder / name, os.O_RDONLY)
    except OSError as error:
        return not isinstance(error, FileNotFoundError)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)  # shared, so that who asks is not taken for an owner
        _remove(folder / name)
    except OSError:
        return True
    finally:
        os.close(descriptor)
    return False


def process_of(name: str) -> str:
    """
    >>> process_of("4711-a0b1c2d3e4f5")
    '4711'
    """
    return name.partition("-")[0]


def _locked(path: Path, descriptor: int) -> bool:
    """Whether the lock is ours now; False where another claim took the new file for that of a dead writer."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return os.stat(path).st_ino == os.fstat(descriptor).st_ino
    except (BlockingIOError, FileNotFoundError):
        return False


def _remove(path: Path) -> None:
    with suppress(OSError):  # the lock counts, not the file: one left behind does no harm
        os.unlink(path)
