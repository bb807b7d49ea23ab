"""kill -9 of a single process, at every event of every sample flow."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.faults.process_killed import (
    MOMENTS,
    PATTERNS,
    SAMPLES,
    UNREACHED,
    check_position,
    check_relay,
    load_all,
    whole,
)
from tests.faults.process_nursery import ROOT, Nursery, shared


@pytest.fixture(scope="module")
def nursery() -> Nursery:
    return shared(load_all)


def test_every_sample_is_killed() -> None:
    assert {path.stem for path in (ROOT / "flows").glob("*.yaml")} == {*SAMPLES, *PATTERNS, *UNREACHED}


@pytest.mark.parametrize("name", [*SAMPLES, *(pytest.param(each, marks=pytest.mark.long) for each in PATTERNS)])
def test_a_run_killed_at_any_event_is_resumed_to_the_same_end(nursery: Nursery, tmp_path: Path, name: str) -> None:
    undisturbed = whole(nursery, tmp_path / "whole", name)
    for at in range(1, undisturbed.events + 1, 6 if name in SAMPLES else 30):
        check_position(nursery, tmp_path / f"{at}", name, undisturbed, MOMENTS[at % 2], at)
    check_relay(nursery, tmp_path / "relay", name, undisturbed, 1)
