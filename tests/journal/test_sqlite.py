"""The SQLite store: what survives a kill, who may write, and what a damaged or foreign file gives."""

from __future__ import annotations

import os
import random
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path

import anyio
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flowengine.core.context import NodeResult
from flowengine.engine.events import Event, NodeFinished, NodeStarted, RunFinished, RunResumed, RunStarted
from flowengine.engine.ports import Durability
from flowengine.errors import (
    JournalError,
    NotJournalableError,
    StoreCorruptError,
    StoreUnavailableError,
    StoreVersionError,
)
from flowengine.journal.sqlite.database import connect
from flowengine.journal.sqlite.store import SQLiteJournal, SQLiteStore
from flowengine.journal.sqlite.tables import Held, SqliteTables

STARTED = RunStarted("r1", "flow", 1.0, {}, {}, {})


def finished(node: str, output: object = "text") -> NodeFinished:
    return NodeFinished(node, 3.0, NodeResult(output))


def write_run(store: SQLiteStore, run_id: str, events: list[Event]) -> SQLiteJournal:
    """A run that is left open; each event is a commit."""
    journal = store.create(run_id)
    for event in events:
        journal.append(event)
        assert journal.commit() is None
    return journal


# --- durability -----------------------------------------------------------------------------------

CHILD = """
import os, sys, time
from flowengine.core.context import NodeResult
from flowengine.engine.events import NodeFinished, RunStarted
from flowengine.journal.sqlite.store import SQLiteStore

journal = SQLiteStore(sys.argv[1], sys.argv[2]).create("r1")
journal.append(RunStarted("r1", "flow", 1.0, {}, {}, {}))
journal.commit()
journal.flush()
for index in range(10**9):
    journal.append(NodeFinished(f"n{index}", 1.0, NodeResult("x" * (index % 5000))))
    journal.commit()
    if sys.argv[2] == "memory" and index == 500:
        journal.flush()
    os.write(1, b"%d\\n" % index)
    if sys.argv[2] == "memory" and index == 800:
        time.sleep(60)
"""


def run_and_kill(path: Path, durability: Durability, after: int) -> int:
    """Let a process write a run; kill it once it has said that so many nodes are committed. How many those were."""
    with subprocess.Popen([sys.executable, "-c", CHILD, str(path), durability], stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        for _ in range(after):
            child.stdout.readline()
        child.kill()
        return after + len(child.stdout.read().splitlines())


@pytest.mark.parametrize("durability", ["full", "process"])
async def test_what_was_committed_survives_a_kill(durability: Durability, tmp_path: Path) -> None:
    path = tmp_path / "runs.db"
    committed = run_and_kill(path, durability, 700)
    store = SQLiteStore(path, durability)
    events = store.events("r1")
    assert committed <= len(events) - 1 <= committed + 1
    assert [event.node for event in events[1:] if isinstance(event, NodeFinished)] == [
        f"n{index}" for index in range(len(events) - 1)
    ]
    assert store.list()[0].status == "running"
    journal = store.open("r1")  # nobody holds the run of a dead process
    journal.append(RunFinished(2.0, "succeeded"))
    await journal.close()
    assert store.list()[0].status == "succeeded"
    store.close()


def test_memory_loses_only_what_came_after_the_last_flush(tmp_path: Path) -> None:
    run_and_kill(tmp_path / "runs.db", "memory", 801)
    store = SQLiteStore(tmp_path / "runs.db")
    assert len(store.events("r1")) == 1 + 501
    store.close()


@pytest.mark.parametrize(("durability", "level"), [("full", 2), ("process", 1), ("memory", 1)])
def test_only_full_waits_for_the_disk(durability: Durability, level: int, tmp_path: Path) -> None:
    store = SQLiteStore(tmp_path / "runs.db", durability)
    journal = write_run(store, "r1", [STARTED])
    connection = journal._writer.tables.connection  # pyright: ignore[reportPrivateUsage] -- fsync shows nowhere else
    assert connection.execute("PRAGMA synchronous").fetchone() == (level,)
    assert connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)
    store.close()


def test_the_log_of_a_full_store_is_long_enough_before_the_first_commit(tmp_path: Path) -> None:
    store = SQLiteStore(tmp_path / "runs.db", "full")
    store.create("r1")
    assert 2**20 <= (tmp_path / "runs.db-wal").stat().st_size < 2**21
    assert (tmp_path / "runs.db").stat().st_size < 2**16
    for index in range(300):
        journal = store.create(f"x{index}")
        journal.append(STARTED)
        journal.commit()
    assert (tmp_path / "runs.db-wal").stat().st_size < 2**21
    store.close()


# --- commits that are shared ----------------------------------------------------------------------


@pytest.fixture
def store(tmp_path: Path) -> Iterator[SQLiteStore]:
    made = SQLiteStore(tmp_path / "runs.db", patience=0.05)
    yield made
    made.close()


def on_disk(path: Path, run_id: str = "r1") -> int:
    """Events that another connection sees."""
    other = SQLiteStore(path)
    try:
        return len(other.events(run_id))
    finally:
        other.close()


async def test_nodes_that_finish_together_share_one_transaction(store: SQLiteStore) -> None:
    journal = write_run(store, "r1", [STARTED])
    before = _changes(store.path)

    async def node(name: str) -> None:
        journal.append(finished(name))
        waiting = journal.commit(False)
        assert waiting is not None
        await waiting
        assert on_disk(store.path) == 11

    async with anyio.create_task_group() as group:
        for index in range(10):
            group.start_soon(node, f"n{index}")
    assert _changes(store.path) == before + 1


def _changes(path: Path) -> int:
    """Frames that close a commit in the write-ahead log: a number at the 5th byte of the frame's header."""
    log = Path(f"{path}-wal").read_bytes()
    salt = log[16:24]
    frames = (log[at : at + 24] for at in range(32, len(log), 24 + 4096))
    return sum(frame[4:8] != b"\0\0\0\0" for frame in frames if frame[8:16] == salt)


async def test_a_cancelled_leader_writes_for_those_that_follow(store: SQLiteStore) -> None:
    journal = write_run(store, "r1", [STARTED])
    followed: list[str] = []

    async def lead(scope: anyio.CancelScope) -> None:
        with scope:
            journal.append(finished("leader"))
            waiting = journal.commit(False)
            assert waiting is not None
            await waiting

    async def follow(name: str) -> None:
        journal.append(finished(name))
        waiting = journal.commit(False)
        assert waiting is not None
        await waiting
        followed.append(name)

    with anyio.fail_after(60):
        async with anyio.create_task_group() as group:
            scope = anyio.CancelScope()
            group.start_soon(lead, scope)
            group.start_soon(follow, "a")
            group.start_soon(follow, "b")
            scope.cancel()
    assert sorted(followed) == ["a", "b"]
    assert on_disk(store.path) == 4


async def test_a_cancelled_follower_loses_nothing(store: SQLiteStore) -> None:
    journal = write_run(store, "r1", [STARTED])

    async def commit(name: str, scope: anyio.CancelScope) -> None:
        with scope:
            journal.append(finished(name))
            waiting = journal.commit(False)
            assert waiting is not None
            await waiting

    with anyio.fail_after(60):
        async with anyio.create_task_group() as group:
            scopes = [anyio.CancelScope() for _ in range(4)]
            for index, scope in enumerate(scopes):
                group.start_soon(commit, f"n{index}", scope)
            for scope in scopes[1:]:
                scope.cancel()
    assert on_disk(store.path) == 5
    journal.append(finished("later"))
    journal.commit()
    assert on_disk(store.path) == 6


async def test_an_error_reaches_all_that_share_the_commit(store: SQLiteStore) -> None:
    journal = write_run(store, "r1", [STARTED])
    other = write_run(store, "r2", [STARTED])
    refused: list[str] = []

    async def node(name: str, of: SQLiteJournal) -> None:
        of.append(finished(name))
        waiting = of.commit(False)
        assert waiting is not None
        with pytest.raises(StoreUnavailableError, match=r"runs\.db is locked by another process"):
            await waiting
        refused.append(name)

    with locked(store.path):
        async with anyio.create_task_group() as group:
            for index in range(3):
                group.start_soon(node, f"n{index}", journal)
            group.start_soon(node, "other", other)
    assert len(refused) == 4
    for each in (journal, other):
        with pytest.raises(StoreUnavailableError, match="locked"):
            each.append(finished("later"))
        with pytest.raises(StoreUnavailableError, match="locked"):
            each.commit()
        with pytest.raises(StoreUnavailableError, match="locked"):
            await each.close()
    again = store.open("r1")  # the store itself goes on, from what was committed
    assert list(again.read()) == [STARTED]
    again.append(finished("later"))
    again.commit()
    await again.close()
    assert on_disk(store.path) == 2


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Another process's transaction, as far as SQLite can tell."""
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("BEGIN IMMEDIATE")
    yield
    connection.execute("ROLLBACK")
    connection.close()


def test_what_cannot_be_written_leaves_the_journal_as_it_was(store: SQLiteStore) -> None:
    journal = write_run(store, "r1", [STARTED])
    journal.append(NodeStarted("a", 1.0))
    with pytest.raises(NotJournalableError, match=r"output\[0\]"):
        journal.append(finished("a", [object()]))
    journal.append(finished("a"))
    journal.commit()
    assert list(store.events("r1")) == [STARTED, NodeStarted("a", 1.0), finished("a")]


FULL_DISK = """
import resource, sys
from flowengine.core.context import NodeResult
from flowengine.engine.events import NodeFinished, RunStarted
from flowengine.errors import StoreUnavailableError
from flowengine.journal.sqlite.store import SQLiteStore

journal = SQLiteStore(sys.argv[1]).create("r1")
journal.append(RunStarted("r1", "flow", 1.0, {}, {}, {}))
journal.commit()
resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, 200_000))
try:
    for index in range(100):
        journal.append(NodeFinished("n", 1.0, NodeResult("x" * 10_000)))
        journal.commit()
except StoreUnavailableError as error:
    print(index, error)
"""


def test_a_file_that_cannot_grow_stops_the_run_and_keeps_what_was_committed(tmp_path: Path) -> None:
    path = tmp_path / "runs.db"
    child = subprocess.run(
        [sys.executable, "-c", FULL_DISK, str(path)], capture_output=True, text=True, check=False, timeout=60
    )
    committed, _, message = child.stdout.partition(" ")
    assert message.startswith(str(path)), child
    assert on_disk(path) == 1 + int(committed)


def test_a_full_disk_is_told_where_something_is_kept_beside_the_runs(store: SQLiteStore) -> None:
    store.revise("session", "ann", lambda before: "before")
    with closing(connect(store.path, "process", 1.0)) as connection:
        tables = SqliteTables(store.path, connection)
        pages = connection.execute("PRAGMA page_count").fetchone()[0]
        connection.execute(f"PRAGMA max_page_count = {pages}")  # As on a disk that is full: SQLite rolls back itself.
        with pytest.raises(StoreUnavailableError, match="the disk is full"):
            tables.revise("session", "ann", lambda before: "x" * 10_000_000)
        with pytest.raises(StoreUnavailableError, match="the disk is full"):
            tables.blobs.put("r1", b"x" * 10_000_000)
        assert tables.recall("session", "ann") == "before"


# --- who may write --------------------------------------------------------------------------------

OWNER = """
import sys
from flowengine.engine.events import RunStarted
from flowengine.journal.sqlite.store import SQLiteStore

journal = SQLiteStore(sys.argv[1]).create("r1")
journal.append(RunStarted("r1", "flow", 1.0, {}, {}, {}))
journal.commit()
print("ready", flush=True)
sys.stdin.read()
"""


def test_a_run_belongs_to_its_process_until_that_is_dead(store: SQLiteStore) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", OWNER, str(store.path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as child:
        assert child.stdout is not None
        child.stdout.readline()
        with pytest.raises(StoreUnavailableError, match=f"run 'r1' is being written by process {child.pid};"):
            store.open("r1")
        with pytest.raises(StoreUnavailableError, match=f"process {child.pid};"):
            store.create("r1")
        store.create("r2")
        assert list(store.events("r1")) == [STARTED]
        os.kill(child.pid, signal.SIGKILL)
    store.open("r1")
    store.close()
    assert list(Path(f"{store.path}.locks").iterdir()) == []


@pytest.fixture
def other(store: SQLiteStore) -> Iterator[SQLiteStore]:
    """Another store of the same file: as another process, as far as locks can tell."""
    made = SQLiteStore(store.path, patience=0.05)
    yield made
    made.close()


async def test_another_store_may_write_what_is_finished_or_closed(store: SQLiteStore, other: SQLiteStore) -> None:
    done = write_run(store, "done", [STARTED, RunFinished(2.0, "failed")])
    stopped = write_run(store, "stopped", [STARTED])
    for run_id in ("stopped", "done"):
        if run_id == "stopped":
            with pytest.raises(StoreUnavailableError, match=f"'stopped' is being written by process {os.getpid()};"):
                other.open(run_id)
            await stopped.close()
        await other.open(run_id).close()
    mine = other.open("done")
    done.append(RunResumed(3.0))
    with pytest.raises(StoreUnavailableError, match="taken over by another writer"):
        done.commit()
    mine.append(RunResumed(4.0))
    mine.commit()
    assert list(store.events("done", 2)) == [RunResumed(4.0)]


async def test_a_run_that_goes_on_in_its_journal_is_held_again(store: SQLiteStore, other: SQLiteStore) -> None:
    journal = write_run(store, "r1", [STARTED, RunFinished(2.0, "failed"), RunResumed(3.0)])
    with pytest.raises(StoreUnavailableError, match="is being written"):
        other.open("r1")
    await journal.close()
    await other.open("r1").close()


def test_the_same_id_made_twice_at_once_is_one_run_and_one_error(store: SQLiteStore, other: SQLiteStore) -> None:
    first, second, third = store.create("r1"), other.create("r1"), other.create("r2")
    first.append(STARTED)
    with pytest.raises(JournalError, match="run 'r1' exists already"):
        second.append(STARTED)
    first.append(finished("a"))
    first.commit()
    third.append(STARTED)
    third.commit()
    assert list(store.events("r1")) == [STARTED, finished("a")]
    assert list(store.events("r2")) == [STARTED]


def test_a_run_begins_with_its_start(store: SQLiteStore) -> None:
    journal = store.create("r1")
    with pytest.raises(JournalError, match="RunStarted, not a NodeStarted"):
        journal.append(NodeStarted("a", 1.0))
    journal.append(STARTED)
    assert on_disk(store.path) == 1


def test_a_writer_that_failed_lets_others_go_on_with_its_runs(store: SQLiteStore, other: SQLiteStore) -> None:
    journal = write_run(store, "r1", [STARTED])
    journal.append(finished("a"))
    with locked(store.path), pytest.raises(StoreUnavailableError, match="locked"):
        journal.commit()
    again = other.open("r1")
    again.append(finished("b"))
    again.commit()
    with pytest.raises(StoreUnavailableError, match="locked"):
        journal.append(finished("c"))
    assert list(other.events("r1", 1)) == [finished("b")]


def test_a_writer_whose_lock_was_removed_does_not_end_a_run_that_another_has(
    store: SQLiteStore, other: SQLiteStore
) -> None:
    journal = write_run(store, "r1", [STARTED])
    shutil.rmtree(f"{store.path}.locks")
    again = other.open("r1")
    again.append(finished("b"))
    again.commit()
    journal.append(RunFinished(2.0, "failed"))
    with pytest.raises(StoreUnavailableError):
        journal.commit()
    assert list(other.events("r1", 1)) == [finished("b")]


def test_a_store_is_the_same_by_every_way_to_its_file(store: SQLiteStore, tmp_path: Path) -> None:
    write_run(store, "r1", [STARTED])
    (tmp_path / "link.db").symlink_to(store.path)
    linked = SQLiteStore(tmp_path / "link.db")
    with pytest.raises(StoreUnavailableError, match="is being written"):
        linked.open("r1")
    linked.close()


@pytest.mark.parametrize("owner", ["../../victim", "victim", "", 7, b"\xff"])
def test_a_hostile_name_of_a_writer_leads_to_no_file(owner: object, store: SQLiteStore, tmp_path: Path) -> None:
    write_run(store, "r1", [STARTED])
    store.close()
    for victim in (tmp_path / "victim", tmp_path.parent / "victim", Path(f"{store.path}.locks") / "victim"):
        victim.write_text("mine")
    connection = sqlite3.connect(store.path)
    connection.execute("UPDATE run SET owner = ?", (owner,))
    connection.commit()
    connection.close()
    with suppress(JournalError):
        store.open("r1")
    for victim in (tmp_path / "victim", tmp_path.parent / "victim", Path(f"{store.path}.locks") / "victim"):
        assert victim.read_text() == "mine"


OPENER = """
import sys
from flowengine.errors import StoreUnavailableError
from flowengine.journal.sqlite.store import SQLiteStore

store = SQLiteStore(sys.argv[1])
print("ready", flush=True)
sys.stdin.readline()
try:
    store.open("r1")
    print("mine", flush=True)
except StoreUnavailableError as error:
    print("refused" if "is being written by" in str(error) else error, flush=True)
sys.stdin.read()
"""


def test_of_several_that_open_a_dead_run_at_once_one_gets_it(tmp_path: Path) -> None:
    path = tmp_path / "runs.db"
    run_and_kill(path, "process", 1)
    children = [
        subprocess.Popen(
            [sys.executable, "-c", OPENER, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        for _ in range(4)
    ]
    answers: list[str] = []
    for child in children:
        assert child.stdout is not None
        assert child.stdout.readline() == "ready\n"
    for child in children:
        assert child.stdin is not None
        child.stdin.write("go\n")
        child.stdin.flush()
    for child in children:
        assert child.stdout is not None
        answers.append(child.stdout.readline().strip())
    for child in children:
        child.communicate(timeout=60)
    assert sorted(answers) == ["mine", "refused", "refused", "refused"]


def test_of_two_that_saw_the_same_writer_gone_one_takes_its_place(store: SQLiteStore) -> None:
    write_run(store, "r1", [STARTED])
    connection = connect(store.path, "process", 1.0)
    tables = SqliteTables(store.path, connection)
    known = tables.find_writer("r1")
    assert known is not None
    held, before = known
    assert tables.take_over(held, before, "first") == (held.number, held.epoch + 1)
    assert tables.take_over(held, before, "second") is None  # the epoch has grown
    assert tables.take_over(Held(held.number, held.epoch + 1), before, "second") is None  # the writer is another
    assert tables.find_writer("r1") == ((held.number, held.epoch + 1), "first")
    connection.close()


FORKS = """
import os, sys
from flowengine.engine.events import RunFinished, RunStarted
from flowengine.errors import StoreUnavailableError
from flowengine.journal.sqlite.store import SQLiteStore

def begun(run_id):
    journal = store.create(run_id)
    journal.append(RunStarted(run_id, "flow", 1.0, {}, {}, {}))
    journal.commit()
    return journal

store = SQLiteStore(sys.argv[1])
journal = begun("parent")
child = os.fork()
if child == 0:
    try:
        store.open("parent")
    except StoreUnavailableError as error:
        assert f"process {os.getppid()};" in str(error), error
        begun("child")
        store.close()
        os._exit(0)
    os._exit(1)
assert os.waitpid(child, 0)[1] == 0
try:
    SQLiteStore(sys.argv[1]).open("parent")
except StoreUnavailableError:
    journal.append(RunFinished(2.0, "succeeded"))
    journal.commit()
    print(sorted((run.run_id, run.events) for run in store.list()))
"""


def test_a_forked_child_writes_runs_of_its_own_and_leaves_its_parents(tmp_path: Path) -> None:
    child = subprocess.run(
        [sys.executable, "-c", FORKS, str(tmp_path / "runs.db")],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert child.stdout == "[('child', 1), ('parent', 2)]\n", child


def test_a_closed_store_lets_go_of_its_runs(store: SQLiteStore) -> None:
    journal = store.create("r1")
    journal.append(STARTED)
    store.close()
    assert on_disk(store.path) == 1
    with pytest.raises(StoreUnavailableError, match="closed"):
        journal.append(finished("a"))
    again = SQLiteStore(store.path)
    again.open("r1")
    again.close()


async def test_a_journal_that_is_closed_after_its_store_says_that_the_store_is_closed(store: SQLiteStore) -> None:
    journal = store.create("r1")
    journal.append(STARTED)
    store.close()
    with pytest.raises(StoreUnavailableError, match=r"the store .* is closed"):
        await journal.close()
    await journal.close()


def test_a_reader_of_nothing_makes_no_file(tmp_path: Path) -> None:
    store = SQLiteStore(tmp_path / "new" / "runs.db")
    assert list(store.list()) == []
    with pytest.raises(JournalError):
        store.events("r1")
    assert list(tmp_path.iterdir()) == []


MAKER = """
import sys
from flowengine.engine.events import RunStarted
from flowengine.journal.sqlite.store import SQLiteStore

sys.stdin.read()
store = SQLiteStore(sys.argv[1])
journal = store.create(sys.argv[2])
journal.append(RunStarted(sys.argv[2], "flow", 1.0, {}, {}, {}))
journal.commit()
store.close()
"""


def test_processes_may_make_the_same_store_at_the_same_time(tmp_path: Path) -> None:
    path = tmp_path / "runs.db"
    children = [
        subprocess.Popen([sys.executable, "-c", MAKER, str(path), f"r{index}"], stdin=subprocess.PIPE)
        for index in range(4)
    ]
    for child in children:
        assert child.stdin is not None
        child.stdin.close()
    assert [child.wait(timeout=60) for child in children] == [0, 0, 0, 0]
    store = SQLiteStore(path)
    assert sorted(run.run_id for run in store.list()) == ["r0", "r1", "r2", "r3"]
    store.close()


# --- places and files that are no store -----------------------------------------------------------


@pytest.fixture
def anyones() -> Iterator[Path]:
    """A folder that an unprivileged user can reach, and that user: root may write everywhere."""
    folder = Path(tempfile.mkdtemp())
    folder.chmod(0o755)
    yield folder
    shutil.rmtree(folder)


@contextmanager
def unprivileged() -> Iterator[None]:
    is_root = os.geteuid() == 0
    if is_root:
        os.seteuid(65534)
    try:
        yield
    finally:
        if is_root:
            os.seteuid(0)


def test_a_folder_that_is_read_only_is_said(anyones: Path) -> None:
    anyones.chmod(0o555)
    with unprivileged():
        for path in (anyones / "runs.db", anyones / "new" / "runs.db"):
            with pytest.raises(StoreUnavailableError, match=str(anyones)):
                SQLiteStore(path).create("r1")


def test_a_file_that_is_read_only_is_said(anyones: Path) -> None:
    path = anyones / "runs.db"
    store = SQLiteStore(path)
    write_run(store, "r1", [STARTED])
    store.close()
    path.chmod(0o444)
    anyones.chmod(0o555)
    with unprivileged():
        store = SQLiteStore(path)
        with pytest.raises(StoreUnavailableError, match=r"runs\.db"):
            store.open("r1")
        store.close()


def test_a_path_that_is_a_folder_or_below_a_file_is_said(tmp_path: Path) -> None:
    told = f"cannot be opened; it must be a file, and it and its folder {tmp_path.parent} must be "
    with pytest.raises(StoreUnavailableError, match=told):
        SQLiteStore(tmp_path).create("r1")
    (tmp_path / "file").write_text("x")
    with pytest.raises(StoreUnavailableError, match="cannot be made"):
        SQLiteStore(tmp_path / "file" / "runs.db").create("r1")


def test_a_file_that_is_no_database_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "notes.txt"
    path.write_text("my notes " * 1000)
    for use in (SQLiteStore(path).create, SQLiteStore(path).open, SQLiteStore(path).events, SQLiteStore(path).find):
        with pytest.raises(StoreCorruptError, match=r"notes\.txt"):
            use("r1")
    assert path.read_text() == "my notes " * 1000


def test_another_programs_database_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "other.db"
    connection = sqlite3.connect(path)
    connection.execute("CREATE TABLE event (a)")
    connection.close()
    before = path.read_bytes()
    with pytest.raises(StoreCorruptError, match="not a store of FlowEngine"):
        SQLiteStore(path).create("r1")
    assert path.read_bytes() == before


def test_a_store_of_a_newer_version_says_so(store: SQLiteStore) -> None:
    write_run(store, "r1", [STARTED])
    store.close()
    connection = sqlite3.connect(store.path)
    connection.execute("PRAGMA user_version = 99")
    connection.close()
    for use in (store.create, store.open, store.events, store.find):
        with pytest.raises(StoreVersionError, match="upgrade FlowEngine"):
            use("r1")


def test_missing_events_are_not_passed_over(store: SQLiteStore) -> None:
    write_run(store, "r1", [STARTED, finished("a"), finished("b")])
    write_run(store, "r2", [STARTED, finished("a")])
    connection = sqlite3.connect(store.path)
    connection.execute("DELETE FROM event WHERE position IN (4294967297, 8589934592)")
    connection.commit()
    connection.close()
    for run_id in ("r1", "r2"):
        with pytest.raises(StoreCorruptError, match=f"run '{run_id}'"):
            store.events(run_id)


def test_events_that_follow_each_other_share_a_row_and_are_still_counted(store: SQLiteStore) -> None:
    events: list[Event] = [STARTED]
    journal = write_run(store, "r1", [STARTED])
    for index in range(50):
        for event in (NodeStarted(f"n{index}", 1.0), finished(f"n{index}", "x" * (index * 40))):
            journal.append(event)
            events.append(event)
        if index % 5 == 4:
            journal.commit()
    connection = sqlite3.connect(store.path)
    (rows,) = connection.execute("SELECT count(*) FROM event").fetchone()
    connection.close()
    assert rows < 75
    assert store.list()[0].events == len(events)
    for after in range(len(events) + 2):
        assert list(store.events("r1", after)) == events[after:]


@pytest.mark.parametrize(
    "damage",
    [
        "DELETE FROM event WHERE position % 4294967296 = 4",
        "UPDATE event SET body = substr(body, 1, instr(body, char(10)) - 1) WHERE position % 4294967296 = 4",
        "UPDATE event SET body = body || char(10) || body WHERE position % 4294967296 = 4",
        "UPDATE event SET body = body || char(10) WHERE position % 4294967296 = 4",
    ],
)
def test_a_row_with_more_or_fewer_events_than_it_should_have_is_damage(damage: str, store: SQLiteStore) -> None:
    journal = write_run(store, "r1", [STARTED])
    for name in ("a", "b", "c"):
        journal.append(NodeStarted(name, 1.0))
        journal.append(finished(name))
        journal.commit()
    connection = sqlite3.connect(store.path)
    assert connection.execute(damage).rowcount == 1
    connection.commit()
    connection.close()
    with pytest.raises(StoreCorruptError, match="run 'r1'"):
        store.events("r1")


def served(path: Path, runs: dict[str, list[Event]]) -> dict[str, int]:
    """How many events of each run a damaged store serves; they must be the run's first."""
    counts: dict[str, int] = {}
    store = SQLiteStore(path)
    try:
        for run_id, events in runs.items():
            try:
                found = list(store.events(run_id))
            except JournalError:
                continue
            assert found == events[: len(found)]
            counts[run_id] = len(found)
        with suppress(JournalError):
            assert {run.run_id for run in store.list()} <= set(runs)
    finally:
        store.close()
    return counts


def several_runs(store: SQLiteStore, turns: int = 40) -> dict[str, list[Event]]:
    """Runs in turns, with bodies from some bytes to many pages."""
    draw = random.Random(7)
    runs: dict[str, list[Event]] = {f"r{index}": [] for index in range(4)}
    journals = {run_id: store.create(run_id) for run_id in runs}
    for turn in range(turns):
        for run_id, journal in journals.items():
            event = STARTED if turn == 0 else finished(f"n{turn}", "text " * draw.choice([1, 5, 50, 2500]))
            journal.append(event)
            journal.commit()
            runs[run_id].append(event)
    return runs


def test_a_store_cut_anywhere_serves_a_beginning_or_says_that_it_is_damaged(store: SQLiteStore, tmp_path: Path) -> None:
    runs = several_runs(store)
    store.close()
    whole = store.path.read_bytes()
    assert len(whole) > 100 * 4096
    cuts = [*range(0, 200, 20), *range(512, len(whole), 4096 * 5 - 512), len(whole) - 1, len(whole) - 4096]
    for cut in cuts:
        damaged = tmp_path / f"cut{cut}.db"
        damaged.write_bytes(whole[:cut])
        assert served(damaged, runs) == {} or cut > 4096
    damaged.write_bytes(whole)
    assert served(damaged, runs) == dict.fromkeys(runs, 40)


def test_a_log_cut_anywhere_serves_what_was_committed_before(store: SQLiteStore, tmp_path: Path) -> None:
    runs = several_runs(store)
    database, log = store.path.read_bytes(), Path(f"{store.path}-wal").read_bytes()
    seen: list[int] = []
    for cut in [*range(0, 200, 20), *range(512, len(log), 4096 * 7 + 100), len(log)]:
        damaged = tmp_path / f"cut{cut}.db"
        damaged.write_bytes(database)
        Path(f"{damaged}-wal").write_bytes(log[:cut])
        seen.append(sum(served(damaged, runs).values()))
    assert seen == sorted(seen)
    assert seen[-1] == 160


@settings(deadline=None, max_examples=50)
@given(st.data())
def test_a_damaged_store_is_never_more_than_a_journal_error(data: st.DataObject) -> None:
    global _WHOLE
    with tempfile.TemporaryDirectory() as folder:
        if _WHOLE is None:
            store = SQLiteStore(Path(folder) / "whole.db")
            several_runs(store, turns=8)
            store.close()
            _WHOLE = store.path.read_bytes()
        damaged = bytearray(_WHOLE)
        for _ in range(data.draw(st.integers(1, 4))):
            at = data.draw(st.integers(0, len(damaged) - 1) | st.integers(0, 120) | st.integers(4096, 4200))
            damaged[at : at + 8] = data.draw(st.binary(min_size=8, max_size=8))
        path = Path(folder) / "damaged.db"
        path.write_bytes(damaged)
        store = SQLiteStore(path, patience=0)
        for use in (store.list, lambda: store.events("r1"), lambda: store.open("r2"), lambda: store.create("new")):
            with suppress(JournalError):
                use()
        store.close()


_WHOLE: bytes | None = None
