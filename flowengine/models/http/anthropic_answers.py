"""Reads answers of Anthropic's messages, whole and streamed, into replies.

Text, tool calls and signed thinking are blocks of one answer. Thinking goes back with the results of tools and is kept
for that alone. Fields that an answer lacks stay unknown.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final

from flowengine.models.http.chat_protocol import (
    IncompleteAnswerError,
    StreamedEvent,
    StreamFailureError,
    VendorAnswer,
    as_object,
    as_text,
    list_of_objects,
    with_own_ids,
)
from flowengine.models.messages import ToolRequest
from flowengine.models.model import Reply, TokenUsage, read_finish_reason, read_token_count

ANSWER_TOOL: Final = "give_answer"
"""The tool that a model is made to call where its answer has to follow a schema."""
VALUE_TOOL: Final = "give_value"
"""The same for a value that is no object, and stands in one under `WRAPPED_VALUE`."""
WRAPPED_VALUE: Final = "value"

THINKING: Final = frozenset({"thinking", "redacted_thinking"})
"""Types of the blocks that go back unchanged."""

_REASONS: Final = {
    "end_turn": "stop",
    "stop_sequence": "stop",
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
    "tool_use": "tool_calls",
    "refusal": "content_filter",
}


def read_message(body: Mapping[str, Any]) -> VendorAnswer:
    """A whole answer; `IncompleteAnswerError` where there is none in it."""
    content = body.get("content")
    if not isinstance(content, list) and body.get("error"):
        raise StreamFailureError(body)  # Some gateways tell it with a status of 200.
    if not isinstance(content, list):
        raise IncompleteAnswerError("the server's answer is empty, it has no content", is_final=not body)
    usage, model = as_object(body.get("usage")), as_text(body.get("model"))
    return _to_answer(list_of_objects(content), body.get("stop_reason"), usage, model)


def _to_answer(
    blocks: Sequence[Mapping[str, Any]], stop_reason: Any, usage: Mapping[str, Any], model: str
) -> VendorAnswer:
    hour_writes = read_token_count(as_object(usage.get("cache_creation")).get("ephemeral_1h_input_tokens"))
    return VendorAnswer(_to_reply(blocks, stop_reason, usage, model), hour_writes=hour_writes or 0)


def _to_reply(blocks: Sequence[Mapping[str, Any]], stop_reason: Any, usage: Mapping[str, Any], model: str) -> Reply:
    calls = with_own_ids(_read_call(each, at) for at, each in enumerate(e for e in blocks if _is(e, "tool_use")))
    reason = read_finish_reason(stop_reason, _REASONS, has_calls=bool(calls))
    answer = next((each for each in calls if each.name in (ANSWER_TOOL, VALUE_TOOL)), None)
    if answer is not None:
        return Reply(
            _unwrap(answer),
            usage=_read_usage(usage),
            finish_reason="stop" if reason == "tool_calls" else reason,
            model=model,
        )
    return Reply(
        "".join(as_text(each.get("text")) for each in blocks if _is(each, "text")),
        calls,
        _read_usage(usage),
        finish_reason=reason,
        model=model,
        vendor_parts=tuple(each for each in blocks if as_text(each.get("type")) in THINKING) if calls else (),
    )


def _is(block: Mapping[str, Any], kind: str) -> bool:
    return block.get("type") == kind


def _read_call(block: Mapping[str, Any], index: int) -> ToolRequest:
    input = block.get("input")
    arguments = input if isinstance(input, str) else json.dumps(input or {}, ensure_ascii=False)
    return ToolRequest(as_text(block.get("id")) or f"call_{index}", as_text(block.get("name")), arguments)


def _unwrap(call: ToolRequest) -> str:
    """The answer as JSON text."""
    if call.name == ANSWER_TOOL:
        return call.arguments
    try:
        value: Any = json.loads(call.arguments)
    except (ValueError, RecursionError):
        return call.arguments
    is_wrapped = isinstance(value, dict) and WRAPPED_VALUE in value
    return json.dumps(value[WRAPPED_VALUE], ensure_ascii=False) if is_wrapped else call.arguments


def _read_usage(usage: Mapping[str, Any]) -> TokenUsage:
    """The prompt's tokens are told in three parts: those read from a cache, those written to one, and the rest."""
    fresh, completion = read_token_count(usage.get("input_tokens")), read_token_count(usage.get("output_tokens"))
    read, cache_writes = (
        read_token_count(usage.get(each)) for each in ("cache_read_input_tokens", "cache_creation_input_tokens")
    )
    if not (fresh or completion or read or cache_writes):
        return TokenUsage()
    thought = as_object(usage.get("output_tokens_details")).get("thinking_tokens")
    prompt = (fresh or 0) + (read or 0) + (cache_writes or 0)
    return TokenUsage(prompt, completion, read, cache_writes, read_token_count(thought))


# --- Streamed answers


class MessageCollector:
    """`AnswerCollector` of the events of one message."""

    def __init__(self) -> None:
        self.is_complete = False
        self._blocks: dict[int, dict[str, Any]] = {}
        self._inputs: dict[int, list[str]] = {}
        self._texts: dict[tuple[int, str], list[str]] = {}
        """(block, field) → the pieces of its text."""
        self._usage: dict[str, Any] = {}
        self._model = ""
        self._stop_reason = ""

    def add(self, event: StreamedEvent) -> str:
        return self._take(event.read()) if event.data.strip() else ""

    @property
    def has_begun(self) -> bool:
        return bool(self._blocks)

    @property
    def has_ended(self) -> bool:
        return bool(self._stop_reason)

    def answer(self) -> VendorAnswer:
        if not self._stop_reason:
            raise IncompleteAnswerError("the answer broke off before its end")
        blocks = {index: dict(self._blocks[index]) for index in sorted(self._blocks)}
        for (index, field), pieces in self._texts.items():
            blocks[index][field] = as_text(blocks[index].get(field)) + "".join(pieces)
        for index, pieces in self._inputs.items():
            blocks[index]["input"] = "".join(pieces) or blocks[index].get("input") or {}
        return _to_answer([*blocks.values()], self._stop_reason, self._usage, self._model)

    def _take(self, event: dict[str, Any]) -> str:
        match event.get("type"):
            case "message_start":
                self._begin(as_object(event.get("message")))
            case "content_block_start":
                return self._open_block(_index(event), as_object(event.get("content_block")))
            case "content_block_delta":
                return self._add_delta(_index(event), as_object(event.get("delta")))
            case "message_delta":
                self._stop_reason = as_text(as_object(event.get("delta")).get("stop_reason")) or self._stop_reason
                self._add_usage(event)
            case "message_stop":
                self.is_complete = True
            case "error":
                raise StreamFailureError(event)
            case _:  # `ping`, `content_block_stop`, and what the API may add
                pass
        return ""

    def _begin(self, message: Mapping[str, Any]) -> None:
        self._model = as_text(message.get("model"))
        self._add_usage(message)

    def _add_usage(self, message: Mapping[str, Any]) -> None:
        """The end tells the answer's tokens; of the rest only what it knows better than the beginning."""
        self._usage |= {name: value for name, value in as_object(message.get("usage")).items() if value is not None}

    def _open_block(self, index: int, block: dict[str, Any]) -> str:
        self._blocks[index] = block
        if _is(block, "tool_use"):
            self._inputs[index] = []
        return as_text(block.get("text")) if _is(block, "text") else ""

    def _add_delta(self, index: int, delta: Mapping[str, Any]) -> str:
        """The delta's piece of the answer's text; the arguments of a tool that is the answer are its text."""
        block = self._blocks.setdefault(index, {"type": "text", "text": ""})
        match delta.get("type"):
            case "text_delta":
                return self._append(index, "text", delta)
            case "thinking_delta":
                self._append(index, "thinking", delta)
            case "signature_delta":
                self._append(index, "signature", delta)
            case "input_json_delta":
                piece = as_text(delta.get("partial_json"))
                self._inputs.setdefault(index, []).append(piece)
                return piece if block.get("name") == ANSWER_TOOL else ""
            case _:
                pass
        return ""

    def _append(self, index: int, field: str, delta: Mapping[str, Any]) -> str:
        piece = as_text(delta.get(field))
        self._texts.setdefault((index, field), []).append(piece)
        return piece


def _index(event: Mapping[str, Any]) -> int:
    return read_token_count(event.get("index")) or 0
