"""Reads documents from disk in pieces, and finds what changed since last time: a folder of texts, or JSON lines.

It knows files and pieces. Where documents are kept and how they are found is the retriever's matter.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from io import TextIOWrapper
from pathlib import Path
from typing import Any, Final, NamedTuple, cast

from flowengine.agents.context.source_code import CodeTree, FileStamp, is_text, lines_of
from flowengine.agents.retrieval import Document, drop_surrogates
from flowengine.core import open_regular
from flowengine.errors import RunError
from flowengine.models import estimate_tokens

_MIN_PIECE: Final = 150
"""Tokens of a piece from which on it ends where its writer began anew."""
_MOST: Final = 400
"""Tokens of a piece at which it ends anyway."""
_MAX_LINE_LENGTH: Final = 1600
"""Characters; longer lines are cut."""


_logger: Final = logging.getLogger(__name__)


class Changes(NamedTuple):
    """The changes that bring an index up to date."""

    added: list[Document]
    """New ones, and those that take the place of others of their id."""
    removed: list[str]


class DocumentSource:
    """A folder, or a file of JSON lines: `{"text": …, "id": …, "metadata": {…}}`, the text being needed."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._tree = CodeTree(path) if path.is_dir() else None
        self._versions: dict[str, tuple[FileStamp, tuple[str, ...]]] = {}
        """File → what it looked like, and the ids of what was in it."""
        self._doubtful: set[str] = set()
        """Ids that an index may still have, and that are to go unless a file has them."""
        self._removed: list[str] = []
        """Ids that were reported last as deleted."""
        self._too_large: frozenset[str] = frozenset()
        self.cut_at: int | None = None
        """Files that are taken of a folder that has more of them; None where all are."""

    @property
    def is_new(self) -> bool:
        """Whether the next `changes` tell of all that there is."""
        return not self._versions

    def changes(self) -> Changes:
        """Returns what is new, changed or deleted since the last call. The first call reports everything as new.

        A folder or file that is not there is an error, and nothing of it counts as deleted: an index keeps what it has
        paid for until the disk is back. The documents of a folder that is there and empty are deleted.
        """
        added: list[Document] = []
        stamps = self._stamps()
        for name, (_, ids) in [*self._versions.items()]:
            if name not in stamps:
                self._doubtful.update(ids)
                del self._versions[name]
        for name, stamp in stamps.items():
            before = self._versions.get(name)
            if before is None or before[0] != stamp:
                documents = self._documents(name)
                added.extend(documents)
                self._doubtful.update(before[1] if before else ())
                self._versions[name] = (stamp, tuple(each.id for each in documents))
        if self._doubtful:
            self._doubtful.difference_update(*(ids for _, ids in self._versions.values()))
        self._removed, self._doubtful = sorted(self._doubtful), set()
        return Changes(added, self._removed)

    def forget(self) -> None:
        """Take everything for new the next time: an index may have taken some of the last changes, or none."""
        self._doubtful.update(self._removed, *(ids for _, ids in self._versions.values()))
        self._versions.clear()

    def _stamps(self) -> Mapping[str, FileStamp]:
        try:
            if self._tree is None:
                status = self._path.stat()
                return {self._path.name: FileStamp(status.st_mtime_ns, status.st_size)}
            listing = self._tree.listing()
        except OSError as error:
            raise RunError(
                f"the documents '{self._path}' cannot be read ({error.strerror}); an index keeps what it has of them"
            ) from error
        cut_at = None if listing.is_whole else len(listing.files)
        if cut_at is not None and cut_at != self.cut_at:
            _logger.warning("'%s' has more files than are taken: only %d of them are searched", self._path, cut_at)
        self.cut_at = cut_at
        for name in listing.large:
            if name not in self._too_large and is_text(self._path / name):
                _logger.warning("'%s' is too large for a document, and is not searched: cut it up", self._path / name)
        self._too_large = frozenset(listing.large)
        return listing.files

    def _documents(self, name: str) -> list[Document]:
        if self._tree is None:
            return list(_read_json_lines(self._path))
        pieces = _split_pieces(lines_of(self._path / name) or ())
        return [
            Document(f"{name}#{number}", text, {"path": name, "line": line})
            for number, (line, text) in enumerate(pieces, 1)
        ]


def _read_json_lines(path: Path) -> Iterator[Document]:
    with TextIOWrapper(open_regular(path), encoding="utf-8-sig") as lines:
        try:
            for number, line in enumerate(lines, 1):
                if line.strip():
                    yield _read_json_line(line, number, f"{path.name}, line {number}")
        except UnicodeDecodeError as error:
            raise RunError(f"{path.name}: this is no UTF-8 text, and so no JSON lines: {error.reason}") from error


def _read_json_line(line: str, number: int, place: str) -> Document:
    try:
        value: Any = json.loads(line, parse_constant=lambda _: None)  # NaN, of which JSON knows nothing.
    except (ValueError, RecursionError) as error:
        raise RunError(f"{place}: this is no JSON: {error}") from error
    entry = cast("dict[str, Any]", value if isinstance(value, dict) else {})
    text, id = entry.get("text"), entry.get("id")
    metadata: Any = {} if entry.get("metadata") is None else entry["metadata"]
    if not isinstance(text, str) or not isinstance(metadata, dict):
        raise RunError(f'{place}: a document is {{"text": …}}, with "id" and "metadata" (an object) where it has some')
    return Document(drop_surrogates(str(number if id is None else id)), text, metadata)


def _split_pieces(lines: Sequence[str]) -> Iterator[tuple[int, str]]:
    """(number of its first line, text): pieces end at headings and blank lines once they say enough, else later."""
    piece: list[str] = []
    start = size = 0
    for number, line in _split_long_lines(lines):
        tokens = estimate_tokens(line)
        begins = line.startswith("#") or not line.strip()
        if piece and (size + tokens > _MOST or (begins and size >= _MIN_PIECE)):
            yield start, "\n".join(piece).rstrip()
            piece, size = [], 0
        if piece or line.strip():
            start = start if piece else number
            piece.append(line)
            size += tokens
    if piece:
        yield start, "\n".join(piece).rstrip()


def _split_long_lines(lines: Iterable[str]) -> Iterator[tuple[int, str]]:
    """The lines with their numbers, long ones cut into parts of the same number."""
    for number, line in enumerate(lines, 1):
        for at in range(0, max(len(line), 1), _MAX_LINE_LENGTH):
            yield number, line[at : at + _MAX_LINE_LENGTH]
