"""Reads what lies in a skill's folder beside its SKILL.md, and lists what of the machine's files a script sees.

Paths cannot lead out of the folder. It runs nothing. It decides what is a script: of those only the output enters a
prompt.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path, PurePosixPath
from typing import Any, Final

from flowengine.agents.skills.skill import Skill
from flowengine.core import RefusedPathError, check_path, is_withheld, open_regular
from flowengine.errors import did_you_mean

MAX_FILE: Final = 2_000_000
"""Bytes of a file that can be read."""
MAX_LISTED: Final = 2_000
"""Files that are listed, and folders in which they are looked for."""
MAX_WITHHELD: Final = 500
"""Files and folders in a skill whose scripts run that are hidden, or keys."""

SCRIPT_SUFFIXES: Final = (".py", ".sh", ".bash", ".js", ".mjs", ".rb", ".pl", ".php", ".lua")
_TEXT_FOLDERS: Final = ("references", "assets")
"""Folders whose files are there to be read, whatever they are."""


class RefusedError(Exception):
    """Something that a skill does not give; `key` and `values` are those of a locale's text."""

    def __init__(self, key: str, **values: Any) -> None:
        super().__init__(key)
        self.key = f"errors.{key}"
        self.values = values


def resolve_path(skill: Skill, path: str) -> Path:
    """The file of this path in the skill's folder, links resolved; a `RefusedError` where there is none."""
    short_path = path[:200]
    parts = PurePosixPath(path.strip().replace("\\", "/").removeprefix("./"))
    root = Path(os.path.realpath(skill.folder))
    try:
        target = Path(os.path.realpath(root / parts))
        if parts.is_absolute() or ".." in parts.parts or not target.is_relative_to(root):
            raise RefusedError("outside", path=short_path)
        check_path(target, root, short_path)
        if not target.is_file():
            hint = did_you_mean(str(parts), list_files(skill))
            raise RefusedError("file", name=skill.name, path=short_path, hint=hint)
    except (OSError, ValueError, RefusedPathError) as error:  # A name that is too long, has a NUL in it, is hidden.
        raise RefusedError("file", name=skill.name, path=short_path, hint="") from error
    return target


def relative_path(file: Path, skill: Skill) -> str:
    """The path of a file that `path_in` gave, below its skill's folder."""
    return file.relative_to(os.path.realpath(skill.folder)).as_posix()


def read_text(path: Path, label: str) -> str:
    """The text of a file; what is no text, or too much of it, is a `RefusedError`."""
    # Neither a link that took the file's place since, nor a pipe that never ends.
    with open_regular(path, follow=False) as file:
        size = os.fstat(file.fileno()).st_size
        if size > MAX_FILE:
            raise RefusedError("large", path=label, size=f"{size:,}", limit=f"{MAX_FILE:,}")
        raw = file.read(MAX_FILE + 1)
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise RefusedError("binary", path=label, size=f"{len(raw):,}") from error
    if "\0" in text:
        raise RefusedError("binary", path=label, size=f"{len(raw):,}")
    return text.replace("\r\n", "\n")


def is_script(path: str) -> bool:
    """Tells whether a path of a skill is that of a script: its text is never shown.

    >>> is_script("scripts/run.py"), is_script("fill.py"), is_script("references/example.py"), is_script("a.md")
    (True, True, False, False)
    """
    parts = PurePosixPath(path)
    return parts.suffix.lower() in SCRIPT_SUFFIXES and (not parts.parts or parts.parts[0] not in _TEXT_FOLDERS)


def list_files(skill: Skill) -> list[str]:
    """The skill's files by their paths, without SKILL.md and what is hidden; what is nearer to the top comes first.

    Links out of the skill are left out, and so are names that are not one line of text: they stand in prompts.
    """
    root, files = os.path.realpath(skill.folder), list[str]()
    folders, visited = [skill.folder], set[str]()
    for here in folders:  # It grows.
        if (real := os.path.realpath(here)) in visited:
            continue
        visited.add(real)
        for entry in _list_entries(here):
            inside = not entry.is_symlink() or Path(os.path.realpath(entry.path)).is_relative_to(root)
            if not inside or is_withheld(entry.name) or entry.name == "__pycache__" or not entry.name.isprintable():
                continue
            if os.path.isdir(entry.path):
                folders.append(Path(entry.path))
            elif os.path.isfile(entry.path) and Path(entry.path) != skill.file:
                files.append(Path(entry.path).relative_to(skill.folder).as_posix())
        if max(len(files), len(visited)) >= MAX_LISTED:
            break
    return files[:MAX_LISTED]


def list_withheld(folder: Path) -> list[str]:
    """The paths of files and folders in a skill that are kept from flows, and so from scripts; links lead to these.

    `RefusedError` where there are too many.
    """
    hidden_paths: list[str] = []
    for here, folders, files in os.walk(folder):
        withheld = [each for each in (*folders, *files) if is_withheld(each)]
        folders[:] = [each for each in folders if not is_withheld(each)]
        paths = [Path(here, each) for each in withheld]
        hidden_paths += [path.relative_to(folder).as_posix() for path in paths if not path.is_symlink()]
        if len(hidden_paths) > MAX_WITHHELD:
            raise RefusedError("refused", reason=f"more than {MAX_WITHHELD} files of the skill are hidden")
    return hidden_paths


def _list_entries(folder: Path) -> list[os.DirEntry[str]]:
    try:
        return sorted(os.scandir(folder), key=lambda each: each.name)
    except OSError:
        return []


# --- The files that a script sees

SKILL: Final = "/skill"
VISIBLE: Final = ("/etc/ld.so.cache", "/etc/alternatives")
"""The paths that programs need beside those parts."""
_PREFIX_FOLDERS: Final = ("bin", "sbin", "lib", "lib32", "lib64", "libx32", "libexec", "share")
_SHARED_PREFIXES: Final = ("/usr", "/usr/local")


def visible_arguments(skill: Path, root: Path | None) -> list[str]:
    """The arguments for bubblewrap. `root`: of the project, of which only this Python is seen, as of the
    working folder, whose `.env` a server reads where a flow has no project file."""
    places = [
        *_list_parts("/"),
        *(part for each in (*_SHARED_PREFIXES, *python_prefixes()) for part in _list_parts(each)),
    ]
    arguments = [part for each in (*VISIBLE, *places) for part in _mount_arguments(each)]
    arguments += _hide_folders([Path.cwd(), *([] if root is None else [root])], places)
    arguments += ["--ro-bind", os.path.realpath(skill), SKILL]
    return [*arguments, *(part for each in list_withheld(skill) for part in _cover_arguments(skill, each))]


def _hide_folders(folders: Iterable[Path], places: Sequence[str]) -> Iterator[str]:
    """Covers the folders where they lie in one of the places, and shows again the places that lie in them."""
    hidden: list[Path] = []
    for real in sorted({Path(os.path.realpath(each)) for each in folders}, key=lambda path: len(path.parts)):
        above = [each for each in hidden if real.is_relative_to(each)]
        visible = [each for each in places if all(Path(each).is_relative_to(cover) for cover in above)]
        if any(real.is_relative_to(os.path.realpath(each)) for each in visible):
            within = [part for each in places if Path(each).is_relative_to(real) for part in _mount_arguments(each)]
            yield from ("--tmpfs", str(real), *within, "--remount-ro", str(real))
            hidden.append(real)


def python_prefixes() -> Iterator[str]:
    """Yields this Python's prefixes, as named and resolved; never the file system's root or a home folder."""
    too_wide = {"/", *_SHARED_PREFIXES, str(Path.home()), *map(str, Path.home().parents)}
    prefixes = (sys.prefix, sys.base_prefix)
    for prefix in dict.fromkeys(find(each) for each in prefixes for find in (os.path.abspath, os.path.realpath)):
        if prefix not in too_wide:
            yield prefix


def _list_parts(prefix: str) -> Iterator[str]:
    names = _PREFIX_FOLDERS[:-2] if prefix == "/" else (*_PREFIX_FOLDERS, "pyvenv.cfg")
    yield from (os.path.join(prefix, name) for name in names)


def _mount_arguments(place: str) -> Sequence[str]:
    above = [part for each in reversed(Path(place).parents[:-1]) for part in ("--dir", str(each))]
    if os.path.islink(place):
        return [*above, "--symlink", os.readlink(place), place]
    # Folders that are made on the way would be closed to others.
    return [*above, "--ro-bind", place, place] if os.path.exists(place) else []


def _cover_arguments(skill: Path, path: str) -> Sequence[str]:
    """Nothing in the place of what is kept from flows."""
    if (skill / path).is_dir():
        return ["--tmpfs", f"{SKILL}/{path}", "--remount-ro", f"{SKILL}/{path}"]
    return ["--ro-bind", "/dev/null", f"{SKILL}/{path}"]
