"""Has a model decide whether to answer a conversation at all, of a declared shape.

It knows one question and how its answer is read. The question has the prompt of the answer, byte for byte, up to the
task: what a vendor has cached for the one serves the other.
"""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, tzinfo
from typing import Final

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from flowengine.agents.memory.scopes.channel_messages import PromptRecord
from flowengine.agents.memory.scopes.memory_prompt import prompt_messages
from flowengine.core import Gateway, Messages, Share, find_json, load_messages
from flowengine.errors import OutputError, PermanentModelError
from flowengine.models import Message, Model, Reply, Request, supports_schema


class ReplyDecision(BaseModel):
    """Whether to answer, how sure that is, and why."""

    model_config = ConfigDict(frozen=True)

    should_reply: bool = Field(description="Whether the bot is addressed, or asked for what it knows")
    confidence: Share = Field(description="From 0.0, a guess, to 1.0, certain")
    reason: str = Field(description="One sentence")


_SCHEMA: Final = ReplyDecision.model_json_schema()


async def judge(
    record: PromptRecord,
    model: Model,
    gateway: Gateway,
    *,
    locale: str = "en",
    timezone: tzinfo = UTC,
    max_retries: int = 2,
    temperature: float | None = 0.0,
    timeout: float | None = None,
) -> ReplyDecision:
    """Ask whether to answer. An answer that does not fit is sent back, at most `max_retries` times; then it is an
    `OutputError`: there is no default answer."""
    words = load_messages(locale)
    messages = prompt_messages(record, "judge", locale=locale, timezone=timezone)
    if not await supports_schema(model):
        messages = _with_format(messages, words)
    first = Request(
        model.name,
        messages,
        temperature=temperature,
        timeout=timeout,
        response_schema=_SCHEMA,
        response_name=ReplyDecision.__name__,
    )
    request, problem = first, ""
    for _ in range(1 + max_retries):
        reply: Reply = await gateway.complete(model, request, purpose="judge")
        if reply.finish_reason == "content_filter":
            raise PermanentModelError(f"model '{reply.model}' refused to decide (content filter)")
        decision, problem = _read(reply.content)
        if decision is not None:
            return decision
        correction = Message("user", words("structured.correction", problem=problem))
        request = replace(first, messages=(*messages, Message("assistant", reply.content or "-"), correction))
    raise OutputError(f"model '{model.name}' gave no decision in {1 + max_retries} call(s): {problem}")


def _with_format(messages: tuple[Message, ...], words: Messages) -> tuple[Message, ...]:
    """The shape in words, behind the task: whatever comes before it stays the same."""
    shape = words("structured.format", schema=json.dumps(_SCHEMA, ensure_ascii=False, separators=(",", ":")))
    last = messages[-1]
    return (*messages[:-1], last._replace(content=f"{last.content}\n\n{shape}"))


def _read(text: str) -> tuple[ReplyDecision | None, str]:
    """The decision, or what is wrong with the text."""
    problem = ""
    for value in find_json(text, "{"):
        try:
            return ReplyDecision.model_validate(value), ""
        except ValidationError as error:
            problem = problem or "; ".join(
                f"{'.'.join(map(str, each['loc']))}: {each['msg']}" for each in error.errors(include_url=False)
            )
    return None, problem or "it holds no JSON object"
