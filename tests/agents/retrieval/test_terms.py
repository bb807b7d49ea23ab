"""Terms: every script is found again, identifiers by their parts, endings of English by their stem."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flowengine.agents.retrieval.terms import VERSION, asked_terms, stem, terms, to_index_text, trailing


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("getHTTPResponse_code", ["get", "http", "response", "code", "gethttpresponsecode"]),
        ("__init__", ["init"]),
        ("sha256", ["sha", "256", "sha256"]),
        ("______", []),
        ("東京都", ["東京", "京都"]),
        ("ﾊﾟｿｺﾝ", ["パソ", "ソコ", "コン"]),
        ("サーバー・エラー", ["サー", "ーバ", "バー", "エラ", "ラー"]),
        ("Python入門", ["python", "入門"]),
        ("회의는 내일", ["회의", "의는", "내일"]),
        ("हिन्दी भाषा", ["हिन्दी", "भाषा"]),
        ("Straße CAFÉ", ["strasse", "café"]),
        ("时间_戳", ["时间", "戳"]),
        ("１２３ abc", ["123", "abc"]),
        ("🎉 !?", ["🎉"]),
    ],
)
def test_the_terms_of_a_text(text: str, expected: list[str]) -> None:
    assert terms(text) == expected


def test_composed_and_decomposed_characters_are_the_same() -> None:
    assert terms("プログラム") == terms("フ\u309aロク\u3099ラム")


@pytest.mark.parametrize(
    "words",
    [
        "order orders ordered ordering",
        "cache caches cached caching",
        "query queries queried",
        "stop stops stopped stopping",
        "match matches matched matching",
        "file files",
        "box boxes boxed",
        "parse parses parsed parsing",
        "call calls called calling",
    ],
)
def test_forms_of_one_word_have_one_stem(words: str) -> None:
    assert len({stem(word) for word in words.split()}) == 1


@pytest.mark.parametrize("word", ["class", "status", "this", "string", "red", "bring", "bed", "need", "analysis"])
def test_words_that_only_look_inflected_stay(word: str) -> None:
    assert stem(word) == word


def test_a_query_is_its_subject() -> None:
    assert asked_terms("How do I cancel the orders of a customer?") == ["cancel", "order", "customer"]
    assert asked_terms("お茶の入れ方") == ["お茶", "茶の", "の入", "入れ", "れ方"]


def test_a_query_of_common_words_alone_keeps_them() -> None:
    assert asked_terms("to be or not to be") == ["to", "be", "or", "not"]


@given(st.text())
def test_any_text_has_terms_without_spaces_or_quotes(text: str) -> None:
    for term in (*terms(text), *trailing(text)):
        assert term
        assert not set(' "*:^-()\t\n') & set(term)


@given(st.text(alphabet="あいう茶緑水道東京都한국어", min_size=1))
def test_every_character_of_a_run_begins_a_term(text: str) -> None:
    begins = {term[0] for term in (*terms(text), *trailing(text))}
    assert begins == set(text)


def test_what_is_indexed_changes_with_the_version_only() -> None:
    """An index is written with these terms, and its entries are taken out by them: raise VERSION with any change."""
    text = "Parsed HTTPHeader max_files 緑茶を飲む हिन्दी café2 回 tea🍵👩🏽‍🔬❤️🇯🇵🇫🇷"
    assert (VERSION, to_index_text(text)) == (
        2,
        "pars http header httpheader max file maxfil 緑茶 茶を を飲 飲む हिन्दी café2 回 tea 🍵 👩 🔬 ❤ 🇯🇵 🇫🇷 む",
    )
