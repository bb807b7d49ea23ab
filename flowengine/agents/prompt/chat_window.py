"""Keeps the chat of an agent with its tools within the token budget, and lets the model read again what was taken out.

1. As long as all fits nothing is touched. Then the oldest results go until three quarters of the room are filled, so
   that some rounds pass before the next cut. What was taken out stays out: vendors find the chat in their caches.
2. In the place of a result, or of its rest, stands a handle; the tool `recall` gives the text behind it.
3. Where handles alone are too much, the oldest rounds go whole, requests and results, and a line behind the question
   says so. The newest round always stays.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Final, NamedTuple

from flowengine.agents.context import BudgetError
from flowengine.agents.prompt.prompt_parts import Packing, Part, PartPlace, after_parts
from flowengine.agents.tools import Tool, ToolResult, ToolSet, failed_result
from flowengine.core import Messages
from flowengine.models import MARK, Message

_RECALL: Final = "recall"
_SHARE: Final = 0.75
"""The share of the room that a cut leaves filled."""
_LEAST_RECALLED: Final = 2_000
"""Characters that a call of `recall` gives in any case, where there are so many."""


class _Round(NamedTuple):
    begin: int
    """Number of the message that asks for tools."""
    end: int


class ChatWindow:
    """The part of the chat that one run of an agent sends to the model."""

    def __init__(self, words: Messages, tool_names: Sequence[str]) -> None:
        """`tool_names`: names that the agent's own tools have."""
        self._words = words
        self._name = _RECALL if _RECALL not in tool_names else f"{_RECALL}_result"
        self._cuts: dict[str, str] = {}
        """Handle → what is left of the result."""
        self._texts: dict[str, str] = {}
        self._rounds_out = 0
        self._most_recalled = _LEAST_RECALLED
        self.tools = ToolSet(self._name, "", [self._make_tool()])

    @property
    def is_cut(self) -> bool:
        """Whether anything was taken out."""
        return bool(self._cuts or self._rounds_out)

    def parts(self, after: Sequence[Message]) -> list[Part]:
        """The chat after the question, less what was taken out."""
        results = [each for each in after if each.role == "tool"]
        self._texts.update((f"r{number}", each.content) for number, each in enumerate(results, 1))
        out = self._left_out(after)
        last = sum(each.role == "tool" for each in after[:out])
        names = {id(each): f"r{number}" for number, each in enumerate(results[last:], last + 1)}
        parts = [
            each if each.message is None or each.message.role != "tool" else self._cut(each, names[id(each.message)])
            for each in after_parts(after[out:])
        ]
        if not self._rounds_out:
            return parts
        text = self._words("tools.rounds_left_out", rounds=self._rounds_out, tool=self._name, last=f"r{last}")
        return [Part.of(PartPlace.REMARK, text, "tools", label="rounds left out"), *parts]

    async def shrink(
        self, packing: Packing, before: Sequence[Part], after: Sequence[Message], room: int | None
    ) -> list[Part]:
        """All parts of the prompt, cut down to what there is room for."""
        self._most_recalled = max(_LEAST_RECALLED, room or 0)
        rounds = _rounds_of(after)
        while True:
            parts = [*before, *self.parts(after)]
            if room is not None and rounds:
                parts = self._take_out_oldest(packing, parts, after[rounds[-1].begin :], int(room * _SHARE))
            remaining = len(rounds) - 1 - self._rounds_out
            try:
                packed = await packing.pack(parts, room, is_strict=remaining > 0)
                break
            except BudgetError:
                if remaining <= 0:
                    raise
                self._rounds_out += (remaining + 1) // 2
        for part in packed:
            if part.handle is not None and part.entry.state != "kept":
                text = "" if part.entry.state == "dropped" else part.entry.fragment.text
                self._cuts[part.handle.args[0]] = text
        return packed

    def _take_out_oldest(
        self, packing: Packing, parts: Sequence[Part], newest: Sequence[Message], most: int
    ) -> list[Part]:
        """The parts less the oldest results, as long as they have more tokens than `most`; those of the newest round
        stay."""
        over, remaining = packing.count_parts(parts) - most, list(parts)
        newest_ids = {id(each) for each in newest}
        for number, part in enumerate(parts):
            fragment, state = part.entry.fragment, part.entry.state
            if over <= 0:
                break
            if part.handle is None or fragment.pinned or state == "dropped" or id(part.message) in newest_ids:
                continue
            remaining[number] = part._replace(
                entry=part.entry._replace(state="dropped", why="to make room for newer ones")
            )
            over -= packing.count_text(fragment.text) - packing.count_text(part.handle(0))
        return remaining

    def _left_out(self, after: Sequence[Message]) -> int:
        """How many messages of the chat belong to rounds that are left out."""
        return _rounds_of(after)[self._rounds_out - 1].end if self._rounds_out else 0

    def _cut(self, part: Part, name: str) -> Part:
        fragment = part.entry.fragment
        handle = partial(self._format_handle, name, len(fragment.text))
        if name not in self._cuts:
            # A text that is hardly longer than its handle stays.
            is_short = len(fragment.text) < 2 * len(handle(0))
            return part._replace(
                entry=part.entry._replace(fragment=fragment._replace(pinned=is_short), shares=True), handle=handle
            )
        text = self._cuts[name]
        state = "shortened" if text else "dropped"
        return part._replace(
            entry=part.entry._replace(
                fragment=fragment._replace(text=text), state=state, why="cut before", shares=True
            ),
            handle=handle,
        )

    def _format_handle(self, name: str, size: int, start: int) -> str:
        return self._words("tools.left_out", start=f"{start}", size=f"{size}", tool=self._name, id=name)

    # --- the tool

    def _make_tool(self) -> Tool:
        parameters = {
            "type": "object",
            "properties": {"id": {"type": "string"}, "start": {"type": "integer", "minimum": 0}},
            "required": ["id"],
        }
        return Tool(self._name, self._words("tools.recall"), parameters, self._recall, approve=False)

    async def _recall(self, arguments: Mapping[str, object]) -> ToolResult:
        """A piece of a result, from a character on."""
        name, start = str(arguments.get("id", "")), arguments.get("start", 0)
        text = self._texts.get(name)
        if text is None:
            ids = f"r1 … r{len(self._texts)}"
            return failed_result(self._words("tools.no_result", id=name, known=ids))
        begin = start if isinstance(start, int) and 0 <= start < len(text) else 0
        piece = text[begin : begin + self._most_recalled]
        end = begin + len(piece)
        return ToolResult(piece if end == len(text) else f"{piece}{MARK}\n{self._format_handle(name, len(text), end)}")


def _rounds_of(after: Sequence[Message]) -> list[_Round]:
    """The rounds of tools in a chat: a request with the results that follow it."""
    rounds: list[_Round] = []
    for number, message in enumerate(after):
        if message.tool_calls:
            rounds.append(_Round(number, number + 1))
        elif message.role == "tool" and rounds:
            rounds[-1] = rounds[-1]._replace(end=number + 1)
    return rounds
