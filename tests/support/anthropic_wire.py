"""Answers in the form of Anthropic's messages, whole and as the events of a stream."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Any, Final, cast

from tests.support.model_answers import Completion, Failure, StreamFailure, Thinking, forced_tool

__all__ = ["AnthropicWire"]

_STOP_REASONS: Final = {"stop": "end_turn", "length": "max_tokens", "tool_calls": "tool_use", "refusal": "refusal"}
_ERROR_TYPES: Final = {
    400: "invalid_request_error",
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    500: "api_error",
    529: "overloaded_error",
}


class AnthropicWire:
    """`/v1/messages`."""

    path = "/messages"

    def failure(self, failure: Failure) -> dict[str, Any]:
        kind = failure.code or _ERROR_TYPES.get(failure.status, "api_error")
        return {"type": "error", "error": {"type": kind, "message": failure.message}, "request_id": "req_local"}

    def whole(self, completion: Completion, body: Mapping[str, Any]) -> dict[str, Any]:
        blocks = _blocks(completion, body)
        shape = _envelope(body, blocks, _stop_reason(completion, blocks))
        usage = _usage(completion, body)
        return {**shape, "usage": usage} if usage else shape

    def frames(self, completion: Completion, body: Mapping[str, Any]) -> list[bytes]:
        """The events of a streamed answer, its end in the last one."""
        return [_frame(each) for each in _events(completion, body)]

    def broken_frame(self, failure: StreamFailure) -> bytes:
        return _frame({"type": "error", "error": {"type": failure.kind, "message": failure.message}})


def _frame(event: Mapping[str, Any]) -> bytes:
    return f"event: {event['type']}\ndata: {json.dumps(event)}\n\n".encode()


def _envelope(body: Mapping[str, Any], blocks: list[dict[str, Any]], stop_reason: str | None) -> dict[str, Any]:
    return {
        "id": "msg_local",
        "type": "message",
        "role": "assistant",
        "model": body.get("model", "local"),
        "content": blocks,
        "stop_reason": stop_reason,
        "stop_sequence": None,
    }


def _blocks(completion: Completion, body: Mapping[str, Any]) -> list[dict[str, Any]]:
    blocks: list[dict[str, Any]] = [_thinking(each) for each in completion.thinking]
    text, tool = completion.refusal or completion.content or "", forced_tool(body)
    if tool is not None and text and not completion.tool_calls:
        with suppress(ValueError):
            return [*blocks, {"type": "tool_use", "id": "toolu_1", "name": tool, "input": json.loads(text)}]
    if text:
        blocks.append({"type": "text", "text": text})
    return blocks + [
        {"type": "tool_use", "id": call.id, "name": call.name, "input": json.loads(call.arguments_text)}
        for call in completion.tool_calls
    ]


def _thinking(thinking: Thinking) -> dict[str, Any]:
    if thinking.redacted is not None:
        return {"type": "redacted_thinking", "data": thinking.redacted}
    return {"type": "thinking", "thinking": thinking.text, "signature": thinking.signature}


def _stop_reason(completion: Completion, blocks: list[dict[str, Any]]) -> str:
    if completion.finish_reason is not None:
        return _STOP_REASONS.get(completion.finish_reason, completion.finish_reason)
    if completion.refusal is not None:
        return "refusal"
    return "tool_use" if any(each["type"] == "tool_use" for each in blocks) else "end_turn"


def _usage(completion: Completion, body: Mapping[str, Any]) -> dict[str, Any]:
    if completion.usage is not None:
        return dict(completion.usage)
    prompt = len(json.dumps([body.get("system", ""), body.get("messages", "")], ensure_ascii=False)) // 4 + 1
    return {"input_tokens": prompt, "output_tokens": len(completion.content or "") // 4 + 1}


def _events(completion: Completion, body: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    blocks, usage = _blocks(completion, body), _usage(completion, body)
    start = {**_envelope(body, [], None), "usage": {**usage, "output_tokens": 1} if usage else {}}
    yield {"type": "message_start", "message": start}
    for index, block in enumerate(blocks):
        pieces = _pieces(block)
        yield {"type": "content_block_start", "index": index, "content_block": next(pieces)}
        if index == 0:
            yield {"type": "ping"}
        for each in pieces:
            yield {"type": "content_block_delta", "index": index, "delta": each}
        yield {"type": "content_block_stop", "index": index}
    end = {"stop_reason": _stop_reason(completion, blocks), "stop_sequence": None}
    yield {"type": "message_delta", "delta": end, "usage": {"output_tokens": usage.get("output_tokens", 0)}}
    yield {"type": "message_stop"}


def _pieces(block: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """A block as it begins, and what is added to it."""
    match block["type"]:
        case "text":
            yield {"type": "text", "text": ""}
            yield from ({"type": "text_delta", "text": each} for each in _cut(block["text"]))
        case "tool_use":
            yield {**block, "input": {}}
            text = json.dumps(block["input"], ensure_ascii=False) if block["input"] else ""
            yield from ({"type": "input_json_delta", "partial_json": each} for each in ["", *_cut(text)])
        case "thinking":
            yield {"type": "thinking", "thinking": "", "signature": ""}
            yield from ({"type": "thinking_delta", "thinking": each} for each in _cut(block["thinking"]))
            yield {"type": "signature_delta", "signature": block["signature"]}
        case _:
            yield cast("dict[str, Any]", block)


def _cut(text: str) -> list[str]:
    return [text[at : at + 8] for at in range(0, len(text), 8)]
