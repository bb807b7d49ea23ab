"""Reads answers of OpenAI's Responses API, whole and streamed, into replies.

An answer is a list of items: what was thought (encrypted, for the next round), what was said, calls of tools. The last
event of a stream holds the whole answer; where a server leaves its items out, those that came before count. Remarks
between calls of tools are the answer's text only where it has no other.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from flowengine.models.http.chat_protocol import (
    OF_CALL,
    IncompleteAnswerError,
    StreamedEvent,
    StreamFailureError,
    VendorAnswer,
    as_object,
    as_text,
    list_of_objects,
    with_own_ids,
)
from flowengine.models.http.vendor_traits import VendorTraits
from flowengine.models.messages import ToolRequest
from flowengine.models.model import Reply, TokenUsage, read_finish_reason, read_token_count

REASONING: Final = "reasoning"
"""The type of the items that go back as they came."""
PHASE: Final = "phase"
"""The key of the part that says what the text beside tool calls is."""
_REMARK: Final = "commentary"

_KEPT: Final = ("type", "id", "summary", "encrypted_content")
_REASONS: Final = {"max_output_tokens": "length"}
_ENDED: Final = ("completed", "incomplete")


def read_response(body: Mapping[str, Any], traits: VendorTraits) -> VendorAnswer:
    """A whole answer; `IncompleteAnswerError` where there is none in it, `StreamFailureError` where it failed."""
    status = body.get("status")
    if body.get("error") or status in ("failed", "cancelled"):
        raise StreamFailureError(_failure(body))
    if not isinstance(body.get("output"), list):
        raise IncompleteAnswerError("the server's answer is empty, it has no output", is_final=not body)
    if status not in (*_ENDED, None):
        raise IncompleteAnswerError(f"the server's answer is not complete: its status is {str(status)[:40]!r}")
    return _to_answer(list_of_objects(body["output"]), body, traits)


_REFUSED: Final = re.compile("^(invalid|image|unsupported|empty)_|policy|mismatch|context_length")
"""In the codes of failures that the same request would have again."""


def _failure(response: Mapping[str, Any]) -> dict[str, Any]:
    error = as_object(response.get("error"))
    if not error:
        error = {"message": f"the answer's status is {as_text(response.get('status')) or 'unknown'}"}
    if _REFUSED.search(as_text(error.get("code"))):
        error = {**error, "type": "invalid_request_error"}
    return {"error": error}


def _to_answer(items: Sequence[Mapping[str, Any]], body: Mapping[str, Any], traits: VendorTraits) -> VendorAnswer:
    calls = with_own_ids(_read_call(each, at) for at, each in enumerate(e for e in items if _is(e, "function_call")))
    messages = [each for each in items if _is(each, "message")]
    answers = [each for each in messages if each.get(PHASE) != _REMARK] or messages
    reason = "tool_calls" if calls else "stop"
    if body.get("status") == "incomplete":
        cause = as_object(body.get("incomplete_details")).get("reason") or "max_output_tokens"
        reason = read_finish_reason(cause, _REASONS, has_calls=False)
    reply = Reply(
        _join(answers, "output_text", "text"),
        calls,
        _read_usage(as_object(body.get("usage"))),
        finish_reason=reason,
        model=as_text(body.get("model")),
        vendor_parts=_kept_parts(items, calls, answers, traits),
    )
    return VendorAnswer(reply, _join(messages, "refusal", "refusal"))


def _is(item: Mapping[str, Any], kind: str) -> bool:
    return item.get("type") == kind


def _join(messages: Iterable[Mapping[str, Any]], kind: str, field: str) -> str:
    parts = (part for each in messages for part in list_of_objects(each.get("content")))
    return "".join(as_text(each.get(field)) for each in parts if _is(each, kind))


def _read_call(item: Mapping[str, Any], index: int) -> ToolRequest:
    id = as_text(item.get("call_id")) or as_text(item.get("id")) or f"call_{index}"
    return ToolRequest(id, as_text(item.get("name")), as_text(item.get("arguments")))


def _kept_parts(
    items: Sequence[Mapping[str, Any]],
    calls: Sequence[ToolRequest],
    answers: Sequence[Mapping[str, Any]],
    traits: VendorTraits,
) -> tuple[Mapping[str, Any], ...]:
    """Returns the parts that go back with the results of tools: each thought, with the call that it stands before. Of
    an answer that asks for none, a summary of what was thought is kept to be looked at."""
    parts: list[dict[str, Any]] = []
    waiting: list[dict[str, Any]] = []
    ids = iter(each.id for each in calls)
    for item in items:
        if _is(item, REASONING):
            part = {key: item[key] for key in _KEPT if item.get(key) is not None}
            if (calls and "encrypted_content" in part) or part.get("summary"):
                waiting.append({**part, "vendor": traits.name})
        elif _is(item, "function_call"):
            call = next(ids)
            parts += [{**each, OF_CALL: call} for each in waiting]
            waiting = []
        else:
            parts += waiting
            waiting = []
    phase = next((each[PHASE] for each in answers if isinstance(each.get(PHASE), str)), None)
    marks = [{PHASE: phase}] if phase is not None and calls else []
    return (*parts, *waiting, *marks)


def _read_usage(usage: Mapping[str, Any]) -> TokenUsage:
    prompt, completion = read_token_count(usage.get("input_tokens")), read_token_count(usage.get("output_tokens"))
    if not (prompt or completion):
        return TokenUsage()
    of_prompt, of_answer = (as_object(usage.get(each)) for each in ("input_tokens_details", "output_tokens_details"))
    cached, cache_writes = (read_token_count(of_prompt.get(each)) for each in ("cached_tokens", "cache_write_tokens"))
    return TokenUsage(prompt, completion, cached, cache_writes, read_token_count(of_answer.get("reasoning_tokens")))


# --- Streamed answers


class ResponseCollector:
    """`AnswerCollector` of the events of one response."""

    def __init__(self, traits: VendorTraits) -> None:
        self.is_complete = self.has_begun = False
        self._traits = traits
        self._items: dict[int, Mapping[str, Any]] = {}
        """Those that are done."""
        self._remarks: set[int] = set()
        self._early_pieces: list[str] = []
        """Text of remarks: shown at the end, if it is all that was said."""
        self._has_text = False
        self._whole: Mapping[str, Any] = {}

    def add(self, event: StreamedEvent) -> str:
        return self._take(event.read(), event.kind) if event.data.strip() not in ("", "[DONE]") else ""

    @property
    def has_ended(self) -> bool:
        return self.is_complete

    def answer(self) -> VendorAnswer:
        if not self._whole:
            raise IncompleteAnswerError("the answer broke off before its end")
        items = list_of_objects(self._whole.get("output")) or [self._items[at] for at in sorted(self._items)]
        return _to_answer(items, self._whole, self._traits)

    def _take(self, event: dict[str, Any], kind: str) -> str:
        self.has_begun = self.has_begun or "output_index" in event
        match event.get("type") or kind:
            case "response.output_item.added":
                self._begin(_index(event), as_object(event.get("item")))
            case "response.output_item.done":
                self._items[_index(event)] = as_object(event.get("item"))
            case "response.output_text.delta":
                return self._add_text(_index(event), as_text(event.get("delta")))
            case "response.completed" | "response.incomplete":
                self._whole = as_object(event.get("response"))
                self.is_complete = True
                return "" if self._has_text else "".join(self._early_pieces)
            case "response.failed":
                raise StreamFailureError(_failure(as_object(event.get("response"))))
            case "error":
                raise StreamFailureError(_failure({"error": as_object(event.get("error")) or event}))
            case _:  # Deltas of thoughts, refusals and arguments, which are whole in their items; what the API may add.
                pass
        return ""

    def _begin(self, index: int, item: Mapping[str, Any]) -> None:
        if item.get(PHASE) == _REMARK:
            self._remarks.add(index)

    def _add_text(self, index: int, piece: str) -> str:
        if index in self._remarks:
            self._early_pieces.append(piece)
            return ""
        self._has_text = self._has_text or bool(piece)
        return piece


def _index(event: Mapping[str, Any]) -> int:
    return read_token_count(event.get("output_index")) or 0
