"""Shows other processes what the agents of a run are writing: at most twice a second, and never in the run's way.

What takes less than half a second is not shown at all, so that short calls cost nothing. A store that cannot be written
now is tried again with the next piece: nobody needs this to go on with the run.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from threading import Lock
from typing import Any, Final

import anyio
import anyio.to_thread

from flowengine.core.run_scope import RunScope
from flowengine.engine.events import TokenStreamed
from flowengine.engine.ports import JournalStore
from flowengine.errors import JournalError
from flowengine.journal.live_texts import LiveTexts, forget_live, write_live

__all__ = ["LiveBoard"]

_PAUSE: Final = 0.5
"""Seconds between two writings."""
_AT_END: Final = 2.0
"""Seconds that a run waits at its end until nothing is shown any more."""


class LiveBoard:
    """Of one run, for as long as this process drives it. Made once something is heard."""

    def __init__(self, store: JournalStore, run_id: str, scope: RunScope) -> None:
        self._store = store
        self._run_id = run_id
        self._texts = LiveTexts()
        self._news = anyio.Event()
        self._is_shown = False
        self._is_over = False
        self._writing = Lock()
        """Held while something is written, so that nothing is shown once the end has taken it away."""
        scope.start_soon(self._show)
        scope.at_end(self._clear)

    def hear(self, piece: TokenStreamed) -> None:
        self._texts.hear(piece)
        self._news.set()

    async def _show(self) -> None:
        while True:
            await self._news.wait()
            await anyio.sleep(_PAUSE)
            self._news = anyio.Event()
            self._is_shown = True
            with suppress(JournalError):
                await anyio.to_thread.run_sync(self._write, self._texts.as_plain())

    async def _clear(self) -> None:
        if self._is_shown:
            with suppress(JournalError), anyio.move_on_after(_AT_END):
                await anyio.to_thread.run_sync(self._forget, abandon_on_cancel=True)

    def _write(self, plain: Mapping[str, Any]) -> None:
        with self._writing:
            if not self._is_over:
                write_live(self._store, self._run_id, plain)

    def _forget(self) -> None:
        with self._writing:
            self._is_over = True
            forget_live(self._store, self._run_id)
