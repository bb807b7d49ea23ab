"""Reciprocal rank fusion."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from flowengine.agents.retrieval.retriever import Ranking, fuse_rankings


def test_what_is_first_everywhere_scores_one() -> None:
    assert fuse_rankings([Ranking("ab"), Ranking("ac", 0.3)])["a"] == 1.0


def test_what_several_rankers_like_beats_what_one_likes_best() -> None:
    assert next(iter(fuse_rankings([Ranking("xab"), Ranking("yab"), Ranking("zab")]))) == "a"


def test_the_heavier_ranking_decides_between_equals() -> None:
    assert list(fuse_rankings([Ranking("ab", 1.0), Ranking("ba", 2.0)])) == ["b", "a"]


@given(st.lists(st.lists(st.integers(0, 20), unique=True), max_size=4))
def test_every_key_is_there_once_best_first_between_zero_and_one(rankings: list[list[int]]) -> None:
    scores = fuse_rankings([Ranking(each) for each in rankings])
    assert set(scores) == {key for each in rankings for key in each}
    assert list(scores.values()) == sorted(scores.values(), reverse=True)
    assert all(0 < score <= 1 + 1e-9 for score in scores.values())


def test_nothing_fused_is_nothing() -> None:
    assert fuse_rankings([]) == {}
    assert fuse_rankings([Ranking[str]([])]) == {}
