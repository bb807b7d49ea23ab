"""What workers have said that they lack for a run, kept beside it for whoever asks why it does not begin."""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping
from time import time
from typing import Any, Final

from flowengine.engine.ports import JournalStore
from flowengine.values import thaw

__all__ = ["forget", "lacks_of", "note"]

_KIND: Final = "queue.lacks"
_MOST: Final = 20
"""Workers that are remembered for a run."""
_RECENT: Final = 300.0
"""Seconds after which a worker that has not said so again may be gone."""


def note(store: JournalStore, run_id: str, lack: str) -> None:
    """This process lacks something for the run."""
    name, now = f"{socket.gethostname()}:{os.getpid()}", time()

    def change(known: Any) -> Any:
        found: dict[str, Any] = {} if known is None else thaw(known)
        found.pop(name, None)
        return dict([*found.items(), (name, [now, lack])][-_MOST:])

    store.revise(_KIND, run_id, change)


def forget(store: JournalStore, run_id: str) -> None:
    """A worker has taken the run, or nobody is to any more."""
    store.revise(_KIND, run_id, lambda known: None)


def lacks_of(store: JournalStore, run_id: str) -> Mapping[str, str]:
    """Worker (host and process) → what it said of late that it lacks."""
    known: Any = store.recall(_KIND, run_id) or {}
    since = time() - _RECENT
    return {worker: lack for worker, (at, lack) in known.items() if at > since}
