"""The tool loop: what a model asks for runs, what went wrong is told to it, and in the end it answers."""

from __future__ import annotations

import json
import threading
from collections.abc import Sequence
from typing import Any

import anyio
import pytest
from pydantic import BaseModel

from flowengine.agents.agent import Agent
from flowengine.agents.evaluation import EvaluationAgent
from flowengine.agents.routing import RoutingAgent
from flowengine.agents.standalone import DirectGateway
from flowengine.agents.tools.function_tool import tool, tool_of
from flowengine.agents.tools.tool import Tool, ToolResult
from flowengine.agents.tools.toolset import ToolSet
from flowengine.core.context import Context
from flowengine.core.records import ModelCall, Notice, ToolCall
from flowengine.errors import DefinitionError, GuardrailError, OutputError, RunError
from flowengine.journal.recorded_gateway import RecordedGateway
from flowengine.models.messages import Message, ToolRequest
from flowengine.models.model import Reply, Request
from flowengine.models.offline.model import OfflineModel
from flowengine.models.scripted import ScriptedModel
from tests.support.pace import done_within


def add(a: int, b: int) -> int:
    """Add two whole numbers."""
    return a + b


def wish(name: str, id: str = "1", **arguments: Any) -> ToolRequest:
    """A model's request for a tool."""
    return ToolRequest(id, name, json.dumps(arguments))


def asks(*wishes: ToolRequest, said: str = "") -> Reply:
    """An answer that asks for tools."""
    return Reply(said, wishes, finish_reason="tool_calls")


def chat(model: ScriptedModel, call: int = -1) -> list[tuple[str, str]]:
    """Role and text of each message of one request."""
    return [(each.role, each.content) for each in model.requests[call].messages]


def results(model: ScriptedModel, call: int = -1) -> list[str]:
    """What the model was told by tools, as of one request."""
    return [each.content for each in model.requests[call].messages if each.role == "tool"]


# --- from a request for a tool to the answer


async def test_a_tool_that_the_model_asks_for_runs_and_its_result_goes_back(recorder: Any) -> None:
    model = ScriptedModel([wish("add", a=1, b=2), "It is 3."])
    agent = Agent("sums", "Add.", model=model, tools=[add])
    context = await agent.run_async("1 + 2?", gateway=recorder)
    assert str(context.result) == "It is 3."
    assert model.requests[1].messages == (
        *model.requests[0].messages,
        Message("assistant", "", (ToolRequest("1", "add", '{"a": 1, "b": 2}'),)),
        Message("tool", "3", tool_call_id="1"),
    )
    assert [type(each) for each in recorder.records] == [ModelCall, ToolCall, ModelCall]
    (call,) = recorder.of(ToolCall)
    assert (call.name, call.arguments, call.result, call.is_error) == ("add", {"a": 1, "b": 2}, "3", False)
    assert [each.purpose for each in recorder.of(ModelCall)] == ["generation", "generation"]


async def test_every_request_offers_the_tools_in_the_order_given() -> None:
    def search(words: str) -> str:
        """Find pages."""
        return words

    both = ToolSet("both", "", [search, tool_of(add, name="plus")])
    model = ScriptedModel([wish("plus", a=1, b=1), "2"])
    await Agent("a", "", model=model, tools=[add, both]).run_async("x")
    for request in model.requests:
        assert [each["function"]["name"] for each in request.tools] == ["add", "search", "plus"]
    assert model.requests[0].tools[0]["function"]["description"] == "Add two whole numbers."


async def test_the_prompt_in_the_state_holds_nothing_of_the_tools() -> None:
    model = ScriptedModel([asks(wish("add", a=1, b=2), said="Let me see."), "3"])
    state = (await Agent("a", "Add.", model=model, tools=[add]).run_async("x")).shared_state
    assert state["_last_prompt"] == "Add.\n\nUser input: x"
    assert state["_last_generation"] == "3"


async def test_the_result_tells_how_many_tools_were_called_and_counts_no_round_as_an_attempt() -> None:
    model = ScriptedModel([asks(wish("add", a=1, b=2), wish("add", "2", a=3, b=4)), wish("add", a=5, b=6), "done"])
    result = (await Agent("a", "", model=model, tools=[add]).run_async("x")).result
    assert (result.metadata["tool_calls"], result.metadata["calls"], result.attempts) == (3, 1, 1)


async def test_an_inactive_set_is_not_offered() -> None:
    model = ScriptedModel(["No tools here."])
    await Agent("a", "", model=model, tools=[ToolSet("off", "", [add], active=False)]).run_async("x")
    assert model.requests[0].tools == ()


async def test_the_offline_model_answers_without_its_tools(recorder: Any) -> None:
    agent = Agent("a", "", model=OfflineModel(), tools=[add])
    assert "Tea" in str((await agent.run_async("Tea is hot.", gateway=recorder)).result)
    assert recorder.of(ToolCall) == []


def test_tools_work_from_synchronous_code() -> None:
    model = ScriptedModel([wish("add", a=1, b=2), "3"])
    assert str(Agent("a", "", model=model, tools=[add]).run("x").result) == "3"


# --- several calls of one answer


async def test_calls_of_one_answer_run_at_once_and_answer_in_the_order_of_the_requests(recorder: Any) -> None:
    running: list[str] = []
    most: list[int] = []
    ended: list[str] = []
    ends = {word: anyio.Event() for word in "abc"}
    ends["c"].set()
    before = {"c": "b", "b": "a"}

    async def look(word: str) -> str:
        running.append(word)
        most.append(len(running))
        while len(most) < 3:
            await anyio.lowlevel.checkpoint()
        await ends[word].wait()
        running.remove(word)
        ended.append(word)
        if word in before:
            ends[before[word]].set()
        return word.upper()

    model = ScriptedModel([asks(*(wish("look", word, word=word) for word in "abc")), "done"])
    await Agent("a", "", model=model, tools=[look]).run_async("x", gateway=recorder)
    assert max(most) == 3
    assert ended == ["c", "b", "a"]
    assert results(model) == ["A", "B", "C"]
    assert [each.tool_call_id for each in model.requests[1].messages if each.role == "tool"] == ["a", "b", "c"]


@pytest.mark.parametrize(("limit", "expected"), [(1, 1), (2, 2), (8, 5)])
async def test_no_more_run_at_once_than_allowed_and_they_begin_in_order(limit: int, expected: int) -> None:
    begun: list[int] = []
    running = 0
    most = 0

    async def look(number: int) -> int:
        nonlocal running, most
        begun.append(number)
        running += 1
        most = max(most, running)
        while most < expected:  # Until as many as may are at work at once.
            await anyio.lowlevel.checkpoint()
        await anyio.wait_all_tasks_blocked()
        running -= 1
        return number

    model = ScriptedModel([asks(*(wish("look", str(number), number=number) for number in range(5))), "done"])
    await Agent("a", "", model=model, tools=[look], max_parallel_tools=limit).run_async("x")
    assert most == expected
    assert begun == list(range(5))
    assert results(model) == ["0", "1", "2", "3", "4"]


async def test_one_failing_call_leaves_the_others_alone() -> None:
    def broken() -> None:
        raise LookupError("nothing there")

    model = ScriptedModel([asks(wish("broken"), wish("add", "2", a=1, b=2)), "done"])
    await Agent("a", "", model=model, tools=[broken, add]).run_async("x")
    assert results(model) == ["tool 'broken' failed: LookupError: nothing there", "3"]


# --- what goes wrong is told to the model


@pytest.mark.parametrize(
    ("request_", "told"),
    [
        (ToolRequest("1", "ad", "{}"), "there is no tool 'ad'; did you mean 'add'?"),
        (ToolRequest("1", "", "{}"), "there is no tool ''"),
        (ToolRequest("1", "multi_tool_use.parallel", "{}"), "there is no tool 'multi_tool_use.parallel'"),
        (ToolRequest("1", "add", '{"a": 1,'), "The arguments for the tool 'add' cannot be read as JSON"),
        (ToolRequest("1", "add", '{"a": NaN, "b": 1}'), "NaN is not JSON"),
        (ToolRequest("1", "add", '{"a": 1e999, "b": 1}'), "1e999 is beyond all numbers"),
        (ToolRequest("1", "add", '{"a": 1, "b": 2, "a": 3}'), "'a' stands twice in an object"),
        (ToolRequest("1", "add", "[1, 2]"), "a JSON object is expected; they were: [1, 2]"),
        (ToolRequest("1", "add", "[" * 100_000), "cannot be read as JSON"),
        (ToolRequest("1", "add", '{"a": ' + "9" * 10_000 + "}"), "cannot be read as JSON"),
        (ToolRequest("1", "add", "three and four"), "they were: three and four"),
        (ToolRequest("1", "add", '{"a": 1}'), "'b' is missing"),
        (ToolRequest("1", "add", '{"a": 1, "b": 2, "c": 3}'), "'c' is unknown"),
        (ToolRequest("1", "add", '{"a": "one", "b": 2}'), "'a': Input should be a valid integer"),
        (ToolRequest("1", "add", ""), "'a' is missing"),
    ],
    ids=range(15),
)
async def test_a_request_that_cannot_be_met_is_a_result_that_says_why(request_: ToolRequest, told: str) -> None:
    model = ScriptedModel([asks(request_), "Never mind."])
    result = (await Agent("a", "", model=model, tools=[add]).run_async("x")).result
    assert str(result) == "Never mind."
    (text,) = results(model)
    assert told in text
    assert len(text) < 1_000


async def test_a_refused_request_is_in_the_trace_and_reaches_no_tool(recorder: Any) -> None:
    model = ScriptedModel([asks(wish("subtract"), ToolRequest("2", "add", "{")), "Never mind."])
    await Agent("a", "", model=model, tools=[add]).run_async("x", gateway=recorder)
    assert recorder.of(ToolCall) == []
    texts = sorted(each.text for each in recorder.of(Notice))
    assert texts[0].startswith("a request for a tool was refused: The arguments for the tool 'add' cannot be read")
    assert texts[1].startswith("a request for a tool was refused: there is no tool 'subtract'")


async def test_what_goes_back_to_the_vendor_has_the_form_that_vendors_take() -> None:
    wishes = [ToolRequest("1", "add", '{"a": 1,'), ToolRequest("2", "web search!", " "), ToolRequest("3", "", "null")]
    model = ScriptedModel([asks(*wishes, said="Hm."), "done"])
    await Agent("a", "", model=model, tools=[add]).run_async("x")
    sent = next(each for each in model.requests[1].messages if each.role == "assistant")
    assert sent.content == "Hm."
    assert sent.tool_calls == (
        ToolRequest("1", "add", "{}"),
        ToolRequest("2", "web_search_", "{}"),
        ToolRequest("3", "_", "{}"),
    )


async def test_a_model_may_leave_out_the_arguments_of_a_tool_that_takes_none() -> None:
    def today() -> str:
        return "Monday"

    model = ScriptedModel([asks(ToolRequest("1", "today", "")), "done"])
    await Agent("a", "", model=model, tools=[today]).run_async("x")
    assert results(model) == ["Monday"]


async def test_a_tool_that_takes_too_long_is_given_up_and_the_model_is_told() -> None:
    @tool(timeout=0.02)
    async def slow() -> str:
        await anyio.sleep(30)
        return "never"

    model = ScriptedModel([wish("slow"), "I could not look."])
    await Agent("a", "", model=model, tools=[slow]).run_async("x")
    assert results(model) == ["tool 'slow' did not answer within 0.02 s and was given up"]


async def test_a_tool_that_blocks_holds_up_neither_its_time_limit_nor_the_others() -> None:
    released = threading.Event()

    @tool(timeout=0.05)
    def stuck() -> None:
        released.wait(60)

    model = ScriptedModel([asks(wish("stuck"), wish("add", "2", a=1, b=2)), "done"])
    try:
        with anyio.fail_after(30):
            await Agent("a", "", model=model, tools=[stuck, add]).run_async("x")
    finally:
        released.set()
    assert results(model) == ["tool 'stuck' did not answer within 0.05 s and was given up", "3"]


async def test_a_result_of_ten_megabytes_reaches_the_model_cut(recorder: Any) -> None:
    def flood() -> str:
        return "x" * 10_000_000

    model = ScriptedModel([wish("flood"), "done"])
    await Agent("a", "", model=model, tools=[flood]).run_async("x", gateway=recorder)
    (text,) = results(model)
    assert len(text) < 33_000
    assert "9,968,000 of 10,000,000 characters left out" in text


async def test_a_tool_that_ends_the_process_ends_nothing() -> None:
    def leave() -> None:
        raise SystemExit(3)

    model = ScriptedModel([wish("leave"), "Still here."])
    assert str((await Agent("a", "", model=model, tools=[leave]).run_async("x")).result) == "Still here."
    assert results(model) == ["tool 'leave' failed: SystemExit: 3"]


async def test_a_failure_of_the_gateway_ends_the_run_and_begins_no_further_calls() -> None:
    called: list[int] = []

    async def look(number: int) -> int:
        called.append(number)
        return number

    class FullDisk(DirectGateway):
        async def call_tool(self, tool: Tool, arguments: Any) -> ToolResult:
            await super().call_tool(tool, arguments)
            raise RunError(f"the disk is full after {arguments['number']}")

    model = ScriptedModel([asks(*(wish("look", str(number), number=number) for number in range(5)))])
    agent = Agent("a", "", model=model, tools=[look], max_parallel_tools=2)
    with pytest.raises(RunError, match="agent 'a': the disk is full after 0"):
        await agent.run_async("x", gateway=FullDisk())
    assert called in ([0], [0, 1])


# --- the limit of rounds


@pytest.mark.parametrize("limit", [1, 2, 10])
async def test_after_the_last_round_the_model_answers_without_tools(limit: int, recorder: Any) -> None:
    def script(request: Request) -> Any:
        return wish("add", a=1, b=2) if request.tools else "All I know is 3."

    model = ScriptedModel(script)
    agent = Agent("a", "", model=model, tools=[add], max_tool_rounds=limit)
    assert str((await agent.run_async("x", gateway=recorder)).result) == "All I know is 3."
    assert len(recorder.of(ToolCall)) == limit
    assert [bool(each.tools) for each in model.requests] == [True] * limit + [False]
    role, text = chat(model)[-1]
    assert role == "user"
    assert f"{limit} round(s)" in text
    assert [each.text for each in recorder.of(Notice)] == [f"the limit of {limit} round(s) of tool calls was reached"]


async def test_a_model_that_goes_on_asking_without_tools_gives_no_answer() -> None:
    model = ScriptedModel(lambda request: wish("add", a=1, b=2))
    agent = Agent("a", "", model=model, tools=[add], max_tool_rounds=2)
    with pytest.raises(OutputError, match="agent 'a': model 'scripted' gave an empty answer"):
        await agent.run_async("x")
    assert [bool(each.tools) for each in model.requests] == [True, True, False, False]


async def test_the_words_at_the_limit_are_in_the_agents_language() -> None:
    model = ScriptedModel([wish("add", a=1, b=2), "3"])
    await Agent("a", "", model=model, tools=[add], max_tool_rounds=1, locale="ja").run_async("x")
    assert "ツール" in chat(model)[-1][1]


async def test_each_generation_has_its_own_rounds() -> None:
    model = ScriptedModel([wish("add", a=1, b=1), "2", wish("add", a=2, b=2), "4"])
    agent = Agent("a", "", model=model, tools=[add], max_tool_rounds=1)
    assert str((await agent.run_async("x")).result) == "2"
    assert str((await agent.run_async("y")).result) == "4"


# --- with the other parts of an agent


class Sum(BaseModel):
    total: int


async def test_structured_output_may_use_tools_first() -> None:
    model = ScriptedModel([wish("add", a=1, b=2), {"total": 3}])
    result = (await Agent("a", "", model=model, tools=[add], output_model=Sum).run_async("x")).result
    assert result.content == Sum(total=3)
    assert model.requests[0].response_name == "Sum"
    assert '"total"' in model.requests[0].messages[0].content


async def test_a_correction_keeps_what_the_tools_have_said_and_may_call_more() -> None:
    model = ScriptedModel(
        [wish("add", "1", a=1, b=2), "three", wish("add", "2", a=3, b=0), "still three", {"total": 3}]
    )
    result = (await Agent("a", "", model=model, tools=[add], output_model=Sum).run_async("x")).result
    assert result.content == Sum(total=3)
    assert (result.metadata["calls"], result.metadata["tool_calls"]) == (3, 2)
    last = [(role, text) for role, text in chat(model)[2:] if role != "user"]
    assert last == [("assistant", ""), ("tool", "3"), ("assistant", ""), ("tool", "3"), ("assistant", "still three")]


async def test_corrections_share_the_rounds_of_their_generation() -> None:
    model = ScriptedModel([wish("add", a=1, b=2), "three", {"total": 3}])
    agent = Agent("a", "", model=model, tools=[add], output_model=Sum, max_tool_rounds=1)
    await agent.run_async("x")
    assert [bool(each.tools) for each in model.requests] == [True, False, False]


async def test_an_empty_answer_after_tools_is_asked_for_again_with_their_results() -> None:
    model = ScriptedModel([wish("add", a=1, b=2), "", "3"])
    assert str((await Agent("a", "", model=model, tools=[add]).run_async("x")).result) == "3"
    assert results(model) == ["3"]
    assert model.requests[1].messages == model.requests[2].messages


JUDGED = {
    "criteria_scores": {"accuracy": 1.0, "relevance": 1.0, "completeness": 1.0},
    "feedback": "",
    "suggestions": [],
}


async def test_improvements_know_the_results_of_tools_and_may_call_more(recorder: Any) -> None:
    drafts = iter(
        [wish("add", "1", a=1, b=2), "3", wish("add", "2", a=3, b=4), "3 and 7", wish("add", "3", a=7, b=8), "all"]
    )
    scores = iter([0.1, 0.2, 0.9])

    def script(request: Request) -> Any:
        if request.response_name == "evaluation":
            return {"score": next(scores), **JUDGED}
        return next(drafts)

    model = ScriptedModel(script)
    agent = Agent("a", "", model=model, tools=[add], orchestration_mode=True)
    context = await agent.run_async("x", gateway=recorder)
    assert str(context.result) == "all"
    assert results(model, -2) == ["3", "7", "15"]
    assert [each.arguments["a"] for each in recorder.of(ToolCall)] == [1, 3, 7]
    assert "15" not in context.shared_state["_last_prompt"]


async def test_judge_and_router_never_get_tools() -> None:
    def script(request: Request) -> Any:
        if request.response_name == "evaluation":
            return {"score": 0.9, **JUDGED}
        if request.response_name == "routing":
            return {"next_route": "a", "confidence": 1.0, "reasoning": ""}
        return "text"

    model = ScriptedModel(script)
    agent = Agent(
        "a", "", model=model, tools=[add], orchestration_mode=True, routing_instruction="Choose.", routes={"a": "A"}
    )
    await agent.run_async("x")
    assert [(each.response_name, bool(each.tools)) for each in model.requests] == [
        ("answer", True),
        ("evaluation", False),
        ("routing", False),
    ]


@pytest.mark.parametrize("option", ["tools", "mcp_servers"])
def test_agents_that_judge_or_route_take_no_tools(option: str) -> None:
    for make in (lambda **more: EvaluationAgent("e", **more), lambda **more: RoutingAgent("r", "", {"a": ""}, **more)):
        with pytest.raises(DefinitionError, match=f"'{option}' is neither an argument here"):
            make(**{option: [add]})


async def test_an_input_that_a_guardrail_refuses_reaches_neither_model_nor_tool(recorder: Any) -> None:
    agent = Agent("a", "", model=ScriptedModel([]), tools=[add], input_guardrails=[lambda text: False])
    with pytest.raises(GuardrailError):
        await agent.run_async("x", gateway=recorder)
    assert recorder.records == []


async def test_output_guardrails_see_the_answer_and_no_tool_result() -> None:
    seen: list[Any] = []
    model = ScriptedModel([wish("add", a=1, b=2), "It is three."])

    def keep(content: Any) -> bool:
        seen.append(content)
        return True

    await Agent("a", "", model=model, tools=[add], output_guardrails=[keep]).run_async("x")
    assert seen == ["It is three."]


async def test_a_chat_may_go_on_after_an_earlier_use_of_tools() -> None:
    earlier = [
        Message("user", "1 + 2?"),
        Message("assistant", "", (wish("add", a=1, b=2),)),
        Message("tool", "3", tool_call_id="1"),
        Message("assistant", "3."),
    ]
    model = ScriptedModel(["You asked for 3."])
    await Agent("a", "", model=model, tools=[add]).run_async("What?", Context(messages=earlier))
    assert model.requests[0].messages[: len(earlier)] == tuple(earlier)


# --- streaming


async def pieces_of(agent: Agent, **options: Any) -> list[Any]:
    async with agent.stream("x", **options) as pieces:
        return [piece async for piece in pieces]


async def test_the_final_answer_streams_and_the_rounds_before_it_do_not() -> None:
    model = ScriptedModel([wish("add", a=1, b=2), "It is 3."])
    *texts, context = await pieces_of(Agent("a", "Add.", model=model, tools=[add]))
    assert texts == ["It ", "is ", "3."]
    assert str(context.result) == "It is 3."
    assert context.result.metadata["tool_calls"] == 1
    assert context.shared_state["_last_prompt"] == "Add.\n\nUser input: x"


async def test_what_is_said_before_a_tool_is_shown_and_is_no_part_of_the_result() -> None:
    model = ScriptedModel([asks(wish("add", a=1, b=2), said="Let me see."), "It is 3."])
    *texts, context = await pieces_of(Agent("a", "", model=model, tools=[add]))
    assert "".join(texts) == "Let me see.\n\nIt is 3."
    assert str(context.result) == "It is 3."


async def test_a_streamed_run_tells_the_same_as_one_that_is_not(recorder: Any) -> None:
    model = ScriptedModel(lambda request: "3" if results(model) else wish("add", a=1, b=2))
    agent = Agent("a", "", model=model, tools=[add])
    await agent.run_async("x", gateway=recorder)
    plain = [each._replace(seconds=0, occurrence=0) if hasattr(each, "seconds") else each for each in recorder.records]
    recorder.records.clear()
    await pieces_of(agent, gateway=recorder)
    streamed = [each._replace(seconds=0, occurrence=0) for each in recorder.records]
    assert streamed == plain


async def test_an_empty_streamed_answer_is_asked_for_again_with_the_results() -> None:
    model = ScriptedModel([wish("add", a=1, b=2), "", "3"])
    *texts, context = await pieces_of(Agent("a", "", model=model, tools=[add]))
    assert texts == ["3"]
    assert results(model) == ["3"]
    assert context.result.metadata["tool_calls"] == 1


async def test_the_limit_holds_for_streams_as_well() -> None:
    model = ScriptedModel(lambda request: wish("add", a=1, b=2) if request.tools else "Enough.")
    *texts, _ = await pieces_of(Agent("a", "", model=model, tools=[add], max_tool_rounds=2))
    assert texts == ["Enough."]
    assert len(model.requests) == 3


async def test_leaving_a_stream_while_a_tool_runs_ends_the_tool() -> None:
    state: list[str] = []
    scope = anyio.CancelScope()

    async def slow() -> None:
        state.append("begun")
        scope.cancel()
        try:
            await anyio.sleep(30)
        finally:
            state.append("ended")

    model = ScriptedModel([asks(wish("slow"), said="One moment.")])
    agent = Agent("a", "", model=model, tools=[slow])
    with scope:
        await pieces_of(agent)
    assert state == ["begun", "ended"]


# --- cancellation


async def test_cancelling_a_run_while_tools_run_leaves_nothing_behind() -> None:
    state: list[str] = []

    async def slow(number: int) -> None:
        state.append("begun")
        if len(state) == 3:
            scope.cancel()
        try:
            await anyio.sleep(30)
        finally:
            state.append("ended")

    model = ScriptedModel([asks(*(wish("slow", str(number), number=number) for number in range(3)))])
    agent = Agent("a", "", model=model, tools=[slow])
    with done_within(5), anyio.CancelScope() as scope:
        await agent.run_async("x")
    assert scope.cancelled_caught
    assert state == ["begun"] * 3 + ["ended"] * 3
    assert len(model.requests) == 1


# --- recordings


async def test_a_recorded_run_is_served_tool_calls_included(recorder: Any) -> None:
    called: list[int] = []

    @tool(effect="external")
    def pay(euros: int) -> str:
        called.append(euros)
        return f"paid {euros}"

    def agent(answers: Sequence[Any]) -> Agent:
        return Agent("a", "Pay.", model=ScriptedModel(answers), tools=[pay])

    answers = [asks(wish("pay", "1", euros=5), wish("pay", "2", euros=7)), wish("pay", "3", euros=5), "All paid."]
    first = await agent(answers).run_async("x", gateway=recorder)
    assert sorted(called) == [5, 5, 7]
    for kept in range(len(recorder.records) + 1):
        called.clear()
        records = recorder.records[:kept]
        begun = [each.started for each in records if type(each) is ToolCall]
        if begun.count(True) > begun.count(False):
            continue  # In doubt: the engine asks a person before the node is entered again.
        left = [answer for number, answer in enumerate(answers) if number >= _count(records, ModelCall)]
        again = await agent(left).run_async("x", gateway=RecordedGateway(DirectGateway(), records))
        assert again.result == first.result
        assert len(called) == 3 - begun.count(False)


def _count(records: Sequence[Any], kind: type[Any]) -> int:
    return sum(type(each) is kind for each in records)


# --- what an agent is given


def other_add(a: int) -> int:
    return a


other_add.__name__ = "add"


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"tools": [add, other_add]}, r"two tools are named 'add': .*:add\), .*:other_add\); rename one of them"),
        ({"tools": [add, ToolSet("sums", "", [add], source="sums.py")]}, r"two tools are named 'add': .*'sums' \(sums"),
        ({"tools": add}, "tools must be a list, not <function add"),
        ({"tools": "add"}, "tools must be a list, not 'add'"),
        ({"tools": tool_of(add)}, "tools must be a list"),
        ({"tools": ["add"]}, "one of tools is neither a function nor a Tool nor a ToolSet: 'add'"),
        ({"tools": [print]}, "a model gives each argument by its name"),
        ({"mcp_servers": {"name": "a", "command": "a"}}, "mcp_servers must be a list"),
        ({"mcp_servers": ["a"]}, "one of mcp_servers is neither an McpServer nor a mapping: 'a'"),
        ({"mcp_servers": [{"name": "a"}]}, "MCP server 'a': give either `command`"),
        ({"mcp_servers": [{"name": "a", "comand": "a"}]}, "did you mean 'command'"),
        ({"mcp_servers": [{"name": "a", "command": "a"}] * 2}, "two MCP servers are named 'a'"),
    ],
)
def test_tools_that_cannot_be_used_are_refused_when_the_agent_is_made(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(DefinitionError, match=f"agent 'a': .*{message}"):
        Agent("a", "", **settings)


async def test_tools_are_no_option_of_one_run() -> None:
    agent = Agent("a", "", model=ScriptedModel([]))
    with pytest.raises(DefinitionError, match="'tools' is given when the agent is made, not for one run"):
        await agent.run_async("x", tools=[add])
