"""When a job is worked on again that has not come to its end."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from procrastinate.exceptions import JobAborted
from procrastinate.jobs import Job
from procrastinate.retry import RetryDecision

from flowengine.errors import StoreUnavailableError
from flowengine.runners.queue.crash_count import LeftError
from flowengine.runners.queue.tables import before_new
from flowengine.runners.queue.task import JobRetry, PutBackError, StumbledError

BUSY = 7.0


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
    decision, seconds = decided(LeftError("r"), attempts)
    assert seconds < 0.5
    assert decision.priority is None


@pytest.mark.parametrize(("has_begun", "priority"), [(True, before_new(3)), (False, 3)])
def test_a_run_that_is_put_back_goes_on_at_once_and_before_new_ones(has_begun: bool, priority: int):
    decision, seconds = decided(PutBackError("r", has_begun=has_begun), 5)
    assert seconds < 0.5
    assert decision.priority == priority
    assert before_new(3) > 3


def test_a_run_that_another_writes_is_tried_after_the_time_for_that():
    _, seconds = decided(StoreUnavailableError("away"), 5)
    assert seconds == pytest.approx(BUSY, abs=0.5)


@pytest.mark.parametrize(("attempts", "least", "most"), [(0, 0.5, 1), (3, 4, 8), (5, 15, 30), (60, 15, 30)])
def test_what_failed_otherwise_is_tried_ever_later_and_out_of_step(attempts: int, least: float, most: float):
    waits = [decided(StumbledError("?"), attempts)[1] for _ in range(30)]
    assert least <= min(waits) < max(waits) <= most + 0.5
