"""Cuts texts: into sections where their writers cut them, and down to a number of tokens.

It knows lines, and which fragments are sections already. What becomes of a section is for the modules that rank or
shorten.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from importlib import import_module
from typing import Any, Final
from unicodedata import category

from flowengine.core.context import Fragment

__all__ = ["MARK", "of_pieces", "pieces_of", "sections", "shorten_text"]

# --- A text cut to a number of tokens

MARK: Final = "[…]"
"""Stands where the rest was; it needs no translation."""

_LINE_ENDS: Final = re.compile(r"\n+")
_SENTENCE_ENDS: Final = re.compile(r"[.!?…]['\")\]’”»]*(?=\s)|[。！？][」』）”’]*")
_WORD_ENDS: Final = re.compile(r"\s+")
_MAX_LOOKBACK: Final = 4000
"""Characters before the cut in which it looks for the end of a sentence, a word or a character."""


def shorten_text(text: str, most: int, count: Callable[[str], int]) -> str:
    """The beginning of a text and the mark, in at most `most` tokens; empty where not even a character fits.

    Cut at the end of a line or a sentence where that keeps half of what would fit, else between words, else
    between characters as readers see them (a flag, or a letter with its accents, is one).

    >>> def words(text):
    ...     return len(text.split())
    >>> shorten_text("One short sentence. Another one. A third.", 7, words)
    'One short sentence. Another one. A third.'
    >>> shorten_text("One short sentence. Another one. A third.", 5, words)
    'One short sentence. […]'
    """
    if count(text) <= most:
        return text
    end = _estimate_length(text, most, count)
    while end > 0:
        end = _find_boundary(text, end)
        kept = text[:end].rstrip()
        if not kept:
            break
        cut = f"{kept}\n{MARK}" if text[len(kept) : end + 1].startswith("\n") else f"{kept} {MARK}"
        if count(cut) <= most:
            return cut
        end = len(kept) - 1
    return ""


def _estimate_length(text: str, most: int, count: Callable[[str], int]) -> int:
    """About how many characters fit beside the mark. Tokens of a beginning hardly ever shrink as it grows."""
    room = most - count(f" {MARK}")
    if room <= 0:
        return 0
    # A first step by the most that tokens hold keeps long texts from being counted again and again.
    high = min(len(text), room * 200)
    return bisect_right(range(high + 1), room, key=lambda length: count(text[:length])) - 1


def _find_boundary(text: str, end: int) -> int:
    """The best place to cut at or before `end`."""
    start = max(0, end - _MAX_LOOKBACK)
    window = text[start:end]
    seen = window + text[end : end + 1]
    ends = (start + found.end() for pattern in (_LINE_ENDS, _SENTENCE_ENDS) for found in pattern.finditer(seen))
    best = max((each for each in ends if each <= end and not _is_extended(text, each)), default=0)
    if best * 2 >= end:
        return best
    word = max((start + found.start() for found in _WORD_ENDS.finditer(window)), default=0)
    return word if word * 10 >= end * 9 else _find_character_end(text, start, end)


def _is_extended(text: str, end: int) -> bool:
    """Tells whether the character before `end` goes on with what follows, an accent or a joiner (UAX #29, `Extend`)."""
    following = text[end : end + 1]
    return following == "\u200d" or (following != "" and category(following).startswith("M"))


def _find_character_end(text: str, start: int, end: int) -> int:
    """The last place at or before `end` that is not inside of a character as readers see it."""
    # Imported here: it is slow to import, and only long words are cut inside.
    regex: Any = import_module("regex")
    best = start
    for found in regex.compile(r"\X").finditer(text, start):
        if found.end() > end:
            break
        best = found.end()
    return best


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
    found: dict[int, int] = {}
    opened: tuple[int, str] | None = None
    for number, line in enumerate(lines):
        fence = _FENCE.match(line)
        if fence is None:
            continue
        if opened is None:
            opened = (number, fence[1])
        elif fence[1].startswith(opened[1]) and not line.strip(" `~\t"):
            found[opened[0]] = number
            opened = None
    return found


def _join_groups(groups: Iterator[list[str]]) -> list[str]:
    texts = ("\n".join(group).strip("\n") for group in groups)
    return [text for text in texts if text.strip()]
