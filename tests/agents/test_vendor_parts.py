"""What a vendor wants back unchanged goes through the tool loop, the journal, a replay and a cassette."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

from flowengine.agents.agent import Agent
from flowengine.agents.standalone import DirectGateway
from flowengine.core.records import ModelCall
from flowengine.engine.events import NodeRecorded
from flowengine.journal.codec import decode, encode
from flowengine.journal.recorded_gateway import RecordedGateway
from flowengine.models.messages import Message, ToolRequest
from flowengine.models.model import Reply, Request
from flowengine.models.scripted import ScriptedModel
from flowengine.testing.cassette import Cassette

SIGNED: Final = {"type": "thinking", "thinking": "一 and two.", "signature": "c2lnbmVk"}


def add(a: int, b: int) -> int:
    """Add two whole numbers."""
    return a + b


def replies() -> list[Any]:
    wish = ToolRequest("1", "add", json.dumps({"a": 1, "b": 2}))
    parts = (SIGNED, {"reasoning_content": "so"})
    return [Reply("", (wish,), finish_reason="tool_calls", vendor_parts=parts), "It is 3."]


class FakeGateway:
    """A gateway round a direct one; `records` is the journal, written and read back."""

    def __init__(self, recorded: list[Any] | None = None) -> None:
        self.records: list[Any] = []
        self.gateway = RecordedGateway(DirectGateway(self._note), recorded or [])

    async def _note(self, record: Any) -> None:
        event = decode(encode(NodeRecorded("n", 1.0, record)))
        assert isinstance(event, NodeRecorded)
        self.records.append(event.record)


async def test_parts_go_back_with_the_results_of_tools_and_are_replayed() -> None:
    model, first = ScriptedModel(replies()), FakeGateway()
    await Agent("sums", "Add.", model=model, tools=[add]).run_async("1 + 2?", gateway=first.gateway)
    assert model.requests[1].messages[-2].vendor_parts == (SIGNED, {"reasoning_content": "so"})
    call = first.records[0]
    assert isinstance(call, ModelCall)
    assert list(call.vendor_parts) == [SIGNED, {"reasoning_content": "so"}]
    silent, again = ScriptedModel([]), FakeGateway(first.records)
    context = await Agent("sums", "Add.", model=silent, tools=[add]).run_async("1 + 2?", gateway=again.gateway)
    assert (str(context.result), silent.requests, again.records) == ("It is 3.", [], [])


async def test_parts_are_of_the_key_of_a_request_and_their_absence_is_not() -> None:
    plain = Message("assistant", "Blue.")
    assert Request("m", (plain,)).key() == Request("m", (plain._replace(vendor_parts=()),)).key()
    assert Request("m", (plain,)).key() != Request("m", (plain._replace(vendor_parts=(SIGNED,)),)).key()


async def test_a_cassette_plays_parts_in_answers_and_in_requests(tmp_path: Path) -> None:
    path = tmp_path / "calls.yaml"
    model = Cassette(path, "once").model(ScriptedModel(replies()))
    agent = Agent("sums", "Add.", model=model, tools=[add])
    await agent.run_async("1 + 2?")
    again = Agent("sums", "Add.", model=Cassette(path, "none").model(ScriptedModel([])), tools=[add])
    assert str((await again.run_async("1 + 2?")).result) == "It is 3."
