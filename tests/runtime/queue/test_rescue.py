"""Runs whose workers hang, die or are lost, and servers that go away: workers go on, and each run has one of them."""

from __future__ import annotations

import logging
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import anyio
import psycopg
import pytest
from procrastinate.exceptions import ConnectorException
from procrastinate.jobs import Status

from flowengine.engine.events import NodeFinished, RunResumed
from flowengine.flow import Flow
from flowengine.journal.postgres.store import PostgresStore
from flowengine.runtime.queue import worker_flows as queue_plans
from flowengine.runtime.queue.rescue import Rescue
from flowengine.runtime.queue.run_queue import open_queue, submit
from flowengine.runtime.queue.tables import make_tables
from flowengine.runtime.queue.worker import Pace, PatientConnector, work
from tests.support.postgres import empty_database, server
from tests.support.queue_runs import worker as start_worker

FLOW = """
flowengine: v1
name: steps
inputs:
  seconds: {type: number}
nodes:
  one: {type: function, call: "naps:sleep", with: {delay: "{{ inputs.seconds }}"}}
  two: {type: function, call: "naps:sleep", with: {delay: "{{ inputs.seconds }}"}, needs: [one]}
  three: {type: function, call: "naps:sleep", with: {delay: "{{ inputs.seconds }}"}, needs: [two]}
"""
NAPS = """
import anyio
async def sleep(delay):
    await anyio.sleep(delay)
"""
QUICK = Pace(grace=4, heartbeat=0.2, stalled=1.5, hanging=3, poll=0.2, busy=1)
pytestmark = pytest.mark.anyio


@pytest.fixture(autouse=True)
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Workers have the code that the flow names."""
    (tmp_path / "naps.py").write_text(NAPS)
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def store() -> Iterator[PostgresStore]:
    made = PostgresStore(empty_database(), "full", patience=60)
    yield made
    made.close()


@pytest.fixture
def other(store: PostgresStore) -> Iterator[PostgresStore]:
    """As another process has it."""
    made = PostgresStore(store.url, "full")
    yield made
    made.close()


@pytest.fixture
def worker(store: PostgresStore, tmp_path: Path) -> subprocess.Popen[str]:
    return start_worker(store, tmp_path, grace=8)


def flow(folder: Path) -> Flow:
    (folder / "flow.yaml").write_text(FLOW)
    return Flow.from_yaml(folder / "flow.yaml")


def finished(store: PostgresStore, run_id: str) -> list[str]:
    return [event.node for event in store.events(run_id) if isinstance(event, NodeFinished)]


def execute(store: PostgresStore, statement: str) -> list[Any]:
    with psycopg.connect(store.url, autocommit=True) as connection:
        cursor = connection.execute(statement.encode())
        return cursor.fetchall() if cursor.description else []


def jobs(store: PostgresStore) -> list[Any]:
    return execute(store, "SELECT id, status::text FROM flowengine_queue.procrastinate_jobs")


async def until(holds: Callable[[], bool]) -> None:
    with anyio.fail_after(60):
        while not holds():  # noqa: ASYNC110 - another process's doing
            await anyio.sleep(0.05)


async def working(store: PostgresStore, told: list[str]) -> None:
    await work(store, pace=QUICK, tell=told.append)


def is_over(store: PostgresStore, run_id: str) -> Callable[[], bool]:
    return lambda: next(run.status for run in store.list() if run.run_id == run_id) == "succeeded"


@pytest.mark.long
async def test_a_run_of_a_worker_that_hangs_goes_on_elsewhere_and_what_wakes_up_ends_quietly(
    store: PostgresStore, other: PostgresStore, worker: subprocess.Popen[str], tmp_path: Path
) -> None:
    run_id = await submit(store, flow(tmp_path).plan, {"seconds": 0.7})
    await until(lambda: finished(store, run_id)[:1] == ["one"])
    worker.send_signal(signal.SIGSTOP)
    told: list[str] = []
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(working, other, told)
        await until(lambda: len([each for each in store.events(run_id) if isinstance(each, RunResumed)]) == 2)
        worker.send_signal(signal.SIGCONT)
        await until(is_over(store, run_id))
        await until(lambda: not jobs(store))
        tasks.cancel_scope.cancel()
    worker.send_signal(signal.SIGTERM)
    said, complained = await anyio.to_thread.run_sync(worker.communicate)
    assert finished(store, run_id) == ["one", "two", "three"]
    assert f"run {run_id} was left by a worker that is gone" in told
    assert "was taken over by another writer" in said
    assert (complained, worker.returncode) == ("", 0)


def test_what_the_driver_says_of_a_query_that_was_cancelled_is_no_news(caplog: pytest.LogCaptureFixture):
    for name in ("psycopg", "psycopg.pool"):
        for said in ("query cancellation interrupted (%s): closing connection", "discarding closed connection: %s"):
            logging.getLogger(name).warning(said, "x")
        logging.getLogger(name).warning("of another kind")
    assert caplog.messages == ["of another kind"] * 2


@pytest.mark.long
async def test_a_worker_that_is_told_to_stop_ends_the_node_and_begins_no_other(
    store: PostgresStore, worker: subprocess.Popen[str], tmp_path: Path
) -> None:
    run_id = await submit(store, flow(tmp_path).plan, {"seconds": 5.2})
    await until(lambda: len(store.events(run_id)) >= 3)
    worker.send_signal(signal.SIGTERM)
    said, complained = await anyio.to_thread.run_sync(worker.communicate)
    assert (said.splitlines()[-1], complained) == (f"run {run_id} is put back", "")
    assert finished(store, run_id) == ["one"]
    assert [status for _, status in jobs(store)] == ["todo"]


@pytest.mark.long
async def test_workers_outlive_a_restart_of_the_server_and_no_run_is_disturbed(
    store: PostgresStore, worker: subprocess.Popen[str], tmp_path: Path
) -> None:
    run_id = await submit(store, flow(tmp_path).plan, {"seconds": 1})
    await until(lambda: finished(store, run_id)[:1] == ["one"])
    server().crash()
    await anyio.sleep(2.5)  # Longer than a worker may be silent.
    server().start_again()
    await until(is_over(store, run_id))
    assert len([each for each in store.events(run_id) if isinstance(each, RunResumed)]) == 1
    after = await submit(store, flow(tmp_path).plan, {"seconds": 0})
    await until(is_over(store, after))
    assert worker.poll() is None


@pytest.mark.long
async def test_a_job_that_got_lost_on_its_way_to_a_worker_is_given_anew(
    store: PostgresStore, other: PostgresStore, tmp_path: Path
) -> None:
    told: list[str] = []
    run_id = await submit(store, flow(tmp_path).plan, {"seconds": 0}, queue="another")
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(working, other, told)
        await until(lambda: bool(execute(store, "SELECT id FROM flowengine_queue.procrastinate_workers")))
        execute(
            store,
            "SET search_path = flowengine_queue; "
            "UPDATE procrastinate_jobs SET queue_name = 'default', status = 'doing', "
            "worker_id = (SELECT max(id) FROM procrastinate_workers)",
        )
        await until(is_over(store, run_id))
        tasks.cancel_scope.cancel()
    assert told[0] == f"run {run_id} was left by a worker that is gone"


@pytest.mark.long
async def test_a_worker_whose_entry_is_gone_begins_anew(
    store: PostgresStore, other: PostgresStore, tmp_path: Path
) -> None:
    told: list[str] = []
    make_tables(store)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(working, other, told)
        await until(lambda: bool(execute(store, "SELECT id FROM flowengine_queue.procrastinate_workers")))
        execute(store, "DELETE FROM flowengine_queue.procrastinate_workers")
        run_id = await submit(store, flow(tmp_path).plan, {"seconds": 0})
        await until(is_over(store, run_id))
        tasks.cancel_scope.cancel()
    assert told[0].startswith("the queue was lost, working on in ")


async def test_a_run_is_taken_from_nobody_but_the_worker_that_was_seen(
    store: PostgresStore, other: PostgresStore, tmp_path: Path
) -> None:
    run_id = await submit(store, flow(tmp_path).plan, {"seconds": 0})
    journal = store.open(run_id)
    assert store.find_writers("worker", [run_id]) == {}
    await journal.close()
    other.role = "worker"
    journal = other.open(run_id)
    epoch, is_alive = store.find_writers("worker", [run_id])[run_id]
    assert is_alive
    store.take_from(run_id, epoch - 1)
    journal.append(RunResumed(time.time()))
    await journal.close()
    assert len(store.events(run_id)) == 2


def test_nobody_looks_for_dead_workers_right_after_the_server_began(store: PostgresStore) -> None:
    assert not store.is_settled(24 * 3600)
    assert store.is_settled(0)


@pytest.mark.long
async def test_a_worker_that_is_to_stop_waits_for_no_server(store: PostgresStore) -> None:
    async with open_queue(store, kind=PatientConnector) as app:
        assert isinstance(app.connector, PatientConnector)
        server().crash()
        try:
            app.connector.stop_waiting(0.5)
            with pytest.raises(ConnectorException):
                await app.job_manager.list_jobs_async()
        finally:
            server().start_again()


async def test_what_outlives_a_worker_waits_for_no_connection_that_was_closed(store: PostgresStore) -> None:
    async with open_queue(store, kind=PatientConnector) as app:
        assert isinstance(app.connector, PatientConnector)
        await app.connector.pool.close()  # As when the worker's end is cancelled while it closes.
        with anyio.fail_after(60):
            with pytest.raises(ConnectorException):
                await app.job_manager.list_jobs_async()
            await app.job_manager.finish_job_by_id_async(1, Status.ABORTED, delete_job=True)  # Another's, by now.


async def test_a_run_on_which_a_worker_stumbles_is_left_to_others(
    store: PostgresStore, other: PostgresStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_id = await submit(store, flow(tmp_path).plan, {"seconds": 0})
    told: list[str] = []
    broken, load = [False, True], queue_plans.load_plan

    def stumble(*args: Any, **options: Any) -> Any:
        if broken.pop():
            raise NameError("half an upgrade")
        return load(*args, **options)

    monkeypatch.setattr(queue_plans, "load_plan", stumble)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(working, other, told)
        await until(is_over(store, run_id))
        tasks.cancel_scope.cancel()
    assert told[0] == f"run {run_id} is left to others: this worker stumbled (NameError: half an upgrade)"


@pytest.mark.long
async def test_however_many_look_for_dead_workers_at_once_their_jobs_are_kept(
    store: PostgresStore, tmp_path: Path
) -> None:
    plan, number = flow(tmp_path).plan, 12
    for _ in range(number):
        await submit(store, plan, {"seconds": 0})
    async with open_queue(store, kind=PatientConnector) as app:
        for _ in range(4):
            execute(store, "SET search_path = flowengine_queue; UPDATE procrastinate_jobs SET status = 'doing'")
            async with anyio.create_task_group() as tasks:
                for _ in range(4):
                    tasks.start_soon(Rescue(app, store, "default", stalled=0, hanging=0, pause=1).look)
            waiting = execute(
                store, "SELECT DISTINCT lock FROM flowengine_queue.procrastinate_jobs WHERE status = 'todo'"
            )
            assert len(waiting) == number


@pytest.fixture
def patient(store: PostgresStore, tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    """A worker with a grace of twelve seconds."""
    command = [sys.executable, "-m", "flowengine", "worker", "--grace", "12s", "--store", store.url]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, cwd=tmp_path)
    yield process
    process.kill()
    process.wait()


@pytest.mark.long
async def test_a_worker_that_is_told_to_stop_has_ended_within_its_grace(
    store: PostgresStore, patient: subprocess.Popen[str], tmp_path: Path
) -> None:
    run_id = await submit(store, flow(tmp_path).plan, {"seconds": 60})
    await until(lambda: len(store.events(run_id)) > 2)
    begun = time.monotonic()
    patient.send_signal(signal.SIGTERM)
    _, said = await anyio.to_thread.run_sync(patient.communicate)
    assert time.monotonic() - begun < 12
    assert said.splitlines()[-1].endswith(f" run {run_id} is put back")
    assert patient.returncode == 0
