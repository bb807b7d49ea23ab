"""Encodes a run as the events of AG-UI 1.0, and reads what its clients send. Pure.

Steps are steps, what agents write on the way is reasoning, the answer is the assistant's message, and a question ends
the AG-UI run with an interrupt, which the client's next run resumes. Source: the types of `@ag-ui/core` 1.0.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final

from flowengine.core import dumps, to_json_value
from flowengine.runs import Question
from flowengine.web.openai import MOST_MESSAGES
from flowengine.web.service import (
    Part,
    PersonsAnswer,
    RunEnded,
    StepBegan,
    StepEnded,
    TextBegan,
    TextDelta,
    TextEnded,
    TokenCounts,
    ToolBegan,
    ToolEnded,
    read_given_answer,
)

AG_UI_INPUT: Final[Mapping[str, Any]] = {
    "type": "object",
    "required": ["threadId", "runId", "messages"],
    "properties": {
        "threadId": {"type": "string", "minLength": 1, "maxLength": 200},
        "runId": {"type": "string", "minLength": 1, "maxLength": 200},
        "messages": {
            "type": "array",
            "maxItems": MOST_MESSAGES,
            "items": {"type": "object", "required": ["role"]},
        },
        "forwardedProps": {"type": ["object", "null"], "properties": {"inputs": {"type": "object"}}},
        "resume": {
            "type": ["array", "null"],
            "maxItems": 1_000,
            "items": {
                "type": "object",
                "required": ["interruptId", "status"],
                "properties": {"interruptId": {"type": "string"}, "status": {"enum": ["resolved", "cancelled"]}},
            },
        },
    },
}
"""Schema of a client's `RunAgentInput`, as far as it is read here."""


class AgUiEncoder:
    """One AG-UI run; `thread`, `run` are the client's ids, `run_id` is that of our run."""

    def __init__(self, thread: str, run: str, run_id: str) -> None:
        self._ids: Mapping[str, Any] = {"threadId": thread, "runId": run}
        self._run_id = run_id
        self._answers: set[str] = set()
        """Ids of the texts that are answers."""

    def begin(self) -> Sequence[Mapping[str, Any]]:
        return [{"type": "RUN_STARTED", **self._ids, "metadata": {"flowengine": {"run_id": self._run_id}}}]

    def encode(self, part: Part, questions: Sequence[Question] = ()) -> Sequence[Mapping[str, Any]]:
        """The events of a part; `questions`: what the run waits for at its end."""
        match part:
            case StepBegan(node=node):
                return [{"type": "STEP_STARTED", "stepName": node}]
            case StepEnded(status="skipped", error=""):
                return []
            case StepEnded(node=node):
                metadata = {"flowengine": {"status": part.status}}
                return [{"type": "STEP_FINISHED", "stepName": node, "metadata": metadata}]
            case TextBegan() | TextDelta() | TextEnded():
                return self._encode_text(part)
            case ToolBegan(id=tool_id):
                arguments = dumps(part.arguments)
                return [
                    {"type": "TOOL_CALL_START", "toolCallId": self._own_id(tool_id), "toolCallName": part.name},
                    {"type": "TOOL_CALL_ARGS", "toolCallId": self._own_id(tool_id), "delta": arguments},
                    {"type": "TOOL_CALL_END", "toolCallId": self._own_id(tool_id)},
                ]
            case ToolEnded(id=tool_id):
                ids = {"messageId": self._own_id(f"{tool_id}/result"), "toolCallId": self._own_id(tool_id)}
                return [{"type": "TOOL_CALL_RESULT", **ids, "content": part.text, "role": "tool"}]
            case RunEnded():
                return [self._end(part, questions)]

    def fail(self, message: str) -> Sequence[Mapping[str, Any]]:
        """The stream ends with an error."""
        return [{"type": "RUN_ERROR", "message": message, "code": "error"}]

    def _own_id(self, part_id: str) -> str:
        """An id that no other run of the thread has."""
        return f"{self._run_id}/{part_id}"

    def _encode_text(self, part: TextBegan | TextDelta | TextEnded) -> Sequence[Mapping[str, Any]]:
        ids = {"messageId": self._own_id(part.id)}
        if isinstance(part, TextBegan):
            if part.is_answer:
                self._answers.add(part.id)
                return [{"type": "TEXT_MESSAGE_START", **ids, "role": "assistant"}]
            begin = {"type": "REASONING_MESSAGE_START", **ids, "role": "reasoning"}
            return [{"type": "REASONING_START", **ids}, begin]
        is_answer = part.id in self._answers
        if isinstance(part, TextDelta):
            kind = "TEXT_MESSAGE_CONTENT" if is_answer else "REASONING_MESSAGE_CONTENT"
            return [{"type": kind, **ids, "delta": part.text}]
        if is_answer:
            return [{"type": "TEXT_MESSAGE_END", **ids}]
        return [{"type": "REASONING_MESSAGE_END", **ids}, {"type": "REASONING_END", **ids}]

    def _end(self, part: RunEnded, questions: Sequence[Question]) -> Mapping[str, Any]:
        usage = {"usage": [_usage_of(part.tokens)]}
        end = {"type": "RUN_FINISHED", **self._ids, **usage}
        if part.status in ("succeeded", "partial"):
            return {**end, "result": to_json_value(part.outputs), "outcome": {"type": "success"}}
        if part.status == "waiting" and questions:
            return {**end, "outcome": {"type": "interrupt", "interrupts": [_interrupt_of(each) for each in questions]}}
        if part.status == "cancelled":
            return {**end, "outcome": {"type": "cancelled"}}
        message = f"the run {part.status}" if part.error is None else part.error.message
        return {"type": "RUN_ERROR", "message": message, "code": f"run_{part.status}", **usage}


def _interrupt_of(question: Question) -> Mapping[str, Any]:
    """A question as an interrupt: its answer is an object of the schema."""
    answer: dict[str, Any] = {
        "choice": {"type": "string", "enum": list(question.choices)},
        "comment": {"type": "string"},
    }
    if question.form is not None:
        answer["form"] = to_json_value(question.form)
    interrupt: dict[str, Any] = {
        "id": f"{question.run_id}/{question.node}",
        "reason": "approval",
        "message": question.message,
        "responseSchema": {"type": "object", "properties": answer, "required": ["choice"]},
        "metadata": {"flowengine": {"run_id": question.run_id, "question": question.node}},
    }
    if question.expires is not None:
        interrupt["expiresAt"] = datetime.fromtimestamp(question.expires, UTC).isoformat()
    return interrupt


def _usage_of(tokens: TokenCounts) -> Mapping[str, int]:
    return {
        "inputTokens": tokens.prompt,
        "outputTokens": tokens.completion,
        "totalTokens": tokens.total,
        "cachedInputTokens": tokens.cached,
        "reasoningTokens": tokens.reasoning,
    }


_ANSWER: Final = (
    'an answer to an interrupt is {"interruptId": RUN/QUESTION, "status": "resolved", "payload": {"choice": CHOICE}}, '
    "as the interrupt's responseSchema says"
)


def read_resume_answers(resume: Sequence[Mapping[str, Any]]) -> Sequence[tuple[str, PersonsAnswer]]:
    """The answers of a `resume` list, each with its run; what was dismissed (`cancelled`) is none, and its question
    stays open.

    >>> read_resume_answers([{"interruptId": "a1/ship", "status": "resolved", "payload": {"choice": "yes"}}])
    [('a1', PersonsAnswer(question='ship', choice='yes', comment='', values=None))]
    """
    return [
        read_given_answer(str(each["interruptId"]), each.get("payload"), _ANSWER)
        for each in resume
        if each["status"] != "cancelled"
    ]
