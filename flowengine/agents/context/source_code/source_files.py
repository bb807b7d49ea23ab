"""Lists the source files of a folder, without hidden ones, links, caches, data and ignored ones, and reads them.

It knows folders, names and sizes; what texts mean is not known here. Files and folders that went, or that may not be
read, are left out. A disk that does not answer is an error: nobody takes it for one from which all files were deleted.
"""

from __future__ import annotations

import errno
import os
import re
import stat
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import count, islice
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeAlias

from pathspec import GitIgnoreSpec

from flowengine.core import is_withheld, open_regular

_ABSENT: Final = frozenset(
    {
        *(errno.ENOENT, errno.ENOTDIR, errno.EACCES, errno.EPERM),
        *(errno.EISDIR, errno.ELOOP, errno.ENXIO, errno.EINVAL, errno.ENAMETOOLONG),
    }
)
"""Errors that say that there is no such file to be read. All others (too many open files, a disk that does not answer)
say nothing about the file."""

# --- The lines of a source file

_MAX_SOURCE_BYTES: Final = 1_000_000
"""Bytes that are read, and from which on a file is taken for data."""
_SAMPLE_BYTES: Final = 8192
"""Bytes of the beginning in which a zero makes the file no text."""
_MAX_LINE_WIDTH: Final = 500
"""Characters that a line of code has on average, at most."""


def lines_of(path: Path) -> list[str] | None:
    """The lines of a text file, without their ends; None where there is none. What is no UTF-8 is replaced."""
    content = _read_text(path, _MAX_SOURCE_BYTES)
    if content is None:
        return None
    text = content.decode("utf-8-sig", "replace").replace("\r\n", "\n").replace("\r", "\n")
    return text.removesuffix("\n").split("\n") if text.strip() else None


def is_written(lines: Sequence[str]) -> bool:
    """Tells whether a person may have written these lines of code; what was made small for machines has few long
    ones.
    """
    return sum(map(len, lines)) <= _MAX_LINE_WIDTH * len(lines)


def is_text(path: Path) -> bool:
    """Tells whether a file begins as a text does."""
    return _read_text(path, _SAMPLE_BYTES) is not None


def _read_text(path: Path, most: int) -> bytes | None:
    try:
        with open_regular(path, follow=False) as file:  # A link or a pipe may have taken its place since it was listed.
            content = file.read(most)
    except OSError as error:
        if error.errno not in _ABSENT:
            raise
        return None
    return None if b"\0" in content[:_SAMPLE_BYTES] else content


_MOST_FILES: Final = 20_000
_MOST_NAMES: Final = 400_000
"""Files and folders that are looked at, whatever they are."""

_CACHE_FOLDERS: Final = frozenset({"node_modules", "__pycache__"})
_MARKER_FILES: Final = frozenset({"pyvenv.cfg", "CACHEDIR.TAG"})
"""Files that say of their folder that its content is generated or installed."""
_DATA_SUFFIXES: Final = (
    ".csv",
    ".ipynb",
    ".jsonl",
    ".lock",
    ".log",
    ".map",
    ".min.css",
    ".min.js",
    ".ndjson",
    ".svg",
    ".tsv",
)
_IGNORE_FILE: Final = ".gitignore"


class FileStamp(NamedTuple):
    """A file's size and times; a file counts as changed if they differ."""

    modified: int
    """Nanoseconds."""
    size: int


class FileListing(NamedTuple):
    """The source files of a folder."""

    files: Mapping[str, FileStamp]
    """By their paths below the folder, `/` between the parts; what is nearer to the top comes first."""
    is_whole: bool
    """False where there are more than are taken."""
    large: Sequence[str] = ()
    """Paths of those that are too large, whatever they hold."""


class _Spec(NamedTuple):
    """A parsed `.gitignore`, with the stamp of its file."""

    number: int
    """No other has it."""
    stamp: FileStamp
    patterns: GitIgnoreSpec


class _Rules(NamedTuple):
    """One `.gitignore`, for paths below its folder."""

    above: str
    """The path from its folder to the top of the tree, with a `/` at the end; empty for folders of the tree."""
    below: str
    """The path from the top of the tree to its folder, likewise; empty for folders above."""
    spec: _Spec

    def decide(self, path: str) -> bool | None:
        """Tells whether a path below the top is ignored; None where no rule speaks of it."""
        return self.spec.patterns.check_file(self.above + path.removeprefix(self.below)).include


_Chain: TypeAlias = tuple[_Rules, ...]
"""Rules that hold for a folder, the nearest last."""


class _Folder(NamedTuple):
    """A folder still to be looked at."""

    path: str
    prefix: str
    """Its path below the top, with a `/` at the end."""
    rules: _Chain


class CodeTree:
    """The source files below a folder. `outermost`: where the search for rules of folders above it ends."""

    def __init__(self, top: Path, outermost: Path | None = None) -> None:
        self.top = Path(os.path.realpath(top))
        self._outermost = self.top if outermost is None else Path(os.path.realpath(outermost))
        self._specs: dict[str, _Spec] = {}
        self._numbers = count()
        self._decided: dict[tuple[int, ...], dict[str, bool]] = {}

    def listing(self) -> FileListing:
        """The files as they are now; `OSError` where the tree itself cannot be read."""
        files: dict[str, FileStamp] = {}
        large: list[str] = []
        names = 0
        folders = deque([_Folder(str(self.top), "", self._rules_above())])
        while folders:
            folder = folders.popleft()
            entries = _list_entries(folder)
            names += len(entries)
            if names > _MOST_NAMES:
                return FileListing(files, False, large)
            if any(each.name in _MARKER_FILES for each in entries) and folder.prefix:
                continue
            inner, stamps = self._sorted_out(folder, entries)
            folders += inner
            large += [path for path, stamp in stamps.items() if stamp.size >= _MAX_SOURCE_BYTES]
            files |= {path: stamp for path, stamp in stamps.items() if stamp.size < _MAX_SOURCE_BYTES}
            if len(files) > _MOST_FILES:
                return FileListing(dict(list(files.items())[:_MOST_FILES]), False, large)
        return FileListing(files, True, large)

    def _sorted_out(
        self, folder: _Folder, entries: Sequence[os.DirEntry[str]]
    ) -> tuple[list[_Folder], dict[str, FileStamp]]:
        """The folders to look at, and the source files, large ones included."""
        rules = folder.rules
        if any(each.name == _IGNORE_FILE for each in entries) and (spec := self._spec(Path(folder.path, _IGNORE_FILE))):
            rules = (*rules, _Rules("", folder.prefix, spec))
        folders: list[_Folder] = []
        files: dict[str, FileStamp] = {}
        for entry in entries:
            path = folder.prefix + entry.name
            if is_withheld(entry.name) or not _is_one_line(entry.name) or (status := _read_stat(entry)) is None:
                continue
            if stat.S_ISDIR(status.st_mode):
                if entry.name not in _CACHE_FOLDERS and not self._is_ignored(rules, f"{path}/"):
                    folders.append(_Folder(entry.path, f"{path}/", rules))
            elif _may_be_text(entry.name, status) and not self._is_ignored(rules, path):
                files[path] = FileStamp(status.st_mtime_ns, status.st_size)
        return folders, files

    def _is_ignored(self, rules: _Chain, path: str) -> bool:
        """Tells whether the nearest rule that mentions a path ignores it. Cached: matching takes most of a listing."""
        if not rules:
            return False
        decided = self._decided.setdefault(tuple(each.spec.number for each in rules), {})
        if path not in decided:
            says = (each.decide(path) for each in reversed(rules))
            decided[path] = next((each for each in says if each is not None), False)
        return decided[path]

    def _rules_above(self) -> _Chain:
        """Those of the folders above, up to the one that git calls the top; none where they ignore this very tree."""
        rules: list[_Rules] = []
        folder = self.top
        while not (folder / ".git").exists() and folder != folder.parent:
            folder = folder.parent
        outermost = folder if (folder / ".git").exists() else self._outermost
        for each in self.top.parents if self.top.is_relative_to(outermost) and self.top != outermost else ():
            if spec := self._spec(each / _IGNORE_FILE):
                rules.insert(0, _Rules(f"{self.top.relative_to(each).as_posix()}/", "", spec))
            if each == outermost:
                break
        return () if self._is_ignored(tuple(rules), "") else tuple(rules)

    def _spec(self, path: Path) -> _Spec | None:
        """A file of rules, read when it has changed; the same object while it has not."""
        try:
            status = path.stat()
            stamp = FileStamp(status.st_mtime_ns, status.st_size)
            spec = self._specs.get(str(path))
            if spec is None or spec.stamp != stamp:
                with open_regular(path) as file:
                    text = file.read().decode("utf-8", "replace") if stamp.size < _MAX_SOURCE_BYTES else ""
                spec = _Spec(next(self._numbers), stamp, GitIgnoreSpec(list(_parse_patterns(text))))
                self._specs[str(path)] = spec
                self._decided.clear()
        except OSError:
            return None
        return spec


def _parse_patterns(text: str) -> Iterator[Any]:
    """Line by line: one that is no pattern does not spoil the others."""
    for line in text.splitlines():
        with suppress(ValueError):
            yield from GitIgnoreSpec.from_lines([line]).patterns


def _list_entries(folder: _Folder) -> list[os.DirEntry[str]]:
    """Lists a folder by name; empty if it went, or may not be read, which is an error of the topmost one."""
    try:
        with os.scandir(folder.path) as entries:
            return sorted(islice(entries, _MOST_NAMES + 1), key=lambda each: each.name)
    except OSError as error:
        if not folder.prefix or error.errno not in _ABSENT:
            raise
        return []


def _is_one_line(name: str) -> bool:
    """Tells whether a name is one line of text: no index holds another, and in a prompt it could pass for more."""
    return re.search("[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]", name) is None


def _may_be_text(name: str, status: os.stat_result) -> bool:
    """Tells it of a regular file that is not empty; links lead elsewhere, or to what is here anyway."""
    return stat.S_ISREG(status.st_mode) and status.st_size > 0 and not name.endswith(_DATA_SUFFIXES)


def _read_stat(entry: os.DirEntry[str]) -> os.stat_result | None:
    try:
        return entry.stat(follow_symlinks=False)
    except OSError as error:
        if error.errno not in _ABSENT:
            raise
        return None
