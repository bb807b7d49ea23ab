"""`flow.stream(tokens=True)`: what agents write is told while they write it, and changes nothing else."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import anyio
import pytest

from flowengine.agents.agent import Agent
from flowengine.agents.evaluation import EvaluationAgent
from flowengine.agents.routing import RoutingAgent
from flowengine.cli.main import main
from flowengine.core.context import Context
from flowengine.engine.events import EVENTS, NodeFinished, NodeRecorded, NodeStarted, TokenStreamed
from flowengine.errors import TransientModelError
from flowengine.flow import Flow
from flowengine.journal.memory import MemoryStore
from flowengine.models.messages import ToolRequest
from flowengine.models.model import Reply
from flowengine.models.scripted import ScriptedModel
from flowengine.nodes.agent import AgentNode
from flowengine.nodes.evaluation_node import EvaluationNode
from flowengine.nodes.function import FunctionNode
from flowengine.nodes.node import RetryPolicy
from flowengine.nodes.routing_node import RoutingNode
from tests.support.model_answers import Completion, Failure, Truncated
from tests.support.model_server import ModelServer

SCORE: dict[str, Any] = {"score": 0.9, "criteria_scores": {"a": 0.9}, "feedback": "", "suggestions": []}


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[ModelServer]:
    with ModelServer() as running:
        monkeypatch.setenv("OPENAI_API_KEY", "test")
        monkeypatch.setenv("OPENAI_BASE_URL", running.url)
        yield running


async def streamed(flow: Flow, **options: Any) -> list[Any]:
    async with flow.stream(tokens=True, **options) as events:
        return [event async for event in events]


def texts(events: list[Any], node: str = "a") -> list[list[str]]:
    """The pieces of a node, one list for each text that it began."""
    found: list[list[str]] = []
    for event in events:
        if isinstance(event, TokenStreamed) and event.node == node:
            if event.begins:
                found.append([])
            found[-1].append(event.text)
    return found


def agent(model: Any, **settings: Any) -> Agent:
    return Agent("a", "Write.", model=model, **settings)


# --- what is told


async def test_pieces_come_between_the_start_of_their_node_and_its_end() -> None:
    flow = Flow("f", {"a": agent(ScriptedModel(["Green tea, please."]))}, inputs={"x": "string"})
    events = await streamed(flow, inputs={"x": "Which?"})
    kinds = [type(event).__name__ for event in events]
    told = ["TokenStreamed"] * 3
    assert kinds == ["RunStarted", "NodeStarted", *told, "NodeRecorded", "NodeFinished", "RunFinished"]
    assert texts(events) == [["Green ", "tea, ", "please."]]
    started, finished = events[1], events[-2]
    assert started.at <= events[2].at <= finished.at
    assert finished.result.output == "Green tea, please."


async def test_they_come_over_http_while_the_answer_is_being_written(server: ModelServer) -> None:
    server.respond_with(["warm-up", Completion("A long answer in many pieces.", piece_delay=0.05)])
    await streamed(Flow("f", {"a": agent("openai/gpt-4o-mini")}))  # The library is slow at its first call.
    events = await streamed(Flow("f", {"a": agent("openai/gpt-4o-mini")}))
    (pieces,) = texts(events)
    assert len(pieces) > 2
    assert "".join(pieces) == "A long answer in many pieces."
    told = [event for event in events if isinstance(event, TokenStreamed)]
    assert told[-1].at - told[0].at >= 0.05
    assert server.requests[-1].body["stream"] is True
    (call,) = [event.record for event in events if isinstance(event, NodeRecorded)]
    assert (call.content, call.provider, call.attempts) == ("A long answer in many pieces.", "openai", 1)
    assert call.prompt_tokens
    assert call.completion_tokens


@pytest.mark.usefixtures("quick_retries")
async def test_a_stream_that_breaks_off_is_tried_again_and_begins_anew(server: ModelServer) -> None:
    server.respond_with([Failure(503, retry_after=0.01), Truncated("an answer that is cut off"), "The whole answer."])
    events = await streamed(Flow("f", {"a": agent("openai/gpt-4o-mini")}))
    cut, whole = texts(events)
    assert "an answer that is cut off".startswith("".join(cut))
    assert "".join(whole) == "The whole answer."
    (call,) = [event.record for event in events if isinstance(event, NodeRecorded)]
    assert (call.content, call.attempts) == ("The whole answer.", 3)


async def test_nodes_in_parallel_are_told_apart() -> None:
    nodes = {name: Agent(name, "", model=ScriptedModel([f"this is {name}"], latency=0.01)) for name in ("a", "b")}
    events = await streamed(Flow("f", nodes))
    assert texts(events, "a") == [["this ", "is ", "a"]]
    assert texts(events, "b") == [["this ", "is ", "b"]]


async def test_a_round_of_tools_begins_anew() -> None:
    def look() -> str:
        return "sencha"

    model = ScriptedModel([Reply("Let me see.", (ToolRequest("1", "look", "{}"),)), "It is sencha."])
    events = await streamed(Flow("f", {"a": agent(model, tools=[look])}))
    assert texts(events) == [["Let ", "me ", "see."], ["It ", "is ", "sencha."]]


async def test_another_attempt_of_the_node_begins_anew() -> None:
    model = ScriptedModel(["", "", "One two."])
    events = await streamed(Flow("f", {"a": AgentNode(agent(model), retry=RetryPolicy(2, initial=0.01))}))
    assert texts(events) == [["One ", "two."]]
    broken = ScriptedModel([TransientModelError("busy"), "One two."])
    events = await streamed(
        Flow("f", {"a": AgentNode(agent(broken, max_retries=0), retry=RetryPolicy(2, initial=0.01))})
    )
    assert texts(events) == [["One ", "two."]]


async def test_a_node_of_ones_own_may_tell_as_well() -> None:
    async def write(context: Context) -> str:
        if context.runtime.tell is not None:
            context.runtime.tell("half ", True)
            context.runtime.tell("done")
        return "half done"

    flow = Flow("f", {"a": FunctionNode(write)})
    assert texts(await streamed(flow)) == [["half ", "done"]]
    assert (await flow.run()).outputs == {"a": "half done"}


# --- what is not


def pass_all(text: str) -> bool:
    return True


@pytest.mark.parametrize(
    "settings",
    [
        {"output_model": {"type": "object", "properties": {"n": {"type": "integer"}}}},
        {"output_guardrails": [pass_all]},
        {"orchestration_mode": True, "evaluation_criteria": {"a": "b"}},
    ],
)
async def test_what_may_still_be_taken_back_or_has_a_shape_is_not_told(settings: dict[str, Any]) -> None:
    flow = Flow("f", {"a": agent(ScriptedModel(['{"n": 1}', SCORE]), **settings)})
    events = await streamed(flow)
    assert texts(events) == []
    assert isinstance(events[-2], NodeFinished)


async def test_judges_and_routers_are_not_told() -> None:
    route: dict[str, Any] = {"next_route": "x", "confidence": 0.9, "reasoning": "r"}
    judging = agent(
        ScriptedModel(["Text.", SCORE, route]),
        evaluation_criteria={"a": "b"},
        routing_instruction="Choose.",
        routes={"x": "y"},
    )
    judge = EvaluationAgent("j", evaluation_criteria={"a": "b"}, model=ScriptedModel([SCORE]))
    router = RoutingAgent("r", "Choose.", {"x": "y"}, model=ScriptedModel([route]))
    nodes = {
        "a": AgentNode(judging, targets={"x": None}),
        "j": EvaluationNode(judge, needs=["a"]),
        "r": RoutingNode(router, {"x": None}, needs=["j"]),
    }
    events = await streamed(Flow("f", nodes))
    assert [texts(events, name) for name in nodes] == [[["Text."]], [], []]


async def test_nothing_is_told_to_whoever_does_not_ask() -> None:
    async with Flow("f", {"a": agent(ScriptedModel(["Text."]))}).stream() as events:
        assert not any([isinstance(event, TokenStreamed) async for event in events])


# --- what stays as it was


@pytest.mark.usefixtures("quick_retries")
async def test_the_journal_is_the_same_with_and_without(tmp_path: Path) -> None:
    def flow() -> Flow:
        busy_at_first = ScriptedModel([TransientModelError("busy", 0.01), "Green tea."])
        return Flow("f", {"a": agent(busy_at_first), "b": AgentNode(agent(ScriptedModel(["So."])), needs=["a"])})

    def timeless(event: Any) -> Any:
        event = event._replace(at=0.0)
        if not isinstance(event, NodeRecorded):
            return event
        waits = [each["what"] for each in event.record.timeline]
        return event._replace(record=event.record._replace(seconds=0.0, timeline=waits))

    told, silent = f"sqlite:///{tmp_path}/told.db", f"sqlite:///{tmp_path}/silent.db"
    events = await streamed(flow(), store=told, run_id="r")
    assert texts(events) == [["Green ", "tea."]]
    run = await flow().run(store=silent, run_id="r")
    kept = (await flow().resume("r", store=told)).events
    assert [timeless(event) for event in kept] == [timeless(event) for event in run.events]


def test_it_is_no_letter_of_the_alphabet() -> None:
    assert "TokenStreamed" not in EVENTS


async def test_leaving_early_cancels_the_call_that_is_being_told(server: ModelServer) -> None:
    server.respond_with([Completion("word " * 100, piece_delay=0.05)])
    store = MemoryStore()
    async with Flow("f", {"a": agent("openai/gpt-4o-mini")}).stream(store=store, tokens=True) as events:
        async for event in events:
            if isinstance(event, TokenStreamed):
                break
    assert store.list()[0].status == "cancelled"
    assert [type(event) for event in store.events(store.list()[0].run_id)][1] is NodeStarted


def test_the_command_line_prints_events_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "flow.yaml").write_text("{flowengine: v1, name: a, nodes: {a: {prompt: x, model: offline}}}")
    assert main(["run", "flow.yaml", "--events", "--store", "memory:"]) == 0
    assert "TokenStreamed" not in capfd.readouterr().out


@pytest.mark.anyio
@pytest.mark.parametrize("raised", [SystemExit(3), KeyboardInterrupt(), type("Panic", (BaseException,), {})()])
async def test_whatever_is_raised_in_a_stream_leaves_it_as_itself(raised: BaseException):
    async def wait(context: Context) -> None:
        await anyio.sleep_forever()

    async def leave() -> None:
        async with Flow("f", {"a": FunctionNode(wait)}).stream(store=store, run_id="r") as events:
            async for event in events:
                if isinstance(event, NodeStarted):
                    raise raised

    store = MemoryStore()
    with pytest.raises(type(raised)) as caught:
        await leave()
    assert caught.value is raised
    assert store.list()[0].status == "cancelled"
