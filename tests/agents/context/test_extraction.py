"""The lines of a text that matter."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from flowengine.agents.context.compressor.extraction import ends_of, extract_sentences
from flowengine.models.shortening import MARK
from flowengine.models.tokens import count_tokens

LOG = [f"2024-01-01 line {number} nothing to see here" for number in range(100)]


def test_ends_facts_and_what_was_asked_for_stay_in_their_order() -> None:
    lines = [*LOG]
    lines[40] = "KeyError: 'customer' in src/orders.py"
    lines[60] = "the invoice of the customer was late"
    text = extract_sentences("\n".join(lines), 150, ["invoice"], count_tokens)
    kept = text.splitlines()
    assert kept[:2] == LOG[:2]
    assert kept[-2:] == LOG[-2:]
    assert kept.index(lines[40]) < kept.index(lines[60])
    assert kept.count(MARK) >= 2
    assert count_tokens(text) < 200


def test_long_lines_are_taken_by_their_sentences() -> None:
    text = " ".join(f"Sentence number {number} says something." for number in range(50))
    found = extract_sentences(f"First.\n\n{text}\n\nLast.", 100, [], count_tokens)
    assert found.startswith("First.")
    assert found.endswith("Last.")
    assert count_tokens(found) < 150


def test_japanese_is_cut_at_its_full_stops() -> None:
    text = (
        "".join(f"これは{number}番目の文です。" for number in range(60)) + "請求書は期限を過ぎた。" + "終わりです。" * 2
    )
    assert "請求書は期限を過ぎた。" in extract_sentences(text, 120, ["請求", "求書"], count_tokens)


def test_what_fits_or_has_few_lines_stays_as_it_is() -> None:
    assert extract_sentences("one\n\ntwo", 100, [], count_tokens) == "one\n\ntwo"
    assert extract_sentences("\n" * 50_000 + "end", 100, [], count_tokens) == "end"
    assert extract_sentences("word " * 500, 10, [], count_tokens) == "word " * 500


@settings(deadline=None, max_examples=60)
@given(st.text("abc 茶水。\n", max_size=400), st.integers(0, 60))
def test_both_ends_of_a_text_fit_and_are_its_ends(text: str, room: int) -> None:
    found = ends_of(text, room, count_tokens)
    assert found == text or count_tokens(found) <= room + 2
    begin, _, end = found.partition(MARK)
    assert found == text or text.startswith(begin.rstrip())
    assert text.rstrip().endswith(end.strip())


def test_both_ends_of_a_very_long_text() -> None:
    text = f"BEGIN {'x y ' * 200_000} END"
    found = ends_of(text, 50, count_tokens)
    assert found.startswith("BEGIN")
    assert found.endswith("END")
    assert count_tokens(found) <= 52
