"""What two texts differ in, word by word: exact, readable, and bounded however long they are."""

from itertools import pairwise
from time import process_time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from visualize.word_diff import Piece, count_words, diff_words, shorten_pieces

_TEXTS = st.lists(
    st.sampled_from(["the ", "cat", "dog ", "\n", " ", ".", "sat ", "\u2028", "ü", "東京", "\ud800"])
).map("".join)


@given(before=_TEXTS, after=_TEXTS)
def test_both_texts_come_out_of_the_pieces(before: str, after: str) -> None:
    pieces = diff_words(before, after)
    assert "".join(text for kind, text in pieces if kind != "added") == before
    assert "".join(text for kind, text in pieces if kind != "removed") == after
    assert all(one.kind != other.kind for one, other in pairwise(pieces))
    assert all(text for _, text in pieces)


@given(text=_TEXTS)
def test_a_text_does_not_differ_from_itself(text: str) -> None:
    assert diff_words(text, text) == ([Piece("same", text)] if text else [])


@pytest.mark.parametrize(
    ("before", "after", "changes"),
    [
        ("Answer in one line.", "Answer in two lines.", [("removed", "one line"), ("added", "two lines")]),
        ("Be short.", "Be short. Answer in German.", [("added", " Answer in German.")]),
        ("a\nkeep this line\nb\n", "a\nkeep that line\nb\n", [("removed", "this"), ("added", "that")]),
        ("東京は雨です", "京都は雨です", [("removed", "東"), ("added", "都")]),
        (
            "Cats purr softly.",
            "Engines fail at dawn",
            [("removed", "Cats purr softly."), ("added", "Engines fail at dawn")],
        ),
        ("", "new", [("added", "new")]),
        ("0.1", "0.10", [("removed", "1"), ("added", "10")]),
    ],
)
def test_changes_are_told_as_phrases(before: str, after: str, changes: list[tuple[str, str]]) -> None:
    assert [tuple(each) for each in diff_words(before, after) if each.kind != "same"] == changes


def test_words_are_counted_without_gaps_and_signs() -> None:
    assert count_words(diff_words("one, two", "one two, three four!")) == (0, 2)


def test_what_stayed_is_cut_to_lines_round_the_changes() -> None:
    old = [f"line {number}\n" for number in range(20)]
    new = [*old[:10], "another\n", *old[11:]]
    shown = shorten_pieces(diff_words("".join(old), "".join(new)), lines=2)
    assert [each.text for each in shown if each.kind == "hidden"] == ["… 8 equal lines\n", "… 7 equal lines\n"]
    assert "".join(each.text for each in shown if each.kind == "same").splitlines() == [
        "line 8",
        "line 9",
        "line 11",
        "line 12",
    ]


def test_a_change_of_a_megabyte_is_cut_and_says_so() -> None:
    shown = shorten_pieces(diff_words("", "x" * 1_000_000), most=100)
    assert shown[0] == Piece("added", "x" * 100)
    assert shown[1] == Piece("hidden", "… 999,900 more characters added\n")


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("the cat sat " * 30_000, "the dog sat " * 30_000),
        ("a\nb\n" * 50_000, "b\na\n" * 50_000),
        ("\n".join(map(str, range(60_000))), "\n".join(map(str, range(60_000, 0, -1)))),
        ("ab " * 4_000, "ba " * 4_000),
    ],
    ids=["one line", "two lines again and again", "reversed", "nothing shared"],
)
def test_a_huge_text_takes_a_bounded_time(before: str, after: str) -> None:
    begun = process_time()
    pieces = diff_words(before, after)
    assert process_time() - begun < 5
    assert "".join(text for kind, text in pieces if kind != "added") == before
