from __future__ import annotations

import pytest

from flowengine.models.offline.decisions import coverage, language_of, rank, sentences, terms


@pytest.mark.parametrize(
    ("text", "language"),
    [("Tea", "en"), ("", "en"), ("緑茶", "zh"), ("緑茶を", "ja"), ("ティー", "ja"), ("绿茶 tea", "zh")],
)
def test_the_language_is_read_from_the_script(text: str, language: str) -> None:
    assert language_of(text) == language


def test_sentences_end_at_marks_of_all_three_languages_and_at_lines() -> None:
    text = "One. Two!  Three?\n- four\n五。六！七？e.g. 3.5 stays"
    assert sentences(text) == ["One.", "Two!", "Three?", "four", "五。", "六！", "七？", "e.g.", "3.5 stays"]


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("Improve it", "an improvement"),
        ("TEAS", "tea"),
        ("ＡＢＣ１２", "abc12"),
        ("緑茶の歴史", "歴史を学ぶ"),
        ("历史", "茶的历史"),
    ],
)
def test_words_that_belong_together_share_a_term(one: str, other: str) -> None:
    assert terms(one).keys() & terms(other).keys()


def test_grammar_alone_is_no_term() -> None:
    assert not terms("the and which")
    assert not terms("ですます")


def test_the_nearest_text_comes_first_and_equals_keep_their_order() -> None:
    texts = ["Water is cold.", "Milk is white.", "Green tea is brewed at 80 degrees."]
    assert [text for _, text in rank("How is green tea brewed?", texts)] == [texts[2], texts[0], texts[1]]


def test_coverage_is_the_share_that_is_held() -> None:
    assert coverage(["a", "b"], {"a": "a"}) == 0.5
    assert coverage([], {"a": "a"}) == 0.0
