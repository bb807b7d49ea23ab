"""A few random flows through the queue; `python -m tests.properties --postgres` does this for many."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest

from flowengine.journal.postgres.store import PostgresStore
from tests.properties.exploring import examine, reproduction
from tests.properties.queue_mode import check_in_queue
from tests.properties.run_modes import Bench
from tests.support.postgres import empty_database


@pytest.mark.long
def test_a_worker_gives_what_the_flow_means(tmp_path: Path):
    store = PostgresStore(empty_database(), "full")
    check = partial(check_in_queue, Bench.make(tmp_path), store)
    try:
        for number in range(8):
            verdict = examine(check, number, models=False)
            assert verdict.kind != "mismatch", f"flow {number}\n{reproduction(verdict)}"
    finally:
        store.close()
