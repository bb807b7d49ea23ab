"""A submit that is repeated: the same run is taken once, and another run under its id is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import anyio
import psycopg
import pytest

from flowengine.cli.main import main
from flowengine.errors import JournalError, StoreUnavailableError
from flowengine.flow import Flow
from flowengine.journal.postgres.store import PostgresStore
from flowengine.journal.sqlite.store import SQLiteStore
from flowengine.runtime.queue.run_queue import submit, submit_many
from tests.support.postgres import empty_database, server
from tests.support.queue_runs import SLEEP, drain, flow, jobs, status

pytestmark = pytest.mark.anyio

ASK = """
flowengine: v1
name: sleep
inputs: {seconds: {type: number, default: 0}}
nodes:
  ok: {type: approval, message: Go on?, routes: {"yes": end}}
  end: {type: function, call: "naps:sleep", with: {delay: 0, result: done}}
"""


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


async def test_the_same_submit_again_is_the_run_that_is_queued_already(store: PostgresStore, tmp_path: Path) -> None:
    plan = flow(tmp_path).plan
    for _ in range(2):
        assert await submit(store, plan, {"seconds": 0.0}, run_id="r1", priority=3) == "r1"
    assert [len(store.events("r1")), jobs(store)] == [1, [("r1", "todo")]]
    assert await drain(store) == ["run r1 begins: sleep", "run r1 succeeded"]


async def test_the_same_submit_again_leaves_a_finished_run_as_it_is(store: PostgresStore, tmp_path: Path) -> None:
    plan = flow(tmp_path).plan
    await submit(store, plan, {}, run_id="r1")
    await drain(store)
    events = store.events("r1")
    await submit(store, plan, {"seconds": 0}, run_id="r1")
    assert (store.events("r1"), jobs(store)) == (events, [])


async def test_the_same_submit_again_leaves_a_waiting_run_as_it_is(store: PostgresStore, tmp_path: Path) -> None:
    plan = flow(tmp_path, ASK).plan
    await submit(store, plan, {}, run_id="r1")
    await drain(store)
    await submit(store, plan, {}, run_id="r1")
    assert (status(store, "r1"), jobs(store)) == ("waiting", [])


@pytest.mark.parametrize(
    ("inputs", "text", "settings", "what"),
    [
        ({"seconds": 1}, SLEEP, {}, "other inputs"),
        ({}, SLEEP.replace("result: one", "result: eins"), {}, "another flow"),
        ({}, SLEEP, {"model": "offline"}, "another model"),
    ],
)
async def test_another_run_under_an_id_that_is_there_is_refused_and_nothing_is_touched(
    store: PostgresStore, tmp_path: Path, inputs: dict[str, Any], text: str, settings: dict[str, Any], what: str
) -> None:
    await submit(store, flow(tmp_path).plan, {}, run_id="r1")
    before = store.events("r1"), jobs(store)
    with pytest.raises(JournalError, match=f"run 'r1' is there already, with {what}"):
        await submit(store, flow(tmp_path, text).plan, inputs, run_id="r1", settings=settings)
    assert (store.events("r1"), jobs(store)) == before


async def test_other_labels_under_an_id_that_is_there_are_refused(store: PostgresStore, tmp_path: Path) -> None:
    plan = flow(tmp_path).plan
    await submit(store, plan, {}, run_id="r1", labels={"team": "billing"})
    assert await submit(store, plan, {}, run_id="r1", labels={"team": "billing"}) == "r1"
    with pytest.raises(JournalError, match="is there already, with other labels"):
        await submit(store, plan, {}, run_id="r1", labels={"team": "sales"})
    with pytest.raises(JournalError, match="with other labels"):
        await submit(store, plan, {}, run_id="r1")


async def test_of_many_runs_none_is_submitted_where_one_is_refused(store: PostgresStore, tmp_path: Path) -> None:
    plan = flow(tmp_path).plan
    await submit(store, plan, {}, run_id="r2")
    with pytest.raises(JournalError, match="'r2'"):
        await submit_many(store, plan, {"r1": {}, "r2": {"seconds": 1}, "r3": {}})
    assert [run.run_id for run in store.list()] == ["r2"]
    assert await submit_many(store, plan, {"r1": {}, "r2": {}, "r3": {}}) == {"r1", "r3"}
    assert jobs(store) == [("r2", "todo"), ("r1", "todo"), ("r3", "todo")]


async def test_a_run_that_was_begun_elsewhere_under_the_id_is_not_touched(store: PostgresStore, tmp_path: Path) -> None:
    made = flow(tmp_path)
    await made.run({"seconds": 0}, store=store, run_id="r1")
    with pytest.raises(JournalError, match="with other inputs"):
        await submit(store, made.plan, {"seconds": 5}, run_id="r1")
    assert status(store, "r1") == "succeeded"


async def test_five_submits_at_once_make_one_run(store: PostgresStore, tmp_path: Path) -> None:
    plan = flow(tmp_path).plan
    new: list[int] = []

    async def once() -> None:
        other = PostgresStore(store.url, "full")
        new.append(len(await submit_many(other, plan, {"r1": {}, "r2": {}})))
        other.close()

    async with anyio.create_task_group() as tasks:
        for _ in range(5):
            tasks.start_soon(once)
    assert sorted(new) == [0, 0, 0, 0, 2]
    assert jobs(store) == [("r1", "todo"), ("r2", "todo")]
    assert len(await drain(store)) == 4


async def test_a_run_that_cannot_be_put_into_the_queue_is_not_in_the_store(
    store: PostgresStore, tmp_path: Path
) -> None:
    plan = flow(tmp_path).plan
    await submit(store, plan, {}, run_id="r1")
    with psycopg.connect(store.url, autocommit=True) as connection:
        connection.execute("ALTER TABLE flowengine_queue.procrastinate_jobs ADD CHECK (lock <> 'r2')")
    with pytest.raises(StoreUnavailableError):
        await submit(store, plan, {}, run_id="r2")
    assert [run.run_id for run in store.list()] == ["r1"]


async def test_a_flow_inside_that_was_changed_makes_another_run(store: PostgresStore, tmp_path: Path) -> None:
    outer = "flowengine: v1\nname: o\nnodes: {inner: {type: subflow, flow: inner.yaml}}\n"
    inner = "flowengine: v1\nname: i\nnodes: {a: {prompt: WORD, model: offline}}\n"
    (tmp_path / "outer.yaml").write_text(outer)
    for word, is_refused in (("one", False), ("two", True)):
        (tmp_path / "inner.yaml").write_text(inner.replace("WORD", word))
        plan = Flow.from_yaml(tmp_path / "outer.yaml").plan
        if is_refused:
            with pytest.raises(JournalError, match="another flow"):
                await submit(store, plan, {}, run_id="r1")
        else:
            await submit(store, plan, {}, run_id="r1")


def test_the_command_line_takes_an_id_and_may_be_repeated(
    store: PostgresStore, tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FLOWENGINE_STORE", store.url)
    flow(tmp_path)
    assert [main(["submit", "flow.yaml", "--run-id", "order-7"]) for _ in range(2)] == [0, 0]
    said = capfd.readouterr()
    assert said.out == "order-7\norder-7\n"
    assert said.err == "run order-7 is there already\n"
    assert main(["submit", "flow.yaml", "--run-id", "order-7", "-i", "seconds=1"]) == 2
    assert "run 'order-7' is there already, with other inputs" in capfd.readouterr().err
    assert main(["submit", "flow.yaml", "--run-id", "no id"]) == 2
    assert jobs(store) == [("order-7", "todo")]


@pytest.mark.long
async def test_a_submitted_run_is_kept_by_a_server_that_crashes_at_once(tmp_path: Path) -> None:
    kept = PostgresStore(empty_database(), "process", patience=60)  # Its own runs need not outlive the server.
    try:
        plan = flow(tmp_path).plan
        await submit(kept, plan, {}, run_id="warm")
        for number in range(3):
            await submit(kept, plan, {}, run_id=f"r{number}")
            await anyio.to_thread.run_sync(server().restart)
        assert {run.run_id for run in kept.list()} == {"warm", "r0", "r1", "r2"}
        assert len(jobs(kept)) == 4
    finally:
        kept.close()


async def test_a_store_that_no_other_machine_reaches_takes_no_submit(tmp_path: Path) -> None:
    with pytest.raises(StoreUnavailableError, match="a queue needs a store on PostgreSQL"):
        await submit(SQLiteStore(tmp_path / "runs.db"), flow(tmp_path).plan, {"seconds": 0.0})  # pyright: ignore
