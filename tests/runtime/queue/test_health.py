"""The port on which a worker says whether it is well."""

from __future__ import annotations

import socket
from dataclasses import replace
from pathlib import Path

import anyio
import httpx
import pytest

from flowengine.errors import FlowEngineError
from flowengine.journal.postgres.store import PostgresStore
from flowengine.runtime.queue.health import answering, listen
from flowengine.runtime.queue.heartbeat import WorkerHeartbeat
from flowengine.runtime.queue.run_queue import submit
from flowengine.runtime.queue.worker import work
from flowengine.version import __version__
from tests.support.queue_runs import QUICK, UNTIL_TOLD, await_node, flow

pytestmark = pytest.mark.anyio


def client(listening: socket.socket) -> httpx.AsyncClient:
    return httpx.AsyncClient(base_url=f"http://127.0.0.1:{listening.getsockname()[1]}", timeout=20)


async def test_a_worker_is_ready_while_it_takes_runs_and_counts_what_happened(
    store: PostgresStore, tmp_path: Path
) -> None:
    plan = flow(tmp_path, code=UNTIL_TOLD).plan
    await submit(store, plan, {}, run_id="quick")
    await submit(store, plan, {"seconds": 60}, run_id="slow")
    await submit(store, plan, {}, run_id="elsewhere", queue="gpu")
    watching = PostgresStore(store.url, "full")
    listening = listen("127.0.0.1", 0)

    async def drive() -> None:
        await work(store, pace=replace(QUICK, grace=60, stalled=60), concurrency=4, health=listening, wait=False)

    async def watch() -> None:
        async with client(listening) as asked:
            await anyio.to_thread.run_sync(await_node, watching, "slow", "sleep")
            with anyio.fail_after(40):
                while (await asked.get("/readyz")).status_code != 200:  # noqa: ASYNC110
                    await anyio.sleep(0.05)
                while 'events_total{event="succeeded"} 1' not in (await asked.get("/metrics")).text:  # noqa: ASYNC110
                    await anyio.sleep(0.05)
            alive, ready, metrics = [await asked.get(f"/{name}") for name in ("healthz", "readyz", "metrics")]
            assert (alive.status_code, alive.text, ready.text) == (200, "ok\n", "ready\n")
            assert metrics.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
            lines = metrics.text.splitlines()
            assert f'flowengine_worker_info{{version="{__version__}",queue="default"}} 1' in lines
            for line in (
                "flowengine_worker_ready 1",
                "flowengine_worker_runs 1",
                "flowengine_worker_concurrency 4",
                'flowengine_worker_events_total{event="begins"} 2',
                f'flowengine_runs_total{{flow="{plan.name}",caller="",status="succeeded"}} 1',
                f'flowengine_cost_usd_total{{flow="{plan.name}",caller=""}} 0',
                "flowengine_store_up 1",
                "flowengine_orphaned_runs 0",
                'flowengine_queue_runs{queue="default",state="taken"} 1',
                'flowengine_queue_runs{queue="gpu",state="due"} 1',
                'flowengine_queue_workers{queue="default"} 1',
                'flowengine_queue_workers{queue="gpu"} 0',
            ):
                assert line in lines
            [age] = [line for line in lines if line.startswith('flowengine_queue_oldest_seconds{queue="gpu"}')]
            assert 0 < float(age.split()[1]) < 60
            assert (await asked.post("/healthz")).status_code == 405
            assert (await asked.get("/runs")).status_code == 404

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(drive)
        try:
            await watch()
        finally:
            Path("go").touch()  # noqa: ASYNC240 - a file that is empty
    watching.close()
    assert listening.fileno() == -1


async def test_a_worker_that_stops_or_gives_no_sign_is_not_ready_and_alive() -> None:
    vitals, listening = WorkerHeartbeat("default", 1, fresh=1000.0), listen("127.0.0.1", 0)
    async with answering(listening, vitals, "postgresql://127.0.0.1:1/none"), client(listening) as asked:
        answer = await asked.get("/readyz")
        assert (answer.status_code, answer.text) == (503, "not ready: it has not begun\n")
        vitals.signed = -1e9
        assert (await asked.get("/readyz")).text.startswith("not ready: it could give the store no sign for 1")
        vitals.is_stopping = True
        assert (await asked.get("/readyz")).text == "not ready: it was told to stop\n"
        assert (await asked.get("/healthz")).status_code == 200


async def test_metrics_say_that_the_store_is_away() -> None:
    listening = listen("127.0.0.1", 0)
    async with (
        answering(listening, WorkerHeartbeat("default", 1, fresh=1.0), "postgresql://127.0.0.1:1/none"),
        client(listening) as asked,
    ):
        answer = await asked.get("/metrics")
        assert answer.status_code == 200
        assert "flowengine_store_up 0" in answer.text.splitlines()
        assert "flowengine_queue" not in answer.text


def test_a_port_that_is_taken_is_refused() -> None:
    with listen("127.0.0.1", 0) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(FlowEngineError, match=f"cannot listen on port {port} of 127.0.0.1: Address already in use"):
            listen("127.0.0.1", port)
