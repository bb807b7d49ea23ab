"""What SQL of memories may count on, whatever the database: transactions, `?` for values, and how times are kept.

A protocol and a few statements that every database here understands. Files, servers and connections are other
modules' matter.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Final, Protocol, TypeVar

__all__ = ["NO_LIMIT", "Connection", "Rows", "SQLDatabase", "instant", "moment", "scope_number"]

T = TypeVar("T")

NO_LIMIT: Final = 2**62
"""Rows, where all are wanted."""

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND: Final = timedelta(microseconds=1)


class Rows(Protocol):
    """What a statement gave."""

    def fetchone(self) -> Any: ...

    def fetchall(self) -> list[Any]: ...


class Connection(Protocol):
    """Where statements go, inside a transaction."""

    def execute(self, statement: str, values: Sequence[Any] = (), /) -> Rows: ...


class SQLDatabase(Protocol):
    """Runs work on its connection, outside of the event loop's thread."""

    async def read(self, work: Callable[[Any], T]) -> T: ...

    async def write(self, work: Callable[[Any], T]) -> T:
        """All of the work, or nothing of it; one writer at a time."""
        ...


def instant(time: datetime) -> int:
    """A time as it is kept: whole microseconds of Unix time.

    >>> moment(instant(datetime(2025, 3, 1, 9, 0, 0, 5, tzinfo=UTC))).isoformat()
    '2025-03-01T09:00:00.000005+00:00'
    """
    return (time - _EPOCH) // _MICROSECOND


def moment(instant: int) -> datetime:
    """A kept time, in UTC."""
    return _EPOCH + instant * _MICROSECOND


def scope_number(connection: Connection, kind: str, id: str, *, make: bool = False) -> int | None:
    """The number of a scope; None where it is not known, unless it is to be made."""
    row = connection.execute("SELECT number FROM scope WHERE kind = ? AND id = ?", (kind, id)).fetchone()
    if row is None and make:
        row = connection.execute("INSERT INTO scope (kind, id) VALUES (?, ?) RETURNING number", (kind, id)).fetchone()
    return None if row is None else row[0]
