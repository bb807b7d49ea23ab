r"""Tells two texts apart word by word, in time that grows with their length and not with its square.

Pure. Lines are matched first, then the words of lines that changed; both by what occurs once on either side, and by
comparing everything with everything only where little is left. What is found is exact: without the pieces
that were added the text is the old one, without those that were removed it is the new one.

    >>> [tuple(each) for each in diff_words("Be short.", "Be very short.")]
    [('same', 'Be '), ('added', 'very '), ('same', 'short.')]
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from difflib import SequenceMatcher
from typing import Final, Literal, NamedTuple

_WORD: Final = re.compile(r"[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]|\w+|\s+|.", re.DOTALL)
"""A word, a gap, or a sign; a sign of a script without gaps by itself."""
_DEEPEST: Final = 12
"""How often a part is cut at what occurs once on both sides."""
_MOST_PAIRS: Final = 20_000
"""Pairs of words that are compared, at most, in two parts without anything that occurs once on both sides."""
_MOST_WORDS: Final = 20_000
"""Words of a change that are told apart; where there are more, its lines are."""
_LEAST_ALIKE: Final = 0.2
"""The share of a change that has to have stayed for its words to be told apart: below, it could not be read."""

Kind = Literal["same", "removed", "added", "hidden"]


class Piece(NamedTuple):
    """A stretch of text that is in both, in the old one, or in the new one."""

    kind: Kind
    """`hidden`: the text says what was left out (`shorten_pieces`)."""
    text: str


def diff_words(before: str, after: str) -> list[Piece]:
    """The pieces of both texts in their order; where one was replaced, the old one stands before the new one."""
    old, new = before.splitlines(keepends=True), after.splitlines(keepends=True)
    pieces: list[Piece] = []
    for is_same, old_part, new_part in _match(old, new):
        if is_same:
            pieces.append(Piece("same", "".join(old_part)))
        else:
            pieces += _diff_change("".join(old_part), "".join(new_part))
    return list(_join_neighbours(pieces))


def count_words(pieces: Iterable[Piece]) -> tuple[int, int]:
    """Counts the removed and the added words.

    >>> count_words(diff_words("one two three", "one 2 three four"))
    (1, 2)
    """
    counts: Counter[str] = Counter()
    for kind, text in pieces:
        if kind in ("removed", "added"):
            counts[kind] += sum(each[0].isalnum() or each[0] == "_" for each in _WORD.findall(text))
    return counts["removed"], counts["added"]


def shorten_pieces(pieces: Sequence[Piece], *, lines: int = 2, most: int = 20_000) -> list[Piece]:
    r"""The pieces with what stayed cut down to so many lines before and after each change, and with `most` characters
    of each change; what was left out is counted in pieces of their own.

    >>> [each.text for each in shorten_pieces(diff_words("a\nb\nc\nd\n1", "a\nb\nc\nd\n2"), lines=1)]
    ['… 3 equal lines\n', 'd\n', '1', '2']
    """
    shortened: list[Piece] = []
    for number, piece in enumerate(pieces):
        if piece.kind == "same":
            # The line in which a change begins or ends is one of the change's own.
            head = lines + (not pieces[number - 1].text.endswith("\n")) if number else 0
            tail = lines + (not piece.text.endswith("\n")) if number < len(pieces) - 1 else 0
            shortened += _shorten_same(piece, head, tail)
        elif len(piece.text) > most:
            hidden = Piece("hidden", f"… {len(piece.text) - most:,} more characters {piece.kind}\n")
            shortened += [Piece(piece.kind, piece.text[:most]), hidden]
        else:
            shortened.append(piece)
    return shortened


def _shorten_same(piece: Piece, head: int, tail: int) -> list[Piece]:
    lines = piece.text.splitlines(keepends=True)
    hidden = len(lines) - head - tail
    if hidden < 2:
        return [piece]
    parts = [
        Piece("same", "".join(lines[:head])),
        Piece("hidden", f"… {hidden:,} equal lines\n"),
        Piece("same", "".join(lines[head + hidden :])),
    ]
    return [each for each in parts if each.text]


def _diff_change(before: str, after: str) -> Iterator[Piece]:
    """Shows a change word by word if enough of the text stayed the same."""
    old, new = _WORD.findall(before), _WORD.findall(after)
    if not old or not new or len(old) + len(new) > _MOST_WORDS:
        yield from (Piece("removed", before), Piece("added", after))
        return
    parts = list(_absorb(_match(old, new)))
    stayed = sum(len("".join(part)) for is_same, part, _ in parts if is_same)
    if stayed < _LEAST_ALIKE * min(len(before), len(after)):
        yield from (Piece("removed", before), Piece("added", after))
        return
    for is_same, old_part, new_part in parts:
        if is_same:
            yield Piece("same", "".join(old_part))
        else:
            yield from (Piece("removed", "".join(old_part)), Piece("added", "".join(new_part)))


_Part = tuple[bool, Sequence[str], Sequence[str]]
"""Whether both sides are the same, and both sides."""


def _absorb(parts: Iterable[_Part]) -> Iterator[_Part]:
    """A gap or a sign that stayed between two changes is a part of one change: people read phrases."""
    absorbed: list[_Part] = []
    for is_same, old, new in parts:
        if (
            not is_same
            and len(absorbed) > 1
            and not absorbed[-2][0]
            and len(absorbed[-1][1]) <= 2
            and not any(each[0].isalnum() for each in absorbed[-1][1])
        ):
            between, before = absorbed.pop(), absorbed.pop()
            absorbed.append((False, [*before[1], *between[1], *old], [*before[2], *between[2], *new]))
        else:
            absorbed.append((is_same, old, new))
    return iter(absorbed)


def _join_neighbours(pieces: Iterable[Piece]) -> Iterator[Piece]:
    """Pieces without those that are empty, and with neighbours of one kind as one; of a change the old text first."""
    pending: dict[Kind, str] = {}
    for kind, text in pieces:
        if not text:
            continue
        if pending and (kind == "same") != ("same" in pending):
            yield from (Piece(each, pending[each]) for each in ("same", "removed", "added") if each in pending)
            pending = {}
        pending[kind] = pending.get(kind, "") + text
    yield from (Piece(each, pending[each]) for each in ("same", "removed", "added") if each in pending)


def _match(old: Sequence[str], new: Sequence[str]) -> Iterator[_Part]:
    """Both sequences cut into parts that are the same and parts that are not."""
    done_old = done_new = 0
    for old_at, new_at, size in [*_find_blocks(old, new), (len(old), len(new), 0)]:
        if done_old < old_at or done_new < new_at:
            yield False, old[done_old:old_at], new[done_new:new_at]
        if size:
            yield True, old[old_at : old_at + size], new[new_at : new_at + size]
        done_old, done_new = old_at + size, new_at + size


def _find_blocks(old: Sequence[str], new: Sequence[str]) -> list[tuple[int, int, int]]:
    """Finds equal blocks on both sides with their lengths, in order."""
    blocks: list[tuple[int, int, int]] = []
    todo = [(0, len(old), 0, len(new), 0)]
    while todo:
        low, high, new_low, new_high, depth = todo.pop()
        begin, end = low, high
        while begin < high and new_low < new_high and old[begin] == new[new_low]:
            begin, new_low = begin + 1, new_low + 1
        while end > begin and new_high > new_low and old[end - 1] == new[new_high - 1]:
            end, new_high = end - 1, new_high - 1
        blocks += [(low, new_low - (begin - low), begin - low), (end, new_high, high - end)]
        if begin == end or new_low == new_high:
            continue
        anchors = _find_anchors(old[begin:end], new[new_low:new_high]) if depth < _DEEPEST else []
        if anchors:
            ends = [*((begin + i, new_low + j) for i, j in anchors), (end, new_high)]
            starts = [(begin, new_low), *ends[:-1]]
            todo += [(i, to_i, j, to_j, depth + 1) for (i, j), (to_i, to_j) in zip(starts, ends, strict=True)]
        elif (end - begin) * (new_high - new_low) <= _MOST_PAIRS:
            pairs = SequenceMatcher(str.isspace, old[begin:end], new[new_low:new_high], autojunk=False)
            blocks += [(begin + i, new_low + j, size) for i, j, size in pairs.get_matching_blocks()]
    return sorted(each for each in blocks if each[2])


def _find_anchors(old: Sequence[str], new: Sequence[str]) -> list[tuple[int, int]]:
    """Places of what occurs once on both sides and has something to it, the most of them that are in one order."""
    counts, new_counts = Counter(old), Counter(new)
    places = {each: number for number, each in enumerate(new)}
    pairs = [
        (number, places[each])
        for number, each in enumerate(old)
        if counts[each] == 1 and new_counts[each] == 1 and any(map(str.isalnum, each))
    ]
    tops: list[int] = []  # For each length, the place in `new` where the line of that length ends soonest.
    ends: list[int] = []  # Likewise, the number of its last pair.
    before: list[int] = []
    for number, (_, place) in enumerate(pairs):
        at = bisect_left(tops, place)
        before.append(ends[at - 1] if at else -1)
        tops[at : at + 1], ends[at : at + 1] = [place], [number]
    line: list[tuple[int, int]] = []
    number = ends[-1] if ends else -1
    while number >= 0:
        line.append(pairs[number])
        number = before[number]
    return line[::-1]
