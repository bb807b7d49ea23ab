"""The way over HTTP against litellm's: the same on the wire, the same replies and errors, but for what is listed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import anyio
import pytest

from tests.models.http.against_litellm.differences import DIFFERENCES, reason_for
from tests.models.http.against_litellm.exchange import Divergence, diverge
from tests.models.http.against_litellm.grid import CASES, Case
from tests.support.model_server import ModelServer

pytestmark = pytest.mark.long  # litellm is slow to load, and is asked a hundred times.


@pytest.fixture(scope="module")
def divergences() -> Mapping[str, Sequence[Divergence]]:
    """Case → where the two ways differ. All of them at once: litellm is slow to load."""

    async def compare() -> dict[str, Sequence[Divergence]]:
        with ModelServer() as server:
            return {case.id: await diverge(case, server) for case in CASES}

    return anyio.run(compare)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.id)
def test_what_differs_is_listed(case: Case, divergences: Mapping[str, Sequence[Divergence]]) -> None:
    assert [each for each in divergences[case.id] if reason_for(case.id, each.place) is None] == []


def test_what_is_listed_differs(divergences: Mapping[str, Sequence[Divergence]]) -> None:
    found = {reason_for(case, each.place) for case, places in divergences.items() for each in places}
    assert [each for each in DIFFERENCES if each not in found] == []


def test_every_case_has_its_own_name() -> None:
    assert len({case.id for case in CASES}) == len(CASES)
