"""Orders the messages that go to the model: pure functions from settings and texts to chat messages.

Nothing here calls a model, and no sentence is written here: the texts come from the locale's
messages. What stays the same from call to call comes first (the system message), so that vendors
can cache it; what changes comes last. Texts of models and users are fenced off where a model is to
judge them and not to obey them.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from pydantic import BaseModel

from flowengine.core import EvaluationResult, FileValue, LLMResult, Messages, format_turns, to_json_value
from flowengine.errors import RunError
from flowengine.models import Message, fence, from_dict


class Subject(NamedTuple):
    """The text that is judged or routed: a generation, and its prompt if known."""

    content: Any
    prompt: str | None = None
    attachments: tuple[FileValue, ...] = ()
    """Files that are looked at with it."""


def text_of(value: object) -> str:
    """A value as prompt text: text as it is, models and everything else as JSON.

    >>> text_of({"a": 1})
    '{"a": 1}'
    """
    if isinstance(value, str):
        return value
    if isinstance(value, LLMResult):
        return text_of(value.content)
    try:
        if isinstance(value, BaseModel):
            return value.model_dump_json()
        return json.dumps(value, ensure_ascii=False, default=to_json_value)
    except (TypeError, ValueError):  # Keys that are no texts, integers of thousands of digits, bytes in a model.
        return json.dumps(to_json_value(value), ensure_ascii=False)


def prompt_text(messages: Iterable[Message]) -> str:
    """The messages as one text, for `_last_prompt`; what passed between model and tools is left out."""
    return _join_parts([each.content for each in messages if each.role != "tool" and not each.tool_calls])


def chat_of(messages: Iterable[Any]) -> list[Message]:
    """A context's messages, which may be written as plain dicts, as chat messages."""
    try:
        return [each if isinstance(each, Message) else from_dict(each) for each in messages]
    except (AttributeError, KeyError, ValueError) as error:
        raise RunError(f"the context's messages are no chat messages: {error}") from error


def format_exchange(words: Messages, question: str, answer: str) -> str:
    """One entry of a session's history."""
    return format_turns(words, question, answer)


def generation_messages(
    words: Messages,
    input_text: str,
    *,
    system_message: str = "",
    instructions: str = "",
    context: str = "",
    history: Sequence[str] = (),
    earlier: Sequence[Message] = (),
    stable: str = "",
    shared: str = "",
) -> tuple[Message, ...]:
    """System message, instructions; then what is `earlier` in the chat; then context, history and input.

    Parts that are empty are left out; the input never is. `stable`: what of the context, from its beginning, is the
    same for other inputs; `shared`: what of the input is.
    """
    question_text = _join_parts(
        [
            words("generation.context", text=context) if context else "",
            words("generation.previous", text="\n".join(history)) if history else "",
            words("generation.input", text=input_text),
        ]
    )
    is_all_stable = stable.strip() == context.strip() and not history
    end = is_all_stable and input_text.startswith(shared) and _end_of(shared.strip(), question_text)
    question = Message("user", question_text, stable=end or _end_of(stable.strip(), question_text))
    return (*_system_message(system_message, instructions), *earlier, question)


def _end_of(part: str, text: str) -> int:
    """Returns where a part of a text ends; 0 if the text does not contain it."""
    at = text.find(part) if part else -1
    return at + len(part) if at >= 0 else 0


def format_feedback(words: Messages, evaluation: EvaluationResult, threshold: float) -> str:
    """A judge's feedback as the task to write a better version."""
    points = "\n".join(f"- {each}" for each in evaluation.suggestions)
    return words(
        "improvement.guidance",
        score=f"{evaluation.score:.2f}",
        threshold=f"{threshold:.2f}",
        feedback=evaluation.feedback.strip() or words("improvement.none"),
        suggestions=words("improvement.suggestions", text=points) if points else "",
    )


def improvement_messages(first: Sequence[Message], draft: str, task: str) -> tuple[Message, ...]:
    """The first prompt, the draft as the model's own answer, and the task to improve it."""
    return (*first, Message("assistant", draft), Message("user", task))


def evaluation_messages(
    words: Messages, subject: Subject, instructions: str, criteria: Mapping[str, str]
) -> tuple[Message, ...]:
    """Role, instructions, criteria and scale; then the prompt and the text to judge."""
    lines = "\n".join(f"- {name}: {text}" for name, text in criteria.items())
    system = _system_message(
        words("evaluation.role"),
        words("evaluation.instructions", text=instructions) if instructions else "",
        words("evaluation.criteria", text=lines),
        words("evaluation.scale"),
    )
    return (*system, _subject_message(words, "evaluation", subject))


def routing_messages(
    words: Messages, subject: Subject, instruction: str, routes: Mapping[str, str]
) -> tuple[Message, ...]:
    """Role, routing instruction, allowed routes and scale; then the previous generation's prompt and result."""
    lines = "\n".join(f"- {label}: {text}" if text else f"- {label}" for label, text in routes.items())
    system = _system_message(
        words("routing.role"),
        words("routing.instruction", text=instruction) if instruction else "",
        words("routing.routes", text=lines),
        words("routing.scale"),
    )
    return (*system, _subject_message(words, "routing", subject))


def add_schema(words: Messages, messages: Sequence[Message], schema: Mapping[str, Any]) -> tuple[Message, ...]:
    """The messages with the schema in the system message, for models that know no response schema."""
    text = words("structured.format", schema=schema_text(schema))
    if messages and messages[0].role == "system":
        return (messages[0]._replace(content=_join_parts([messages[0].content, text])), *messages[1:])
    return (Message("system", text), *messages)


def schema_text(schema: Mapping[str, Any]) -> str:
    """The schema as it stands in a prompt."""
    return json.dumps(schema, ensure_ascii=False, separators=(",", ":"))


def _subject_message(words: Messages, section: str, subject: Subject) -> Message:
    prompt = words(f"{section}.prompt", text=fence("prompt", subject.prompt)) if subject.prompt else ""
    answer = "" if subject.content is None else text_of(subject.content)
    content = answer if answer.strip() else words(f"{section}.nothing")
    result = words(f"{section}.result", text=fence("result", content))
    text = _join_parts([prompt, result, words(f"{section}.task")])
    return Message("user", text, attachments=subject.attachments)


def _system_message(*parts: str) -> tuple[Message, ...]:
    text = _join_parts(parts)
    return (Message("system", text),) if text else ()


def _join_parts(parts: Iterable[str]) -> str:
    return "\n\n".join([text for part in parts if (text := part.strip())])
