"""Keeps the contents of files in the SQLite store: each once, under its hash, for as long as somebody owns it."""

from __future__ import annotations

from collections.abc import Iterable
from time import time
from typing import Final

from flowengine.core import hash_of
from flowengine.journal.blob_owners import NEVER_BEGAN_AFTER, beside_owner, check_blob, missing_blob
from flowengine.journal.sqlite.database import SqliteQueries, damage

_PUT: Final = """
    INSERT INTO blob (hash, size, body) VALUES (?, ?, ?)
    ON CONFLICT (hash) DO UPDATE SET body = excluded.body, size = excluded.size WHERE body IS NOT excluded.body
"""
"""Who brings a content again mends one that is damaged."""
_USE: Final = "INSERT INTO blob_use VALUES (?, ?, ?) ON CONFLICT DO NOTHING"
_FORGET: Final = """
    DELETE FROM blob WHERE hash IN (SELECT hash FROM blob_use WHERE owner = ?)
    AND NOT EXISTS (SELECT 1 FROM blob_use WHERE blob_use.hash = blob.hash AND owner <> ?)
"""
_NEVER_BEGAN: Final = """
    SELECT DISTINCT CAST(owner AS TEXT) FROM blob_use
    WHERE at < ? AND owner NOT LIKE 'beside %' AND NOT EXISTS (SELECT 1 FROM run WHERE run_id = blob_use.owner)
"""


class SqliteBlobs(SqliteQueries):
    """The tables of contents over one connection."""

    def put(self, owner: str, content: bytes) -> str:
        blob = check_blob(content)
        with self._transaction():
            self._execute(_PUT, blob, len(content), content)
            self._execute(_USE, owner, blob, time())
        return blob

    def keep(self, owner: str, blob: str) -> bool:
        """Note one more owner; whether the content is there."""
        with self._transaction():
            if not self._execute("SELECT 1 FROM blob WHERE hash = ?", blob):
                return False
            self._execute(_USE, owner, blob, time())
        return True

    def read(self, blob: str) -> bytes:
        for (body,) in self._execute("SELECT CAST(body AS BLOB) FROM blob WHERE hash = ?", blob):
            if body is None or hash_of(body) != blob:
                raise damage(self.path, f"is damaged, the content of file {blob[:12]}… is not what was written")
            return body
        raise missing_blob(str(self.path), blob)

    def size(self, blob: str) -> int | None:
        for (size,) in self._execute("SELECT size FROM blob WHERE hash = ?", blob):
            return size
        return None

    def forget(self, owner: str) -> None:
        """Drop an owner, and those that never began, with the contents that have no owner then."""
        with self._transaction():
            self.drop(owner)

    def drop(self, owner: str) -> None:
        """Forgets like `forget`, inside the caller's transaction."""
        rows = self._execute(_NEVER_BEGAN, time() - NEVER_BEGAN_AFTER)
        for each in (owner, *(name for (name,) in rows if name != owner)):
            self._execute(_FORGET, each, each)
            self._execute("DELETE FROM blob_use WHERE owner = ?", each)

    def own_beside(self, kind: str, key: str, blobs: Iterable[str]) -> None:
        """Make a value that is kept beside the runs the owner of just these, inside the caller's transaction."""
        owner, targets = beside_owner(kind, key), set(blobs)
        current = {blob for (blob,) in self._execute("SELECT CAST(hash AS TEXT) FROM blob_use WHERE owner = ?", owner)}
        if current == targets:
            return
        if current:
            for blob in current - targets:
                self._execute(f"{_FORGET} AND hash = ?", owner, owner, blob)
                self._execute("DELETE FROM blob_use WHERE owner = ? AND hash = ?", owner, blob)
        for blob in targets - current:
            self._execute(_USE, owner, blob, time())

    def find_damaged(self) -> list[str]:
        """Hashes of contents that are not what was written."""
        rows = self._execute("SELECT CAST(hash AS TEXT) FROM blob")
        return [blob for (blob,) in rows if not self._is_whole(blob)]

    def _is_whole(self, blob: str) -> bool:
        ((body,),) = self._execute("SELECT CAST(body AS BLOB) FROM blob WHERE hash = ?", blob)
        return body is not None and hash_of(body) == blob
