"""What every store promises, on both event loops."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from threading import Thread
from typing import Any, get_args

import anyio
import pytest

from flowengine.core.context import NodeResult
from flowengine.core.records import Notice
from flowengine.core.values import FrozenDict
from flowengine.engine.events import (
    ErrorInfo,
    Event,
    NodeFinished,
    NodeRecorded,
    NodeStarted,
    RunFinished,
    RunResumed,
    RunStarted,
)
from flowengine.engine.ports import Durability, Journal, JournalStore, RunInfo
from flowengine.errors import JournalError, RunBusyError, RunNotFoundError, StoreUnavailableError
from flowengine.journal.memory import MemoryStore
from flowengine.journal.postgres.tables import PostgresTables
from flowengine.journal.run_lookup import RunQuery
from flowengine.journal.sqlite.store import SQLiteStore
from flowengine.journal.sqlite.tables import SqliteTables
from flowengine.journal.stores import open_store
from flowengine.runtime.run_listing import RunLister
from tests.support.postgres import empty_database

NewStore = Callable[[], JournalStore]


def made_store(kind: Any, folder: Path) -> JournalStore:
    if kind == "in memory":
        return MemoryStore()
    if kind == "PostgreSQL":
        return open_store(empty_database(), "full")
    return SQLiteStore(folder / "new" / "runs.db", kind)


@pytest.fixture(params=["in memory", *get_args(Durability), "PostgreSQL"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[JournalStore]:
    made = made_store(request.param, tmp_path)
    yield made
    made.close()


def started(run_id: str, at: float = 1.0) -> RunStarted:
    return RunStarted(run_id, "flow", at, FrozenDict(a=1), {}, {}, "flow.yaml")


def finished(node: str, output: object = "text") -> NodeFinished:
    return NodeFinished(node, 3.0, NodeResult(output))


async def commit(journal: Journal, *events: Event, alone: bool = True) -> None:
    for event in events:
        journal.append(event)
    waiting = journal.commit(alone)
    if waiting is not None:
        await waiting


async def test_what_was_appended_is_read_in_order(store: JournalStore) -> None:
    journal = store.create("r1")
    assert list(journal.read()) == []
    events = [started("r1"), NodeStarted("a", 2.0), NodeRecorded("a", 2.5, Notice("n")), finished("a", ("x", 1))]
    for event in events:
        await commit(journal, event)
    assert list(journal.read()) == events
    assert list(journal.read(3)) == events[3:]
    assert list(journal.read(4)) == []
    assert list(journal.read(9)) == []
    await journal.close()
    assert list(store.events("r1")) == events
    assert list(store.events("r1", 2)) == events[2:]
    assert list(store.events("r1", 4)) == []


async def test_a_journal_reads_what_is_not_committed_yet(store: JournalStore) -> None:
    journal = store.create("r1")
    journal.append(started("r1"))
    journal.append(NodeStarted("a", 2.0))
    assert list(journal.read()) == [started("r1"), NodeStarted("a", 2.0)]
    await journal.close()


async def test_a_flush_shows_what_was_appended_to_readers(store: JournalStore) -> None:
    journal = store.create("r1")
    await commit(journal, started("r1"))
    journal.append(NodeStarted("a", 2.0))
    journal.flush()
    journal.flush()
    assert list(store.events("r1", 1)) == [NodeStarted("a", 2.0)]
    await journal.close()


async def test_closing_commits_what_is_left(store: JournalStore) -> None:
    journal = store.create("r1")
    journal.append(started("r1"))
    journal.append(finished("a"))
    await journal.close()
    await journal.close()
    assert len(store.events("r1")) == 2


async def test_a_run_that_nobody_writes_any_more_is_told_until_it_has_ended(store: JournalStore) -> None:
    journal = store.create("r1")
    await commit(journal, started("r1"))
    assert list(store.abandoned()) == []
    await journal.close()
    assert list(store.abandoned()) == ["r1"]
    journal = store.open("r1")
    assert list(store.abandoned()) == []
    await commit(journal, RunFinished(2.0, "failed"))
    await journal.close()
    assert list(store.abandoned()) == []


async def test_a_closed_journal_takes_nothing(store: JournalStore) -> None:
    journal = store.create("r1")
    await commit(journal, started("r1"))
    await journal.close()
    with pytest.raises(StoreUnavailableError, match="closed"):
        journal.append(finished("a"))
    assert len(store.events("r1")) == 1


async def test_a_run_is_opened_again_and_goes_on(store: JournalStore) -> None:
    journal = store.create("r1")
    await commit(journal, started("r1"), finished("a"))
    await journal.close()
    again = store.open("r1")
    assert list(again.read()) == [started("r1"), finished("a")]
    await commit(again, RunResumed(5.0), finished("b"))
    assert list(again.read(2)) == [RunResumed(5.0), finished("b")]
    await again.close()
    assert len(store.events("r1")) == 4


async def test_a_run_has_one_writer(store: JournalStore) -> None:
    journal = store.create("r1")
    await commit(journal, started("r1"))
    journal.flush()
    with pytest.raises(StoreUnavailableError, match="run 'r1' is being written by"):
        store.open("r1")
    await commit(journal, finished("a"))
    await journal.close()
    again = store.open("r1")
    with pytest.raises(StoreUnavailableError):
        store.open("r1")
    await again.close()
    await store.open("r1").close()


async def test_an_id_is_given_once(store: JournalStore) -> None:
    journal = store.create("r1")
    with pytest.raises(JournalError, match="r1"):
        store.create("r1")
    await commit(journal, started("r1"))
    await journal.close()
    with pytest.raises(JournalError, match="run 'r1' exists already"):
        store.create("r1")
    assert len(store.events("r1")) == 1
    await store.open("r1").close()


async def test_an_id_that_was_taken_and_never_used_is_free(store: JournalStore) -> None:
    await store.create("r1").close()
    assert list(store.list()) == []
    for use in (store.open, store.events, store.find):
        with pytest.raises(RunNotFoundError):
            use("r1")
    journal = store.create("r1")
    await commit(journal, started("r1"))
    await journal.close()
    assert len(store.events("r1")) == 1


async def test_a_run_that_is_not_there_is_named_with_those_that_are(store: JournalStore) -> None:
    for use in (store.open, store.events, store.find):
        with pytest.raises(RunNotFoundError, match=r"no run 'zz'.* holds no runs"):
            use("zz")
    journal = store.create("r1")
    await commit(journal, started("r1"))
    journal.flush()
    for use in (store.open, store.events, store.find):
        with pytest.raises(RunNotFoundError, match="it holds r1"):
            use("zz")
    await journal.close()


async def test_the_list_says_how_each_run_stands(store: JournalStore) -> None:
    first, second, third = store.create("a1"), store.create("a2"), store.create("b3")
    await commit(first, started("a1", 10.0), finished("n"), RunFinished(12.0, "succeeded", {"x": 1}))
    await commit(third, started("b3", 30.0))
    await commit(second, started("a2", 20.0), RunFinished(22.0, "failed", None, ErrorInfo("T", "m"), "n"))
    first.flush()
    assert list(store.list()) == [
        RunInfo("b3", "flow", "running", 30.0, None, 1, "flow.yaml"),
        RunInfo("a2", "flow", "failed", 20.0, 22.0, 2, "flow.yaml"),
        RunInfo("a1", "flow", "succeeded", 10.0, 12.0, 3, "flow.yaml"),
    ]
    await commit(second, RunResumed(40.0))
    second.flush()
    assert store.list()[1] == RunInfo("a2", "flow", "running", 20.0, None, 3, "flow.yaml")
    for journal in (first, second, third):
        await journal.close()


@pytest.mark.parametrize(
    ("name", "listed"),
    [("a\0b", "a?b"), ("\0", "?"), ("half \ud83d", "half ?"), ("\udcff\0", "??"), ("茶\n", "茶\n")],
)
async def test_a_flow_and_a_file_may_have_names_that_no_database_has_as_text(
    store: JournalStore, name: str, listed: str
) -> None:
    start = RunStarted("r1", name, 1.0, FrozenDict(a=name), {}, {}, f"{name}.yaml", settings={"session": name})
    journal = store.create("r1")
    await commit(journal, start, finished(name, name), RunFinished(4.0, "succeeded", FrozenDict(x=name)))
    await journal.close()
    assert store.events("r1")[0] == start
    assert store.events("r1", 2) == [RunFinished(4.0, "succeeded", FrozenDict(x=name))]
    again = store.open("r1")
    assert again.read()[0] == start
    await again.close()
    row = RunInfo("r1", listed, "succeeded", 1.0, 4.0, 3, f"{listed}.yaml")
    assert list(store.list()) == [row]
    lister = RunLister(store)
    assert lister.flows() == [listed]
    for query in (RunQuery(flow=name), RunQuery(flow=listed), RunQuery(session=name), RunQuery(text=f"{name}.yaml")):
        assert [line.info for line in lister.page(query).lines] == [row], query
    assert lister.page(RunQuery(flow=f"{name}b")).total == 0
    store.remove("r1")
    assert list(store.list()) == []


async def test_a_run_is_found_by_id_prefix_or_as_the_last(store: JournalStore) -> None:
    for run_id, at in (("ab", 1.0), ("abc", 3.0), ("abd", 2.0), ("x", 0.5)):
        journal = store.create(run_id)
        await commit(journal, started(run_id, at))
        await journal.close()
    assert store.find("@last") == "abc"
    assert store.find("ab") == "ab"
    assert store.find("abd") == "abd"
    assert store.find("x") == "x"
    with pytest.raises(RunNotFoundError, match=r"'a' is the start of 3 runs in .*: abc, abd, ab"):
        store.find("a")
    for nothing in ("", "%", "ab%", "@first"):
        with pytest.raises(RunNotFoundError, match="it holds abc, abd, ab, x"):
            store.find(nothing)


async def test_an_empty_store_has_no_last_run(store: JournalStore) -> None:
    assert list(store.list()) == []
    with pytest.raises(RunNotFoundError, match="@last"):
        store.find("@last")


async def test_nodes_that_finish_together_lose_nothing(store: JournalStore) -> None:
    journal = store.create("r1")
    await commit(journal, started("r1"))

    async def node(name: str) -> None:
        for turn in range(5):
            await commit(journal, NodeStarted(name, 1.0), finished(name, turn), alone=False)
            await anyio.lowlevel.checkpoint()

    async with anyio.create_task_group() as group:
        for index in range(20):
            group.start_soon(node, f"n{index}")
    await journal.close()
    events = store.events("r1", 1)
    assert len(events) == 200
    for index in range(20):
        mine = [
            event.result.output for event in events if isinstance(event, NodeFinished) and event.node == f"n{index}"
        ]
        assert mine == [0, 1, 2, 3, 4]


async def test_runs_of_one_loop_do_not_mix(store: JournalStore) -> None:
    async def run(run_id: str) -> None:
        journal = store.create(run_id)
        await commit(journal, started(run_id), alone=False)
        for turn in range(5):
            await commit(journal, finished(run_id, turn), alone=turn % 2 == 0)
        await journal.close()

    async with anyio.create_task_group() as group:
        for index in range(10):
            group.start_soon(run, f"r{index}")
    for index in range(10):
        assert list(store.events(f"r{index}")) == [
            started(f"r{index}"),
            *(finished(f"r{index}", turn) for turn in range(5)),
        ]


async def test_a_store_can_be_used_from_several_threads(store: JournalStore) -> None:
    def in_thread(name: str) -> None:
        async def run() -> None:
            journal = store.create(name)
            await commit(journal, started(name))
            for turn in range(20):
                await commit(journal, finished(name, turn))
            await journal.close()

        anyio.run(run)

    async with anyio.create_task_group() as group:
        for index in range(4):
            group.start_soon(anyio.to_thread.run_sync, in_thread, f"r{index}")
    assert {run.run_id: run.events for run in store.list()} == {f"r{index}": 21 for index in range(4)}


def test_a_second_closing_of_the_store_does_no_harm(store: JournalStore) -> None:
    store.create("r1")
    store.close()
    store.close()


async def test_what_is_kept_beside_the_runs_is_recalled_and_revised(store: JournalStore) -> None:
    assert store.recall("session", "ann") is None
    store.revise("session", "ann", lambda before: [before, NodeResult("x")])
    assert store.recall("session", "ann") == [None, NodeResult("x")]
    store.revise("session", "ann", lambda before: [*before, 2.5])
    assert store.recall("session", "ann") == [None, NodeResult("x"), 2.5]
    assert store.recall("cache", "ann") is None
    store.revise("session", "ann", lambda before: None)
    assert store.recall("session", "ann") is None


async def test_a_change_that_fails_changes_nothing(store: JournalStore) -> None:
    def fail(before: object) -> object:
        raise ValueError("no")

    store.revise("session", "ann", lambda before: 1)
    with pytest.raises(ValueError, match="no"):
        store.revise("session", "ann", fail)
    assert store.recall("session", "ann") == 1
    store.revise("session", "ann", lambda before: 2)
    assert store.recall("session", "ann") == 2


async def test_a_run_is_removed_with_its_events_and_its_id_is_free_again(store: JournalStore) -> None:
    for run_id in ("r1", "r2"):
        journal = store.create(run_id)
        await commit(journal, started(run_id), NodeStarted("a", 2.0), RunFinished(3.0, "succeeded"))
        await journal.close()
    store.remove("r1")
    assert [run.run_id for run in store.list()] == ["r2"]
    with pytest.raises(RunNotFoundError):
        store.events("r1")
    assert len(store.events("r2")) == 3
    journal = store.create("r1")
    await commit(journal, started("r1"))
    await journal.close()
    assert len(store.events("r1")) == 1


async def test_a_journal_that_is_closed_again_lets_go_of_nobody_elses_run(store: JournalStore) -> None:
    first = store.create("r1")
    await commit(first, started("r1"))
    await first.close()
    second = store.open("r1")
    await first.close()
    with pytest.raises(RunBusyError):
        store.open("r1")
    await second.close()


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_changes_of_two_threads_come_one_after_the_other(store: JournalStore) -> None:
    others: list[Thread] = []

    def add(before: Any) -> int:
        """The other thread begins while this one is at it."""
        if not others:
            others.append(Thread(target=store.revise, args=("count", "one", add)))
            others[0].start()
            others[0].join(0.05)
        return (before or 0) + 1

    store.revise("count", "one", add)
    others[0].join()
    assert store.recall("count", "one") == 2


async def test_what_is_kept_of_a_run_goes_with_it(store: JournalStore) -> None:
    """Else a new run of its id, as a schedule begins one, is taken for one whose workers died."""
    kinds = ("answer", "live", "notes", "queue.deaths", "queue.lacks", "queue.loading")
    journal = store.create("r1")
    await commit(journal, started("r1"), RunFinished(3.0, "failed"))
    await journal.close()
    for kind in (*kinds, "session"):
        store.revise(kind, "r1", lambda before: [1])
    store.remove("r1")
    assert [kind for kind in (*kinds, "session") if store.recall(kind, "r1") is not None] == ["session"]


@pytest.mark.parametrize(("kind", "tables"), [("process", SqliteTables), ("PostgreSQL", PostgresTables)])
async def test_a_run_that_is_removed_while_it_is_read_is_not_there(
    kind: str, tables: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = made_store(kind, tmp_path)
    journal = store.create("r1")
    await commit(journal, started("r1"))
    await journal.close()
    read = tables.events

    def remove_first(found: Any, *asked: Any) -> Any:
        store.remove("r1")
        return read(found, *asked)

    monkeypatch.setattr(tables, "events", remove_first)
    with pytest.raises(RunNotFoundError, match="no run 'r1'"):
        store.events("r1")
    store.close()


async def test_a_run_that_is_written_is_not_removed(store: JournalStore) -> None:
    journal = store.create("r1")
    await commit(journal, started("r1"))
    with pytest.raises(StoreUnavailableError):
        store.remove("r1")
    await journal.close()
    assert len(store.events("r1")) == 1


async def test_what_a_session_had_kept_is_in_the_runs_first_event(store: JournalStore) -> None:
    journal = store.create("r1")
    first = started("r1")._replace(graph=FrozenDict(nodes=[], edges=[]), kept=FrozenDict(conversation=["hello"]))
    await commit(journal, first)
    await journal.close()
    assert store.events("r1")[0] == first
