"""What an installed package brings, on the command line: a kind of node, a model, a provider, a store."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from flowengine.context_providers import registry
from flowengine.core.node_traits import TRAITS
from tests.support.packages import installed_package

Command = Callable[..., Any]

_PACKAGE = '''
    from typing import ClassVar, Literal

    from flowengine import ContextProvider
    from flowengine.core.context import NodeResult
    from flowengine.core.node_traits import NodeTraits
    from flowengine.flowfile.compile.scope import template
    from flowengine.flowfile.schema.fields import Routes, Template
    from flowengine.flowfile.schema.keys import routes_to
    from flowengine.flowfile.schema.packaged_kinds import NodeKind, PackagedNodeSpec
    from flowengine.journal.memory import MemoryStore
    from flowengine.models.scripted import ScriptedModel
    from flowengine.nodes.node import FlowNode

    class Tides(ContextProvider):
        def get_context(self, query, previous_context=None, **kwargs):
            return "High water at noon"

    class Shelf(MemoryStore):
        def __init__(self, url, durability):
            super().__init__()

    def parrot(name, settings, environ):
        return ScriptedModel(
            lambda request: f"{name} at {settings.base_url}: {'High water' in str(request.messages)}",
            name=name,
            provider="parrot",
        )

    class ShoutNodeSpec(PackagedNodeSpec):
        """Says a text loudly."""

        type: Literal["shout"]
        """Kind of the node."""
        text: Template
        """What is shouted."""
        routes: Routes = {}
        """Where `loud` leads."""

        def own_routes(self):
            return routes_to(self.routes)

        def output_shape(self):
            return {"type": "object", "properties": {"said": {"type": "string"}}}

    class ShoutNode(FlowNode):
        kind: ClassVar[str] = "shout"

        def __init__(self, text, targets, **settings):
            super().__init__(**settings)
            self.text = text
            self.targets = targets

        @property
        def routes(self):
            return self.targets

        async def run(self, context, /):
            return NodeResult({"said": self.text(context).upper()})

    def make(spec, settings):
        return ShoutNode(template(spec.text), {name: each.to for name, each in spec.routes.items()}, **settings)

    shout = NodeKind(ShoutNodeSpec, make, NodeTraits(shape="octagon"))
'''

_FLOW = """
flowengine: v1
name: talk
inputs: {word: {type: string, default: ahoy}}
nodes:
  hello: {model: parrot/grey, prompt: Say hello, context: [tides]}
  call:
    type: shout
    needs: [hello]
    text: "{{ inputs.word }}"
outputs: {said: "{{ nodes.hello.output }} / {{ nodes.call.output.said }}"}
"""


@pytest.fixture(autouse=True)
def package(folder: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    (folder / "talk.yaml").write_text(_FLOW)
    (folder / "flowengine.toml").write_text('[providers.parrot]\nbase_url = "http://cage"\n')
    monkeypatch.setattr(registry, "_registered", {})
    brought = {
        "flowengine.models": {"parrot": "a_package:parrot"},
        "flowengine.context_providers": {"tides": "a_package:Tides"},
        "flowengine.stores": {"shelf": "a_package:Shelf"},
        "flowengine.nodes": {"shout": "a_package:shout", "agent": "a_package:make"},
    }
    with installed_package(tmp_path_factory.mktemp("site"), "a_package", _PACKAGE, brought):
        yield
    TRAITS.pop("shout", None)


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
    (folder / "talk.yaml").write_text(_FLOW.replace(old, new))
    told = flowengine("validate", "talk.yaml") if "parrott" not in new else flowengine("plan", "talk.yaml")
    assert told.code != 0
    assert said in told.out + told.err


def test_a_kind_that_cannot_be_had_is_told_at_its_type(flowengine: Command, folder: Path, tmp_path: Path) -> None:
    (folder / "talk.yaml").write_text(_FLOW.replace("type: shout", "type: odd"))
    site = tmp_path / "site"
    site.mkdir()
    with installed_package(site, "an_odd_package", "odd = 1", {"flowengine.nodes": {"odd": "an_odd_package:odd"}}):
        told = flowengine("validate", "talk.yaml")
    where = "talk.yaml:8:11: FE204 node 'call': the node type 'odd' of the package 'an_odd_package' is no NodeKind"
    assert where in told.out


def test_a_misspelt_vendor_of_the_project_file_has_the_nearest_name(flowengine: Command, folder: Path) -> None:
    (folder / "flowengine.toml").write_text("[providers.parot]\nmax_parallel = 1\n")
    said = flowengine("validate", "talk.yaml")
    assert "unknown provider 'parot' in `providers`; did you mean 'parrot'?" in said.out + said.err
