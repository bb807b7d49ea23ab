"""Writes a file that a user asked for, whole or not at all: what was there stays until all of the new one is written.

The new file is written beside its place, locked by its writer, and takes it at the end; the next write of the file
removes what a killed writer left there. A link keeps leading to the file; devices and pipes are written to as they are.
It knows nothing of what is written.
"""

from __future__ import annotations

import fcntl
import os
import re
import secrets
import shutil
import stat
import tempfile
from collections.abc import Generator, Iterable
from contextlib import contextmanager, suppress
from errno import EACCES, EBUSY, EPERM, EXDEV
from pathlib import Path
from typing import BinaryIO, Final

from flowengine.errors import InputError

_STREAM_FOLDERS: Final = ("/dev", "/dev/fd", "/proc/self/fd")
"""Folders whose names are streams that somebody holds open, also where a shell led them into a file."""
_PART: Final = re.compile(r"[0-9a-f]{8}\.part")
"""How the name of a file ends that is being written."""
_IN_PLACE: Final = (EACCES, EBUSY, EPERM, EXDEV)
"""Why a file can be written and not replaced: its folder may not be, or it is mounted by itself."""


def write_output(path: str | Path, pieces: Iterable[str | bytes], *, follows_link: bool = True) -> int:
    """Write the pieces, text in UTF-8, and give the size; where one of them fails, what was there stays.

    Not `follows_link`: a link at that place is replaced, and what it leads to stays.
    """
    size = 0
    with open_output(path, follows_link=follows_link) as file:
        for piece in pieces:
            data = piece.encode("utf-8", "backslashreplace") if isinstance(piece, str) else piece
            with tells_refusals(path):
                size += file.write(data)
    return size


@contextmanager
def open_output(path: str | Path, *, follows_link: bool = True) -> Generator[BinaryIO]:
    """A file that takes its place when the block has ended well, with the owner and mode of the one that was there."""
    replaces_link = not follows_link and os.path.islink(path)
    place = Path(path if replaces_link else os.path.realpath(path))
    with tells_refusals(path):
        status = None if replaces_link else _find_status(path)
        opener = None if status is None else _open_private
        while True:
            beside = _place_beside(Path(path), place, status)
            file = open(beside or path, "xb" if beside else "wb", opener=opener)  # noqa: SIM115 - closed below, before it is put
            if beside is None or _lock(file.fileno()):
                break
            file.close()
        locked = os.dup(file.fileno())  # Until the file is in its place.
    try:
        if beside is not None:
            _remove_left_behind(beside)
        yield file
        with tells_refusals(path):
            file.close()
            if beside is not None:
                _put(beside, place, status)
    finally:
        with suppress(OSError):  # what is left of a write that was refused
            file.close()
        if beside is not None:
            beside.unlink(missing_ok=True)
        os.close(locked)


@contextmanager
def tells_refusals(path: str | Path) -> Generator[None]:
    """Adds the file's name to errors of the operating system inside the block."""
    try:
        yield
    except OSError as error:
        folder = Path(path).parent
        is_missing = isinstance(error, FileNotFoundError) and not folder.exists()
        reason = f"there is no folder '{folder}'" if is_missing else error.strerror or error
        raise InputError(f"{path} cannot be written: {reason}") from error


def _find_status(path: str | Path) -> os.stat_result | None:
    try:
        return os.stat(path)
    except FileNotFoundError:
        return None


def _place_beside(path: Path, place: Path, status: os.stat_result | None) -> Path | None:
    """Returns the path to write to first; None to write in place. `status` is that of the existing file."""
    # Where a process is killed the file stays, until the next write of the same file.
    name = f".{place.name[:40]}.{secrets.token_hex(4)}.part"
    if status is None:
        return place.with_name(name)
    if not stat.S_ISREG(status.st_mode) or str(path.parent) in _STREAM_FOLDERS:
        return None
    if not os.access(place, os.W_OK):
        raise PermissionError(EACCES, os.strerror(EACCES))
    return (place.parent if os.access(place.parent, os.W_OK) else Path(tempfile.gettempdir())) / name


def _lock(handle: int) -> bool:
    """Marks a new file as being written; False if another process has just taken it for one that was left behind."""
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:  # A file system without locks; there nothing is removed.
        return True
    return os.fstat(handle).st_nlink > 0


def _remove_left_behind(beside: Path) -> None:
    """Removes what writers of the same file left that are gone: what no process has locked."""
    begin = _PART.sub("", beside.name)
    leftovers: list[str] = []
    with suppress(OSError), os.scandir(beside.parent) as entries:
        leftovers = [
            each.path
            for each in entries
            if each.name.startswith(begin)
            and _PART.fullmatch(each.name, len(begin))
            and each.is_file(follow_symlinks=False)
        ]
    for path in leftovers:
        with suppress(OSError):
            handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
            try:
                fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
                os.unlink(path)
            finally:
                os.close(handle)


def _open_private(path: str, flags: int) -> int:
    """Opens a file that only its owner may read before it has the mode of the one that it replaces."""
    return os.open(path, flags, 0o600)


def _put(beside: Path, place: Path, status: os.stat_result | None) -> None:
    if status is not None:
        with suppress(OSError):  # Only root may give a file to another.
            os.chown(beside, status.st_uid, status.st_gid)
        beside.chmod(stat.S_IMODE(status.st_mode))
    try:
        os.replace(beside, place)
    except OSError as error:
        if status is None or error.errno not in _IN_PLACE:
            raise
        shutil.copyfile(beside, place)
