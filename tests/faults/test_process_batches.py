"""kill -9 of a process whose rows wait for vendors' batches."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.faults.process_batches import check_kill, load_flow
from tests.faults.process_nursery import shared


@pytest.mark.long
@pytest.mark.parametrize(
    ("vendor", "event", "count"),
    [("openai", "taken", 1), ("openai", "answers", 1), ("openai", "committed", 40), ("anthropic", "taken", 2)],
)
def test_nothing_is_lost_or_posted_twice(tmp_path: Path, vendor: str, event: str, count: int) -> None:
    assert check_kill(shared(load_flow), tmp_path / "rows", vendor, event, count)
