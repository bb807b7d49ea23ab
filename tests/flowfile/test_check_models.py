"""Models that a file names: each goes to a vendor that is said, with its place in the file."""

from __future__ import annotations

from pathlib import Path

import pytest

from flowengine.errors import ModelConfigError
from flowengine.flow import Flow
from flowengine.flowfile.checks.agent_sources import check_models, models_of
from flowengine.flowfile.loader import load_flow
from flowengine.models.worst_case import ModelFacts

FLOW = """\
flowengine: v1
name: t
agents:
  writer: {model: gtp-4o-mini, fallbacks: [mylab/foo, gpt-4o]}
nodes:
  a: {agent: writer, prompt: x}
  b: {type: evaluation, needs: [a], model: qwen2.5-7b}
  c:
    type: loop
    max_iterations: 2
    needs: [b]
    nodes:
      d: {prompt: x, model: gpt-4o, improve: {model: llama3.2:3b}, context: [{compressor: {model: my-small}}]}
"""


def test_every_unknown_name_is_told_with_its_place() -> None:
    told = [str(each) for each in check_models(load_flow(text=FLOW), ModelFacts({}))]
    assert [each.split(" ")[0] for each in told] == ["4:19:", "4:44:", "7:44:", "13:54:", "13:99:"]
    assert all("FE511" in each for each in told)
    assert "did you mean 'gpt-4o-mini'?" in told[0]
    assert "unknown provider 'mylab' in model 'mylab/foo'" in told[1]
    assert "node 'b': no vendor is known to have a model 'qwen2.5-7b'" in told[2]
    assert "node 'c.d'" in told[3]


@pytest.mark.parametrize("facts", [ModelFacts({"OLLAMA_HOST": "gpu"}), ModelFacts({}, default_provider="hosted_vllm")])
def test_nothing_is_wrong_where_a_default_vendor_is_set(facts: ModelFacts) -> None:
    assert check_models(load_flow(text=FLOW), facts) == []


def test_models_are_listed_with_the_nodes_that_ask_them() -> None:
    spec = load_flow(text=FLOW)
    assert [(each.model, each.node) for each in models_of(spec)] == [
        ("gtp-4o-mini", None),
        ("mylab/foo", None),
        ("gpt-4o", None),
        ("qwen2.5-7b", "b"),
        ("gpt-4o", "c.d"),
        ("llama3.2:3b", "c.d"),
        ("my-small", "c.d"),
    ]


def test_a_run_without_its_key_says_which_node_needs_it(tmp_path: Path) -> None:
    path = tmp_path / "t.yaml"
    path.write_text("flowengine: v1\nname: t\nnodes:\n  a: {model: openai/gpt-4o, prompt: x}\n")
    with pytest.raises(ModelConfigError, match=r"t\.yaml:4:3: node 'a': .* needs a key"):
        Flow.from_yaml(path, environ={}).run_sync()


def test_a_run_that_cannot_be_prepared_says_which_node_it_is(tmp_path: Path) -> None:
    inner = tmp_path / "inner.yaml"
    inner.write_text(
        "flowengine: v1\nname: inner\nnodes:\n  x: {prompt: x, model: offline}\n  y: {prompt: x, model: nobodys}\n"
    )
    path = tmp_path / "t.yaml"
    path.write_text("flowengine: v1\nname: t\nnodes:\n  s: {type: subflow, flow: inner.yaml}\n")
    for file in (inner, path):
        with pytest.raises(ModelConfigError) as caught:
            Flow.from_yaml(file, environ={}).run_sync()
        assert str(caught.value).startswith(f"{inner}:5:25: FE511 node 'y': ")
        assert "no vendor is known to have a model 'nobodys'" in str(caught.value)
        Flow.from_yaml(file, model="offline", environ={}).run_sync().raise_for_status()
