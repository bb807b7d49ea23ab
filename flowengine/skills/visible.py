"""What of the machine's files a script sees: parts of `/usr`, parts of this Python, its skill. All of it read-only.

Of each folder in which programs are installed only the parts with programs in them are there: a project may lie below
`/usr` (`/usr/src/app` is usual in containers), and a virtual environment may be the project's own folder.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from flowengine.skills.files import withheld_below

__all__ = ["SKILL", "VISIBLE", "prefixes", "visible"]

SKILL: Final = "/skill"
VISIBLE: Final = ("/etc/ld.so.cache", "/etc/alternatives")
"""What programs need beside those parts."""
_PARTS: Final = ("bin", "sbin", "lib", "lib32", "lib64", "libx32", "libexec", "share")
_SHARED: Final = ("/usr", "/usr/local")


def visible(skill: Path, root: Path | None) -> list[str]:
    """The arguments for bubblewrap. `root`: of the project, of which only this Python is seen."""
    places = [*_parts("/"), *(part for each in (*_SHARED, *prefixes()) for part in _parts(each))]
    arguments = [part for each in (*VISIBLE, *places) for part in _mounted(each)]
    real = None if root is None else Path(os.path.realpath(root))
    if real is not None and any(real.is_relative_to(os.path.realpath(each)) for each in places):
        within = [part for each in places if Path(each).is_relative_to(real) for part in _mounted(each)]
        arguments += ["--tmpfs", str(real), *within, "--remount-ro", str(real)]
    arguments += ["--ro-bind", os.path.realpath(skill), SKILL]
    return [*arguments, *(part for each in withheld_below(skill) for part in _covered(skill, each))]


def prefixes() -> Iterator[str]:
    """Where this Python lives, as named and as resolved; never the whole file system or a home folder."""
    too_wide = {"/", *_SHARED, str(Path.home()), *map(str, Path.home().parents)}
    named = (sys.prefix, sys.base_prefix)
    for prefix in dict.fromkeys(find(each) for each in named for find in (os.path.abspath, os.path.realpath)):
        if prefix not in too_wide:
            yield prefix


def _parts(prefix: str) -> Iterator[str]:
    names = _PARTS[:-2] if prefix == "/" else (*_PARTS, "pyvenv.cfg")
    yield from (os.path.join(prefix, name) for name in names)


def _mounted(place: str) -> Sequence[str]:
    above = [part for each in reversed(Path(place).parents[:-1]) for part in ("--dir", str(each))]
    if os.path.islink(place):
        return [*above, "--symlink", os.readlink(place), place]
    # Folders that are made on the way would be closed to others.
    return [*above, "--ro-bind", place, place] if os.path.exists(place) else []


def _covered(skill: Path, path: str) -> Sequence[str]:
    """Nothing in the place of what is kept from flows."""
    if (skill / path).is_dir():
        return ["--tmpfs", f"{SKILL}/{path}", "--remount-ro", f"{SKILL}/{path}"]
    return ["--ro-bind", "/dev/null", f"{SKILL}/{path}"]
