"""How messages show a value: its type and the beginning of its `repr`, whatever the value is."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest

from flowengine.core.values import brief_repr, copy_mutable, describe_value, freeze
from flowengine.journal.codec import decode_value, encode_value


def thing_of_project(**members: Any) -> Any:
    return type("Thing", (), {"__module__": "_flowengine_0123456789ab.tools", **members})()


def raising(self: Any) -> str:
    raise RuntimeError("no")


def test_a_value_is_described_with_the_plain_name_of_its_module() -> None:
    thing = thing_of_project()
    for value in (thing, [thing], {"a": [thing]}, freeze({"a": 1}) | {"b": thing}):
        assert "tools.Thing object at 0x" in describe_value(value)
        assert "_flowengine" not in describe_value(value)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (thing_of_project(__repr__=raising), "Thing <Thing whose `repr` raised RuntimeError>"),
        ([thing_of_project(__repr__=raising)], "list [<Thing whose `repr` raised RuntimeError>]"),
        ([10**5000], "list [<int whose `repr` raised ValueError>]"),
        (freeze([1, {"a": None}]), "FrozenList [1, {'a': None}]"),
        ({}, "dict {}"),
        ([[]], "list [[]]"),
        ((1,), "tuple (1,)"),
        (b"\xff", r"bytes b'\xff'"),
        ("it's", 'str "it\'s"'),
        ("\ud800\x00", r"str '\ud800\x00'"),
        ("x" * 10**6, f"str '{'x' * 59}"),
        ([7] * 10**6, "list [7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7,"),
    ],
)
def test_any_value_can_be_described(value: Any, text: str) -> None:
    assert describe_value(value) == text


def test_a_value_that_contains_itself_or_is_nested_very_deep_can_be_described() -> None:
    itself: list[Any] = []
    itself.append(itself)
    deep: list[Any] = []
    for _ in range(100_000):
        deep = [deep]
    assert describe_value(itself) == describe_value(deep) == "list " + "[" * 60


def test_only_the_beginning_of_a_value_is_looked_at() -> None:
    looked_at: list[int] = []

    class Item:
        def __init__(self, number: int) -> None:
            self.number = number

        def __repr__(self) -> str:
            looked_at.append(self.number)
            return f"item {self.number}"

    assert brief_repr([Item(n) for n in range(1_000)], 20) == "[item 0, item 1, ite…"
    assert looked_at == [0, 1, 2]


@dataclass
class Row:
    n: int


@dataclass
class Table:
    rows: list[Row]
    by_id: dict[str, Row]
    pairs: tuple[Any, ...] = ()


def test_an_object_that_stands_twice_in_a_value_is_another_one_in_each_place_as_a_journal_gives_it() -> None:
    row, pair = Row(3), (Row(1),)
    table = Table([row, row], {"one": row}, (pair, pair))
    for given in (freeze(table), freeze([table])[0], copy_mutable(table), decode_value(encode_value(table))):
        given.by_id["one"].n += 10
        given.pairs[0][0].n += 10
        assert [each.n for each in (*given.rows, *given.pairs[0], *given.pairs[1])] == [3, 3, 11, 1]
    assert table == Table([row, row], {"one": row}, (pair, pair))


def test_an_object_that_leads_back_to_itself_is_copied_with_its_way_back() -> None:
    table = Table([], {})
    table.pairs = (table,)
    copied = copy_mutable(table)
    assert copied is not table
    assert copied.pairs[0] is copied
