"""Labels of runs, in every store: kept, listed, and there after a store of an earlier version was opened."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from flowengine import Flow, FunctionNode, Runs
from flowengine.core.context import Context
from flowengine.engine.events import RunStarted
from flowengine.engine.ports import JournalStore
from flowengine.errors import InputError, StoreCorruptError
from flowengine.journal.memory import MemoryStore
from flowengine.journal.run_export import pack_run, store_run, unpack_run
from flowengine.journal.run_lookup import check_labels, decode_labels, encode_labels, labels_of, parse_labels
from flowengine.journal.stores import open_store
from tests.support.postgres import empty_database

BEFORE = Path(__file__).with_name("stores_made_before")


def one(context: Context) -> int:
    return 1


FLOW = Flow("before", {"one": FunctionNode(one)}, inputs={"text": "string"})


@pytest.fixture(params=["memory", "sqlite", "postgresql"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[JournalStore]:
    made = {
        "memory": MemoryStore,
        "sqlite": lambda: open_store(str(tmp_path / "runs.db")),
        "postgresql": lambda: open_store(empty_database()),
    }[request.param]()
    yield made
    made.close()


@pytest.fixture(params=["sqlite", "postgresql"])
def store_made_before(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[JournalStore]:
    """A store with two runs, written before runs had labels."""
    if request.param == "sqlite":
        path = tmp_path / "runs.db"
        connection = sqlite3.connect(path)
        connection.executescript((BEFORE / "sqlite_1.sql").read_text())
        connection.close()
        made = open_store(str(path))
    else:
        import psycopg

        url = empty_database()
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute((BEFORE / "postgres_2.sql").read_text().encode())
        made = open_store(url)
    yield made
    made.close()


async def test_a_run_is_listed_with_its_labels(store: JournalStore) -> None:
    await FLOW.run({"text": "x"}, store=store, run_id="a1", labels={"team": "請求", "env": "prod"})
    await FLOW.run({"text": "x"}, store=store, run_id="b2")
    assert {info.run_id: dict(info.labels) for info in store.list()} == {
        "a1": {"team": "請求", "env": "prod"},
        "b2": {},
    }


async def test_labels_outlive_resume_fork_and_export(store: JournalStore) -> None:
    healthy = False

    def fragile(context: Context) -> str:
        if not healthy:
            raise ValueError("broken")
        return "mended"

    flow = Flow("fragile", {"one": FunctionNode(one), "two": FunctionNode(fragile, needs=["one"])})
    assert (await flow.run(store=store, run_id="a1", labels={"team": "billing"})).status == "failed"
    healthy = True
    assert (await flow.resume("a1", store=store)).status == "succeeded"
    forked = await flow.fork("a1", "two", store=store)
    copied = unpack_run(list(pack_run(store.events("a1"))), "a file")
    await store_run(store, copied, "copy")
    assert {info.run_id for info in store.list()} == {"a1", forked.id, "copy"}
    assert all(info.labels == {"team": "billing"} for info in store.list())


async def test_a_store_made_before_is_opened_with_its_runs_and_takes_labelled_ones(
    store_made_before: JournalStore,
) -> None:
    store = store_made_before
    assert [(info.run_id, info.status, info.events, dict(info.labels)) for info in store.list()] == [
        ("good2", "succeeded", 4, {}),
        ("failed1", "failed", 6, {}),
    ]
    assert store.recall("session", "s") == {"x": 1}
    await FLOW.run({"text": "c"}, store=store, run_id="new3", labels={"team": "billing"})
    assert [info.run_id for info in Runs(store).list(labels={"team": "billing"})] == ["new3"]
    flow = Flow(
        "before", {"one": FunctionNode(one), "bad": FunctionNode(one, needs=["one"])}, inputs={"text": "string"}
    )
    resumed = await flow.resume("failed1", store=store, allow_changed=True)
    assert (resumed.status, resumed.nodes["one"].output) == ("succeeded", {"n": 1})


def test_a_store_is_migrated_once_although_several_open_it(tmp_path: Path) -> None:
    path = tmp_path / "runs.db"
    connection = sqlite3.connect(path)
    connection.executescript((BEFORE / "sqlite_1.sql").read_text())
    for _ in range(2):
        store = open_store(str(path))
        assert len(store.list()) == 2
        store.close()
    columns = [name for _, name, *_ in connection.execute("PRAGMA table_info(run)")]
    connection.close()
    assert columns.count("labels") == 1


def test_labels_of_a_damaged_row_are_told(tmp_path: Path) -> None:
    path = tmp_path / "runs.db"
    FLOW.run_sync({"text": "x"}, store=str(path))
    connection = sqlite3.connect(path)
    connection.execute("UPDATE run SET labels = '[1', checksum = NULL")
    connection.commit()
    connection.close()
    store = open_store(str(path))
    with pytest.raises(StoreCorruptError, match="the labels of a run"):
        store.list()
    store.close()


@pytest.mark.parametrize(
    ("labels", "said"),
    [
        ({"a b": "x"}, "a name is 1 to 64"),
        ({"": "x"}, "a name is 1 to 64"),
        ({"a": 1}, "a value is text, found int"),
        ({"a": "x\ny"}, "200 printable characters"),
        ({"a": "x" * 201}, "200 printable characters"),
        ({str(number): "x" for number in range(33)}, "at most 32 labels"),
    ],
)
async def test_what_is_no_label_is_refused_before_anything_runs(labels: Any, said: str) -> None:
    store = MemoryStore()
    with pytest.raises(InputError, match=said):
        await FLOW.run({"text": "x"}, store=store, labels=labels)
    assert not store.list()


def test_labels_are_read_from_pairs() -> None:
    assert parse_labels(["a=1=2", "a=1=2", "b="]) == {"a": "1=2", "b": ""}
    with pytest.raises(InputError, match="NAME=VALUE"):
        parse_labels(["team"])
    with pytest.raises(InputError, match="twice"):
        parse_labels(["a=1", "a=2"])


def test_labels_are_written_and_read_back() -> None:
    assert decode_labels(encode_labels({"a": "ü"})) == {"a": "ü"}
    assert encode_labels({}) is None
    assert not decode_labels(None)
    assert check_labels({}) == {}


@pytest.mark.parametrize("found", [None, [1], "text", {"a": 1}, {1: "a"}, {"a\0": "x"}])
def test_what_a_record_holds_in_place_of_labels_is_left_out(found: Any) -> None:
    started = RunStarted("r1", "flow", 1.0, {}, {}, {}, settings={"labels": found})
    assert not labels_of(started)
