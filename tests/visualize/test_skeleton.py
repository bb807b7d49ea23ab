"""Levels of nodes, and what the paths of events mean in them."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.sample_run import GRAPH
from visualize.skeleton import Skeleton, Spot


@pytest.mark.parametrize(
    ("path", "spot"),
    [
        ("draft", Spot("draft")),
        ("polish.round[2].judge", Spot("polish.judge", "polish", "polish.round[2].", 2)),
        ("investigate[13].search", Spot("investigate.search", "investigate", "investigate[13].", 13)),
        ("widen.plan", Spot("widen.plan", "widen", "widen.", None)),
        ("widen.each[1].leaf", Spot("widen.each.leaf", "widen.each", "widen.each[1].", 1)),
        ("polish[2].judge", Spot("polish[2].judge")),
        ("polish.round[2].nobody", Spot("polish.round[2].nobody")),
        ("nobody", Spot("nobody")),
        ("", Spot("")),
    ],
)
def test_a_path_leads_to_its_site_and_its_container(path: str, spot: Spot):
    assert Skeleton(GRAPH).spot(path) == spot


def test_an_id_that_looks_like_a_path_is_an_id():
    body = {"nodes": [["b", "agent"]], "edges": []}
    graph = {
        "nodes": [["a", "map", body], ["a[0].b", "agent"], ["x.y", "map", body], ["x", "subflow", body]],
        "edges": [],
    }
    skeleton = Skeleton(graph)
    assert skeleton.spot("a[0].b") == Spot("a[0].b")
    assert skeleton.spot("a[1].b").site == "a.b"
    assert skeleton.spot("x.y[0].b").container == "x.y"
    assert skeleton.spot("x.b").container == "x"


def test_containers_come_before_their_bodies():
    assert list(Skeleton(GRAPH).sites)[:4] == ["draft", "polish", "polish.judge", "polish.improve"]


json_like = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=4) | st.just("map"),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from(["nodes", "edges", "x"]), inner, max_size=3)
    ),
    max_leaves=20,
)


@settings(deadline=None, max_examples=80)
@given(st.dictionaries(st.sampled_from(["nodes", "edges", "state"]), json_like, max_size=3), st.text(max_size=12))
def test_a_graph_that_makes_no_sense_is_read_as_far_as_it_does(graph: dict[str, Any], path: str):
    skeleton = Skeleton(graph)
    assert skeleton.spot(path).site is not None
    again = Skeleton(skeleton.top.to_plain())
    assert list(again.sites) == list(skeleton.sites)
    assert [level.edges for _, level in again.levels()] == [level.edges for _, level in skeleton.levels()]
