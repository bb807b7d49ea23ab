"""Single calls of tools that wait for a person: accepted, changed or refused, across processes, and paid once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import anyio
import pytest

from flowengine import Agent, Flow, tool
from flowengine.agents.tools.tool import Tool, ToolResult
from flowengine.agents.tools.toolset import ApprovalRules, Offer, ToolSet
from flowengine.core.context import Context
from flowengine.core.records import Answered, ApprovalRequested, ModelCall, ToolCall
from flowengine.engine.events import NodeFinished, NodeRecorded
from flowengine.errors import ApprovalError, DefinitionError, FlowChangedError, PermanentModelError, RunError
from flowengine.journal.approvals import answer, open_questions
from flowengine.journal.memory import MemoryStore
from flowengine.models.messages import ToolRequest
from flowengine.models.model import Reply
from flowengine.models.scripted import ScriptedModel
from flowengine.nodes.agent import AgentNode
from flowengine.nodes.function import FunctionNode
from flowengine.nodes.loop import LoopNode
from flowengine.nodes.map import MapNode
from flowengine.nodes.node import RetryPolicy
from flowengine.nodes.subflow import SubflowNode
from flowengine.nodes.tool_call import ToolNode
from flowengine.runs import Runs
from flowengine.runtime.run import Run

pytestmark = pytest.mark.anyio


class Shop:
    """What was done outside, and a model that wants it done."""

    def __init__(self, *turns: Sequence[tuple[str, str]], last: str = "Done.") -> None:
        self.done: list[Any] = []
        asked = [
            Reply("", tool_calls=tuple(ToolRequest(f"c{n}", *call) for n, call in enumerate(turn))) for turn in turns
        ]
        self.model = ScriptedModel([*asked, last])

    def refund(self, order: str, amount: int) -> str:
        """Pay an order back."""
        self.done.append((order, amount))
        return f"paid {amount}"

    def look_up(self, order: str) -> str:
        """Find an order."""
        self.done.append(order)
        return "found"

    def agent(self, *, approve: Sequence[str] = ("refund",), **settings: Any) -> Agent:
        return Agent("help", "Help.", model=self.model, tools=[self.refund, self.look_up], approve=approve, **settings)

    def flow(self, **settings: Any) -> Flow:
        return Flow("shop", {"help": AgentNode(self.agent(**settings), prompt=lambda context: "Pay me back.")})


ONE = [("refund", '{"order": "A-1", "amount": 12}')]
TWO = [*ONE, ("look_up", '{"order": "A-1"}'), ("refund", '{"order": "B-2", "amount": 5}')]


async def parked(shop: Shop, **settings: Any) -> tuple[MemoryStore, Run]:
    store = MemoryStore()
    run = await shop.flow(**settings).run(store=store, run_id="r")
    assert run.status == "waiting"
    return store, run


def records(run: Run, kind: type[Any]) -> list[Any]:
    return [each.record for each in run.events if isinstance(each, NodeRecorded) and type(each.record) is kind]


async def test_a_call_waits_for_a_person_with_its_name_and_arguments():
    shop = Shop(ONE)
    store, run = await parked(shop)
    [question] = run_questions(store)
    assert (question.node, question.tool, question.arguments) == (
        "help:refund",
        "refund",
        {"order": "A-1", "amount": 12},
    )
    assert question.message == """Call the tool 'refund' with {"order": "A-1", "amount": 12}?"""
    assert (list(question.choices), shop.done) == (["accept", "refuse"], [])
    assert run.nodes["help"].status == "waiting"


def run_questions(store: MemoryStore) -> Sequence[Any]:
    return Runs(store).waiting()


async def test_an_accepted_call_is_made_once_and_no_completion_is_paid_again():
    shop = Shop(ONE)
    store, _ = await parked(shop)
    run = await shop.flow().approve("r", "help:refund", "accept", store=store, by="ann")
    assert (run.status, str(run.outputs["help"]), shop.done) == ("succeeded", "Done.", [("A-1", 12)])
    assert (len(shop.model.requests), len(records(run, ModelCall))) == (2, 2)
    assert [each.name for each in records(run, ApprovalRequested)] == ["refund"]


async def test_changed_arguments_are_what_the_tool_gets():
    shop = Shop(ONE)
    store, _ = await parked(shop)
    given = {"order": "A-1", "amount": 7}
    run = await shop.flow().approve("r", "help:refund", "accept", store=store, form=given)
    assert (shop.done, records(run, Answered)[0].form) == ([("A-1", 7)], given)
    assert shop.model.requests[-1].messages[-1].content == "paid 7"
    assert len(shop.model.requests) == 2


async def test_the_models_own_arguments_are_no_change():
    shop = Shop(ONE)
    store, _ = await parked(shop)
    await answer(store, "r", None, "accept", form={"amount": 12, "order": "A-1"})
    run = await shop.flow().resume("r", store=store)
    assert records(run, Answered)[0].form is None


@pytest.mark.parametrize(
    ("choice", "form", "said"),
    [
        ("accept", {"order": "A-1"}, "'amount' is missing"),
        ("accept", {"order": "A-1", "amount": "much"}, "'much' is not of type 'integer'"),
        ("accept", {"order": "A-1", "amount": 1, "amout": 2}, "'amout' is unknown; did you mean 'amount'?"),
        ("accept", ["A-1", 3], "takes the arguments of 'refund' as an object"),
        ("refuse", {"order": "A-1", "amount": 1}, "say why in the comment"),
        ("yes", None, "has no choice 'yes'; choose from: accept, refuse"),
    ],
)
async def test_an_answer_must_fit_the_tools_schema(choice: str, form: Any, said: str):
    shop = Shop(ONE)
    store, _ = await parked(shop)
    with pytest.raises(ApprovalError) as caught:
        await answer(store, "r", "help:refund", choice, form=form)
    assert said in str(caught.value)
    assert len(run_questions(store)) == 1


async def test_a_refusal_is_what_the_model_reads_as_the_tools_result():
    shop = Shop(ONE, last="I may not.")
    store, _ = await parked(shop)
    run = await shop.flow().approve("r", "help:refund", "refuse", store=store, comment="The order is too old.")
    assert (run.status, shop.done) == ("succeeded", [])
    told = shop.model.requests[-1].messages[-1]
    assert told.role == "tool"
    assert (
        told.content == "A person refused this call of 'refund', and it was not made. Their word: The order is too old."
    )


async def test_several_calls_of_one_turn_are_asked_at_once_and_answered_in_any_order():
    shop = Shop(TWO)
    store, run = await parked(shop)
    assert list(open_questions(run.events)) == ["help:refund", "help:refund:2"]
    assert shop.done == ["A-1"]  # What waits for nobody is not kept waiting.
    run = await shop.flow().approve("r", "help:refund:2", "accept", store=store)
    assert (run.status, list(open_questions(run.events))) == ("waiting", ["help:refund"])
    assert shop.done == ["A-1", ("B-2", 5)]
    run = await shop.flow().approve("r", "help:refund", "refuse", store=store)
    assert (run.status, shop.done) == ("succeeded", ["A-1", ("B-2", 5)])
    results = [each.content for each in shop.model.requests[-1].messages if each.role == "tool"]
    assert results == ["A person refused this call of 'refund': it was not made.", "found", "paid 5"]
    assert len(shop.model.requests) == 2


async def test_equal_calls_of_one_turn_are_two_questions_and_two_deeds():
    shop = Shop([*ONE, *ONE])
    store, run = await parked(shop)
    assert list(open_questions(run.events)) == ["help:refund", "help:refund:2"]
    await answer(store, "r", "help:refund", "refuse")
    await answer(store, "r", "help:refund:2", "accept")
    await shop.flow().resume("r", store=store)
    assert shop.done == [("A-1", 12)]


async def test_a_call_of_a_later_round_is_a_question_of_its_own():
    shop = Shop(ONE, ONE)
    store, _ = await parked(shop)
    run = await shop.flow().approve("r", "help:refund", "accept", store=store)
    assert (run.status, list(open_questions(run.events))) == ("waiting", ["help:refund:2"])
    run = await shop.flow().approve("r", None, "accept", store=store)
    assert (run.status, shop.done, len(shop.model.requests)) == ("succeeded", [("A-1", 12)] * 2, 3)


async def test_a_call_that_the_tool_would_not_take_asks_nobody():
    shop = Shop([("refund", '{"order": "A-1"}')])
    run = await shop.flow().run(store=MemoryStore())
    assert (run.status, records(run, ApprovalRequested)) == ("succeeded", [])
    assert "'amount' is missing" in shop.model.requests[-1].messages[-1].content


@pytest.mark.parametrize(
    ("around", "paths"),
    [
        (
            lambda node: MapNode({"help": node}, over=lambda context: ["A", "B"]),
            ["all[0].help:refund", "all[1].help:refund"],
        ),
        (lambda node: LoopNode({"help": node}, max_iterations=1), ["all.round[0].help:refund"]),
        (lambda node: SubflowNode(Flow("inner", {"help": node}).plan), ["all.help:refund"]),
    ],
    ids=["map", "loop", "subflow"],
)
async def test_agents_inside_containers_wait_too(around: Any, paths: list[str]):
    shop = Shop()
    shop.model = ScriptedModel(
        lambda request: "Done." if request.messages[-1].role == "tool" else ToolRequest("c", "refund", ONE[0][1])
    )
    node = AgentNode(shop.agent(), prompt=lambda context: "Pay me back.")
    flow, store = Flow("outer", {"all": around(node)}), MemoryStore()
    run = await flow.run(store=store, run_id="r")
    assert (run.status, sorted(open_questions(run.events))) == ("waiting", paths)
    for path in paths:
        run = await flow.approve("r", path, "accept", store=store)
    assert (run.status, len(shop.done), len(shop.model.requests)) == ("succeeded", len(paths), 2 * len(paths))


async def test_answers_are_taken_in_while_other_branches_work():
    shop, answered = Shop(TWO), anyio.Event()

    async def work(context: Context) -> str:
        await answered.wait()  # Until the agent is done, which nobody but this run can go on with.
        return "worked"

    flow = shop.flow()
    flow = Flow("shop", {**flow.plan.definitions, "beside": FunctionNode(work)})
    store, asked = MemoryStore(), 0
    async with flow.stream(store=store, run_id="r") as events:
        async for event in events:
            if isinstance(event, NodeRecorded) and type(event.record) is ApprovalRequested:
                asked += 1
                if asked == 2:  # The second answer comes while the agent is at work with the first one.
                    await answer(store, "r", "help:refund", "accept")
                    await answer(store, "r", "help:refund:2", "accept")
            if isinstance(event, NodeFinished) and event.node == "help":
                answered.set()
    assert events.run is not None
    assert (events.run.status, shop.done[0], {*shop.done[1:]}) == ("succeeded", "A-1", {("A-1", 12), ("B-2", 5)})
    assert len(shop.model.requests) == 2


async def test_a_call_that_was_made_before_its_node_failed_is_neither_asked_about_nor_made_again():
    shop = Shop()
    wish = ToolRequest("c", "refund", ONE[0][1])
    shop.model = ScriptedModel([wish, PermanentModelError("the vendor is gone"), "Done."])
    marked = tool(effect="external", approve=True, name="refund")(lambda_of(shop))
    node = AgentNode(Agent("help", "Help.", model=shop.model, tools=[marked]), prompt=lambda context: "Pay me back.")
    flow, store = Flow("shop", {"help": node}), MemoryStore()
    await flow.run(store=store, run_id="r")
    changed = {"order": "A-1", "amount": 3}
    run = await flow.approve("r", "help:refund", "accept", store=store, form=changed)
    assert (run.status, shop.done) == ("failed", [("A-1", 3)])
    run = await flow.resume("r", store=store)
    assert (run.status, shop.done, len(records(run, ApprovalRequested))) == ("succeeded", [("A-1", 3)], 1)


def lambda_of(shop: Shop) -> Any:
    def refund(order: str, amount: int) -> str:
        return shop.refund(order, amount)

    return refund


async def test_only_the_agents_approvers_may_consent():
    shop = Shop(ONE)
    store, _ = await parked(shop, approvers=["ann", "finance"])
    assert list(run_questions(store)[0].approvers) == ["ann", "finance"]
    with pytest.raises(ApprovalError, match="eve"):
        await answer(store, "r", "help:refund", "accept", by="eve")
    run = await shop.flow(approvers=["ann", "finance"]).approve("r", "help:refund", "accept", store=store, by="ann")
    assert (run.status, shop.done) == ("succeeded", [("A-1", 12)])
    with pytest.raises(DefinitionError, match="approvers must be a list, not 'ann'"):
        shop.agent(approvers="ann")


async def test_a_consent_holds_for_one_run_and_is_never_taken_from_a_cache():
    store = MemoryStore()
    for _ in range(2):
        shop = Shop(ONE)
        node = AgentNode(shop.agent(), prompt=lambda context: "Pay me back.", cache=True, fingerprint=lambda: "shop")
        run = await Flow("shop", {"help": node}).run(store=store)
        assert run.status == "waiting"
        run = await Flow("shop", {"help": node}).approve(run.id, None, "accept", store=store)
        assert (run.status, shop.done) == ("succeeded", [("A-1", 12)])


async def test_what_the_decorator_says_holds_without_the_agents_word():
    done: list[str] = []

    @tool(approve=True)
    def erase(name: str) -> None:
        done.append(name)

    model = ScriptedModel([ToolRequest("c", "erase", '{"name": "x"}'), "Gone."])
    flow, store = Flow("f", {"a": Agent("a", "Help.", model=model, tools=[erase])}), MemoryStore()
    run = await flow.run({"text": "go"}, store=store, run_id="r")
    assert (run.status, done) == ("waiting", [])
    run = await flow.approve("r", None, "accept", store=store)
    assert (run.status, done) == ("succeeded", ["x"])


async def test_an_agent_that_stands_alone_says_that_it_cannot_wait():
    shop = Shop(ONE)
    with pytest.raises(RunError, match="the call of tool 'refund' waits for a person's consent, and only a flow's run"):
        await shop.agent().run_async("Pay me back.")
    assert shop.done == []


def test_an_unknown_tool_to_approve_is_refused_with_the_nearest_one():
    with pytest.raises(DefinitionError, match="no tool 'refnd', which `approve` names; did you mean 'refund'"):
        Shop().agent(approve=["refnd"])
    with pytest.raises(DefinitionError, match="approve must be a list, not 'refund'"):
        Shop().agent(approve="refund")


def offered(rules: ApprovalRules, **tools: Any) -> dict[str, bool | None]:
    async def run(arguments: Any) -> ToolResult:
        return ToolResult("")

    made = [Tool(name, "", {}, run, **settings) for name, settings in tools.items()]
    return {each.name: each.approve for each in Offer([ToolSet("all", "", made)], rules)}


def test_names_patterns_and_effects_decide_who_is_asked_about():
    external: dict[str, Any] = {"effect": "external"}
    crm = {"crm_drop": {"qualified": "crm.drop"}, "crm_find": {"qualified": "crm.find"}}
    assert offered(ApprovalRules(("crm.drop",)), **crm) == {"crm_drop": True, "crm_find": False}
    assert offered(ApprovalRules(("crm.*",)), **crm, other={}) == {"crm_drop": True, "crm_find": True, "other": False}
    assert offered(ApprovalRules(external=True), a=external, b={}, c=external | {"approve": False}) == {
        "a": True,
        "b": False,
        "c": False,
    }
    assert offered(ApprovalRules(("a",)), a={"approve": False}) == {"a": True}  # The nearer word counts.


# --- Nodes that are one call of a tool


def pay(order: str) -> str:
    DEEDS.append(order)
    return f"paid {order}"


DEEDS: list[str] = []


def paying(**settings: Any) -> Flow:
    DEEDS.clear()
    marked = tool(approve=True, effect="external")(replaced(pay))
    return Flow("f", {"pay": ToolNode(marked, arguments={"order": lambda context: "A-1"}, **settings)})


def replaced(function: Any) -> Any:
    def pay(order: str) -> str:
        return function(order)

    return pay


async def test_a_node_that_is_a_call_waits_too_and_its_arguments_may_be_changed():
    flow, store = paying(), MemoryStore()
    assert (await flow.run(store=store, run_id="r")).status == "waiting"
    run = await flow.approve("r", "pay:pay", "accept", store=store, form={"order": "B-2"})
    assert (run.outputs["pay"], DEEDS) == ("paid B-2", ["B-2"])
    assert [each.started for each in records(run, ToolCall)] == [True, False]


@pytest.mark.parametrize("by", ["tool node", "agent"])
async def test_a_call_whose_code_was_edited_since_it_was_asked_about_is_not_made_unasked(by: str):
    def flow(function: Any) -> Flow:
        marked = tool(approve=True, effect="external", name="pay")(function)
        if by == "tool node":
            arguments = {"order": lambda context: "A-1"}
            return Flow("f", {"pay": ToolNode(marked, arguments=arguments, fingerprint=lambda: "f")})
        model = ScriptedModel([Reply("", tool_calls=(ToolRequest("c", "pay", '{"order": "A-1"}'),)), "Done."])
        agent = Agent("pay", "Pay.", model=model, tools=[marked])
        return Flow("f", {"pay": AgentNode(agent, prompt=lambda context: "Pay.", fingerprint=lambda: "f")})

    def pay_twice(order: str) -> str:
        DEEDS.append(f"{order} twice")
        return "paid twice"

    store, edited = MemoryStore(), flow(pay_twice)
    DEEDS.clear()
    await flow(pay).run(store=store, run_id="r")
    with pytest.raises(FlowChangedError, match="changed nodes: pay"):
        await edited.approve("r", "pay:pay", "accept", store=store)
    assert DEEDS == []


async def test_a_node_whose_call_is_refused_fails_with_the_persons_word():
    flow, store = paying(), MemoryStore()
    await flow.run(store=store, run_id="r")
    run = await flow.approve("r", None, "refuse", store=store, comment="Not today.")
    assert (run.status, DEEDS) == ("failed", [])
    assert run.error is not None
    assert run.error.message.endswith("Their word: Not today.")


async def test_a_refused_call_is_not_tried_again():
    marked = tool(approve=True)(replaced(pay))
    node = ToolNode(marked, arguments={"order": lambda context: "A-1"}, retry=RetryPolicy(3, initial=0.0))
    flow, store = Flow("f", {"pay": node}), MemoryStore()
    await flow.run(store=store, run_id="r")
    run = await flow.approve("r", None, "refuse", store=store)
    assert (run.status, len(records(run, ApprovalRequested))) == ("failed", 1)


async def test_the_projects_default_asks_before_an_external_node():
    external = tool(effect="external")(replaced(pay))
    arguments: Any = {"order": lambda context: "A-1"}
    asked = Flow("f", {"pay": ToolNode(external, arguments=arguments, approve_external=True)})
    assert (await asked.run(store=MemoryStore())).status == "waiting"
    exempt = tool(effect="external", approve=False)(replaced(pay))
    free = Flow("f", {"pay": ToolNode(exempt, arguments=arguments, approve_external=True)})
    assert (await free.run(store=MemoryStore())).status == "succeeded"
    with pytest.raises(DefinitionError, match="takes no `cache`"):
        ToolNode(tool(approve=True)(replaced(pay)), arguments=arguments, cache=True)
