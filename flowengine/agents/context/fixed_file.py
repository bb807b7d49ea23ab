"""Provides one text file, read again whenever it has changed. It writes nothing."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Final, NamedTuple, Self

from flowengine.agents.context.chain import LONGEST
from flowengine.agents.context.provider import (
    ContextProvider,
    MissingFileError,
    ParameterError,
    join_fragments,
    locate_path,
)
from flowengine.core import Fragment, check_arguments, open_regular

_MOST: Final = 4 * LONGEST + 4
"""Bytes that are read: no character of UTF-8 has more than four."""


class _FileText(NamedTuple):
    """A file's text, and what the file looked like when it was read."""

    stamp: tuple[int, ...]
    text: str


class FixedFileProvider(ContextProvider):
    """A file's text, under its description. A file that is missing or no text is an error at once.

    One that vanishes later is a failure of that one call, which the chain tells and survives.
    """

    provider_name: ClassVar[str] = "fixed_file"
    config_description: ClassVar[str] = "The text of one file, read again when it changes"
    config_parameters: ClassVar[Mapping[str, str]] = {
        "file_path": "The file, UTF-8; in a flow relative to the project's root",
        "description": "What the file is, for the model: stands above its text",
    }
    config_example: ClassVar[str] = "- fixed_file: {file_path: knowledge/policies.md, description: Policies}"

    def __init__(self, file_path: str | os.PathLike[str], description: str = "", *, path: Path | None = None) -> None:
        """`path`: where the file is, for a path that is not relative to the current folder."""
        check_arguments(FixedFileProvider.__init__, locals(), ParameterError)
        self.file_path = str(file_path)
        self.description = description
        self._path = locate_path(file_path, None, parameter="file_path") if path is None else path
        self._read = self._text()

    @classmethod
    def from_config(cls, config: Mapping[str, Any], *, root: Path | None = None) -> Self:
        return cls(**config, path=locate_path(config["file_path"], root, parameter="file_path"))

    def get_context(self, query: str, previous_context: str | None = None, **kwargs: Any) -> str:
        return join_fragments(self.fragments(query, ()))

    def fragments(self, query: str, previous: Sequence[Fragment], **kwargs: Any) -> Sequence[Fragment]:
        self._read = self._text(self._read)
        text = self._read.text
        described = f"{self.description}:\n{text}" if self.description and text.strip() else text
        return [Fragment(described, self.provider_name, label=self.file_path)]

    def fresh(self) -> FixedFileProvider:
        return self  # It remembers nothing but what the file says.

    def _text(self, cached: _FileText | None = None) -> _FileText:
        try:
            status = os.stat(self._path)
            stamp = (status.st_mtime_ns, status.st_size, status.st_ino)
            if cached is not None and cached.stamp == stamp:
                return cached
            with open_regular(self._path) as file:
                content = file.read(_MOST)
        except (OSError, ValueError) as error:  # The latter: a name that no file can have.
            reason = getattr(error, "strerror", None) or str(error)
            raise MissingFileError(f"the file '{self.file_path}' cannot be read: {reason}", "file_path") from error
        return _FileText(stamp, self._decode_file(content))

    def _decode_file(self, content: bytes) -> str:
        if b"\0" in content[:8192]:
            raise MissingFileError(f"the file '{self.file_path}' is no text: it holds bytes of zero", "file_path")
        try:
            # The last character may have been cut in two by the limit.
            return content.decode("utf-8-sig", "ignore" if len(content) == _MOST else "strict")
        except UnicodeDecodeError as error:
            problem = f"the file '{self.file_path}' is not UTF-8: {error.reason} at byte {error.start}"
            raise MissingFileError(problem, "file_path") from error
