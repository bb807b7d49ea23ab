"""Bytes that tools give become files of the run: in the record of the call, and again where it is served from there."""

from __future__ import annotations

from typing import Any

import pytest

from flowengine.agents.agent import Agent
from flowengine.agents.tools.tool import Tool, ToolResult
from flowengine.core.file_values import FileRules, FileValue
from flowengine.core.records import ToolCall
from flowengine.engine.events import NodeRecorded
from flowengine.flow import Flow
from flowengine.journal.codec import encode
from flowengine.journal.replay import tool_result_of
from flowengine.models.messages import ToolRequest
from flowengine.models.model import Reply
from flowengine.models.scripted import ScriptedModel
from flowengine.nodes.tool_call import ToolNode

pytestmark = pytest.mark.anyio
PICTURE = b"\x89PNG\r\n\x1a\nabc"


async def shoot(arguments: Any) -> ToolResult:
    return ToolResult("[image]", {"thumb": b"tiny"}, files=(PICTURE,))


def flow() -> Flow:
    model = ScriptedModel([Reply("", (ToolRequest("1", "shoot", "{}"),)), "done"])
    tools = [Tool("shoot", "Take a picture", {"type": "object", "properties": {}}, shoot)]
    return Flow("shots", {"a": Agent("a", "Take it", model=model, tools=tools)})


async def test_files_of_a_tool_are_in_the_record_of_its_call() -> None:
    run = await flow().run()
    assert run.status == "succeeded", run.error
    calls = [e.record for e in run.events if isinstance(e, NodeRecorded) and isinstance(e.record, ToolCall)]
    [call] = calls
    assert [file.read_bytes() for file in call.files] == [PICTURE]
    assert (call.files[0].name, call.files[0].media_type) == ("shoot.png", "image/png")
    assert isinstance(call.value["thumb"], FileValue)
    assert "$bytes" not in "".join(map(encode, run.events))
    assert tool_result_of(call) == ToolResult("[image]", call.value, files=tuple(call.files))


async def test_a_tool_that_gives_too_much_has_failed_and_the_model_is_told() -> None:
    made = flow()
    object.__setattr__(made.plan, "files", FileRules(max_file=10))
    run = await made.run()
    assert run.status == "succeeded", run.error
    [call] = [e.record for e in run.events if isinstance(e, NodeRecorded) and isinstance(e.record, ToolCall)]
    assert call.is_error
    assert "tool 'shoot' gave what cannot be kept: 'shoot' has 11 bytes, and `max_file`" in call.result


@pytest.mark.parametrize(("value", "has_both"), [("[image]", True), ({"width": 3}, False)])
async def test_a_node_gives_the_files_of_its_tool_where_no_value_has_them(value: Any, has_both: bool) -> None:
    async def take(arguments: Any) -> ToolResult:
        return ToolResult("[image]", value, files=(PICTURE,))

    picture = Tool("shoot", "Take a picture", {"type": "object", "properties": {}}, take)
    run = (await Flow("shots", {"a": ToolNode(picture)}).run()).raise_for_status()
    output = run.outputs["a"]
    if has_both:
        assert output["text"] == "[image]"
        assert [file.read_bytes() for file in output["files"]] == [PICTURE]
    else:
        assert output == value
