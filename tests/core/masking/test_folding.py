"""Letters and digits are read as patterns know them, and lead back to where they stand in the text."""

from __future__ import annotations

import sys
import unicodedata

import pytest

from flowengine.core.masking.folded_text import Folded, fold, fold_text


def test_digits_of_all_scripts_are_digits() -> None:
    digits = [chr(code) for code in range(sys.maxunicode + 1) if unicodedata.category(chr(code)) == "Nd"]
    assert len(digits) > 600
    assert fold("".join(digits)) == "".join(str(unicodedata.digit(each)) for each in digits)


def test_full_width_forms_and_spaces_are_those_of_ascii() -> None:
    wide = "".join(chr(code) for code in range(0xFF01, 0xFF5F))
    assert fold(wide) == "".join(map(chr, range(0x21, 0x7F)))
    assert fold("a\u3000b\u00a0c") == "a b c"


def test_dashes_of_all_lengths_are_one() -> None:
    assert fold("\u2010\u2011\u2012\u2013\u2014\u2015\u2212\ufe63") == "-" * 8
    assert fold("\u200f\u2016") == "\u200f\u2016"


@pytest.mark.parametrize("text", ["ab", "caf\u00e9", "100% of it", "a\\b", "a &# b"])
def test_where_nothing_is_left_out_each_letter_keeps_its_place(text: str) -> None:
    assert fold_text(text).places is None


def test_numbers_that_are_no_digits_stay() -> None:
    assert fold("\u4e09\u2162\u00bd\u00b2") == "\u4e09\u2162\u00bd\u00b2"


def test_escapes_of_letters_of_ascii_are_those_letters_and_others_stay() -> None:
    assert fold_text(r"caf\u00e9 ada%40example.jp \x07").text == r"caf\u00e9 ada@example.jp \x07"


@pytest.mark.parametrize(
    ("text", "meant", "start", "end"),
    [
        ("ab", "ab", [0, 1], [0, 1, 2]),
        ("a\u200bb", "ab", [0, 2], [0, 1, 3]),
        ("%41b", "Ab", [0, 3], [0, 3, 4]),
    ],
)
def test_each_letter_leads_back_to_its_place(text: str, meant: str, start: list[int], end: list[int]) -> None:
    read = fold_text(text)
    assert read.text == meant
    assert [read.start(at) for at in range(len(meant))] == start
    assert [read.end(at) for at in range(len(meant) + 1)] == end


def test_a_folded_text_does_not_change() -> None:
    with pytest.raises(AttributeError):
        Folded("a").text = "b"  # type: ignore[misc] - that is what is tried
