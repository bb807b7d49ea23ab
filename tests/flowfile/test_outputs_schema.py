"""What the file alone tells of a flow's outputs, as a JSON Schema."""

from __future__ import annotations

from pathlib import Path

import jsonschema
import pytest

from flowengine import Flow
from flowengine.flowfile.analysis.inferred_shapes import lone_path, outputs_schema
from flowengine.flowfile.loader import load_flow

FLOW = """
flowengine: v1
name: shapes
inputs:
  message: {type: string}
nodes:
  pick: {type: routing, instruction: Choose., routes: {a: {description: A}, b: {description: B}}}
  fields:
    prompt: "{{ inputs.message }}"
    output: {type: object, properties: {n: {type: integer}}, required: [n]}
  tree:
    prompt: "{{ inputs.message }}"
    output: {type: object, properties: {next: {$ref: "#"}}}
  say: {prompt: "{{ inputs.message }}"}
outputs:
  text: "{{ nodes.say.output }}"
  mixed: "It was {{ nodes.pick.output.next_route }}."
  route: "{{ nodes.pick.output.next_route }}"
  sure: "{{ nodes.pick.output.confidence }}"
  n: "{{ nodes.fields.output.n }}"
  whole: {inner: "{{ nodes.fields.output }}", fixed: 3}
  either: "{{ nodes.say.output or nodes.pick.output }}"
  tree: "{{ nodes.tree.output }}"
  static: plain words
"""


@pytest.fixture(scope="module")
def flow_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("shapes") / "shapes.yaml"
    path.write_text(FLOW)
    return path


def test_the_schema_says_what_the_file_shows_and_nothing_more(flow_file: Path) -> None:
    known = outputs_schema(load_flow(flow_file))
    shapes = known["properties"]
    for text in ("text", "mixed", "route", "static"):
        assert shapes[text] == {"type": "string"}, text
    assert shapes["sure"] == {"type": "number"}
    assert shapes["n"] == {"type": "integer"}
    assert shapes["whole"]["properties"]["inner"]["required"] == ["n"]
    assert shapes["whole"]["properties"]["fixed"] == {"const": 3}
    assert shapes["either"] == {}
    assert shapes["tree"] == {}, "a reference from the root of a schema means something else inside another"
    assert known["required"] == list(shapes)


def test_the_outputs_of_a_run_fit_their_schema(flow_file: Path) -> None:
    run = Flow.from_yaml(flow_file, model="offline").run_sync({"message": "Hello."})
    assert run.status == "succeeded", run.error
    jsonschema.validate(dict(run.outputs), outputs_schema(load_flow(flow_file)))


def test_a_flow_without_declared_outputs_gives_any_object(tmp_path: Path) -> None:
    path = tmp_path / "none.yaml"
    path.write_text("flowengine: v1\nname: none\nnodes:\n  a: {prompt: Hello}\n")
    assert outputs_schema(load_flow(path)) == {"type": "object"}


@pytest.mark.parametrize(
    ("value", "path"),
    [
        ("{{ nodes.a.output }}", ("nodes", "a", "output")),
        ("{{ nodes.a.output }} ", ("nodes", "a", "output")),
        ("{{ nodes.a.output or 1 }}", None),
        ("x {{ nodes.a.output }}", None),
        (None, None),
        (3, None),
    ],
)
def test_a_lone_path_is_a_path_and_nothing_else(value: object, path: tuple[str, ...] | None) -> None:
    assert lone_path(value) == path
