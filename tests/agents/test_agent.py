"""Agents that stand alone: what is asked, what comes back in the context, what fails and how it says so."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing, asynccontextmanager
from typing import Any, cast

import anyio
import anyio.lowlevel
import pytest
import trio
from pydantic import BaseModel, Field

from flowengine.agents.agent import Agent
from flowengine.agents.context.conversation import ConversationHistoryProvider
from flowengine.core.context import Context, EvaluationResult, LLMResult, RoutingResult
from flowengine.core.records import ModelCall, Notice
from flowengine.errors import (
    DefinitionError,
    GuardrailError,
    InputError,
    OutputError,
    PermanentModelError,
    RunError,
    TransientModelError,
)
from flowengine.models.messages import Message
from flowengine.models.model import Reply, Request
from flowengine.models.scripted import ScriptedModel

JUDGED = {
    "score": 0.9,
    "criteria_scores": {"accuracy": 1.0, "relevance": 1.0, "completeness": 1.0},
    "feedback": "Fine",
    "suggestions": [],
}
ROUTED = {"next_route": "a", "confidence": 0.9, "reasoning": "because"}


def sent_messages(model: ScriptedModel, call: int = 0) -> list[tuple[str, str]]:
    """Role and text of each message of one request."""
    return [(each.role, each.content) for each in model.requests[call].messages]


async def test_an_agent_answers_and_leaves_prompt_and_generation_in_the_state() -> None:
    agent = Agent("writer", "Write a line.", model=ScriptedModel(["Once upon a time."]))
    before = Context(shared_state={"counter": 1})
    after = await agent.run_async("a tale", before)
    assert isinstance(after.result, LLMResult)
    assert str(after.result) == "Once upon a time."
    assert after.result.attempts == 1
    assert after.result.evaluation_score is None
    assert dict(after.shared_state) == {
        "counter": 1,
        "_last_prompt": "Write a line.\n\nUser input: a tale",
        "_last_generation": "Once upon a time.",
    }
    assert dict(before.shared_state) == {"counter": 1}


async def test_the_result_tells_which_model_answered() -> None:
    agent = Agent("writer", "Write.", model=ScriptedModel([Reply("Hi", model="m-1", provider="acme")]))
    metadata = (await agent.run_async("x")).result.metadata
    assert (metadata["model"], metadata["provider"], metadata["finish_reason"]) == ("m-1", "acme", "stop")


async def test_settings_and_further_arguments_reach_the_request() -> None:
    model = ScriptedModel(["a", "b"])
    agent = Agent("writer", "Write.", model=model, temperature=0.3, max_tokens=50, timeout=7, top_p=0.5)
    await agent.run_async("x")
    request = model.requests[0]
    assert (request.model, request.temperature, request.max_tokens, request.timeout) == ("scripted", 0.3, 50, 7)
    assert dict(request.extra) == {"top_p": 0.5}
    await agent.run_async("x", temperature=0.9, seed=4)
    assert model.requests[1].temperature == 0.9
    assert dict(model.requests[1].extra) == {"top_p": 0.5, "seed": 4}


@pytest.mark.parametrize(
    ("option", "message"),
    [
        ("max_retries", "'max_retries' is given when the agent is made, not for one run"),
        ("output_model", "'output_model' is given when the agent is made"),
        ("threshold", "'evaluation_threshold' is given when the agent is made, not for one run"),
        ("temprature", "unknown argument 'temprature'; did you mean 'temperature'"),
        ("tools", "'tools' is given when the agent is made"),
    ],
)
async def test_what_is_no_option_of_a_run_is_refused_and_never_reaches_the_vendor(option: str, message: str) -> None:
    with pytest.raises(DefinitionError, match=f"agent 'a': {message}"):
        await Agent("a", "", model=ScriptedModel([])).run_async("x", **{option: None})


async def test_one_agent_serves_many_runs_at_once() -> None:
    def echo(request: Request) -> str:
        return request.messages[-1].content.removeprefix("User input: ")

    agent = Agent("a", "", model=ScriptedModel(echo, latency=0.01))
    answers: dict[int, str] = {}

    async def ask(number: int) -> None:
        answers[number] = str((await agent.run_async(str(number))).result)

    async with anyio.create_task_group() as tasks:
        for number in range(20):
            tasks.start_soon(ask, number)
    assert answers == {number: str(number) for number in range(20)}


async def test_a_model_given_for_one_run_stands_for_every_model_of_the_agent() -> None:
    other = ScriptedModel({"evaluation": JUDGED, "routing": ROUTED, "User input": "text"}, name="other")
    agent = Agent(
        "writer",
        "Write.",
        model=ScriptedModel([]),
        evaluation_instructions="Judge.",
        evaluation_model=ScriptedModel([]),
        routing_instruction="Route.",
        routes={"a": "A"},
    )
    after = await agent.run_async("x", model=other)
    assert after.evaluation_result is not None
    assert after.routing_result is not None
    assert [request.model for request in other.requests] == ["other"] * 3


async def test_messages_of_the_context_come_between_the_system_message_and_the_input() -> None:
    model = ScriptedModel(["ok"])
    earlier = [Message("user", "Hello"), {"role": "assistant", "content": "Hi"}]
    await Agent("a", "Be brief.", model=model).run_async("Go on", Context(messages=earlier))
    assert sent_messages(model) == [
        ("system", "Be brief."),
        ("user", "Hello"),
        ("assistant", "Hi"),
        ("user", "User input: Go on"),
    ]


async def test_the_history_is_the_callers_list_and_its_newest_entries_enter_the_prompt() -> None:
    model = ScriptedModel(["one", "two", "three"])
    history: list[str] = []
    agent = Agent("a", "", model=model, session_history=history, history_size=1)
    for text in ("first", "second", "third"):
        await agent.run_async(text)
    assert history == ["User: third\nAssistant: three"]
    assert sent_messages(model, 0) == [("user", "User input: first")]
    assert sent_messages(model, 2) == [
        ("user", "Previous context:\nUser: second\nAssistant: two\n\nUser input: third"),
    ]


async def test_a_history_of_size_zero_is_written_and_not_read() -> None:
    model, history = ScriptedModel(["one"]), ["User: before\nAssistant: zero"]
    await Agent("a", "", model=model, session_history=history, history_size=0).run_async("first")
    assert sent_messages(model) == [("user", "User input: first")]
    assert len(history) == 2


async def test_without_a_history_an_agent_remembers_nothing() -> None:
    model = ScriptedModel(["one", "two"])
    agent = Agent("a", "", model=model)
    await agent.run_async("first")
    await agent.run_async("second")
    assert sent_messages(model, 1) == [("user", "User input: second")]


async def test_a_returned_context_carries_the_talk_on() -> None:
    model = ScriptedModel(["Hello Ann", "You are Ann", "Ann"])
    agent = Agent("a", "", model=model)
    context = await agent.run_async("I am Ann")
    context = await agent.run_async("Who am I?", context)
    assert sent_messages(model, 1) == [
        ("user", "I am Ann"),
        ("assistant", "Hello Ann"),
        ("user", "User input: Who am I?"),
    ]
    async with agent.stream("In one word", context) as pieces:
        *_, last = [each async for each in pieces]
    assert isinstance(last, Context)
    assert [each.role for each in last.messages] == ["user", "assistant"] * 3


async def test_a_talk_that_a_history_or_a_provider_keeps_stands_in_a_prompt_once() -> None:
    for kept in ({"session_history": []}, {"context_providers": [ConversationHistoryProvider()]}):
        model = ScriptedModel(["one", "two"])
        agent = Agent("a", "", model=model, **cast(Any, kept))
        context = await agent.run_async("first")
        await agent.run_async("second", context)
        assert context.messages == ()
        assert sum(content.count("first") for _, content in sent_messages(model, 1)) == 1


async def test_an_empty_answer_is_asked_for_once_more() -> None:
    model = ScriptedModel(["  \n", "text"])
    after = await Agent("a", "Write.", model=model).run_async("x")
    assert str(after.result) == "text"
    assert after.result.attempts == 2
    assert model.requests[0].key() == model.requests[1].key()


async def test_two_empty_answers_are_an_error() -> None:
    model = ScriptedModel(["", ""])
    with pytest.raises(OutputError, match=r"agent 'a': .*empty answer, in 2 call"):
        await Agent("a", "Write.", model=model).run_async("x")


async def test_an_answer_that_was_cut_off_before_it_began_is_not_paid_twice() -> None:
    model = ScriptedModel([Reply("", finish_reason="length"), "late"])
    with pytest.raises(OutputError, match="cut off before it said anything: it reached its `max_tokens`"):
        await Agent("a", "", model=model).run_async("x")
    assert len(model.requests) == 1


async def test_without_retries_one_empty_answer_is_an_error() -> None:
    with pytest.raises(OutputError, match="empty"):
        await Agent("a", "Write.", model=ScriptedModel([""]), max_retries=0).run_async("x")


async def test_an_answer_that_the_vendor_held_back_is_a_permanent_error() -> None:
    model = ScriptedModel([Reply("Sorry", finish_reason="content_filter")])
    with pytest.raises(PermanentModelError, match=r"agent 'a': model 'scripted' refused"):
        await Agent("a", "Write.", model=model).run_async("x")


async def test_an_answer_that_was_cut_off_is_noticed(recorder: Any) -> None:
    model = ScriptedModel([Reply("Once upon a", finish_reason="length")])
    after = await Agent("a", "Write.", model=model, max_tokens=3).run_async("x", gateway=recorder)
    assert after.result.metadata["finish_reason"] == "length"
    assert ["cut off" in notice.text for notice in recorder.of(Notice)] == [True]


async def test_an_answer_that_ended_for_an_unknown_reason_is_kept_and_told(recorder: Any) -> None:
    model = ScriptedModel([Reply("Once upon a", finish_reason="went_for_tea")])
    after = await Agent("a", "Write.", model=model).run_async("x", gateway=recorder)
    assert after.result.content == "Once upon a"
    assert ["'went_for_tea'" in notice.text for notice in recorder.of(Notice)] == [True]


async def test_errors_of_the_model_name_the_agent_once_and_keep_what_they_carry() -> None:
    model = ScriptedModel([PermanentModelError("no such model")])
    with pytest.raises(PermanentModelError, match=r"^agent 'a': no such model$"):
        await Agent("a", "Write.", model=model).run_async("x")
    busy = TransientModelError("busy", retry_after=3.0)
    with pytest.raises(TransientModelError, match=r"^agent 'a': busy$") as caught:
        await Agent("a", "Write.", model=ScriptedModel([busy]), max_retries=0).run_async("x")
    assert caught.value.retry_after == 3.0


async def test_every_call_is_noted_failed_ones_included(recorder: Any) -> None:
    model = ScriptedModel(["", Reply("text", cost_usd=0.5), PermanentModelError("gone")])
    agent = Agent("a", "Write.", model=model)
    await agent.run_async("x", gateway=recorder)
    with pytest.raises(PermanentModelError):
        await agent.run_async("x", gateway=recorder)
    calls = recorder.of(ModelCall)
    assert [(each.content, each.error, each.occurrence, each.purpose) for each in calls] == [
        ("", None, 0, "generation"),
        ("text", None, 1, "generation"),
        ("", "gone", 2, "generation"),
    ]
    assert calls[1].cost_usd == 0.5
    assert calls[1].messages[0] == {"role": "system", "content": "Write."}
    assert {each.key for each in calls} == {model.requests[0].key()}


class Person(BaseModel):
    name: str
    age: int = Field(ge=0)


async def test_with_an_output_model_the_content_is_a_validated_instance() -> None:
    model = ScriptedModel([{"name": "Ann", "age": 36}])
    after = await Agent("a", "Extract.", model=model, output_model=Person).run_async("Ann is 36")
    assert after.result.content == Person(name="Ann", age=36)
    assert after.shared_state["_last_generation"] == Person(name="Ann", age=36)
    assert model.requests[0].response_name == "Person"
    assert dict(model.requests[0].response_schema or {}) == Person.model_json_schema()


async def test_a_validation_error_is_fed_back_to_the_model() -> None:
    model = ScriptedModel(['{"name": "Ann", "age": -1}', {"name": "Ann", "age": 36}])
    after = await Agent("a", "Extract.", model=model, output_model=Person).run_async("Ann is 36")
    assert after.result.content.age == 36
    assert after.result.attempts == 2
    assert sent_messages(model, 1)[:2] == sent_messages(model, 0)
    (role, answer), (asker, correction) = sent_messages(model, 1)[2:]
    assert (role, answer, asker) == ("assistant", '{"name": "Ann", "age": -1}', "user")
    assert "age: Input should be greater than or equal to 0 (it is -1)" in correction


async def test_an_output_that_never_fits_is_an_error_that_holds_the_last_answer() -> None:
    model = ScriptedModel(["no idea"] * 3)
    agent = Agent("a", "Extract.", model=model, output_model=Person, max_retries=2)
    with pytest.raises(OutputError, match=r"agent 'a': .*after 3 call.*holds no JSON.*'no idea'"):
        await agent.run_async("x")
    assert len(model.requests) == 3


async def test_an_output_may_be_declared_as_a_json_schema() -> None:
    schema = {"type": "object", "properties": {"tags": {"type": "array", "items": {"type": "string"}}}}
    model = ScriptedModel([{"tags": [1]}, {"tags": ["a"]}])
    after = await Agent("a", "Tag.", model=model, output_model=schema).run_async("x")
    assert after.result.content == {"tags": ["a"]}
    assert "$.tags[0]: 1 is not of type 'string'" in sent_messages(model, 1)[-1][1]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"evaluation_threshold": 85.0}, r"agent 'a': evaluation_threshold must be .* not 85.0; did you mean 0.85\?"),
        ({"evaluation_threshold": -0.1}, "evaluation_threshold must be between 0.0 and 1.0, not -0.1$"),
        ({"locale": "jp"}, r"agent 'a': unknown locale 'jp'; there are en, ja, zh"),
        ({"temperature": 3.0}, "temperature must be between 0 and 2"),
        ({"timeout": 0}, "timeout must be a number of seconds above 0"),
        ({"timeout": float("inf")}, "timeout must be a number of seconds above 0"),
        ({"max_tokens": 0}, "max_tokens must be a whole number of at least 1"),
        ({"max_retries": -1}, "max_retries must be a whole number of at least 0"),
        ({"history_size": -1}, "history_size must be a whole number of at least 0"),
        ({"max_improvement_iterations": -1}, "max_improvement_iterations must be a whole number of at least 0"),
        ({"routes": {"a": "A"}}, "routes needs both routing_instruction and routes"),
        ({"routing_instruction": "Route."}, "routing_instruction needs both"),
        ({"fallback": "a"}, "fallback needs both"),
        ({"improvement_callback": lambda r, e: "x"}, "set orchestration_mode"),
        ({"evaluation_model": "m"}, "evaluation_model needs orchestration_mode, evaluation_instructions or"),
        ({"temprature": 0.1}, r"unknown argument 'temprature'; did you mean 'temperature'\?"),
        ({"tool_choice": "auto"}, "'tool_choice' is neither an argument here nor an option of a model call"),
        ({"max_tool_rounds": 0}, "max_tool_rounds must be a whole number of at least 1, not 0"),
        ({"max_parallel_tools": 0}, "max_parallel_tools must be a whole number of at least 1"),
        ({"memory": object()}, "agent 'a': memory must be a file, the settings of"),
        ({"skills": 5}, "agent 'a': roots must be a text, a PathLike or an Iterable, not int 5"),
        ({"skills": [5]}, "agent 'a': a folder of skills is a path, not int"),
        ({"skills": ""}, "agent 'a': skills: there is no folder ''"),
        ({"skills": [], "skill_sandbox": 5}, "agent 'a': skill_sandbox is a Sandbox, not int"),
        ({"max_tokens": 1.5}, "max_tokens must be a whole number of at least 1, not 1.5"),
        ({"max_retries": None}, "max_retries must be a whole number of at least 0, not None"),
        ({"max_retries": True}, "max_retries must be a whole number of at least 0, not True"),
        ({"temperature": "warm"}, "temperature must be between 0 and 2, not 'warm'"),
        ({"timeout": "30s"}, "timeout must be a number of seconds above 0, not '30s'"),
        ({"evaluation_threshold": "0.7"}, "evaluation_threshold must be between 0.0 and 1.0, not '0.7'$"),
        ({"evaluation_threshold": True}, "evaluation_threshold must be between 0.0 and 1.0, not True$"),
        ({"model": 5}, "agent 'a': model is a model's name or a model, not int, which has no name, provider"),
        ({"fallbacks": "offline"}, "fallbacks must be a list of models, not 'offline'"),
        ({"fallbacks": [None]}, "one of fallbacks is a model's name or a model, not NoneType"),
        ({"system_message": 5}, "system_message is text, not int"),
        ({"session_history": "before"}, "session_history is a list, not str"),
        ({"input_guardrails": len}, "input_guardrails must be a list of functions"),
        ({"output_guardrails": ["short"]}, "one of output_guardrails is a function, not str"),
        ({"improvement_callback": "x", "orchestration_mode": True}, "improvement_callback is a function, not str"),
        ({"threshold": 0.5}, r"unknown argument 'threshold'; did you mean 'evaluation_threshold'\?"),
        ({"output_model": {"name": "string"}}, r"agent 'a': this is no JSON Schema: none of its keys \(name\)"),
        ({"output_model": {"type": "strnig"}}, "this is no JSON Schema: at .*type"),
        ({"output_model": int}, "output_model must be a pydantic class or a JSON Schema"),
        ({"output_model": {"$ref": "http://127.0.0.1:9/x"}}, "only its own parts"),
        ({"output_model": {"$ref": "#/$defs/missing"}}, "which it does not have"),
    ],
)
def test_a_wrong_setting_is_refused_when_the_agent_is_made(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(DefinitionError, match=message):
        Agent("a", "Write.", **settings)


@pytest.mark.parametrize(
    ("name", "instructions", "message"),
    [(5, "Write.", "agent '5': name is text, not int"), ("a", None, "generation_instructions is text, not NoneType")],
)
def test_a_name_and_instructions_that_are_no_text_are_refused(name: Any, instructions: Any, message: str) -> None:
    with pytest.raises(DefinitionError, match=message):
        Agent(name, instructions)


@pytest.mark.parametrize("context", [5, {"result": "x"}, "x"])
def test_what_is_no_context_is_refused(context: Any) -> None:
    with pytest.raises(InputError, match=f"an agent is run with a Context, not {type(context).__name__}"):
        Agent("a", "Write.", model=ScriptedModel([])).run("x", context)


def test_vendors_own_options_are_not_taken_for_misspelt_arguments() -> None:
    agent = Agent("a", "Write.", min_tokens=5, top_p=1, stop=["x"], seed=1, reasoning_effort="low")
    assert set(agent.settings.extra) == {"min_tokens", "top_p", "stop", "seed", "reasoning_effort"}


def test_run_works_without_an_event_loop() -> None:
    assert str(Agent("a", "", model=ScriptedModel(["ok"])).run("x").result) == "ok"


@pytest.mark.parametrize("start", [asyncio.run, lambda coroutine: trio.run(lambda: coroutine)], ids=["asyncio", "trio"])
def test_run_works_inside_a_running_event_loop(start: Any) -> None:
    async def within() -> str:
        return str(Agent("a", "", model=ScriptedModel(["ok"])).run("x").result)

    assert start(within()) == "ok"


def test_errors_come_out_of_run_as_they_are() -> None:
    with pytest.raises(PermanentModelError, match="gone"):
        Agent("a", "", model=ScriptedModel([PermanentModelError("gone")])).run("x")


async def test_a_stream_gives_the_pieces_and_then_the_context(recorder: Any) -> None:
    agent = Agent("a", "Write.", model=ScriptedModel(["one two three"]))
    async with agent.stream("x", gateway=recorder) as pieces:
        *texts, after = [piece async for piece in pieces]
    assert len(texts) == 3
    assert "".join(texts) == "one two three" == str(after.result)
    assert after.shared_state["_last_generation"] == "one two three"
    assert [call.content for call in recorder.of(ModelCall)] == ["one two three"]


class Endless(ScriptedModel):
    """Streams for ever, and knows whether it was told to stop."""

    stopped = False

    @asynccontextmanager
    async def stream(self, request: Request) -> AsyncGenerator[AsyncGenerator[str | Reply]]:
        async def pieces() -> AsyncGenerator[str | Reply]:
            while True:
                await anyio.lowlevel.checkpoint()
                yield "more "

        async with aclosing(pieces()) as produced:
            try:
                yield produced
            finally:
                self.stopped = True


async def test_files_can_be_attached_to_what_is_streamed() -> None:
    model = ScriptedModel(["a note"])
    async with Agent("a", "Look.", model=model).stream("What?", attach=[b"milk, eggs"]) as pieces:
        assert [each async for each in pieces][:-1] == ["a ", "note"]
    assert [each.media_type for each in model.requests[0].messages[-1].attachments] == ["text/plain"]
    assert not model.requests[0].extra


async def test_leaving_a_stream_early_ends_the_call() -> None:
    model = Endless([])
    async with Agent("a", "Write.", model=model).stream("x") as pieces:
        async for piece in pieces:
            assert piece == "more "
            break
    assert model.stopped


@pytest.mark.parametrize(
    ("settings", "answers", "text"),
    [
        ({"output_model": Person}, [{"name": "Ann", "age": 1}], '{"name":"Ann","age":1}'),
        ({"output_guardrails": [lambda value: True]}, ["one two"], "one two"),
        ({"orchestration_mode": True}, ["one two", JUDGED], "one two"),
    ],
    ids=["output model", "guardrail", "orchestration"],
)
async def test_a_stream_shows_an_answer_only_once_it_is_settled(
    settings: dict[str, Any], answers: list[Any], text: str
) -> None:
    async with Agent("a", "Write.", model=ScriptedModel(answers), **settings).stream("x") as pieces:
        shown = [piece async for piece in pieces]
    assert shown[0] == text
    assert isinstance(shown[1], Context)
    assert len(shown) == 2


async def test_nothing_of_a_refused_answer_is_streamed() -> None:
    def no(value: Any) -> bool:
        return False

    shown: list[Any] = []
    with pytest.raises(GuardrailError, match="agent 'a': output guardrail 'no' refused"):
        async with Agent("a", "", model=ScriptedModel(["secret"]), output_guardrails=[no]).stream("x") as pieces:
            shown.extend([piece async for piece in pieces])
    assert shown == []


async def test_an_empty_stream_is_asked_for_once_more_as_a_whole() -> None:
    async with Agent("a", "", model=ScriptedModel(["", "text"])).stream("x") as pieces:
        shown = [piece async for piece in pieces]
    assert shown[0] == "text"


@pytest.mark.parametrize(
    ("reply", "max_retries", "told"),
    [(Reply(""), 0, "gave an empty answer, in 1 call"), (Reply("", finish_reason="length"), 3, "was cut off before")],
)
async def test_an_empty_stream_is_not_asked_for_again_where_an_answer_would_not_be(
    reply: Reply, max_retries: int, told: str
) -> None:
    model = ScriptedModel([reply, "text"])
    async with Agent("a", "", model=model, max_retries=max_retries).stream("x") as pieces:
        with pytest.raises(OutputError, match=told):
            await anext(pieces)
    assert len(model.requests) == 1


async def test_errors_inside_a_stream_name_the_agent() -> None:
    model = ScriptedModel([Reply("x", finish_reason="content_filter")])
    async with Agent("a", "", model=model).stream("x") as pieces:
        assert await anext(pieces) == "x"
        with pytest.raises(PermanentModelError, match=r"agent 'a': .*refused"):
            await anext(pieces)


async def test_messages_that_are_no_messages_are_refused() -> None:
    with pytest.raises(RunError, match="agent 'a': the context's messages are no chat messages"):
        await Agent("a", "", model=ScriptedModel([])).run_async("x", Context(messages=[{"role": "boss"}]))


async def test_respond_gives_all_there_is_to_tell_without_a_context() -> None:
    model = ScriptedModel(["text", JUDGED, ROUTED])
    agent = Agent(
        "a", "Write.", model=model, evaluation_instructions="Judge.", routing_instruction="Route.", routes={"a": "A"}
    )
    response = await agent.respond("x", earlier=[Message("user", "before")])
    assert str(response.result) == "text"
    assert response.prompt == "Write.\n\nbefore\n\nUser input: x"
    assert response.evaluation is not None
    assert response.evaluation.passed
    assert response.routing is not None
    assert response.routing.next_route == "a"


async def test_evaluation_and_routing_of_others_stay_where_an_agent_has_none() -> None:
    evaluation, routing = EvaluationResult(score=1, passed=True), RoutingResult(next_route="a")
    before = Context(evaluation_result=evaluation, routing_result=routing)
    after = await Agent("a", "", model=ScriptedModel(["x"])).run_async("x", before)
    assert after.evaluation_result is evaluation
    assert after.routing_result is routing
