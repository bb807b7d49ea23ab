"""Stores that a newer FlowEngine has taken over, runs that have lost their job, and what goes before what."""

from __future__ import annotations

import shutil
import signal
from pathlib import Path

import anyio
import pytest

import flowengine
import visualize
from flowengine.core.records import Answered
from flowengine.engine.events import NodeFinished, RunFinished
from flowengine.errors import ApprovalError, DefinitionError, StoreVersionError
from flowengine.journal.approvals import answer, keep_answer, times_asked
from flowengine.journal.postgres.migrations import VERSION
from flowengine.journal.postgres.store import PostgresStore
from flowengine.journal.run_export import store_run
from flowengine.runtime.queue.rescue import Orphans, Rescue
from flowengine.runtime.queue.run_positions import hold
from flowengine.runtime.queue.run_queue import cancel, open_queue, requeue, submit
from flowengine.runtime.queue.worker import PatientConnector, work
from tests.support.queue_runs import (
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

ASK = """
flowengine: v1
name: ask
nodes:
  ok: {type: approval, message: Go on?, routes: {"yes": after}}
  after: {type: function, call: "naps:sleep", with: {delay: 0, result: done}}
"""


_SUCCEEDED = "SELECT run_id FROM flowengine.run WHERE status = 'succeeded' ORDER BY run_id"


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.fixture(scope="module")
def newer_program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the package, as it is compiled, that knows one more migration of the store; the folder to import it
    from."""
    place = tmp_path_factory.mktemp("newer")
    shutil.copytree(Path(flowengine.__file__).parent, place / "flowengine")
    shutil.copytree(Path(visualize.__file__).parent, place / "visualize")
    schema = place / "flowengine" / "journal" / "postgres" / "migrations.py"
    told = "VERSION: Final = len(_MIGRATIONS)"
    more = '_MIGRATIONS = (*_MIGRATIONS, b"ALTER TABLE flowengine.run ADD COLUMN newer INTEGER")'
    text = schema.read_text()
    assert told in text
    schema.write_text(text.replace(told, f"{more}\n{told}").replace("_MIGRATIONS: Final = (", "_MIGRATIONS = ("))
    return place


def upgrade(store: PostgresStore, folder: Path, package: Path) -> None:
    """What the first command of a newer FlowEngine does with a store."""
    listed = command(folder, store.url, "runs", "list", environ={"PYTHONPATH": str(package)})
    assert listed.returncode == 0, listed.stderr
    assert execute(store, "SELECT number FROM flowengine.version") == [(VERSION + 1,)]


async def await_end(store: PostgresStore, run_ids: list[str]) -> None:
    """Wait until runs have succeeded, as a store says that is a newer FlowEngine's."""
    done = [(run_id,) for run_id in sorted(run_ids)]
    with anyio.fail_after(60):
        while execute(store, _SUCCEEDED) != done:  # noqa: ASYNC110 - another process's doing
            await anyio.sleep(0.05)


@pytest.mark.long
async def test_a_worker_of_an_older_version_says_so_and_leaves_the_queue_as_it_is(
    store: PostgresStore, tmp_path: Path, newer_program: Path
) -> None:
    plan = flow(tmp_path).plan
    ids = [await submit(store, plan, {}, run_id=f"r{number}") for number in range(3)]
    await anyio.to_thread.run_sync(upgrade, store, tmp_path, newer_program)
    said, complained = await anyio.to_thread.run_sync(worker(store, tmp_path).communicate)
    assert said == ""
    assert f"store version {VERSION + 1}; this one reads up to {VERSION}" in complained
    assert jobs(store) == [(run_id, "todo") for run_id in ids]
    process = worker(store, tmp_path, package=newer_program)
    await await_end(store, ids)
    await anyio.to_thread.run_sync(stop, process, signal.SIGTERM)


@pytest.mark.long
async def test_a_worker_whose_store_a_newer_version_takes_over_stops_and_what_it_had_goes_on_elsewhere(
    store: PostgresStore, tmp_path: Path, newer_program: Path
) -> None:
    plan = flow(tmp_path, code=UNTIL_TOLD).plan
    ids = [await submit(store, plan, {"seconds": 0 if number else 1}) for number in range(5)]
    older = worker(store, tmp_path)
    await anyio.to_thread.run_sync(await_node, store, ids[0], "sleep")
    await anyio.to_thread.run_sync(upgrade, store, tmp_path, newer_program)
    said, complained = await anyio.to_thread.run_sync(older.communicate)
    assert "upgrade FlowEngine to use it" in complained
    assert " failed" not in said
    assert {name for name, _ in jobs(store)} == set(ids)
    assert execute(store, "SELECT DISTINCT status FROM flowengine.run") == [("running",)]
    (tmp_path / "go").touch()
    process = worker(store, tmp_path, package=newer_program)
    await await_end(store, ids)
    await anyio.to_thread.run_sync(stop, process, signal.SIGTERM)
    assert jobs(store) == []
    assert [event.node for event in of(NodeFinished, store.events(ids[0]))] == ["first", "sleep"]


async def test_a_newer_store_is_refused_before_anything_is_taken(store: PostgresStore, tmp_path: Path) -> None:
    await submit(store, flow(tmp_path).plan, {}, run_id="r1")
    execute(store, "UPDATE flowengine.version SET number = number + 1")
    with pytest.raises(StoreVersionError, match="upgrade FlowEngine"):
        await drain(store)
    execute(store, "UPDATE flowengine.version SET number = number - 1")
    assert jobs(store) == [("r1", "todo")]


async def test_a_run_whose_job_is_gone_is_put_back_once_and_ends(store: PostgresStore, tmp_path: Path) -> None:
    plan = flow(tmp_path).plan
    for run_id in ("gone", "failed", "queued"):
        await submit(store, plan, {}, run_id=run_id)
    execute(store, "DELETE FROM flowengine_queue.procrastinate_jobs WHERE lock = 'gone'")
    execute(store, "UPDATE flowengine_queue.procrastinate_jobs SET status = 'failed' WHERE lock = 'failed'")
    first, second = Orphans(store), Orphans(store)
    assert [list(await each.look()) for each in (first, second)] == [[], []]
    found: list[str] = []

    async def look(orphans: Orphans) -> None:
        found.extend(await orphans.look())

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(look, first)
        tasks.start_soon(look, second)
    assert sorted(found) == ["failed", "gone"]
    await drain(store)
    assert [status(store, each) for each in ("gone", "failed", "queued")] == ["succeeded"] * 3


async def test_an_answer_whose_process_died_is_taken_up(store: PostgresStore, tmp_path: Path) -> None:
    plan = flow(tmp_path, ASK).plan
    for run_id in ("stored", "kept", "held", "asking"):
        await submit(store, plan, {}, run_id=run_id)
    await drain(store)
    await answer(store, "stored", "ok", "yes")  # And nothing more: it is not put back into its queue.
    events = store.events("kept")
    keep_answer(store, "kept", "ok", times_asked(events)["ok"], Answered("yes"))  # Nor is it in the journal.
    keep_answer(store, "asking", "ok", 1.0, Answered("yes"))  # To a question that was asked before.
    hold(store, "held")
    await answer(store, "held", "ok", "yes")
    orphans = Orphans(store)
    assert set(orphans.find()) == {"kept", "stored"}
    assert [list(await orphans.look()) for _ in range(2)] == [[], ["kept", "stored"]]
    await drain(store)
    assert [status(store, each) for each in ("stored", "kept", "held", "asking")] == [
        "succeeded", "succeeded", "waiting", "waiting"
    ]  # fmt: skip
    await requeue(store, "held")
    await drain(store)
    assert status(store, "held") == "succeeded"


async def test_what_is_no_orphan_is_left_alone(store: PostgresStore, tmp_path: Path) -> None:
    made = flow(tmp_path, ASK)
    for run_id in ("waiting", "cancelled"):
        await submit(store, made.plan, {}, run_id=run_id)
    await drain(store)
    await cancel(store, "cancelled")
    held = store.create("held")
    held.append(store.events("waiting")[0]._replace(run_id="held"))  # type: ignore[union-attr,call-arg]
    waiting = held.commit(True)
    assert waiting is not None
    await waiting
    other = PostgresStore(store.url, "full")
    local = other.create("local")
    settings = {"folder": "."}
    local.append(store.events("waiting")[0]._replace(run_id="local", settings=settings))  # type: ignore[union-attr,call-arg]
    await local.close()
    other.close()
    orphans = Orphans(store)
    assert [list(await orphans.look()) for _ in range(3)] == [[], [], []]
    assert jobs(store) == []
    await held.close()
    assert [list(await orphans.look()) for _ in range(2)] == [[], ["held"]]


async def test_a_damaged_run_without_a_job_keeps_no_other_from_being_put_back(
    store: PostgresStore, tmp_path: Path
) -> None:
    plan = flow(tmp_path).plan
    for run_id in ("damaged", "gone"):
        await submit(store, plan, {}, run_id=run_id)
    execute(store, "DELETE FROM flowengine_queue.procrastinate_jobs")
    execute(store, "UPDATE flowengine.event SET body = '[]' WHERE number = "
                   "(SELECT number FROM flowengine.run WHERE run_id = 'damaged')")  # fmt: skip
    orphans = Orphans(store)
    assert [list(await orphans.look()) for _ in range(2)] == [[], ["gone"]]


async def test_a_run_from_elsewhere_with_a_senseless_place_keeps_no_other_from_being_put_back(
    store: PostgresStore, tmp_path: Path
) -> None:
    await submit(store, flow(tmp_path).plan, {}, run_id="gone")
    execute(store, "DELETE FROM flowengine_queue.procrastinate_jobs")
    senseless = [("default", "high"), ("default", 10**30), ("a\0b", 0), ("q" * 41, 0), (7, 0)]
    for number, (queue, priority) in enumerate(senseless):
        run_id, settings = f"other{number}", {"queue": queue, "priority": priority}
        began = store.events("gone")[0]._replace(run_id=run_id, settings=settings)  # type: ignore[union-attr,call-arg]
        await store_run(store, [began])
    orphans = Orphans(store)
    assert [list(await orphans.look()) for _ in range(2)] == [[], ["gone", "other0", "other1"]]


async def test_a_job_of_a_run_that_was_removed_keeps_no_other_from_being_rescued(
    store: PostgresStore, tmp_path: Path
) -> None:
    plan = flow(tmp_path).plan
    for run_id in ("removed", "left"):
        await submit(store, plan, {}, run_id=run_id)
    execute(store, "SET search_path = flowengine_queue; UPDATE procrastinate_jobs SET status = 'doing'")
    await cancel(store, "removed")
    store.remove("removed")
    async with open_queue(store, kind=PatientConnector) as app:
        rescue = Rescue(app, store, "default", stalled=0, hanging=0, pause=60)
        assert sorted(await rescue.look()) == ["left", "removed"]
    assert jobs(store) == [("left", "todo")]


@pytest.mark.long
async def test_a_run_that_was_put_back_and_lost_its_job_goes_on(store: PostgresStore, tmp_path: Path) -> None:
    run_id = await submit(store, flow(tmp_path).plan, {"seconds": 2})
    process = worker(store, tmp_path)
    await anyio.to_thread.run_sync(await_node, store, run_id, "sleep")
    await anyio.to_thread.run_sync(stop, process, signal.SIGTERM)
    assert status(store, run_id) == "running"
    execute(store, "DELETE FROM flowengine_queue.procrastinate_jobs")
    process = worker(store, tmp_path)
    await until(store, run_id, "succeeded")
    said, _ = await anyio.to_thread.run_sync(stop, process, signal.SIGTERM)
    assert f"run {run_id} had no job, and is put back into its queue" in said


async def test_ended_jobs_leave_the_tables(store: PostgresStore, tmp_path: Path) -> None:
    plan = flow(tmp_path).plan
    await submit(store, plan, {}, run_id="cancelled")
    await cancel(store, "cancelled")
    assert jobs(store) == []
    for run_id in ("old", "new"):
        await submit(store, plan, {}, run_id=run_id)
        await drain(store)
        await submit(store, plan, {}, run_id=f"{run_id}-job")
    execute(store, "UPDATE flowengine_queue.procrastinate_jobs SET status = 'failed'")
    execute(store, "UPDATE flowengine_queue.procrastinate_events SET at = at - interval '25 hours' WHERE job_id = "
                   "(SELECT id FROM flowengine_queue.procrastinate_jobs WHERE lock = 'old-job')")  # fmt: skip
    await Orphans(store).look()
    assert jobs(store) == [("new-job", "failed")]


async def test_a_run_that_failed_leaves_no_job(store: PostgresStore, tmp_path: Path) -> None:
    text = ASK.replace('ok: {type: approval, message: Go on?, routes: {"yes": after}}', "").replace(
        "delay: 0", "delay: not a number"
    )
    run_id = await submit(store, flow(tmp_path, text).plan, {})
    await drain(store)
    assert (status(store, run_id), jobs(store)) == ("failed", [])


@pytest.mark.long
async def test_what_has_begun_goes_before_what_has_not(store: PostgresStore, tmp_path: Path) -> None:
    asking = await submit(store, flow(tmp_path, ASK).plan, {})
    await drain(store)
    plan = flow(tmp_path).plan
    left = await submit(store, plan, {"seconds": 2})
    process = worker(store, tmp_path)
    await anyio.to_thread.run_sync(await_node, store, left, "sleep")
    urgent = [await submit(store, plan, {}, priority=priority) for priority in (100, 0)]
    await anyio.to_thread.run_sync(stop, process, signal.SIGKILL)
    await answer(store, asking, None, "yes")
    await requeue(store, asking)
    async with open_queue(store, kind=PatientConnector) as app:  # As another worker does, once nothing is heard of it.
        await Rescue(app, store, "default", stalled=0, hanging=0, pause=1).look()
    told = [line.split()[1] for line in await drain(store) if " begins" in line or " goes on" in line]
    assert told == [asking, left, *urgent]


async def test_a_priority_beyond_what_there_is_is_refused(store: PostgresStore, tmp_path: Path) -> None:
    with pytest.raises(DefinitionError, match="the priority 500000 is not between -499999 and 499999"):
        await submit(store, flow(tmp_path).plan, {}, priority=500_000)


async def test_a_cancelled_run_takes_no_answer(store: PostgresStore, tmp_path: Path) -> None:
    run_id = await submit(store, flow(tmp_path, ASK).plan, {})
    await drain(store)
    await cancel(store, run_id)
    events = store.events(run_id)
    with pytest.raises(ApprovalError, match=f"run {run_id} was cancelled: `flowengine resume` takes it up again first"):
        await answer(store, run_id, "ok", "yes")
    assert store.events(run_id) == events
    await requeue(store, run_id)
    await drain(store)
    assert status(store, run_id) == "waiting"
    await answer(store, run_id, None, "yes")
    await requeue(store, run_id)
    await drain(store)
    assert of(RunFinished, store.events(run_id))[-1].status == "succeeded"


@pytest.mark.long
async def test_a_run_that_is_put_back_may_be_answered(store: PostgresStore, tmp_path: Path) -> None:
    both = ASK + '  nap: {type: function, call: "naps:sleep", with: {delay: 60, result: done}}\n'
    run_id = await submit(store, flow(tmp_path, both).plan, {})
    process = worker(store, tmp_path)
    await anyio.to_thread.run_sync(await_node, store, run_id, "nap")
    await anyio.to_thread.run_sync(stop, process, signal.SIGTERM)
    assert (await answer(store, run_id, None, "yes")).node == "ok"


@pytest.mark.parametrize("queue", ["q" * 41, "é" * 21, "a\0b"])
async def test_a_queue_is_named_as_the_tables_can_keep_it(store: PostgresStore, tmp_path: Path, queue: str) -> None:
    plan = flow(tmp_path).plan
    with pytest.raises(DefinitionError, match="a queue is named by text of at most 40 bytes in UTF-8, not '"):
        await submit(store, plan, {}, run_id="r", queue=queue)
    assert not store.list()
    await submit(store, plan, {}, run_id="r", queue="é" * 20)
    for refused in (requeue(store, "r", queue=queue), work(store, queue=queue)):
        with pytest.raises(DefinitionError, match="at most 40 bytes"):
            await refused
