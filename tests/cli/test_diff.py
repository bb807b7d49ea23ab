"""`flowengine diff`: two runs in words, more as a table, and the page of either."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Command = Callable[..., Any]


@pytest.fixture
def runs(flowengine: Command) -> None:
    for name, text in (("a1", "one small cat"), ("b2", "one large cat"), ("c3", "one small cat")):
        flowengine("run", "shout.yaml", "--run-id", name, "-i", f"text={text}")


def test_two_runs_are_told_apart_with_causes_first_and_by_words(flowengine: Command, runs: None, folder: Path) -> None:
    said = flowengine("diff", "a1", "b2")
    assert said.code == 0
    assert "first differs at shout: output" in said.out
    assert said.out.index("likely causes") < said.out.index("outputs")
    assert "inputs: Input text\n      one [-small-]{+large+} cat" in said.out
    assert "ONE [-SMALL-]{+LARGE+} CAT" in said.out

    table = flowengine("diff", "a1", "b2", "c3").out
    assert [line.split()[0] for line in table.splitlines()[:4]] == ["run", "a1", "b2", "c3"]
    assert "nothing that matters differs" in table
    found = json.loads(flowengine("diff", "a1", "b2", "c3", "--json").out)
    assert [each["kind"] for each in found[1]["causes"]] == ["inputs"]
    assert (found[1]["first"], found[2]["first"], found[1]["nodes"]) == ("shout", None, {"shout": ["output"]})

    assert flowengine("diff", "b2").out == flowengine("diff", "a1", "b2").out  # With the run before.
    said = flowengine("diff", "a1", "b2", "--html", str(folder / "two.html"))
    assert "two.html" in said.err
    assert "one <del>small</del> <ins>large</ins> cat" in (folder / "two.html").read_text("utf-8")


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("a1",), "there is no earlier run of the flow of run 'a1': name two runs"),
        (("a1",) * 11, "up to 10 runs are compared, and 11 are named"),
        (("a1", "b2", "--json", "--html", "x.html"), "exclude each other"),
        (("a1", "b2", "--unmasked"), "goes with --html only"),
        (("a1", "b2", "--html", "nowhere/x.html"), "nowhere/x.html cannot be written"),
        (("a1", "nobody"), "no run 'nobody'"),
    ],
)
def test_mistakes_are_told(flowengine: Command, runs: None, options: tuple[str, ...], said: str) -> None:
    found = flowengine("diff", *options)
    assert found.code != 0
    assert said in found.err
