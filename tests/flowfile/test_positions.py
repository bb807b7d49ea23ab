"""A line and a column of a text, and where in the file they are."""

from __future__ import annotations

from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from flowengine.flowfile.yaml.parser import Place, parse_yaml
from flowengine.flowfile.yaml.positions import SourceText, origins


def source_of(text: str) -> tuple[SourceText, Any]:
    parsed = parse_yaml(text)
    assert not parsed.problems, parsed.problems
    return SourceText(text, None, parsed.place), parsed.data


def where(file: str, needle: str = "X") -> tuple[int, int]:
    """Where the file says that the needle of the value `a` stands."""
    source, data = source_of(file)
    value: str = data["a"]
    at = value.index(needle)
    line, column = value.count("\n", 0, at) + 1, at - value.rfind("\n", 0, at)
    return source.inside("a", value, line, column)


def truly(file: str, needle: str = "X") -> tuple[int, int]:
    at = file.index(needle)
    return file.count("\n", 0, at) + 1, at - file.rfind("\n", 0, at)


FILES = {
    "plain": "a: one X two",
    "plain over lines": "a: one\n  two\n  three X\nb: 1",
    "plain with an empty line": "a: one\n\n  two X",
    "single quotes": "a: 'it''s X'",
    "single quotes over lines": "a: 'it''s\n\n   here\n     X'",
    "double quotes": 'a: "tab\\t and \\u00e9 X"',
    "double quotes with line breaks": 'a: "one\\n\\ntwo\n   three  X"',
    "double quotes with an escaped break": 'a: "one \\\n    two X"',
    "literal": "a: |\n  one\n\n    two X\n  three",
    "literal with blank first lines": "a: |\n\n\n   one\n     X\n",
    "literal with a given indentation": "a: |2\n    one\n   X\n",
    "literal, stripped": "a: |-\n    one\n    X\n\n\nb: 1",
    "literal, with a note": "a: | # note\n  one\n  X\n",
    "literal with Windows line ends": "a: |\r\n  one\r\n  two X\r\n",
    "literal in a list in a map": "a: |+\n        deep\n        X\n\nb:\n  - 1",
    "folded": "a: >\n  one\n  two X\n\n  three",
    "folded with a block that is more indented": "a: >\n  one\n\n    two\n    X\n\n  three",
    "folded, stripped": "a: >-\n  one\n\n\n  two X",
    "flow map": "{b: 1, a: one X}",
}


@pytest.mark.parametrize("file", FILES.values(), ids=FILES.keys())
def test_a_place_in_a_text_is_found_in_the_file(file: str) -> None:
    assert where(file) == truly(file)


def test_a_place_behind_an_escape_in_two_lines_is_exact() -> None:
    file = 'a: "\\x41\\x41 {{ nodes.X }}"'
    assert where(file) == truly(file)


def test_a_position_beyond_the_text_is_its_end() -> None:
    source, data = source_of("a: one\n")
    assert source.inside("a", data["a"], 5, 99) == (1, 4)
    assert source.inside("a", data["a"], 1, 99) == (1, 7)


def test_a_path_that_does_not_exist_is_the_nearest_part_round_it() -> None:
    source, _ = source_of("a:\n  b: [1, 2]\n")
    assert source.position("a.b.7") == (2, 6)
    assert source.position("a.b.1") == (2, 10)
    assert source.position(("a", "b", 0)) == (2, 7)
    assert source.position("a.zebra.x") == (2, 3)
    assert source.key_position("a.b") == (2, 3)


def test_an_alias_stands_where_its_anchor_is() -> None:
    source, _ = source_of("x-a: &t one\nb: *t\n")
    assert source.position("b") == (1, 6)
    assert source.key_position("b") == (2, 1)


def _scalar(place: Place | None) -> Place:
    assert place is not None
    assert isinstance(place.children, dict)
    return place.children["a"]


TEXTS = st.text(alphabet="ab X.,'\"\\\n{}%é名\t", min_size=1, max_size=60)


@pytest.mark.long
@given(TEXTS, st.sampled_from(["|", ">", "'", '"', ""]), st.integers(20, 60))
@settings(max_examples=400, deadline=None)
def test_every_character_of_a_written_text_is_found_again(text: str, style: str, width: int) -> None:
    file = yaml.safe_dump({"a": text}, default_style=style, width=width, allow_unicode=True)
    parsed = parse_yaml(file)
    if parsed.problems or not isinstance(parsed.data["a"], str):
        return
    value: str = parsed.data["a"]
    found = origins(file, _scalar(parsed.place), value)
    assert len(found) == len(value) + 1
    assert found == sorted(found)
    for at, char in zip(found, value, strict=False):
        if char.isalpha() and file[at] != "\\":
            assert file[at] == char
