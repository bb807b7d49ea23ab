"""Serves once more what an interrupted attempt of a node had recorded. Decides, never waits.

A recorded answer belongs to one question: the hash of the request (`key`) and how many equal ones came
before it (`occurrence`). Failed calls answer nothing. What is served is taken out, so that each record
serves once and what is left over is what the node has not asked for again.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import zip_longest
from typing import Any, Final

from flowengine.agents.tools import ToolResult
from flowengine.core import EffectDecided, ModelCall, Retry, Reused, ToolCall
from flowengine.models import Reply, Request, TokenUsage, ToolRequest, as_dict, plain_request

ASSUMED_DONE: Final = "assumed done"
"""The result a model gets for a call that a person took as done without knowing its result."""

_Question = tuple[str, int]


class Replay:
    """The records of one attempt."""

    def __init__(self, records: Iterable[Any]) -> None:
        self._calls: dict[_Question, ModelCall] = {}
        self._tools: dict[_Question, ToolResult] = {}
        self._records: list[Any] = []
        self._keys: set[str] = set()
        """Keys of all requests, those without an answer included."""
        for record in records:
            self._add(record)

    def _add(self, record: Any) -> None:
        if type(record) is ModelCall:
            self._keys.add(record.key)
            if record.error is None:
                self._calls.setdefault((record.key, record.occurrence), record)  # Two owners may both have asked.
        elif type(record) is ToolCall:
            if not record.started:
                self._tools.setdefault((record.key, record.occurrence), tool_result_of(record))
        elif type(record) is EffectDecided:
            if record.decision == "done":
                self._tools[record.key, record.occurrence] = ToolResult(ASSUMED_DONE, ASSUMED_DONE)
        elif type(record) is Reused:  # Of an attempt in the run that this one was forked from.
            for each in record.calls:
                self._add(each)
        elif type(record) is not Retry:
            self._records.append(record)

    def take_reply(self, key: str, occurrence: int) -> Reply | None:
        call = self._calls.pop((key, occurrence), None)
        return None if call is None else reply_of(call)

    def take_tool_result(self, key: str, occurrence: int) -> ToolResult | None:
        return self._tools.pop((key, occurrence), None)

    def take_told(self, record: Any) -> bool:
        """Tells whether this is on record already."""
        for index, each in enumerate(self._records):
            if type(each) is type(record) and each == record:
                del self._records[index]
                return True
        return False

    def difference(self, request: Request, key: str, purpose: str) -> str | None:
        """In one line, how a request that has no answer differs from the nearest one that has.

        None where nothing is left to compare it with, or where it is on record and was not answered.
        """
        if not self._calls or key in self._keys:
            return None
        messages = [as_dict(message) for message in request.messages]
        nearest = max(self._calls.values(), key=lambda call: (call.purpose == purpose, *_likeness(messages, call)))
        if nearest.purpose != purpose:
            return f"the nearest recorded call is for {nearest.purpose}"
        return _difference_of_messages(messages, nearest) or _difference_of_settings(plain_request(request), nearest)


def reply_of(call: ModelCall) -> Reply:
    """The answer that a recorded call gave, as it was."""
    return Reply(
        content=call.content,
        tool_calls=tuple(ToolRequest(**fields) for fields in call.tool_calls),
        usage=TokenUsage(
            call.prompt_tokens,
            call.completion_tokens,
            call.cached_tokens,
            call.cache_write_tokens,
            call.reasoning_tokens,
        ),
        cost_usd=call.cost_usd,
        finish_reason=call.finish_reason,
        model=call.model,
        provider=call.provider,
        attempts=call.attempts,
        seconds=call.seconds,
        vectors=tuple(call.vectors),
        vendor_parts=tuple(call.vendor_parts),
    )


def tool_result_of(call: ToolCall) -> ToolResult:
    """Returns the result of a recorded tool call."""
    return ToolResult(call.result, call.value, call.is_error, tuple(call.files))


def _likeness(messages: Sequence[Mapping[str, Any]], call: ModelCall) -> tuple[int, int]:
    """Counts the equal leading messages, and the equal part of the first different one."""
    equal = 0
    for new, old in zip(messages, call.messages, strict=False):
        if new != old:
            return equal, _common_length(_text(new), _text(old))
        equal += 1
    return equal, 0


def _difference_of_messages(messages: Sequence[Mapping[str, Any]], call: ModelCall) -> str | None:
    for number, (new, old) in enumerate(zip_longest(messages, call.messages), 1):
        if new is None:
            return f"message {number} is gone: {_quote_from(_text(old), 0)}"
        if old is None:
            return f"message {number} is new: {_quote_from(_text(new), 0)}"
        if new["role"] != old["role"]:
            return f"message {number} is the {new['role']}'s where the {old['role']}'s was recorded"
        if new != old:
            return f"message {number} ({new['role']}) is {_describe_difference(_text(new), _text(old))}"
    return None


def _difference_of_settings(settings: Mapping[str, Any], call: ModelCall) -> str:
    for name in {**settings, **call.request}:
        new, old = settings.get(name), call.request.get(name)
        if new != old:
            return f"its '{name}' is {_describe_difference(str(new), str(old))}"
    return "a setting that is not on record"


def _text(message: Mapping[str, Any]) -> str:
    """A chat message's text, with whatever else it has."""
    rest = {name: value for name, value in message.items() if name not in ("role", "content")}
    return f"{message['content']}{rest or ''}"


def _common_length(one: str, other: str) -> int:
    """Length of what two texts begin with alike."""
    pairs = enumerate(zip(one, other, strict=False))
    return next((index for index, (a, b) in pairs if a != b), min(len(one), len(other)))


def _describe_difference(new: str, old: str) -> str:
    at = _common_length(new, old)
    return f"{_quote_from(new, at)} where {_quote_from(old, at)} was recorded"


def _quote_from(text: str, at: int) -> str:
    """The text round a place, quoted."""
    start = max(0, at - 20)
    end = start + 60
    return f"{'…' if start else ''}{text[start:end]!r}{'…' if end < len(text) else ''}"
