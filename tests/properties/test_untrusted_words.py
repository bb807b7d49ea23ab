"""Wherever a run shows a stranger's word, the analysis of the flow's file has a way that leads there."""

from __future__ import annotations

import pytest

from tests.properties.exploring import examine, reproduction
from tests.properties.random_flows import Case
from tests.properties.run_modes import Bench
from tests.properties.untrusted_words import show_words

FLOWS = 60


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Bench:
    return Bench.make(tmp_path_factory.mktemp("words"))


@pytest.mark.long
def test_a_word_is_nowhere_that_no_way_leads_to(bench: Bench) -> None:
    places: list[list[str]] = []

    async def check(case: Case) -> None:
        places.append(await show_words(bench, case))

    for number in range(FLOWS):
        verdict = examine(check, number)
        assert verdict.kind != "mismatch", f"flow {number}\n{reproduction(verdict)}"
    assert sum(map(bool, places)) > FLOWS / 5  # Else the flows say too little.
