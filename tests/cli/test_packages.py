"""What an installed package brings, on the command line: a kind of node, a model, a provider, a store."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from flowengine.agents.context import factory
from tests.support.packages import installed_package
from tests.support.small_package import FLOW, small_package
from visualize.layout import Box, outline

Command = Callable[..., Any]


@pytest.fixture(autouse=True)
def package(folder: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(factory, "_registered", {})
    with small_package(folder, tmp_path_factory.mktemp("site")):
        yield


def test_what_a_package_brings_runs_from_yaml(flowengine: Command) -> None:
    assert flowengine("validate", "talk.yaml").code == 0
    said = flowengine("run", "talk.yaml", "--store", "shelf:x")
    assert said.out.strip() == "grey at http://cage: True / AHOY", said.err


def test_its_kind_stands_in_bodies_too(flowengine: Command, folder: Path) -> None:
    body = 'm: {type: map, over: "[1, 2]", nodes: {call: {type: shout, text: "n{{ item }}"}}}'
    flow = f'flowengine: v1\nname: f\nnodes:\n  {body}\noutputs: {{said: "{{{{ nodes.m.output[1].said }}}}"}}\n'
    (folder / "talk.yaml").write_text(flow)
    assert flowengine("run", "talk.yaml", "--store", "memory:").out.strip() == "N2"
    (folder / "talk.yaml").write_text(flow.replace("text:", "texd:"))
    assert (
        "talk.yaml:4:62: FE201 node 'm.call': unknown key 'texd'; did you mean 'text'?"
        in flowengine("validate", "talk.yaml").out
    )


def test_plan_doctor_and_graph_know_it(flowengine: Command) -> None:
    plan = flowengine("plan", "talk.yaml")
    assert (plan.code, "parrot/grey" in plan.out, "shout" in plan.out) == (0, True, True)
    doctor = flowengine("doctor")
    assert (doctor.code, "parrot (a_package)" in doctor.out) == (0, True)
    graph = flowengine("graph", "talk.yaml", "--format", "dot")
    assert (graph.code, "octagon" in graph.out) == (0, True)


def test_the_editor_schema_has_the_kind_with_its_descriptions(flowengine: Command) -> None:
    schema = json.loads(flowengine("schema").out)
    kind = schema["definitions"]["ShoutNodeSpec"]
    assert kind["description"] == "Says a text loudly."
    assert kind["properties"]["text"]["description"] == "What is shouted."
    assert "shout" in schema["definitions"]["Node"]["properties"]["type"]["enum"]
    jsonschema.Draft7Validator.check_schema(schema)
    flow: dict[str, Any] = {"flowengine": "v1", "name": "f", "nodes": {"a": {"type": "shout", "text": "Hi"}}}
    jsonschema.validate(flow, schema)
    flow["nodes"]["a"]["texd"] = "Hi"
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(flow, schema)


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("    text:", "    texd:", "talk.yaml:10:5: FE201 node 'call': unknown key 'texd'; did you mean 'text'?"),
        (
            "type: shout",
            "type: shuot",
            "talk.yaml:8:11: FE204 node 'call': unknown node type 'shuot'; did you mean",
        ),
        ('"{{ inputs.word }}"', "7", "talk.yaml:10:11: FE401 node 'call': expected text, found 7"),
        ("inputs.word", "inputs.wort", "talk.yaml:10:15: FE"),
        ("call.output.said", "call.output.sayd", "did you mean 'said'"),
        ("needs: [hello]", "routes: {loud: helo}", "unknown target 'helo'; did you mean 'hello'"),
        ("parrot/", "parrott/", "did you mean 'parrot'?"),
        ("[tides]", "[tidse]", "did you mean 'tides'"),
    ],
)
def test_a_mistake_has_its_place_and_the_nearest_name(
    flowengine: Command, folder: Path, old: str, new: str, said: str
) -> None:
    (folder / "talk.yaml").write_text(FLOW.replace(old, new))
    told = flowengine("validate", "talk.yaml") if "parrott" not in new else flowengine("plan", "talk.yaml")
    assert told.code != 0
    assert said in told.out + told.err


def test_a_kind_that_cannot_be_had_is_told_at_its_type(flowengine: Command, folder: Path, tmp_path: Path) -> None:
    (folder / "talk.yaml").write_text(FLOW.replace("type: shout", "type: odd"))
    site = tmp_path / "site"
    site.mkdir()
    with installed_package(site, "an_odd_package", "odd = 1", {"flowengine.nodes": {"odd": "an_odd_package:odd"}}):
        told = flowengine("validate", "talk.yaml")
    where = "talk.yaml:8:11: FE204 node 'call': the node type 'odd' of the package 'an_odd_package' is no NodeKind"
    assert where in told.out


_TWICE = """
flowengine: v1
name: again
nodes:
  both:
    type: twice
    nodes:
      say: {type: shout, text: "round {{ round.index }}"}
  after: {type: shout, text: "n{{ nodes.both.output.iterations }}"}
outputs: {said: "{{ nodes.after.output.said }}"}
"""


def test_a_container_of_a_package_runs_its_body_and_is_drawn_and_counted(flowengine: Command, folder: Path) -> None:
    (folder / "again.yaml").write_text(_TWICE)
    assert flowengine("validate", "again.yaml").out == ""
    assert flowengine("run", "again.yaml", "--store", "memory:").out.strip() == "N2"
    (folder / "again.yaml").write_text(_TWICE.replace('{type: shout, text: "round', '{model: parrot/grey, prompt: "r'))
    assert ["say", "agent", "2"] in [line.split()[:3] for line in flowengine("plan", "again.yaml").out.splitlines()]
    drawn = flowengine("graph", "again.yaml", "--format", "dot").out
    assert "shape=folder" in drawn


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ('text: "round', 'texd: "round', "again.yaml:8:26: FE201 node 'both.say': unknown key 'texd'; did you mean"),
        (
            "round.index",
            "ruond.index",
            "again.yaml:8:42: FE302 node 'both.say': unknown name 'ruond'; did you",
        ),
        (
            "    nodes:\n",
            "    nodez:\n",
            "again.yaml:7:5: FE201 node 'both': unknown key 'nodez'; did you mean",
        ),
        ("  say:", "  after:", "again.yaml:8:7: FE220 node 'both.after': a node outside is called 'after' too"),
        ("output.iterations", "output.iteration", "did you mean 'iterations'?"),
    ],
)
def test_a_mistake_in_a_container_of_a_package_has_its_place(
    flowengine: Command, folder: Path, old: str, new: str, said: str
) -> None:
    (folder / "again.yaml").write_text(_TWICE.replace(old, new))
    assert said in flowengine("validate", "again.yaml").out


@pytest.mark.parametrize(
    ("code", "said"),
    [
        ("1 / 0", "the node type 'odd' of the package 'an_odd_package' cannot be loaded: ZeroDivisionError"),
        ("odd = 1", "the node type 'odd' of the package 'an_odd_package' is no NodeKind, but int"),
        (
            """
            from flowengine.flowfile.kinds import NodeKind, NodeTraits, WorkKeys
            odd = NodeKind(WorkKeys, print, NodeTraits(shape="octagn"))
            """,
            "type 'odd' of the package 'an_odd_package' has the unknown shape 'octagn'; did you mean 'octagon'?",
        ),
    ],
)
def test_a_kind_that_cannot_be_had_is_left_out_of_the_schema_with_a_word(
    flowengine: Command, folder: Path, tmp_path: Path, code: str, said: str
) -> None:
    site = tmp_path / "site"
    site.mkdir()
    with installed_package(site, "an_odd_package", code, {"flowengine.nodes": {"odd": "an_odd_package:odd"}}):
        made = flowengine("schema")
        (folder / "odd.yaml").write_text("{flowengine: v1, name: odd, nodes: {a: {type: odd}}}")
        told = flowengine("validate", "odd.yaml")
        drawn = outline("odd", Box(0, 0, 10, 10))
    assert (made.code, said in made.err) == (0, True)
    kinds = json.loads(made.out)["definitions"]["Node"]["properties"]["type"]["enum"]
    assert ("odd" in kinds, "shout" in kinds) == (False, True)
    assert "FE204 node 'a': the node type" in told.out
    assert said in told.out
    assert drawn == outline("function", Box(0, 0, 10, 10))


def test_a_misspelt_vendor_of_the_project_file_has_the_nearest_name(flowengine: Command, folder: Path) -> None:
    (folder / "flowengine.toml").write_text("[providers.parot]\nmax_parallel = 1\n")
    said = flowengine("validate", "talk.yaml")
    assert "unknown provider 'parot' in `providers`; did you mean 'parrot'?" in said.out + said.err
