"""Re-use after an edit, and the cache: what runs again, what does not, and what is said of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from flowengine.core.records import ModelCall, Reused
from flowengine.errors import InputError
from flowengine.flow import Flow
from flowengine.journal.memory import MemoryStore
from flowengine.models.model import Request
from flowengine.models.scripted import ScriptedModel
from flowengine.runtime.run import Run
from flowengine.testing.model_overrides import with_models

pytestmark = pytest.mark.anyio

CODE = """
ran = []
def shout(text):
    ran.append(text)
    return text.upper()
def look(context):
    ran.append("look")
    return sorted(context.prev_outputs)
"""

FLOW = """
flowengine: v1
name: tea
inputs: {topic: {type: string}}
nodes:
  draft: {instructions: Write about it., prompt: "{{ inputs.topic }}"}
  loud: {type: function, call: tools_of_tea:shout, with: {text: "{{ nodes.draft.output }}"}}
  check: {type: evaluation, target: "{{ nodes.loud.output }}", criteria: {good: Is it good?}}
  polish: {instructions: Polish it., prompt: "{{ nodes.loud.output }}", needs: [check]}
outputs: {text: "{{ nodes.polish.output }}"}
"""


class Desk:
    """A project folder with a flow, and models whose calls are counted."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.store = MemoryStore()
        self.said: dict[str, Any] = {"check": {"score": 0.9, "criteria_scores": {"good": 0.9}}}
        (folder / "tools_of_tea.py").write_text(CODE)

    async def run(self, text: str = FLOW, reuse: str | None = None, topic: str = "Sencha") -> Run:
        flow = Flow.from_text(text, self.folder / "tea.yaml")
        seated = with_models(
            flow, lambda seat, settings: ScriptedModel(lambda request: self._answer(str(seat), request))
        )
        return await seated.run({"topic": topic}, store=self.store, reuse=reuse)

    def _answer(self, seat: str, request: Request) -> Any:
        return self.said.get(seat, f"{seat} of {len(request.messages[-1].content)}")


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    return Desk(tmp_path)


def paid(run: Run) -> list[str]:
    return [event.node for event in run.events if type(getattr(event, "record", None)) is ModelCall]


def reused(run: Run) -> list[str]:
    return [event.node for event in run.events if type(getattr(event, "record", None)) is Reused]


async def test_nothing_changed_so_nothing_runs_and_nothing_is_paid(desk: Desk):
    first = await desk.run()
    again = await desk.run(reuse=first.id)
    assert first.status == again.status == "succeeded"
    assert paid(again) == []
    assert reused(again) == ["draft", "loud", "check", "polish"]
    assert [(node, each.run_id, each.node) for node, each in again.reused.items()] == [
        (node, first.id, node) for node in ("draft", "loud", "check", "polish")
    ]
    assert first.reused == {}
    assert again.outputs == first.outputs


async def test_an_edited_node_runs_again_and_so_does_what_depends_on_what_it_changed(desk: Desk):
    first = await desk.run()
    desk.said["draft"] = "something else"
    again = await desk.run(FLOW.replace("Write about it.", "Write it."), reuse=first.id)
    assert paid(again) == ["draft", "check", "polish"]
    assert reused(again) == []


async def test_an_edited_node_that_gives_the_same_as_before_changes_nothing_behind_it(desk: Desk):
    first = await desk.run()
    again = await desk.run(FLOW.replace("Write about it.", "Write on it.."), reuse=first.id)
    assert paid(again) == ["draft"]
    assert reused(again) == ["loud", "check", "polish"]


async def test_an_input_that_no_longer_is_what_it_was_runs_what_reads_it(desk: Desk):
    first = await desk.run(topic="Sencha")
    again = await desk.run(reuse=first.id, topic="Matcha")
    assert paid(again) == ["draft"]  # The draft is as long as before, so everything behind it stays.
    assert reused(again) == ["loud", "check", "polish"]


async def test_a_node_behind_the_edit_whose_own_inputs_are_the_same_stays(desk: Desk):
    text = FLOW.replace("  polish:", "  alone: {instructions: Say hello., prompt: Hello, needs: [draft]}\n  polish:")
    first = await desk.run(text)
    desk.said["draft"] = "something else"
    again = await desk.run(text.replace("Write about it.", "Write it."), reuse=first.id)
    assert "alone" in reused(again)
    assert "alone" not in paid(again)


async def test_a_changed_function_runs_again(desk: Desk, tmp_path: Path):
    first = await desk.run()
    text = FLOW.replace("tools_of_tea", "other_tools_of_tea")
    (tmp_path / "other_tools_of_tea.py").write_text(CODE.replace("upper()", "lower()"))
    again = await desk.run(text, reuse=first.id)
    assert "loud" not in reused(again)
    assert paid(again) == ["check", "polish"]


async def test_the_same_call_with_another_body_is_another_function(tmp_path: Path):
    from flowengine.nodes.code_reading import read_code

    def one(text: str) -> str:
        return text.upper()

    def two(text: str) -> str:
        return text.lower()

    assert read_code([one]) != read_code([two])


async def test_a_run_of_another_flow_is_refused_and_nothing_is_run(desk: Desk):
    first = await desk.run()
    with pytest.raises(InputError, match="is one of flow 'tea', not of 'coffee'"):
        await desk.run(FLOW.replace("name: tea", "name: coffee"), reuse=first.id)
    assert [run.flow for run in desk.store.list()] == ["tea"]


async def test_a_failed_run_is_re_used_as_far_as_it_came(desk: Desk):
    desk.said["polish"] = RuntimeError("down")
    first = await desk.run()
    assert first.status == "failed"
    del desk.said["polish"]
    again = await desk.run(reuse=first.id)
    assert paid(again) == ["polish"]


LOOP = """
flowengine: v1
name: tea
nodes:
  polish:
    type: loop
    max_iterations: 2
    initial: {text: start}
    carry: {text: "{{ nodes.better.output }}"}
    nodes:
      better: {instructions: Better., prompt: "{{ round.text }}"}
outputs: {text: "{{ nodes.polish.output.text }}"}
"""


async def test_a_loop_is_kept_as_a_whole_and_after_an_edit_its_agents_by_their_first_request(desk: Desk):
    flow = Flow.from_text(LOOP, desk.folder / "tea.yaml")

    def seated(flow: Flow) -> Flow:
        return with_models(flow, lambda seat, settings: ScriptedModel(lambda request: "longer"))

    first = await seated(flow).run({}, store=desk.store)
    again = await seated(flow).run({}, store=desk.store, reuse=first.id)
    assert reused(again) == ["polish"]
    more = Flow.from_text(LOOP.replace("max_iterations: 2", "max_iterations: 3"), desk.folder / "tea.yaml")
    edited = await seated(more).run({}, store=desk.store, reuse=first.id)
    assert reused(edited) == ["polish.round[0].better", "polish.round[1].better"]
    assert paid(edited) == ["polish.round[2].better"]


CACHED = FLOW.replace("draft: {", "draft: {cache: true, ").replace("loud: {", "loud: {cache: true, ")


async def test_a_cached_node_takes_its_result_from_any_earlier_run_with_the_same_inputs(desk: Desk):
    first = await desk.run(CACHED)
    assert reused(first) == []
    again = await desk.run(CACHED)
    assert reused(again) == ["draft", "loud"]
    assert paid(again) == ["check", "polish"]
    other = await desk.run(CACHED, topic="Matcha tea")
    assert "draft" in paid(other)


async def test_an_edit_of_a_cached_node_makes_it_run(desk: Desk):
    await desk.run(CACHED)
    edited = await desk.run(CACHED.replace("Write about it.", "Write about this."))
    assert "draft" in paid(edited)


async def test_a_resumed_run_goes_on_re_using(desk: Desk):
    first = await desk.run()
    again = await desk.run(reuse=first.id)
    flow = Flow.from_text(FLOW, desk.folder / "tea.yaml")
    cut = MemoryStore()
    for run in (first, again):
        journal = cut.create(run.id)
        for event in run.events if run is first else run.events[:4]:
            journal.append(event)
        await journal.close()
    silent = with_models(flow, lambda seat, settings: ScriptedModel([]))
    done = await silent.resume(again.id, store=cut)
    assert done.status == "succeeded"
    assert paid(done) == []


CHOOSE = """
def choose(context):
    return "ANSWER"
"""
CHOOSING = """
flowengine: v1
name: tea
shared_state: {log: {type: array, default: [], merge: append}}
nodes:
  all:
    CONTAINER
    nodes:
      c: {type: condition, call: "choosing_tea:choose", routes: {green: {}, black: {}}, set: {log: ["{{ output }}"]}}
outputs: {log: "{{ shared_state.log }}"}
"""


@pytest.mark.parametrize("container", ["type: loop, max_iterations: 1", "type: map, over: '[1]', result: x"])
async def test_a_container_whose_condition_calls_an_edited_function_runs_again(container: str, tmp_path: Path):
    text = CHOOSING.replace("CONTAINER", container.replace(", ", "\n    "))
    store = MemoryStore()
    for answer in ("green", "black"):
        folder = tmp_path / answer
        folder.mkdir()
        (folder / "choosing_tea.py").write_text(CHOOSE.replace("ANSWER", answer))
        flow = Flow.from_text(text, folder / "tea.yaml")
        run = await flow.run({}, store=store, run_id=answer, reuse="green" if answer == "black" else None)
        assert run.outputs == {"log": [answer]}
