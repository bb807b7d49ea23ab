"""kill -9 of a run whose tool calls wait for a person."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.faults.process_calls import check_calls, length_of, load_calls
from tests.faults.process_killed import MOMENTS
from tests.faults.process_nursery import Nursery, shared


@pytest.fixture(scope="module")
def nursery() -> Nursery:
    return shared(load_calls)


@pytest.mark.long
def test_each_payment_is_made_once_and_each_completion_paid_once(nursery: Nursery, tmp_path: Path) -> None:
    for at in range(1, length_of(nursery, tmp_path / "whole") + 1, 3):
        check_calls(nursery, tmp_path / f"{at}", MOMENTS[at % 2], at)
