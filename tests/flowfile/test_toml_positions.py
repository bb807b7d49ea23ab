"""Where the keys of a TOML text stand."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from flowengine.flowfile.project.toml_positions import find_key_positions, item, nearest_position

TEXT = '''\
# [commented]
title = "a # b" # c
multi = """
[not.a.table]
key = 1
"""
raw = \'\'\'x = 1
\'\'\'

[ models . "fast one" ]
price = { input = 1, "out put" = [1, 2, {deep = 2}] } # end
a.b.'c' = "}"
list = [
  "x",  # ]
  { one = 1 },
]
[[runs]]
name = 1
[[runs]]
name = 2
'''


def paths_of(table: Mapping[str, Any], outer: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    for key, value in table.items():
        yield (*outer, key)
        if isinstance(value, dict):
            yield from paths_of(value, (*outer, key))  # pyright: ignore[reportUnknownArgumentType]


def test_every_key_has_its_line_and_column() -> None:
    found = find_key_positions(TEXT)
    assert found["title",] == (2, 1)
    assert found["multi",] == (3, 1)
    assert ("not",) not in found
    assert ("x",) not in found
    assert found["models", "fast one"] == (10, 3)
    assert found["models", "fast one", "price", "input"] == (11, 11)
    assert found["models", "fast one", "price", "out put"] == (11, 22)
    assert found["models", "fast one", "a", "b", "c"] == (12, 1)
    assert found["models", "fast one", "list"] == (13, 1)
    assert found["runs", "name"] == (18, 1)
    assert found["runs", item(0), "name"] == (18, 1)
    assert found["runs", item(1), "name"] == (20, 1)
    assert found["models", "fast one", "list", item(1), "one"] == (15, 5)
    assert nearest_position(found, ("runs", item(1), "other")) == (19, 3)
    assert nearest_position(found, ("models", "fast one", "nothing")) == (10, 3)
    assert nearest_position(found, ("nothing",)) is None


def test_every_key_that_the_parser_finds_is_found() -> None:
    for text in (TEXT, (Path(__file__).parents[2] / "pyproject.toml").read_text("utf-8")):
        assert set(paths_of(tomllib.loads(text))) <= set(find_key_positions(text))


@settings(deadline=None)
@given(st.text(alphabet="ab.=[]{}\"'#,\n \t\\1", max_size=60))
def test_the_scan_of_any_text_ends(text: str) -> None:
    for line, column in find_key_positions(text).values():
        assert 1 <= line <= text.count("\n") + 1
        assert column >= 1
