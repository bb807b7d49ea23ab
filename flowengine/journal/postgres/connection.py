"""Holds one connection to a PostgreSQL server: opened, checked, replaced when it breaks, its errors explained.

The connection has a key, a random number whose advisory lock it holds for as long as its session lives. The
server lets go of the lock when the session ends, however it ends: so a free lock
means that its writer is dead, or cut off. (A pooler that gives each transaction another session breaks that.)

It knows no events and none of the tables. Nothing that it says holds a password.
"""

from __future__ import annotations

import os
import random
import socket
import time
from collections.abc import Callable
from threading import RLock
from typing import Any, Final, TypeVar

import psycopg

from flowengine.core.storage import explain_refusal, parameters_of
from flowengine.engine import Durability
from flowengine.errors import JournalError, StoreCorruptError, StoreUnavailableError

Row = tuple[Any, ...]
Connection = psycopg.Connection[Row]
T = TypeVar("T")

_SETTINGS: Final[dict[str, Any]] = {
    "connect_timeout": 10,
    "keepalives_idle": 30,
    "tcp_user_timeout": 30_000,
    "client_encoding": "UTF8",
    "application_name": "flowengine",
}
"""Unless the URL says otherwise: a server that is gone is noticed within half a minute."""

_FIRST_PAUSE: Final = 0.1
_LONGEST_PAUSE: Final = 2.0

_SYNCHRONOUS: Final[dict[Durability, str]] = {"full": "on", "process": "off", "memory": "off"}


class Database:
    """Used by one thread at a time; `run` sees to that. `prepare` is called with each new connection."""

    def __init__(
        self,
        url: str,
        durability: Durability,
        prepare: Callable[[Connection, str], None],
        *,
        patience: float = 10.0,
        role: str = "process",
    ) -> None:
        self._parameters = parameters_of(url, "the store")
        self.name = _format_address(self._parameters)
        """The server and the database, for messages."""
        self.key = random.SystemRandom().getrandbits(62)
        self.owner = f"{role} {os.getpid()} on {socket.gethostname()}"
        self._durability: Durability = durability
        self._prepare = prepare
        self.patience = patience
        """Seconds for which a server that went away, or is full, is waited for; also of those who wait already."""
        self._lock = RLock()
        self._connection: Connection | None = self._run_guarded(self._connect)

    def run(self, work: Callable[[Connection], T]) -> T:
        """What `work` makes of the connection. It is done anew where the connection broke meanwhile, or the disk was
        full, as soon as that is over: so it has to be a transaction that may be done twice."""
        with self._lock:
            start, pause = time.monotonic(), _FIRST_PAUSE
            while True:
                connection = self._connection
                if connection is None:
                    raise StoreUnavailableError(f"the store {self.name} is closed")
                try:
                    if connection.closed:
                        connection = self._connection = self._connect()
                    return work(connection)
                except (psycopg.Error, UnicodeError) as error:
                    if not _is_passing(error, connection) or time.monotonic() - start > self.patience:
                        raise self._to_journal_error(error) from error
                if pause > _FIRST_PAUSE:  # The first time at once: most often only the connection was lost.
                    time.sleep(pause * random.uniform(0.5, 1.0))
                pause = min(pause * 1.5, _LONGEST_PAUSE)

    def transact(self, work: Callable[[Connection], T]) -> T:
        """Runs `work` like `run`, in one transaction."""

        def transaction(connection: Connection) -> T:
            with connection.transaction():
                return work(connection)

        return self.run(transaction)

    def query(self, statement: str, *values: Any) -> list[Row]:
        """The rows of one statement, a transaction of its own."""
        return self.run(lambda connection: connection.execute(statement.encode(), values).fetchall())

    def close(self) -> None:
        with self._lock:
            if self._connection is not None:
                self._connection.close()
                self._connection = None

    def _connect(self) -> Connection:
        connection = psycopg.connect(**(_SETTINGS | self._parameters), autocommit=True)
        try:
            connection.execute("SET lock_timeout = '10s'; SET idle_in_transaction_session_timeout = '5s'")
            connection.execute("SELECT pg_advisory_lock(%s)", (self.key,))
            self._prepare(connection, self.name)
            connection.execute(f"SET synchronous_commit = {_SYNCHRONOUS[self._durability]}".encode())
        except BaseException:
            connection.close()
            raise
        return connection

    def _run_guarded(self, work: Callable[[], T]) -> T:
        try:
            return work()
        except (psycopg.Error, UnicodeError) as error:
            raise self._to_journal_error(error) from error

    def _to_journal_error(self, error: psycopg.Error | UnicodeError) -> JournalError:
        message = " ".join(str(error).split())
        password = str(self._parameters.get("password", ""))
        if password:
            message = message.replace(password, "***")
        if isinstance(error, (psycopg.errors.UndefinedTable, psycopg.errors.UndefinedColumn)):
            return StoreCorruptError(f"{self.name} lacks a part of its tables ({message}): restore it from a copy")
        return StoreUnavailableError(f"{self.name} {_reason(error, message)} ({message})")


def _is_passing(error: Exception, connection: Connection) -> bool:
    """Tells whether it is worth waiting. Tries come ever less often, and not in step with others'."""
    is_away = connection.closed and isinstance(error, psycopg.OperationalError)
    return is_away or isinstance(error, psycopg.errors.DiskFull)


def _format_address(parameters: dict[str, Any]) -> str:
    """
    >>> _format_address({"user": "ann", "password": "x", "host": "db", "port": "5433", "dbname": "runs"})
    'postgresql://ann@db:5433/runs'
    """
    user = f"{parameters['user']}@" if "user" in parameters else ""
    port = f":{parameters['port']}" if "port" in parameters else ""
    return f"postgresql://{user}{parameters.get('host', '')}{port}/{parameters.get('dbname', '')}"


def _reason(error: Exception, message: str) -> str:
    if isinstance(error, UnicodeError):
        return "cannot hold such text"
    return explain_refusal(message, "flowengine")
