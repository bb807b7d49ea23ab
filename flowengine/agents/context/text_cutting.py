"""Cuts texts into sections where their writers cut them.

It knows lines, and which fragments are sections already. What becomes of a section is for the modules that rank or
shorten.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Final

from flowengine.core import Fragment

_WHOLE: Final = frozenset({"conversation", "source_code", "long_term_memory", "retrieval"})
"""Sources whose fragments are sections already."""

_HEADING: Final = re.compile(r"#{1,6}\s+\S")
_FENCE: Final = re.compile(r"\s*(```+|~~~+)")
_SPEAKER: Final = re.compile(
    r"(?:\*\*)?(?:user|human|assistant|ai|system|tool|tool call|tool result|function|observation|ユーザー|アシスタント|"
    r"システム|ツール|用户|助手|系统|工具)(?:\*\*)?\s*+(?:\([^)\n]*\)|\[[^\]\n]*\])?\s*[:：]",
    re.IGNORECASE,
)


def sections(text: str) -> list[str]:
    """The sections of a text in their order; put together with blank lines between them they say the same.

    A heading goes with what stands below it, a speaker with all that is said until the next one, and code between
    fences stays in one piece.

    >>> sections("# Tea\\n\\nGreen.\\n\\n# Coffee\\nBlack.")
    ['# Tea\\n\\nGreen.', '# Coffee\\nBlack.']
    >>> sections("User: Hello\\nAssistant: Hi!\\n\\nHow can I help?\\nUser: Tea")
    ['User: Hello', 'Assistant: Hi!\\n\\nHow can I help?', 'User: Tea']
    >>> sections("One.\\n\\nTwo.")
    ['One.', 'Two.']
    """
    lines = text.splitlines()
    for begins in (_SPEAKER, _HEADING):
        if any(begins.match(line) for line, is_code in _mark_fences(lines) if not is_code):
            return _join_groups(_group_lines(lines, begins))
    return _join_groups(_split_paragraphs(lines))


def pieces_of(fragment: Fragment) -> list[str]:
    """The sections of a fragment's text; what belongs to a group, and an exchange of a conversation, is one."""
    return [fragment.text] if fragment.group or fragment.source in _WHOLE else sections(fragment.text)


def of_pieces(fragment: Fragment, texts: Sequence[str]) -> Fragment:
    """A fragment with what is left of its sections; itself where that is all."""
    if list(texts) in ([fragment.text], pieces_of(fragment)):
        return fragment
    return fragment._replace(text="\n\n".join(texts), tokens=None)


def _group_lines(lines: list[str], begins: re.Pattern[str]) -> Iterator[list[str]]:
    """Groups of lines, each of which begins with a line of its kind; and what stands before the first."""
    group: list[str] = []
    for line, is_code in _mark_fences(lines):
        if not is_code and begins.match(line):
            yield group
            group = []
        group.append(line)
    yield group


def _split_paragraphs(lines: list[str]) -> Iterator[list[str]]:
    group: list[str] = []
    for line, is_code in _mark_fences(lines):
        if line.strip() or is_code:
            group.append(line)
        else:
            yield group
            group = []
    yield group


def _mark_fences(lines: list[str]) -> Iterator[tuple[str, bool]]:
    """(line, whether it is inside of fences, the fences included). One that is never closed is none."""
    closing = _find_closing_fences(lines)
    until = -1
    for number, line in enumerate(lines):
        if number > until and number in closing:
            until = closing[number]
        yield line, number <= until


def _find_closing_fences(lines: list[str]) -> dict[int, int]:
    """Line of a fence → line of the one that closes it."""
    closings: dict[int, int] = {}
    opening: tuple[int, str] | None = None
    for number, line in enumerate(lines):
        fence = _FENCE.match(line)
        if fence is None:
            continue
        if opening is None:
            opening = (number, fence[1])
        elif fence[1].startswith(opening[1]) and not line.strip(" `~\t"):
            closings[opening[0]] = number
            opening = None
    return closings


def _join_groups(groups: Iterator[list[str]]) -> list[str]:
    texts = ("\n".join(group).strip("\n") for group in groups)
    return [text for text in texts if text.strip()]
