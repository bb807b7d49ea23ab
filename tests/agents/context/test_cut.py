"""A cut by characters: how much is left, from where, and what is never cut."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flowengine.agents.context.cut import CutProvider
from flowengine.agents.context.factory import ContextProviderFactory
from flowengine.agents.context.provider import ParameterError
from flowengine.core.context import Fragment
from flowengine.models.shortening import MARK

TEXT = "The first line.\nThe second line.\nThe third line.\nThe last line."


def cut(text: str, most: int, at: str) -> str:
    return CutProvider(most, at).get_context("", text)


def test_what_fits_stays_as_it_is() -> None:
    fragments = [Fragment("one", "a"), Fragment("two", "b")]
    assert CutProvider(6).fragments("", fragments) is fragments
    assert cut(TEXT, len(TEXT), "start") == TEXT


@pytest.mark.parametrize(
    ("at", "left"),
    [
        ("end", f"The first line.\nThe second line.\n{MARK}"),
        ("start", f"{MARK} third line.\nThe last line."),
        ("middle", f"The first line. {MARK} last line."),
    ],
)
def test_what_is_too_much_goes_where_it_is_said(at: str, left: str) -> None:
    assert cut(TEXT, 38, at) == left


def test_whole_fragments_go_first_and_one_is_cut() -> None:
    fragments = [Fragment("a" * 10, "x", tokens=3), Fragment("one two three", "y", tokens=3), Fragment("z" * 10, "z")]
    assert [(each.text, each.tokens) for each in CutProvider(18).fragments("", fragments)] == [
        ("a" * 10, 3),
        (f"one {MARK}", None),
    ]
    assert [each.source for each in CutProvider(18, "start").fragments("", fragments)] == ["y", "z"]
    assert [each.source for each in CutProvider(20, "middle").fragments("", fragments)] == ["x", "z"]


def test_what_is_pinned_stays_whole_and_takes_room() -> None:
    fragments = [Fragment("one two three", "a"), Fragment("p" * 20, "b", pinned=True)]
    assert [each.text for each in CutProvider(28).fragments("", fragments)] == [f"one {MARK}", "p" * 20]
    assert [each.text for each in CutProvider(5).fragments("", fragments)] == ["p" * 20]


@given(st.lists(st.text(max_size=60), max_size=6), st.integers(1, 120), st.sampled_from(["start", "middle", "end"]))
def test_no_more_is_left_than_asked_for_and_all_of_it_was_there(texts: list[str], most: int, at: str) -> None:
    fragments = [Fragment(text, "x") for text in texts]
    left = [each.text for each in CutProvider(most, at).fragments("", fragments)]
    if sum(map(len, texts)) > most:
        assert sum(map(len, left)) <= most
    whole = "\0".join(texts)
    for text in left:
        assert all(part.strip() in whole for part in text.split(MARK)) or MARK in whole


@pytest.mark.parametrize(
    ("config", "said"),
    [
        ({"cut": {"at": "ende"}}, "there is no place 'ende'; did you mean 'end'?"),
        ({"cut": {"max_chars": 0}}, "max_chars must be at least 1"),
        ({"cut": {"max_char": 5}}, "did you mean 'max_chars'?"),
    ],
)
def test_wrong_settings_are_told(config: dict[str, object], said: str) -> None:
    with pytest.raises(ParameterError, match=said.replace("?", r"\?")):
        ContextProviderFactory.create_from_config([config])
