"""Contents of files in the stores: kept once, checked when read, gone with the last run that needs them."""

from __future__ import annotations

import json
import sqlite3
import stat
from base64 import b64encode
from collections.abc import Iterator
from pathlib import Path
from threading import Thread
from typing import Any, cast

import pytest

from flowengine.core.context import NodeResult
from flowengine.core.file_keeper import BlobStore
from flowengine.core.file_values import FileValue, hash_of
from flowengine.core.values import FrozenDict
from flowengine.engine.events import Event, NodeFinished, NodeStarted, RunFinished, RunStarted
from flowengine.engine.ports import JournalStore
from flowengine.errors import (
    JournalError,
    NotJournalableError,
    StoreCorruptError,
    StoreUnavailableError,
    StoreVersionError,
)
from flowengine.journal import blob_owners
from flowengine.journal.blob_owners import blobs_of
from flowengine.journal.memory import MemoryStore
from flowengine.journal.run_export import mask_events, pack_run, read_files, store_run, unpack_runs
from flowengine.journal.sqlite.blob_tables import SqliteBlobs
from flowengine.journal.sqlite.repair import repair_store
from flowengine.journal.sqlite.store import SQLiteJournal, SQLiteStore
from flowengine.journal.stores import TeeStore, open_store
from tests.support.postgres import empty_database

pytestmark = pytest.mark.anyio
BEFORE = Path(__file__).with_name("stores_made_before")
SCAN = b"%PDF-1.4 \x00\xff" * 100
FILE = FileValue(hash_of(SCAN), "application/pdf", "scan.pdf", len(SCAN))


class Store(JournalStore, BlobStore):
    """Both faces, as all stores of this package have them."""


@pytest.fixture(params=["memory", "sqlite", "postgresql", "tee"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    made = {
        "memory": MemoryStore,
        "sqlite": lambda: open_store(str(tmp_path / "runs.db")),
        "postgresql": lambda: open_store(empty_database()),
        "tee": lambda: TeeStore(MemoryStore(), lambda event: None),
    }[request.param]()
    yield cast("Store", made)
    made.close()


def events_of(run_id: str, file: FileValue = FILE) -> list[Event]:
    return [
        RunStarted(run_id, "flow", 1.0, FrozenDict(invoice=file), {}, {}, "flow.yaml"),
        NodeStarted("a", 2.0),
        NodeFinished("a", 3.0, NodeResult({"again": [file]})),
        RunFinished(4.0, "succeeded", {"file": file}),
    ]


async def test_a_content_is_kept_once_and_read_as_it_was(store: Store) -> None:
    assert store.put_blob("r1", SCAN) == store.put_blob("r1", SCAN) == FILE.blob
    assert (store.read_blob(FILE.blob), store.blob_size(FILE.blob)) == (SCAN, len(SCAN))
    empty = store.put_blob("r1", b"")
    assert (store.read_blob(empty), store.blob_size(empty)) == (b"", 0)
    assert store.blob_size("0" * 64) is None
    assert store.keep_blob("r1", "0" * 64) is False
    with pytest.raises(StoreUnavailableError, match="does not hold the content"):
        store.read_blob("0" * 64)


async def test_a_file_in_the_events_of_a_run_is_bound_to_its_store(store: Store) -> None:
    await store_run(store, events_of("r1"), files={FILE.blob: SCAN})
    started = store.events("r1")[0]
    assert isinstance(started, RunStarted)
    assert started.inputs["invoice"] == FILE
    if not isinstance(store, MemoryStore | TeeStore):  # These keep events as the objects they are.
        assert started.inputs["invoice"].read_bytes() == SCAN
    store.revise("session", "s", lambda before: {"file": FILE})
    assert store.recall("session", "s")["file"] == FILE


async def test_what_two_runs_share_stays_until_both_are_gone(store: Store) -> None:
    await store_run(store, events_of("r1"), files={FILE.blob: SCAN})
    await store_run(store, events_of("r2"))  # As a fork, which was given no content.
    store.remove("r1")
    assert store.read_blob(FILE.blob) == SCAN
    store.remove("r2")
    assert store.blob_size(FILE.blob) is None


async def test_a_run_that_is_about_to_begin_loses_nothing(store: Store) -> None:
    await store_run(store, events_of("r1"), files={FILE.blob: SCAN})
    assert store.keep_blob("next", FILE.blob)
    store.remove("r1")
    await store_run(store, events_of("next"))
    assert store.read_blob(FILE.blob) == SCAN
    store.forget_blobs("unknown")
    assert store.read_blob(FILE.blob) == SCAN


async def test_a_value_beside_the_runs_keeps_its_files_while_it_names_them(store: Store) -> None:
    await store_run(store, events_of("r1"), files={FILE.blob: SCAN})
    store.revise("session", "s", lambda before: {"file": FILE})
    store.remove("r1")
    assert store.read_blob(FILE.blob) == SCAN
    other = store.put_blob("r2", b"other")
    store.revise("session", "s", lambda before: {"file": FileValue(other, "text/plain", "o.txt", 5)})
    assert store.blob_size(FILE.blob) is None
    store.forget_blobs("r2")
    assert store.read_blob(other) == b"other"
    store.revise("session", "s", lambda before: None)
    assert store.blob_size(other) is None


async def test_what_was_put_for_a_run_that_never_began_goes_after_a_day(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    if isinstance(store, MemoryStore | TeeStore):
        return  # Its owners go with the process.
    store.put_blob("never", SCAN)
    await store_run(store, events_of("r1", FileValue(hash_of(b"x"), "text/plain", "x", 1)), files={hash_of(b"x"): b"x"})
    await store_run(store, [*events_of("r2", FileValue(hash_of(b"x"), "text/plain", "x", 1))])
    store.remove("r1")
    assert store.blob_size(FILE.blob) == len(SCAN)
    module = "sqlite.blob_tables" if isinstance(store, SQLiteStore) else "postgres.blobs"
    monkeypatch.setattr(f"flowengine.journal.{module}.NEVER_BEGAN_AFTER", -60.0)
    store.forget_blobs("nobody")
    assert store.blob_size(FILE.blob) is None
    assert store.read_blob(hash_of(b"x")) == b"x"


async def test_a_content_that_is_too_large_is_refused(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(blob_owners, "MAX_BLOB", 10)
    with pytest.raises(NotJournalableError, match="a file of 11 bytes is not kept: at most 10 are"):
        store.put_blob("r1", b"x" * 11)
    assert store.read_blob(store.put_blob("r1", b"x" * 10)) == b"x" * 10


async def test_a_store_without_files_is_told() -> None:
    with pytest.raises(StoreUnavailableError, match="keeps no files"):
        blobs_of(cast("Any", object()))


def test_a_file_read_from_a_closed_store_leaves_the_runs_that_begin_meanwhile_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = SQLiteStore(tmp_path / "runs.db")
    blob = store.put_blob("r1", SCAN)
    store.close()
    read, begun = SqliteBlobs.read, list[SQLiteJournal]()

    def begin() -> None:
        journal = store.create("r2")
        journal.append(events_of("r2")[0])
        begun.append(journal)

    def read_slowly(blobs: SqliteBlobs, name: str) -> bytes:
        thread = Thread(target=begin)
        thread.start()
        thread.join()
        return read(blobs, name)

    monkeypatch.setattr(SqliteBlobs, "read", read_slowly)
    assert store.read_blob(blob) == SCAN
    [journal] = begun
    journal.append(NodeStarted("a", 2.0))
    journal.flush()
    assert len(store.events("r2")) == 2
    store.close()


def test_a_damaged_content_is_told_and_the_rest_is_repaired(tmp_path: Path) -> None:
    import anyio

    path, other = tmp_path / "runs.db", FileValue(hash_of(b"good" * 5000), "text/plain", "good.txt", 20_000)
    store = SQLiteStore(path)
    anyio.run(store_run, store, events_of("r1"), None, {FILE.blob: SCAN})
    anyio.run(store_run, store, events_of("r2", other), None, {other.blob: b"good" * 5000})
    store.revise("session", "s", lambda before: {"file": other})
    store.close()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert repair_store(path).path is None
    connection = sqlite3.connect(path)
    connection.execute("UPDATE blob SET body = ? WHERE hash = ?", (SCAN[:-1] + b"?", FILE.blob))
    connection.commit()
    connection.close()
    store = SQLiteStore(path)
    with pytest.raises(StoreCorruptError, match=r"is not what was written: restore it from a copy, or save .* repair"):
        store.read_blob(FILE.blob)
    store.close()
    done = repair_store(path)
    assert done.path is not None
    assert (done.lost_files, done.is_whole) == (1, False)
    assert {run.state for run in done.runs} == {"whole"}
    repaired = SQLiteStore(done.path)
    assert repaired.read_blob(other.blob) == b"good" * 5000
    repaired.remove("r2")
    assert repaired.recall("session", "s")["file"].read_bytes() == b"good" * 5000
    repaired.close()
    store = SQLiteStore(path)
    store.put_blob("r1", SCAN)  # Who brings it again mends it.
    assert store.read_blob(FILE.blob) == SCAN
    store.close()
    assert repair_store(path).path is None


@pytest.mark.parametrize("kind", ["sqlite", "postgresql"])
async def test_a_store_made_before_is_opened_and_takes_files(kind: str, tmp_path: Path) -> None:
    if kind == "sqlite":
        path = tmp_path / "runs.db"
        connection = sqlite3.connect(path)
        connection.executescript((BEFORE / "sqlite_3.sql").read_text())
        connection.close()
        url = str(path)
    else:
        import psycopg

        url = empty_database()
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute((BEFORE / "postgres_2.sql").read_text().encode())
            connection.execute("ALTER TABLE flowengine.run ADD COLUMN labels JSONB")
            connection.execute("UPDATE flowengine.version SET number = 3")
    store = cast("Store", open_store(url))
    assert "good2" in [info.run_id for info in store.list()]
    assert store.recall("session", "s") == {"x": 1}
    await store_run(store, events_of("new"), files={FILE.blob: SCAN})
    assert store.read_blob(FILE.blob) == SCAN
    store.remove("good2")
    store.remove("new")
    assert store.blob_size(FILE.blob) is None
    store.close()


# --- Runs as files


async def test_an_exported_run_brings_its_files(store: Store) -> None:
    await store_run(store, events_of("r1"), files={FILE.blob: SCAN})
    events = store.events("r1")
    lines = list(pack_run(events, read_files(store, events)))
    assert json.loads(lines[0]) == {"flowengine_run": 2, "run_id": "r1", "events": 4, "files": 1}
    [found] = unpack_runs(lines, "r1.jsonl")
    assert found[:2] == (list(events), {FILE.blob: SCAN})
    other = MemoryStore()
    await store_run(other, found.events, "copy", found.files)
    started = other.events("copy")[0]
    assert isinstance(started, RunStarted)
    assert started.inputs["invoice"].read_bytes() == SCAN


async def test_an_import_under_an_id_that_is_taken_leaves_no_file(store: Store) -> None:
    await store_run(store, events_of("r1", FileValue(hash_of(b"x"), "text/plain", "x", 1)), files={hash_of(b"x"): b"x"})
    with pytest.raises(JournalError):
        await store_run(store, events_of("r1"), files={FILE.blob: SCAN})
    assert store.blob_size(FILE.blob) is None


def test_hostile_files_of_an_export_are_refused_with_their_place() -> None:
    lines = list(pack_run(events_of("r1"), {FILE.blob: SCAN}))
    foreign = json.dumps({"file": hash_of(b"x"), "content": b64encode(b"x").decode()})
    lying = json.dumps({"file": FILE.blob, "content": b64encode(b"x").decode()})
    head = lines[0].replace('"files": 1', '"files": 2')
    for broken, error, said in [
        (lines[:-1], StoreCorruptError, "it has 0 of 1 files"),
        ([*lines[:-1], lying], StoreCorruptError, "r1.jsonl:6: the content of file .* is not what its hash says"),
        ([*lines[:-1], '{"file": 1}'], StoreCorruptError, "r1.jsonl:6: not a file"),
        ([*lines[:-1], '{"file": "a", "content": "%%"}'], StoreCorruptError, "r1.jsonl:6: not a file"),
        ([head, *lines[1:], foreign], StoreCorruptError, "holds a file that no event names"),
        ([lines[0].replace(": 2", ": 9"), *lines[1:]], StoreVersionError, "newer FlowEngine"),
        ([lines[0].replace('"files": 1', '"files": -1'), *lines[1:]], StoreCorruptError, "is no exported run"),
        ([lines[0].replace(', "files": 1', ""), *lines[1:]], StoreCorruptError, "more than its events"),
    ]:
        with pytest.raises(error, match=said):
            list(unpack_runs(broken, "r1.jsonl"))


def test_a_masked_run_keeps_the_hash_of_a_file_and_masks_its_name() -> None:
    number = "4111111111111111"
    file = FileValue((number * 4)[:64], "application/pdf", "ada@example.jp.pdf", 3)
    [started, *_] = mask_events(events_of("r1", file))
    assert isinstance(started, RunStarted)
    found = started.inputs["invoice"]
    assert (found.blob, found.media_type, found.size) == (file.blob, file.media_type, 3)
    assert "ada@" not in found.name
