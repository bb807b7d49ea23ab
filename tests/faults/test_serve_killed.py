"""kill -9 of a server with requests in flight."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.faults.process_nursery import Nursery, shared
from tests.faults.serve_killed import check_kill, check_undisturbed, load_server


@pytest.fixture(scope="module")
def nursery() -> Nursery:
    return shared(load_server)


@pytest.mark.parametrize(("moment", "part"), [("committed", 0.2), ("appended", 0.5), ("committed", 0.8)])
def test_every_caller_of_a_killed_server_gets_its_one_result(
    nursery: Nursery, tmp_path: Path, moment: str, part: float
) -> None:
    check_kill(nursery, tmp_path, moment, int(part * 200))


def test_the_kills_are_inside_of_what_the_requests_write(nursery: Nursery, tmp_path: Path) -> None:
    assert check_undisturbed(nursery, tmp_path) >= 160
