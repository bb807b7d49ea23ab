"""Changes of JSON data: made again they give what they gave, and in other data only what is theirs."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flowengine.agents.typed_contexts.data_changes import apply_change, describe_change

scalars = st.none() | st.booleans() | st.integers(-3, 3) | st.sampled_from([0.0, 1.0, 2.5]) | st.sampled_from("ab")
values = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from("xyz"), inner), max_leaves=12
)


def exactly(value: Any) -> str:
    return json.dumps(value, sort_keys=True)


@given(values, values)
def test_a_change_made_in_what_it_was_made_in_gives_what_it_gave(before: Any, after: Any) -> None:
    change = describe_change(before, after)
    if change is None:
        assert exactly(before) == exactly(after)
    else:
        change = json.loads(json.dumps(change))
        assert exactly(apply_change(before, change)) == exactly(after)


@given(st.lists(st.integers(), unique=True, max_size=5), st.lists(st.integers(), max_size=4))
def test_entries_that_two_add_are_all_there_whoever_is_first(before: list[int], added: list[int]) -> None:
    mine, theirs = describe_change(before, [*before, *added]), describe_change(before, [*before, "x"])
    assert theirs is not None
    now: Any = apply_change(before, theirs)
    if mine is not None:
        now = apply_change(now, mine)
    assert now == [*before, "x", *added]


@pytest.mark.parametrize(
    ("before", "after", "others", "expected"),
    [
        ({"n": 5}, {"n": 7}, {"n": 6}, {"n": 8}),
        ({"n": 5}, {"n": 7}, {}, {"n": 7}),
        ({"a": 1, "b": 2}, {"b": 3}, {"a": 1, "b": 2, "c": 4}, {"b": 3, "c": 4}),
        ({"t": "old"}, {"t": "new"}, {"t": "theirs"}, {"t": "new"}),
        (["a", "b"], ["b"], ["x", "a", "b"], ["x", "b"]),
        (["a", "b", "c"], ["b", "c", "d"], ["c", "a"], ["c", "d"]),
        (["a"], ["new", "a"], ["a", "theirs"], ["new", "a", "theirs"]),
        (["a"], ["b"], [], ["b"]),
        ([1], [], [True], [True]),
        ({"l": ["a"]}, {"l": ["a", "b"]}, {"l": None}, {"l": ["b"]}),
    ],
)
def test_in_data_that_others_have_changed_it_changes_what_is_its_own(
    before: Any, after: Any, others: Any, expected: Any
) -> None:
    change = describe_change(before, after)
    assert change is not None
    assert exactly(apply_change(others, change)) == exactly(expected)
