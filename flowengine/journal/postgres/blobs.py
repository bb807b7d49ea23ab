"""Keeps the contents of files in PostgreSQL: each once, under its hash, for as long as somebody owns it.

Who takes a content in and who deletes contents exclude each other by a lock: a content that is just being deleted is
not found by anybody who would keep it.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import Final

from flowengine.core import hash_of
from flowengine.errors import StoreCorruptError
from flowengine.journal.blob_owners import NEVER_BEGAN_AFTER, beside_owner, check_blob, missing_blob
from flowengine.journal.postgres.connection import Connection, Database

_SHARED: Final = b"SELECT pg_advisory_xact_lock_shared(hashtextextended('flowengine blobs', 0))"
_ALONE: Final = b"SELECT pg_advisory_xact_lock(hashtextextended('flowengine blobs', 0))"
_USE: Final = b"INSERT INTO flowengine.blob_use (owner, hash) VALUES (%s, %s) ON CONFLICT DO NOTHING"
_FORGET: Final = b"""
    DELETE FROM flowengine.blob AS held WHERE hash IN (SELECT hash FROM flowengine.blob_use WHERE owner = %s)
    AND NOT EXISTS (SELECT FROM flowengine.blob_use AS other WHERE other.hash = held.hash AND owner <> %s)
"""
_NEVER_BEGAN: Final = b"""
    SELECT DISTINCT owner FROM flowengine.blob_use AS used
    WHERE at < now() - make_interval(secs => %s) AND NOT starts_with(owner, 'beside ')
    AND NOT EXISTS (SELECT FROM flowengine.run WHERE run_id = used.owner)
"""


class PostgresBlobs:
    """The tables of contents over one connection."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def put(self, owner: str, content: bytes) -> str:
        blob = check_blob(content)
        self._database.transact(partial(self._put, owner, blob, content))
        return blob

    def keep(self, owner: str, blob: str) -> bool:
        """Note one more owner; whether the content is there."""
        return self._database.transact(partial(self._keep, owner, blob))

    def read(self, blob: str) -> bytes:
        for (body,) in self._database.query("SELECT body FROM flowengine.blob WHERE hash = %s", blob):
            content = bytes(body)
            if hash_of(content) != blob:
                name = self._database.name
                raise StoreCorruptError(f"{name} is damaged: the content of file {blob[:12]}… is not what was written")
            return content
        raise missing_blob(self._database.name, blob)

    def size(self, blob: str) -> int | None:
        for (size,) in self._database.query("SELECT size FROM flowengine.blob WHERE hash = %s", blob):
            return size
        return None

    def forget(self, owner: str) -> None:
        """Drop an owner, and those that never began, with the contents that have no owner then."""
        self._database.transact(partial(self.drop, owner))

    def drop(self, owner: str, connection: Connection) -> None:
        """Forgets like `forget`, inside the caller's transaction."""
        execute = connection.execute
        if not execute("SELECT FROM flowengine.blob_use LIMIT 1").fetchall():
            return
        execute(_ALONE)
        rows = execute(_NEVER_BEGAN, (NEVER_BEGAN_AFTER,)).fetchall()
        for each in (owner, *(name for (name,) in rows if name != owner)):
            execute(_FORGET, (each, each))
            execute("DELETE FROM flowengine.blob_use WHERE owner = %s", (each,))

    def own_beside(self, kind: str, key: str, blobs: Iterable[str], connection: Connection) -> None:
        """Make a value that is kept beside the runs the owner of just these, inside the caller's transaction."""
        owner, targets = beside_owner(kind, key), set(blobs)
        execute = connection.execute
        rows = execute("SELECT hash FROM flowengine.blob_use WHERE owner = %s", (owner,)).fetchall()
        current = {blob for (blob,) in rows}
        if current == targets:
            return
        execute(_ALONE if current - targets else _SHARED)
        for blob in current - targets:
            execute(_FORGET + b" AND hash = %s", (owner, owner, blob))
            execute("DELETE FROM flowengine.blob_use WHERE owner = %s AND hash = %s", (owner, blob))
        for blob in targets - current:
            execute(_USE, (owner, blob))

    def _put(self, owner: str, blob: str, content: bytes, connection: Connection) -> None:
        connection.execute("SET LOCAL synchronous_commit = on")  # What is read in a run is not lost before it.
        connection.execute(_SHARED)
        connection.execute(
            "INSERT INTO flowengine.blob (hash, size, body) VALUES (%s, %s, %s) ON CONFLICT DO NOTHING",
            (blob, len(content), content),
        )
        connection.execute(_USE, (owner, blob))

    def _keep(self, owner: str, blob: str, connection: Connection) -> bool:
        connection.execute(_SHARED)
        if not connection.execute("SELECT FROM flowengine.blob WHERE hash = %s", (blob,)).fetchall():
            return False
        connection.execute(_USE, (owner, blob))
        return True
