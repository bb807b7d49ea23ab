"""A text in pieces is masked as it would be in one."""

from __future__ import annotations

import re
from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flowengine.core.masking.folded_text import fold_text
from flowengine.core.masking.masker import DEFAULT, HELD, MaskedStream, Masker
from flowengine.core.masking.patterns import MAX_PRIVATE_KEY, MAY_HOLD, Pattern
from tests.bench.masking import lines

MASKER = Masker(key=b"tests")
TEXTS = [line.text for line in lines()]
PIECES = [
    *TEXTS,
    *(
        "call ",
        "number is ",
        "Api key: ",
        "api ",
        "key",
        ": ",
        "=",
        "token ",
        "password",
        " bearer ",
        "version ",
        "1.2.3.4",
    ),
    *(
        "090",
        "-",
        "1234",
        "5678",
        "4111 1111 ",
        "1111 1111",
        "+81 ",
        "(415) ",
        "555-0132",
        "ada",
        "@",
        "example.com",
        "。",
        "は",
    ),
    *(
        "電話",
        "パスワード",
        "ー",
        "－",
        "１２３",
        "\n",
        " ",
        "a",
        "1",
        ",",
        "sk-",
        "eyJ",
        ".",
        "-----BEGIN ",
        "PRIVATE KEY-----",
    ),
    *("-----END PRIVATE KEY-----", "\nQUJD\n", "::", "db8", "\u3000", "é"),
    *("%2", "0", "\\x2", "&#3", "2;", "\u200b"),
]


def in_pieces(text: str, cuts: list[int]) -> str:
    stream = MaskedStream(MASKER)
    places = [0, *sorted(cut for cut in cuts if cut < len(text)), len(text)]
    parts = [stream.feed(text[start:end]) for start, end in pairwise(places)]
    return "".join([*parts, stream.close()])


@pytest.mark.parametrize("size", [1, 2, 7])
def test_each_line_comes_out_the_same_in_pieces_of_any_size(size: int) -> None:
    for text in TEXTS:
        assert in_pieces(text, list(range(0, len(text), size))) == MASKER.mask(text)


@settings(deadline=None, max_examples=300)
@given(st.lists(st.sampled_from(PIECES), max_size=12), st.lists(st.integers(0, 400), max_size=12))
def test_a_text_comes_out_the_same_wherever_it_is_split(pieces: list[str], cuts: list[int]) -> None:
    text = "".join(pieces)
    assert in_pieces(text, cuts) == MASKER.mask(text)


@settings(deadline=None, max_examples=200)
@given(st.text(alphabet="01a@.-:= +(は電話密码ー\n,eyJsk", max_size=60))
def test_any_text_comes_out_the_same_character_by_character(text: str) -> None:
    assert in_pieces(text, list(range(len(text)))) == MASKER.mask(text)


def test_plain_words_are_not_held_back() -> None:
    stream = MaskedStream(MASKER)
    assert stream.feed("All is well, and nothing") == "All is well, and "
    assert stream.feed("を待つ文章") == "nothingを待つ文章"


def test_a_private_key_is_held_back_until_it_ends() -> None:
    stream = MaskedStream(MASKER)
    assert stream.feed("key:\n-----BEGIN PRIVATE KEY-----\nQUJD\n") == "key:\n"
    assert stream.feed("REVG\nR0hJ\n") == ""
    assert stream.feed("-----END PRIVATE KEY-----\nbye\n").startswith("<PRIVATE_KEY:")
    assert stream.close() == ""


def test_a_run_without_a_break_is_cut_in_the_end() -> None:
    stream = MaskedStream(MASKER)
    assert stream.feed("A" * HELD) == ""
    assert len(stream.feed("A")) == HELD + 1


def test_a_private_key_without_an_end_is_waited_for_no_longer_than_one_can_be() -> None:
    begun = "-----BEGIN PRIVATE KEY-----\n".ljust(2 * MAX_PRIVATE_KEY - 1, "!") + "\n"
    assert MaskedStream(MASKER).feed(begun) == ""
    assert MaskedStream(MASKER).feed(begun + "\n") != ""


def test_a_masker_with_foreign_recognizers_cuts_at_the_ends_of_lines() -> None:
    stream = MaskedStream(Masker([*DEFAULT, Pattern("NAME", re.compile("ada lovelace"))]))
    assert stream.feed("hello, I am ada ") == ""
    assert stream.feed("lovelace\nand ").startswith("hello, I am <NAME:")


@settings(deadline=None, max_examples=300)
@given(st.lists(st.sampled_from(PIECES), max_size=8))
def test_nothing_is_found_where_nothing_stands_that_a_value_needs(pieces: list[str]) -> None:
    text = fold_text("".join(pieces)).text
    assert MAY_HOLD.search(text) or not any(list(each.find(text)) for each in DEFAULT)


KEYISH = Pattern("KEY", re.compile("(?:sk|pk)-[a-z0-9-]{3,40}"), lambda found: "7" in found[0])


@settings(deadline=None, max_examples=300)
@given(st.lists(st.sampled_from(["sk-", "pk-", "7", "a", " ", "abc-" * 12, "b" * 1_200]), max_size=12))
def test_a_pattern_with_a_mark_finds_what_it_finds_without(pieces: list[str]) -> None:
    text = "".join(pieces)
    assert list(replace(KEYISH, mark=re.compile("7")).find(text)) == list(KEYISH.find(text))


def test_what_has_no_mark_is_not_read_again_and_again() -> None:
    checked: list[re.Match[str]] = []
    pattern = Pattern("KEY", KEYISH.regex, lambda found: bool(checked.append(found)), re.compile("7"))
    assert list(pattern.find("sk-" * 1_000 + " 7")) == []
    assert checked == []
