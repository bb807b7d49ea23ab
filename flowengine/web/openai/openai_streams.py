"""Writes an answer that goes on as the events of OpenAI's streams, chat's and those of responses. Pure.

Both have the same methods; `answer` is what there is of it at its begin and at its end.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from flowengine.web.openai.openai_bodies import (
    ChatAnswer,
    OpenAiError,
    ResponseSettings,
    chat_usage,
    error_body,
    message_item,
    reasoning_item,
    response_object,
    text_part,
)


class ChatStream:
    """Chunks of a chat completion, and `[DONE]`."""

    def __init__(self, *, tells_usage: bool) -> None:
        self._tells_usage = tells_usage
        self._head: Mapping[str, Any] = {}

    def begin(self, answer: ChatAnswer) -> Iterator[bytes]:
        self._head = {
            "id": f"chatcmpl-{answer.run_id}",
            "object": "chat.completion.chunk",
            "created": answer.created,
            "model": answer.model,
        }
        yield self._chunk({"role": "assistant", "content": ""})

    def add_text(self, text: str) -> Iterator[bytes]:
        yield self._chunk({"content": text})

    def add_reasoning(self, text: str) -> Iterator[bytes]:
        yield self._chunk({"reasoning_content": text})

    def end(self, answer: ChatAnswer) -> Iterator[bytes]:
        yield self._chunk({}, "stop", {"flowengine": {"run_id": answer.run_id, "status": answer.status}})
        if self._tells_usage:
            yield _frame({**self._head, "choices": [], "usage": chat_usage(answer.tokens)})
        yield b"data: [DONE]\n\n"

    def fail(self, error: OpenAiError, answer: ChatAnswer) -> Iterator[bytes]:
        yield _frame(error_body(error))

    def _chunk(
        self, delta: Mapping[str, Any], finish: str | None = None, more: Mapping[str, Any] | None = None
    ) -> bytes:
        choice = {"index": 0, "delta": delta, "finish_reason": finish, "logprobs": None}
        usage = {"usage": None} if self._tells_usage else {}
        return _frame({**self._head, "choices": [choice], **usage, **(more or {})})


class ResponseStream:
    """The events of a response: its items begin, grow and are done, and then it is completed."""

    def __init__(self, call: ResponseSettings) -> None:
        self._call = call
        self._number = 0
        self._answer: ChatAnswer
        self._reasoning = ""
        self._text: str | None = None
        self._item = 0
        """The position of the item that is open."""

    def begin(self, answer: ChatAnswer) -> Iterator[bytes]:
        self._answer = answer
        so_far = response_object(answer, self._call, status="in_progress")
        yield self._event("response.created", response=so_far)
        yield self._event("response.in_progress", response=so_far)

    def add_reasoning(self, text: str) -> Iterator[bytes]:
        if self._text is not None:  # The message has begun: nothing is thought any more.
            return
        if not self._reasoning:
            yield self._event("response.output_item.added", output_index=0, item=reasoning_item(self._answer, None))
            part = {"type": "summary_text", "text": ""}
            yield self._event("response.reasoning_summary_part.added", **self._place("rs", summary_index=0), part=part)
        self._reasoning += text
        yield self._event("response.reasoning_summary_text.delta", **self._place("rs", summary_index=0), delta=text)

    def add_text(self, text: str) -> Iterator[bytes]:
        if self._text is None:
            yield from self._end_reasoning()
            self._text = ""
            item = message_item(self._answer, None)
            yield self._event("response.output_item.added", output_index=self._item, item=item)
            yield self._event("response.content_part.added", **self._place("msg", content_index=0), part=text_part(""))
        self._text += text
        place = self._place("msg", content_index=0)
        yield self._event("response.output_text.delta", **place, delta=text, logprobs=[])

    def end(self, answer: ChatAnswer) -> Iterator[bytes]:
        if self._text is None:
            yield from self.add_text("")
        text, place = self._text or "", self._place("msg", content_index=0)
        yield self._event("response.output_text.done", **place, text=text, logprobs=[])
        yield self._event("response.content_part.done", **place, part=text_part(text))
        item = message_item(self._answer, text)
        yield self._event("response.output_item.done", output_index=self._item, item=item)
        whole = response_object(answer._replace(text=text, reasoning=self._reasoning), self._call)
        yield self._event("response.completed", response=whole)

    def fail(self, error: OpenAiError, answer: ChatAnswer) -> Iterator[bytes]:
        reason = {"code": error.code or "server_error", "message": str(error)}
        yield self._event(
            "response.failed", response=response_object(answer, self._call, status="failed", error=reason)
        )

    def _end_reasoning(self) -> Iterator[bytes]:
        if not self._reasoning:
            return
        part = {"type": "summary_text", "text": self._reasoning}
        place = self._place("rs", summary_index=0)
        yield self._event("response.reasoning_summary_text.done", **place, text=self._reasoning)
        yield self._event("response.reasoning_summary_part.done", **place, part=part)
        item = reasoning_item(self._answer, self._reasoning)
        yield self._event("response.output_item.done", output_index=0, item=item)
        self._item = 1

    def _place(self, prefix: str, **index: int) -> dict[str, Any]:
        return {"item_id": f"{prefix}_{self._answer.run_id}", "output_index": self._item, **index}

    def _event(self, kind: str, **fields: Any) -> bytes:
        self._number += 1
        return (
            b"event: " + kind.encode() + b"\n" + _frame({"type": kind, "sequence_number": self._number - 1, **fields})
        )


def _frame(data: Mapping[str, Any]) -> bytes:
    return b"data: " + json.dumps(data).encode() + b"\n\n"
