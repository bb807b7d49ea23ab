"""Approvals: a run waits for a person, costs nothing meanwhile, and goes on with the answer."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import anyio
import pytest

from flowengine.core.context import Context
from flowengine.engine.events import RunFinished
from flowengine.errors import ApprovalError, FlowError
from flowengine.flow import Flow
from flowengine.journal.approvals import answer, open_questions, times_asked
from flowengine.journal.memory import MemoryStore
from flowengine.journal.sqlite.store import SQLiteStore
from flowengine.nodes.approval import ApprovalNode
from flowengine.nodes.function import FunctionNode
from flowengine.nodes.loop import LoopNode
from flowengine.nodes.map import MapNode
from flowengine.nodes.node import FlowNode
from flowengine.nodes.notify.question_notice import format_moment
from flowengine.nodes.subflow import SubflowNode
from flowengine.runtime.run import Run

pytestmark = pytest.mark.anyio

FORM = {"type": "object", "properties": {"ticket": {"type": "string"}}, "required": ["ticket"]}


async def name(context: Context) -> str:
    return str(context.current_node)


def asking(**settings: Any) -> ApprovalNode:
    return ApprovalNode(lambda context: "Ship it?", {"ship": "publish", "hold": None}, **settings)


def release(**settings: Any) -> Flow:
    nodes: dict[str, FlowNode] = {
        "build": FunctionNode(name),
        "sign_off": asking(needs=["build"], **settings),
        "publish": FunctionNode(name),
        "beside": FunctionNode(name),
    }
    return Flow("release", nodes)


async def parked(flow: Flow) -> tuple[MemoryStore, Run]:
    store = MemoryStore()
    return store, await flow.run(store=store, run_id="r")


@pytest.mark.parametrize("seconds", [float("inf"), 1e300, 10**400])
async def test_a_question_that_expires_after_all_dates_can_be_stored_and_shown(tmp_path: Path, seconds: float):
    store = SQLiteStore(tmp_path / "runs.db")
    run = await release(expires=seconds, on_expire="hold").run(store=store, run_id="r")
    assert run.status == "waiting"
    (asked,) = open_questions(store.events("r")).values()
    assert asked.expires is not None
    assert format_moment(asked.expires) == "9999-12-31 23:59 UTC"
    store.close()


async def test_the_run_parks_once_nothing_else_can_run_and_the_others_go_on():
    store, run = await parked(release())
    assert run.status == "waiting"
    statuses = {node: part.status for node, part in run.nodes.items()}
    assert statuses == {"build": "succeeded", "beside": "succeeded", "sign_off": "waiting", "publish": "pending"}
    assert isinstance(store.events("r")[-1], RunFinished)


async def test_a_value_that_is_the_whole_message_is_shown_as_templates_print_it(tmp_path: Path):
    text = (
        "{flowengine: v1, name: f, inputs: {order: {type: object}}, nodes: {ask: {type: approval, "
        "message: '{{ inputs.order }}', routes: {yes: {}}}}}"
    )
    store = MemoryStore()
    await Flow.from_text(text, tmp_path / "f.yaml").run(
        {"order": {"paid": True, "note": None}}, store=store, run_id="r"
    )
    assert [each.message for each in open_questions(store.events("r")).values()] == ['{"paid": true, "note": null}']


async def test_an_answer_takes_its_route_and_is_the_nodes_output():
    store, _ = await parked(release())
    await answer(store, "r", "sign_off", "ship", comment="go", by="ann")
    run = await release().resume("r", store=store)
    assert run.status == "succeeded"
    assert run.nodes["sign_off"].output == {"choice": "ship", "comment": "go", "by": "ann", "form": None}
    assert run.nodes["publish"].status == "succeeded"


async def test_a_choice_that_leads_nowhere_skips_what_the_other_one_leads_to():
    store, _ = await parked(release())
    await answer(store, "r", None, "hold")
    run = await release().resume("r", store=store)
    assert (run.status, run.nodes["publish"].cause) == ("succeeded", "not_selected")


async def test_a_run_that_is_resumed_without_an_answer_waits_on_and_asks_nothing_twice():
    store, _ = await parked(release())
    run = await release().resume("r", store=store)
    assert run.status == "waiting"
    assert len(open_questions(run.events)) == 1
    assert sum(type(getattr(event, "record", None)).__name__ == "ApprovalRequested" for event in run.events) == 1


async def test_time_that_is_up_makes_the_choice_when_the_run_is_opened_again():
    now = [1000.0]
    flow = release(expires=60.0, on_expire="hold", clock=lambda: now[0])
    store, _ = await parked(flow)
    assert (await flow.resume("r", store=store)).status == "waiting"
    now[0] = 1060.0
    run = await flow.resume("r", store=store)
    assert run.nodes["sign_off"].output["choice"] == "hold"
    assert run.nodes["sign_off"].output["by"] == "expired"


async def refused(store: MemoryStore, node: str | None, choice: str, **given: Any) -> str:
    before = len(store.events("r"))
    with pytest.raises(ApprovalError) as caught:
        await answer(store, "r", node, choice, **given)
    assert len(store.events("r")) == before  # Nothing is lost and nothing is added.
    return str(caught.value)


async def test_an_undeclared_choice_is_refused_with_the_nearest_one():
    store, _ = await parked(release())
    assert await refused(store, "sign_off", "shp") == (
        "node 'sign_off' has no choice 'shp'; choose from: ship, hold; did you mean 'ship'?"
    )


async def test_a_second_answer_is_refused_and_the_first_one_is_told():
    store, _ = await parked(release())
    await answer(store, "r", "sign_off", "ship", by="ann")
    assert "was answered already: 'ship' by ann" in await refused(store, "sign_off", "hold")
    await release().resume("r", store=store)
    assert "was answered already: 'ship' by ann" in await refused(store, "sign_off", "hold")


async def test_an_answer_that_comes_too_late_is_refused_and_says_what_counts():
    flow = release(expires=60.0, on_expire="hold", clock=lambda: 1000.0)
    store, _ = await parked(flow)
    said = await refused(store, "sign_off", "ship", now=1000.0 + 60 + 7200)
    assert "its time was up 2 h ago, and 'hold' is taken when the run is resumed" in said


@pytest.mark.parametrize(
    ("form", "said"),
    [
        (None, "asks for a form with: ticket"),
        ({}, "$: 'ticket' is a required property"),
        ({"ticket": 5}, "$.ticket: 5 is not of type 'string'"),
    ],
)
async def test_a_form_must_fit(form: Any, said: str):
    store, _ = await parked(release(form=FORM))
    assert said in await refused(store, "sign_off", "ship", form=form)


async def test_a_form_that_fits_is_part_of_the_output():
    store, _ = await parked(release(form=FORM))
    await answer(store, "r", "sign_off", "ship", form={"ticket": "T-1"})
    run = await release(form=FORM).resume("r", store=store)
    assert run.nodes["sign_off"].output["form"] == {"ticket": "T-1"}


async def test_a_form_that_nobody_asked_for_is_refused():
    store, _ = await parked(release())
    assert "asks for no form" in await refused(store, "sign_off", "ship", form={"x": 1})


async def test_a_node_that_asks_nothing_is_refused_with_those_that_do():
    store, _ = await parked(release())
    assert "waits for no answer; it waits with: sign_off" in await refused(store, "build", "ship")
    await answer(store, "r", None, "ship")
    await release().resume("r", store=store)
    assert await refused(store, None, "ship") == "run r waits for no answer"


def in_containers() -> Flow:
    mapped = MapNode({"ask": ApprovalNode(lambda context: "?", {"yes": None, "no": None})}, over=lambda context: [1, 2])
    loop = LoopNode(
        {"m": mapped},
        max_iterations=2,
        initial={"said": lambda context: []},
        carry={"said": lambda seen: [*seen.variables["round"]["said"], *seen.prev_outputs["m"]]},
    )
    return Flow("inside", {"loop": loop, "after": FunctionNode(name, needs=["loop"])})


async def test_questions_inside_loops_and_maps_park_the_whole_run_and_each_is_answered_by_its_path():
    store, run = await parked(in_containers())
    assert run.status == "waiting"
    assert run.nodes["loop"].status == "waiting"
    assert list(open_questions(run.events)) == ["loop.round[0].m[0].ask", "loop.round[0].m[1].ask"]
    for number in (0, 1):
        for item in (0, 1):
            await answer(store, "r", f"loop.round[{number}].m[{item}].ask", "yes")
        run = await in_containers().resume("r", store=store)
    assert run.status == "succeeded"
    assert [each["choice"] for each in run.nodes["loop"].output["said"]] == ["yes", "yes"]


async def test_a_failure_elsewhere_goes_before_waiting():
    async def fail(context: Context) -> None:
        raise ValueError("no")

    run = await Flow("f", {"ask": asking(), "publish": FunctionNode(name), "bad": FunctionNode(fail)}).run()
    assert run.status == "failed"


async def test_a_choice_may_be_composed_or_decomposed():
    node = ApprovalNode(lambda context: "Which?", {"caf\u00e9": "publish", "hold": None})
    store, _ = await parked(Flow("release", {"sign_off": node, "publish": FunctionNode(name)}))
    await answer(store, "r", "sign_off", "cafe\u0301")
    run = await Flow("release", {"sign_off": node, "publish": FunctionNode(name)}).resume("r", store=store)
    assert (run.nodes["sign_off"].output["choice"], run.nodes["publish"].status) == ("caf\u00e9", "succeeded")


async def test_only_an_approver_answers_and_the_question_says_who_that_is():
    store, _ = await parked(release(approvers=["cfo@example.com", "finance"]))
    assert "to be answered by cfo@example.com or finance, and this is 'eve'" in await refused(
        store, "sign_off", "ship", by="eve"
    )
    assert "it is not known who answers here" in await refused(store, "sign_off", "ship")
    await answer(store, "r", "sign_off", "ship", by="CFO@example.com")
    run = await release(approvers=["cfo@example.com", "finance"]).resume("r", store=store)
    assert run.nodes["sign_off"].output["by"] == "CFO@example.com"


async def test_an_answer_to_an_earlier_question_is_not_one_to_the_question_that_is_asked_now():
    store, _ = await parked(release())
    assert "has asked anew since" in await refused(store, "sign_off", "ship", asked=1.0)
    asked = times_asked(store.events("r"))["sign_off"]
    assert (await answer(store, "r", "sign_off", "ship", asked=asked)).node == "sign_off"


async def test_a_form_goes_with_the_choices_that_need_it_and_with_no_other():
    store, _ = await parked(release(form=FORM, form_for=["ship"], describe={"ship": "Out it goes"}))
    [asked] = open_questions(store.events("r")).values()
    assert (asked.form_for, asked.describe) == (("ship",), {"ship": "Out it goes"})
    with pytest.raises(ApprovalError, match="asks for a form with: ticket"):
        await answer(store, "r", "sign_off", "ship")
    await answer(store, "r", "sign_off", "hold", form={"ticket": 3})
    run = await release(form=FORM, form_for=["ship"]).resume("r", store=store)
    assert run.nodes["sign_off"].output["form"] is None


def test_a_flow_without_a_project_refuses_to_name_whom_to_tell():
    """Nobody would be told, and nothing would say so."""
    ask = ApprovalNode(lambda context: "Ship?", {"yes": None, "no": None}, notify=lambda context: ["finance"])
    inner = MapNode({"ask": ask}, over=lambda context: [1])
    with pytest.raises(FlowError, match="only a flow with a project file can tell people") as caught:
        Flow("release", {"publish": FunctionNode(name), "each": inner})
    assert [(each.code, each.node) for each in caught.value.diagnostics] == [("FE531", "each.ask")]


def test_a_flow_without_a_project_may_run_a_file_that_tells_nobody():
    text = (
        "flowengine: v1\nname: ask\nnodes:\n"
        "  ok: {type: approval, message: Ship?, notify: [], routes: {ship: {}, hold: {}}}\n"
    )
    plan = Flow.from_text(text, "ask.yaml").plan
    assert Flow("outer", {"sub": SubflowNode(plan)}).name == "outer"


async def test_answers_are_looked_for_now_and_then_and_not_at_the_end_of_every_node():
    class ApprovalRequested(MemoryStore):
        looks = 0

        def recall(self, kind: str, key: str, /) -> Any:
            self.looks += kind == "answer"
            return super().recall(kind, key)

    async def nothing(context: Context) -> None:
        await anyio.lowlevel.checkpoint()

    chain = {f"n{i}": FunctionNode(nothing, needs=[f"n{i - 1}"] if i else []) for i in range(60)}
    store = ApprovalRequested()
    run = await Flow("f", {"ask": ApprovalNode(lambda context: "?", {"yes": None}), **chain}).run(store=store)
    assert run.status == "waiting"
    assert store.looks < 30
