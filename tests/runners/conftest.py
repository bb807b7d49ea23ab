"""What tests of runners share: no worker of a test outlives it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.queue_runs import end_workers


@pytest.fixture(autouse=True)
def ended_workers() -> Iterator[None]:
    """Also where the test fails."""
    yield
    end_workers()
