"""The table's rows of workers and of PostgreSQL, once each and small; `python -m tests.faults all` has them whole."""

from __future__ import annotations

import pytest

from tests.faults.queue_database import away
from tests.faults.queue_killed import killed
from tests.support.postgres import server


@pytest.mark.long
def test_a_killed_workers_runs_go_on_within_ten_seconds_and_nothing_that_was_answered_is_paid_twice() -> None:
    server()  # Skips where there is none.
    assert "1 kills, 12 runs finished; taken over in " in killed(times=1, seed=1, runs=12, workers=2)


@pytest.mark.long
def test_workers_and_their_runs_outlive_a_postgresql_that_is_stopped_at_once() -> None:
    server()
    assert "12 runs finished, 0 had to be resumed" in away(times=1, seed=1, seconds=2.0, runs=12, workers=2)
