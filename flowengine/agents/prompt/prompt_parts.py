"""Packs the parts of a prompt into its token budget, and records in a receipt what was kept.

It knows parts, the budget, and how a chat is counted. Where the parts come from is the matter of `prompt_builder`.
"""

from __future__ import annotations

import json
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import IntEnum
from functools import partial
from itertools import takewhile
from typing import Any, Final, NamedTuple

from anyio import to_thread

from flowengine.agents.caller import Caller
from flowengine.agents.context import BudgetError, Packed, PackedEntry, count_bytes, pack, receipt_of
from flowengine.agents.prompt.prompt import generation_messages
from flowengine.core import FileValue, Fragment, Messages, Notice, Receipt
from flowengine.models import MARK, Message, Model, count_tokens, innermost_models, longest_answer_of, window_of

# --- Parts of a prompt

MESSAGE: Final = 4
"""Tokens that a chat message costs beside its text."""


class PartPlace(IntEnum):
    """A part's place in the prompt. Stable parts come first, so that vendors can cache them."""

    SYSTEM = 0
    """Who the agent is, what it is told to do, and what it can always draw on: the system message."""
    EARLIER = 1
    """The chat that it goes on from."""
    CONTEXT = 2
    """The fragments of providers."""
    TYPED = 3
    """The texts of typed contexts; the part of the context that changes from call to call."""
    PREVIOUS = 4
    """The session's history."""
    INPUT = 5
    REMARK = 6
    """A remark on the chat behind the question."""
    AFTER = 7
    """The messages after the question: requests for tools and their results, drafts and what is to be better."""


class Part(NamedTuple):
    """One fragment, as an entry that may be dropped, and its place."""

    place: PartPlace
    entry: PackedEntry
    message: Message | None = None
    """The chat message whose text it is, for what was one before."""
    handle: partial[str] | None = None
    """Makes, for a tool's result, the text that stands for its part left out, from a character on."""

    @classmethod
    def of(cls, place: PartPlace, text: str, source: str, *, pinned: bool = True, **details: Any) -> Part:
        return cls(place, PackedEntry(Fragment(text, source, pinned=pinned, **details)))


@dataclass(frozen=True, slots=True)
class PromptQuestion:
    """A question to a model, with the agent's own texts."""

    input_text: str
    system_message: str = ""
    instructions: str = ""
    history: Sequence[str] = ()
    """The session's, the newest last."""
    earlier: Sequence[Message] = ()
    """The chat that it goes on from."""
    attachments: tuple[FileValue, ...] = ()
    """Files that go with the input; they are in no budget."""
    shared: str = ""
    """How the input begins for other questions too."""

    def parts(self, standing: Iterable[Part], context: Iterable[Part]) -> list[Part]:
        """All parts of its prompt, in their order; of history and chat the oldest give way first.

        `standing`: what the system message says beside the agent's own texts.
        """
        newest = len(self.history) - 1
        previous = (
            Part.of(PartPlace.PREVIOUS, text, "session history", pinned=False, priority=number - newest)
            for number, text in enumerate(self.history)
        )
        parts = [
            Part.of(PartPlace.SYSTEM, self.system_message, "system message"),
            Part.of(PartPlace.SYSTEM, self.instructions, "instructions"),
            *standing,
            *_chat_parts(self.earlier),
            *context,
            *previous,
            Part.of(PartPlace.INPUT, self.input_text, "user input"),
        ]
        return [each for each in parts if each.entry.fragment.text or each.message or each.place is PartPlace.INPUT]


def _chat_parts(messages: Sequence[Message]) -> Iterator[Part]:
    """A question stays with all that answers it, so that no result of a tool is without its request."""
    turns = [number for number, each in enumerate(messages) if each.role == "user"]
    for number, message in enumerate(messages):
        turn = bisect_right(turns, number)
        pinned = message.role == "system"
        group = "" if pinned else f"messages, turn {turn}"
        yield _part_of(PartPlace.EARLIER, message, number, pinned=pinned, group=group, priority=turn - len(turns))


def fixed_parts(messages: Sequence[Message]) -> list[Part]:
    """Messages that are sent as they are."""
    return [_part_of(PartPlace.EARLIER, each, number, pinned=True) for number, each in enumerate(messages)]


def after_parts(messages: Sequence[Message]) -> list[Part]:
    """Returns the parts after the question. Tool results may be cut, the oldest first; all other parts stay."""
    requests = {call.id: call.name for each in messages for call in each.tool_calls}
    rounds = [number for number, each in enumerate(messages) if each.tool_calls]
    parts: list[Part] = []
    for number, message in enumerate(messages):
        if message.role == "tool":
            label = f"result of {requests.get(message.tool_call_id or '', '?')}"
            # The newest round is what the model waits for: it goes before what providers brought.
            rank = bisect_right(rounds, number) - len(rounds) + 1
            parts.append(Part.of(PartPlace.AFTER, message.content, "tools", pinned=False, label=label, priority=rank))
            parts[-1] = parts[-1]._replace(message=message)
        else:
            parts.append(_part_of(PartPlace.AFTER, message, number, pinned=True))
    return parts


def _part_of(place: PartPlace, message: Message, number: int, **details: Any) -> Part:
    label = f"message {number + 1} ({message.role})"
    return Part.of(place, message.content, "messages", label=label, **details)._replace(message=message)


def assemble_messages(words: Messages, parts: Iterable[Part], shared: str = "") -> tuple[Message, ...]:
    """The chat messages. Of what came after the question no message is left out, only its text.

    `shared`: how the input begins for other questions too.
    """
    at: dict[PartPlace, list[Part]] = {place: [] for place in PartPlace}
    for part in parts:
        at[part.place].append(part)
    system = [each.entry.fragment.text for each in at[PartPlace.SYSTEM]]
    before = generation_messages(
        words,
        "\n\n".join(_texts_of([*at[PartPlace.INPUT], *at[PartPlace.REMARK]])),
        instructions="\n\n".join(text for text in system if text.strip()),
        context="\n\n".join(
            [*_texts_of(sorted(at[PartPlace.CONTEXT], key=_order_of)), *_texts_of(at[PartPlace.TYPED])]
        ),
        history=_texts_of(at[PartPlace.PREVIOUS]),
        earlier=[
            each.message._replace(content=text) for each, text in _present_parts(at[PartPlace.EARLIER]) if each.message
        ],
        shared=shared,
        stable="\n\n".join(_texts_of(takewhile(_is_stable, sorted(at[PartPlace.CONTEXT], key=_order_of)))),
    )
    after = (each.message._replace(content=_text_and_handle(each)) for each in at[PartPlace.AFTER] if each.message)
    return (*before, *after)


def tokens_of(messages: Iterable[Message], count: Callable[[str], int]) -> int:
    """Tokens of a chat: the texts, the requests for tools, and what holds each message together."""
    return sum(MESSAGE + count(each.content) + _count_calls(each, count) for each in messages)


def _count_calls(message: Message, count: Callable[[str], int]) -> int:
    return count(json.dumps(message.tool_calls, ensure_ascii=False)) if message.tool_calls else 0


_STABLE: Final = frozenset({"fixed_file", "custom_data"})
"""Providers that bring the same whatever is asked."""


def _is_stable(part: Part) -> bool:
    """Tells whether other questions have the part too, word for word."""
    fragment, state = part.entry.fragment, part.entry.state
    return state == "kept" and (fragment.pinned or fragment.source in _STABLE)


def _order_of(part: Part) -> int:
    return part.entry.fragment.order


def _present_parts(parts: Iterable[Part]) -> list[tuple[Part, str]]:
    return [(each, each.entry.fragment.text) for each in parts if each.entry.state != "dropped"]


def _texts_of(parts: Iterable[Part]) -> list[str]:
    return [text for _, text in _present_parts(parts)]


def _text_and_handle(part: Part) -> str:
    text, state = part.entry.fragment.text, part.entry.state
    if state == "kept":
        return text
    remainder = "" if state == "dropped" else text
    if part.handle is None:
        return remainder or MARK
    handle = part.handle(len(remainder.removesuffix(MARK).rstrip()))
    return f"{remainder}\n{handle}" if remainder else handle


# --- Token budget where none is set

_EXACT: Final = frozenset({"openai", "azure"})
"""Vendors whose vocabularies are public, so that our counts are theirs."""
_OTHERS: Final = 0.8
"""The share that is ours to fill where a vendor may count more tokens than we do."""
_OWN: Final = 0.95
"""The share where the counts agree: tools and schemas are sent beside the messages."""


def find_token_budget(model: Model, max_tokens: int | None) -> int | None:
    """Tokens for the messages of a call; None where nothing is known of a model that may answer.

    `max_tokens` is the answer's bound; without one the longest answer counts, up to a quarter of the window.
    """
    rooms = [_tokens_left(each, max_tokens) for each in innermost_models(model)]
    windows = [each for each in rooms if each is not None]
    return min(windows) if windows and len(windows) == len(rooms) else None


def _tokens_left(model: Model, max_tokens: int | None) -> int | None:
    window = window_of(model)
    if window is None:
        return None
    answer = max_tokens or min(longest_answer_of(model) or window, window // 4)
    return max(int((window - answer) * (_OWN if model.provider in _EXACT else _OTHERS)), 1)


_LARGE: Final = 200_000
"""Characters from which on texts are counted in a thread: a million may take most of a second."""


class Packing:
    """The packing of prompts in one run of an agent. Texts that were counted once are not counted again.

    A budget that was asked for is one of messages; the model's window is one of all that is sent.
    """

    def __init__(self, caller: Caller, words: Messages, budget: int | None, *, is_quiet: bool = False) -> None:
        """`is_quiet`: nothing is noted of a prompt in which all is kept."""
        self._gateway = caller.gateway
        self._model = caller.model.name
        self._words = words
        self._asked_for = budget
        self._window = find_token_budget(caller.model, caller.settings.max_tokens)
        self._is_quiet = is_quiet
        self._counts: dict[str, int] = {}
        self._last_receipt: Receipt | None = None

    def find_room(self, messages: Iterable[Message], schemas: Iterable[Any]) -> int | None:
        """Tokens that messages may have beside the schemas that are sent with them; None: any number.

        Nothing is counted where both fit whatever they have: the vocabulary alone takes half a second.
        """
        texts = [json.dumps(each, ensure_ascii=False) for each in schemas]
        least = self._room_beside(sum(map(count_bytes, texts)))
        if least is None or tokens_of(messages, count_bytes) <= least:
            return self._room_beside(0)
        return self._room_beside(sum(map(self._count, texts)))

    def _room_beside(self, tokens: int) -> int | None:
        if self._window is None:
            return self._asked_for
        room = max(self._window - tokens, 1)
        return room if self._asked_for is None else min(room, self._asked_for)

    async def pack(self, parts: Sequence[Part], room: int | None, *, is_strict: bool = False) -> list[Part]:
        """The parts with what became of each; noted, unless that is what was noted last.

        Where not even the fixed parts fit: a `BudgetError` for a budget that was asked for, or if `is_strict`.
        """
        if sum(len(each.entry.fragment.text) for each in parts) > _LARGE:
            packed = await to_thread.run_sync(self._pack, parts, room, is_strict)
        else:
            packed = self._pack(parts, room, is_strict)
        if packed.budget != room:
            over = f"the prompt's fixed parts have {packed.tokens:,} tokens, more than the {room:,} that the"
            await self._gateway.note(Notice(f"{over} model seems to have room for"))
        receipt = receipt_of(packed)
        if receipt != self._last_receipt and not (
            self._is_quiet and all(each.state == "kept" for each in packed.entries)
        ):
            self._last_receipt = receipt
            await self._gateway.note(receipt)
        return [part._replace(entry=entry) for part, entry in zip(parts, packed.entries, strict=True)]

    def count_parts(self, parts: Sequence[Part]) -> int:
        """Tokens of the prompt that parts make."""
        return tokens_of(assemble_messages(self._words, parts), self._count)

    def count_text(self, text: str) -> int:
        return self._count(text)

    def exceeds(self, messages: Sequence[Message], room: int | None) -> bool:
        """Tells whether a chat has outgrown the room."""
        if room is None or tokens_of(messages, count_bytes) <= room:
            return False
        return tokens_of(messages, self._count) > room

    def _pack(self, parts: Sequence[Part], room: int | None, is_strict: bool) -> Packed:
        entries = [each.entry for each in parts]
        make: Any = partial(pack, entries, measure=partial(self._measure, parts), count=self._count)
        try:
            return make(room)
        except BudgetError as error:
            if is_strict or (self._asked_for is not None and error.least > self._asked_for):
                raise
            # What the model has room for is an estimate: with the least that there is, it is left to the vendor.
            return make(error.least)

    def _measure(self, parts: Sequence[Part], entries: Sequence[PackedEntry], count: Callable[[str], int]) -> int:
        packed_parts = (part._replace(entry=entry) for part, entry in zip(parts, entries, strict=True))
        return tokens_of(assemble_messages(self._words, packed_parts), count)

    def _count(self, text: str) -> int:
        tokens = self._counts.get(text)
        if tokens is None:
            tokens = self._counts[text] = count_tokens(text, self._model)
        return tokens
