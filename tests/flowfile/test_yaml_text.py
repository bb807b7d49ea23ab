"""YAML as the core schema of 1.2 reads it, and nothing more."""

from __future__ import annotations

import math
import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flowengine.errors import Diagnostic
from flowengine.flowfile.yaml.parser import MAX_BYTES, Place, decode, parse_yaml


def data_of(text: str) -> Any:
    parsed = parse_yaml(text)
    assert not parsed.problems
    return parsed.data


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("on", "on"),
        ("yes", "yes"),
        ("No", "No"),
        ("010", 10),
        ("0o10", 8),
        ("0x1f", 31),
        ("0b1", "0b1"),
        ("1_000", "1_000"),
        ("12:30:00", "12:30:00"),
        ("2024-01-01", "2024-01-01"),
        ("1e3", 1000.0),
        ("1.", 1.0),
        (".5", 0.5),
        ("+3", 3),
        ("-0", 0),
        (".inf", math.inf),
        ("-.Inf", -math.inf),
        ("true", True),
        ("FALSE", False),
        ("tRUE", "tRUE"),
        ("null", None),
        ("~", None),
        ("", None),
        ("=", "="),
        ("<<", "<<"),
        ("'12'", "12"),
        ('"true"', "true"),
        ("|-\n  12", "12"),
        ("1.2.3", "1.2.3"),
        ("-", None),
    ],
)
def test_a_plain_scalar_is_what_the_core_schema_says(text: str, value: Any) -> None:
    if text == "-":
        assert data_of("a:\n  -") == {"a": [None]}
    else:
        found = data_of(f"a: {text}\n")["a"]
        assert (type(found), found) == (type(value), value)


def test_not_a_number_is_a_number() -> None:
    assert math.isnan(data_of("a: .nan")["a"])


def test_an_alias_is_the_value_of_its_anchor() -> None:
    assert data_of("x-a: &a {n: 1}\nb: *a\nc: [*a]") == {"x-a": {"n": 1}, "b": {"n": 1}, "c": [{"n": 1}]}


def test_a_value_knows_its_line_and_column_and_those_of_its_key() -> None:
    place = parse_yaml("a:\n  b: [1, two]\n").place
    assert isinstance(place, Place)
    assert isinstance(place.children, dict)
    inner = place.children["a"].children
    assert isinstance(inner, dict)
    b = inner["b"]
    assert (b.line, b.column, b.key) == (2, 6, (2, 3))
    assert isinstance(b.children, list)
    assert [(each.line, each.column) for each in b.children] == [(2, 7), (2, 10)]


def test_columns_count_characters_not_bytes() -> None:
    place = parse_yaml("{名前: 値, b: 2}").place
    assert place is not None
    assert isinstance(place.children, dict)
    assert place.children["b"].column == 12


def test_several_problems_are_told_in_one_pass() -> None:
    found = parse_yaml("1: a\nb: !x 2\nb: 3\n").problems
    assert [(each.code, each.line) for each in found] == [("FE110", 1), ("FE108", 2), ("FE107", 3)]


def test_a_directive_of_another_version_is_refused() -> None:
    assert [each.code for each in parse_yaml("%YAML 1.1\n---\na: 1").problems] == ["FE104"]
    assert parse_yaml("%YAML 1.2\n---\na: 1").data == {"a": 1}


@pytest.mark.parametrize("text", ["[" * 500_000, "{a: " * 250_000, "- " * 300_000, "a: &a [" * 100_000])
def test_deep_nesting_is_refused_without_reading_on(text: str) -> None:
    started = time.process_time()
    assert [each.code for each in parse_yaml(text).problems] == ["FE113"]
    assert time.process_time() - started < 2


def test_exploding_aliases_cost_nothing() -> None:
    lines = ["x0: &x0 [a, a, a, a, a, a, a, a, a]"]
    lines += [f"x{n}: &x{n} [{', '.join([f'*x{n - 1}'] * 9)}]" for n in range(1, 40)]
    started = time.process_time()
    assert [each.code for each in parse_yaml("\n".join(lines)).problems] == ["FE112"]
    assert time.process_time() - started < 1


def test_long_texts_count_in_what_aliases_make() -> None:
    text = "x: &x " + "a" * 100_000 + "\ny: [" + ", ".join(["*x"] * 1000) + "]"
    assert [each.code for each in parse_yaml(text).problems] == ["FE112"]


def test_a_byte_order_mark_is_no_content() -> None:
    assert decode(b"\xef\xbb\xbfa: 1") == "a: 1"
    found = decode("a: 1".encode("utf-16"))
    assert isinstance(found, Diagnostic)
    assert found.code == "FE103"


def test_a_megabyte_is_allowed_and_one_byte_more_is_not() -> None:
    assert isinstance(decode(b"a" * MAX_BYTES), str)
    assert isinstance(decode(b"a" * (MAX_BYTES + 1)), Diagnostic)


@given(st.text(max_size=60))
def test_any_text_gives_a_value_or_problems(text: str) -> None:
    parsed = parse_yaml(text)
    assert parsed.place is not None or parsed.problems
    for each in parsed.problems:
        assert each.line is not None
        assert each.column is not None


@given(st.text(alphabet="ab:-[]{}&*!|>'\"#%@`?, \n\t01", max_size=40))
def test_texts_made_of_marks_give_a_value_or_problems(text: str) -> None:
    parsed = parse_yaml(text)
    assert parsed.place is not None or parsed.problems


@given(st.binary(max_size=60))
def test_any_bytes_give_a_text_or_a_problem(raw: bytes) -> None:
    assert isinstance(decode(raw), str | Diagnostic)


def test_an_escaped_emoji_of_json_is_refused_with_what_to_write() -> None:
    (problem,) = parse_yaml('{"v": "hi \\ud83c\\udf89"}').problems
    assert (problem.code, problem.line) == ("FE104", 1)
    assert "write the character itself, not the halves of a surrogate pair" in problem.message
