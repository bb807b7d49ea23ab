"""Cuts what was gathered to a number of characters, without counting tokens.

It knows texts and their lengths. What is about the query is the filter's matter, and tokens are the compressor's.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Final

from flowengine.agents.context.provider import ContextProvider, ParameterError, at_once, join_fragments
from flowengine.agents.context.text_cutting import of_pieces
from flowengine.core import Fragment, check_arguments
from flowengine.errors import did_you_mean
from flowengine.models import MARK, shorten_text

_CUT_PLACES: Final = ("start", "middle", "end")


class CutProvider(ContextProvider):
    """Leaves at most so many characters; what is too much goes at the start, in the middle or at the end.

    A mark stands where something was cut off. Cut is at the end of a line or a sentence where that keeps half of what
    fits, else between words.

    >>> cut = CutProvider(max_chars=30, at="end")
    >>> print(cut.get_context("", "One sentence here. Another one there. A third."))
    One sentence here. […]
    """

    provider_name: ClassVar[str] = "cut"
    transforms: ClassVar[bool] = True
    config_description: ClassVar[str] = "Leaves at most so many characters of all that was gathered before"
    config_parameters: ClassVar[Mapping[str, str]] = {
        "max_chars": "Characters that are left at most, the marks included",
        "at": "Where it is cut: start, middle or end",
    }
    config_example: ClassVar[str] = "- cut: {max_chars: 3000, at: middle}"

    def __init__(self, max_chars: int = 3000, at: str = "end") -> None:
        check_arguments(CutProvider.__init__, locals(), ParameterError)
        if max_chars < 1:
            raise ParameterError(f"max_chars must be at least 1, not {max_chars}", "max_chars")
        if at not in _CUT_PLACES:
            near = did_you_mean(at, _CUT_PLACES) or f"; it is one of {', '.join(_CUT_PLACES)}"
            raise ParameterError(f"at: there is no place '{at}'{near}", "at")
        self.max_chars = max_chars
        self.at = at

    def get_context(self, query: str, previous_context: str | None = None, **kwargs: Any) -> str:
        before = [Fragment(previous_context, "previous_context")] if previous_context else []
        return join_fragments(self.fragments(query, before))

    @at_once
    def fragments(self, query: str, previous: Sequence[Fragment], **kwargs: Any) -> Sequence[Fragment]:
        """The fragments that are left, in their order. What is pinned stays whole, and takes of the room."""
        room = self.max_chars - sum(len(each.text) for each in previous if each.pinned)
        if sum(len(each.text) for each in previous if not each.pinned) <= room:
            return previous
        numbers = [number for number, each in enumerate(previous) if not each.pinned]
        cut_texts = _take_fragments(previous, numbers, room, self.at)
        texts = {number: each.text for number, each in enumerate(previous) if each.pinned} | cut_texts
        return [of_pieces(previous[number], [texts[number]]) for number in sorted(texts)]

    def fresh(self) -> CutProvider:
        return self  # It remembers nothing.


def _take_fragments(fragments: Sequence[Fragment], numbers: Sequence[int], room: int, at: str) -> dict[int, str]:
    """Number → what is left of a fragment; nothing of those that are cut off whole."""
    if at == "middle":
        head = _take_fragments(fragments, numbers, (room + 1) // 2, "end")
        tail = _take_fragments(fragments, numbers, room // 2, "start")
        return {number: _join_ends(head.get(number, ""), tail.get(number, "")) for number in {**head, **tail}}
    texts: dict[int, str] = {}
    for number in numbers if at == "end" else reversed(numbers):
        text = _cut_end(fragments[number].text, room) if at == "end" else _cut_beginning(fragments[number].text, room)
        if not text:
            break
        texts[number] = text
        room -= len(text)
        if text != fragments[number].text:
            break
    return texts


def _join_ends(head: str, tail: str) -> str:
    """Joins both ends of the fragment that is cut in its middle, with one mark."""
    if not head or not tail:
        return head or tail
    return f"{head.removesuffix(MARK).rstrip()} {MARK} {tail.removeprefix(MARK).lstrip()}"


def _cut_end(text: str, room: int) -> str:
    return shorten_text(text, room, len)


def _cut_beginning(text: str, room: int) -> str:
    """The end of a text behind the mark, from the beginning of a word on."""
    if len(text) <= room:
        return text
    most = room - len(MARK) - 1
    if most <= 0:
        return ""
    end = text[-most:]
    if not text[-most - 1].isspace():
        word = end.partition(" ")[2]
        end = word if len(word) * 2 > len(end) else end
    end = end.lstrip()
    return f"{MARK} {end}" if end else ""
