"""Chooses which fragments enter a prompt: a token budget, kept by real counts where the count decides. It never waits.

It knows fragments, their ranks and how many tokens they have. It knows no provider, no message and no model:
how many tokens the whole has is measured by a function that it is given.

1. Pinned fragments are never touched. Where they alone exceed the budget, that is an error.
2. What has a higher `priority` is taken first; of equal ones, what comes first.
3. Fragments of one `group` stay or go together.
4. The first that does not fit is shortened, where it stands alone; otherwise it is dropped. Those that share their room
   with others of their rank keep a part each.
5. Of one source nothing survives that ranks below what was shortened or dropped: a history has no holes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, Literal, NamedTuple

from flowengine.agents.context.provider import join_fragments
from flowengine.core import Fragment, Receipt
from flowengine.errors import RunError
from flowengine.models import count_tokens, estimate_tokens, shorten_text

_JOINT_TOKENS: Final = 2
"""Tokens that a fragment may cost beside its own: what stands between it and the next one."""
_MIN_TOKENS: Final = 16
"""Tokens below which a beginning says too little to be kept."""


class BudgetError(RunError):
    """The required parts of a prompt exceed its budget; `least` is the minimum that they need."""

    def __init__(self, message: str, least: int) -> None:
        super().__init__(message)
        self.least = least


class PackedEntry(NamedTuple):
    """One fragment, and what became of it."""

    fragment: Fragment
    """The fragment as it is now, with its tokens."""
    state: Literal["kept", "shortened", "dropped"] = "kept"
    why: str = ""
    """Why it was shortened or dropped."""
    was: int | None = None
    """Tokens that it had before it was shortened."""
    shares: bool = False
    """Whether it gives way to others of its rank and source, so that each of them keeps a part."""


class Packed(NamedTuple):
    """The packer's decision."""

    entries: tuple[PackedEntry, ...]
    """The entries in the order of the fragments that were given."""
    tokens: int
    """Tokens of the whole prompt."""
    budget: int | None
    is_estimated: bool = False
    """Whether the numbers of tokens are estimates, since all of it fits whatever they are."""

    @property
    def kept(self) -> list[Fragment]:
        """The fragments that enter the prompt, in order."""
        return _list_present(self.entries)


Count = Callable[[str], int]
Measure = Callable[[Sequence[PackedEntry], Count], int]
"""Tokens of the prompt that entries make, those that are dropped left out, by a count of the tokens of a text."""


def pack(
    entries: Iterable[PackedEntry | Fragment],
    budget: int | None,
    *,
    measure: Measure | None = None,
    count: Count = count_tokens,
) -> Packed:
    """Choose what stays. `measure` is by default the count of all texts, joined by blank lines.

    Nothing is counted where all fits in any case: a text has at most as many tokens as bytes. What was dropped before
    stays so. `BudgetError` lists the pinned fragments that do not fit.

    >>> turns = [Fragment(f"Turn {number} was said.", "conversation", priority=number) for number in range(9)]
    >>> [each.text for each in pack(turns, 20).kept]
    ['Turn 7 was said.', 'Turn 8 was said.']
    """
    measured: Measure = measure or _count_joined
    items = [each if isinstance(each, PackedEntry) else PackedEntry(each) for each in entries]
    if budget is None or measured(items, count_bytes) <= budget:
        about = [_count_entry(each, estimate_tokens) for each in items]
        return Packed(tuple(about), measured(about, estimate_tokens), budget, is_estimated=True)
    counted = [_count_entry(each, count) for each in items]
    whole = measured(counted, count)
    if whole <= budget:
        return Packed(tuple(counted), whole, budget)
    units = _group_units(counted)
    least = measured(
        [each._replace(state="dropped") if number in units.loose else each for number, each in enumerate(counted)],
        count,
    )
    if least > budget:
        raise BudgetError(
            _explain_too_small(budget, least, [each for n, each in enumerate(counted) if n not in units.loose]), least
        )
    room = budget - least
    while True:
        # Joined texts may have more tokens than their parts, so the whole is measured, and room taken away.
        packed = _fill_room(counted, units, room, count)
        tokens = measured(packed, count)
        if tokens <= budget:
            return Packed(tuple(packed), tokens, budget)
        room -= tokens - budget


def receipt_of(packed: Packed) -> Receipt:
    """The record of what entered a prompt."""
    return Receipt([_to_row(each, packed.is_estimated) for each in packed.entries], packed.budget)


def _to_row(entry: PackedEntry, is_estimated: bool) -> dict[str, Any]:
    fragment = entry.fragment
    row: dict[str, Any] = {"source": fragment.source, "tokens": fragment.tokens, "state": entry.state}
    further = {"label": fragment.label, "why": entry.why, "was": entry.was, "pinned": fragment.pinned}
    further["estimated"] = is_estimated
    return row | {name: value for name, value in further.items() if value}


# --- The choice


class _Units(NamedTuple):
    ranked: list[list[int]]
    """Entries that stay or go together, by number, in the order in which they are taken."""
    loose: frozenset[int]
    """Those that may go."""


def _group_units(entries: Sequence[PackedEntry]) -> _Units:
    groups: dict[str | int, list[int]] = {}
    for number, (fragment, state, *_) in enumerate(entries):
        if state != "dropped":
            groups.setdefault(fragment.group or number, []).append(number)
    loose = [unit for unit in groups.values() if not any(entries[each].fragment.pinned for each in unit)]
    ranked = sorted(loose, key=lambda unit: -_rank_unit(entries, unit))
    return _Units(ranked, frozenset(number for unit in loose for number in unit))


def _rank_unit(entries: Sequence[PackedEntry], unit: Iterable[int]) -> int:
    return max(entries[each].fragment.priority for each in unit)


def _fill_room(
    entries: Sequence[PackedEntry], units: _Units, room: int, count: Callable[[str], int]
) -> list[PackedEntry]:
    """The entries once the room is taken up."""
    packed, closed = list(entries), dict[str, int]()
    shares: dict[int, int] = {}
    """Entry → the room that it has beside others of its rank."""
    for unit in units.ranked:
        rank, sources = _rank_unit(entries, unit), {entries[each].fragment.source for each in unit}
        over = next((source for source in sources if closed.get(source, rank) > rank), None)
        cost = sum(_tokens_of(entries[each]) + _JOINT_TOKENS for each in unit)
        if entries[unit[0]].shares and unit[0] not in shares:
            shares |= _share_room(entries, _list_peers(entries, units, unit[0]), room)
        if over is None and cost <= shares.get(unit[0], room):
            room -= cost
            continue
        why = f"{cost - _JOINT_TOKENS:,} tokens, and room for {max(room - _JOINT_TOKENS, 0):,}"
        cut = (
            None
            if over is not None or len(unit) > 1
            else _shorten_entry(entries[unit[0]], shares.get(unit[0], room) - _JOINT_TOKENS, count, why)
        )
        if cut is not None:
            packed[unit[0]] = cut
            room -= _tokens_of(cut) + _JOINT_TOKENS
        else:
            reason = why if over is None else f"it ranks below what had no room of '{over}'"
            for each in unit:
                packed[each] = entries[each]._replace(state="dropped", why=reason)
        closed.update((source, max(rank, closed.get(source, rank))) for source in sources)
    return packed


def _list_peers(entries: Sequence[PackedEntry], units: _Units, number: int) -> list[int]:
    """The entries that share their room with this one, itself included."""
    own = entries[number].fragment
    alike = ((each, entries[each].fragment) for unit in units.ranked if len(unit) == 1 for each in unit)
    return [
        each
        for each, fragment in alike
        if entries[each].shares and (fragment.source, fragment.priority) == (own.source, own.priority)
    ]


def _share_room(entries: Sequence[PackedEntry], peers: Sequence[int], room: int) -> dict[int, int]:
    """Entry → its share of the room: what the smaller ones leave is divided among the greater ones."""
    shares: dict[int, int] = {}
    for remaining, number in zip(
        range(len(peers), 0, -1), sorted(peers, key=lambda each: _tokens_of(entries[each])), strict=True
    ):
        shares[number] = min(_tokens_of(entries[number]) + _JOINT_TOKENS, room // remaining)
        room -= shares[number]
    return shares


def _shorten_entry(entry: PackedEntry, room: int, count: Callable[[str], int], why: str) -> PackedEntry | None:
    """The entry with the beginning of its text; None where that is not worth the room."""
    text = shorten_text(entry.fragment.text, room, count) if room >= _MIN_TOKENS else ""
    if not text:
        return None
    was = entry.was or entry.fragment.tokens
    return entry._replace(
        fragment=entry.fragment._replace(text=text, tokens=count(text)), state="shortened", why=why, was=was
    )


def _count_entry(entry: PackedEntry, count: Count) -> PackedEntry:
    return entry._replace(fragment=entry.fragment._replace(tokens=count(entry.fragment.text)))


def _tokens_of(entry: PackedEntry) -> int:
    return entry.fragment.tokens or 0


def count_bytes(text: str) -> int:
    """No text has more tokens."""
    return len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))


def _count_joined(entries: Sequence[PackedEntry], count: Count) -> int:
    return count(join_fragments(_list_present(entries)))


def _list_present(entries: Iterable[PackedEntry]) -> list[Fragment]:
    return sorted((each.fragment for each in entries if each.state != "dropped"), key=lambda each: each.order)


def _explain_too_small(budget: int, least: int, pinned: Iterable[PackedEntry]) -> str:
    parts = ", ".join(
        f"{each.fragment.label or each.fragment.source} {_tokens_of(each):,}"
        for each in pinned
        if each.state != "dropped"
    )
    return f"a context budget of {budget:,} tokens is too small: what must stay has {least:,} ({parts})"
