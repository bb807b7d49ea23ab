"""`run --reuse` says what it took over: in the run's object, and in one line for people."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Command = Callable[..., Any]

FLOW = """
flowengine: v1
name: parts
inputs: {word: {type: string, default: hi}}
nodes:
  add: {type: function, call: "steps:add", with: {a: 1, b: 2}}
  odd: {type: condition, if: nodes.add.output.sum > 100, then: never, else: each}
  never: {type: function, call: "steps:shout", with: {text: never}}
  each:
    type: map
    over: "['a', 'b', inputs.word]"
    nodes:
      loud: {type: function, call: "steps:shout", with: {text: "{{ item }}"}}
outputs: {loud: "{{ nodes.each.output | join(' ') }}"}
"""


@pytest.fixture
def first(flowengine: Command, folder: Path) -> str:
    (folder / "parts.yaml").write_text(FLOW)
    assert flowengine("run", "parts.yaml", "--run-id", "r1").out == "A B HI\n"
    return "r1"


def test_what_was_reused_is_one_line_for_people(flowengine: Command, first: str) -> None:
    said = flowengine("run", "parts.yaml", "-i", "word=ho", "--reuse", first)
    assert (said.code, said.out) == (0, "A B HO\n")
    assert said.err.splitlines()[-1] == "re-used 3 of 5 nodes"  # Not the condition, and not the new word.


def test_nothing_reused_is_said_too(flowengine: Command, folder: Path, first: str) -> None:
    steps = folder / "steps.py"
    steps.write_text(steps.read_text().replace('"sum"', '"total"').replace("text.upper()", "text.title()"))
    (folder / "parts.yaml").write_text(FLOW.replace("output.sum", "output.total"))
    said = flowengine("run", "parts.yaml", "--reuse", first)
    assert said.err.splitlines()[-1] == "re-used 0 of 5 nodes"


def test_a_run_that_reuses_nothing_by_intent_says_nothing(flowengine: Command, first: str) -> None:
    assert "re-used" not in flowengine("run", "parts.yaml").err


def test_quiet_says_nothing(flowengine: Command, first: str) -> None:
    assert flowengine("run", "parts.yaml", "--reuse", first, "--quiet").err == ""


def test_json_says_it_of_the_run_and_of_each_node(flowengine: Command, first: str) -> None:
    told = json.loads(flowengine("run", "parts.yaml", "-i", "word=ho", "--reuse", first, "--json").out)
    assert told["reused"] == {"nodes": 3, "of": 5}
    nodes = told["nodes"]
    assert nodes["add"]["reused"] == {"run_id": "r1", "node": "add"}
    assert nodes["each[1].loud"]["reused"] == {"run_id": "r1", "node": "each[1].loud"}
    assert nodes["each[2].loud"]["reused"] is None
    assert nodes["odd"]["reused"] is None


def test_a_run_shown_again_says_the_same(flowengine: Command, first: str) -> None:
    flowengine("run", "parts.yaml", "--reuse", first, "--run-id", "r2")
    assert json.loads(flowengine("runs", "show", "r2", "--json").out)["reused"] == {
        "nodes": 2,
        "of": 3,
    }  # The map as a whole.
    assert "re-used  2 of 3 nodes" in flowengine("runs", "show", "r2").out


def test_a_cached_node_counts_as_reused(flowengine: Command, folder: Path) -> None:
    cached = FLOW.replace("with: {a: 1, b: 2}}", "with: {a: 1, b: 2}, cache: true}")
    (folder / "parts.yaml").write_text(cached)
    assert "re-used" not in flowengine("run", "parts.yaml").err
    assert flowengine("run", "parts.yaml").err.splitlines()[-1] == "re-used 1 of 5 nodes"
