"""A prompt as parts: fragments with their places in it, and the chat messages that they make.

It knows the places and their order, which is that of `prompt.generation_messages`. What enters and what is left
out is the packer's decision; where texts come from is nobody's matter here.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from enum import IntEnum
from typing import Any, Final, NamedTuple

from flowengine.agents.prompt import generation_messages
from flowengine.catalogue import Catalogue
from flowengine.context import Fragment
from flowengine.llm.messages import Message
from flowengine.providers.packer import Entry
from flowengine.providers.shortening import MARK

__all__ = ["MESSAGE", "Part", "Place", "assembled", "chat_parts", "tokens_of"]

MESSAGE: Final = 4
"""Tokens that a chat message costs beside its text."""


class Place(IntEnum):
    """Where in a prompt: what hardly changes comes first, so that vendors can cache it."""

    SYSTEM = 0
    """Who the agent is, what it is told to do, and what it can always draw on: the system message."""
    EARLIER = 1
    """The chat that it goes on from."""
    CONTEXT = 2
    PREVIOUS = 3
    """The session's history."""
    INPUT = 4
    AFTER = 5
    """What came after the question: requests for tools and their results, drafts and what is to be better."""


class Part(NamedTuple):
    """One fragment, as an entry that may be dropped, and its place."""

    place: Place
    entry: Entry
    message: Message | None = None
    """The chat message whose text it is, for what was one before."""

    @classmethod
    def of(cls, place: Place, text: str, source: str, *, pinned: bool = True, **details: Any) -> Part:
        return cls(place, Entry(Fragment(text, source, pinned=pinned, **details)))


def chat_parts(messages: Sequence[Message]) -> list[Part]:
    """The chat that a prompt goes on from: a question stays with all that answers it, and the oldest give way first."""
    turns = [number for number, each in enumerate(messages) if each.role == "user"]
    parts: list[Part] = []
    for number, message in enumerate(messages):
        turn = sum(start <= number for start in turns)
        parts.append(
            Part(
                Place.EARLIER,
                Entry(
                    Fragment(
                        message.content,
                        "messages",
                        label=f"message {number + 1} ({message.role})",
                        group=f"messages:{turn}",
                        priority=turn - len(turns),
                        pinned=message.role == "system",
                    )
                ),
                message,
            )
        )
    return parts


def assembled(words: Catalogue, parts: Iterable[Part]) -> tuple[Message, ...]:
    """The chat messages. Of what came after the question no message is left out, only its text."""
    at: dict[Place, list[Part]] = {place: [] for place in Place}
    for part in parts:
        at[part.place].append(part)
    system = [each.entry.fragment.text for each in at[Place.SYSTEM]]
    before = generation_messages(
        words,
        "\n\n".join(_texts(at[Place.INPUT])),
        instructions="\n\n".join(text for text in system if text.strip()),
        context="\n\n".join(_texts(sorted(at[Place.CONTEXT], key=lambda each: each.entry.fragment.order))),
        history=_texts(at[Place.PREVIOUS]),
        earlier=[each.message._replace(content=text) for each, text in _present(at[Place.EARLIER]) if each.message],
    )
    after = (each.message._replace(content=_or_mark(each)) for each in at[Place.AFTER] if each.message)
    return (*before, *after)


def tokens_of(messages: Iterable[Message], count: Callable[[str], int]) -> int:
    """Tokens of a chat: the texts, the requests for tools, and what holds each message together."""
    return sum(MESSAGE + count(each.content) + _calls(each, count) for each in messages)


def _calls(message: Message, count: Callable[[str], int]) -> int:
    return count(json.dumps(message.tool_calls, ensure_ascii=False)) if message.tool_calls else 0


def _present(parts: Iterable[Part]) -> list[tuple[Part, str]]:
    return [(each, each.entry.fragment.text) for each in parts if each.entry.state != "dropped"]


def _texts(parts: Iterable[Part]) -> list[str]:
    return [text for _, text in _present(parts)]


def _or_mark(part: Part) -> str:
    return MARK if part.entry.state == "dropped" else part.entry.fragment.text
