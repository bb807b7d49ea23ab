"""Keeps, beside a run's journal, what its agents are writing at this moment, for those who follow from other processes.

    the process that drives the run             a process that follows it
    FollowerWatch.look             ←            LiveFollower.look (somebody follows)
    LiveBoard.hear(piece) … write_live   →      read_live → LiveReader.read(what is kept) → pieces

One value a run, of a bounded size, written over and over and removed at the run's end: the journal has none of it.
Who is asked (a piece with a `model` and without text) is told in the same way. Nothing is written where nobody
follows: a follower leaves a mark, and leaves another one before that is taken for old.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from time import monotonic, time
from typing import Any, Final, NamedTuple, cast

from flowengine.engine import JournalStore, TokenStreamed
from flowengine.errors import JournalError
from flowengine.journal.blob_owners import forget_beside

_KIND: Final = "live"
_FOLLOWED: Final = "followed"
_MOST_NODES: Final = 16
"""Nodes that are kept, those that were heard last."""
_MOST_TEXT: Final = 4_000
"""Characters of each text that are kept, its end."""
_TOO_OLD: Final = 600.0
"""Seconds after which what is kept was left behind by a process that died."""
_MARKS_AGAIN: Final = 5.0
"""Seconds between two marks of a follower."""
_IS_OLD: Final = 15.0
"""Seconds after which a follower whose mark stays the same is taken for gone."""


class LiveText(NamedTuple):
    """The text that one node is writing."""

    node: str
    model: str
    """Who was asked; empty if unknown."""
    asked: float
    """When, in Unix seconds."""
    turn: int
    """How many texts the node has begun."""
    length: int
    """Characters of the whole text."""
    text: str
    """Its end."""
    at: float

    def pieces(self) -> list[TokenStreamed]:
        """The same as somebody hears it who comes only now."""
        pieces = [TokenStreamed(self.node, self.asked, "", True, self.model)] if self.model else []
        if self.text:
            cut = "…" if self.length > len(self.text) else ""
            pieces.append(TokenStreamed(self.node, self.at, cut + self.text, True))
        return pieces


class LiveTexts:
    """The texts that the nodes of one run are writing.

    >>> texts = LiveTexts()
    >>> for piece in (TokenStreamed("a", 1.0, "", True, "gpt-4o"), TokenStreamed("a", 2.0, "Hel", True)):
    ...     texts.hear(piece)
    >>> texts.hear(TokenStreamed("a", 3.0, "lo"))
    >>> [(piece.text, piece.model) for piece in texts.pieces()]
    [('', 'gpt-4o'), ('Hello', '')]
    """

    def __init__(self) -> None:
        self._nodes: dict[str, LiveText] = {}

    def hear(self, piece: TokenStreamed) -> None:
        before = self._nodes.pop(piece.node, None) or LiveText(piece.node, "", piece.at, 0, 0, "", piece.at)
        if piece.model:
            now = before._replace(model=piece.model, asked=piece.at, turn=before.turn + 1, length=0, text="")
        elif piece.begins:
            now = before._replace(turn=before.turn + 1, length=len(piece.text), text=piece.text[-_MOST_TEXT:])
        else:
            text = (before.text + piece.text)[-_MOST_TEXT:]
            now = before._replace(length=before.length + len(piece.text), text=text)
        self._nodes[piece.node] = now._replace(at=piece.at)
        if len(self._nodes) > _MOST_NODES:
            del self._nodes[next(iter(self._nodes))]

    def settle(self, node: str) -> None:
        """The node has ended."""
        self._nodes.pop(node, None)

    def of(self, node: str) -> LiveText | None:
        """Returns the text that one node is writing; thread-safe."""
        return self._nodes.get(node)

    def pieces(self) -> list[TokenStreamed]:
        return [piece for each in self._nodes.values() for piece in each.pieces()]

    def as_plain(self) -> Mapping[str, Any]:
        """In JSON's types, with the moment of now."""
        rows = [[*each[:5], each.text.encode(errors="replace").decode(), each.at] for each in self._nodes.values()]
        return {"at": time(), "nodes": rows}


class LiveReader:
    """Reads what is kept of a run time and again; gives what is new."""

    def __init__(self) -> None:
        self._before: dict[str, LiveText] = {}

    def read(self, stored: Any) -> list[TokenStreamed]:
        pieces: list[TokenStreamed] = []
        now = time()
        for each in _read_rows(stored, now):
            before = self._before.get(each.node)
            self._before[each.node] = each
            fresh = 0 if before is None else each.length - before.length
            if before is None or before[1:4] != each[1:4] or fresh > len(each.text):
                pieces += [piece._replace(at=min(piece.at, now)) for piece in each.pieces()]
            elif fresh > 0:
                pieces.append(TokenStreamed(each.node, min(each.at, now), each.text[-fresh:]))
        return pieces


def _read_rows(stored: Any, now: float) -> Sequence[LiveText]:
    """Whatever is kept under the name: what makes no sense is left out."""
    if not isinstance(stored, Mapping):
        return ()
    plain = cast("Mapping[str, Any]", stored)
    at, rows = plain.get("at"), plain.get("nodes")
    if not isinstance(at, (int, float)) or now - at > _TOO_OLD or not isinstance(rows, (list, tuple)):
        return ()
    return [LiveText(*row) for row in cast("Sequence[Any]", rows) if _is_row(row)]


_TYPES: Final = (str, str, (int, float), int, int, str, (int, float))


def _is_row(row: Any) -> bool:
    return (
        isinstance(row, (list, tuple))
        and len(cast("Sequence[Any]", row)) == len(_TYPES)
        and all(isinstance(each, kind) for each, kind in zip(cast("Sequence[Any]", row), _TYPES, strict=True))
    )


def read_live(store: JournalStore, run_id: str) -> Any:
    """Returns the stored texts of a run, or None."""
    return store.recall(_KIND, run_id)


def write_live(store: JournalStore, run_id: str, plain: Mapping[str, Any]) -> None:
    store.revise(_KIND, run_id, lambda before: plain)


def forget_live(store: JournalStore, run_id: str) -> None:
    """The run has ended."""
    forget_beside(store, _KIND, run_id)
    forget_beside(store, _FOLLOWED, run_id)


class LiveFollower:
    """Follows a run that another process drives, which it lets know of it."""

    def __init__(self) -> None:
        self._reader = LiveReader()
        self._marks_next = 0.0

    def look(self, store: JournalStore, run_id: str) -> list[TokenStreamed]:
        """Returns the pieces new since the last look. To be called for as long as the run goes on."""
        now = monotonic()
        if now >= self._marks_next:
            self._marks_next = now + _MARKS_AGAIN
            with suppress(JournalError):  # A store that cannot be written can be read.
                store.revise(_FOLLOWED, run_id, lambda before: time())
        return self._reader.read(read_live(store, run_id))


class FollowerWatch:
    """Looks whether somebody follows a run. Clocks of two machines are not compared: a mark is new if it differs."""

    def __init__(self, store: JournalStore, run_id: str) -> None:
        self._store = store
        self._run_id = run_id
        self._mark: Any = None
        self._last_change = 0.0
        """When the mark came."""

    def look(self) -> bool:
        mark = self._store.recall(_FOLLOWED, self._run_id)
        if mark != self._mark:
            self._mark, self._last_change = mark, monotonic()
        return mark is not None and monotonic() - self._last_change < _IS_OLD
