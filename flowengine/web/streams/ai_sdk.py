"""Encodes a run as the UI message stream of the AI SDK, and reads the messages of its `useChat`. Pure.

Nodes are `data-node` parts that change in place, what agents write on the way is reasoning, the answer is text, tools
are dynamic tools that the server has executed, and a question is a dynamic tool `answer_question` that the client
executes: its output is the answer. Source: the chunk schema of `ai` 7.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, cast

from flowengine.core import is_map, to_json_value
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
    ToolBegan,
    ToolEnded,
    read_given_answer,
)

QUESTION_TOOL: Final = "answer_question"
AI_SDK_HEADERS: Final[Mapping[str, str]] = {"x-vercel-ai-ui-message-stream": "v1"}
AI_SDK_INPUT: Final[Mapping[str, Any]] = {
    "type": "object",
    "required": ["id", "messages"],
    "properties": {
        "id": {"type": "string", "minLength": 1, "maxLength": 200},
        "messages": {
            "type": "array",
            "minItems": 1,
            "maxItems": MOST_MESSAGES,
            "items": {"type": "object", "required": ["role", "parts"], "properties": {"parts": {"type": "array"}}},
        },
        "inputs": {"type": "object"},
    },
}
"""Schema of the body that `useChat` posts, as far as it is read here."""


class AiSdkEncoder:
    """One assistant message."""

    def __init__(self, run_id: str) -> None:
        self._run_id = run_id
        self._answers: set[str] = set()

    def begin(self) -> Sequence[Mapping[str, Any]]:
        metadata = {"run_id": self._run_id}
        return [{"type": "start", "messageMetadata": metadata}, {"type": "start-step"}]

    def encode(self, part: Part, questions: Sequence[Question] = ()) -> Sequence[Mapping[str, Any]]:
        """The chunks of a part; `questions`: what the run waits for at its end."""
        match part:
            case StepBegan(node=node):
                return [_node_part(node, "running")]
            case StepEnded(node=node):
                return [_node_part(node, part.status, part.error)]
            case TextBegan() | TextDelta() | TextEnded():
                return [self._encode_text(part)]
            case ToolBegan(id=tool_id):
                ids = {"toolCallId": f"{self._run_id}/{tool_id}", "toolName": part.name, **_BY_SERVER}
                return [
                    {"type": "tool-input-start", **ids},
                    {"type": "tool-input-available", **ids, "input": to_json_value(part.arguments)},
                ]
            case ToolEnded(id=tool_id):
                ids = {"toolCallId": f"{self._run_id}/{tool_id}", **_BY_SERVER}
                if part.is_error:
                    return [{"type": "tool-output-error", **ids, "errorText": part.text}]
                return [{"type": "tool-output-available", **ids, "output": part.text}]
            case RunEnded():
                return self._end(part, questions)

    def fail(self, message: str) -> Sequence[Mapping[str, Any]]:
        """The stream ends with an error."""
        return [{"type": "error", "errorText": message}, {"type": "finish", "finishReason": "error"}]

    def _encode_text(self, part: TextBegan | TextDelta | TextEnded) -> Mapping[str, Any]:
        if isinstance(part, TextBegan) and part.is_answer:
            self._answers.add(part.id)
        kind = "text" if part.id in self._answers else "reasoning"
        if isinstance(part, TextDelta):
            return {"type": f"{kind}-delta", "id": part.id, "delta": part.text}
        return {"type": f"{kind}-start" if isinstance(part, TextBegan) else f"{kind}-end", "id": part.id}

    def _end(self, part: RunEnded, questions: Sequence[Question]) -> Sequence[Mapping[str, Any]]:
        if part.status in ("succeeded", "partial"):
            outputs_chunk = [{"type": "data-outputs", "data": to_json_value(part.outputs)}]
            return [*outputs_chunk, {"type": "finish-step"}, _finish(self._run_id, part, "stop")]
        if part.status == "waiting" and questions:
            chunks = [chunk for each in questions for chunk in _question_chunks(each)]
            return [*chunks, {"type": "finish-step"}, _finish(self._run_id, part, "tool-calls")]
        if part.status == "cancelled":
            return [{"type": "finish-step"}, {"type": "abort", "reason": "the run was cancelled"}]
        return self.fail(f"the run {part.status}" if part.error is None else part.error.message)


_BY_SERVER: Final[Mapping[str, Any]] = {"dynamic": True, "providerExecuted": True}


def _node_part(node: str, status: str, error: str = "") -> Mapping[str, Any]:
    """A node's state; the next one of the same id takes its place."""
    data = {"node": node, "status": status, **({"error": error} if error else {})}
    return {"type": "data-node", "id": node, "data": data}


def _finish(run_id: str, part: RunEnded, reason: str) -> Mapping[str, Any]:
    tokens = part.tokens
    usage = {"inputTokens": tokens.prompt, "outputTokens": tokens.completion, "totalTokens": tokens.total}
    metadata = {"run_id": run_id, "status": part.status, "usage": usage}
    return {"type": "finish", "finishReason": reason, "messageMetadata": metadata}


def _question_chunks(question: Question) -> Sequence[Mapping[str, Any]]:
    call: Mapping[str, Any] = {
        "toolCallId": f"{question.run_id}/{question.node}",
        "toolName": QUESTION_TOOL,
        "dynamic": True,
    }
    input_data = {
        "question": question.message,
        "choices": list(question.choices),
        "form": to_json_value(question.form),
        "expires": question.expires,
    }
    return [{"type": "tool-input-start", **call}, {"type": "tool-input-available", **call, "input": input_data}]


def read_tool_answers(messages: Sequence[Mapping[str, Any]]) -> Sequence[tuple[str, PersonsAnswer]]:
    """The answers that the newest message gives to questions, each with its run; none where a person has written
    something new.

    An answer is the output of the tool: `{"choice": …}`, with `form` and `comment` where there are any, or the choice.
    """
    newest = messages[-1]
    if newest.get("role") != "assistant":
        return ()
    form = f'the output of the tool `{QUESTION_TOOL}` is {{"choice": CHOICE}}'
    return [
        read_given_answer(str(part.get("toolCallId", "")), part.get("output"), form)
        for part in cast("Sequence[Any]", newest["parts"])
        if _is_answer(part)
    ]


def _is_answer(part: Any) -> bool:
    if not is_map(part):
        return False
    is_question = part.get("toolName") == QUESTION_TOOL or part.get("type") == f"tool-{QUESTION_TOOL}"
    return is_question and part.get("state") == "output-available"
