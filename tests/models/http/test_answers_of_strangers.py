"""Whatever JSON a server sends, the readers of protocols give an answer or an error of a model, and nothing else."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, cast

import pytest

from flowengine.errors import ModelError
from flowengine.models.http.anthropic_messages import ANTHROPIC_MESSAGES
from flowengine.models.http.chat_protocol import ChatProtocol, StreamedEvent
from flowengine.models.http.openai_chat import OPENAI_CHAT
from flowengine.models.http.openai_responses import OPENAI_RESPONSES
from flowengine.models.http.vendor_endpoint import VendorEndpoint, check_answer
from flowengine.models.http.vendor_traits import NATIVE, traits_of
from flowengine.models.model import as_json
from flowengine.models.wrappers.priced import cost_of

MODELS: Final[Mapping[str, ChatProtocol]] = {
    "openai/gpt-4o-mini": OPENAI_CHAT,
    "google/gemini-2.5-flash": OPENAI_CHAT,
    "deepseek/deepseek-reasoner": OPENAI_CHAT,
    "mistral/magistral-medium-latest": OPENAI_CHAT,
    "openrouter/anthropic/claude-sonnet-4.5": OPENAI_CHAT,
    "anthropic/claude-haiku-4-5": ANTHROPIC_MESSAGES,
    "openai/gpt-5.6-sol": OPENAI_RESPONSES,
}
ODD: Final = (
    None,
    True,
    -1,
    7,
    10**400,
    float("nan"),
    "",
    "\ud83d",
    "400",
    [],
    [None],
    [[1]],
    {},
    {"a": []},
    ["x", {}],
)
"""What may stand where a protocol has another value."""
USAGE: Final = {
    **{"prompt_tokens": 9, "completion_tokens": 3, "total_tokens": 20, "cost": 0.1, "is_byok": True},
    **{"input_tokens": 9, "output_tokens": 3, "prompt_tokens_details": {"cached_tokens": 2}},
    **{"cost_details": {"upstream_inference_cost": 0.1}, "input_tokens_details": {"cached_tokens": 2}},
    **{"output_tokens_details": {"reasoning_tokens": 1}, "completion_tokens_details": {"reasoning_tokens": 1}},
}
CALL: Final = {"index": 0, "id": "a", "function": {"name": "f", "arguments": "{}"}, "extra_content": {"google": {}}}
CHAT: Final = {
    **{"role": "assistant", "content": [{"type": "text", "text": "a"}], "tool_calls": [CALL], "refusal": ""},
    **{"reasoning_content": "b", "reasoning_details": [{"index": 0, "type": "t", "text": "c"}]},
}
BLOCKS: Final = (
    {"type": "text", "text": "a"},
    {"type": "tool_use", "id": "a", "name": "give_value", "input": {"value": 1}},
)
ITEMS: Final = (
    {"type": "reasoning", "id": "r", "summary": [], "encrypted_content": "x"},
    {"type": "function_call", "call_id": "a", "id": "b", "name": "f", "arguments": "{}"},
    {"type": "message", "phase": "commentary", "content": [{"type": "output_text", "text": "a"}]},
)
RESPONSE: Final = {"status": "incomplete", "incomplete_details": {"reason": "x"}, "output": [*ITEMS], "usage": USAGE}
ANSWERS: Final[Mapping[ChatProtocol, tuple[Any, Sequence[Any]]]] = {
    OPENAI_CHAT: (
        {"model": "m", "choices": [{"index": 0, "message": CHAT, "finish_reason": "stop"}], "usage": USAGE},
        [
            {"model": "m", "choices": [{"index": 0, "delta": CHAT}]},
            {"choices": [{"index": 0, "delta": CHAT, "finish_reason": "stop"}], "usage": USAGE},
            {"error": {"code": 429, "type": "x", "message": "slow"}},
        ],
    ),
    ANTHROPIC_MESSAGES: (
        {"model": "m", "content": [*BLOCKS], "stop_reason": "tool_use", "usage": USAGE},
        [
            {"type": "message_start", "message": {"model": "m", "usage": USAGE}},
            *({"type": "content_block_start", "index": at, "content_block": each} for at, each in enumerate(BLOCKS)),
            {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "a"}},
            {"type": "content_block_delta", "index": 1, "delta": {"type": "input_json_delta", "partial_json": "{"}},
            {"type": "content_block_delta", "index": 2, "delta": {"type": "signature_delta", "signature": "s"}},
            {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": USAGE},
            {"type": "error", "error": {"type": "overloaded_error", "message": "slow"}},
        ],
    ),
    OPENAI_RESPONSES: (
        RESPONSE,
        [
            *(
                {"type": "response.output_item.added", "output_index": at, "item": each}
                for at, each in enumerate(ITEMS)
            ),
            {"type": "response.output_text.delta", "output_index": 2, "delta": "a"},
            {"type": "response.output_item.done", "output_index": 2, "item": ITEMS[2]},
            {"type": "response.completed", "response": RESPONSE},
            {"type": "response.failed", "response": {"error": {"code": "x", "message": "slow"}}},
        ],
    ),
}


def vary(value: Any) -> Iterator[Any]:
    """The value with each odd one at each of its places, one at a time, and without each of its entries."""
    yield from ODD
    if isinstance(value, dict):
        entries = cast("dict[str, Any]", value)
        for name, inner in entries.items():
            yield {other: each for other, each in entries.items() if other != name}
            yield from ({**entries, name: each} for each in vary(inner))
    elif isinstance(value, list):
        parts = cast("list[Any]", value)
        for at, inner in enumerate(parts):
            yield from ([*parts[:at], each, *parts[at + 1 :]] for each in vary(inner))


def read_all(name: str, body: Mapping[str, Any], events: Sequence[Any]) -> None:
    """Both ways to a reply, as the client goes them, and what a record does with it."""
    provider, _, model = name.partition("/")
    traits, protocol = traits_of(provider, model), MODELS[name]
    endpoint = VendorEndpoint(provider, model, NATIVE[provider], {"api_key": "sk-0123456789abcdef0123"})

    def stream() -> Any:
        collector = protocol.collector(traits)
        for each in events:
            _ = collector.has_ended, collector.has_begun
            if collector.is_complete:
                break
            assert isinstance(collector.add(StreamedEvent(each)), str)
        return collector.answer()

    for read in (lambda: protocol.read(body, traits), stream):
        try:
            with endpoint.telling_errors():
                answer = read()
            cost = cost_of(provider, model, answer.reply.usage, {})
            reply = check_answer(answer.reply._replace(cost_usd=cost), answer.refusal, endpoint.keys)
        except ModelError:
            continue
        assert isinstance(reply.content, str)
        as_json([reply.content, reply.finish_reason, reply.model, *map(dict, reply.vendor_parts), *reply.tool_calls])


@pytest.mark.parametrize("name", MODELS)
def test_whatever_a_server_answers_is_an_answer_or_an_error_of_a_model(name: str) -> None:
    body, (*events, failure) = ANSWERS[MODELS[name]]
    sound = [json.dumps(each) for each in events]
    for each in vary(body):
        if isinstance(each, dict):  # All else is refused before.
            read_all(name, cast("dict[str, Any]", each), [])
    for at, event in enumerate(events):
        for each in vary(event):
            read_all(name, {}, [*sound[:at], json.dumps(each), *sound[at + 1 :]])
    for each in vary(failure):
        read_all(name, {}, [sound[0], json.dumps(each)])


@pytest.mark.parametrize("name", MODELS)
def test_a_value_that_is_nested_too_deep_is_one_too(name: str) -> None:
    deep: Any = "x"
    for _ in range(600):
        deep = {"input": deep}
    call = {"type": "tool_use", "id": "a", "name": "f", "input": deep}
    chat = {"tool_calls": [{"id": "a", "function": {"name": "f", "arguments": deep}}], "reasoning_details": [deep]}
    body = {"choices": [{"message": chat}], "content": [call], "output": [{"type": "reasoning", "summary": deep}]}
    events = [
        {"type": "content_block_start", "content_block": call},
        {"type": "message_delta", "delta": {"stop_reason": "tool_use"}},
        {"choices": [{"delta": chat, "finish_reason": "stop"}]},
        {"type": "response.completed", "response": body},
    ]
    read_all(name, body, [json.dumps(each) for each in events])
