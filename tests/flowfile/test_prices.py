"""What a project file says of prices: checked, and counted by runs."""

from __future__ import annotations

from pathlib import Path

import pytest

from flowengine.errors import ProjectError
from flowengine.flowfile.project.project import Project, find_project
from flowengine.models.pricing import Price


def project_with(folder: Path, text: str) -> Project:
    (folder / "flowengine.toml").write_text(text)
    return find_project(folder)


def test_prices_are_read_in_dollars_for_a_million_tokens(tmp_path: Path) -> None:
    text = (
        '[tool.flowengine.prices."ollama/llama3.2:3b"]\ninput = 0\noutput = 0\n'
        "[tool.flowengine.prices.gpt-next]\ninput = 2.5\noutput = 10\nper_call = 0.01\n"
    )
    assert project_with(tmp_path, text).prices == {
        "ollama/llama3.2:3b": Price(0.0, 0.0),
        "gpt-next": Price(2.5, 10.0, 0.01),
    }


def test_without_a_table_nothing_is_said(tmp_path: Path) -> None:
    assert project_with(tmp_path, "").prices == {}


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("prices = 3", r"'prices' is a table"),
        ("[prices]\nm = 3", r"'m' in `prices` is a table with 'input' and 'output'"),
        ("[prices.m]\ninput = 1", r"the price of 'm' lacks 'output'"),
        ("[prices.m]\ninput = 1\noutput = -2", r"'output' of the price of 'm' is a number of at least 0"),
        ("[prices.m]\ninput = 1\noutput = nan", r"'output' of the price of 'm' is a number of at least 0"),
        ("[prices.m]\ninput = 1\noutput = 1" + "0" * 400, r"'output' of the price of 'm' is a number of at least 0"),
        ("[prices.m]\ninput = true\noutput = 1", r"'input' of the price of 'm' is a number of at least 0"),
        ("[prices.m]\ninput = 1\noutput = 2\nouput = 3", r"unknown key 'ouput' .*; did you mean 'output'\?"),
    ],
)
def test_what_is_wrong_with_a_price_is_told(tmp_path: Path, text: str, told: str) -> None:
    with pytest.raises(ProjectError, match=told):
        project_with(tmp_path, text)
