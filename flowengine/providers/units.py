"""Fragments as units: what stays together when a context is made smaller, and which of it tools said.

It knows the forms in which tools' calls and results come: fragments of one group, and turns of a transcript.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final, NamedTuple

from flowengine.context import Fragment
from flowengine.providers.sections import pieces_of

__all__ = ["Piece", "Unit", "units_of"]

_OF_TOOLS: Final = re.compile(r"tool|result|observation|function|call", re.IGNORECASE)
_RESULT: Final = re.compile(
    r"(?:\*\*)?(?:tool(?: result| output)?|function(?: result)?|observation|ツール(?:の?結果)?|工具(?:结果)?)(?:\*\*)?"
    r"\s*(?:\([^)\n]*\)|\[[^\]\n]*\])?\s*[:：]",
    re.IGNORECASE,
)


class Piece(NamedTuple):
    """A fragment, or a section of one."""

    fragment: int
    """The fragment's number."""
    place: int
    """Within the fragment."""
    text: str
    is_result: bool = False
    """Whether a tool said it."""


class Unit(NamedTuple):
    """Pieces that stay or go together."""

    pieces: tuple[Piece, ...]
    priority: int = 0
    is_summary: bool = False
    """Whether it stands for others that are gone."""

    @property
    def text(self) -> str:
        return "\n\n".join(each.text for each in self.pieces)


def units_of(fragments: Sequence[Fragment]) -> list[Unit]:
    """The units of the fragments that are not pinned, in the order of their beginnings."""
    found: dict[tuple[str, int, int], list[Piece]] = {}
    before = ("", -1, -1)
    source = ""
    for number, fragment in enumerate(fragments):
        if fragment.pinned:
            continue
        for place, text in enumerate(pieces_of(fragment)):
            if fragment.group:
                key = (fragment.group, -1, -1)
                is_result = _is_called_result(fragment, is_later=key in found)
            else:
                is_result = _RESULT.match(text) is not None or _is_called_result(fragment, is_later=False)
                # A result goes with the call right before it.
                key = before if is_result and fragment.source == source else ("", number, place)
            found.setdefault(key, []).append(Piece(number, place, text, is_result))
            before, source = key, fragment.source
    return [Unit(tuple(pieces), max(fragments[each.fragment].priority for each in pieces)) for pieces in found.values()]


def _is_called_result(fragment: Fragment, *, is_later: bool) -> bool:
    """By what the fragment is called; of a group that is about tools, all but the first are results."""
    if fragment.label.startswith("result"):
        return True
    return is_later and _OF_TOOLS.search(f"{fragment.source} {fragment.label} {fragment.group}") is not None
