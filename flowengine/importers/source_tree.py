"""Reads the files that are imported, inside one folder and within bounds, and runs nothing of them.

A path that leads out of the folder, also by a link, a hidden file, a file of keys, a pipe and a file that is too large
are refused with the reason. It knows no format.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path, PurePosixPath
from typing import Any, Final, NamedTuple, TypeGuard

from flowengine.core import RefusedPathError, is_map, is_withheld, open_regular, resolve_path
from flowengine.errors import DefinitionError, Diagnostic, FlowError
from flowengine.flowfile.yaml import KeyPath, SourceText, decode, parse_yaml
from flowengine.importers.form import SourcePlace

MAX_BYTES: Final = 1_000_000
"""The most bytes of a file that is read; a file that is copied may have ten times as much."""
MAX_TOTAL: Final = 100_000_000
MAX_FILES: Final = 5_000
_SKIPPED: Final = frozenset({"__pycache__", "node_modules", "venv", "site-packages", "dist", "build"})


def as_map(value: object) -> Mapping[str, Any]:
    """The value where it is a map, else an empty one: files of others hold anything."""
    return value if is_map(value) else {}


def is_list(value: object) -> TypeGuard[list[Any]]:
    """Tells whether a value is a list."""
    return isinstance(value, list)


def as_list(value: object) -> list[Any]:
    """The value where it is a list, else an empty one."""
    return value if is_list(value) else []


def as_maps(value: object) -> list[Mapping[str, Any]]:
    """The elements of a list, those that are no maps as empty ones."""
    return [as_map(each) for each in as_list(value)]


class SourceError(DefinitionError):
    """A file of the source that cannot be read; the message says why."""


class YamlSource(NamedTuple):
    """A YAML file of the source with the place of everything in it."""

    file: str
    data: Any
    text: SourceText

    def origin(self, *path: str | int) -> SourcePlace:
        """Returns the position of a key, or of the nearest part around it."""
        at: KeyPath = path
        return SourcePlace(self.file, self.text.key_position(at)[0] if at else 1)


def parse_source(file: str, text: str) -> YamlSource:
    """The YAML of a text; `FlowError` with every problem of it where our reader refuses it."""
    parsed = parse_yaml(text, file)
    if parsed.problems:
        raise FlowError(parsed.problems)
    return YamlSource(file, parsed.data, SourceText(text, Path(file), parsed.place))


class SourceTree:
    """The files below one folder; paths are written from it, with `/`."""

    def __init__(self, root: Path) -> None:
        self.root = root.resolve()
        self._read = 0
        self._texts: dict[str, str] = {}

    def read(self, path: str, limit: int = MAX_BYTES) -> bytes:
        """The bytes of a file."""
        try:
            file_path = resolve_path(path, self.root)
            with open_regular(file_path) as file:
                data = file.read(limit + 1)
        except RefusedPathError as error:
            # The folder's own place on the machine is private.
            raise SourceError(str(error).replace(f" {self.root}", "")) from None
        except OSError as error:
            raise SourceError(f"'{path:.200}' cannot be read: {error.strerror or error}") from None
        self._read += len(data)
        if len(data) > limit:
            raise SourceError(f"'{path}' has more than {limit:,} bytes")
        if self._read > MAX_TOTAL:
            raise SourceError(f"the files have more than {MAX_TOTAL:,} bytes together")
        return data

    def read_text(self, path: str) -> str:
        """The text of a file, its line ends made alike; each is read once, so that every format can look at it."""
        if path not in self._texts:
            text = decode(self.read(path), path)
            if isinstance(text, Diagnostic):
                raise SourceError(f"'{path}': {text.message}")
            self._texts[path] = text.replace("\r\n", "\n").replace("\r", "\n")
        return self._texts[path]

    def read_yaml(self, path: str) -> YamlSource:
        """A YAML file; `FlowError` with every problem of it where our reader refuses it."""
        return parse_source(path, self.read_text(path))

    def yaml_texts(self, files: Sequence[str]) -> Iterator[tuple[str, str]]:
        """The YAML files among some, with their texts; those that cannot be read are left out."""
        for each in files:
            if each.endswith((".yaml", ".yml")):
                with suppress(SourceError):
                    yield each, self.read_text(each)

    def has(self, path: str) -> bool:
        """Tells whether a file may be read."""
        try:
            return resolve_path(path, self.root).is_file()
        except (RefusedPathError, OSError):
            return False

    def join(self, base: str, path: str) -> str:
        """A path that stands in a file of the folder `base`; `SourceError` where it leaves the tree."""
        if "\0" in path:
            raise SourceError(f"'{path:.200}' cannot be a path")
        if PurePosixPath(path.replace("\\", "/")).is_absolute() or ":" in path[:3]:
            raise SourceError(f"the path '{path:.200}' is not relative")
        path_from_root = os.path.normpath(PurePosixPath(base, path.replace("\\", "/")))
        if path_from_root.startswith(".."):
            raise SourceError(f"the path '{path:.200}' leaves the folder that is imported")
        return PurePosixPath(path_from_root).as_posix()

    def files(self, below: str = ".") -> Iterator[str]:
        """The paths of the regular files below a folder, sorted; no links, nothing hidden, no keys."""
        try:
            resolve_path(below, self.root)
        except RefusedPathError as error:
            raise SourceError(str(error).replace(f" {self.root}", "")) from None
        count = 0
        for folder, folders, names in os.walk(self.root / below):
            folders[:] = sorted(
                each for each in folders if not (is_withheld(each) or each in _SKIPPED or each.endswith(".egg-info"))
            )
            for name in sorted(names):
                path = Path(folder, name)
                if is_withheld(name) or path.is_symlink() or not path.is_file():
                    continue
                count += 1
                if count > MAX_FILES:
                    raise SourceError(f"there are more than {MAX_FILES:,} files below '{below}'")
                yield path.relative_to(self.root).as_posix()
