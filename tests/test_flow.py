"""A flow as its users in Python see it: built, run, streamed, resumed, shared."""

from __future__ import annotations

import asyncio
import enum
from pathlib import Path
from typing import Any, Literal, cast, get_overloads

import anyio
import pytest

import flowengine
from flowengine import ApprovalNode, ConditionNode, Context, Flow, FunctionNode, LLMResult, NodeResult, RoutingNode
from flowengine.agents.agent import Agent
from flowengine.agents.evaluation import EvaluationAgent
from flowengine.agents.routing import RoutingAgent
from flowengine.core.records import Retry
from flowengine.engine.events import NodeFinished, NodeRecorded, NodeStarted, RunFinished, RunStarted
from flowengine.engine.merging import StateKey
from flowengine.errors import (
    DefinitionError,
    FlowChangedError,
    FlowError,
    InputError,
    NodeError,
    RunError,
    RunNotFoundError,
)
from flowengine.flowfile.compile.scope import template
from flowengine.journal.memory import MemoryStore
from flowengine.models.scripted import ScriptedModel
from flowengine.nodes.map import MapNode
from flowengine.nodes.node import NodeLimits, RetryPolicy, RunLimits
from flowengine.nodes.run_inputs import InputField

pytestmark = pytest.mark.anyio


async def add(context: Context) -> NodeResult:
    return NodeResult(output=1, state={"counter": context.shared_state["counter"] + 1})


async def name(context: Context) -> str:
    return str(context.current_node)


def result(context: Context) -> Any:
    return context.result


async def breaks(context: Context) -> None:
    raise ValueError("broken")


def chain(**nodes: Any) -> dict[str, FunctionNode]:
    """Function nodes, each after the one before."""
    names = list(nodes)
    return {each: FunctionNode(nodes[each], needs=names[at - 1 : at] if at else []) for at, each in enumerate(names)}


# --- building ------------------------------------------------------------------------------------------


def test_the_public_names_are_those_that_are_promised():
    promised = {
        *("Flow", "FlowBuilder", "RunLimits", "NodeLimits", "Budget", "InputField", "StateKey", "RetryPolicy", "Run"),
        *("Runs", "RunRecord", "RowResult", "Question"),
        *("FlowNode", "NodeSettings", "FunctionNode", "ConditionNode", "AgentNode", "RoutingNode", "EvaluationNode"),
        *("LoopNode", "MapNode", "SubflowNode", "ApprovalNode"),
        *("Agent", "RoutingAgent", "EvaluationAgent", "get_llm"),
        *("Model", "Request", "Reply", "TokenUsage", "Message", "ToolRequest"),
        *("tool", "Tool", "ToolResult", "ToolSet", "McpServer"),
        *("ContextProvider", "ContextProviderFactory", "ConversationHistoryProvider", "FixedFileProvider"),
        *("SourceCodeProvider", "ContextCompressorProvider", "ContextFilterProvider", "LongTermMemoryProvider"),
        *(
            "CustomDataProvider",
            "RetrievalProvider",
            "RetrievalContext",
            "Fragment",
            "gateway_of",
            "Gateway",
            "DirectGateway",
        ),
        *("TypedContext", "ContextManager", "ToolCallResult", "SkillStore"),
        *("Context", "NodeResult", "FileValue", "LLMResult", "RoutingResult", "EvaluationResult"),
        *("RunStarted", "RunResumed", "RunFinished", "NodeStarted", "NodeRecorded", "NodeFinished", "NodeFailed"),
        *("NodeSkipped", "NodeCancelled", "TokenStreamed", "ErrorInfo", "Event"),
        *("FlowEngineError", "DefinitionError", "FlowError", "RunError"),
        *("ModelError", "TransientModelError", "PermanentModelError"),
    }
    assert set(flowengine.__all__) == promised
    assert all(getattr(flowengine, each) is not None for each in flowengine.__all__)


def test_an_unknown_target_is_refused_with_the_nearest_name():
    nodes = {"pick": ConditionNode(lambda context: True, "publsh"), "publish": FunctionNode(name)}
    with pytest.raises(FlowError, match="'publsh'; did you mean 'publish'"):
        Flow("f", nodes)


def test_a_cycle_is_spelled_out():
    nodes = {each: FunctionNode(name, needs=before) for each, before in {"a": "c", "b": "a", "c": "b"}.items()}
    with pytest.raises(FlowError, match="a → b → c → a"):
        Flow("f", nodes)


def test_a_flow_without_nodes_is_refused():
    with pytest.raises(FlowError, match="no nodes"):
        Flow("f", {})


def test_what_is_no_node_is_refused_by_its_kind():
    with pytest.raises(DefinitionError, match="found function; wrap a function in FunctionNode"):
        Flow("f", {"a": name})  # type: ignore[dict-item]


@pytest.mark.parametrize("wrong", ["", "  ", "a\nb", "a\x00b", "\u2028"])
def test_a_flows_name_is_one_line_that_can_be_read(wrong: str):
    with pytest.raises(DefinitionError, match="a flow's name is one line that can be read, not "):
        Flow(wrong, {"a": FunctionNode(name)})
    assert Flow("Résumé of the day", {"a": FunctionNode(name)}).name == "Résumé of the day"


def test_a_lambda_of_a_function_node_takes_a_context_for_a_type_checker():
    first, *_ = get_overloads(FunctionNode.__init__)
    assert first.__annotations__ | {"settings": ""} == {
        "function": "Callable[[Context], Any]",
        "arguments": "None",
        "settings": "",
        "return": "None",
    }


@pytest.mark.parametrize("key", ["_last_prompt", "_last_generation"])
def test_a_state_key_of_the_engine_cannot_be_declared(key: str):
    with pytest.raises(FlowError, match="belongs to the engine"):
        Flow("f", {"a": FunctionNode(name)}, shared_state={key: 0})


async def test_a_subclass_of_flow_is_a_flow():
    class Greeting(Flow):
        def __init__(self) -> None:
            super().__init__("greeting", {"greet": FunctionNode(name)})

    assert (await Greeting().run()).outputs == {"greet": "greet"}


# --- running --------------------------------------------------------------------------------------------


async def test_a_run_tells_its_status_outputs_nodes_and_state():
    flow = Flow("f", chain(a=add, b=add), shared_state={"counter": 0})
    run = await flow.run()
    assert (run.status, dict(run.outputs), dict(run.shared_state)) == ("succeeded", {"b": 1}, {"counter": 2})
    assert run.nodes["a"].output == 1
    assert run.nodes["a"].status == "succeeded"
    assert len(run.id) == 12
    with pytest.raises(KeyError, match="no node 'aa'; did you mean 'a'"):
        run.nodes["aa"]


def test_run_sync_works_without_and_within_an_event_loop():
    flow = Flow("f", {"a": FunctionNode(name)})
    assert flow.run_sync().outputs == {"a": "a"}

    async def inside() -> Any:
        return flow.run_sync().outputs

    assert asyncio.run(inside()) == {"a": "a"}


def test_a_script_answers_and_resumes_without_an_event_loop():
    ask = ApprovalNode(lambda context: "Publish?", {"yes": "publish", "no": None})
    flow, store = Flow("f", {"ask": ask, "publish": FunctionNode(name)}), MemoryStore()
    waiting = flow.run_sync(store=store, run_id="r")
    assert waiting.status == "waiting"
    assert flow.resume_sync("r", store=store).status == "waiting"
    assert flow.approve_sync("r", "ask", "yes", store=store, comment="Go").outputs == {"publish": "publish"}


async def test_one_flow_serves_many_runs_at_once():
    async def count(context: Context) -> NodeResult:
        await anyio.sleep(0.001)
        return NodeResult(state={"counter": context.shared_state["counter"] + context.inputs["step"]})

    flow = Flow("f", chain(a=count, b=count, c=count), shared_state={"counter": 0})
    totals: dict[int, int] = {}

    async def one(step: int) -> None:
        totals[step] = (await flow.run({"step": step})).shared_state["counter"]

    async with anyio.create_task_group() as tasks:
        for step in range(50):
            tasks.start_soon(one, step)
    assert totals == {step: 3 * step for step in range(50)}


async def test_a_plain_function_runs_in_a_thread_and_may_return_a_value_or_a_result():
    import threading

    def value(context: Context) -> str:
        return threading.current_thread().name

    def result(context: Context) -> NodeResult:
        return NodeResult(output=context.result, state={"seen": True})

    run = await Flow("f", chain(a=value, b=result), shared_state={"seen": False}).run()
    assert run.outputs["b"] != threading.current_thread().name
    assert run.shared_state["seen"] is True


async def test_a_failed_node_fails_the_run_and_is_named():
    run = await Flow("f", chain(a=name, b=breaks, c=name)).run()
    assert (run.status, run.failed_node, run.nodes["c"].cause) == ("failed", "b", "upstream_failed")
    with pytest.raises(NodeError, match="node 'b': ValueError: broken"):
        run.raise_for_status()


async def test_a_run_stops_at_its_time_limit_and_says_so():
    async def slow(context: Context) -> None:
        await anyio.sleep(5)

    run = await Flow("f", {"a": FunctionNode(slow)}, limits=RunLimits(timeout=0.05)).run()
    assert run.status == "failed"
    assert run.error is not None
    assert run.error.type == "LimitError"
    assert "limit of 0.05 s" in run.error.message
    assert run.nodes["a"].status == "cancelled"


async def test_inputs_are_checked_before_anything_runs():
    ran: list[str] = []

    async def notes(context: Context) -> None:
        ran.append("a")

    inputs = {
        "topic": InputField("string"),
        "size": InputField("integer", default=3),
        "kind": InputField("string", enum=["a"]),
    }
    flow = Flow("f", {"a": FunctionNode(notes)}, inputs=inputs)
    with pytest.raises(InputError) as caught:
        await flow.run({"topik": "x", "size": True, "kind": "b"})
    told = str(caught.value)
    assert "unknown input 'topik'; did you mean 'topic'" in told
    assert "missing input 'topic'" in told
    assert "input 'size': expected integer, found bool True" in told
    assert "input 'kind': expected one of a, not 'b'" in told
    assert ran == []


async def test_inputs_may_have_a_json_schema():
    schema = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
    flow = Flow("f", {"a": FunctionNode(name)}, inputs={"order": InputField(schema=schema)})
    with pytest.raises(InputError, match="'n' is a required property"):
        await flow.run({"order": {}})
    assert (await flow.run({"order": {"n": 1}})).status == "succeeded"


@pytest.mark.parametrize("name", [1, None, ("a",)])
def test_an_input_that_is_not_named_by_text_is_refused(name: Any) -> None:
    for declared in (None, {"n": InputField("string", default="")}):
        with pytest.raises(InputError):
            Flow("f", {"a": FunctionNode(lambda: 1)}, inputs=declared).run_sync({name: "x"})


async def test_outputs_are_functions_of_the_final_context():
    def both(context: Context) -> str:
        return context.prev_outputs["a"] + context.prev_outputs["b"]

    run = await Flow("f", {"a": FunctionNode(name), "b": FunctionNode(name)}, outputs={"both": both}).run()
    assert run.outputs == {"both": "ab"}


async def test_outputs_that_fail_fail_the_run():
    run = await Flow("f", {"a": FunctionNode(name)}, outputs={"x": lambda context: 1 / 0}).run()
    assert run.status == "failed"
    assert run.error is not None
    assert run.error.type == "ZeroDivisionError"


# --- conditions -------------------------------------------------------------------------------------------


class Way(enum.Enum):
    LEFT = "x"
    RIGHT = "y"


async def later(context: Context) -> Way:
    return Way.RIGHT


@pytest.mark.parametrize(
    ("condition", "taken"),
    [
        (ConditionNode(lambda context: True, "left", "right"), "left"),
        (ConditionNode(lambda context: False, "left", "right"), "right"),
        (ConditionNode(lambda context: "x", {"x": "left", "y": "right"}), "left"),
        (ConditionNode(lambda context: Way.RIGHT, {"x": "left", "y": "right"}), "right"),
        (ConditionNode(later, {"x": "left", "y": "right"}), "right"),
        (ConditionNode(lambda context: True, {True: "left", False: "right"}), "left"),
        (ConditionNode(lambda context: "z", {"x": "left"}, "right"), "right"),
    ],
)
async def test_a_condition_takes_the_way_it_answers(condition: ConditionNode, taken: str):
    run = await Flow("f", {"pick": condition, "left": FunctionNode(name), "right": FunctionNode(name)}).run()
    assert [each for each in ("left", "right") if run.nodes[each].status == "succeeded"] == [taken]


@pytest.mark.parametrize(
    ("condition", "message"),
    [
        (ConditionNode(lambda context: "false", "left"), "must give true or false, found str 'false'"),
        (ConditionNode(lambda context: None, "left"), "must give true or false, found None"),
        (ConditionNode(lambda context: "z", {"x": "left"}), "answered 'z'; allowed are: x"),
        (ConditionNode(lambda context: 1 / 0, "left"), "ZeroDivisionError"),
    ],
)
async def test_a_condition_that_gives_no_answer_fails_its_node(condition: ConditionNode, message: str):
    run = await Flow("f", {"pick": condition, "left": FunctionNode(name)}).run()
    assert run.failed_node == "pick"
    assert run.error is not None
    assert message in run.error.message


# --- policies ----------------------------------------------------------------------------------------------


async def test_a_node_is_tried_again_and_each_failure_is_told():
    tries: list[int] = []

    async def third_time(context: Context) -> int:
        tries.append(1)
        if len(tries) < 3:
            raise ValueError("not yet")
        return len(tries)

    node = FunctionNode(third_time, retry=RetryPolicy(attempts=3, initial=0.001))
    run = await Flow("f", {"a": node}).run()
    assert run.outputs == {"a": 3}
    records = [event.record for event in run.events if isinstance(event, NodeRecorded)]
    assert [(each.attempt, each.error) for each in records] == [(1, "ValueError: not yet"), (2, "ValueError: not yet")]


async def test_after_the_last_attempt_the_failure_stands():
    node = FunctionNode(breaks, retry=RetryPolicy(attempts=2, backoff="fixed", initial=0.001))
    run = await Flow("f", {"a": node}).run()
    assert run.error is not None
    assert run.error.message == "ValueError: broken"


@pytest.mark.parametrize(
    ("backoff", "initial", "delays"),
    [
        ("fixed", 0.001, [0.001, 0.001, 0.001]),
        ("fixed", 0.004, [0.003, 0.003, 0.003]),
        ("exponential", 0.001, [0.001, 0.002, 0.003]),
    ],
)
async def test_without_jitter_the_pauses_are_those_of_the_policy(
    backoff: Literal["fixed", "exponential"], initial: float, delays: list[float]
):
    async def breaks(context: Context) -> None:
        raise ValueError

    policy = RetryPolicy(attempts=4, backoff=backoff, initial=initial, max=0.003, jitter=False)
    run = await Flow("f", {"a": FunctionNode(breaks, retry=policy)}).run()
    assert [each.record.delay for each in run.events if type(getattr(each, "record", None)) is Retry] == delays


async def test_only_what_the_retry_names_is_tried_again():
    tries: list[int] = []

    async def counts(context: Context) -> None:
        tries.append(1)
        raise ValueError

    await Flow("f", {"a": FunctionNode(counts, retry=RetryPolicy(attempts=3, on=("invalid_output",)))}).run()
    assert len(tries) == 1


@pytest.mark.parametrize("retry", [None, RetryPolicy(attempts=2, initial=0.001)])
async def test_a_timeout_cancels_the_attempt_and_its_clean_up_runs(retry: RetryPolicy | None):
    cleaned: list[int] = []

    async def slow(context: Context) -> None:
        try:
            await anyio.sleep(5)
        finally:
            cleaned.append(1)

    run = await Flow("f", {"a": FunctionNode(slow, timeout=0.02, retry=retry)}).run()
    assert run.error is not None
    assert "took longer than its timeout of 0.02 s" in run.error.message
    assert len(cleaned) == (2 if retry else 1)


BURNS = template("{% for a in range(9000) %}{{ a }}{{ a }}{% endfor %}")


def burning(context: Context) -> list[str]:
    """Two hundred templates one after the other, each within its fuel, and nothing that suspends."""
    return [BURNS(context) for _ in range(200)]


async def given(context: Context) -> Any:
    return burning(context)


async def test_a_timeout_ends_templates_that_never_suspend():
    run = await Flow("f", {"a": FunctionNode(given, timeout=0.05)}).run()
    assert run.error is not None
    assert "took longer than its timeout of 0.05 s" in run.error.message


async def test_a_limit_of_time_ends_templates_that_never_suspend():
    limited = NodeLimits(timeout=0.05)
    for node in (FunctionNode(given), FunctionNode(given, limits=limited)):
        run = await Flow("f", {"a": node}).run(limits=RunLimits() if node.limits else RunLimits(timeout=0.05))
        assert run.error is not None
        assert "took longer than its limit of" in run.error.message


async def test_a_timeout_ends_what_a_map_works_out_for_its_items():
    body = {"each": FunctionNode(name)}
    node = MapNode(body, over=lambda context: [1, 2], result=burning, on_item_error="collect", timeout=0.05)
    run = await Flow("f", {"m": node}).run()
    assert run.error is not None
    assert "took longer than its timeout of 0.05 s" in run.error.message


async def test_when_and_set_see_the_context_and_the_output():
    nodes = {
        "a": FunctionNode(name, set={"seen": lambda context, output: [output]}),
        "b": FunctionNode(name, needs="a", when=lambda context: context.shared_state["seen"] == ["x"]),
        "c": FunctionNode(name, needs="a", when=lambda context: context.shared_state["seen"] == ["a"]),
    }
    run = await Flow("f", nodes, shared_state={"seen": StateKey([], "append")}).run()
    assert run.nodes["b"].cause == "condition_false"
    assert run.nodes["c"].status == "succeeded"


async def test_on_error_leads_to_the_handler_with_the_message():
    async def tells(context: Context) -> str | None:
        return context.error

    nodes = {"a": FunctionNode(breaks, on_error="handler"), "handler": FunctionNode(tells)}
    run = await Flow("f", nodes).run()
    assert run.status == "succeeded"
    assert run.outputs == {"handler": "ValueError: broken"}


# --- agents as nodes ----------------------------------------------------------------------------------------


async def test_agents_in_a_flow_give_what_they_give_alone():
    model = ScriptedModel(lambda request: f"on {request.messages[-1].content}")
    agent = Agent("writer", "Write.", model=model)
    alone = await agent.run_async("tea")
    run = await Flow("f", {"write": agent}).run({"topic": "tea"})
    assert run.nodes["write"].result == alone.result
    assert run.context.shared_state["_last_prompt"] == alone.shared_state["_last_prompt"]


async def test_generation_routing_and_evaluation_as_separate_nodes():
    answers: list[Any] = [
        "a text",
        {"score": 0.9, "criteria_scores": {"short": 0.9}, "feedback": "fine", "suggestions": []},
        {"next_route": "technical", "confidence": 0.8, "reasoning": "bits"},
        "done",
    ]
    model = ScriptedModel(answers)
    flow = Flow.sequential(
        {
            "write": Agent("write", "Write.", model=model),
            "judge": EvaluationAgent("judge", evaluation_criteria={"short": "It is short"}, model=model),
            "route": RoutingNode(
                RoutingAgent("route", "Which?", {"technical": "bits", "other": "rest"}, model=model),
                {"technical": None, "other": None},
            ),
            "end": FunctionNode(result),
        }
    )
    run = await flow.run({"topic": "x"})
    assert run.evaluation_result is not None
    assert run.routing_result is not None
    assert (run.evaluation_result.score, run.routing_result.next_route) == (0.9, "technical")
    assert isinstance(run.outputs["end"], LLMResult)
    assert str(run.outputs["end"]) == "a text"
    assert run.shared_state["_last_generation"] == "a text"


async def test_a_first_agent_is_asked_the_inputs():
    seen: list[str] = []

    def answer(request: Any) -> str:
        seen.append(request.messages[-1].content)
        return "ok"

    flow = Flow("f", {"a": Agent("a", "Say.", model=ScriptedModel(answer))})
    await flow.run({"one": "tea"})
    await flow.run({"one": "tea", "two": 2})
    assert seen == ["User input: tea", 'User input: {"one": "tea", "two": 2}']


# --- sequential ------------------------------------------------------------------------------------------------


def route_to(label: str) -> dict[str, Any]:
    return {"next_route": label, "confidence": 0.9, "reasoning": "so"}


@pytest.mark.parametrize("chosen", ["next_step", "stop"])
async def test_a_route_of_an_agent_leads_to_the_step_of_its_name(chosen: str):
    model = ScriptedModel(["a text", route_to(chosen), "next", "stop"])

    class Custom(Flow):
        def __init__(self) -> None:
            routes = {"next_step": "go on", "stop": "enough"}
            steps = {
                "main": Agent("main", "Write.", model=model),
                "routing": RoutingAgent("routing", "Enough?", routes, model=model),
                "next_step": FunctionNode(name),
                "stop": FunctionNode(name),
            }
            super().__init__("custom", steps=steps)

    run = await Custom().run({"topic": "tea"})
    other = "stop" if chosen == "next_step" else "next_step"
    assert (run.nodes[chosen].status, run.nodes[other].cause) == ("succeeded", "not_selected")
    taken = {(edge.source, edge.target) for edge in run.picture().edges if edge.state == "taken"}
    assert taken == {("main", "routing"), ("routing", chosen)}


async def test_a_generating_agent_with_routes_leads_to_steps_too():
    model = ScriptedModel(["a text", route_to("short")])
    writer = Agent("w", "Write.", routing_instruction="How long?", routes={"short": "", "long": ""}, model=model)
    flow = Flow("f", {"write": writer, "short": FunctionNode(name), "long": FunctionNode(name)})
    run = await flow.run({"topic": "tea"})
    assert (run.nodes["short"].status, run.nodes["long"].cause) == ("succeeded", "not_selected")


def test_a_route_that_leads_to_no_step_is_refused_with_the_right_form():
    router = RoutingAgent("r", "Which?", {"next_stop": "", "stop": ""}, model=ScriptedModel([]))
    steps = {"routing": router, "next_step": FunctionNode(name), "stop": FunctionNode(name)}
    form = r"RoutingNode\(agent, \{'next_stop': None, 'stop': 'stop'\}\)"
    with pytest.raises(DefinitionError, match=f"'routing' leads to no step; did you mean 'next_step'.*{form}"):
        Flow.sequential(steps)
    with pytest.raises(DefinitionError, match=form):
        Flow("f", steps)


def test_nodes_without_a_name_and_nodes_beside_steps_are_refused_with_the_right_form():
    with pytest.raises(DefinitionError, match=r"Flow\('triage', steps=\{...\}\), or Flow.sequential"):
        Flow(cast(Any, {"a": FunctionNode(name)}))
    with pytest.raises(DefinitionError, match="either `nodes`, a graph, or `steps`"):
        Flow("f", {"a": FunctionNode(name)}, steps={"a": FunctionNode(name)})


async def test_each_step_follows_the_one_before_unless_a_route_leads_to_it():
    def after(context: Context) -> str:
        return f"after {context.result}"

    steps = {
        "analyze": FunctionNode(name),
        "route": ConditionNode(lambda context: "y", {"x": "left", "y": "right"}),
        "left": FunctionNode(name),
        "right": FunctionNode(name),
        "end": FunctionNode(after),
    }
    flow = Flow.sequential(steps)
    run = await flow.run()
    assert run.outputs == {"end": "after right"}
    assert run.nodes["left"].cause == "not_selected"
    assert [(edge.source, edge.target, edge.route) for edge in flow.plan.graph.edges] == [
        ("analyze", "route", None),
        ("route", "left", "x"),
        ("route", "right", "y"),
        ("left", "end", None),
        ("right", "end", None),
    ]
    assert steps["end"].needs == (), "the caller's nodes are left as they are"


# --- streaming ------------------------------------------------------------------------------------------------


async def test_a_stream_yields_the_journals_events_as_they_happen():
    flow = Flow("f", chain(a=name, b=name))
    async with flow.stream() as events:
        kinds = [type(event) async for event in events]
    assert kinds == [RunStarted, NodeStarted, NodeFinished, NodeStarted, NodeFinished, RunFinished]
    assert events.run is not None
    assert events.run.status == "succeeded"


async def test_leaving_a_stream_early_cancels_the_run():
    cleaned: list[int] = []

    async def hangs(context: Context) -> None:
        try:
            await anyio.sleep_forever()
        finally:
            cleaned.append(1)

    store = MemoryStore()
    with anyio.fail_after(60):
        async with Flow("f", {"a": FunctionNode(hangs)}).stream(store=store, run_id="early") as events:
            async for event in events:
                if isinstance(event, NodeStarted):
                    await anyio.lowlevel.checkpoint()
                    break
    assert cleaned == [1]
    assert store.list()[0].status == "cancelled"
    with pytest.raises(RunError, match="the block of this stream was left: its events are read inside of it"):
        await anext(events)


async def test_a_stream_raises_what_keeps_the_run_from_starting():
    flow = Flow("f", {"a": FunctionNode(name)}, inputs={"topic": "string"})

    async def streamed() -> None:
        async with flow.stream() as events:
            async for _ in events:
                pass

    with pytest.raises(InputError, match="missing input 'topic'"):
        await streamed()


# --- resuming ---------------------------------------------------------------------------------------------------


async def test_a_failed_run_goes_on_where_it_failed(tmp_path: Path):
    ran: list[str] = []
    broken = True

    async def notes(context: Context) -> str:
        ran.append(str(context.current_node))
        if broken and context.current_node == "b":
            raise ValueError("not yet")
        return str(context.current_node)

    flow = Flow("f", chain(a=notes, b=notes, c=notes))
    store = f"sqlite:///{tmp_path}/runs.db"
    run = await flow.run(store=store)
    assert run.failed_node == "b"
    broken = False
    again = await flow.resume(run.id, store=store)
    assert again.status == "succeeded"
    assert again.id == run.id
    assert ran == ["a", "b", "b", "c"]
    assert (await flow.resume(run.id[:4], store=store)).outputs == {"c": "c"}
    assert ran == ["a", "b", "b", "c"]
    assert [type(event).__name__ for event in again.events].count("RunResumed") == 1


async def test_a_cancelled_run_can_be_resumed():
    ran: list[str] = []
    begun = anyio.Event()

    async def first(context: Context) -> None:
        ran.append("a")

    async def second(context: Context) -> None:
        ran.append("b")
        if len(ran) == 2:
            begun.set()
            await anyio.sleep_forever()

    flow, store = Flow("f", chain(a=first, b=second)), MemoryStore()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(lambda: flow.run(store=store, run_id="r"))
        await begun.wait()
        tasks.cancel_scope.cancel()
    assert store.list()[0].status == "cancelled"
    assert (await flow.resume("r", store=store)).status == "succeeded"
    assert ran == ["a", "b", "b"]


async def test_a_flow_that_was_edited_since_is_refused_unless_allowed():
    store = MemoryStore()
    run = await Flow("f", chain(a=name, b=breaks)).run(store=store)
    edited = Flow("f", chain(a=name, b=name, c=name))
    with pytest.raises(FlowChangedError, match="changed nodes: b, c") as caught:
        await edited.resume(run.id, store=store)
    assert caught.value.nodes == ("b", "c")
    assert (await edited.resume(run.id, store=store, allow_changed=True)).outputs == {"c": "c"}


async def test_resuming_what_is_not_there_says_so():
    with pytest.raises(RunNotFoundError):
        await Flow("f", chain(a=name)).resume("nothing", store=MemoryStore())


def test_an_error_of_a_run_is_an_error_of_flowengine():
    assert issubclass(NodeError, RunError)


@pytest.mark.parametrize("answer", ["caf\u00e9", "cafe\u0301"])
async def test_a_conditions_answer_may_be_composed_or_decomposed(answer: str):
    nodes = {"a": ConditionNode(lambda context: answer, {"caf\u00e9": "b"}), "b": FunctionNode(name)}
    run = await Flow("f", nodes).run()
    assert (run.nodes["a"].output, run.nodes["b"].status) == ("caf\u00e9", "succeeded")


@pytest.mark.parametrize("wrong", ["m[0].x", "a.b", "", "a]", "a\nb", 3, b"a", None])
def test_an_id_that_reads_as_another_nodes_path_is_refused(wrong: Any):
    nodes = {wrong: FunctionNode(name)}
    with pytest.raises(FlowError, match="is not a valid id of a node"):
        Flow("f", nodes)
    with pytest.raises(FlowError, match="is not a valid id of a node"):
        MapNode(nodes, over=lambda context: [1])


@pytest.mark.parametrize(
    ("node", "state", "told"),
    [(5, None, "a node is named by text, not int"), ("a", [1], "the state of a fork is a mapping")],
)
async def test_a_fork_refuses_a_node_or_a_state_of_another_kind(node: Any, state: Any, told: str):
    store = MemoryStore()
    flow = Flow("f", {"a": FunctionNode(lambda context: 1)})
    run = await flow.run(store=store)
    with pytest.raises(InputError, match=told):
        await flow.fork(run.id, node, store=store, state=state)
