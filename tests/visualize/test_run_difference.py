"""What two runs differ in: causes before what followed from them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from flowengine import Context, Flow, FunctionNode, MapNode
from flowengine.core.context import NodeResult
from flowengine.core.records import Answered, ApprovalRequested, ModelCall, ToolCall
from flowengine.engine.events import Event, NodeFinished, NodeRecorded, NodeStarted, RunFinished, RunResumed, RunStarted
from visualize.run_difference import RunSide, compare_runs, figures_of

GRAPH = {
    "nodes": [["draft", "agent"], ["ask", "approval"], ["polish", "agent"]],
    "edges": [["draft", "ask", []], ["ask", "polish", ["yes"]]],
}
FILE = "nodes:\n  draft:\n    prompt: Write about {}\n  ask:\n    type: approval\n  polish:\n    prompt: Polish it\n"


def run(
    *,
    inputs: Any = None,
    model: str = "small",
    prompt: str = "Write about tea",
    options: Any = None,
    tools: Sequence[str] = (),
    answer: str = "Tea is hot.",
    choice: str = "yes",
    topic: str = "tea",
    definition: str = "1",
    code: str = "1",
    called: str = "kettle",
    cost: float = 0.01,
) -> RunSide:
    """A draft, a question, and a polish whose prompt has the draft in it."""

    def call(text: str, said: str, more: Any = None) -> ModelCall:
        messages = [{"role": "user", "content": text}]
        return ModelCall(
            model, "p", "generation", messages, said, (), 10, 5, None, cost, 0.5, key=text, request=more or {}
        )

    offered = [{"type": "function", "function": {"name": each}} for each in tools]
    shape = {"model": model, **(options or {}), **({"tools": offered} if offered else {})}
    events: list[Event] = [
        RunStarted(
            "r", "f", 0.0, inputs or {}, {}, {"draft": definition, "ask": "a", "polish": "p"},
            source=FILE.format(topic), graph=GRAPH, code={"draft": code}, settings={"folder": model},
        ),
        NodeStarted("draft", 0.0),
        NodeRecorded("draft", 0.5, ToolCall("look", {"for": called}, "x")),
        NodeRecorded("draft", 1.0, call(prompt, answer, shape)),
        NodeFinished("draft", 1.0, NodeResult(answer)),
        NodeStarted("ask", 1.0),
        NodeRecorded("ask", 1.0, ApprovalRequested("Good?", ["yes", "no"])),
        NodeRecorded("ask", 3.0, Answered(choice, by="ada")),
        NodeFinished("ask", 3.0, NodeResult({"choice": choice}, route=choice)),
        NodeStarted("polish", 3.0),
        NodeRecorded("polish", 4.0, call(f"Polish: {answer}", answer.upper())),
        NodeFinished("polish", 4.0, NodeResult(answer.upper())),
        RunFinished(4.0, "succeeded", {"text": answer.upper()}),
    ]  # fmt: skip
    return RunSide(events)


def causes(a: RunSide, b: RunSide) -> list[tuple[str, str]]:
    return [(each.kind, each.title) for each in compare_runs(a, b).causes]


def test_where_a_run_stands_in_a_set_or_a_queue_is_no_cause() -> None:
    one, other = run(), run()
    other.settings |= {"labels": {"row": "2"}, "reuse": ["r"], "queue": "night", "priority": 3, "model": "m"}
    assert [each.title for each in compare_runs(one, other).causes] == ["Setting model: not set → m"]


def test_runs_that_are_the_same_have_no_causes() -> None:
    found = compare_runs(run(), run())
    assert (list(found.causes), found.first) == ([], None)
    assert [each.path for each in found.nodes] == ["draft", "ask", "polish"]


def test_what_was_chosen_or_edited_is_a_cause_and_what_followed_is_not() -> None:
    other = run(model="large", options={"temperature": 0.9}, answer="Tea!", tools=["look"], cost=0.05)
    found = compare_runs(run(), other)
    assert [(each.kind, each.title) for each in found.causes] == [
        ("model", "draft asks large in the place of small"),
        ("model", "polish asks large in the place of small"),
        ("options", "Options of draft: temperature not set → 0.9"),
        ("tools", "The tools of draft: with look"),
    ]
    assert found.nodes[2].differs == ("output", "model", "prompt"), "the prompt of polish has the draft in it"
    assert found.first is found.nodes[0]


def test_an_edited_prompt_is_told_by_the_words_that_the_model_got_and_by_the_file() -> None:
    found = compare_runs(run(), run(prompt="Write about hot tea", topic="hot tea", definition="2", answer="Hot."))
    prompt, file = found.causes
    assert (prompt.kind, prompt.node, prompt.after) == ("prompt", "draft", "user:\nWrite about hot tea")
    assert (file.kind, file.title, file.after) == (
        "file", "The definition of draft", "  draft:\n    prompt: Write about hot tea",
    )  # fmt: skip


def test_an_input_explains_the_prompts_that_have_it_in_them() -> None:
    a, b = run(inputs={"topic": "tea"}), run(inputs={"topic": "rum"}, prompt="Write about rum", answer="Rum.")
    assert causes(a, b) == [("inputs", "Input topic")]


def test_an_input_that_is_no_number_is_the_same_in_both_runs() -> None:
    a, b = (run(inputs={"size": float("nan"), "all": [float("inf")]}) for _ in range(2))
    assert causes(a, b) == []


def test_a_prompt_that_nothing_explains_is_a_cause() -> None:
    """What a provider of context or a memory brought is no edit, but stands before everything else."""
    assert causes(run(), run(prompt="Write about tea (it is raining)")) == [("prompt", "The prompt of draft")]


def test_a_person_who_answered_otherwise_and_edited_code_are_causes() -> None:
    assert causes(run(), run(choice="no", code="2")) == [
        ("tools", "The code of the functions of draft"),
        ("person", "ask was answered no by ada, not yes"),
    ]


def test_where_nothing_was_changed_the_model_answered_otherwise() -> None:
    found = compare_runs(run(), run(answer="Tea is old.", called="pot"))
    assert [(each.kind, each.title) for each in found.causes] == [
        ("answer", "draft was asked the same and answered something else")
    ]
    assert found.nodes[0].differs == ("output", "tools")


def test_an_item_that_only_the_second_run_has_stands_in_its_place_and_is_where_they_first_differ() -> None:
    flow = Flow(
        "f",
        steps={
            "each": MapNode({"a": FunctionNode(lambda item: item, arguments={"item": lambda c: c.result})}, over=count),
            "sum": FunctionNode(lambda c: len(c.nodes["each"].output)),
        },
    )
    found = compare_runs(*(RunSide(flow.run_sync({"n": n}).events) for n in (1, 2)))
    assert [each.path for each in found.nodes] == ["each", "each[0].a", "each[1].a", "sum"]
    assert found.first is not None
    assert found.first.path == "each[1].a"


def count(context: Context) -> list[int]:
    return list(range(context.inputs["n"]))


def test_figures_are_those_of_the_run_and_of_its_nodes() -> None:
    side = run()
    assert figures_of(side) == (4.0, 2.0, 0.02, 30, 2)
    assert figures_of(side, "draft") == (1.0, 1.0, 0.01, 15, 1)
    assert figures_of(side, "nobody").seconds is None


def test_runs_of_nothing_are_compared_as_well() -> None:
    assert list(compare_runs(RunSide([]), run()).causes) == [("file", "Runs of two flows:  and f", None, None, "")]
    assert list(compare_runs(RunSide([]), RunSide([])).nodes) == []


def test_a_run_that_went_on_with_an_edited_flow_differs_in_the_definition_that_was_edited() -> None:
    events = [*run().events]
    edited = {"draft": "2", "ask": "a", "polish": "p"}
    one = RunSide([*events[:-1], RunResumed(3.5, fingerprints=edited), events[-1]])
    assert causes(one, run(definition="2", topic="hot tea")) == [("file", "The definition of draft")]


def test_another_model_for_the_whole_flow_is_no_edit_of_its_file() -> None:
    one, other = run(), run(definition="2")
    other.settings |= {"model": "large"}
    assert causes(one, other) == [("model", "Setting model: not set → large")]
