"""From what `--store` says to a store. The one table of the kinds of store that there are."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Final

from flowengine.engine.ports import JournalStore
from flowengine.errors import StoreUnavailableError, did_you_mean
from flowengine.extras import install_hint
from flowengine.journal.address import without_password
from flowengine.journal.database import Durability
from flowengine.journal.memory import MemoryStore
from flowengine.journal.sqlite import SQLiteStore

__all__ = ["open_store"]


def open_store(url: str | None, durability: Durability = "process") -> JournalStore:
    """The store at a URL or a path; None is one in memory.

    `sqlite:///runs.db` is relative to the working folder and `sqlite:////var/runs.db` is absolute; a path alone
    is a SQLite file too; `memory:` keeps nothing; `postgresql://user@host/database` is a database of a server.

    >>> open_store("sqlite:///runs.db").find("@last")
    Traceback (most recent call last):
    flowengine.errors.RunNotFoundError: no run '@last': runs.db holds no runs
    """
    if url is None:
        return MemoryStore()
    if url in _SCHEMES:
        raise StoreUnavailableError(
            f"'{url}' would be a file of that name: use {url}: for the kind, ./{url} for a file"
        )
    scheme, rest = _split(url)
    make = _SCHEMES.get(scheme)
    if make is None:
        known = ", ".join(f"{each}:" for each in _SCHEMES)
        raise StoreUnavailableError(
            f"'{without_password(url)}' names no kind of store that is known: use {known} or a path"
            f"{did_you_mean(scheme, _SCHEMES)}"
        )
    return make(url, rest, durability)


def _split(url: str) -> tuple[str, str]:
    """Scheme and rest; a path has no scheme, nor has a drive's letter."""
    match = re.match(r"([A-Za-z][A-Za-z0-9+.-]+):", url)
    return (match[1].lower(), url[match.end() :]) if match else ("sqlite", f"///{url}")


def _memory(url: str, rest: str, durability: Durability) -> JournalStore:
    if rest not in ("", "//"):
        raise StoreUnavailableError(f"'{url}' names a place in memory, and there is only one: use memory:")
    return MemoryStore()


def _sqlite(url: str, rest: str, durability: Durability) -> JournalStore:
    path = rest.removeprefix("///")
    if path == rest or path in ("", ":memory:"):
        raise StoreUnavailableError(
            f"'{url}' names no file: use sqlite:///relative.db, sqlite:////absolute.db, or memory:"
        )
    return SQLiteStore(Path(path).expanduser(), durability)


def _postgres(url: str, rest: str, durability: Durability) -> JournalStore:
    try:
        from flowengine.journal.postgres import PostgresStore  # Only who uses it needs a driver.
    except ImportError as error:
        raise StoreUnavailableError(
            f"a store on PostgreSQL needs its driver: {install_hint('queue')} ({error})"
        ) from error
    return PostgresStore(url, durability)


_SCHEMES: Final[dict[str, Callable[[str, str, Durability], JournalStore]]] = {
    "memory": _memory,
    "postgresql": _postgres,
    "sqlite": _sqlite,
}
