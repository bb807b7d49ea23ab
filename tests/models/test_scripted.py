from __future__ import annotations

import re
import time
from typing import Any

import pytest

from flowengine.errors import TransientModelError
from flowengine.models.messages import Message, ToolRequest
from flowengine.models.model import Reply, Request
from flowengine.models.scripted import ScriptedModel, UnscriptedCallError


def asking(text: str, **more: Any) -> Request:
    return Request("m", (Message("user", text),), **more)


async def test_a_list_answers_in_order_and_then_shows_what_was_asked() -> None:
    model = ScriptedModel(["one", {"two": 2}, ["drei"]])
    assert [(await model.complete(asking(str(n)))).content for n in range(3)] == ["one", '{"two": 2}', '["drei"]']
    with pytest.raises(UnscriptedCallError, match=r"(?s)call 4, but the script has 3 answers.*\[user\] what now"):
        await model.complete(asking("what now"))
    assert [each.messages[0].content for each in model.requests] == ["0", "1", "2", "what now"]


async def test_a_dict_answers_by_text_pattern_and_purpose() -> None:
    model = ScriptedModel(
        {"routing": {"next_route": "a"}, re.compile(r"\d+"): ("first", "later"), "tea": lambda request: request.model}
    )
    assert (await model.complete(asking("x", response_schema={}, response_name="routing"))).content.startswith("{")
    numbers = [(await model.complete(asking(f"no {n}"))).content for n in range(3)]
    assert numbers == ["first", "later", "later"]
    assert (await model.complete(asking("green tea"))).content == "m"
    with pytest.raises(UnscriptedCallError, match="its keys are"):
        await model.complete(asking("coffee"))


async def test_errors_are_raised_and_tool_calls_and_replies_handed_on() -> None:
    call = ToolRequest("1", "look", "{}")
    model = ScriptedModel([TransientModelError("busy", 2), call, Reply("text", cost_usd=0.5)])
    with pytest.raises(TransientModelError, match="busy"):
        await model.complete(asking(""))
    assert (await model.complete(asking(""))).tool_calls == (call,)
    assert (await model.complete(asking("")))[:1] == ("text",)


async def test_a_stream_gives_the_text_in_pieces_and_then_the_reply() -> None:
    async with ScriptedModel(lambda request: "one two  three").stream(asking("")) as stream:
        pieces = [piece async for piece in stream]
    assert len(pieces) == 4
    assert "".join(str(each) for each in pieces[:-1]) == pieces[-1].content == "one two  three"


async def test_latency_is_waited_for() -> None:
    started = time.monotonic()
    await ScriptedModel(["x"], latency=0.05).complete(asking(""))
    assert time.monotonic() - started >= 0.05
