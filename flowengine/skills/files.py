"""Level 3: what lies in a skill's folder beside its SKILL.md, by paths that cannot lead out of it.

It reads files and runs nothing. What is a script is decided here: of those only the output enters a prompt.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import Any, Final

from flowengine.errors import did_you_mean
from flowengine.flow_paths import RefusedPathError, check_path, is_withheld, open_regular
from flowengine.skills.skill import Skill

__all__ = [
    "MAX_FILE",
    "SCRIPT_SUFFIXES",
    "RefusedError",
    "is_script",
    "listed",
    "path_in",
    "read_text",
    "relative",
    "withheld_below",
]

MAX_FILE: Final = 2_000_000
"""Bytes of a file that can be read."""
MAX_LISTED: Final = 2_000
MAX_WITHHELD: Final = 500
"""Files and folders in a skill whose scripts run that are hidden, or keys."""

SCRIPT_SUFFIXES: Final = (".py", ".sh", ".bash", ".js", ".mjs", ".rb", ".pl", ".php", ".lua")
_TEXTS: Final = ("references", "assets")
"""Folders whose files are there to be read, whatever they are."""


class RefusedError(Exception):
    """Something that a skill does not give; `key` and `values` are those of a locale's text."""

    def __init__(self, key: str, **values: Any) -> None:
        super().__init__(key)
        self.key = f"errors.{key}"
        self.values = values


def path_in(skill: Skill, path: str) -> Path:
    """The file of this path in the skill's folder, links resolved; a `RefusedError` where there is none."""
    shown = path[:200]
    parts = PurePosixPath(path.strip().replace("\\", "/").removeprefix("./"))
    root = Path(os.path.realpath(skill.folder))
    try:
        target = Path(os.path.realpath(root / parts))
        if parts.is_absolute() or ".." in parts.parts or not target.is_relative_to(root):
            raise RefusedError("outside", path=shown)
        check_path(target, root, shown)
        if not target.is_file():
            hint = did_you_mean(str(parts), listed(skill))
            raise RefusedError("file", name=skill.name, path=shown, hint=hint)
    except (OSError, ValueError, RefusedPathError) as error:  # A name that is too long, has a NUL in it, is hidden.
        raise RefusedError("file", name=skill.name, path=shown, hint="") from error
    return target


def relative(file: Path, skill: Skill) -> str:
    """The path of a file that `path_in` gave, below its skill's folder."""
    return file.relative_to(os.path.realpath(skill.folder)).as_posix()


def read_text(path: Path, shown: str) -> str:
    """The text of a file; what is no text, or too much of it, is a `RefusedError`."""
    # Neither a link that took the file's place since, nor a pipe that never ends.
    with open_regular(path, follow=False) as file:
        size = os.fstat(file.fileno()).st_size
        if size > MAX_FILE:
            raise RefusedError("large", path=shown, size=f"{size:,}", limit=f"{MAX_FILE:,}")
        raw = file.read(MAX_FILE + 1)
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise RefusedError("binary", path=shown, size=f"{len(raw):,}") from error
    if "\0" in text:
        raise RefusedError("binary", path=shown, size=f"{len(raw):,}")
    return text.replace("\r\n", "\n")


def is_script(path: str) -> bool:
    """Whether a path of a skill is that of a script: its text is never shown.

    >>> is_script("scripts/run.py"), is_script("fill.py"), is_script("references/example.py"), is_script("a.md")
    (True, True, False, False)
    """
    parts = PurePosixPath(path)
    return parts.suffix.lower() in SCRIPT_SUFFIXES and (not parts.parts or parts.parts[0] not in _TEXTS)


def listed(skill: Skill) -> list[str]:
    """The skill's files by their paths, without SKILL.md and without what is hidden; links out of it are left out."""
    return list(_below(skill.folder, skill))


def _below(folder: Path, skill: Skill) -> Iterator[str]:
    root, pending, count = os.path.realpath(skill.folder), [folder], 0
    seen: set[str] = set()
    while pending and count < MAX_LISTED:
        here = pending.pop(0)
        if (real := os.path.realpath(here)) in seen:
            continue
        seen.add(real)
        for entry in _entries(here):
            inside = not entry.is_symlink() or Path(os.path.realpath(entry.path)).is_relative_to(root)
            if not inside or is_withheld(entry.name) or entry.name == "__pycache__":
                continue
            if os.path.isdir(entry.path):
                pending.append(Path(entry.path))
            elif os.path.isfile(entry.path) and Path(entry.path) != skill.file:
                count += 1
                yield Path(entry.path).relative_to(skill.folder).as_posix()


def withheld_below(folder: Path) -> list[str]:
    """The paths of files and folders in a skill that are kept from flows, and so from scripts; links lead to these.

    `RefusedError` where there are too many.
    """
    found: list[str] = []
    for here, folders, files in os.walk(folder):
        withheld = [each for each in (*folders, *files) if is_withheld(each)]
        folders[:] = [each for each in folders if not is_withheld(each)]
        paths = [Path(here, each) for each in withheld]
        found += [path.relative_to(folder).as_posix() for path in paths if not path.is_symlink()]
        if len(found) > MAX_WITHHELD:
            raise RefusedError("refused", reason=f"more than {MAX_WITHHELD} files of the skill are hidden")
    return found


def _entries(folder: Path) -> list[os.DirEntry[str]]:
    try:
        return sorted(os.scandir(folder), key=lambda each: each.name)
    except OSError:
        return []
