from __future__ import annotations

import json
import subprocess
import sys
import time
from typing import Any

import jsonschema
import pytest

from flowengine.models.messages import Message
from flowengine.models.model import Request
from flowengine.models.offline.decisions import offline_texts
from flowengine.models.offline.model import OfflineModel
from tests.support.pace import slowness

TEXTS = {
    "en": ("Context:\nMilk is white. Green tea is brewed at 80 degrees.\n\nUser input: How is green tea brewed?", "80"),
    "ja": ("コンテキスト:\n牛乳は白い。緑茶は80度で淹れる。\n\nユーザー入力: 緑茶の淹れ方は？", "80"),
    "zh": ("上下文：\n牛奶是白色的。绿茶用80度的水冲泡。\n\n用户输入：绿茶怎么冲泡？", "80"),
}
ROUTES = {
    "en": ({"publish": "The text is complete", "improve": "Something is missing"}, "Something is still missing here."),
    "ja": ({"公開": "記事が完成している", "改善": "書き直しが必要"}, "この文章は書き直しが必要です。"),
    "zh": ({"发布": "文章已经完成", "改进": "需要修改"}, "这段话还需要修改。"),
}


async def ask(text: str, schema: dict[str, Any] | None = None, system: str = "", **more: Any) -> str:
    chat = (Message("system", system), Message("user", text))
    return (await OfflineModel().complete(Request("offline", chat, response_schema=schema, **more))).content


@pytest.mark.parametrize("language", TEXTS)
async def test_it_answers_with_the_nearest_sentence_and_says_what_it_is(language: Any) -> None:
    text, expected = TEXTS[language]
    *said, notice = (await ask(text)).split("\n")
    assert expected in said[0]
    assert len(said) == 1
    assert notice == offline_texts(language)["notice"]


async def test_the_same_question_has_the_same_answer_and_costs_nothing() -> None:
    request = Request("offline", (Message("user", "Why?"),))
    first, second = [await OfflineModel().complete(request) for _ in range(2)]
    assert first == second
    assert first.cost_usd == 0.0
    assert first.usage.prompt_tokens == 1


@pytest.mark.parametrize("language", TEXTS)
async def test_a_remark_of_an_earlier_stand_in_is_not_repeated(language: Any) -> None:
    first = await ask(TEXTS[language][0])
    again = await ask(f"Context:\n{first}\n\n{TEXTS[language][0].rpartition(chr(10))[2]}")
    assert again == first


async def test_an_answer_to_be_improved_is_kept_and_added_to() -> None:
    prompt = "Context:\nTea is hot. Tea has a long history. Milk is white.\n\nUser input: Is tea hot?"
    guidance = "Your answer above is not good enough.\n\nFeedback: say something about: history\n\nWrite it again."
    chat = (Message("user", prompt), Message("assistant", "Tea is hot."), Message("user", guidance))
    reply = await OfflineModel().complete(Request("offline", chat))
    assert reply.content.split("\n")[:-1] == ["Tea is hot.", "Tea has a long history."]


async def test_a_conversation_goes_on_with_the_new_question() -> None:
    chat = (
        Message("user", "User input: Is tea hot?"),
        Message("assistant", "Tea is hot."),
        Message("user", "Context:\nMilk is white. Snow is cold.\n\nUser input: Which colour is milk?"),
    )
    assert (await OfflineModel().complete(Request("offline", chat))).content.startswith("Milk is white.\n(")


async def test_an_empty_chat_is_answered_too() -> None:
    reply = await OfflineModel().complete(Request("offline", ()))
    assert reply.content.startswith("There is nothing")


async def test_offered_tools_are_not_called() -> None:
    reply = await OfflineModel().complete(
        Request("offline", (Message("user", "Look!"),), tools=({"type": "function", "function": {"name": "look"}},))
    )
    assert not reply.tool_calls
    assert reply.content


async def test_a_stream_ends_in_the_whole_reply() -> None:
    async with OfflineModel().stream(Request("offline", (Message("user", "Tea is hot."),))) as stream:
        *pieces, reply = [piece async for piece in stream]
    assert "".join(pieces) == reply.content


# --- routes


def route_schema(routes: dict[str, str]) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": {
            "next_route": {"type": "string", "enum": list(routes)},
            "confidence": {"type": "number", "minimum": 0, "maximum": 1},
            "reasoning": {"type": "string"},
        },
        "required": ["next_route", "confidence", "reasoning"],
    }


@pytest.mark.parametrize("where", ["schema", "prompt"])
@pytest.mark.parametrize("language", ROUTES)
async def test_a_route_is_chosen_by_its_description(language: str, where: str) -> None:
    routes, text = ROUTES[language]
    schema, listed = route_schema(routes), "\n".join(f"- {name}: {meaning}" for name, meaning in routes.items())
    if where == "schema":
        schema["properties"]["next_route"]["description"] = listed
    answer = json.loads(await ask(f"<result>\n{text}\n</result>", schema, system=listed if where == "prompt" else ""))
    assert answer["next_route"] == list(routes)[1]
    assert answer["confidence"] > 0.6
    assert (
        "offline" in answer["reasoning"].lower() or "オフライン" in answer["reasoning"] or "离线" in answer["reasoning"]
    )


async def test_a_route_that_the_text_names_is_taken() -> None:
    answer = json.loads(await ask("I would say: improve.", route_schema({"publish": "", "improve": ""})))
    assert answer["next_route"] == "improve"


async def test_confidence_is_low_where_nothing_matches() -> None:
    answer = json.loads(await ask("Bananas.", route_schema({"publish": "", "improve": ""})))
    assert answer["confidence"] <= 0.1
    assert "no word" in answer["reasoning"]


async def test_only_the_result_is_routed_not_the_prompt_around_it() -> None:
    text = "<prompt>\npublish publish\n</prompt>\n<result>\nimprove\n</result>\nChoose."
    assert json.loads(await ask(text, route_schema({"publish": "", "improve": ""})))["next_route"] == "improve"


# --- judgements

SHARE = {"type": "number", "minimum": 0, "maximum": 1}
JUDGEMENT = {
    "type": "object",
    "properties": {
        "score": SHARE,
        "criteria_scores": {
            "type": "object",
            "properties": {"history": {**SHARE, "description": "Names the history of tea"}, "form": SHARE},
            "required": ["history", "form"],
        },
        "feedback": {"type": "string"},
        "suggestions": {"type": "array", "items": {"type": "string"}},
    },
    "required": ["score", "criteria_scores", "feedback", "suggestions"],
    "additionalProperties": False,
}


async def judged(result: str) -> dict[str, Any]:
    prompt = "Write about the history of green tea and how it is brewed in Japan."
    answer = json.loads(await ask(f"<prompt>\n{prompt}\n</prompt>\n<result>\n{result}\n</result>\nJudge.", JUDGEMENT))
    jsonschema.validate(answer, JUDGEMENT)
    return answer


async def test_a_text_that_covers_the_request_scores_higher() -> None:
    good = await judged(
        "We write about green tea: its history is long, and it is brewed in Japan at 80 degrees by many."
    )
    poor = await judged("Coffee is black.")
    assert good["score"] >= 0.7 > 0.4 > poor["score"]
    assert good["criteria_scores"]["history"] >= good["criteria_scores"]["form"]
    assert "history" in poor["suggestions"][0]
    assert "Offline stand-in" in poor["feedback"]


async def test_saying_nothing_scores_nothing() -> None:
    assert (await judged(""))["score"] <= 0.05


# --- what it costs


async def test_a_call_takes_less_than_two_milliseconds() -> None:
    text = "Context:\n" + "Green tea was first drunk in China long ago. " * 60 + "\n\nUser input: Where was tea drunk?"
    await ask(text)
    best = min([await _seconds(text) for _ in range(20)])
    assert best < 0.002 * slowness()


async def _seconds(text: str) -> float:
    started = time.perf_counter()
    await ask(text)
    return time.perf_counter() - started


def test_it_imports_nothing_heavy() -> None:
    code = (
        "import sys; import flowengine.models.open; "
        "sys.exit(' '.join({'litellm', 'openai', 'networkx', 'tiktoken', 'httpx'} & set(sys.modules)) or 0)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
