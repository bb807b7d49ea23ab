"""What tests of the queue share: the library that it knows, and an empty store in the folder of the test."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from flowengine.journal.postgres.store import PostgresStore
from tests.support.postgres import empty_database
from tests.support.queue_runs import end_workers


@pytest.fixture
def anyio_backend() -> str:
    """The library of the queue knows no other."""
    return "asyncio"


@pytest.fixture(autouse=True)
def ended_workers() -> Iterator[None]:
    """No worker of a test outlives it, also where the test fails."""
    yield
    end_workers()


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[PostgresStore]:
    """What is submitted and worked on lies in the folder of the test."""
    monkeypatch.chdir(tmp_path)
    made = PostgresStore(empty_database(), "full")
    yield made
    made.close()
