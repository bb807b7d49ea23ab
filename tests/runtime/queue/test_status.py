"""What is said of queues and workers to somebody who runs them."""

from __future__ import annotations

import json
import os
import signal
import socket
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import anyio
import pytest

from flowengine.cli.main import main
from flowengine.journal.postgres.store import PostgresStore
from flowengine.runtime.queue.run_positions import note
from flowengine.runtime.queue.run_queue import submit
from flowengine.runtime.queue.status import QueueStatus, WorkerStatus, problems_of, queues_of, workers_of
from flowengine.runtime.queue.tables import make_tables
from flowengine.version import __version__
from tests.support.queue_runs import await_node, drain, execute, flow, stop, until, worker

pytestmark = pytest.mark.anyio

ASK = """
flowengine: v1
name: ask
nodes:
  ok: {type: approval, message: Go on?, routes: {"yes": after}, expires: 1h, on_expire: "yes"}
  after: {type: function, call: "naps:sleep", with: {delay: 0, result: done}}
"""


@pytest.fixture
def store(store: PostgresStore, monkeypatch: pytest.MonkeyPatch) -> PostgresStore:
    monkeypatch.setenv("FLOWENGINE_STORE", store.url)
    return store


Told = Callable[..., tuple[int, list[str], list[str]]]


@pytest.fixture
def told(capfd: pytest.CaptureFixture[str]) -> Told:
    """Runs a command; its exit code, its lines on stdout and on stderr."""

    def run(*words: str) -> tuple[int, list[str], list[str]]:
        code = main(words)
        said = capfd.readouterr()
        return code, said.out.splitlines(), said.err.splitlines()

    return run


def queues(store: PostgresStore) -> dict[str, QueueStatus]:
    return {each.queue: each for each in queues_of(store, workers_of(store))}


async def seen(store: PostgresStore) -> WorkerStatus:
    """The only worker, once it has said who it is."""
    with anyio.fail_after(40):
        while True:
            found = workers_of(store)
            if found and found[0].host is not None:
                return found[0]
            await anyio.sleep(0.05)


async def test_a_store_without_a_queue_has_none(store: PostgresStore, told: Told) -> None:
    assert (queues(store), workers_of(store)) == ({}, [])
    shown = store.url.replace(":s3cret-word", "")
    assert told("queue") == (0, [], [f"the queues of {shown} hold nothing, and have no workers"])
    assert told("workers") == (0, [], [f"there are no workers of {shown}"])


async def test_runs_of_a_queue_are_due_later_or_wait_for_a_person(store: PostgresStore, tmp_path: Path) -> None:
    await submit(store, flow(tmp_path, ASK).plan, {})
    await drain(store)
    plan = flow(tmp_path).plan
    for _ in range(3):
        await submit(store, plan, {})
    await submit(store, plan, {}, at=datetime.now(UTC) + timedelta(hours=8))
    await submit(store, plan, {}, queue="gpu", at=datetime.now(UTC) - timedelta(days=400))
    execute(store, "UPDATE procrastinate_events SET at = at - interval '10 minutes' WHERE job_id = "
                   "(SELECT min(id) FROM procrastinate_jobs WHERE scheduled_at IS NULL)")  # fmt: skip
    found = queues(store)
    assert {name: each._replace(oldest=None) for name, each in found.items()} == {
        "default": QueueStatus("default", due=3, later=1, asking=1),
        "gpu": QueueStatus("gpu", due=1),
    }
    assert 600 <= (found["default"].oldest or 0) < 660
    assert 0 <= (found["gpu"].oldest or -1) < 60


async def test_a_worker_says_who_it_is_and_what_it_holds(
    store: PostgresStore, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    run_id = await submit(store, flow(tmp_path).plan, {"seconds": 60}, run_id="a1")
    process = worker(store, tmp_path, concurrency=4)
    try:
        await anyio.to_thread.run_sync(await_node, store, run_id, "sleep")
        found = await seen(store)
        assert found[1:6] == (socket.gethostname(), process.pid, __version__, "default", 4)
        assert (found.runs, found.is_live) == (["a1"], True)
        assert queues(store) == {"default": QueueStatus("default", taken=1, workers=1)}
        process.send_signal(signal.SIGSTOP)
        execute(store, "UPDATE procrastinate_workers SET last_heartbeat = now() - interval '2 minutes'")
        [silent] = workers_of(store)
        assert (silent.is_live, silent.silent > 119) == (False, True)
        assert queues(store) == {"default": QueueStatus("default", taken=1, lost=1)}
        assert await anyio.to_thread.run_sync(main, ("queue",)) == 1
        assert await anyio.to_thread.run_sync(main, ("workers",)) == 0
        out, err = capfd.readouterr()
        assert err == "no worker takes from queue 'default', which has 1 run for one\n"
        row = out.splitlines()[3]
        assert row.split()[1:5] == [socket.gethostname(), str(process.pid), __version__, "default"]
        assert "1 of 4" in row
        assert row.endswith(" ago, silent  a1")
    finally:
        process.send_signal(signal.SIGCONT)
        stop(process, signal.SIGKILL)


@pytest.mark.long
async def test_a_worker_that_ended_is_listed_no_more_and_its_row_goes_with_the_next_one(
    store: PostgresStore, tmp_path: Path
) -> None:
    for _ in range(2):
        process = worker(store, tmp_path)
        await seen(store)
        assert execute(store, "SELECT process FROM flowengine_worker") == [(process.pid,)]
        await anyio.to_thread.run_sync(stop, process, signal.SIGTERM)
        assert workers_of(store) == []


async def test_a_worker_of_an_older_version_is_listed_with_what_is_known_of_it(
    store: PostgresStore, told: Told, tmp_path: Path
) -> None:
    make_tables(store)
    execute(store, "DROP TABLE flowengine_worker; INSERT INTO procrastinate_workers DEFAULT VALUES")
    [found] = workers_of(store)
    assert (found.host, found.version, found.is_live, found.runs) == (None, None, True, [])
    code, [_, row], _ = told("workers")
    assert (code, row.split()[:5]) == (0, ["1", "?", "?", "?", "?"])
    make_tables(store)
    [found] = workers_of(store)
    assert found.host is None


async def test_a_queue_that_no_worker_serves_is_a_problem(store: PostgresStore, tmp_path: Path, told: Told) -> None:
    plan = flow(tmp_path).plan
    await submit(store, plan, {}, queue="night", at=datetime.now(UTC) + timedelta(hours=8))
    assert await anyio.to_thread.run_sync(told, "queue") == (
        0,
        [
            "QUEUE  DUE  OLDEST  LATER  ASKING  LACKING  TAKEN  LOST  WORKERS",
            "night    0              1       0        0      0     0        0",
        ],
        [],
    )
    await submit(store, plan, {}, queue="gpu")
    said = "no worker takes from queue 'gpu', which has 1 run for one"
    code, [_, first, _], err = await anyio.to_thread.run_sync(told, "queue")
    assert (code, first.split()[:2], err) == (1, ["gpu", "1"], [said])
    assert (await anyio.to_thread.run_sync(told, "queue", "night"))[0] == 0
    code, out, err = await anyio.to_thread.run_sync(told, "queue", "gpu", "none", "--json")
    found = json.loads("\n".join(out))
    assert (code, err) == (1, [said])
    assert [each["queue"] for each in found["queues"]] == ["gpu", "none"]
    assert found["problems"] == [{"kind": "unserved", "queue": "gpu", "text": said}]


@pytest.mark.long
async def test_runs_that_no_worker_can_run_are_a_problem(store: PostgresStore, tmp_path: Path, told: Told) -> None:
    run_id = await submit(store, flow(tmp_path).plan, {})
    os.remove("naps.py")
    process = worker(store, tmp_path)
    try:
        with anyio.fail_after(40):
            while queues(store).get("default") != QueueStatus("default", lacking=1, workers=1):  # noqa: ASYNC110
                await anyio.sleep(0.1)
    finally:
        stop(process, signal.SIGKILL)
    note(store, "another", "a run that is gone")
    [problem] = problems_of([queues(store)["default"]._replace(workers=1)], {})
    assert problem.text == "workers lack something for 1 run of queue 'default'; `flowengine runs show RUN` says what"
    flow(tmp_path)
    process = worker(store, tmp_path)
    await until(store, run_id, "succeeded")
    stop(process, signal.SIGKILL)
    assert queues(store)["default"].lacking == 0


async def test_a_job_that_a_dead_worker_left_of_a_run_that_has_ended_is_no_problem(
    store: PostgresStore, tmp_path: Path
) -> None:
    for run_id, end in (("done", "succeeded"), ("broken", "failed"), ("begins", "running")):
        await submit(store, flow(tmp_path).plan, {}, run_id=run_id)
        execute(store, f"UPDATE flowengine.run SET status = '{end}', length = 9 WHERE run_id = '{run_id}'")
    (queue,) = queues_of(store, workers_of(store))
    assert queue.due == 1


async def test_a_run_without_a_job_is_a_problem(store: PostgresStore, tmp_path: Path, told: Told) -> None:
    await submit(store, flow(tmp_path).plan, {}, run_id="a1", queue="gpu")
    execute(store, "DELETE FROM procrastinate_jobs")
    said = "run a1 of queue 'gpu' has no job; a worker of the store puts it back within a minute"
    code, out, err = await anyio.to_thread.run_sync(told, "queue", "--json")
    assert (code, json.loads("\n".join(out))["orphans"], err) == (1, {"a1": "gpu"}, [said])
    assert (await anyio.to_thread.run_sync(told, "queue", "default"))[0] == 0


async def test_a_run_that_is_due_for_too_long_is_a_problem_where_that_is_asked_for() -> None:
    found = [QueueStatus("gpu", due=1, oldest=61.0, workers=1)]
    assert list(problems_of(found, {})) == []
    assert list(problems_of(found, {}, 61.0)) == []
    assert [each.kind for each in problems_of(found, {}, 60.0)] == ["late"]


async def test_the_oldest_run_is_looked_at_by_the_command(store: PostgresStore, tmp_path: Path, told: Told) -> None:
    await submit(store, flow(tmp_path).plan, {})
    code, _, err = await anyio.to_thread.run_sync(told, "queue", "--max-age", "1ms")
    assert (code, err[1:]) == (1, ["the first run of queue 'default' is due for longer than 0.001 s"])
    assert len((await anyio.to_thread.run_sync(told, "queue", "--max-age", "1h"))[2]) == 1


@pytest.mark.parametrize("name", ["queue", "workers"])
def test_a_store_that_has_no_queue_is_refused(name: str, told: Told) -> None:
    code, _, err = told(name, "--store", "memory:")
    assert code == 2
    assert "a queue needs a store on PostgreSQL" in err[0]
