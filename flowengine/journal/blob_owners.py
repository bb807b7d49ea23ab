"""Says who owns what stores keep beside the events: what is a run's and goes with it, and who needs a file's content.

A content has owners: runs, and values that are kept beside the runs. It is deleted with its last owner. An owner is
noted before anything of it is on record, so that a run which is just beginning loses nothing; what is noted for a run
that never began is dropped after a day.
"""

from __future__ import annotations

import re
from typing import Final, cast

from flowengine.core import BlobStore, hash_of
from flowengine.engine import JournalStore
from flowengine.errors import JournalError, NotJournalableError, StoreUnavailableError
from flowengine.journal.value_types import FILE_TAG

_OF_A_RUN: Final = ("answer", "followed", "live", "notes", "queue.deaths", "queue.held", "queue.lacks", "queue.loading")
"""Kinds of what is kept beside a run under the run's id."""


def forget_beside(store: JournalStore, kind: str, key: str) -> None:
    """Keep it no more, where it is kept."""
    if store.recall(kind, key) is not None:
        store.revise(kind, key, lambda known: None)


def forget_run(store: JournalStore, run_id: str) -> None:
    """The run is no more: what is kept beside it goes with it."""
    for kind in _OF_A_RUN:
        forget_beside(store, kind, run_id)


# --- Contents of files

MAX_BLOB: Final = 256 * 2**20
"""Bytes that a store takes as one content, whatever a project allows."""

NEVER_BEGAN_AFTER: Final = 86_400.0
"""Seconds after which an owner that is no run is one no more."""

_BESIDE: Final = "beside"
_NAMED: Final = re.compile(rf'\{{"{re.escape(FILE_TAG)}":\["([0-9a-f]{{64}})"')
_MARK: Final = f'{{"{FILE_TAG}":['


def named_blobs(text: str) -> frozenset[str]:
    """The hashes of the files that the text of an event or of a value names.

    >>> named_blobs('[1,{"a":"{\\\\"$file\\\\":[1"}]')
    frozenset()
    """
    return frozenset(_NAMED.findall(text)) if _MARK in text else frozenset()


def beside_owner(kind: str, key: str) -> str:
    """The owner's name of a value that is kept beside the runs; no run is called so.

    >>> beside_owner("session", "ann")
    'beside session ann'
    """
    return f"{_BESIDE} {kind} {key}"


def check_blob(content: bytes) -> str:
    """The hash of a content that a store can take; `NotJournalableError` where it is too large."""
    if len(content) > MAX_BLOB:
        raise NotJournalableError(f"a file of {len(content):,} bytes is not kept: at most {MAX_BLOB:,} are")
    return hash_of(content)


def missing_blob(store: str, blob: str) -> JournalError:
    """The error for a content that the store does not have."""
    return StoreUnavailableError(
        f"{store} does not hold the content of file {blob[:12]}…: it was removed, or never kept"
    )


def blobs_of(store: JournalStore) -> BlobStore:
    """The store's part that keeps files; `StoreUnavailableError` for a store of another package that has none."""
    if callable(getattr(store, "put_blob", None)):
        return cast("BlobStore", store)
    raise StoreUnavailableError(f"the store {type(store).__name__} keeps no files: use a SQLite file or PostgreSQL")


class BlobNotes:
    """Notes, for the writer of a run, which files its events name: each once."""

    __slots__ = ("_blobs", "_noted", "_owner")

    def __init__(self, blobs: BlobStore, owner: str) -> None:
        self._blobs = blobs
        self._owner = owner
        self._noted: set[str] = set()

    def note(self, text: str) -> None:
        """To be called with each event's text before the event is written."""
        if _MARK in text:
            for blob in named_blobs(text) - self._noted:
                self._blobs.keep_blob(self._owner, blob)
                self._noted.add(blob)
