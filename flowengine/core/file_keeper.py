"""Takes files into the store of one run, within what its project allows: from bytes and from paths.

Paths that people give (a `Path`, `@file` of the command line) are theirs to choose. Paths that stand in texts, as in a
flow or in a request to the server, have to be ones that a flow may name (`flow_paths`). It asks no server.
"""

from __future__ import annotations

import os
from base64 import b64decode
from collections.abc import Callable, Iterable
from functools import lru_cache
from pathlib import Path, PurePath
from threading import Lock
from typing import Any, Final, Protocol, cast

import anyio.to_thread

from flowengine.core.file_values import FileRules, FileValue, RefusedFileError, clean_name, hash_of
from flowengine.core.flow_paths import RefusedPathError, open_regular, resolve_path
from flowengine.core.media_types import allows_media_type, extension_of, media_type_of

_INLINE: Final = 65_536
"""Bytes that are stored without a thread."""
_BYTES: Final = (bytes, bytearray)
_PLAIN: Final = frozenset({str, int, float, bool, type(None)})
_DEEPEST: Final = 64


class BlobStore(Protocol):
    """The part of a store that keeps the contents of files, each once, under its hash; a store may be without it."""

    def put_blob(self, owner: str, content: bytes, /) -> str:
        """Keep a content for a run, which need not have begun; its hash. `NotJournalableError`: it is too large."""
        ...

    def keep_blob(self, owner: str, blob: str, /) -> bool:
        """Keep a content that is there for one run more; False where it is not there."""
        ...

    def read_blob(self, blob: str, /) -> bytes:
        """A content; `StoreCorruptError` where it is not what was written."""
        ...

    def blob_size(self, blob: str, /) -> int | None:
        """Bytes of a content; None where it is not there."""
        ...

    def forget_blobs(self, owner: str, /) -> None:
        """A run needs none any more; what no other run needs is deleted. Part of `remove`."""
        ...


def is_data_address(text: str) -> bool:
    """Tells whether a text holds a file's content itself."""
    return text[:5].lower() == "data:"


def read_data_address(text: str) -> bytes:
    """The content in a `data:` address.

    >>> read_data_address("data:text/plain;base64,aGk=")
    b'hi'
    """
    head, comma, content = text.partition(",")
    try:
        if comma and head.lower().endswith(";base64"):
            return b64decode(content, validate=True)
    except ValueError:
        pass
    raise RefusedFileError("not of the form data:TYPE;base64,CONTENT")


def refused_address(url: str) -> RefusedFileError:
    """The error for an address of the web that no file is fetched from."""
    return RefusedFileError(f"the address '{url[:200]}' is not allowed: list its beginning in `allow_urls` of [files]")


class FileKeeper:
    """Takes files in for one run.

    `known`: the files that the run has already, asked for once; they count to `max_run`. Without a store, files are
    looked at and not kept.
    """

    def __init__(
        self,
        blobs: BlobStore | None,
        run_id: str,
        rules: FileRules,
        earlier_files: Callable[[], Iterable[FileValue]] = tuple,
    ) -> None:
        self.rules = rules
        self._blobs = blobs
        self._run_id = run_id
        self._earlier_files = earlier_files
        self._sizes: dict[str, int] | None = None
        self._counting = Lock()

    async def take(self, value: Any) -> Any:
        """The file that a value names: bytes, a `Path`, a path or a `data:` address as text, or a file of any run.

        What can be none of these comes back as it is. `RefusedFileError` says why a file is not taken.
        """
        if isinstance(value, FileValue):
            return await anyio.to_thread.run_sync(self.adopt, value)
        if isinstance(value, _BYTES):
            return await self.keep_soon(bytes(value))
        if isinstance(value, PurePath):
            return await anyio.to_thread.run_sync(self._take_path, Path(value))
        if isinstance(value, str):
            return await anyio.to_thread.run_sync(self._take_named, value)
        return value

    async def keep_in(self, value: Any, name: str) -> Any:
        """The value with files in the place of the bytes in it, as far as it is made of lists, dicts and tuples."""
        if not holds_bytes(value):
            return value
        return await self._replace(value, name, 0)

    async def keep_soon(self, content: bytes, name: str = "") -> FileValue:
        """Keeps a file as `keep` does; beside the event loop where the content is long."""
        if len(content) <= _INLINE:
            return self.keep(content, name)
        return await anyio.to_thread.run_sync(self.keep, content, name)

    def keep(self, content: bytes, name: str = "") -> FileValue:
        """Store a content; the name is for people, and without one, or without an ending, gets that of its kind."""
        rules, media_type, size = self.rules, media_type_of(content), len(content)
        label = f"'{clean_name(name)}'" if name else "a file"
        if size > rules.max_file:
            raise RefusedFileError(f"{label} has {size:,} bytes, and `max_file` of [files] is {rules.max_file:,}")
        if not allows_media_type(rules.media_types, media_type):
            allowed = ", ".join(rules.media_types)
            raise RefusedFileError(
                f"{label} is {media_type} by its content, and `media_types` of [files] has {allowed}"
            )
        blob = hash_of(content)
        self._count(blob, size, label)
        if self._blobs is not None:
            self._blobs.put_blob(self._run_id, content)
        called = clean_name(name) if name else "file"
        called = called if "." in called else f"{called}.{extension_of(media_type)}"
        return self._bind(FileValue(blob, media_type, clean_name(called), size), content)

    def adopt(self, file: FileValue) -> FileValue:
        """A file of another run, kept for this one too."""
        if self._blobs is not None and self._blobs.keep_blob(self._run_id, file.blob):
            self._count(file.blob, file.size, f"'{file.name}'")
            return file.bound(self._blobs.read_blob)
        return self.keep(file.read_bytes(), file.name)

    def _count(self, blob: str, size: int, label: str) -> None:
        with self._counting:  # Files are taken in several threads.
            if self._sizes is None:
                self._sizes = {file.blob: file.size for file in self._earlier_files()}
            if blob not in self._sizes:
                total = sum(self._sizes.values()) + size
                if total > self.rules.max_run:
                    raise RefusedFileError(
                        f"with {label} the files of the run have {total:,} bytes, and `max_run` of [files] is "
                        f"{self.rules.max_run:,}"
                    )
                self._sizes[blob] = size

    def _bind(self, file: FileValue, content: bytes) -> FileValue:
        return file.bound((lambda blob: content) if self._blobs is None else self._blobs.read_blob)

    def _take_path(self, path: Path) -> FileValue:
        return self.keep(_read(path, str(path), self.rules.max_file), path.name)

    def _take_named(self, text: str) -> FileValue:
        if is_data_address(text):
            return self.keep(read_data_address(text))
        if text.lower().startswith(("http://", "https://")):
            raise refused_address(text)
        try:
            path = resolve_path(text, self.rules.root or Path())
        except RefusedPathError as error:
            raise RefusedFileError(str(error)) from None
        return self.keep(_read(path, text, self.rules.max_file, follow=False), path.name)

    async def _replace(self, value: Any, name: str, depth: int) -> Any:
        if isinstance(value, _BYTES):
            return await self.keep_soon(bytes(value), name)
        if depth >= _DEEPEST:
            return value
        kind = cast("type[Any]", type(value))
        if issubclass(kind, dict):
            entries = cast("dict[Any, Any]", value).items()
            return {key: await self._replace(each, name, depth + 1) for key, each in entries}
        if issubclass(kind, list | tuple):
            parts = [await self._replace(each, name, depth + 1) for each in cast("Iterable[Any]", value)]
            if issubclass(kind, list):
                return parts
            return getattr(cast("Any", kind), "_make", tuple)(parts)  # As a named tuple is made.
        return value


def holds_bytes(value: Any, depth: int = 0) -> bool:
    """Tells whether there are bytes in a value of lists, dicts and tuples. Asked of every result, so by types alone.

    >>> holds_bytes({"a": [1, (b"x",)]}), holds_bytes({"a": ["x"]})
    (True, False)
    """
    form = _form_of(type(value))  # pyright: ignore[reportUnknownArgumentType] - of any type
    if form is None or depth >= _DEEPEST:
        return form is bytes
    if form is bytes:
        return True
    parts = value.values() if form is dict else value
    for each in parts:  # noqa: SIM110 - a generator costs as much as all the rest
        if type(each) not in _PLAIN and holds_bytes(each, depth + 1):
            return True
    return False


@lru_cache(maxsize=1024)
def _form_of(kind: type[Any]) -> type[Any] | None:
    """Returns how to traverse a type's values: as bytes, a dict or a list; None if they are not traversed."""
    if kind in _PLAIN:
        return None
    if kind in _BYTES:
        return bytes
    return dict if issubclass(kind, dict) else list if issubclass(kind, list | tuple) else None


def _read(path: Path, label: str, most: int, *, follow: bool = True) -> bytes:
    """A regular file, read once; one that grows or changes meanwhile is refused."""
    try:
        with open_regular(path, follow=follow) as file:
            before = os.fstat(file.fileno())
            if before.st_size > most:
                raise RefusedFileError(
                    f"'{label:.200}' has {before.st_size:,} bytes, and `max_file` of [files] is {most:,}"
                )
            content = file.read(most + 1)
            after = os.fstat(file.fileno())
    except (OSError, ValueError) as error:
        if isinstance(error, RefusedFileError):
            raise
        reason = getattr(error, "strerror", None) or str(error)
        raise RefusedFileError(f"cannot read '{label:.200}': {reason}") from error
    if len(content) != before.st_size or (before.st_mtime_ns, before.st_size) != (after.st_mtime_ns, after.st_size):
        raise RefusedFileError(f"'{label:.200}' changed while it was read: try again once it is whole")
    return content
