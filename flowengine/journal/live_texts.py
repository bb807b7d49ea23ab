"""Keeps, beside a run's journal, what its agents are writing at this moment, for those who follow from other processes.

    the process that drives the run             a process that follows it
    LiveBoard.hear(piece) … write_live   →      read_live → LiveReader.read(what is kept) → pieces

One value a run, of a bounded size, written over and over and removed at the run's end: the journal has none of it.
Who is asked (a piece with a `model` and without text) is told in the same way.

It is written at most twice a second, and never in the run's way: what takes less than half a second is not shown at
all, so that short calls cost nothing, and a store that cannot be written now is tried again with the next piece.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from threading import Lock
from time import time
from typing import Any, Final, NamedTuple, cast

import anyio
import anyio.to_thread

from flowengine.core.run_scope import RunScope
from flowengine.core.user_code import call_abandonable
from flowengine.engine.events import TokenStreamed
from flowengine.engine.ports import JournalStore
from flowengine.errors import JournalError
from flowengine.journal.blob_owners import forget_beside

__all__ = ["LiveBoard", "LiveReader", "LiveText", "LiveTexts", "forget_live", "read_live", "write_live"]

_KIND: Final = "live"
_MOST_NODES: Final = 16
"""Nodes that are kept, those that were heard last."""
_MOST_HEARD: Final = 1_000
"""Pieces that are kept as they come."""
_MOST_TEXT: Final = 4_000
"""Characters of each text that are kept, its end."""
_TOO_OLD: Final = 600.0
"""Seconds after which what is kept was left behind by a process that died."""
_PAUSE: Final = 0.5
"""Seconds between two writings."""
_AT_END: Final = 2.0
"""Seconds that a run waits at its end until nothing is shown any more."""


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
        found = [TokenStreamed(self.node, self.asked, "", True, self.model)] if self.model else []
        if self.text:
            cut = "…" if self.length > len(self.text) else ""
            found.append(TokenStreamed(self.node, self.at, cut + self.text, True))
        return found


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
        self._known: dict[str, LiveText] = {}

    def read(self, kept: Any) -> list[TokenStreamed]:
        found: list[TokenStreamed] = []
        now = time()
        for each in _read_rows(kept, now):
            before = self._known.get(each.node)
            self._known[each.node] = each
            fresh = 0 if before is None else each.length - before.length
            if before is None or before[1:4] != each[1:4] or fresh > len(each.text):
                found += [piece._replace(at=min(piece.at, now)) for piece in each.pieces()]
            elif fresh > 0:
                found.append(TokenStreamed(each.node, min(each.at, now), each.text[-fresh:]))
        return found


def _read_rows(kept: Any, now: float) -> Sequence[LiveText]:
    """Whatever is kept under the name: what makes no sense is left out."""
    if not isinstance(kept, Mapping):
        return ()
    plain = cast("Mapping[str, Any]", kept)
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


class LiveBoard:
    """Of one run, for as long as this process drives it. Made once something is heard."""

    def __init__(self, store: JournalStore, run_id: str, scope: RunScope) -> None:
        self._store = store
        self._run_id = run_id
        self._texts = LiveTexts()
        self._heard: list[TokenStreamed] = []
        """What the texts do not have yet: most calls of models end before anything is shown."""
        self._news = anyio.Event()
        self._is_shown = False
        self._is_over = False
        self._writing = Lock()
        """Held while something is written, so that nothing is shown once the end has taken it away."""
        scope.start_soon(self._show)
        scope.at_end(self._clear)

    def hear(self, piece: TokenStreamed) -> None:
        if not self._heard:
            self._news.set()
        elif len(self._heard) > _MOST_HEARD:
            self._take_in()
        self._heard.append(piece)

    def _take_in(self) -> None:
        heard, self._heard = self._heard, []
        for piece in heard:
            self._texts.hear(piece)

    async def _show(self) -> None:
        while True:
            await self._news.wait()
            await anyio.sleep(_PAUSE)
            self._news = anyio.Event()
            self._take_in()
            self._is_shown = True
            with suppress(JournalError):
                await anyio.to_thread.run_sync(self._write, self._texts.as_plain())

    async def _clear(self) -> None:
        if self._is_shown:
            with suppress(JournalError), anyio.move_on_after(_AT_END):
                await call_abandonable(self._forget)

    def _write(self, plain: Mapping[str, Any]) -> None:
        with self._writing:
            if not self._is_over:
                write_live(self._store, self._run_id, plain)

    def _forget(self) -> None:
        with self._writing:
            self._is_over = True
            forget_live(self._store, self._run_id)
