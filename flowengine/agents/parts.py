"""A prompt as parts: fragments with their places in it, and the chat messages that they make.

It knows the places and their order, which is that of `prompt.generation_messages`. What enters and what is left
out is the packer's decision; where texts come from is nobody's matter here.
"""

from __future__ import annotations

import json
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Any, Final, NamedTuple

from flowengine.agents.prompt import generation_messages
from flowengine.catalogue import Catalogue
from flowengine.context import Fragment
from flowengine.llm.messages import Message
from flowengine.providers.packer import Entry
from flowengine.providers.shortening import MARK

__all__ = ["MESSAGE", "Part", "Place", "Question", "after_parts", "assembled", "fixed_parts", "tokens_of"]

MESSAGE: Final = 4
"""Tokens that a chat message costs beside its text."""


class Place(IntEnum):
    """Where in a prompt: what hardly changes comes first, so that vendors can cache it."""

    SYSTEM = 0
    """Who the agent is, what it is told to do, and what it can always draw on: the system message."""
    EARLIER = 1
    """The chat that it goes on from."""
    CONTEXT = 2
    """What providers bring."""
    TYPED = 3
    """What typed contexts show; the part of the context that changes from call to call."""
    PREVIOUS = 4
    """The session's history."""
    INPUT = 5
    AFTER = 6
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


@dataclass(frozen=True, slots=True)
class Question:
    """What is asked, with the texts that are the agent's own."""

    input_text: str
    system_message: str = ""
    instructions: str = ""
    history: Sequence[str] = ()
    """The session's, the newest last."""
    earlier: Sequence[Message] = ()
    """The chat that it goes on from."""

    def parts(self, standing: Iterable[Part], context: Iterable[Part]) -> list[Part]:
        """All parts of its prompt, in their order; of history and chat the oldest give way first.

        `standing`: what the system message says beside the agent's own texts.
        """
        newest = len(self.history) - 1
        previous = (
            Part.of(Place.PREVIOUS, text, "session history", pinned=False, priority=number - newest)
            for number, text in enumerate(self.history)
        )
        parts = [
            Part.of(Place.SYSTEM, self.system_message, "system message"),
            Part.of(Place.SYSTEM, self.instructions, "instructions"),
            *standing,
            *_chat_parts(self.earlier),
            *context,
            *previous,
            Part.of(Place.INPUT, self.input_text, "user input"),
        ]
        return [each for each in parts if each.entry.fragment.text or each.message or each.place is Place.INPUT]


def _chat_parts(messages: Sequence[Message]) -> Iterator[Part]:
    """A question stays with all that answers it, so that no result of a tool is without its request."""
    turns = [number for number, each in enumerate(messages) if each.role == "user"]
    for number, message in enumerate(messages):
        turn = bisect_right(turns, number)
        pinned = message.role == "system"
        group = "" if pinned else f"messages, turn {turn}"
        yield _part_of(Place.EARLIER, message, number, pinned=pinned, group=group, priority=turn - len(turns))


def fixed_parts(messages: Sequence[Message]) -> list[Part]:
    """Messages that are sent as they are."""
    return [_part_of(Place.EARLIER, each, number, pinned=True) for number, each in enumerate(messages)]


def after_parts(messages: Sequence[Message]) -> list[Part]:
    """What came after the question: what tools said may be cut down, the oldest first; all else stays."""
    requests = {call.id: call.name for each in messages for call in each.tool_calls}
    rounds = [number for number, each in enumerate(messages) if each.tool_calls]
    parts: list[Part] = []
    for number, message in enumerate(messages):
        if message.role == "tool":
            label = f"result of {requests.get(message.tool_call_id or '', '?')}"
            # The newest round is what the model waits for: it goes before what providers brought.
            rank = bisect_right(rounds, number) - len(rounds) + 1
            parts.append(Part.of(Place.AFTER, message.content, "tools", pinned=False, label=label, priority=rank))
            parts[-1] = parts[-1]._replace(message=message)
        else:
            parts.append(_part_of(Place.AFTER, message, number, pinned=True))
    return parts


def _part_of(place: Place, message: Message, number: int, **details: Any) -> Part:
    label = f"message {number + 1} ({message.role})"
    return Part.of(place, message.content, "messages", label=label, **details)._replace(message=message)


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
        context="\n\n".join([*_texts(sorted(at[Place.CONTEXT], key=_order)), *_texts(at[Place.TYPED])]),
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


def _order(part: Part) -> int:
    return part.entry.fragment.order


def _present(parts: Iterable[Part]) -> list[tuple[Part, str]]:
    return [(each, each.entry.fragment.text) for each in parts if each.entry.state != "dropped"]


def _texts(parts: Iterable[Part]) -> list[str]:
    return [text for _, text in _present(parts)]


def _or_mark(part: Part) -> str:
    return MARK if part.entry.state == "dropped" else part.entry.fragment.text
