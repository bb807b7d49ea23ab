"""The recording gateway alone: what it serves, what it lets out, and what it has to say about that."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import anyio
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flowengine.agents.standalone import DirectGateway
from flowengine.agents.tools.function_tool import tool_of
from flowengine.core.records import ModelCall, Notice, Round, ToolCall
from flowengine.errors import TransientModelError
from flowengine.journal.recorded_gateway import RecordedGateway
from flowengine.models.messages import Message
from flowengine.models.model import Reply, Request
from flowengine.models.scripted import ScriptedModel

pytestmark = pytest.mark.anyio


class FakeGateway:
    """A gateway round a direct one, as an agent's node makes it; `records` is the journal."""

    def __init__(self, recorded: Sequence[Any] = ()) -> None:
        self.records: list[Any] = []
        self.gateway = RecordedGateway(DirectGateway(self._note), recorded)

    async def _note(self, record: Any) -> None:
        self.records.append(record)

    def of(self, kind: type[Any]) -> list[Any]:
        return [record for record in self.records if type(record) is kind]


def asking(text: str) -> Request:
    return Request("scripted", (Message("user", text),))


async def test_what_was_answered_is_served_without_a_call_and_without_a_second_record() -> None:
    first = FakeGateway()
    model = ScriptedModel(["an answer"])
    reply = await first.gateway.complete(model, asking("a"), purpose="generation")
    again = FakeGateway(first.records)
    assert await again.gateway.complete(model, asking("a"), purpose="generation") == reply
    assert (len(model.requests), again.records) == (1, [])


async def test_what_was_not_answered_goes_out() -> None:
    first = FakeGateway()
    model = ScriptedModel([TransientModelError("busy"), "an answer"])
    with pytest.raises(TransientModelError):
        await first.gateway.complete(model, asking("a"), purpose="generation")
    again = FakeGateway(first.records)
    assert (await again.gateway.complete(model, asking("a"), purpose="generation")).content == "an answer"
    assert again.of(Notice) == []


async def test_a_changed_question_is_told_and_goes_out() -> None:
    first = FakeGateway()
    model = ScriptedModel(["to a", "to b"])
    await first.gateway.complete(model, asking("tell me a"), purpose="improvement")
    again = FakeGateway(first.records)
    assert (await again.gateway.complete(model, asking("tell me b"), purpose="improvement")).content == "to b"
    (notice,) = again.of(Notice)
    assert notice.text == (
        "a call for improvement is made anew, for it differs from what was recorded: "
        "message 1 (user) is 'tell me b' where 'tell me a' was recorded"
    )


async def test_new_questions_after_all_recorded_ones_are_no_difference() -> None:
    first = FakeGateway()
    model = ScriptedModel(["to a", "to b", "to a again"])
    await first.gateway.complete(model, asking("a"), purpose="generation")
    again = FakeGateway(first.records)
    for text, answer in (("a", "to a"), ("b", "to b"), ("a", "to a again")):
        assert (await again.gateway.complete(model, asking(text), purpose="generation")).content == answer
    assert again.of(Notice) == []
    assert [call.occurrence for call in again.of(ModelCall)] == [0, 1]


async def test_what_an_agent_tells_again_is_not_written_again() -> None:
    again = FakeGateway([Round(1, "draft", 0.5, False)])
    for number in (1, 2):
        await again.gateway.note(Round(number, "draft", 0.5, False))
    assert [judged.number for judged in again.of(Round)] == [2]


async def test_a_tools_result_is_served_as_it_was() -> None:
    calls: list[int] = []

    def look(at: int) -> dict[str, int]:
        calls.append(at)
        return {"seen": at}

    first = FakeGateway()
    result = await first.gateway.call_tool(tool_of(look), {"at": 1})
    again = FakeGateway(first.records)
    assert await again.gateway.call_tool(tool_of(look), {"at": 1}) == result
    await again.gateway.call_tool(tool_of(look), {"at": 2})
    await again.gateway.call_tool(tool_of(look), {"at": 1})
    assert calls == [1, 2, 1]
    assert [(call.arguments["at"], call.occurrence) for call in again.of(ToolCall)] == [(2, 0), (1, 1)]


@settings(deadline=None, max_examples=60)
@given(
    questions=st.lists(st.sampled_from("abc"), min_size=1, max_size=8),
    delays=st.lists(st.integers(0, 3), min_size=24, max_size=24),
    answered=st.sets(st.integers(0, 7)),
)
def test_questions_at_the_same_time_get_the_answers_that_were_theirs(
    questions: list[str], delays: list[int], answered: set[int]
) -> None:
    """Whatever the timing of the calls was then and is now; of equal ones the first to begin is the first."""
    count = 0

    def answer(request: Request) -> str:
        nonlocal count
        count += 1
        return f"{request.messages[0].content}{count}"

    model = ScriptedModel(answer)

    async def ask_all(gateway: FakeGateway, pauses: Sequence[int]) -> dict[int, str]:
        answers: dict[int, str] = {}

        async def ask(number: int, text: str) -> None:
            answers[number] = (
                await gateway.gateway.complete(Pausing(model, pauses[number]), asking(text), purpose="x")
            ).content

        async with anyio.create_task_group() as tasks:
            for number, text in enumerate(questions):
                tasks.start_soon(ask, number, text)
        return answers

    async def check() -> None:
        first = FakeGateway()
        then = await ask_all(first, delays[:8])
        kept = [record for record in first.records if number_of(record, questions) in answered]
        again = FakeGateway(kept)
        made = count
        now = await ask_all(again, delays[8:16])
        assert {number: now[number] for number in answered & set(then)} == {
            number: then[number] for number in answered & set(then)
        }
        calls = [*kept, *again.of(ModelCall)]
        assert count - made == len(questions) - len(kept)
        assert len({(call.key, call.occurrence) for call in calls}) == len(calls) == len(questions)

    anyio.run(check)


def number_of(call: ModelCall, questions: Sequence[str]) -> int:
    """Which of the questions, which begin in order on asyncio, a record is of."""
    text = call.messages[0]["content"]
    return [index for index, each in enumerate(questions) if each == text][call.occurrence]


class Pausing:
    """Gives way some times before and after the model answers."""

    def __init__(self, model: ScriptedModel, pauses: int) -> None:
        self._model = model
        self._pauses = pauses
        self.name, self.provider = model.name, model.provider

    async def complete(self, request: Request) -> Reply:
        for _ in range(self._pauses):
            await anyio.lowlevel.checkpoint()
        return await self._model.complete(request)

    stream: Any = None
