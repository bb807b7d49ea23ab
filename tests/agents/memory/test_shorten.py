"""Shortening by the count of tokens."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flowengine.agents.memory import open_database
from flowengine.agents.memory.open_database import shortened
from flowengine.models.tokens import count_tokens

NOTICE = "（長さの上限に達したため、以下は省略されています。）"

TEXTS = {
    "ja": "田中さんは営業部に異動しました。\n新しい事務所は大阪です。" * 40,
    "zh": "王先生调到了销售部。新的办公室在上海！" * 40,
    "en": "Tanaka moved to sales. The new office is in Osaka.\n" * 40,
}


@pytest.mark.parametrize("language", TEXTS)
@pytest.mark.parametrize("limit", [40, 100, 333])
def test_what_is_kept_fits_ends_with_a_sentence_and_says_that_it_was_cut(language: str, limit: int):
    text = TEXTS[language]
    kept = shortened(text, limit, NOTICE)
    assert count_tokens(kept) <= limit
    body, line, notice = kept.rpartition("\n")
    assert (line, notice) == ("\n", NOTICE)
    assert text.startswith(body)
    assert body[-1] in ".。！"
    assert count_tokens(kept) > limit - 25, "no more than a sentence's worth of room is left"


def test_a_text_within_its_limit_stays_as_it_is():
    text = TEXTS["ja"]
    assert shortened(text, count_tokens(text), NOTICE) == text
    assert shortened("", 1, NOTICE) == ""


def test_one_long_sentence_is_cut_inside():
    kept = shortened("あ" * 500, 60, NOTICE)
    assert kept.endswith(f"あ\n{NOTICE}")
    assert count_tokens(kept) <= 60


def test_where_the_notice_takes_all_the_room_it_is_left_out():
    kept = shortened(TEXTS["en"], 5, NOTICE)
    assert kept
    assert TEXTS["en"].startswith(kept)
    assert count_tokens(kept) <= 5


def test_of_a_very_long_text_the_beginning_alone_is_counted(monkeypatch: pytest.MonkeyPatch):
    counted: list[int] = []

    def count(text: str, model: str | None = None) -> int:
        counted.append(len(text))
        return count_tokens(text, model)

    monkeypatch.setattr(open_database, "count_tokens", count)
    assert shortened(TEXTS["en"] * 20, 40, "(cut)").endswith(".\n(cut)")
    assert max(counted) < 40 * 200 + 10


@given(st.text(max_size=200), st.integers(1, 40))
@settings(deadline=None, max_examples=150)
def test_no_text_whatever_exceeds_its_limit(text: str, limit: int):
    kept = shortened(text, limit, "(cut)")
    assert kept == text or count_tokens(kept) <= limit
    assert kept == text or count_tokens(text) > limit
