"""The door of a node's agent: who hears what, and what is served in silence."""

from __future__ import annotations

from typing import Any

import pytest

from flowengine.agents.agent import Agent
from flowengine.agents.gateway import DirectGateway
from flowengine.context import Context
from flowengine.journal.recorded import RecordedGateway
from flowengine.llm.messages import Message, ToolRequest
from flowengine.llm.model import Request
from flowengine.llm.scripted import ScriptedModel
from flowengine.nodes.gateway import gateway_of, telling_gateway_of
from flowengine.records import ModelCall, ToolCall

ASKED = Request("scripted", (Message("user", "Why?"),))


class Run:
    """What the contexts of one node share: its records and what it told."""

    def __init__(self) -> None:
        self.records: list[Any] = []
        self.told: list[str] = []

    def context(self, **more: Any) -> Context:
        return Context(note=self._note, tell=self._tell, recorded=list(self.records), **more)

    async def _note(self, record: Any) -> None:
        self.records.append(record)

    def _tell(self, text: str, begins: bool = False, /) -> None:
        self.told.append(f"|{text}" if begins else text)


@pytest.fixture
def run() -> Run:
    return Run()


async def test_where_nobody_listens_the_door_is_the_plain_one(run: Run) -> None:
    silent = run.context().with_(tell=None)
    assert type(telling_gateway_of(silent)) is type(gateway_of(silent)) is DirectGateway
    recorded = silent.with_(recorded=[ModelCall("m", "p", "generation", [], "x")])
    assert type(telling_gateway_of(recorded)) is RecordedGateway


async def test_free_text_is_told_and_a_shape_is_not(run: Run) -> None:
    gateway, model = telling_gateway_of(run.context()), ScriptedModel(["one two", '{"n": 1}'])
    await gateway.complete(model, ASKED, purpose="generation")
    shaped = Request("scripted", ASKED.messages, response_schema={"type": "object"})
    await gateway.complete(model, shaped, purpose="evaluation")
    assert run.told == ["|one ", "two"]
    assert [record.content for record in run.records] == ["one two", '{"n": 1}']


async def test_what_was_recorded_is_served_in_silence(run: Run) -> None:
    def look() -> str:
        return "sencha"

    agent = Agent("a", "", model=ScriptedModel([ToolRequest("1", "look", "{}"), "It is sencha."]), tools=[look])
    await agent.respond("x", gateway=telling_gateway_of(run.context()))
    assert run.told == ["|It ", "is ", "sencha."]
    before = list(run.records)
    assert [type(each) for each in before] == [ModelCall, ToolCall, ModelCall]
    again = Agent("a", "", model=ScriptedModel([]), tools=[look])
    response = await again.respond("x", gateway=telling_gateway_of(run.context()))
    assert str(response.result) == "It is sencha."
    assert run.told == ["|It ", "is ", "sencha."]
    assert run.records == before
