"""One writer a run, among all processes of a machine.

The right to write is an advisory lock of the operating system on a small file. The kernel lets go of it
when its owner dies, however it dies, and never mistakes a new process for an old one; so a run whose
process was killed can be continued at once. The file's text, the owner's process id, is for messages only.

Needs `flock` (Linux, macOS, BSD). A process that forks without exec shares its locks with the child.
"""

from __future__ import annotations

import fcntl
import os
from contextlib import suppress
from pathlib import Path
from typing import Final

from flowengine.errors import StoreUnavailableError

__all__ = ["Ownership", "claim"]

_WIDTH: Final = 20
"""Padded, so that no earlier owner's id has to be cut off: truncating costs three times the rest."""


class Ownership:
    """A lock that is held until `release`."""

    def __init__(self, path: Path, descriptor: int) -> None:
        self._path = path
        self._descriptor: int | None = descriptor

    def release(self) -> None:
        if self._descriptor is None:
            return
        with suppress(OSError):  # the lock counts, not the file: one left behind does no harm
            os.unlink(self._path)
        os.close(self._descriptor)
        self._descriptor = None


def claim(path: Path, run_id: str) -> Ownership:
    """Become the run's writer, or `StoreUnavailableError` says who is."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        while True:
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
            if _locked(path, descriptor, run_id):
                return Ownership(path, descriptor)
            os.close(descriptor)
    except OSError as error:
        raise StoreUnavailableError(
            f"run '{run_id}' cannot be claimed for writing through {path}: {error.strerror}; "
            f"the folder must be writable and support file locks"
        ) from error


def _locked(path: Path, descriptor: int, run_id: str) -> bool:
    """Whether the lock is ours now; False where the file was removed by its last owner meanwhile."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        owner = os.pread(descriptor, _WIDTH, 0).decode(errors="replace").strip()
        os.close(descriptor)
        raise StoreUnavailableError(
            f"run '{run_id}' is being written by process {owner or '(just starting)'}; "
            f"wait until it ends, or stop that process"
        ) from error
    try:
        if os.stat(path).st_ino != os.fstat(descriptor).st_ino:
            return False
    except FileNotFoundError:
        return False
    os.pwrite(descriptor, f"{os.getpid():<{_WIDTH}}".encode(), 0)
    return True
