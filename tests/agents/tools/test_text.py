"""What a model sees of any value: bounded, plain, and without running the value's own code."""

from __future__ import annotations

import json
from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from enum import Enum, IntEnum
from pathlib import Path
from typing import Any, NamedTuple
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import BaseModel, ConfigDict

from flowengine.agents.tools.result_text import MAX_TEXT, cut, error_text, text_of
from tests.support.pace import spent_within


class Color(Enum):
    RED = "red"


class Level(IntEnum):
    HIGH = 3


class Point(NamedTuple):
    x: int
    y: int


@dataclass
class City:
    name: str
    tags: list[str] = field(default_factory=list)


@dataclass(slots=True)
class Slotted:
    name: str


class Person(BaseModel):
    name: str
    age: int = 3


class Open(BaseModel):
    model_config = ConfigDict(extra="allow")
    name: str


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("as it is", "as it is"),
        ("", ""),
        (None, "[no value]"),
        (True, "true"),
        (3, "3"),
        (1.5, "1.5"),
        (float("nan"), "nan"),
        ([float("-inf")], '["-inf"]'),
        ([], "[]"),
        ((1, "a"), '[1, "a"]'),
        ({1}, "[1]"),
        ({"a": None, 1: 2, None: 3}, '{"a": null, "1": 2, "null": 3}'),
        ({(1, 2): 3}, '{"[tuple]": 3}'),
        (OrderedDict(a=1), '{"a": 1}'),
        ("日本", "日本"),
        (["日本"], '["日本"]'),
        (b"abc", "[binary data: 3 bytes]"),
        ({"a": bytearray(2000)}, '{"a": "[binary data: 2,000 bytes]"}'),
        (Color.RED, "red"),
        (Level.HIGH, "3"),
        (Point(1, 2), '{"x": 1, "y": 2}'),
        (City("Oslo", ["cold"]), '{"name": "Oslo", "tags": ["cold"]}'),
        (Slotted("Oslo"), '{"name": "Oslo"}'),
        (Person(name="Ada"), '{"name": "Ada", "age": 3}'),
        (Open.model_validate({"name": "Ada", "more": 1}), '{"name": "Ada", "more": 1}'),
        (datetime(2026, 1, 2, 3, 4, tzinfo=UTC), "2026-01-02T03:04:00+00:00"),
        ([date(2026, 1, 2)], '["2026-01-02"]'),
        (timedelta(hours=1), "1:00:00"),
        (Decimal("1.50"), "1.50"),
        (UUID(int=1), "00000000-0000-0000-0000-000000000001"),
        (Path("a/b"), "a/b"),
        ([1 << 100_000], '["[a whole number of 100,001 bits]"]'),
        (len, "[a value of type builtin_function_or_method, which has no text form]"),
        ((n for n in [1]), "[a value of type generator, which has no text form]"),
        ("\ud800", "?"),
    ],
)
def test_values_as_text(value: Any, text: str) -> None:
    assert text_of(value) == text


def test_ten_megabytes_are_cut_and_what_was_left_out_is_said() -> None:
    text = text_of("x" * 10_000_000)
    assert text.endswith("\n[cut: 9,968,000 of 10,000,000 characters left out]")
    assert len(text) < MAX_TEXT + 100


def test_a_long_list_is_looked_at_only_as_far_as_it_is_shown() -> None:
    items = [{"number": n} for n in range(10)] * 100_000
    assert spent_within(1, lambda: text_of(items))
    text = text_of(items)
    assert len(text) < 3 * MAX_TEXT
    assert json.loads(text)[-1].endswith("more items left out]")


def test_a_large_dict_says_how_many_entries_are_missing() -> None:
    shown = json.loads(text_of({f"key{n}": "x" * 100 for n in range(10_000)}))
    assert shown["[cut]"] == f"{10_000 - (len(shown) - 1):,} more entries left out"


def test_a_long_text_inside_a_structure_is_cut_too() -> None:
    shown = json.loads(text_of({"page": "x" * 10_000_000, "after": 1}))
    assert "characters left out]" in shown["page"]
    assert shown["[cut]"] == "1 more entries left out"


def test_a_value_that_holds_itself_ends() -> None:
    value: list[Any] = []
    value += [value, value]
    assert "[nested too deeply]" in text_of(value)
    assert len(text_of(value)) < 3 * MAX_TEXT


class Hostile:
    """Everything that could be asked of it fails."""

    def __str__(self) -> str:
        raise AssertionError("asked for its text")

    __repr__ = __str__

    def __iter__(self) -> Iterator[Any]:
        raise AssertionError("asked for its items")

    def __len__(self) -> int:
        raise AssertionError("asked for its length")


class HostileText(str):
    def __str__(self) -> str:
        raise AssertionError("asked for its text")

    __repr__ = __str__

    def __len__(self) -> int:
        raise AssertionError("asked for its length")


class HostileList(list[Any]):
    def __iter__(self) -> Iterator[Any]:
        raise AssertionError("asked for its items")


class HostileDict(dict[str, Any]):
    def items(self) -> Any:
        raise AssertionError("asked for its items")


class HostileInt(int):
    def __repr__(self) -> str:
        raise AssertionError("asked for its text")


class Computed(BaseModel):
    name: str

    @property
    def more(self) -> str:
        raise AssertionError("asked for a property")


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (Hostile(), "[a value of type Hostile, which has no text form]"),
        ([Hostile()], '["[a value of type Hostile, which has no text form]"]'),
        (HostileText("abc"), "abc"),
        ([HostileText("abc")], '["abc"]'),
        (HostileList([1]), "[1]"),
        (HostileDict(a=1), '{"a": 1}'),
        ([HostileInt(7)], "[7]"),
        (Computed(name="a"), '{"name": "a"}'),
    ],
    ids=["object", "in a list", "text", "text in a list", "list", "dict", "number", "property"],
)
def test_a_values_own_code_is_never_run(value: Any, text: str) -> None:
    assert text_of(value) == text


class LoudError(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no text")


class SpokenError(Exception):
    def __str__(self) -> str:
        return "x" * 100_000


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (ValueError("no such city"), "ValueError: no such city"),
        (ValueError(), "ValueError"),
        (KeyError("a"), "KeyError: 'a'"),
        (ValueError(1, "b"), 'ValueError: [1, "b"]'),
        (LoudError(), "LoudError"),
        (ExceptionGroup("many", [ValueError("a"), TypeError("b")]), "ValueError: a; TypeError: b"),
        (ValueError(Hostile()), "ValueError: [a value of type Hostile, which has no text form]"),
    ],
)
def test_errors_as_text(error: Exception, text: str) -> None:
    assert error_text(error) == text


@pytest.mark.parametrize(
    "error",
    [ValueError("x" * 10_000_000), SpokenError(), ValueError(list(range(1_000_000)))],
    ids=["text", "own text", "list"],
)
def test_an_errors_message_is_cut(error: Exception) -> None:
    assert len(error_text(error)) < 5_000


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=10,
)


@settings(deadline=None, max_examples=100)
@given(st.lists(json_values, max_size=4))
def test_small_structures_come_through_whole_as_json(value: list[Any]) -> None:
    assert json.loads(text_of(value)) == json.loads(json.dumps(value).encode().decode())


@settings(deadline=None, max_examples=100)
@given(json_values, st.integers(0, 50))
def test_the_length_is_bounded_whatever_the_value(value: Any, limit: int) -> None:
    assert len(text_of(value, limit)) <= 2 * limit + 300


@settings(deadline=None, max_examples=50)
@given(st.text(), st.integers(0, 20))
def test_a_cut_text_is_its_beginning(text: str, limit: int) -> None:
    assert cut(text, limit).startswith(text[:limit])
    assert (cut(text, limit) == text) == (len(text) <= limit)
