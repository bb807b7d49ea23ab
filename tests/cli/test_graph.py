"""`flowengine graph`: a flow or a run, to stdout or to a file."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Command = Callable[..., Any]


@pytest.mark.parametrize(("form", "start"), [("svg", "<"), ("dot", "digraph"), ("mermaid", "flowchart"), ("json", "{")])
def test_a_flow_is_drawn_on_stdout(flowengine: Command, form: str, start: str) -> None:
    said = flowengine("graph", "fragile.yaml", "--format", form)
    assert said.code == 0
    assert said.err == ""
    assert start in said.out[:300]
    assert all(name in said.out for name in ("count", "fragile", "after"))
    assert said.out.endswith("\n")


def test_a_run_is_drawn_with_what_happened(flowengine: Command) -> None:
    flowengine("run", "fragile.yaml", "--run-id", "r1")
    said = flowengine("graph", "@last", "--format", "json")
    assert said.code == 0
    json.loads(said.out)
    assert "failed" in said.out
    assert "skipped" in said.out


@pytest.mark.parametrize(
    ("name", "start"),
    [("x.svg", b"<"), ("x.gv", b"digraph"), ("x.mmd", b"flowchart"), ("x.json", b"{")],
)
def test_the_files_name_says_the_format(flowengine: Command, folder: Path, name: str, start: bytes) -> None:
    assert flowengine("graph", "shout.yaml", "-o", name) == (0, "", "")
    assert start in (folder / name).read_bytes()[:300]


def test_a_file_whose_ending_says_no_format_is_refused(flowengine: Command, folder: Path) -> None:
    said = flowengine("graph", "shout.yaml", "-o", "x.svgg")
    assert (said.code, "no format has the ending '.svgg'" in said.err, "did you mean '.svg'?" in said.err) == (
        2,
        True,
        True,
    )
    assert not (folder / "x.svgg").exists()
    assert flowengine("graph", "shout.yaml", "-o", "x.txt", "--format", "mermaid").code == 0


def test_a_png_is_the_svg_at_twice_its_size(flowengine: Command, folder: Path) -> None:
    assert flowengine("graph", "shout.yaml", "-o", "x.png", "--theme", "dark") == (0, "", "")
    assert (folder / "x.png").read_bytes().startswith(b"\x89PNG")


def test_a_png_without_graphviz_is_refused_with_what_to_do(
    flowengine: Command, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(folder))
    monkeypatch.setitem(sys.modules, "resvg_py", None)
    said = flowengine("graph", "shout.yaml", "-o", "x.png")
    assert said.code == 2
    assert "Graphviz" in said.err
    assert not (folder / "x.png").exists()


def test_a_flow_with_problems_is_told_as_by_validate(flowengine: Command) -> None:
    said = flowengine("graph", "bad.yaml")
    assert said.code == 2
    assert said.err.startswith("error: bad.yaml:4:13: FE204")


def test_what_is_neither_file_nor_run_is_told_as_both(flowengine: Command) -> None:
    flowengine("run", "shout.yaml", "--run-id", "r1")
    said = flowengine("graph", "nothing")
    assert said.code == 2
    assert said.err.startswith("error: there is no file 'nothing', and no run 'nothing'")


def test_a_file_that_cannot_be_written_is_a_usage_error(flowengine: Command) -> None:
    said = flowengine("graph", "shout.yaml", "--format", "dot", "-o", "nowhere/x.dot")
    assert said.code == 2
    assert "nowhere/x.dot cannot be written" in said.err


LEVELS = """
flowengine: v1
name: levels
nodes:
  each:
    type: map
    over: "[1, 2]"
    nodes:
      inner: {type: function, call: "steps:shout", with: {text: hi}}
  again:
    type: loop
    max_iterations: 3
    until: "round.index == 1"
    needs: [each]
    nodes:
      once: {type: function, call: "steps:shout", with: {text: hi}}
"""


def test_containers_are_drawn_round_what_is_in_them(flowengine: Command, folder: Path) -> None:
    (folder / "levels.yaml").write_text(LEVELS)
    said = flowengine("graph", "levels.yaml", "--format", "dot")
    assert said.code == 0
    assert said.out.count("subgraph cluster_") == 2
    assert all(name in said.out for name in ("each", "inner", "again", "once"))


def test_a_run_counts_its_items_and_rounds(flowengine: Command, folder: Path) -> None:
    (folder / "levels.yaml").write_text(LEVELS)
    assert flowengine("run", "levels.yaml", "--run-id", "r1").code == 0
    said = flowengine("graph", "r1", "--format", "mermaid")
    assert "each ×2 of 2 · map · ✓ succeeded" in said.out
    assert "again ×2 of 3 · loop · ✓ succeeded" in said.out
    assert "inner<br/>function<br/>✓ 2" in said.out


def test_the_paths_of_untrusted_text_are_drawn_over_the_flow(flowengine: Command, folder: Path) -> None:
    (folder / "flowengine.toml").write_text('allow_http = ["https://shop.example.com/"]')
    (folder / "risky.yaml").write_text(
        "flowengine: v1\nname: risky\ninputs: {word: {type: string, untrusted: true}}\nnodes:\n"
        "  all:\n    type: map\n    over: '[inputs.word]'\n    nodes: {a: {prompt: '{{ item }}'}}\n"
        "  put: {type: http, url: 'https://shop.example.com/', query: {q: '{{ nodes.all.output }}'}}\n"
        "  own: {prompt: '{{ inputs.word }}', set: {kept: '{{ output }}'}}\n"
        "  act: {type: http, needs: [own], url: 'https://shop.example.com/', headers: {X: '{{ shared_state.kept }}'},"
        " trust: {headers: It is ours.}}\n"
        "shared_state: {kept: {default: x, merge: replace}}\n"
    )
    drawn = {form: flowengine("graph", "--risks", "risky.yaml", "--format", form) for form in ("dot", "svg", "mermaid")}
    assert {said.code for said in drawn.values()} == {0}
    for said in drawn.values():
        assert "inputs.word" in said.out
        assert "acts on untrusted text" in said.out
    picture = json.loads(flowengine("graph", "--risks", "risky.yaml", "--format", "json").out)
    assert {each["id"]: each["risk"] for each in picture["nodes"]} == {
        "inputs.word": "source",
        "all": "passes",
        "all.a": "passes",
        "put": "effect",
        "own": "",
        "shared_state.kept": "",
        "act": "",
    }
    edges = {(each["source"], each["target"]): each["labels"] for each in picture["edges"]}
    assert edges["inputs.word", "all"] == edges["all", "put"] == ["untrusted text"]
    assert edges["own", "shared_state.kept"] == edges["shared_state.kept", "act"] == ["meant"]


def test_theme_and_heat_are_of_an_svg(flowengine: Command, folder: Path) -> None:
    (folder / "one.yaml").write_text("flowengine: v1\nname: one\nnodes: {a: {prompt: Hi., model: offline}}\n")
    dark = flowengine("graph", "one.yaml", "--theme", "dark", "--heat", "time")
    assert dark.code == 0
    assert ".page { fill: #14191d; }" in dark.out
    refused = flowengine("graph", "one.yaml", "--format", "dot", "--theme", "dark")
    assert refused.code == 2
    assert "--theme and --heat are those of an SVG or a PNG, and this is dot" in refused.err


def test_no_ways_are_drawn_of_a_run(flowengine: Command) -> None:
    said = flowengine("graph", "--risks", "@last")
    assert said.code == 2
    assert "--risks draws the ways through a flow file" in said.err


def test_who_asks_a_person_and_what_ends_early_is_drawn(flowengine: Command, folder: Path) -> None:
    (folder / "careful.yaml").write_text(
        """
flowengine: v1
name: careful
nodes:
  tries:
    type: map
    over: "[1, 2]"
    until: results | length >= 1
    nodes:
      help: {prompt: Help., tools: ["steps:shout"], approve: [shout], model: offline}
  plain: {prompt: Help., tools: ["steps:shout"], model: offline}
"""
    )
    said = flowengine("graph", "careful.yaml", "--format", "mermaid")
    assert said.code == 0
    assert "agent · offline · asks a person" in said.out
    assert "map · until enough" in said.out
    nodes = {
        each["id"]: each for each in json.loads(flowengine("graph", "careful.yaml", "--format", "json").out)["nodes"]
    }
    assert [nodes[name]["remark"] for name in ("tries", "tries.help", "plain")] == ["until enough", "asks a person", ""]
