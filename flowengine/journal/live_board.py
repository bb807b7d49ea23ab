"""Shows in the store, for those who follow a run from other processes, what its agents are writing.

It is written at most twice a second, only while somebody follows, and never in the run's way: a store that cannot be
written now is tried again with the next piece. What takes less than half a second is not shown at all. Where nobody
follows, now and then a look is all that it costs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from threading import Lock
from time import monotonic
from typing import Any, Final

import anyio
import anyio.to_thread

from flowengine.core import RunScope, call_abandonable
from flowengine.engine import JournalStore, TokenStreamed
from flowengine.errors import JournalError
from flowengine.journal.live_texts import FollowerWatch, LiveTexts, forget_live, write_live

_MOST_HEARD: Final = 1_000
"""Pieces that are kept as they come."""
_PAUSE: Final = 0.5
"""Seconds between two writings."""
_LOOKS_AGAIN: Final = 2.0
"""Seconds between two looks for followers, while something is being written."""
_SELDOM: Final = 60.0
"""The same, where nothing is for long."""
_AT_END: Final = 2.0
"""Seconds that a run waits at its end until nothing is shown any more."""


class LiveBoard:
    """Shows a run's running texts in its store while this process drives it. Made at the first text."""

    def __init__(self, store: JournalStore, run_id: str, scope: RunScope, flush: Callable[[], None]) -> None:
        """`flush`: shows to readers of the store what the run's journal was told: texts follow their node's start."""
        self._store = store
        self._flush = flush
        self._watch = FollowerWatch(store, run_id)
        self._is_followed = False
        self._looks_next = monotonic() + 2 * _PAUSE
        self._heard_at = 0.0
        self._run_id = run_id
        self._texts = LiveTexts()
        self._inbox: list[TokenStreamed] = []
        """Pieces the texts do not have yet: most calls of models end before anything is shown."""
        self._news = anyio.Event()
        self._is_shown = False
        self._is_over = False
        self._writing = Lock()
        """Held while something is written, so that nothing is shown once the end has taken it away."""
        scope.start_soon(self._show)
        scope.at_end(self._clear)

    def hear(self, piece: TokenStreamed) -> None:
        self._heard_at = monotonic()
        if not self._inbox:
            self._news.set()
        elif len(self._inbox) > _MOST_HEARD:
            self._take_in()
        self._inbox.append(piece)

    def _take_in(self) -> None:
        pieces, self._inbox = self._inbox, []
        for piece in pieces:
            self._texts.hear(piece)

    async def _show(self) -> None:
        while True:
            await self._news.wait()
            await anyio.sleep(_PAUSE if self._is_followed else max(_PAUSE, self._looks_next - monotonic()))
            with suppress(JournalError):
                await self._look()
                if self._is_followed:
                    self._news = anyio.Event()
                    self._take_in()
                    self._flush()
                    self._is_shown = True
                    await anyio.to_thread.run_sync(self._write, self._texts.as_plain())

    async def _look(self) -> None:
        """Find out, now and then, whether somebody follows."""
        now = monotonic()
        if now >= self._looks_next:
            self._looks_next = now + min(_SELDOM, max(_LOOKS_AGAIN, (now - self._heard_at) / 4))
            self._is_followed = await anyio.to_thread.run_sync(self._watch.look)

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
