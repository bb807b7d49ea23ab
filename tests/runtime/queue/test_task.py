"""When a job is worked on again that has not come to its end."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from procrastinate import App
from procrastinate.exceptions import JobAborted
from procrastinate.job_context import AbortReason
from procrastinate.jobs import Job
from procrastinate.retry import RetryDecision
from procrastinate.testing import InMemoryConnector

from flowengine.core.context import RunStatus
from flowengine.engine.events import Event, RunStarted
from flowengine.errors import StoreUnavailableError, StoreVersionError
from flowengine.journal.postgres.store import PostgresStore
from flowengine.models.wrappers.rate import RateLimiter
from flowengine.runtime.queue.crash_count import LeftError
from flowengine.runtime.queue.heartbeat import WorkerNotice
from flowengine.runtime.queue.run_queue import submit
from flowengine.runtime.queue.tables import before_new
from flowengine.runtime.queue.task import JobRetry, JobTerms, PutBackError, RunTask, StumbledError, may_leave
from flowengine.runtime.queue.worker_flows import LackingError, WorkerFlows
from tests.support.queue_runs import SLEEP, flow, status

BUSY = 7.0


def a_job(attempts: int) -> Job:
    return Job(id=1, queue="q", task_name="t", lock=None, queueing_lock=None, attempts=attempts)


def a_task(store: PostgresStore, told: list[WorkerNotice]) -> RunTask:
    """What a worker does with jobs, without a queue that gives it any."""
    app = App(connector=InMemoryConnector())
    plans = WorkerFlows({}, lambda vendor, limits: RateLimiter(limits))

    async def stopped(events: Sequence[Event]) -> None:
        """Nobody books it."""

    return RunTask(
        app,
        store,
        plans,
        takeovers=3,
        busy=BUSY,
        tell=told.append,
        refuse=lambda error: told.clear(),
        stopped=stopped,
    )


def decided(error: BaseException, attempts: int = 0) -> tuple[RetryDecision, float]:
    """The decision, and in how many seconds it says."""
    task: Any = {"queue": "q", "task_name": "t", "lock": None, "queueing_lock": None}
    begun = datetime.now(UTC)
    job = Job(id=1, priority=3, attempts=attempts, **task)
    decision = JobRetry(BUSY).get_retry_decision(exception=error, job=job)
    assert decision is not None
    assert decision.retry_at is not None
    return decision, (decision.retry_at - begun) / timedelta(seconds=1)


def test_what_was_cancelled_is_not_tried_again():
    job = Job(id=1, queue="q", task_name="t", lock=None, queueing_lock=None)
    assert JobRetry(BUSY).get_retry_decision(exception=JobAborted(), job=job) is None


@pytest.mark.parametrize("attempts", [0, 5, 19])
def test_a_run_that_is_left_to_another_worker_waits_for_nothing(attempts: int):
    decision, _ = decided(LeftError("r"), attempts)
    assert decision.retry_at is not None
    assert decision.retry_at <= datetime.now(UTC)
    assert decision.priority is None


@pytest.mark.parametrize(("has_begun", "priority"), [(True, before_new(3)), (False, 3)])
def test_a_run_that_is_put_back_goes_on_at_once_and_before_new_ones(has_begun: bool, priority: int):
    decision, _ = decided(PutBackError("r", has_begun=has_begun), 5)
    assert decision.retry_at is not None
    assert decision.retry_at <= datetime.now(UTC)
    assert decision.priority == priority
    assert before_new(3) > 3


def test_a_run_that_another_writes_is_tried_after_the_time_for_that():
    _, seconds = decided(StoreUnavailableError("away"), 5)
    assert seconds == pytest.approx(BUSY, abs=0.5)


@pytest.mark.parametrize(("attempts", "least", "most"), [(0, 0.5, 1), (3, 4, 8), (5, 15, 30), (60, 15, 30)])
def test_what_failed_otherwise_is_tried_ever_later_and_out_of_step(attempts: int, least: float, most: float):
    waits = [decided(StumbledError("?"), attempts)[1] for _ in range(30)]
    assert least <= min(waits) < max(waits) <= most + 0.5


@pytest.mark.parametrize(
    ("terms", "ended", "is_done"),
    [
        (JobTerms(), "succeeded", True),
        (JobTerms(), "failed", False),
        (JobTerms(), None, False),
        (JobTerms(if_waiting=True), "waiting", False),
        (JobTerms(if_waiting=True), None, True),
        (JobTerms(if_waiting=True), "failed", True),
        (JobTerms(after=7), "failed", True),
        (JobTerms(after=8), "failed", False),
        (JobTerms(after=7), "cancelled", False),
        (JobTerms(after=7), None, False),
    ],
)
def test_a_job_is_done_where_its_run_has_ended_since(terms: JobTerms, ended: RunStatus | None, is_done: bool):
    assert terms.is_done(ended, 8) is is_done


def test_a_job_changes_a_flow_only_where_it_says_so():
    assert JobTerms.of({}) == (None, False, False)
    with pytest.raises(LackingError, match="knows what 'later, now' means"):
        JobTerms.of({"now": 1, "later": 2})


def test_a_run_from_elsewhere_whose_settings_are_no_texts_has_no_plan_yet():
    settings = {"model": {"name": "offline"}, "folder": ["a"]}
    started = RunStarted("r", "f", 1.0, {}, {}, {}, source="nodes: {}", settings=settings)
    assert WorkerFlows({}, lambda vendor, limits: RateLimiter(limits)).find_loaded(started) is None


def test_a_run_is_left_to_others_ten_times():
    assert [may_leave(a_job(attempts)) for attempts in (0, 9, 10)] == [True, True, False]


@pytest.mark.anyio
async def test_a_run_on_which_workers_stumble_is_given_up_at_the_twentieth_try(store: PostgresStore, tmp_path: Path):
    run_id = await submit(store, flow(tmp_path, SLEEP).plan, {})
    told: list[WorkerNotice] = []
    task = a_task(store, told)
    with pytest.raises(StumbledError, match="KeyError"):
        await task.handle_stumble(run_id, KeyError("x"), a_job(18))
    assert (status(store, run_id), told.pop().event) == ("running", "left")
    await task.handle_stumble(run_id, KeyError("x"), a_job(19))
    assert (status(store, run_id), told.pop().event) == ("failed", "failed")
    await (await store.take(run_id)).close()  # Nobody holds it any more.


@pytest.mark.anyio
async def test_a_run_that_needs_a_newer_store_is_left_to_others(store: PostgresStore, tmp_path: Path):
    run_id = await submit(store, flow(tmp_path, SLEEP).plan, {})
    told: list[WorkerNotice] = []
    with pytest.raises(LackingError, match="version 9"):
        await a_task(store, told).fail(run_id, StoreVersionError("version 9"))
    with pytest.raises(StoreUnavailableError):
        await a_task(store, told).fail(run_id, StoreUnavailableError("away"))
    assert (status(store, run_id), [each.event for each in told]) == ("running", ["left"])


@pytest.mark.anyio
async def test_a_run_that_is_cancelled_before_it_begins_is_closed_and_one_that_has_ended_stays_as_it_is(
    store: PostgresStore, tmp_path: Path
):
    plan, told = flow(tmp_path, SLEEP).plan, list[WorkerNotice]()
    task = a_task(store, told)
    begun, ended = await submit(store, plan, {}), await submit(store, plan, {})
    await task.handle_stumble(ended, KeyError("x"), a_job(19))
    length = len(store.events(ended))
    for run_id in (begun, ended):
        with pytest.raises(JobAborted):
            await task.stop(run_id, AbortReason.USER_REQUEST)
    assert (status(store, begun), status(store, ended)) == ("cancelled", "failed")
    assert len(store.events(ended)) == length
