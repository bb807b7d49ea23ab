"""Keeps memories and messages on a PostgreSQL server: for bots that run on many machines.

It knows the server: its connection, made anew where it broke, its tables, and what its errors mean to a user. The
statements are those of `sql_stores`, in a schema of their own. Nothing that it says holds
a password.

The extra `queue` brings psycopg. One connection, used by one thread at a time.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final, TypeVar, cast

import psycopg
from anyio import to_thread

from flowengine.agents.memory.database import Rows, SqlConnection
from flowengine.core.storage import explain_refusal, parameters_of
from flowengine.errors import FlowEngineError, StoreCorruptError, StoreUnavailableError, StoreVersionError

T = TypeVar("T")

_VERSION: Final = 1
_LOCK: Final = 0x464C4D45
"""The advisory lock that a writer holds."""

_SCHEMA: Final = f"""
    CREATE SCHEMA IF NOT EXISTS flowengine_memory;
    SET LOCAL search_path TO flowengine_memory;
    CREATE TABLE IF NOT EXISTS version (version INTEGER NOT NULL);
    CREATE TABLE IF NOT EXISTS scope (
        number BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY, kind TEXT NOT NULL,
        id TEXT COLLATE "C" NOT NULL, UNIQUE (kind, id)
    );
    CREATE TABLE IF NOT EXISTS memory (
        scope BIGINT NOT NULL REFERENCES scope, type TEXT NOT NULL, text TEXT NOT NULL,
        valid_from BIGINT NOT NULL, valid_to BIGINT,
        number BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY
    );
    CREATE INDEX IF NOT EXISTS memory_by_time ON memory (scope, type, valid_from);
    CREATE TABLE IF NOT EXISTS channel (id TEXT PRIMARY KEY, name TEXT NOT NULL, last_activity BIGINT);
    CREATE TABLE IF NOT EXISTS message (
        channel TEXT NOT NULL, ts TEXT COLLATE "C" NOT NULL, thread TEXT,
        author TEXT NOT NULL, text TEXT NOT NULL, at BIGINT NOT NULL,
        PRIMARY KEY (channel, ts)
    );
    CREATE INDEX IF NOT EXISTS message_by_time ON message (channel, at);
    CREATE INDEX IF NOT EXISTS message_by_thread ON message (channel, thread, at) WHERE thread IS NOT NULL;
    INSERT INTO version SELECT {_VERSION} WHERE NOT EXISTS (SELECT 1 FROM version);
"""

_SETTINGS: Final[dict[str, Any]] = {
    "connect_timeout": 10,
    "keepalives_idle": 30,
    "tcp_user_timeout": 30_000,
    "client_encoding": "UTF8",
    "application_name": "flowengine",
}
"""Unless the URL says otherwise: a server that is gone is noticed within half a minute."""


class PostgresMemoryDatabase:
    """The database of a URL, `postgresql://user:password@host:5432/database`; reached at its first use."""

    def __init__(self, url: str) -> None:
        self._parameters = parameters_of(url, "the memory store")
        self._lock = threading.Lock()
        self._connection: psycopg.Connection[tuple[Any, ...]] | None = None

    async def read(self, work: Callable[[SqlConnection], T]) -> T:
        return await to_thread.run_sync(self._use_connection, work)

    async def write(self, work: Callable[[SqlConnection], T]) -> T:
        """All of the work, or nothing of it; writers wait for each other."""
        return await to_thread.run_sync(self._use_connection, partial(_alone, work))

    def close(self) -> None:
        """Let go of the server; a later use reaches for it again."""
        with self._lock:
            if self._connection is not None:
                self._connection.close()
                self._connection = None

    def _use_connection(self, work: Callable[[SqlConnection], T]) -> T:
        """A transaction. It is done anew, once, where the connection broke meanwhile: then nothing of it was kept, or
        it was a transaction that may be done twice."""
        with self._lock:
            try:
                try:
                    return self._run_transaction(work)
                except psycopg.Error:
                    if self._connection is None or not self._connection.closed:
                        raise
                return self._run_transaction(work)
            except (psycopg.Error, UnicodeError) as error:
                raise self._explain_error(error) from error

    def _run_transaction(self, work: Callable[[SqlConnection], T]) -> T:
        if self._connection is None or self._connection.closed:
            self._connection = self._open_connection()
        with self._connection.transaction():
            return work(_Translated(self._connection))

    def _open_connection(self) -> psycopg.Connection[tuple[Any, ...]]:
        connection = psycopg.connect(**(_SETTINGS | self._parameters), autocommit=True)
        try:
            connection.execute("SET lock_timeout = '10s'")
            with connection.transaction():
                connection.execute("SELECT pg_advisory_xact_lock(%s)", (_LOCK,))
                connection.execute(_SCHEMA.encode())
                row = connection.execute("SELECT max(version) FROM version").fetchone()
            connection.execute("SET search_path TO flowengine_memory")
        except BaseException:
            connection.close()
            raise
        if row is None or row[0] > _VERSION:
            connection.close()
            raise StoreVersionError(f"{self.name} was written by a newer FlowEngine: upgrade FlowEngine to use it")
        return connection

    @property
    def name(self) -> str:
        """The server and the database, for messages."""
        parameters = self._parameters
        user = f"{parameters['user']}@" if "user" in parameters else ""
        port = f":{parameters['port']}" if "port" in parameters else ""
        return f"postgresql://{user}{parameters.get('host', '')}{port}/{parameters.get('dbname', '')}"

    def _explain_error(self, error: Exception) -> FlowEngineError:
        """Makes a memory error with advice out of an exception."""
        message = " ".join(str(error).split())
        password = str(self._parameters.get("password", ""))
        if password:
            message = message.replace(password, "***")
        if isinstance(error, (psycopg.errors.UndefinedTable, psycopg.errors.UndefinedColumn)):
            return StoreCorruptError(f"{self.name} lacks a part of its tables ({message}): restore it from a copy")
        return StoreUnavailableError(f"{self.name} {_reason(error, message)} ({message})")


class _Translated:
    """The connection as our statements expect it: `?` for values."""

    def __init__(self, connection: psycopg.Connection[tuple[Any, ...]]) -> None:
        self._connection = connection

    def execute(self, statement: str, values: Sequence[Any] = (), /) -> Rows:
        cursor = self._connection.execute(statement.replace("?", "%s").encode(), values)
        return cast(Rows, cursor)


def _alone(work: Callable[[SqlConnection], T], connection: SqlConnection) -> T:
    connection.execute("SELECT pg_advisory_xact_lock(?)", (_LOCK,))
    return work(connection)


def _reason(error: Exception, message: str) -> str:
    if isinstance(error, psycopg.DataError | UnicodeError):
        return "cannot hold such text"
    return explain_refusal(message, "flowengine_memory")
