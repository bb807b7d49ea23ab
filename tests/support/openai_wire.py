"""Answers in the form of OpenAI's chat completions, whole and as the frames of a stream."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from tests.support.model_answers import Completion, Failure, StreamFailure, ToolCall, forced_tool

__all__ = ["OpenAIWire"]


class OpenAIWire:
    """`/chat/completions`."""

    path = "/chat/completions"

    def failure(self, failure: Failure) -> dict[str, Any]:
        return {
            "error": {"message": failure.message, "type": "local_error", "param": None, "code": failure.code},
        }

    def whole(self, completion: Completion, body: Mapping[str, Any]) -> dict[str, Any]:
        completion = _as_forced(completion, body)
        message: dict[str, Any] = {"role": "assistant", "content": completion.content}
        if completion.tool_calls:
            message["tool_calls"] = _tool_calls(completion)
        if completion.refusal is not None:
            message["refusal"] = completion.refusal
        if completion.reasoning is not None:
            message["reasoning_content"] = completion.reasoning
        choice = {"message": message, "finish_reason": _finish_reason(completion)}
        shape = _envelope("chat.completion", body, choice)
        usage = _usage(completion, body)
        return {**shape, "usage": usage} if usage else shape

    def frames(self, completion: Completion, body: Mapping[str, Any]) -> list[bytes]:
        """The events of a streamed answer, its end in the last one."""
        chunks = _chunks(_as_forced(completion, body), body)
        return [*(_frame(json.dumps(each)) for each in chunks), _frame("[DONE]")]

    def broken_frame(self, failure: StreamFailure) -> bytes:
        return _frame(json.dumps({"error": {"message": failure.message, "type": failure.kind}}))


def _frame(data: str) -> bytes:
    return f"data: {data}\n\n".encode()


def _as_forced(completion: Completion, body: Mapping[str, Any]) -> Completion:
    """A text, for a model that may only call one tool: its call."""
    tool = forced_tool(body)
    if tool is None or completion.tool_calls or not completion.content:
        return completion
    return Completion(None, (ToolCall(tool, completion.content),), usage=completion.usage)


def _usage(completion: Completion, body: Mapping[str, Any]) -> dict[str, Any]:
    if completion.usage is not None:
        return dict(completion.usage)
    prompt = len(json.dumps(body.get("messages", ""), ensure_ascii=False)) // 4 + 1
    answer = len(completion.content or "") // 4 + 1
    return {"prompt_tokens": prompt, "completion_tokens": answer, "total_tokens": prompt + answer}


def _tool_calls(completion: Completion) -> list[dict[str, Any]]:
    return [
        {
            "index": index,
            "id": call.id,
            "type": "function",
            "function": {"name": call.name, "arguments": call.arguments_text},
        }
        for index, call in enumerate(completion.tool_calls)
    ]


def _finish_reason(completion: Completion) -> str:
    return completion.finish_reason or ("tool_calls" if completion.tool_calls else "stop")


def _envelope(kind: str, body: Mapping[str, Any], choice: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "id": "chatcmpl-local",
        "object": kind,
        "created": 1700000000,
        "model": body.get("model", "local"),
        "choices": [{"index": 0, **choice}],
    }


def _chunks(completion: Completion, body: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Role, what was thought, words, a refusal, tool calls, the end, and the usage where asked for."""
    deltas: list[dict[str, Any]] = [{"role": "assistant", "content": ""}]
    if completion.reasoning is not None:
        deltas.append({"reasoning_content": completion.reasoning})
    text = completion.content or ""
    deltas += [{"content": text[at : at + 8]} for at in range(0, len(text), 8)]
    if completion.refusal is not None:
        deltas.append({"refusal": completion.refusal})
    deltas += [{"tool_calls": [call]} for call in _tool_calls(completion)]
    kind = "chat.completion.chunk"
    chunks = [_envelope(kind, body, {"delta": each, "finish_reason": None}) for each in deltas]
    chunks.append(_envelope(kind, body, {"delta": {}, "finish_reason": _finish_reason(completion)}))
    asked: Mapping[str, Any] = body.get("stream_options") or {}
    if asked.get("include_usage"):
        chunks.append({**_envelope(kind, body, {}), "choices": [], "usage": _usage(completion, body)})
    return chunks
