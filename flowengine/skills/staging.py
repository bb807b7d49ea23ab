"""Makes a skill's folder readable for the user that its scripts run as, where root's own permissions forbid it.

Root's scripts run as `nobody`, to whom a folder with the mode 0700 is closed. Such a skill is copied for one execution;
every other folder is used as it is. It knows files and their modes, and no sandbox.
"""

from __future__ import annotations

import os
import shutil
import stat
import tempfile
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from flowengine.skills.files import RefusedError

__all__ = ["MAX_COPY", "readable"]

MAX_COPY: Final = 100_000_000
"""Bytes of a skill that is copied."""


@contextmanager
def readable(folder: Path) -> Generator[Path]:
    """The folder, or a copy of it that everybody can read."""
    if _is_open(folder):
        yield folder
        return
    with tempfile.TemporaryDirectory(prefix="flowengine-skill-") as place:
        os.chmod(place, 0o755)
        copy = Path(place, "skill")
        _copy(folder, copy)
        yield copy


def _is_open(folder: Path) -> bool:
    for path, found in _entries(folder):
        wanted = 0o005 if path.is_dir() else 0o004
        if not stat.S_ISLNK(found.st_mode) and found.st_mode & wanted != wanted:
            return False
    return True


def _entries(folder: Path) -> Iterator[tuple[Path, os.stat_result]]:
    yield folder, folder.stat()
    for here, folders, files in os.walk(folder):
        for name in (*folders, *files):
            path = Path(here, name)
            yield path, path.lstat()


def _copy(folder: Path, copy: Path) -> None:
    size = sum(found.st_size for _, found in _entries(folder))
    if size > MAX_COPY:
        reason = f"the user that they run as may not read the skill, and it is too large to be copied ({size:,} bytes)"
        raise RefusedError("refused", reason=reason)
    # Links stay links: what they lead to outside the folder is not there for the script.
    shutil.copytree(folder, copy, symlinks=True, ignore=_special)
    for path, found in _entries(copy):
        if not stat.S_ISLNK(found.st_mode):
            os.chmod(path, found.st_mode | (0o055 if path.is_dir() else 0o044))


def _special(folder: str, names: list[str]) -> list[str]:
    """Pipes, sockets and devices, which cannot be copied."""
    return [each for each in names if not _is_plain(os.lstat(os.path.join(folder, each)).st_mode)]


def _is_plain(mode: int) -> bool:
    return stat.S_ISREG(mode) or stat.S_ISDIR(mode) or stat.S_ISLNK(mode)
