"""A process dies by kill -9 while answers of models come in."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.faults.process_answers import DELIVERED, check_killed


@pytest.mark.long
@pytest.mark.parametrize("busy", [False, True])
@pytest.mark.parametrize("delivered", DELIVERED)
def test_no_answer_that_was_delivered_is_bought_again(tmp_path: Path, delivered: int, busy: bool) -> None:
    check_killed(tmp_path, delivered, busy=busy)
