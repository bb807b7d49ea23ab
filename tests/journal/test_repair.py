"""Repair of SQLite files that are damaged for real: what is kept is what was written, and what is cut is resumed."""

from __future__ import annotations

import random
import sqlite3
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import closing
from functools import partial
from pathlib import Path

import anyio
import pytest

from flowengine import Flow, FunctionNode
from flowengine.core.context import Context
from flowengine.engine.events import Event
from flowengine.errors import JournalError, StoreCorruptError, StoreUnavailableError
from flowengine.journal.sqlite.repair import Repair, repair_store
from flowengine.journal.sqlite.store import SQLiteStore

BEFORE = Path(__file__).with_name("stores_made_before")
NODES = 8
calls = Counter[str]()


def make(context: Context) -> str:
    return "text " * 400


def make_long(context: Context) -> str:
    calls["long"] += 1
    return "a longer text " * 4000


FLOW = Flow(
    "chain",
    {
        f"n{number}": FunctionNode(make_long if number == 5 else make, needs=[f"n{number - 1}"] if number else [])
        for number in range(NODES)
    },
    outputs={"last": lambda context: context.nodes["n7"].output},
)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> tuple[bytes, dict[str, Sequence[Event]]]:
    """The bytes of a store with runs, and their events; one run was removed."""
    path = tmp_path_factory.mktemp("whole") / "runs.db"
    with closing(SQLiteStore(path)) as store:

        async def fill() -> None:
            for index in range(6):
                await FLOW.run(store=store, run_id=f"r{index}", labels={"team": "billing"})

        anyio.run(fill)
        store.revise("session", "s", lambda known: {"turns": [1, 2]})
        store.remove("r3")
        runs = {info.run_id: store.events(info.run_id) for info in store.list()}
    return path.read_bytes(), runs


@pytest.fixture
def path(whole: tuple[bytes, object], tmp_path: Path) -> Path:
    path = tmp_path / "runs.db"
    path.write_bytes(whole[0])
    return path


def check(done: Repair, runs: Mapping[str, Sequence[Event]]) -> list[str]:
    """The new store holds what the report says, and nothing that was not written; the ids of runs that were cut."""
    assert done.path is not None
    by_id = {run.run_id: run for run in done.runs if run.state != "lost"}
    with closing(SQLiteStore(done.path)) as store:
        listed = {info.run_id: info for info in store.list()}
        assert listed.keys() == by_id.keys() <= runs.keys()
        for run_id, run in by_id.items():
            found = list(store.events(run_id))
            assert found == list(runs[run_id][: run.kept])
            assert (run.state == "whole") == (run.kept == len(runs[run_id])) == (run.lost == 0)
            assert listed[run_id].status == ("succeeded" if run.state == "whole" else "running")
            assert listed[run_id].labels == {"team": "billing"}
    return [run_id for run_id, run in by_id.items() if run.state == "cut"]


def test_nothing_is_made_where_nothing_is_wrong(path: Path) -> None:
    before = path.read_bytes()
    done = repair_store(path)
    assert (done.path, done.is_whole) == (None, True)
    assert {run.run_id for run in done.runs} == {"r0", "r1", "r2", "r4", "r5"}
    assert [each.name for each in path.parent.iterdir()] == ["runs.db"]
    assert path.read_bytes() == before


def test_a_run_is_cut_at_a_flipped_bit_and_resumed_from_there(
    path: Path, whole: tuple[bytes, dict[str, Sequence[Event]]]
) -> None:
    damaged = bytearray(whole[0])
    damaged[whole[0].rindex(b"a longer text a longer")] ^= 1
    path.write_bytes(damaged)
    done = repair_store(path)
    assert path.read_bytes() == damaged
    assert done.path is not None
    assert done.path == path.with_name("runs.repaired.db")
    (cut,) = check(done, whole[1])
    assert not done.is_whole
    (run,) = [run for run in done.runs if run.state == "cut"]
    assert (run.kept, run.lost, run.reason) == (11, 7, "event 11 is not what was written")
    calls.clear()
    with closing(SQLiteStore(done.path)) as store:
        resumed = anyio.run(partial(FLOW.resume, cut, store=store))
        assert (resumed.status, resumed.outputs) == ("succeeded", {"last": "text " * 400})
        assert store.recall("session", "s") == {"turns": [1, 2]}
    assert calls == {"long": 1}
    assert repair_store(done.path).path is None


def test_a_run_that_is_lost_takes_the_id_of_no_other(path: Path) -> None:
    with closing(sqlite3.connect(path)) as connection:  # As a page that was free has it: once there was another "r4".
        ((four,),) = connection.execute("SELECT number FROM run WHERE run_id = 'r4'").fetchall()
        ((first,),) = connection.execute("SELECT number FROM run WHERE run_id = 'r0'").fetchall()
        connection.execute("UPDATE run SET run_id = 'other' WHERE number = ?", (four,))
        connection.execute("UPDATE run SET run_id = 'r4' WHERE number = ?", (first,))
        connection.execute("DELETE FROM event WHERE position / 4294967296 = ?", (first,))
        connection.commit()
    states = {run.run_id: run.state for run in repair_store(path).runs}
    assert (states["r4"], states[f"#{first}"]) == ("whole", "lost")


@pytest.mark.long
def test_each_page_may_be_zeroed_and_the_others_are_kept(
    path: Path, whole: tuple[bytes, dict[str, Sequence[Event]]]
) -> None:
    data, runs = whole
    pages = len(data) // 4096
    kept = list[int]()
    for page in range(pages):
        path.write_bytes(data[: page * 4096] + bytes(4096) + data[(page + 1) * 4096 :])
        done = repair_store(path)
        if done.path is None:
            kept.append(len(runs))  # A free page.
            continue
        check(done, runs)
        kept.append(sum(run.state == "whole" for run in done.runs))
        done.path.unlink()
    assert min(kept) >= len(runs) - 2
    assert kept[0] == len(runs)


def test_a_file_that_was_cut_gives_the_runs_before_the_cut(
    path: Path, whole: tuple[bytes, dict[str, Sequence[Event]]]
) -> None:
    data, runs = whole
    kept = list[int]()
    for end in range(4096 + 100, len(data), 4096 * 5 + 77):
        path.write_bytes(data[:end])
        try:
            done = repair_store(path)
        except StoreCorruptError:
            kept.append(0)
            continue
        assert done.path is not None
        check(done, runs)
        kept.append(sum(run.kept for run in done.runs))
        done.path.unlink()
    assert kept == sorted(kept)
    assert kept[-1] > 3 * len(runs["r0"])


def test_flipped_bits_anywhere_never_give_what_was_not_written(
    path: Path, whole: tuple[bytes, dict[str, Sequence[Event]]]
) -> None:
    data, runs = whole
    draw = random.Random(8)
    for _ in range(25):
        damaged = bytearray(data)
        for at in draw.sample(range(len(data)), draw.choice((1, 20, 400))):
            damaged[at] ^= 1 << draw.randrange(8)
        path.write_bytes(damaged)
        try:
            done = repair_store(path)
        except JournalError:
            continue
        if done.path is not None:
            check(done, runs)
            done.path.unlink()


def test_what_only_the_log_holds_is_kept_too(whole: tuple[bytes, object], tmp_path: Path) -> None:
    path = tmp_path / "runs.db"
    store = SQLiteStore(path)
    FLOW.run_sync(store=store, run_id="r1", labels={"team": "billing"})
    runs = {"r1": list(store.events("r1"))}
    left = tmp_path / "left" / "runs.db"
    left.parent.mkdir()
    for suffix in ("", "-wal"):
        Path(f"{left}{suffix}").write_bytes(Path(f"{path}{suffix}").read_bytes())
    store.close()
    with closing(sqlite3.connect(left)) as connection, connection:
        connection.execute("PRAGMA wal_autocheckpoint = 0")
        connection.execute("UPDATE event SET body = 'x' WHERE position = (SELECT max(position) FROM event)")
        connection.commit()
        log, database = Path(f"{left}-wal").read_bytes(), left.read_bytes()
    left.write_bytes(database)
    Path(f"{left}-wal").write_bytes(log)
    assert check(repair_store(left), runs) == ["r1"]


def test_a_new_store_goes_over_no_other(path: Path, whole: tuple[bytes, object]) -> None:
    path.write_bytes(whole[0][:4096] + bytes(4096) + whole[0][8192:])
    names = [repair_store(path).path, repair_store(path).path]
    assert [each.name for each in names if each is not None] == ["runs.repaired.db", "runs.repaired-2.db"]
    assert {each.name for each in path.parent.iterdir()} == {"runs.db", "runs.repaired.db", "runs.repaired-2.db"}


@pytest.mark.parametrize("version", [1, 2])
def test_a_store_without_checksums_is_cut_where_an_event_cannot_be_read(version: int, tmp_path: Path) -> None:
    path = tmp_path / "runs.db"
    with closing(sqlite3.connect(path)) as connection:
        connection.executescript((BEFORE / f"sqlite_{version}.sql").read_text())
        connection.execute("UPDATE event SET body = '[1,' WHERE position = 4294967298")
        connection.commit()
    done = repair_store(path)
    assert [(run.run_id, run.state, run.kept, run.lost) for run in done.runs] == [
        ("failed1", "cut", 1, 5),
        ("good2", "whole", 4, 0),
    ]


def test_a_store_that_is_written_to_is_left_alone(path: Path) -> None:
    with closing(SQLiteStore(path)) as store:
        store.create("new")
        with pytest.raises(StoreUnavailableError, match="is being written by process"):
            repair_store(path)


@pytest.mark.parametrize("content", [b"", b"no store " * 1000])
def test_what_is_no_store_is_said(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "notes.txt"
    path.write_bytes(content)
    with pytest.raises(JournalError, match="holds no run"):
        repair_store(path)
    assert [each.name for each in tmp_path.iterdir()] == ["notes.txt"]
