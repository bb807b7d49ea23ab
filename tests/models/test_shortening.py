from __future__ import annotations

from typing import Any

import pytest
import regex
from hypothesis import example, given, settings
from hypothesis import strategies as st

from flowengine.models.shortening import MARK, shorten_text
from flowengine.models.tokens import count_tokens


def test_a_text_that_fits_is_left_alone():
    assert shorten_text("日本語の文章です。", 20, count_tokens) == "日本語の文章です。"


@pytest.mark.parametrize(
    ("text", "cut"),
    [
        ("One line.\nAnother line here.\nA third line of it.\n" * 3, "Another line here.\n[…]"),
        ("最初の文です。次の文です。最後の文です。" * 5, "。 […]"),
        ("Is it so? It is. " * 20, ". […]"),
        ("단어 " * 100, "단어 […]"),
        ("def f(x):\n    return x\n" * 20, "):\n[…]"),
    ],
)
def test_it_is_cut_where_a_reader_would_cut(text: str, cut: str):
    result = shorten_text(text, 24, count_tokens)
    assert result.endswith(cut)
    assert count_tokens(result) <= 24


def test_nothing_is_left_where_not_even_the_mark_fits():
    assert shorten_text("word " * 50, 1, count_tokens) == ""
    assert shorten_text("word " * 50, 0, count_tokens) == ""


def test_a_flag_and_a_family_are_not_cut_in_two():
    for sign in ("🇯🇵", "👨\u200d👩\u200d👧", "e\u0301\u0323"):
        kept = shorten_text(sign * 60, 20, count_tokens).removesuffix(MARK).strip()
        assert kept
        assert kept == sign * (len(kept) // len(sign))


def graphemes(text: str) -> list[Any]:
    return regex.findall(r"\X", text)


@settings(max_examples=60, deadline=None)
@example("1\n:1:1。\u03011", 8)  # An accent on the end of a sentence belongs to it.
@example("1\n:1:1.\u200d 1 1", 9)
@given(
    st.text(alphabet=st.sampled_from('ab .\n。、日本語한글é\u0301👩🇯🇵\u200d{}[]",:1'), max_size=400),
    st.integers(0, 60),
)
def test_a_shortened_text_never_has_more_tokens_and_ends_between_characters(text: str, most: int):
    result = shorten_text(text, most, count_tokens)
    assert count_tokens(result) <= most
    if result not in ("", text):
        assert result.endswith(MARK)
        kept = result.removesuffix(MARK).rstrip()
        assert text.startswith(kept)
        assert "".join(graphemes(text)[: len(graphemes(kept))]).rstrip() == kept
