"""Runs in a queue and the workers that take them: procrastinate on a real server."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path

import anyio
import psycopg
import pytest
from psycopg.types.json import Jsonb

from flowengine.cli.main import main
from flowengine.engine.events import NodeFinished, RunFinished, RunResumed, RunStarted
from flowengine.errors import InputError, JournalError, StoreUnavailableError
from flowengine.journal.approvals import answer
from flowengine.journal.memory import MemoryStore
from flowengine.journal.postgres.store import PostgresStore
from flowengine.runtime.queue.run_queue import cancel, queue_store, requeue, submit
from flowengine.runtime.queue.tables import before_new, make_tables
from flowengine.runtime.queue.worker import work
from flowengine.version import install_hint
from tests.support.queue_runs import (
    QUICK,
    UNTIL_TOLD,
    await_node,
    command,
    drain,
    execute,
    flow,
    jobs,
    of,
    status,
    stop,
    until,
    worker,
)

pytestmark = pytest.mark.anyio

FAILS = """
flowengine: v1
name: fails
nodes:
  a: {type: function, call: "naps:sleep", with: {delay: not a number, result: one}}
"""
ASK = """
flowengine: v1
name: ask
nodes:
  ok: {type: approval, message: Go on?, routes: {"yes": after, "no": stop}EXPIRES}
  stop: {type: function, call: "naps:sleep", with: {delay: 0, result: stopped}}
  after: {type: function, call: "naps:sleep", with: {delay: 0, result: done}}
"""

TOGETHER = """
import anyio
begun = []
async def sleep(delay, result):
    if delay:
        begun.append(result)
        while len(begun) < 3:
            await anyio.sleep(0.01)
    return result
"""
"""What takes time takes until three runs are at it."""


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker runs the code of the project that it was started in."""
    monkeypatch.chdir(tmp_path)


async def test_a_worker_does_what_was_submitted(store: PostgresStore, tmp_path: Path) -> None:
    run_id = await submit(store, flow(tmp_path).plan, {"seconds": 0})
    (first,) = store.events(run_id)
    assert isinstance(first, RunStarted)
    assert dict(first.inputs) == {"seconds": 0}
    assert await drain(store) == [f"run {run_id} begins: sleep", f"run {run_id} succeeded"]
    finished = store.events(run_id)[-1]
    assert isinstance(finished, RunFinished)
    assert finished.outputs == {"said": "one two"}
    assert await drain(store) == []


async def test_the_flows_text_travels_with_the_run(store: PostgresStore, tmp_path: Path) -> None:
    run_id = await submit(store, flow(tmp_path).plan, {})
    (tmp_path / "flow.yaml").write_text("flowengine: v1\nname: another\nnodes: {}\n")
    await drain(store)
    assert status(store, run_id) == "succeeded"
    again = await submit(store, flow(tmp_path).plan, {})
    (tmp_path / "flow.yaml").unlink()
    await drain(store)
    assert status(store, again) == "succeeded"


async def test_inputs_that_do_not_fit_are_not_submitted(store: PostgresStore, tmp_path: Path) -> None:
    with pytest.raises(InputError):
        await submit(store, flow(tmp_path).plan, {"minutes": 1})
    assert list(store.list()) == []


async def test_a_higher_priority_goes_first_and_what_is_for_later_stays(store: PostgresStore, tmp_path: Path) -> None:
    plan = flow(tmp_path).plan
    low = await submit(store, plan, {}, priority=1)
    high = await submit(store, plan, {}, priority=5)
    later = await submit(store, plan, {}, priority=9, at=datetime.now(UTC) + timedelta(hours=1))
    other = await submit(store, plan, {}, queue="other")
    begun = [line for line in await drain(store) if "begins" in line]
    assert begun == [f"run {high} begins: sleep", f"run {low} begins: sleep"]
    assert [len(store.events(run_id)) for run_id in (later, other)] == [1, 1]
    await drain(store, queue="other")
    assert status(store, other) == "succeeded"


async def test_several_runs_are_worked_on_at_once(store: PostgresStore, tmp_path: Path) -> None:
    plan = flow(tmp_path, code=TOGETHER).plan
    for _ in range(3):
        await submit(store, plan, {"seconds": 1})
    told = await drain(store, concurrency=3)
    assert ["begins" in line for line in told] == [True, True, True, False, False, False]


async def test_a_run_that_is_cancelled_in_its_queue_never_begins(store: PostgresStore, tmp_path: Path) -> None:
    run_id = await submit(store, flow(tmp_path).plan, {})
    assert await cancel(store, run_id) == "before it began"
    assert status(store, run_id) == "cancelled"
    assert await drain(store) == []
    assert await cancel(store, run_id) == "nothing to stop"


async def test_a_run_is_cancelled_in_its_workers_hands(store: PostgresStore, tmp_path: Path) -> None:
    run_id = await submit(store, flow(tmp_path).plan, {"seconds": 60})
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(drain, store)
        await anyio.to_thread.run_sync(await_node, store, run_id, "sleep")
        assert await cancel(store, run_id) == "asked to stop"
    assert status(store, run_id) == "cancelled"
    assert await drain(store) == []


async def test_a_run_that_waits_for_a_person_holds_no_slot_and_goes_on_in_a_worker(
    store: PostgresStore, tmp_path: Path
) -> None:
    asking = await submit(store, flow(tmp_path, ASK.replace("EXPIRES", "")).plan, {}, priority=1)
    other = await submit(store, flow(tmp_path).plan, {})
    await drain(store)
    assert (status(store, asking), status(store, other)) == ("waiting", "succeeded")
    await answer(store, asking, None, "yes")
    await requeue(store, asking)
    with pytest.raises(JournalError, match="is in a queue already"):
        await requeue(store, asking)
    await drain(store)
    assert status(store, asking) == "succeeded"


async def test_an_answer_does_not_wait_for_the_question_to_expire(store: PostgresStore, tmp_path: Path) -> None:
    asks = ASK.replace("EXPIRES", ", expires: 1h, on_expire: 'no'")
    run_id = await submit(store, flow(tmp_path, asks).plan, {}, priority=3)
    await drain(store)
    await answer(store, run_id, None, "yes")
    await requeue(store, run_id)
    with psycopg.connect(store.url) as connection:
        jobs = connection.execute("SELECT priority, scheduled_at FROM flowengine_queue.procrastinate_jobs").fetchall()
    assert jobs == [(before_new(3), None)]
    await drain(store)
    assert status(store, run_id) == "succeeded"


async def test_a_run_that_ended_is_not_begun_again_by_the_job_of_a_worker_that_died_then(
    store: PostgresStore, tmp_path: Path
) -> None:
    run_id = await submit(store, flow(tmp_path, FAILS).plan, {})
    with psycopg.connect(store.url, autocommit=True) as connection:
        connection.execute("SET search_path = flowengine_queue")
        query = "SELECT queue_name, task_name, lock, queueing_lock, args FROM procrastinate_jobs"
        ((*job, given),) = connection.execute(query).fetchall()
        await drain(store)
        length = len(store.events(run_id))
        columns = "(queue_name, task_name, lock, queueing_lock, args)"
        connection.execute(
            f"INSERT INTO procrastinate_jobs {columns} VALUES (%s, %s, %s, %s, %s)",
            (*job, Jsonb(given)),
        )
    assert await drain(store) == []
    assert (status(store, run_id), len(store.events(run_id))) == ("failed", length)
    await requeue(store, run_id)
    assert len(await drain(store)) == 2


async def test_a_waiting_run_is_cancelled_where_it_is(store: PostgresStore, tmp_path: Path) -> None:
    run_id = await submit(store, flow(tmp_path, ASK.replace("EXPIRES", "")).plan, {})
    await drain(store)
    assert await cancel(store, run_id) == "before it began"
    assert status(store, run_id) == "cancelled"


@pytest.mark.long
async def test_a_question_that_expires_is_decided_by_a_worker(store: PostgresStore, tmp_path: Path) -> None:
    run_id = await submit(store, flow(tmp_path, ASK.replace("EXPIRES", ", expires: 4s, on_expire: 'yes'")).plan, {})
    await drain(store)
    assert status(store, run_id) == "waiting"
    await anyio.sleep(max(0.0, store.events(run_id)[-1].at + 4.1 - time.time()))
    await drain(store)
    assert status(store, run_id) == "succeeded"


@pytest.mark.long
async def test_a_question_expires_although_its_worker_died_before_it_said_when(
    store: PostgresStore, tmp_path: Path
) -> None:
    plan = flow(tmp_path, ASK.replace("EXPIRES", ", expires: 6s, on_expire: 'yes'")).plan
    run_id = await submit(store, plan, {}, run_id="r1")
    columns = "queue_name, task_name, lock, queueing_lock, args"
    execute(store, f"CREATE TABLE kept AS SELECT {columns} FROM procrastinate_jobs")
    await drain(store)
    execute(store, "DELETE FROM procrastinate_jobs")
    execute(store, f"INSERT INTO procrastinate_jobs ({columns}) SELECT {columns} FROM kept")
    assert await drain(store) == []
    assert len(jobs(store)) == 1
    asked = store.events(run_id)[-1].at
    await anyio.sleep(max(0.0, asked + 6.1 - time.time()))
    await drain(store)
    assert status(store, run_id) == "succeeded"


@pytest.mark.long
async def test_a_worker_that_is_told_to_stop_puts_its_run_back(store: PostgresStore, tmp_path: Path) -> None:
    run_id = await submit(store, flow(tmp_path, code=UNTIL_TOLD).plan, {"seconds": 3})
    process = worker(store, tmp_path)
    await_node(store, run_id, "sleep")
    said, complained = stop(process, signal.SIGTERM)
    assert said.splitlines() == [f"run {run_id} begins: sleep", f"run {run_id} is put back"]
    assert process.returncode == 0, complained
    assert status(store, run_id) == "running"  # Nobody has cancelled it.
    (tmp_path / "go").touch()
    told = await drain(store)
    assert told == [f"run {run_id} goes on: sleep", f"run {run_id} succeeded"]
    assert [event.node for event in of(NodeFinished, store.events(run_id))] == ["first", "sleep"]


@pytest.mark.long
async def test_the_run_of_a_worker_that_was_killed_is_taken_up_by_another(store: PostgresStore, tmp_path: Path) -> None:
    run_id = await submit(store, flow(tmp_path).plan, {"seconds": 2})
    process = worker(store, tmp_path)
    await_node(store, run_id, "sleep")
    stop(process, signal.SIGKILL)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(_work_on, store)
        await until(store, run_id, "succeeded")
        tasks.cancel_scope.cancel()
    events = store.events(run_id)
    assert [event.node for event in of(NodeFinished, events)] == ["first", "sleep"]
    assert len(of(RunResumed, events)) == 2


@pytest.mark.long
async def test_a_run_whose_worker_died_can_still_be_stopped(store: PostgresStore, tmp_path: Path) -> None:
    run_id = await submit(store, flow(tmp_path).plan, {"seconds": 60})
    process = worker(store, tmp_path)
    await_node(store, run_id, "sleep")
    stop(process, signal.SIGKILL)
    assert await cancel(store, run_id) == "asked to stop"
    await anyio.sleep(QUICK.stalled)
    assert await drain(store) == []
    assert status(store, run_id) == "cancelled"


async def test_a_worker_whose_run_was_taken_over_ends_it_quietly(store: PostgresStore, tmp_path: Path) -> None:
    run_id = await submit(store, flow(tmp_path, code=UNTIL_TOLD).plan, {"seconds": 1})
    told: list[str] = []
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(_tell_into, store, told)
        await anyio.to_thread.run_sync(await_node, store, run_id, "sleep")
        with psycopg.connect(store.url, autocommit=True) as connection:
            connection.execute("UPDATE flowengine.run SET epoch = epoch + 1, owner = NULL")
        (tmp_path / "go").touch()
    assert "was taken over by another writer" in told[-1]
    assert await drain(store) == []


async def _tell_into(store: PostgresStore, told: list[str]) -> None:
    told.extend(await drain(store))


async def _work_on(store: PostgresStore) -> None:
    await work(store, pace=QUICK)


def test_a_queue_needs_a_store_that_others_reach() -> None:
    with pytest.raises(StoreUnavailableError, match="a queue needs a store on PostgreSQL"):
        queue_store(MemoryStore())


def test_the_queues_tables_are_made_once(store: PostgresStore) -> None:
    with ThreadPoolExecutor(4) as threads:
        for done in [threads.submit(make_tables, store) for _ in range(4)]:
            done.result()
    with psycopg.connect(store.url) as connection:
        made = connection.execute("SELECT FROM pg_tables WHERE tablename = 'procrastinate_jobs'").fetchall()
    assert len(made) == 1


@pytest.mark.parametrize("missing", ["procrastinate", "psycopg"])
def test_without_its_libraries_a_queue_says_what_to_install(tmp_path: Path, missing: str) -> None:
    flow(tmp_path)
    code = f"import sys; sys.modules[{missing!r}] = None\nfrom flowengine.cli.main import main\n"
    code += "for words in sys.argv[1:]: main(words.split())"
    words = ["submit flow.yaml", "worker", "cancel r1", "queue", "workers"]
    command = [sys.executable, "-c", code, *words]
    told = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path)
    assert told.stderr.count(f"error: a queue needs its library: {install_hint('queue')}") == len(words), told.stderr
    assert "a bug in FlowEngine" not in told.stderr


def test_submitting_to_a_file_is_refused_and_writes_nothing(tmp_path: Path) -> None:
    flow(tmp_path)
    refused = command(tmp_path, str(tmp_path / "runs.db"), "submit", "flow.yaml")
    assert (refused.returncode, refused.stdout) == (2, "")
    assert "a queue needs a store on PostgreSQL" in refused.stderr
    assert not (tmp_path / "runs.db").exists()


def test_the_commands_submit_work_and_cancel(
    store: PostgresStore, tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FLOWENGINE_STORE", store.url)
    flow(tmp_path)
    assert main(["submit", "flow.yaml", "-i", "seconds=0.1", "--priority", "3", "--label", "team=billing"]) == 0
    assert main(["submit", "flow.yaml", "--at", "30m"]) == 0
    run_id, later = capfd.readouterr().out.split()
    assert main(["worker", "--until-idle", "--concurrency", "2", "--takeovers", "3"]) == 0
    told = capfd.readouterr().err.splitlines()
    assert [line.partition(" ")[2] for line in told[1:]] == [f"run {run_id} begins: sleep", f"run {run_id} succeeded"]
    assert main(["cancel", later]) == 0
    assert capfd.readouterr().err == f"run {later} is cancelled\n"
    assert main(["cancel", later]) == 1
    assert [status(store, each) for each in (run_id, later)] == ["succeeded", "cancelled"]
    assert [info.run_id for info in store.list() if info.labels == {"team": "billing"}] == [run_id]


def test_an_answer_puts_a_submitted_run_back_into_its_queue(
    store: PostgresStore, tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FLOWENGINE_STORE", store.url)
    flow(tmp_path, ASK.replace("EXPIRES", ""))
    assert [main(["submit", "flow.yaml"]) for _ in range(2)] == [0, 0]
    first, second = capfd.readouterr().out.split()
    main(["worker", "--until-idle"])
    assert main(["approve", first, "--choice", "yes"]) == 0
    assert "it goes on in a worker of queue 'default'" in capfd.readouterr().err
    assert main(["approve", second, "--choice", "yes", "--here"]) == 0
    assert [status(store, each) for each in (first, second)] == ["waiting", "succeeded"]
    main(["worker", "--until-idle"])
    assert status(store, first) == "succeeded"
