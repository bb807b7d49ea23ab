"""The store on PostgreSQL: several writers, servers that go away, and what a user is told."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NoReturn, cast

import anyio
import psycopg
import pytest

from flowengine.core.context import NodeResult
from flowengine.engine.events import Event, NodeFinished, NodeStarted, RunFinished, RunResumed, RunStarted
from flowengine.engine.ports import Journal
from flowengine.errors import (
    JournalError,
    NotJournalableError,
    StoreCorruptError,
    StoreUnavailableError,
    StoreVersionError,
)
from flowengine.journal.postgres.batch import Hold
from flowengine.journal.postgres.store import PostgresStore
from flowengine.journal.postgres.writer import Commits, PostgresWriter
from flowengine.journal.stores import open_store
from tests.support.postgres import PASSWORD, empty_database, server

OWNER = """
import sys, time
import anyio
from flowengine.engine.events import RunStarted
from flowengine.journal.stores import open_store
async def main():
    store = open_store(sys.argv[1], "full")
    journal = store.create("r1")
    journal.append(RunStarted("r1", "flow", 1.0, {}, {}, {}))
    await journal.commit(True)
    print("writing", flush=True)
    time.sleep(60)
anyio.run(main)
"""


@pytest.fixture
def url() -> str:
    return empty_database()


@pytest.fixture
def stores(url: str) -> Iterator[list[PostgresStore]]:
    """Two, as two processes have them."""
    made = [PostgresStore(url, "full"), PostgresStore(url, "full")]
    yield made
    for each in made:
        each.close()


def started(run_id: str = "r1") -> RunStarted:
    return RunStarted(run_id, "flow", 1.0, {}, {}, {}, "flow.yaml")


def finished(node: str, output: object = "text") -> NodeFinished:
    return NodeFinished(node, 3.0, NodeResult(output))


async def commit(journal: Journal, *events: Event) -> None:
    for event in events:
        journal.append(event)
    waiting = journal.commit(True)
    assert waiting is not None
    await waiting


def execute(url: str, statement: str, *values: Any) -> list[Any]:
    with psycopg.connect(url, autocommit=True) as connection:
        cursor = connection.execute(statement.encode(), values)
        return cursor.fetchall() if cursor.description else []


def cut_off(url: str) -> None:
    """End all sessions but our own: what a broken network does to a writer."""
    execute(url, "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'flowengine'")


def take_away(url: str) -> None:
    """What another process does that finds the owner dead."""
    execute(url, "UPDATE flowengine.run SET epoch = epoch + 1, owner = NULL")


# --- owners ---------------------------------------------------------------------------------------


async def test_a_run_that_another_store_writes_is_neither_opened_nor_removed(stores: list[PostgresStore]) -> None:
    one, other = stores
    journal = one.create("r1")
    await commit(journal, started())
    for use in (other.open, other.remove):
        with pytest.raises(StoreUnavailableError, match=r"run 'r1' is being written by process \d+ on "):
            use("r1")
    assert len(other.events("r1")) == 1
    await journal.close()
    again = other.open("r1")
    await commit(again, RunResumed(2.0))
    await again.close()
    other.remove("r1")


async def test_a_run_that_has_ended_is_free_before_its_journal_is_closed(stores: list[PostgresStore]) -> None:
    one, other = stores
    journal = one.create("r1")
    await commit(journal, started(), RunFinished(2.0, "waiting"))
    again = other.open("r1")
    await journal.close()
    await commit(again, RunResumed(3.0))
    with pytest.raises(StoreUnavailableError, match="is being written"):
        one.open("r1")
    await again.close()


async def test_what_a_killed_process_wrote_is_gone_on_with_at_once(url: str) -> None:
    store = PostgresStore(url, "full")
    kill_an_owner(url, store)
    journal = opened_soon(store)
    assert list(journal.read()) == [started()._replace(path=None)]
    await commit(journal, RunResumed(2.0))
    await journal.close()
    store.close()


def kill_an_owner(url: str, store: PostgresStore) -> None:
    with subprocess.Popen([sys.executable, "-c", OWNER, url], stdout=subprocess.PIPE, text=True) as owner:
        assert owner.stdout is not None
        assert owner.stdout.readline() == "writing\n"
        with pytest.raises(StoreUnavailableError, match=f"is being written by process {owner.pid} "):
            store.open("r1")
        owner.kill()


def opened_soon(store: PostgresStore) -> Journal:
    """The server notices a closed connection within some milliseconds."""
    for _ in range(100):
        try:
            return store.open("r1")
        except StoreUnavailableError:
            time.sleep(0.05)
    raise AssertionError("the dead owner's run was never free")


async def test_a_superseded_writer_writes_nothing_more_and_its_other_runs_go_on(
    url: str, stores: list[PostgresStore]
) -> None:
    one, other = stores
    lost, kept = one.create("r1"), one.create("r2")
    await commit(lost, started())
    await commit(kept, started("r2"))
    execute(url, "UPDATE flowengine.run SET epoch = epoch + 1, owner = NULL WHERE run_id = 'r1'")
    taken = other.open("r1")
    kept.append(finished("a"))
    with pytest.raises(StoreUnavailableError, match=r"run 'r1' in postgresql://.* was taken over by another writer"):
        await commit(lost, finished("a"))
    with pytest.raises(StoreUnavailableError, match="taken over"):
        lost.append(finished("b"))
    with pytest.raises(StoreUnavailableError, match="taken over"):
        await lost.close()
    await commit(taken, RunResumed(5.0))
    assert list(other.events("r1")) == [started(), RunResumed(5.0)]
    assert list(other.events("r2")) == [started("r2"), finished("a")]
    await taken.close()
    await kept.close()


async def test_an_id_that_two_stores_take_at_once_is_the_first_ones(stores: list[PostgresStore]) -> None:
    first, second = (store.create("r1") for store in stores)
    await commit(first, started())
    with pytest.raises(JournalError, match="run 'r1' exists already"):
        await commit(second, started())
    with pytest.raises(JournalError):
        await second.close()
    assert len(stores[0].events("r1")) == 1
    await first.close()


def test_several_that_come_first_make_the_tables_once(url: str) -> None:
    def use() -> None:
        store = PostgresStore(url)
        assert list(store.list()) == []
        store.close()

    with ThreadPoolExecutor(4) as threads:
        for done in [threads.submit(use) for _ in range(4)]:
            done.result()
    assert execute(url, "SELECT count(*) FROM flowengine.version") == [(1,)]


async def test_runs_that_commit_at_once_share_their_commits(url: str) -> None:
    store = PostgresStore(url, "full")
    journals = [store.create(f"r{index}") for index in range(20)]
    for index, journal in enumerate(journals):
        await commit(journal, started(f"r{index}"))
    before = transactions(url)
    async with anyio.create_task_group() as group:
        for journal in journals:
            group.start_soon(commit, journal, finished("a"))
    assert transactions(url) == before + 1
    for journal in journals:
        await journal.close()
    store.close()


def transactions(url: str) -> int:
    """How many have written events."""
    return execute(url, "SELECT count(DISTINCT xmin::text) FROM flowengine.event")[0][0]


# --- servers that go away -------------------------------------------------------------------------


async def test_a_writer_that_was_cut_off_connects_again_and_loses_nothing(
    url: str, stores: list[PostgresStore]
) -> None:
    one, other = stores
    journal = one.create("r1")
    await commit(journal, started())
    cut_off(url)
    await commit(journal, NodeStarted("a", 2.0), finished("a"))
    with pytest.raises(StoreUnavailableError, match="is being written"):
        other.open("r1")
    await journal.close()
    assert list(other.events("r1")) == [started(), NodeStarted("a", 2.0), finished("a")]


async def test_a_writer_that_was_cut_off_and_superseded_writes_nothing(url: str, stores: list[PostgresStore]) -> None:
    one, other = stores
    journal = one.create("r1")
    await commit(journal, started())
    take_away(url)
    cut_off(url)
    with pytest.raises(StoreUnavailableError, match="taken over"):
        await commit(journal, finished("a"))
    assert list(other.events("r1")) == [started()]


def test_a_commit_whose_answer_was_lost_is_done_twice_and_counts_once(url: str) -> None:
    from flowengine.journal.postgres.batch import WRITE, BatchEntry, Begin, Hold, columns_of

    store = PostgresStore(url)
    assert list(store.list()) == []
    run = Hold("r1", 7, 1)
    values, _ = columns_of([BatchEntry(run, 1, "[1]", begin=Begin.of(started()))], 5, "ann")
    assert [execute(url, WRITE.decode(), *values) for _ in range(2)] == [[(7,)], [(7,)]]
    values, _ = columns_of([BatchEntry(run, 2, "[2]")], 5, "ann")
    assert [execute(url, WRITE.decode(), *values) for _ in range(2)] == [[(7,)], [(7,)]]
    assert execute(url, "SELECT position, body FROM flowengine.event ORDER BY 1") == [(0, "[1]"), (1, "[2]")]
    store.close()


async def test_a_server_that_restarts_is_waited_for(url: str) -> None:
    store = PostgresStore(url, "full")
    journal = store.create("r1")
    await commit(journal, started())
    server().restart()
    await commit(journal, finished("a"))
    await journal.close()
    assert len(store.events("r1")) == 2
    store.close()


# --- what a user is told --------------------------------------------------------------------------


def test_a_wrong_password_is_told_without_it(url: str) -> None:
    with pytest.raises(StoreUnavailableError, match="refuses the user or the password") as caught:
        open_store(url.replace(PASSWORD, "wr0ng-word")).list()
    assert "wr0ng-word" not in str(caught.value)
    assert PASSWORD not in str(caught.value)


def test_a_database_that_is_not_there_is_told() -> None:
    with pytest.raises(StoreUnavailableError, match="is not there; create the database") as caught:
        open_store(server().url("nowhere")).list()
    assert PASSWORD not in str(caught.value)


def test_a_server_that_is_not_there_is_told() -> None:
    url = "postgresql://ann:secret-word@127.0.0.1:1/runs"
    with pytest.raises(StoreUnavailableError, match=r"postgresql://ann@127.0.0.1:1/runs cannot be reached") as caught:
        open_store(url).list()
    assert "secret-word" not in str(caught.value)


@pytest.mark.parametrize("word", ["a@secret", "%zzsecret"])
def test_a_password_that_breaks_the_url_is_not_repeated(word: str) -> None:
    with pytest.raises(StoreUnavailableError, match="the URL of the store cannot be read") as caught:
        open_store(f"postgresql://ann:{word}@127.0.0.1:1/runs").list()
    assert "secret" not in str(caught.value)


def test_a_store_of_a_newer_version_is_refused(url: str) -> None:
    store = PostgresStore(url)
    store.list()
    store.close()
    execute(url, "UPDATE flowengine.version SET number = 99")
    with pytest.raises(StoreVersionError, match=r"store version 99.*upgrade FlowEngine"):
        PostgresStore(url).list()


def test_a_store_without_its_tables_is_told_as_damaged(url: str) -> None:
    store = PostgresStore(url)
    store.list()
    execute(url, "DROP TABLE flowengine.beside")
    with pytest.raises(StoreCorruptError, match="lacks a part of its tables"):
        store.recall("session", "ann")
    store.close()


def test_a_run_that_lost_events_is_told_as_damaged(url: str) -> None:
    store = PostgresStore(url)
    store.list()
    execute(url, "INSERT INTO flowengine.run VALUES (1, 'r1', 'flow', 'failed', 1, 2, NULL, NULL, NULL, 1, 3)")
    with pytest.raises(StoreCorruptError, match="run 'r1' has no beginning"):
        store.events("r1")
    execute(url, "INSERT INTO flowengine.event VALUES (1, 1, '[]')")
    with pytest.raises(StoreCorruptError, match="events of run 'r1' are missing"):
        store.events("r1")
    execute(url, "INSERT INTO flowengine.event VALUES (1, 0, 'nothing')")
    with pytest.raises(StoreCorruptError, match="run 'r1', event 0: not an event"):
        store.events("r1")
    store.close()


async def test_a_value_that_cannot_be_written_leaves_the_run_as_it_was(stores: list[PostgresStore]) -> None:
    journal = stores[0].create("r1")
    await commit(journal, started())
    with pytest.raises(NotJournalableError):
        journal.append(finished("a", object()))
    await commit(journal, finished("a", "nul \0 and \ud800 and ✓"))
    assert list(journal.read(1)) == [finished("a", "nul \0 and \ud800 and ✓")]
    await journal.close()


class AwayDatabase:
    """A server that does not answer any more."""

    name = "postgresql://db/runs"

    def run(self, work: object) -> NoReturn:
        raise StoreUnavailableError(f"{self.name} cannot be reached")


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_nothing_begins_where_nobody_can_say_whose_the_runs_are() -> None:
    commits = Commits(PostgresWriter(cast("Any", AwayDatabase())))
    refused: list[int] = []

    async def begin(number: int) -> None:
        with pytest.raises(StoreUnavailableError, match="cannot be reached"):
            await commits.check(Hold(f"r{number}", number, 1))
        refused.append(number)

    async with anyio.create_task_group() as tasks:
        for number in range(3):
            tasks.start_soon(begin, number)
    assert sorted(refused) == [0, 1, 2]


class SlowDatabase(AwayDatabase):
    def __init__(self) -> None:
        self.is_asked, self.may_answer = threading.Event(), threading.Event()

    def run(self, work: object) -> NoReturn:
        self.is_asked.set()
        self.may_answer.wait()
        super().run(work)


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_a_leader_that_the_event_loop_cancels_while_it_waits_for_its_turn_keeps_nobody_waiting() -> None:
    database = SlowDatabase()
    commits = Commits(PostgresWriter(cast("Any", database)))

    async def ask(number: int) -> asyncio.Task[None]:
        asked = asyncio.create_task(commits.check(Hold(f"r{number}", number, 1)))
        await anyio.wait_all_tasks_blocked()
        return asked

    try:
        first = await ask(0)
        await anyio.to_thread.run_sync(database.is_asked.wait)
        leader, follower = await ask(1), await ask(2)
        leader.cancel()  # As Ctrl-C cancels the main task: no shield of anyio's holds that up.
        await asyncio.wait([leader, follower], timeout=60)
        last = await ask(3)
    finally:
        database.may_answer.set()
    await asyncio.wait([first, last], timeout=60)
    assert leader.cancelled()
    assert [type(each.exception()) for each in (first, follower, last)] == [StoreUnavailableError] * 3


def test_without_its_driver_the_store_says_what_to_install() -> None:
    code = (
        "import sys; sys.modules['psycopg'] = None\n"
        "from flowengine.journal.stores import open_store\n"
        "open_store('postgresql://host/runs')\n"
    )
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert "needs its driver: pip install 'flowengine-dag[queue]'" in told.stderr


def test_nothing_else_needs_the_driver() -> None:
    code = (
        "import sys\n"
        "from flowengine.cli.main import main\n"
        "from flowengine.journal.stores import open_store\n"
        "open_store('memory:'), main(['--help'])\n"
        "sys.exit(any(name in sys.modules for name in ('psycopg', 'procrastinate')))\n"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, check=False).returncode == 0
