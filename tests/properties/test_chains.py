"""Whatever happens to a run on its way, it ends as one that nothing happened to, and buys and does nothing twice."""

from __future__ import annotations

import random

import pytest

from tests.properties.chains import try_chain


def problems(seeds: range) -> str:
    return "\n\n".join(f"chain {seed}: {each}" for seed in seeds for each in try_chain(seed)[:1])


def test_a_few_dozen_chains_end_as_they_should() -> None:
    assert problems(range(25)) == ""


@pytest.mark.long
@pytest.mark.parametrize("part", range(4))
def test_many_chains_end_as_they_should(part: int, request: pytest.FixtureRequest) -> None:
    times = request.config.getoption("--explore") or 0
    begin, number = (random.randrange(10**9), 200 * times) if times else (1_000 * part, 200)
    assert problems(range(begin, begin + number)) == ""
