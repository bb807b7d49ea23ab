"""Tokens: stable, without the value, safe to mask again; and masking of JSON values."""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flowengine.core.masking.masker import DEFAULT, Masker
from flowengine.core.masking.patterns import FoundSpan, Pattern
from tests.bench.masking import lines


def test_one_value_has_one_token_for_as_long_as_the_masker_lives() -> None:
    masker = Masker()
    first, second = masker.mask("ada@example.com"), masker.mask("(ada@example.com)")
    assert second == f"({first})"
    assert masker.mask("bob@example.com") != first
    assert Masker().mask("ada@example.com") != first


def test_maskers_that_share_a_key_give_the_same_tokens() -> None:
    assert Masker(key=b"k").mask("ada@example.com") == Masker(key=b"k").mask("ada@example.com")


def test_a_value_in_full_width_letters_is_the_same_value() -> None:
    masker = Masker()
    assert masker.mask("０９０－１２３４－５６７８") == masker.mask("090-1234-5678")


def test_nothing_of_a_value_is_left_and_a_masked_text_stays_as_it_is() -> None:
    masker = Masker()
    for line in lines():
        masked = masker.mask(line.text)
        found = [line.text[each.start : each.end] for each in masker.spans(line.text)]
        assert not any(value in masked for value in found)
        assert masker.mask(masked) == masked


def test_json_values_are_masked_in_keys_lists_and_depths() -> None:
    masker = Masker()
    token = masker.mask("ada@example.com")
    given = {"ada@example.com": ["to ada@example.com", 1, None, {"x": ("ada@example.com",)}]}
    assert masker.value(given) == {token: [f"to {token}", 1, None, {"x": [token]}]}


def test_keys_that_become_the_same_lose_no_entry() -> None:
    masker = Masker()
    token = masker.mask("090-1234-5678")
    given = {"090-1234-5678": 1, "０９０－１２３４－５６７８": 2, f"{token} (2)": 3, token: 4, "090 1234 5678": 5}
    masked = masker.value(given)
    assert list(masked.values()) == [1, 2, 3, 4, 5]
    assert masked[token] == 4
    assert masked[f"{token} (2)"] == 3
    assert masker.value(masked) == masked


def test_a_value_that_is_nested_without_end_is_cut() -> None:
    deep: list[object] = []
    for _ in range(10_000):
        deep = [deep]
    assert "nested too deeply" in str(Masker().value(deep))


def test_a_recognizer_of_ones_own_comes_first_where_it_is_put_first() -> None:
    account = Pattern("ACCOUNT", re.compile("[0-9]{16}"))
    assert Masker([account, *DEFAULT]).mask("4111111111111111").startswith("<ACCOUNT:")
    assert Masker([*DEFAULT, account]).mask("4111111111111111").startswith("<CARD:")


def test_many_values_that_overlap_are_sorted_out() -> None:
    class Everywhere:
        def find(self, text: str) -> Iterator[FoundSpan]:
            starts = list(range(0, len(text) - 2))
            random.Random(0).shuffle(starts)
            return (FoundSpan(start, start + 2, "X") for start in starts)

    spans = Masker([Everywhere()]).spans("x" * 5_000)
    assert all(first.end <= second.start for first, second in pairwise(spans))
    assert len(spans) > 1_500


@settings(deadline=None, max_examples=200)
@given(st.text())
def test_any_text_can_be_masked_and_masked_again(text: str) -> None:
    masker = Masker(key=b"tests")
    masked = masker.mask(text)
    assert masker.mask(masked) == masked


def test_values_that_touch_are_two() -> None:
    masker = Masker([Pattern("A", re.compile("a+")), Pattern("B", re.compile("b+"))])
    assert [(each.start, each.end, each.kind) for each in masker.spans("aabba")] == [
        (0, 2, "A"),
        (2, 4, "B"),
        (4, 5, "A"),
    ]


@pytest.mark.parametrize("holder", [lambda value: {"key": value}, lambda value: [value]], ids=["maps", "lists"])
def test_values_are_masked_to_the_last_depth(holder: Callable[[Any], Any]) -> None:
    value: Any = "ada@example.jp"
    for _ in range(100):
        value = holder(value)
    assert "<MAIL:" in str(Masker().value(value))
    assert "nested too deeply" in str(Masker().value(holder(value)))
