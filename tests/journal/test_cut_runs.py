"""The call journal in whole runs: cut off after any event and resumed, they pay for nothing twice.

The journal is cut at every event, with its records written and read back; the models' own count says
which calls were made again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Any, ClassVar

import anyio
import pytest

from flowengine.agents.agent import Agent
from flowengine.agents.evaluation import EvaluationAgent
from flowengine.agents.routing import RoutingAgent
from flowengine.agents.tools.function_tool import tool_of
from flowengine.core.context import Context, NodeResult
from flowengine.core.records import EffectDecided, ModelCall, Notice, Round, ToolCall
from flowengine.core.records import Retry as RetryRecord
from flowengine.engine.events import Event, NodeCancelled, NodeFailed, NodeRecorded, NodeStarted
from flowengine.errors import EffectPendingError, JournalError, OutputError, PermanentModelError
from flowengine.flow import Flow
from flowengine.journal.codec import decode, encode
from flowengine.journal.memory import MemoryStore
from flowengine.models.messages import Message, ToolRequest
from flowengine.models.model import Reply, Request
from flowengine.models.scripted import Answer, ScriptedModel
from flowengine.nodes.agent import AgentNode
from flowengine.nodes.evaluation_node import EvaluationNode
from flowengine.nodes.gateway import gateway_of
from flowengine.nodes.node import FlowNode, RetryPolicy
from flowengine.nodes.routing_node import RoutingNode

pytestmark = pytest.mark.anyio

AT_ONCE = RetryPolicy(attempts=3, initial=0.0)


class World:
    """What lies outside of the process and so outlives it: the models, and the letters that were sent."""

    def __init__(self, answer: Callable[[Request, int], Answer], past: Iterable[Event] = ()) -> None:
        self._answer = answer
        self._answered = Counter(call.key for call in records(past, ModelCall))
        self.calls = 0
        self.sent: list[str] = []

    def __reduce__(self) -> str:
        """It is outside of the flow: what it has seen is no part of the flow's code."""
        return "world"

    def model(self, name: str = "scripted") -> ScriptedModel:
        return ScriptedModel(self._next, name=name, latency=0.0)

    def _next(self, request: Request) -> Answer:
        key = request.key()
        self.calls += 1
        self._answered[key] += 1
        return self._answer(request, self._answered[key] - 1)


def records(events: Iterable[Event], kind: type[Any]) -> list[Any]:
    return [event.record for event in events if isinstance(event, NodeRecorded) and type(event.record) is kind]


def paid(events: Iterable[Event]) -> Counter[Any]:
    """All calls and rounds on record, by what they were about."""
    told = [event for event in events if isinstance(event, NodeRecorded)]
    calls = [
        (event.node, record.key, record.occurrence, record.content, record.error)
        for event in told
        if isinstance(record := event.record, ModelCall)
    ]
    tools = [
        (event.node, record.name, record.key, record.occurrence, record.result)
        for event in told
        if isinstance(record := event.record, ToolCall)
    ]
    rounds = [(event.node, event.record.number) for event in told if isinstance(event.record, Round)]
    return Counter([*calls, *tools, *rounds])


def cut_off(events: Sequence[Event], at: int) -> MemoryStore:
    """A store with the run as a process left it that died after so many events."""
    store = MemoryStore()
    journal = store.create("r1")
    for event in events[:at]:
        journal.append(decode(encode(event)))
    store.close()
    return store


Build = Callable[[World], Flow]
Answers = Callable[[Request, int], Answer]


async def whole(build: Build, answers: Answers) -> Any:
    run = await build(World(answers)).run(run_id="r1", store=MemoryStore())
    return run.raise_for_status()


# --- flows --------------------------------------------------------------------------------------------


def improving(world: World) -> Flow:
    """Draft, judge and improve three times, then one more node: nine completions."""
    writer = Agent("writer", "Write.", model=world.model(), orchestration_mode=True, evaluation_threshold=0.9)
    reader = Agent("reader", "Read.", model=world.model())
    return Flow(
        "improving", {"write": AgentNode(writer, prompt=lambda _: "tea"), "read": AgentNode(reader, needs=["write"])}
    )


def draft_of(request: Request) -> int:
    """How many improvements a draft in the request has behind it, 0 where there is none."""
    text = "\n".join(message.content for message in request.messages)
    return max((number for number in range(1, 5) if f"draft {number}" in text), default=0)


def improved(request: Request, before: int) -> Answer:
    if request.response_schema is not None:
        scores = dict.fromkeys(("accuracy", "relevance", "completeness"), 0.5)
        return {
            "score": 0.1 + 0.2 * draft_of(request),
            "criteria_scores": scores,
            "feedback": "more",
            "suggestions": [],
        }
    return "read" if request.messages[0].content.startswith("Read") else f"draft {draft_of(request) + 1}"


def branching(world: World) -> Flow:
    """A router, two branches beside two independent agents, and a judge behind all."""
    model = world.model()

    def agent(name: str, **more: Any) -> AgentNode:
        return AgentNode(Agent(name, f"You are {name}.", model=model), prompt=lambda _: "go", **more)

    return Flow(
        "branching",
        {
            "first": agent("first"),
            "pick": RoutingNode(
                RoutingAgent("pick", "Pick.", {"l": "", "r": ""}, model=model),
                {"l": "left", "r": "right"},
                needs=["first"],
            ),
            "left": agent("left"),
            "right": agent("right"),
            "beside": agent("beside"),
            "also": agent("also"),
            "judge": EvaluationNode(
                EvaluationAgent("judge", "Judge.", {"good": ""}, model=model),
                target=lambda context: context.nodes["left"].output,
                needs=["left", "beside", "also"],
            ),
        },
    )


def branched(request: Request, before: int) -> Answer:
    if request.response_schema is None:
        return f"said by {request.messages[0].content}"
    if "next_route" in request.response_schema["properties"]:
        return {"next_route": "l", "confidence": 1.0, "reasoning": ""}
    return {"score": 0.8, "criteria_scores": {"good": 0.8}, "feedback": "", "suggestions": []}


NUMBER = {"type": "object", "properties": {"number": {"type": "integer"}}, "required": ["number"]}


def retried(world: World) -> Flow:
    """A node whose first attempt asks twice for nothing and whose second fails; the third works."""
    counting = Agent("counting", "Count.", model=world.model(), output_model=NUMBER, max_retries=1)
    return Flow("retried", {"count": AgentNode(counting, prompt=lambda _: "apples", retry=AT_ONCE)})


def at_the_third_attempt(request: Request, before: int) -> Answer:
    if len(request.messages) > 2:  # the correction of the first attempt's answer
        return "still no number"
    answers: list[Answer] = ["no number", PermanentModelError("no"), {"number": 7}]
    return answers[before]


class Researching(FlowNode):
    """Asks three questions and looks at two places at once, then sends a letter and asks about it."""

    kind: ClassVar[str] = "researching"

    def __init__(self, world: World, **more: Any) -> None:
        super().__init__(**more)
        self._world = world

    async def run(self, context: Context, /) -> NodeResult:
        gateway, model = gateway_of(context), self._world.model()
        found: dict[int, str] = {}

        def look(at: int) -> str:
            return f"seen {at}"

        def send(text: str) -> str:
            self._world.sent.append(text)
            return "sent"

        async def ask(number: int, text: str) -> None:
            reply = await gateway.complete(model, Request("scripted", (Message("user", text),)), purpose="generation")
            found[number] = reply.content

        async def look_at(number: int) -> None:
            found[number] = (await gateway.call_tool(tool_of(look, effect="idempotent"), {"at": number})).text

        async with anyio.create_task_group() as tasks:
            for number, text in enumerate(("why", "how", "why")):
                tasks.start_soon(ask, number, text)
            for number in (3, 4):
                tasks.start_soon(look_at, number)
        found[5] = (await gateway.call_tool(tool_of(send, effect="external"), {"text": "hello"})).text
        await ask(6, f"it was {found[5]}")
        return NodeResult(sorted(found.values()))


def researching(world: World) -> Flow:
    return Flow("researching", {"research": Researching(world)})


def researched(request: Request, before: int) -> Answer:
    return f"{request.messages[0].content}!"


def helped(world: World) -> Flow:
    """An agent that looks twice at once, sends a letter, and answers with what came of it."""

    def look(at: int) -> str:
        return f"seen {at}"

    def send(text: str) -> str:
        world.sent.append(text)
        return "sent"

    tools = [tool_of(look), tool_of(send, effect="external")]
    clerk = Agent("clerk", "Help.", model=world.model(), tools=tools)
    return Flow("helped", {"research": AgentNode(clerk, prompt=lambda _: "go")})


def helping(request: Request, before: int) -> Answer:
    results = [message.content for message in request.messages if message.role == "tool"]
    if not results:
        return Reply("", tuple(ToolRequest(str(at), "look", f'{{"at": {at}}}') for at in (1, 2)))
    if len(results) == 2:
        return ToolRequest("3", "send", '{"text": "hello"}')
    return f"done: {', '.join(results)}"


# --- properties ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("build", "answers", "completions"),
    [(improving, improved, 9), (branching, branched, 6), (retried, at_the_third_attempt, 4)],
)
async def test_a_run_cut_after_any_event_gives_the_same_and_pays_only_for_the_rest(
    build: Build, answers: Answers, completions: int
) -> None:
    run = await whole(build, answers)
    assert len(records(run.events, ModelCall)) == completions
    for at in range(1, len(run.events) + 1):
        store, past = cut_off(run.events, at), run.events[:at]
        world = World(answers, past)
        again = await build(world).resume("r1", store=store)
        assert again.status == "succeeded", again.error
        assert again.outputs == run.outputs
        assert again.shared_state["_last_generation"] == run.shared_state["_last_generation"]
        assert world.calls == completions - len(records(past, ModelCall)), f"cut after {at} events"
        assert paid(again.events) == paid(run.events)
        assert not records(again.events, Notice)


async def test_a_run_cut_twice_pays_for_nothing_twice_either() -> None:
    run = await whole(improving, improved)
    for first, second in ((3, 6), (5, 9), (9, 12)):
        store = cut_off(run.events, first)
        again = await improving(World(improved)).resume("r1", store=store)
        store, past = cut_off(again.events, second + 2), again.events[: second + 2]
        world = World(improved, past)
        last = await improving(world).resume("r1", store=store)
        assert world.calls == 9 - len(records(past, ModelCall))
        assert (last.outputs, paid(last.events)) == (run.outputs, paid(run.events))


@pytest.mark.parametrize(("build", "answers"), [(researching, researched), (helped, helping)])
async def test_calls_at_the_same_time_and_tools_are_paid_once_too(build: Build, answers: Answers) -> None:
    run = await whole(build, answers)
    calls, letters = len(records(run.events, ModelCall)), 1
    for at in range(1, len(run.events) + 1):
        past = run.events[:at]
        tools = records(past, ToolCall)
        began = any(call.started for call in tools)
        ended = any(call.name == "send" and not call.started for call in tools)
        world = World(answers, past)
        store = cut_off(run.events, at)
        again = await build(world).resume("r1", store=store, retry_effects=["research"] if began > ended else [])
        assert again.outputs == run.outputs
        assert world.calls == calls - len(records(past, ModelCall))
        assert len(world.sent) == letters - ended
        assert not paid(run.events) - paid(again.events)
        surplus = paid(again.events) - paid(run.events)  # only that the letter was begun once more
        assert surplus.total() == (began > ended)


# --- attempts -----------------------------------------------------------------------------------------


async def test_a_retry_is_not_served_what_the_attempt_before_it_was_answered() -> None:
    world = World(at_the_third_attempt)
    run = (await retried(world).run()).raise_for_status()
    assert world.calls == 4
    assert [retry.attempt for retry in records(run.events, RetryRecord)] == [1, 2]


async def test_attempts_that_failed_count_after_a_crash() -> None:
    def hopeless(request: Request, before: int) -> Answer:
        return "no number"

    run = await retried(World(hopeless)).run(run_id="r1")
    assert run.status == "failed"
    assert len(records(run.events, RetryRecord)) == 2
    last_retry = max(
        index
        for index, event in enumerate(run.events)
        if isinstance(event, NodeRecorded) and type(event.record) is RetryRecord
    )
    world = World(hopeless)
    again = await retried(world).resume("r1", store=cut_off(run.events, last_retry + 1))
    assert again.status == "failed"
    assert world.calls == 2  # one attempt was left, of one answer and one correction
    assert len(records(again.events, RetryRecord)) == 2


async def test_a_node_that_failed_for_good_asks_its_last_question_anew_and_has_all_its_attempts() -> None:
    def unlucky(request: Request, before: int) -> Answer:
        return "no number" if before < 6 else {"number": before}

    store = MemoryStore()
    world = World(unlucky)
    assert (await retried(world).run(run_id="r1", store=store)).status == "failed"
    made = world.calls
    run = await retried(world).resume("r1", store=store)
    assert run.status == "failed"
    assert [retry.attempt for retry in records(run.events, RetryRecord)] == [1, 2, 1, 2]
    assert world.calls == made + 1 + 2 * made // 3


async def test_a_cancelled_node_keeps_what_it_was_answered() -> None:
    hangs = True

    async def patient(context: Context, /) -> NodeResult:
        gateway = gateway_of(context)
        reply = await gateway.complete(
            world.model(), Request("scripted", (Message("user", "a"),)), purpose="generation"
        )
        if hangs:
            scope.cancel()
            await anyio.sleep_forever()
        return NodeResult(reply.content)

    class Patient(FlowNode):
        kind: ClassVar[str] = "patient"

        async def run(self, context: Context, /) -> NodeResult:
            return await patient(context)

    world = World(researched)
    store = MemoryStore()
    flow = Flow("patient", {"node": Patient()})
    with anyio.CancelScope() as scope:
        await flow.run(run_id="r1", store=store)
    assert any(isinstance(event, NodeCancelled) for event in store.events("r1"))
    hangs = False
    run = await flow.resume("r1", store=store)
    assert run.outputs == {"node": "a!"}
    assert world.calls == 1


# --- external tools -----------------------------------------------------------------------------------


async def interrupted_letter() -> tuple[Sequence[Event], int]:
    """A run, and where to cut it so that a letter was begun and its end was not seen."""
    run = await whole(researching, researched)
    begun = next(
        index
        for index, event in enumerate(run.events)
        if isinstance(event, NodeRecorded) and isinstance(event.record, ToolCall) and event.record.started
    )
    return run.events, begun + 1


async def test_an_interrupted_letter_stops_the_resume_and_the_run_stays_as_it_is() -> None:
    events, at = await interrupted_letter()
    store, world = cut_off(events, at), World(researched)
    for _ in range(2):
        with pytest.raises(EffectPendingError, match=r"node 'research', tool 'send', arguments \{'text': 'hello'\}"):
            await researching(world).resume("r1", store=store)
    assert len(store.events("r1")) == at
    assert (world.calls, world.sent) == (0, [])


@pytest.mark.parametrize(("decision", "sent", "told"), [("retry", ["hello"], "sent"), ("done", [], "assumed done")])
async def test_a_person_decides_and_that_is_on_record_first(decision: str, sent: list[str], told: str) -> None:
    events, at = await interrupted_letter()
    store, world = cut_off(events, at), World(researched, events[:at])
    decided = {"retry_effects" if decision == "retry" else "assume_done": ["research"]}
    run = await researching(world).resume("r1", store=store, **decided)  # type: ignore[arg-type] -- one of two names
    assert world.sent == sent
    assert f"it was {told}!" in run.outputs["research"]
    record = run.events[at + 1]
    assert isinstance(record, NodeRecorded)
    assert isinstance(record.record, EffectDecided)
    assert (record.node, record.record.name, record.record.decision) == ("research", "send", decision)
    assert isinstance(run.events[at + 2], NodeStarted)


async def test_a_decision_holds_after_another_crash() -> None:
    events, at = await interrupted_letter()
    store = cut_off(events, at)
    run = await researching(World(researched)).resume("r1", store=store, assume_done=["research"])
    world = World(researched, events[:at])
    again = await researching(world).resume("r1", store=cut_off(run.events, at + 3))
    assert again.outputs == run.outputs
    assert world.sent == []


async def test_a_letter_that_was_sent_is_not_sent_by_the_attempt_after_a_failure() -> None:
    fails = True

    class Failing(Researching):
        async def run(self, context: Context, /) -> NodeResult:
            result = await super().run(context)
            if fails:
                raise OutputError("not good enough")
            return result

    store, world = MemoryStore(), World(researched)
    flow = Flow("failing", {"research": Failing(world)})
    assert (await flow.run(run_id="r1", store=store)).status == "failed"
    fails = False
    run = await flow.resume("r1", store=store)
    assert run.status == "succeeded"
    assert world.sent == ["hello"]
    assert world.calls == 5  # Only the answer that was not good enough is asked anew.


async def test_a_letter_interrupted_by_its_nodes_timeout_waits_for_a_decision() -> None:
    class Slow(FlowNode):
        kind: ClassVar[str] = "slow"

        async def run(self, context: Context, /) -> NodeResult:
            async def send() -> None:
                await anyio.sleep_forever()

            result = await gateway_of(context).call_tool(tool_of(send, effect="external"), {})
            return NodeResult(result.text)

    store = MemoryStore()
    flow = Flow("slow", {"letter": Slow(timeout=1.0)})
    run = await flow.run(run_id="r1", store=store)
    assert any(isinstance(event, NodeFailed) for event in run.events)
    with pytest.raises(EffectPendingError, match="node 'letter', tool 'send'"):
        await flow.resume("r1", store=store)
    assert (await flow.resume("r1", store=store, assume_done=["letter"])).outputs == {"letter": "assumed done"}


async def test_a_decision_about_nothing_is_refused() -> None:
    run = await whole(researching, researched)
    with pytest.raises(JournalError, match="'research' has no call"):
        await researching(World(researched)).resume("r1", store=cut_off(run.events, 3), retry_effects=["research"])
