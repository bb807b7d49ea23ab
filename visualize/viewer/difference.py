"""What became of a text: the lines that went and the lines that came."""

from __future__ import annotations

from collections.abc import Iterator
from difflib import SequenceMatcher
from typing import Any, Final

from visualize.plain import shown
from visualize.viewer.html import Markup, element

__all__ = ["difference"]

_LINES: Final = 400
"""Lines of each side that are compared: the work grows with their product."""
_AROUND: Final = 2
"""Lines that stayed, shown before and after those that did not."""


def difference(before: Any, after: Any) -> Markup:
    """Both values line by line, with signs before the lines that only one of them has.

    >>> print(difference("a\\nb", "a\\nc"))
    <pre class="difference"><span class="same">  a</span>
    <del>- b</del>
    <ins>+ c</ins>
    </pre>
    """
    old, new = _lines(before), _lines(after)
    return element("pre", [[line, "\n"] for line in _told(old, new)], class_="difference")


def _lines(value: Any) -> list[str]:
    lines = shown(value).splitlines() or [""]
    rest = len(lines) - _LINES
    return lines if rest <= 0 else [*lines[:_LINES], f"… ({rest:,} more lines)"]


def _told(old: list[str], new: list[str]) -> Iterator[Markup]:
    groups = SequenceMatcher(None, old, new, autojunk=False).get_opcodes()
    for number, (tag, low, high, new_low, new_high) in enumerate(groups):
        if tag == "equal":
            yield from _same(old[low:high], is_first=number == 0, is_last=number == len(groups) - 1)
            continue
        yield from (element("del", f"- {line}") for line in old[low:high])
        yield from (element("ins", f"+ {line}") for line in new[new_low:new_high])


def _same(lines: list[str], *, is_first: bool, is_last: bool) -> Iterator[Markup]:
    head, tail = (0 if is_first else _AROUND), (0 if is_last else _AROUND)
    if len(lines) <= head + tail + 1:
        kept, hidden = lines, 0
    else:
        kept, hidden = [*lines[:head], *lines[len(lines) - tail :]], len(lines) - head - tail
    for number, line in enumerate(kept):
        if hidden and number == head:
            yield element("span", f"  … {hidden:,} equal lines", class_="skip")
        yield element("span", f"  {line}", class_="same")
    if hidden and head == len(kept):
        yield element("span", f"  … {hidden:,} equal lines", class_="skip")
