"""Checksums of a SQLite file's rows: what was not written so is never read, whatever of it is another."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from flowengine import Flow, FunctionNode
from flowengine.core.context import Context
from flowengine.errors import StoreCorruptError
from flowengine.journal.sqlite.store import SQLiteStore

pytestmark = pytest.mark.anyio

BEFORE = Path(__file__).with_name("stores_made_before")


def make(context: Context) -> str:
    return "a price of 100"


FLOW = Flow("prices", {"one": FunctionNode(make), "two": FunctionNode(make, needs=["one"])})


@pytest.fixture
async def store(tmp_path: Path) -> SQLiteStore:
    """A store with two runs, closed."""
    made = SQLiteStore(tmp_path / "runs.db")
    for run_id in ("r1", "r2"):
        await FLOW.run(store=made, run_id=run_id, labels={"team": "billing"})
    made.revise("session", "s", lambda known: {"total": 100})
    made.close()
    return made


@pytest.fixture
def again(store: SQLiteStore) -> Iterator[SQLiteStore]:
    made = SQLiteStore(store.path)
    yield made
    made.close()


def change(path: Path, statement: str) -> None:
    with closing(sqlite3.connect(path)) as connection, connection:
        assert connection.execute(statement).rowcount == 1


async def test_any_flipped_bit_of_a_text_is_told_with_its_run_and_event(store: SQLiteStore) -> None:
    whole = store.path.read_bytes()
    place = whole.index(b"a price of 100", whole.index(b'"NodeFinished","one"'))
    for bit in range(8 * len(b"a price of 100")):
        damaged = bytearray(whole)
        damaged[place + bit // 8] ^= 1 << bit % 8
        store.path.write_bytes(damaged)
        with closing(SQLiteStore(store.path)) as read, pytest.raises(StoreCorruptError, match=r"run 'r[12]', events? "):
            assert list(read.events("r1")) == list(read.events("r2"))


async def test_the_error_names_the_event_and_the_command_that_saves_the_rest(again: SQLiteStore) -> None:
    change(again.path, "UPDATE event SET body = replace(body, '100', '900') WHERE position = 8589934596")
    with pytest.raises(StoreCorruptError) as raised:
        again.events("r2")
    assert "4: what is read is not what was written" in str(raised.value)
    assert f"`flowengine runs repair --store {again.path}`" in str(raised.value)


@pytest.mark.parametrize("others", [4294967298, 8589934594])
async def test_a_row_of_another_place_or_run_does_not_fit(others: int, again: SQLiteStore) -> None:
    first = "SELECT {} FROM event WHERE position = 8589934592"
    change(
        again.path,
        f"UPDATE event SET body = ({first.format('body')}), checksum = ({first.format('checksum')}) "
        f"WHERE position = {others}",
    )
    with pytest.raises(StoreCorruptError, match=f"run 'r{others >> 32}', event 2: what is read"):
        again.events(f"r{others >> 32}")


@pytest.mark.parametrize(
    "damage",
    ["flow = 'prises'", "started = started + 1", "finished = finished - 1", "status = 'failed'", "labels = NULL",
     "status = 'gone'", "run_id = 'r3'", "path = 'other.yaml'", "finished = NULL"],
)  # fmt: skip
async def test_a_line_of_the_list_that_was_not_written_so_is_told(damage: str, again: SQLiteStore) -> None:
    assert len(again.list()) == 2
    change(again.path, f"UPDATE run SET {damage} WHERE number = 1")
    with pytest.raises(StoreCorruptError, match="its list of runs holds"):
        again.list()


async def test_a_run_that_has_ended_lacks_no_end(again: SQLiteStore) -> None:
    change(again.path, "DELETE FROM event WHERE position = (SELECT max(position) FROM event)")
    with pytest.raises(StoreCorruptError, match="the end of run 'r2' is missing, from event 5 on"):
        again.events("r2")
    assert len(again.events("r1")) == 6
    assert len(again.events("r2", 3)) == 2


async def test_what_is_kept_beside_the_runs_is_checked(again: SQLiteStore) -> None:
    assert again.recall("session", "s") == {"total": 100}
    change(again.path, "UPDATE beside SET value = replace(value, '100', '900')")
    with pytest.raises(StoreCorruptError, match="session 's' is not what was written"):
        again.recall("session", "s")


@pytest.mark.parametrize("version", [1, 2])
async def test_rows_of_a_store_without_checksums_are_read_and_new_ones_get_them(version: int, tmp_path: Path) -> None:
    path = tmp_path / "runs.db"
    with closing(sqlite3.connect(path)) as connection:
        connection.executescript((BEFORE / f"sqlite_{version}.sql").read_text())
    with closing(SQLiteStore(path)) as store:
        assert {info.run_id: info.events for info in store.list()} == {"failed1": 6, "good2": 4}
        assert [len(store.events(run_id)) for run_id in ("failed1", "good2")] == [6, 4]
        assert store.recall("session", "s") == {"x": 1}
        store.revise("session", "s", lambda known: {**known, "y": 2})
        assert store.recall("session", "s") == {"x": 1, "y": 2}
        await FLOW.run(store=store, run_id="new3")
    with closing(sqlite3.connect(path)) as connection:
        missing = connection.execute("SELECT DISTINCT position >> 32 FROM event WHERE checksum ISNULL").fetchall()
        assert missing == [(1,), (2,)]
        assert connection.execute("SELECT count(*) FROM beside WHERE checksum ISNULL").fetchone() == (0,)
    change(path, "UPDATE event SET body = replace(body, '100', '900') WHERE body LIKE '%Finished\",\"two%'")
    with closing(SQLiteStore(path)) as store, pytest.raises(StoreCorruptError, match=r"run 'new3', events? .*4: what"):
        store.events("new3")
