"""kill -9 for real: a process whose agent is improving its draft is killed and resumed. The model server counts.

What it had answered a tenth of a second before the kill is never asked again; only the call in flight is.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.faults.process_agents import check_moments


@pytest.mark.long
def test_no_answer_is_paid_twice_when_the_process_is_killed(tmp_path: Path) -> None:
    check_moments(tmp_path, (1, 5, 9), (2, 7, 12))
