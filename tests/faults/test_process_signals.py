"""Ctrl-C and SIGTERM, two resumes at once, and a clock that jumps."""

from __future__ import annotations

import signal
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.faults.process_clock import check_clock
from tests.faults.process_killed import load_all
from tests.faults.process_nursery import Nursery, shared
from tests.faults.process_signals import check_interrupted, check_orphans, check_resumed_twice

INT, TERM = signal.SIGINT, signal.SIGTERM


@pytest.fixture(scope="module")
def nursery() -> Nursery:
    return shared(load_all)


@pytest.mark.parametrize(
    ("numbers", "delay"),
    [([INT], 0.0), ([INT], 0.08), ([TERM], 0.12), ([TERM], 0.16), ([INT, INT], 0.06), ([TERM, INT], 0.14)],
)
def test_a_run_that_is_interrupted_at_some_moment_goes_on_from_there(
    nursery: Nursery, tmp_path: Path, numbers: Sequence[int], delay: float
) -> None:
    check_interrupted(nursery, tmp_path, numbers, delay)


@pytest.mark.parametrize("kind", ["server", "script"])
@pytest.mark.parametrize("numbers", [[INT], [TERM, TERM]], ids=["once", "twice"])
def test_an_interrupted_run_leaves_no_process_behind(
    nursery: Nursery, tmp_path: Path, kind: str, numbers: Sequence[int]
) -> None:
    check_orphans(nursery, tmp_path, kind, numbers)


def test_of_several_resumes_of_one_run_one_goes_on_and_the_others_say_so(nursery: Nursery, tmp_path: Path) -> None:
    check_resumed_twice(nursery, tmp_path, 3)


def test_a_clock_that_jumps_changes_no_duration_and_no_order(tmp_path: Path) -> None:
    check_clock(tmp_path)
