"""What is said when a cassette has no answer: how the request differs from the nearest one that has."""

from __future__ import annotations

from collections.abc import Sequence
from difflib import SequenceMatcher, unified_diff
from pathlib import Path
from typing import Final

from flowengine.errors import PermanentModelError
from flowengine.testing.cassette_file import Call, request_text

__all__ = ["CassetteMismatchError", "mismatch"]

_MOST_LINES: Final = 80


class CassetteMismatchError(PermanentModelError):
    """The cassette has no answer for this call, and may not record one."""


def mismatch(path: Path, mode: str, calls: Sequence[Call], asked: Call) -> CassetteMismatchError:
    """The error for a call that has no answer left."""
    who = f" of '{asked.node}'" if asked.node else ""
    again = "; record it with --cassettes=new (or FLOWENGINE_CASSETTES=new), everything anew with 'all'"
    if not calls:
        there = "holds no calls" if path.exists() else "does not exist"
        return CassetteMismatchError(f"the cassette {path} {there}, and mode '{mode}' records nothing{again}")
    equal = sum(call.key == asked.key for call in calls)
    if equal:
        times = "once" if equal == 1 else f"{equal} times"
        return CassetteMismatchError(f"the cassette {path} has this call{who} {times}, and it came once more{again}")
    return CassetteMismatchError(
        f"the cassette {path} has no answer for this call{who}{again}. The nearest recorded request differs:\n"
        f"{_difference(calls, asked)}"
    )


def _difference(calls: Sequence[Call], asked: Call) -> str:
    lines = _lines(asked)
    number, nearest = max(enumerate(calls), key=lambda each: _likeness(each[1], asked, lines))
    where = f"recorded: call {number + 1}" + (f" of '{nearest.node}'" if nearest.node else "")
    diff = list(unified_diff(_lines(nearest), lines, where, "asked now", lineterm="", n=2))
    rest = len(diff) - _MOST_LINES
    return "\n".join([*diff[:_MOST_LINES], *([f"… and {rest} more lines"] if rest > 0 else [])])


def _likeness(call: Call, asked: Call, lines: Sequence[str]) -> tuple[bool, float]:
    """The same node before all others, then the share of equal lines."""
    return call.node == asked.node, SequenceMatcher(None, _lines(call), lines, autojunk=False).ratio()


def _lines(call: Call) -> list[str]:
    return request_text(call.request).splitlines()
