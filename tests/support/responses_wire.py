"""Answers in the form of OpenAI's Responses API, whole and as the events of a stream; and what that API refuses.

Source: https://developers.openai.com/api/reference/resources/responses
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

from tests.support.model_answers import Completion, Failure, StreamFailure, Thinking

__all__ = ["ResponsesWire"]

_PARAMETERS: Final = frozenset(
    {
        *(
            "background",
            "include",
            "input",
            "instructions",
            "max_output_tokens",
            "metadata",
            "model",
            "parallel_tool_calls",
        ),
        *("prompt_cache_key", "prompt_cache_options", "prompt_cache_retention", "reasoning", "safety_identifier"),
        *("service_tier", "store", "stream", "temperature", "text", "tool_choice", "tools", "top_logprobs", "top_p"),
        *("truncation", "user"),
    }
)
_ENCRYPTED: Final = "reasoning.encrypted_content"
_INCOMPLETE: Final = {"length": "max_output_tokens", "content_filter": "content_filter"}


class ResponsesWire:
    """`/responses`."""

    path = "/responses"

    def refuse(self, body: Mapping[str, Any]) -> Failure | None:
        """What is wrong with a request, in the words of the API; None where it is fine."""
        if unknown := sorted(body.keys() - _PARAMETERS):
            return Failure(400, f"Unknown parameter: '{unknown[0]}'.", code="unknown_parameter")
        calls: set[str] = set()
        items = body["input"] if isinstance(body["input"], list) else []
        for at, item in enumerate(items):
            kind = item.get("type", "message")
            if kind == "function_call":
                calls.add(item["call_id"])
            elif kind == "function_call_output" and item["call_id"] not in calls:
                return Failure(400, f"No tool call found for function call output with call_id {item['call_id']}.")
            elif kind == "reasoning":
                if not item.get("encrypted_content"):
                    return Failure(
                        404,
                        f"Item with id '{item['id']}' not found. Items are not persisted when `store` is set to false.",
                    )
                if at + 1 == len(items) or items[at + 1].get("role") == "user":
                    return Failure(
                        400,
                        f"Item '{item['id']}' of type 'reasoning' was provided without its required following item.",
                    )
            elif kind == "message" and item["role"] not in ("user", "assistant", "system", "developer"):
                return Failure(400, f"Invalid value: '{item['role']}'.")
        for tool in body.get("tools", ()):
            if tool.get("type") != "function" or "name" not in tool:
                return Failure(400, "Missing required parameter: 'tools[0].name'.")
        return None

    def failure(self, failure: Failure) -> dict[str, Any]:
        return {"error": {"message": failure.message, "type": "local_error", "param": None, "code": failure.code}}

    def whole(self, completion: Completion, body: Mapping[str, Any]) -> dict[str, Any]:
        items = _items(completion, body)
        reason = _INCOMPLETE.get(completion.finish_reason or "")
        return {
            "id": "resp_local",
            "object": "response",
            "created_at": 1700000000,
            "status": "incomplete" if reason else "completed",
            "error": None,
            "incomplete_details": {"reason": reason} if reason else None,
            "model": body.get("model", "local"),
            "output": items,
            "store": body.get("store", True),
            "usage": _usage(completion, body),
        }

    def frames(self, completion: Completion, body: Mapping[str, Any]) -> list[bytes]:
        """The events of a streamed answer, its end in the last one."""
        whole = self.whole(completion, body)
        begun = {**whole, "status": "in_progress", "output": [], "usage": None}
        events: list[dict[str, Any]] = [{"type": "response.created", "response": begun}]
        events.append({"type": "response.in_progress", "response": begun})
        for index, item in enumerate(whole["output"]):
            events += _item_events(index, item)
        events.append({"type": f"response.{whole['status']}", "response": whole})
        return [_frame({**each, "sequence_number": number}) for number, each in enumerate(events)]

    def broken_frame(self, failure: StreamFailure) -> bytes:
        return _frame({"type": "error", "code": failure.kind, "message": failure.message, "param": None})


def _frame(event: Mapping[str, Any]) -> bytes:
    return f"event: {event['type']}\ndata: {json.dumps(event)}\n\n".encode()


def _items(completion: Completion, body: Mapping[str, Any]) -> list[dict[str, Any]]:
    items = [_reasoning(each, at, body) for at, each in enumerate(completion.thinking)]
    content: list[dict[str, Any]] = []
    if completion.content:
        content.append({"type": "output_text", "text": completion.content, "annotations": []})
    if completion.refusal is not None:
        content.append({"type": "refusal", "refusal": completion.refusal})
    if content:
        items.append({"id": "msg_1", "type": "message", "role": "assistant", "status": "completed", "content": content})
    for at, call in enumerate(completion.tool_calls):
        item = {"id": f"fc_{at}", "type": "function_call", "status": "completed", "call_id": call.id}
        items.append({**item, "name": call.name, "arguments": call.arguments_text})
    return items


def _reasoning(thinking: Thinking, at: int, body: Mapping[str, Any]) -> dict[str, Any]:
    is_wanted = bool((body.get("reasoning") or {}).get("summary"))
    summary = [{"type": "summary_text", "text": thinking.text}] if thinking.text and is_wanted else []
    item: dict[str, Any] = {"id": f"rs_{at}", "type": "reasoning", "summary": summary}
    return {**item, "encrypted_content": thinking.signature} if _ENCRYPTED in body.get("include", ()) else item


def _usage(completion: Completion, body: Mapping[str, Any]) -> dict[str, Any]:
    if completion.usage is not None:
        return dict(completion.usage)
    prompt = len(json.dumps(body.get("input", ""), ensure_ascii=False)) // 4 + 1
    answer = len(completion.content or "") // 4 + 1
    return {
        "input_tokens": prompt,
        "input_tokens_details": {"cached_tokens": 0, "cache_write_tokens": 0},
        "output_tokens": answer,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": prompt + answer,
    }


def _item_events(index: int, item: Mapping[str, Any]) -> list[dict[str, Any]]:
    at: dict[str, Any] = {"output_index": index}
    bare = {key: value for key, value in item.items() if key not in ("content", "arguments", "encrypted_content")}
    events: list[dict[str, Any]] = [{"type": "response.output_item.added", **at, "item": bare}]
    for part, content in enumerate(item.get("content", ())):
        kind = "output_text" if content["type"] == "output_text" else "refusal"
        text = content.get("text") or content.get("refusal") or ""
        place = {**at, "item_id": item["id"], "content_index": part}
        pieces = [text[begin : begin + 8] for begin in range(0, len(text), 8)]
        events += [{"type": f"response.{kind}.delta", **place, "delta": each} for each in pieces]
        events.append({"type": f"response.{kind}.done", **place, "text": text})
    if "arguments" in item:
        place = {**at, "item_id": item["id"]}
        halves = (item["arguments"][:5], item["arguments"][5:])
        events += [{"type": "response.function_call_arguments.delta", **place, "delta": each} for each in halves]
    return [*events, {"type": "response.output_item.done", **at, "item": dict(item)}]
