"""Flows written in Python with the words of the file."""

from __future__ import annotations

from pathlib import Path

import pytest
from pydantic import BaseModel

from flowengine.builder import FlowBuilder
from flowengine.errors import DefinitionError, FlowError
from flowengine.flow import Flow

FLOWS = Path(__file__).parents[1] / "flows"


class Plan(BaseModel):
    questions: list[str]


def search(query: str) -> str:
    return query


def research() -> FlowBuilder:
    flow = FlowBuilder(
        "research",
        inputs={"question": {"type": "string"}},
        shared_state={"seen": {"type": "array", "default": [], "merge": "union"}},
        limits={"concurrency": 2},
    )
    flow.agent("plan", instructions="Split it.\nInto parts.", prompt="{{ inputs.question }}", model="offline")
    with flow.loop("polish", max_iterations=2, initial={"text": "{{ nodes.plan.output }}"}) as round_:
        with round_.map("each_line", over="[round.text, inputs.question]", as_="word") as item:
            item.agent("say", prompt="{{ word }}", model="offline", set={"seen": ["{{ word }}"]})
        round_.agent("join_up", prompt="{{ nodes.each_line.output }}", model="offline")
    flow.condition("enough", if_="shared_state.seen | length > 1", then="done")
    flow.agent("done", prompt="{{ inputs.question }}", model="offline", needs=["polish"])
    flow.output("text", "{{ nodes.polish.output.text }}")
    flow.output("seen", "{{ shared_state.seen }}")
    return flow


def test_what_is_built_is_the_flow_of_its_text_and_back():
    flow = research().build()
    again = Flow.from_text(flow.to_yaml(), "research.yaml")
    assert again.to_yaml() == flow.to_yaml() == research().to_yaml()
    assert again.plan.fingerprints == flow.plan.fingerprints
    assert again.plan.skeleton == flow.plan.skeleton
    assert list(flow.plan.fingerprints) == [
        "plan",
        "polish",
        "polish.each_line",
        "polish.each_line.say",
        "polish.join_up",
        "enough",
        "done",
    ]


def test_it_runs():
    run = research().build().run_sync({"question": "tea and cake"})
    assert run.status == "succeeded", run.error


@pytest.mark.parametrize("path", sorted(FLOWS.glob("*.yaml")), ids=lambda path: path.stem)
def test_a_file_is_its_own_text_with_its_comments(path: Path):
    assert Flow.from_yaml(path).to_yaml() == path.read_text("utf-8")


def test_mistakes_are_those_of_a_file():
    flow = research()
    flow.agent("last", prompt="{{ nodes.dne.output }}")
    with pytest.raises(FlowError) as caught:
        flow.build()
    assert [each.code for each in caught.value.diagnostics] == ["FE305"]
    assert "did you mean" in str(caught.value)


def test_functions_and_classes_are_written_by_their_names():
    flow = FlowBuilder("f")
    flow.function("search", search, with_={"query": "x"})
    flow.agent("plan", prompt="x", output=Plan)
    text = flow.to_yaml()
    assert f'call: "{__name__}:search"' in text
    assert f'output: "{__name__}:Plan"' in text


def test_what_has_no_name_in_a_file_is_refused():
    flow = FlowBuilder("f")
    with pytest.raises(DefinitionError, match="define it at the top of a module"):
        flow.function("a", lambda: 1)
    with pytest.raises(DefinitionError, match="a file cannot hold a set"):
        flow.agent("b", prompt={1, 2})
    with pytest.raises(DefinitionError, match="a file cannot hold a bytes"):
        flow.http("c", "https://example.com/", body=b"text")  # type: ignore[arg-type]
    with pytest.raises(DefinitionError, match="no key 'input'; did you mean 'inputs'"):
        FlowBuilder("f", input={})


def test_a_name_is_given_once():
    flow = FlowBuilder("f")
    flow.agent("a", prompt="x")
    with pytest.raises(DefinitionError, match="there is a node 'a' already"):
        flow.agent("a", prompt="y")


def test_a_flow_of_python_objects_has_no_text():
    from flowengine.nodes.function import FunctionNode

    with pytest.raises(DefinitionError, match="made of Python objects"):
        Flow("f", {"a": FunctionNode(search)}).to_yaml()
