from __future__ import annotations

import random
from collections.abc import Callable, Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flowengine.agents.context.packer import BudgetError, Packed, PackedEntry, pack, receipt_of
from flowengine.agents.context.provider import join_fragments
from flowengine.core.context import Fragment
from flowengine.models.model import estimate_tokens
from flowengine.models.tokens import count_tokens
from tests.support.histories import random_history


def words(number: int, word: str = "word") -> str:
    return " ".join([word] * number)


def states(packed: Packed) -> list[str]:
    return [each.state for each in packed.entries]


def refuse_to_count(text: str) -> int:
    raise AssertionError(f"counted {text!r}")


@pytest.mark.parametrize("budget", [None, 33])
def test_nothing_is_counted_where_all_fits_in_any_case(budget: int | None):
    texts = "Hello, world!", "今日は世界。"  # 13 and 18 bytes, and two between them.
    packed = pack([Fragment(texts[0], "a"), Fragment(texts[1], "b")], budget, count=refuse_to_count)
    assert states(packed) == ["kept", "kept"]
    assert [each.fragment.tokens for each in packed.entries] == [estimate_tokens(each) for each in texts]
    assert all(row["estimated"] for row in receipt_of(packed).fragments)


def test_what_may_not_fit_is_counted():
    packed = pack([Fragment("Hello, world!", "a"), Fragment("今日は世界。", "b")], 32)
    assert states(packed) == ["kept", "kept"]
    assert [each.fragment.tokens for each in packed.entries] == [4, 3]
    assert packed.tokens == count_tokens("Hello, world!\n\n今日は世界。")
    assert not any("estimated" in row for row in receipt_of(packed).fragments)


def test_what_fits_is_left_as_it_is():
    assert states(pack([Fragment(words(10), "a")], 10)) == ["kept"]


def test_pinned_fragments_are_never_touched():
    packed = pack([Fragment(words(30), "a"), Fragment(words(20), "rules", pinned=True)], 24)
    assert states(packed) == ["dropped", "kept"]
    assert packed.entries[1].fragment.text == words(20)


def test_a_budget_below_the_pinned_parts_is_an_error_that_lists_them():
    fragments = [
        Fragment(words(30), "system message", pinned=True),
        Fragment(words(50), "files"),
        Fragment(words(20), "skills", label="catalogue", pinned=True),
    ]
    with pytest.raises(BudgetError) as raised:
        pack(fragments, 40)
    assert str(raised.value) == (
        "a context budget of 40 tokens is too small: what must stay has 51 (system message 30, catalogue 20)"
    )
    assert raised.value.least == 51


def test_a_higher_priority_is_taken_first_and_the_order_in_the_prompt_stays():
    fragments = [
        Fragment(words(40), "low", priority=-1),
        Fragment(words(40), "high", priority=1),
        Fragment("The end.", "middle", order=-1),
    ]
    packed = pack(fragments, 50)
    assert states(packed) == ["dropped", "kept", "kept"]
    assert [each.source for each in packed.kept] == ["middle", "high"]


def test_the_first_that_does_not_fit_is_shortened_with_a_visible_mark():
    packed = pack([Fragment("Some sentence of a text. " * 50, "files", label="a.md")], 60)
    (entry,) = packed.entries
    assert entry.state == "shortened"
    assert entry.fragment.text.endswith("text. […]")
    assert packed.tokens <= 60
    assert (entry.was, entry.fragment.tokens) == (301, count_tokens(entry.fragment.text))


def test_fragments_of_one_group_stay_or_go_together():
    fragments = [
        Fragment("I call the tool.", "messages", group="call"),
        Fragment(words(100), "messages", group="call"),
        Fragment(words(10), "other"),
    ]
    assert states(pack(fragments, 60)) == ["dropped", "dropped", "kept"]
    assert states(pack(fragments, 130)) == ["kept", "kept", "kept"]


def test_a_group_with_a_pinned_member_stays_whole():
    fragments = [
        Fragment(words(20), "a", group="g"),
        Fragment("b", "a", group="g", pinned=True),
        Fragment(words(9), "c"),
    ]
    assert states(pack(fragments, 25)) == ["kept", "kept", "dropped"]


def test_a_history_has_no_holes():
    sizes = {"oldest": (5,), "long": (60, 20), "newest": (5,)}
    turns = [
        Fragment(words(size), "conversation", priority=rank, group=name)
        for rank, (name, parts) in enumerate(sizes.items())
        for size in parts
    ]
    packed = pack([*turns, Fragment(words(10), "files", priority=-5)], 34)
    assert states(packed) == ["dropped", "dropped", "dropped", "kept", "kept"]
    assert "ranks below what had no room of 'conversation'" in packed.entries[0].why


def test_what_was_dropped_before_stays_so():
    packed = pack([PackedEntry(Fragment("a", "x"), "dropped", "taken out by 'filter'"), Fragment("b", "x")], 100)
    assert states(packed) == ["dropped", "kept"]
    assert packed.tokens == 1


def test_a_receipt_says_of_every_fragment_what_became_of_it():
    fragments = [
        Fragment("Be kind.", "instructions", pinned=True),
        Fragment("A sentence. " * 40, "files", label="a.md"),
        Fragment(words(50), "conversation", priority=-1),
    ]
    receipt = receipt_of(pack(fragments, 60))
    instructions, file, turn = receipt.fragments
    assert receipt.budget == 60
    assert instructions == {"source": "instructions", "tokens": 3, "state": "kept", "pinned": True}
    assert (file["label"], file["state"], file["was"]) == ("a.md", "shortened", 121)
    assert (turn["state"], turn["tokens"]) == ("dropped", 50)
    assert "room for" in turn["why"]


# --- at the borders, with words for tokens ----------------------------------------------------------


def by_words(text: str) -> int:
    return len(text.split())


RULES = Fragment(words(10), "rules", pinned=True)
"""Beside it, a budget of N leaves room for N - 10; a fragment takes two more than it has."""


def files(number: int, priority: int = 0, group: str = "", source: str = "files") -> Fragment:
    return Fragment(words(number), source, priority=priority, group=group)


@pytest.mark.parametrize(
    ("fragments", "budget", "became"),
    [
        # What is taken costs two tokens more than it has, and leaves so much less for the next.
        ([files(20), files(30)], 32, [20, 0]),
        ([files(20), files(30)], 31, [19, 0]),
        ([files(20), files(30)], 50, [20, 16]),
        ([files(20), files(30)], 49, [20, 0]),
        # A beginning of less than 16 is no use.
        ([files(100)], 28, [16]),
        ([files(100)], 27, [0]),
        # What must stay may take everything.
        ([files(5)], 10, [0]),
        ([files(5)], 15, [5]),
        # What was shortened has its room too: nothing else gets it.
        ([files(100), files(10, source="notes")], 50, [38, 0]),
        # Of equal rank, a small one is taken though a large one before it was not; of a lower rank it is not.
        ([files(100, group="g"), files(1, group="g"), files(5)], 50, [0, 0, 5]),
        ([files(100, 1, "g"), files(1, 1, "g"), files(5)], 50, [0, 0, 0]),
        # Nor shortened, and no more so because others of its rank were dropped before.
        ([files(100, 1, "g"), files(1, 1, "g"), files(100)], 50, [0, 0, 0]),
        ([files(100, 2, "g"), files(1, 2, "g"), files(5, 1), files(5, 1)], 50, [0, 0, 0, 0]),
        ([files(100, 2, "g"), files(1, 2, "g"), files(5, 1, source="notes")], 50, [0, 0, 5]),
        # A group ranks as its first, wherever that stands.
        ([files(20), files(10, -5, "g"), files(5, 5, "g")], 32, [0, 10, 5]),
        # Fragments of one source without a group are each their own.
        ([files(20), files(20), files(20)], 54, [20, 20, 0]),
    ],
)
def test_what_becomes_of_fragments_beside_ten_tokens_of_rules(
    fragments: list[Fragment], budget: int, became: list[int]
):
    packed = pack([RULES, *fragments], budget, count=by_words)
    assert [0 if each.state == "dropped" else each.fragment.tokens for each in packed.entries[1:]] == became
    for each, before in zip(packed.entries[1:], fragments, strict=True):
        assert (each.state == "kept") == (each.state != "dropped" and each.fragment.text == before.text)
    assert packed.tokens == 10 + sum(became) <= budget


def test_the_reason_says_what_it_has_and_what_room_there_was():
    packed = pack([RULES, files(100), files(20, -1)], 27, count=by_words)
    assert [each.why for each in packed.entries] == [
        "",
        "100 tokens, and room for 15",
        "it ranks below what had no room of 'files'",
    ]
    assert pack([RULES, files(100)], 11, count=by_words).entries[1].why == "100 tokens, and room for 0"


def test_what_was_shortened_before_says_what_it_had_at_first():
    entry = PackedEntry(files(100), "shortened", "by 'compressor'", was=500)
    again = pack([RULES, entry], 40, count=by_words).entries[1]
    assert (again.state, again.was, again.fragment.tokens) == ("shortened", 500, 28)


def test_tokens_that_a_fragment_claims_are_counted_anew():
    (entry,) = pack([files(5)._replace(tokens=999)], 6, count=by_words).entries
    assert entry.fragment.tokens == 5


def test_what_was_dropped_before_takes_no_room_of_what_must_stay_and_is_not_listed():
    gone = PackedEntry(Fragment(words(30), "gone", pinned=True), "dropped", "taken out")
    assert states(pack([RULES, gone, files(50)], 12, count=by_words)) == ["kept", "dropped", "dropped"]
    with pytest.raises(BudgetError, match=r"what must stay has 10 \(rules 10\)$"):
        pack([RULES, gone, files(50)], 9, count=by_words)


def test_a_whole_that_has_more_than_its_parts_is_fitted_in_few_rounds():
    measured: list[int] = []

    def double(entries: Sequence[PackedEntry], count: Callable[[str], int]) -> int:
        measured.append(2 * sum(count(each.fragment.text) for each in entries if each.state != "dropped"))
        return measured[-1]

    packed = pack([RULES, files(200)], 300, measure=double, count=by_words)
    assert states(packed) == ["kept", "shortened"]
    assert packed.tokens == measured[-1] <= 300
    assert len(measured) == 6  # The first by bytes.


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**32))
def test_a_random_history_is_packed_within_its_budget(seed: int):
    fragments, budget = random_history(random.Random(seed))
    try:
        packed = pack(fragments, budget)
    except BudgetError:
        pinned = [each for each in fragments if each.pinned]
        assert count_tokens(join_fragments(sorted(pinned, key=lambda each: each.order))) > budget
        return
    assert count_tokens(join_fragments(packed.kept)) <= budget
    if not packed.is_estimated:
        assert packed.tokens == count_tokens(join_fragments(packed.kept))
    for before, entry in zip(fragments, packed.entries, strict=True):
        assert entry.state == "kept" or not before.pinned
        assert entry.fragment.text == before.text or entry.state != "kept"
    for group in {each.group for each in fragments} - {""}:
        assert len({each.state for each in packed.entries if each.fragment.group == group}) == 1


@settings(max_examples=40, deadline=None)
@given(st.lists(st.text(max_size=30), max_size=8), st.integers(0, 40))
def test_texts_of_any_characters_are_packed_within_the_budget(texts: list[str], budget: int):
    packed = pack([Fragment(each, f"s{number}") for number, each in enumerate(texts)], budget)
    assert count_tokens(join_fragments(packed.kept)) <= budget


@settings(deadline=None, max_examples=150)
@given(st.lists(st.integers(1, 120), min_size=1, max_size=6), st.integers(0, 500))
def test_those_that_share_their_room_each_keep_a_part(sizes: list[int], budget: int) -> None:
    entries = [
        PackedEntry(Fragment(" ".join(["word"] * size), "tools", priority=1, label=str(n)), shares=True)
        for n, size in enumerate(sizes)
    ]
    packed = pack(entries, budget, count=lambda text: len(text.split()))
    left = [len(each.fragment.text.split()) if each.state != "dropped" else 0 for each in packed.entries]
    assert sum(left) <= budget
    share = budget // len(sizes) - 2  # Less what stands between two of them.
    for size, kept in zip(sizes, left, strict=True):
        assert kept >= min(size, share) - 1 or share < 16, (sizes, left)
    great = [kept for size, kept in zip(sizes, left, strict=True) if kept < size]
    assert max(great, default=0) - min(great, default=0) <= 2 or share < 16
