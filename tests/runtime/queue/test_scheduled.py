"""Workers queue what schedules have due: a tick once, with its label, also from several of them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import anyio
import pytest

from flowengine.core.schedule import Schedule, ScheduleState
from flowengine.journal.postgres.store import PostgresStore
from flowengine.runtime.queue.heartbeat import WorkerNotice
from flowengine.runtime.schedules.schedule_ticker import ScheduleTicker
from flowengine.runtime.schedules.worker_schedules import QueueHost, WorkerSchedules, serving_schedules
from tests.support.queue_runs import drain, flow, status

pytestmark = pytest.mark.anyio

HOURLY = Schedule("sleep", "flow.yaml", "0 * * * *", inputs={"seconds": 0})
T = 1_777_593_600.0
"""2026-05-01, midnight in UTC."""


async def test_a_tick_is_queued_once_by_two_workers_and_its_run_is_like_any_other(
    store: PostgresStore, tmp_path: Path
) -> None:
    flow(tmp_path)
    (tmp_path / "flowengine.toml").write_text('allow_calls = ["naps"]\n')
    now = [T - 1]
    tickers = [ScheduleTicker(store, [HOURLY], QueueHost(store, tmp_path, {}), clock=lambda: now[0]) for _ in range(2)]
    for now[0] in (T - 1, T, T + 1):
        async with anyio.create_task_group() as tasks:
            for each in tickers:
                tasks.start_soon(each.look, HOURLY)
    [run] = store.list()
    assert (run.run_id, run.labels) == ("sleep@20260501T0000Z", {"schedule": "sleep"})
    now[0] = T + 3600
    assert "was skipped" in (await tickers[0].look(HOURLY)).told  # Nobody has worked on it yet.
    await drain(store)
    assert status(store, run.run_id) == "succeeded"
    now[0] = T + 7200
    assert (await tickers[1].look(HOURLY)).last_run == "sleep@20260501T0200Z"


async def test_a_worker_looks_after_schedules_while_it_works(store: PostgresStore, tmp_path: Path) -> None:
    flow(tmp_path)
    (tmp_path / "flowengine.toml").write_text('allow_calls = ["naps"]\n')
    store.revise("schedule", "sleep", lambda known: ScheduleState(T)._asdict())
    begun, told = anyio.Event(), list[str]()

    def tell(notice: WorkerNotice) -> None:
        told.append(str(notice))
        begun.set()

    late = replace(HOURLY, catch_up="last")
    with anyio.fail_after(60):
        async with serving_schedules(store, WorkerSchedules([late], tmp_path), {}, tell):
            await begun.wait()
    [run] = store.list()
    assert f"run {run.run_id} begins: schedule 'sleep'" in told


async def test_what_a_block_raises_comes_out_as_it_is(store: PostgresStore, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="mine"):
        async with serving_schedules(store, WorkerSchedules([HOURLY], tmp_path), {}, lambda notice: None):
            raise ValueError("mine")
