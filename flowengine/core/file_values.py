"""Defines the value that stands for a file: the hash of its content, its media type, name and size.

What a project allows of files is defined beside it.
The content is kept once in the store of runs, under its hash. A value is bound to the store that it comes from, and
reads there. It knows neither stores nor files of a disk.
"""

from __future__ import annotations

import hashlib
import re
import unicodedata
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import astuple, dataclass
from pathlib import Path
from typing import Any, Final, TypeAlias, cast

from flowengine.errors import JournalError

# --- What a project allows of files


class RefusedFileError(ValueError):
    """A file that is not taken; the message says why. The caller says where."""


@dataclass(frozen=True)
class FileRules:
    """The table `[files]` of a project file."""

    root: Path | None = None
    """The folder below which the paths lie that texts name; None: the working folder."""
    max_file: int = 20 * 2**20
    """Bytes of one file, or a text such as `"20MiB"`."""
    max_run: int = 200 * 2**20
    """The same of all files of a run, equal ones counted once."""
    media_types: tuple[str, ...] = ("*/*",)
    """The media types that files may have, by their contents."""
    allow_urls: tuple[str, ...] = ()
    """Beginnings of the addresses that files may be fetched from (`address_rules`)."""


FileSource: TypeAlias = Callable[[str], bytes]
"""Hash → the content, checked; a `JournalError` where it cannot be read."""

_HASH: Final = re.compile(r"[0-9a-f]{64}")
_MEDIA_TYPE: Final = re.compile(r"[a-z0-9][a-z0-9.+-]{0,63}/[a-z0-9][a-z0-9.+-]{0,63}")
_LONGEST_NAME: Final = 200
_UNSEEN: Final = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp"})
"""Categories of characters that a name may not have: control, direction, line ends, halves of a character."""
_DEEPEST: Final = 64

_source: Final[ContextVar[FileSource | None]] = ContextVar("file_source", default=None)


@contextmanager
def binding_files(source: FileSource) -> Generator[None]:
    """Files that are made in the block read their content there."""
    token = _source.set(source)
    try:
        yield
    finally:
        _source.reset(token)


@dataclass(frozen=True)
class FileValue:
    """A file as a value of a run: small, frozen, and the same wherever its content is the same.

    >>> file = FileValue(hash_of(b"a,b"), "text/plain", "table.csv", 3)
    >>> with binding_files(lambda blob: b"a,b"):
    ...     FileValue(file.blob, "text/plain", "table.csv", 3).read_text()
    'a,b'
    """

    blob: str
    """SHA-256 of the content, in hexadecimal."""
    media_type: str
    name: str
    """The name for people; never a path, and nothing is decided by it."""
    size: int
    """Bytes."""

    def __post_init__(self) -> None:
        if not (isinstance(self.blob, str) and _HASH.fullmatch(self.blob)):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise ValueError(f"a file's hash has 64 hexadecimal digits, found {self.blob!r:.80}")
        if not (isinstance(self.media_type, str) and _MEDIA_TYPE.fullmatch(self.media_type)):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise ValueError(f"a media type is like text/plain, found {self.media_type!r:.80}")
        if not isinstance(self.name, str) or clean_name(self.name) != self.name:  # pyright: ignore[reportUnnecessaryIsInstance]
            raise ValueError(f"this is no name of a file: {self.name!r:.80}")
        if type(self.size) is not int or self.size < 0:
            raise ValueError(f"a file's size is a number of bytes, found {self.size!r:.80}")
        object.__setattr__(self, "_source", _source.get())

    def bound(self, source: FileSource) -> FileValue:
        """The same file, read there."""
        with binding_files(source):
            return FileValue(self.blob, self.media_type, self.name, self.size)

    def read_bytes(self) -> bytes:
        """The content; `StoreCorruptError` where it is not what was stored."""
        source: FileSource | None = vars(self)["_source"] or _source.get()
        if source is None:
            raise JournalError(f"the file '{self.name}' is of no store that is open here: its content cannot be read")
        return source(self.blob)

    def read_text(self, encoding: str = "utf-8", errors: str = "strict") -> str:
        """The content as text; `encoding` and `errors` as `bytes.decode` has them."""
        return self.read_bytes().decode(encoding, errors)

    def __bytes__(self) -> bytes:
        return self.read_bytes()

    def __copy__(self) -> FileValue:
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> FileValue:
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        return FileValue, astuple(self)


def hash_of(content: bytes) -> str:
    """The name under which a content is kept.

    >>> hash_of(b"")[:8]
    'e3b0c442'
    """
    return hashlib.sha256(content).hexdigest()


def clean_name(name: str) -> str:
    """A file's name as it may be shown: without folders, and without characters that are not seen or turn the text.

    >>> clean_name("../a/invoice\\u202egpj.exe\\r\\n"), clean_name("C:\\\\scans\\\\a.pdf"), clean_name("..")
    ('invoicegpj.exe', 'a.pdf', 'file')
    """
    last = name.replace("\\", "/").rstrip("/").rpartition("/")[2]
    visible = "".join(each for each in last if unicodedata.category(each) not in _UNSEEN).strip()
    visible = visible[:_LONGEST_NAME].strip()
    return "file" if visible in ("", ".", "..") else visible


def find_files(value: Any) -> Iterator[FileValue]:
    """The files in a value of lists, tuples and dicts, results and records of the engine included."""
    yield from _find_files(value, 0, {})


def _find_files(value: Any, depth: int, visited: dict[int, Any]) -> Iterator[FileValue]:
    """`visited`: the objects that were looked into, by their `id`: they may refer to each other."""
    if isinstance(value, FileValue):
        yield value
    elif depth > _DEEPEST or isinstance(value, str | bytes | int | float):
        return
    elif isinstance(value, Mapping):
        for each in cast("Mapping[Any, Any]", value).values():
            yield from _find_files(each, depth + 1, visited)
    elif isinstance(value, list | tuple | set | frozenset):
        for each in cast("list[Any]", value):
            yield from _find_files(each, depth + 1, visited)
    elif hasattr(value, "__dict__") and id(value) not in visited:
        visited[id(value)] = value
        yield from _find_files(vars(value), depth + 1, visited)
