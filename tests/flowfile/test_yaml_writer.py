"""What is written is read back as it was, and people can read it too."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from flowengine.flowfile.yaml.dump import to_yaml
from flowengine.flowfile.yaml.parser import parse_yaml

LINES = st.sampled_from(["", " ", "a ", "  b", "#c", "\td", "- e", "f: g", "---", "\u3042", "'", '"', "\\"])
TEXTS = (
    st.text()
    | st.text(alphabet="ab \n:#-|>'\"\t{}[]&*!%@`\r\x85\u2028\ufeff\x1b")
    | st.lists(LINES, min_size=1).map("\n".join)
    | st.text(alphabet="ab ", min_size=81)
    | st.sampled_from(["true", "No", "null", "~", "1", "1e3", "0o7", ".5", "2024-01-01", "=", "<<", "y"])
).map(lambda text: text.encode("utf-8", "replace").decode())
SCALARS = st.none() | st.booleans() | st.integers(-(10**12), 10**12) | st.floats(allow_nan=False) | TEXTS
VALUES = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3), max_leaves=10
)


@settings(deadline=None, max_examples=200)
@given(VALUES)
def test_everything_comes_back_as_it_was(value: Any) -> None:
    document = {"map": {"key": value}, "list": [value, [value]]}
    parsed = parse_yaml(to_yaml(document))
    assert parsed.problems == []
    assert parsed.data == document


def test_texts_of_several_lines_stand_as_they_are_even_with_blanks_at_the_ends_of_lines() -> None:
    assert to_yaml({"prompt": "One \nTwo: # 2\n\n  Three\n"}).splitlines() == [
        "prompt: |",
        "  One ",
        "  Two: # 2",
        "",
        "    Three",
    ]


def test_what_nobody_could_see_is_written_as_an_escape() -> None:
    assert to_yaml({"a": "x\u2028y\ufeff\x7f\n"}) == 'a: "x\\u2028y\\ufeff\\u007f\\n"\n'


def test_other_languages_stay_readable() -> None:
    assert to_yaml({"a": "日本語", "b": "été"}) == 'a: "日本語"\nb: "été"\n'
