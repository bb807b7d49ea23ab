"""`flowengine explain`, for every code."""

from __future__ import annotations

import pytest

from flowengine.flowfile.checks.codes import CODES
from tests.cli.conftest import Command


@pytest.mark.parametrize("code", CODES)
def test_every_code_has_a_page(flowengine: Command, code: str) -> None:
    said = flowengine("explain", code)
    assert said.code == 0
    assert said.out.startswith(f"{code}: {CODES[code].title}\n")
    assert CODES[code].explanation in said.out
    assert "for example:" in said.out


def test_without_a_code_all_are_listed(flowengine: Command) -> None:
    lines = flowengine("explain").out.splitlines()
    assert len(lines) == len(CODES)
    assert lines[0].startswith("FE101  ")


def test_an_unknown_code_is_a_usage_error_with_the_nearest_one(flowengine: Command) -> None:
    said = flowengine("explain", "FE2033")
    assert said.code == 2
    assert "there is no code 'FE2033'; did you mean 'FE203'?" in said.err
