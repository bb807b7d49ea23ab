"""What tests of runners share: a store of their own, and no worker of a test outlives it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from flowengine.journal.postgres.store import PostgresStore
from tests.support.postgres import empty_database
from tests.support.queue_runs import end_workers


@pytest.fixture(autouse=True)
def ended_workers() -> Iterator[None]:
    """Also where the test fails."""
    yield
    end_workers()


@pytest.fixture
def store() -> Iterator[PostgresStore]:
    made = PostgresStore(empty_database(), "full")
    yield made
    made.close()
