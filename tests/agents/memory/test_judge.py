"""The decision whether to answer: structured, corrected, and asked with the prompt of the answer."""

from __future__ import annotations

import json
import time
from datetime import UTC, datetime
from typing import Any

import pytest

from flowengine.agents.memory.scopes.channel_messages import ChannelMessage, ChannelMessages, PromptRecord
from flowengine.agents.memory.scopes.judge import ReplyDecision, judge
from flowengine.agents.memory.scopes.memory_prompt import prompt_messages
from flowengine.agents.standalone import DirectGateway
from flowengine.errors import OutputError, PermanentModelError
from flowengine.models.messages import as_dict
from flowengine.models.model import Reply
from flowengine.models.offline.model import OfflineModel
from flowengine.models.scripted import ScriptedModel
from tests.support.pace import slowness

SAID = ChannelMessage("1", "aki", "ボットさん、今日の予定は？", datetime(2025, 3, 1, tzinfo=UTC))
RECORD = PromptRecord("P", ChannelMessages("C1", "general", (SAID,)), workspace_long_term_memory="2019年に設立。")
YES = {"should_reply": True, "confidence": 0.9, "reason": "It was asked."}


async def decided(answers: list[Any], **options: Any) -> tuple[ReplyDecision, ScriptedModel]:
    model = ScriptedModel(answers)
    return await judge(RECORD, model, DirectGateway(), locale="ja", **options), model


class Unaware(ScriptedModel):
    """A model that has to be told the shape in words."""

    async def supports_schema(self) -> bool:
        return False


async def test_the_decision_is_structured():
    decision, model = await decided([YES])
    assert decision == ReplyDecision(should_reply=True, confidence=0.9, reason="It was asked.")
    (request,) = model.requests
    assert request.response_schema is not None
    assert set(request.response_schema["required"]) == {"should_reply", "confidence", "reason"}
    assert request.messages[-1].content == "上記の情報を元に、この会話に返答すべきかどうかを判断してください。"


@pytest.mark.parametrize("kind", [ScriptedModel, Unaware])
async def test_what_is_sent_shares_every_byte_with_the_answers_prompt_up_to_the_task(kind: type[ScriptedModel]):
    model = kind([YES])
    await judge(RECORD, model, DirectGateway(), locale="ja")
    sent = json.dumps([as_dict(each) for each in model.requests[0].messages]).encode()
    answer = prompt_messages(RECORD, "answer", locale="ja")
    shared = json.dumps([as_dict(answer[0]), {"role": "user", "content": "上記の情報を"}]).encode().removesuffix(b'"}]')
    assert sent.startswith(shared)
    assert json.dumps([as_dict(each) for each in answer]).encode().startswith(shared)


async def test_the_shape_is_told_behind_the_task_where_the_vendor_enforces_none():
    model = Unaware(['Well. {"should_reply": false, "confidence": 1, "reason": "Small talk."} Bye.'])
    decision = await judge(RECORD, model, DirectGateway(), locale="ja")
    assert decision.should_reply is False
    assert "JSON Schema" in model.requests[0].messages[-1].content


async def test_an_answer_that_does_not_fit_is_sent_back_with_what_is_wrong():
    decision, model = await decided(["Yes!", {**YES, "confidence": 90}, YES])
    assert decision.should_reply
    corrections = [each.messages[-1].content for each in model.requests[1:]]
    assert "it holds no JSON object" in corrections[0]
    assert "confidence: Input should be less than or equal to 1" in corrections[1]
    assert [len(each.messages) for each in model.requests] == [2, 4, 4]


async def test_no_decision_is_an_error_and_never_a_default():
    with pytest.raises(OutputError, match=r"gave no decision in 2 call\(s\): it holds no JSON object"):
        await decided(["Yes", ""], max_retries=1)
    with pytest.raises(PermanentModelError, match="refused to decide"):
        await decided([Reply("", finish_reason="content_filter", model="m")])


async def test_an_answer_of_beginnings_alone_is_given_up_in_time():
    begun = time.process_time()
    with pytest.raises(OutputError, match="no JSON object"):
        await decided(['{"a":' * 200_000], max_retries=0)
    assert time.process_time() - begun < 2 * slowness()


async def test_the_offline_model_decides_too():
    assert isinstance(await judge(RECORD, OfflineModel(), DirectGateway(), locale="ja"), ReplyDecision)


def test_a_confidence_is_a_number():
    with pytest.raises(ValueError, match="not true or false"):
        ReplyDecision(should_reply=True, confidence=True, reason="It is addressed")
