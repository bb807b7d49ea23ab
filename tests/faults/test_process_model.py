"""A model server that is down, busy or broken: runs end clearly, and back off."""

from __future__ import annotations

import pytest

from tests.faults.process_model import (
    BROKEN,
    FINAL,
    check_broken,
    check_busy,
    check_down,
    check_final,
    check_half_broken,
)


@pytest.mark.parametrize("kind", BROKEN)
def test_a_run_that_gets_broken_answers_alone_fails_and_says_whose_they_were(kind: str) -> None:
    check_broken(kind)


@pytest.mark.parametrize("kind", FINAL)
def test_a_run_that_gets_what_no_repetition_mends_asks_once(kind: str) -> None:
    check_final(kind)


def test_a_run_that_gets_every_other_answer_broken_finishes() -> None:
    check_half_broken(2 * len(BROKEN), 0.05)


@pytest.mark.parametrize("retry_after", [None, 0.3])
def test_agents_that_are_told_to_wait_come_back_later_and_not_all_at_once(retry_after: float | None) -> None:
    check_busy(20, 0.2, retry_after, retries=2)


def test_a_server_that_is_down_is_told_after_the_last_attempt() -> None:
    check_down(0.02)
