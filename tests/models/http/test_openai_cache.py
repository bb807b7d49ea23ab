"""How far prompts begin alike, as OpenAI's cache is told it."""

from __future__ import annotations

from typing import Any

import pytest

from flowengine.models.http.openai_chat import OPENAI_CHAT
from flowengine.models.http.openai_responses import OPENAI_RESPONSES
from flowengine.models.http.vendor_traits import traits_of
from flowengine.models.messages import Message, ToolRequest
from flowengine.models.model import PromptCache, Request

LONG = "x" * 2000
SYSTEM = Message("system", LONG)
WHY = Message("user", "Why?")
TOOL = {"type": "function", "function": {"name": "f", "parameters": {"type": "object", "properties": {}}}}
CALL = (Message("assistant", "", (ToolRequest("1", "f", "{}"),)), Message("tool", "y", tool_call_id="1"))


def parts_of(body: dict[str, Any]) -> list[tuple[str, str, bool]]:
    """Role, text and whether it is marked, of each message that has parts."""
    return [
        (each["role"], part["text"], "prompt_cache_breakpoint" in part)
        for each in body.get("messages", body.get("input", ()))
        for part in (each.get("content") if isinstance(each.get("content"), list) else ())
    ]


@pytest.mark.parametrize(
    ("messages", "more", "marked", "is_explicit"),
    [
        ((SYSTEM, WHY), {}, LONG, True),
        ((Message("system", "Be brief."), Message("user", LONG + "Why?", stable=2000)), {}, LONG, True),
        ((SYSTEM, WHY), {"tools": (TOOL,)}, LONG, False),
        ((Message("system", "Be brief."), WHY), {"tools": (TOOL,)}, "Be brief.", False),
        ((SYSTEM, WHY, *CALL), {"tools": (TOOL,)}, LONG, False),
        ((SYSTEM, WHY, Message("assistant", "So."), WHY), {}, LONG, False),
        ((Message("system", "Be brief."), WHY), {}, "", False),
        ((Message("user", LONG),), {}, "", False),
        ((SYSTEM, WHY), {"cache": None}, "", False),
        ((SYSTEM, WHY), {"cache": PromptCache.of("off", "k")}, "", True),
        ((SYSTEM, WHY), {"cache": PromptCache("k", is_asked_again=False)}, "", True),
    ],
)
def test_what_stays_of_a_prompt_is_marked_where_writing_it_costs(
    messages: tuple[Message, ...], more: dict[str, Any], marked: str, is_explicit: bool
) -> None:
    request = Request("gpt-5.6-sol", messages, **{"cache": PromptCache("k"), **more})
    for protocol in (OPENAI_CHAT, OPENAI_RESPONSES):
        made = protocol.body(request, traits_of("openai", "gpt-5.6-sol"), stream=False)
        parts = parts_of(made)
        assert [text for _, text, is_marked in parts if is_marked] == ([marked] if marked else [])
        assert "".join(text for _, text, _ in parts) in ("", LONG, LONG + "Why?", "Be brief.")
        assert ("prompt_cache_options" in made) == is_explicit
        assert ("instructions" in made and marked == messages[0].content) is False


def test_what_an_author_says_of_the_cache_goes_first() -> None:
    given = {"prompt_cache_options": {"mode": "implicit"}, "prompt_cache_key": "mine"}
    request = Request("gpt-5.6-sol", (SYSTEM, WHY), cache=PromptCache("k"), extra=given)
    for protocol in (OPENAI_CHAT, OPENAI_RESPONSES):
        made = protocol.body(request, traits_of("openai", "gpt-5.6-sol"), stream=False)
        assert {name: made[name] for name in given} == given


@pytest.mark.parametrize(("provider", "name"), [("openai", "gpt-5.5"), ("azure", "gpt-5.6-sol"), ("groq", "m")])
def test_others_get_no_mark(provider: str, name: str) -> None:
    request = Request(name, (SYSTEM, WHY), cache=PromptCache("k"))
    made = OPENAI_CHAT.body(request, traits_of(provider, name), stream=False)
    elsewhere = OPENAI_CHAT.body(request, traits_of("openai", "gpt-5.6-sol", is_elsewhere=True), stream=False)
    assert parts_of(made) == parts_of(elsewhere) == []
