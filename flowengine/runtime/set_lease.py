"""Lets one process at a time run a set of rows: a second one would ask, and pay for, what the first one waits for.

Rows that wait for a batch have no writer, so nothing else keeps a second process from them. A process that died holds
nothing: on its own machine that is seen at once, from another one after a minute in which it was not heard of. It
knows no row and starts no task.
"""

from __future__ import annotations

import os
import socket
from collections import Counter
from collections.abc import Awaitable, Callable, Generator, Mapping
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any, Final

import anyio

from flowengine.engine import JournalStore
from flowengine.errors import RunBusyError, StoreUnavailableError
from flowengine.journal import now_of

_KIND: Final = "rows.held"
_BEAT: Final = 10.0
_SILENCE: Final = 60.0
"""Seconds after which a process of another machine holds nothing any more."""
_OURS: Final = Counter[tuple[int, str]]()
"""How often this process holds a set of a store: an eval runs its flow and its judges as one set."""


@contextmanager
def hold_set(store: JournalStore, set_id: str) -> Generator[Callable[[], Awaitable[None]]]:
    """Hold the set within the block, in which what is given is to run as a task.

    `RunBusyError` where another process holds it.
    """
    ours = (id(store), set_id)
    if not _OURS[ours]:
        store.revise(_KIND, set_id, partial(_take, set_id, now_of(store)))
    _OURS[ours] += 1
    try:
        yield partial(_keep_holding, store, set_id)
    finally:
        _OURS[ours] -= 1
        if not _OURS[ours]:
            del _OURS[ours]
            with suppress(StoreUnavailableError):  # This process ends soon, or holds it again.
                store.revise(_KIND, set_id, lambda before: None if _is_ours(before) else before)


async def _keep_holding(store: JournalStore, set_id: str) -> None:
    while True:
        await anyio.sleep(_BEAT)
        try:
            store.revise(_KIND, set_id, partial(_take, set_id, now_of(store)))
        except RunBusyError:
            raise
        except StoreUnavailableError:
            continue  # There is time left until the silence is too long.


def _take(set_id: str, now: float, before: Mapping[str, Any] | None) -> Mapping[str, Any]:
    if before is not None and not _is_ours(before) and _is_alive(before, now):
        who = f"process {before['process']} on {before['host']}"
        is_here = before["host"] == socket.gethostname()
        dead = "" if is_here else f"; one that has died is forgotten after {_SILENCE:g} s"
        raise RunBusyError(
            f"the rows of set {set_id} are being run by {who}: wait until it ends, or stop it{dead}", who
        )
    return {"host": socket.gethostname(), "process": os.getpid(), "born": born_at(os.getpid()), "at": now}


def _is_ours(holder: Mapping[str, Any] | None) -> bool:
    """Tells whether this process holds it; one that was forked has another number."""
    ours = (socket.gethostname(), os.getpid(), born_at(os.getpid()))
    return holder is not None and (holder["host"], holder["process"], holder["born"]) == ours


def _is_alive(holder: Mapping[str, Any], now: float) -> bool:
    if holder["host"] != socket.gethostname():
        return now - holder["at"] < _SILENCE
    if holder["born"]:
        return born_at(holder["process"]) == holder["born"]
    try:
        os.kill(holder["process"], 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def born_at(process: int) -> str:
    """Returns the start time of a local process, in the system's own unit; empty if unknown."""
    try:
        status = Path(f"/proc/{process}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
    return status.rpartition(")")[2].split()[19]  # The name before it may have blanks (proc(5)).
