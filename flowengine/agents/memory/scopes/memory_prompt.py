"""Builds the prompt with memories: from the widest scope to the narrowest, then the conversation, then the task.

Pure functions from a record to text. No sentence is written here: headings and tasks come from the locale's
catalogue. A section builder that has nothing to say returns None, and no heading is left behind.

What stays the same from one call to the next comes first, so that vendors can cache it: the prompts for an
answer and for the decision whether to answer differ in the task alone, which is the last message.

What people and models wrote stands between the headings. Lines of it that look like a heading, a rule or the
head of a message are escaped as Markdown does it, so that a message cannot pass for a section.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from datetime import UTC, tzinfo
from typing import Final, Literal, TypeAlias, get_args

from flowengine.agents.memory.scopes.channel_messages import ChannelMemory, ChannelMessage, PromptRecord
from flowengine.core import Messages, load_messages
from flowengine.errors import DefinitionError
from flowengine.models import Message

Task: TypeAlias = Literal["answer", "judge"]
"""The task: to answer the conversation, or to decide whether to."""

_UNSEEN: Final = "\u00ad\u200b-\u200f\u2060\ufeff"
"""Characters that nobody sees."""
_STRUCTURE: Final = re.compile(
    rf"^([^\S\n{_UNSEEN}]*(?:[{_UNSEEN}][^\S\n]*)*)"
    rf"(#+(?=[\s{_UNSEEN}]|$)|(?:=+|-(?:[^\S\n]*-)*|([*_])(?:[^\S\n]*\3){{2,}})[^\S\n]*$|\*\*\d{{4}}-\d\d-\d\d )",
    re.MULTILINE,
)
"""The beginnings of lines that structure the prompt; no part of it goes past its line, so that the time is linear."""
_TAG: Final = re.compile(r"<(?=/?(?:h[1-6r])\b)", re.IGNORECASE)
"""Headings and rules as HTML has them."""


def system_prompt(record: PromptRecord, task: Task = "answer", *, locale: str = "en", timezone: tzinfo = UTC) -> str:
    """The whole prompt as one text, the task at its end. Times are shown in `timezone`."""
    return _join_parts(each.content for each in prompt_messages(record, task, locale=locale, timezone=timezone))


def prompt_messages(
    record: PromptRecord, task: Task = "answer", *, locale: str = "en", timezone: tzinfo = UTC
) -> tuple[Message, ...]:
    """The prompt as chat messages: all of it in the first one, and the task as the last."""
    if task not in get_args(Task):
        raise DefinitionError(f"a prompt's task is {' or '.join(get_args(Task))}, not {task!r}")
    words = load_messages(locale)
    sections = (
        (record.persona or "").strip() or None,
        _memory(record, words),
        _channels(record, words),
        _channel_memories(record, words),
        _threads(record, words),
        _conversation(record, words, timezone),
    )
    return (Message("system", _join_parts([*sections, "---"])), Message("user", words(f"memory.{task}")))


def message_lines(messages: Sequence[ChannelMessage], timezone: tzinfo = UTC) -> str:
    """Messages as they stand in prompts: when and who, and the text in the line below."""
    return _join_parts(_message(each, timezone) for each in messages)


def neutralise_text(text: str) -> str:
    """Text that was written elsewhere, without the power to structure a prompt.

    >>> print(neutralise_text("Look:\\n## Memory\\nI am #1\\n---"))
    Look:
    \\## Memory
    I am #1
    \\---
    """
    return _TAG.sub(r"\\<", _STRUCTURE.sub(r"\1\\\2", "\n".join(text.strip().splitlines())))


# --- sections: text, or None where there is nothing to say


def _memory(record: PromptRecord, words: Messages) -> str | None:
    parts = [
        _part(words("memory.workspace_history"), record.workspace_long_term_memory),
        _part(words("memory.workspace_recent"), record.workspace_short_term_memory),
    ]
    return _section(words("memory.heading"), parts)


def _channels(record: PromptRecord, words: Messages) -> str | None:
    """Lists the bot's channels; a prompt without memory consists of persona, conversation and task."""
    if not record.channel_memories or not record.has_memory:
        return None
    names = "\n".join(f"- #{_name(each.channel_name)}" for each in record.channel_memories.values())
    here = words("memory.current_channel", name=_name(record.conversation_history.channel_name))
    return _section(words("memory.channels_heading"), [words("memory.channels"), names, here])


def _channel_memories(record: PromptRecord, words: Messages) -> str | None:
    return _section(
        words("memory.channel_memories_heading"),
        [_channel_memory(each, words) for each in record.channel_memories.values()],
    )


def _channel_memory(memory: ChannelMemory, words: Messages) -> str | None:
    parts = [
        _part(words("memory.history"), memory.long_term),
        _part(words("memory.recent"), memory.short_term),
    ]
    return _section(f"### #{_name(memory.channel_name)}", parts)


def _threads(record: PromptRecord, words: Messages) -> str | None:
    parts = [
        _part(words("memory.thread", ts=_name(ts)), record.thread_memories[ts]) for ts in sorted(record.thread_memories)
    ]
    return _section(words("memory.threads_heading"), parts)


def _conversation(record: PromptRecord, words: Messages, timezone: tzinfo) -> str | None:
    history, ts = record.conversation_history, record.target_thread_ts
    if ts is None:
        part = _part(words("memory.top_level"), message_lines(history.top_level_messages, timezone), is_foreign=False)
    else:
        heading = words("memory.conversation_thread", ts=_name(ts))
        part = _part(heading, message_lines(history.get_thread(ts), timezone), is_foreign=False)
    channel = _section(f"### #{_name(history.channel_name)}", [part]) or f"### #{_name(history.channel_name)}"
    return _section(words("memory.conversation_heading"), [channel])


def _section(heading: str, parts: Iterable[str | None]) -> str | None:
    text = _join_parts(parts)
    return f"{heading}\n\n{text}" if text else None


def _part(heading: str, text: str | None, *, is_foreign: bool = True) -> str | None:
    """A heading over a text; `is_foreign`: a person or a model wrote it, so it may not structure anything."""
    if not text or not text.strip():
        return None
    return f"{heading}\n\n{neutralise_text(text) if is_foreign else text}"


def _message(message: ChannelMessage, timezone: tzinfo) -> str:
    at, text = message.at.astimezone(timezone), neutralise_text(message.text)
    return f"**{at:%Y-%m-%d %H:%M:%S}** {_name(message.user)}:\n{text}"


def _name(name: str) -> str:
    """A name in one line."""
    return " ".join(name.split())


def _join_parts(parts: Iterable[str | None]) -> str:
    return "\n\n".join(each for each in parts if each)
