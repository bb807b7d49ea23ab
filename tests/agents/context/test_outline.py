"""What source files define, and on which lines."""

from __future__ import annotations

import sys
import warnings

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flowengine.agents.context.source_code.outlines import (
    Definition,
    lines_outline,
    outline,
    own_lines,
    python_outline,
)

PYTHON = '''\
"""A module."""
import os

@cached
def first(a,
          b):
    def inner():
        pass
    return inner


class Cart(Base):
    """A cart."""

    size = 1

    @property
    def total(self) -> int:
        return 1

    async def add(self, item): self.items.append(item)

    class Line:
        def price(self):
            return 2

if os.name == "nt":
    def only_there():
        pass
else:
    try:
        import x
    except ImportError:
        def fallback():
            pass
'''


def named(definitions: list[Definition] | None) -> dict[str, tuple[int, int]]:
    assert definitions is not None
    return {each.name: (each.start, each.end) for each in definitions}


def test_functions_classes_and_methods_of_python_with_their_decorators() -> None:
    assert named(python_outline(PYTHON.split("\n")[:-1])) == {
        "": (1, 35),
        "first": (4, 9),
        "Cart": (12, 25),
        "Cart.total": (17, 19),
        "Cart.add": (21, 21),
        "Cart.Line": (23, 25),
        "Cart.Line.price": (24, 25),
        "only_there": (28, 29),
        "fallback": (34, 35),
    }


def test_a_class_keeps_the_first_lines_of_its_methods_and_a_module_what_is_outside_of_all() -> None:
    lines = PYTHON.split("\n")[:-1]
    definitions = {each.name: each for each in python_outline(lines) or ()}
    assert [text.strip() for _, text in own_lines(definitions["Cart"], lines) if text.strip()] == [
        "class Cart(Base):",
        '"""A cart."""',
        "size = 1",
        "@property",
        "def total(self) -> int:",
        "async def add(self, item): self.items.append(item)",
        "class Line:",
    ]
    assert [number for number, text in own_lines(definitions[""], lines) if text.strip()] == [1, 2, 27, 30, 31, 32, 33]


@pytest.mark.parametrize(
    "text", ["def broken(:\n", "x = '\0'\n", "(" * 500, "x = " + "-" * 100_000 + "1", "a." * 30_000 + "b"]
)
def test_what_python_cannot_read_is_read_by_lines(text: str) -> None:
    found = outline("a.py", text.split("\n"))
    assert found
    assert found[0].start == 1


def test_odd_escapes_in_the_code_that_is_read_are_kept_quiet() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert named(python_outline([r'x = "\d"', "def f(): return 1 is 1"])) == {"": (1, 2), "f": (2, 2)}


@pytest.mark.parametrize(
    ("language", "text", "expected"),
    [
        (
            "ts",
            'import x from "y";\n\n/** A cart. */\nexport class Cart<T> extends Base {\n  items: T[] = [];\n\n'
            "  /** Adds. */\n  async add(item: T, n = 1): Promise<void> {\n    if (n > 0) {\n      push(item);\n"
            "    } else {\n      foo();\n    }\n  }\n  total = () => {\n    return 1;\n  };\n}\n\n"
            "export const useCart = (a: number): Cart => {\n  const inner = () => 3;\n  return new Cart();\n};\n",
            {"": (1, 23), "Cart": (3, 18), "Cart.add": (7, 14), "Cart.total": (15, 17), "useCart": (20, 23)},
        ),
        (
            "go",
            "package main\n\ntype Server struct {\n\tport int\n}\n\n// Start starts it.\n"
            "func (s *Server) Start(ctx context.Context) error {\n"
            "\tif err := s.run(); err != nil {\n\t\treturn err\n\t}\n\treturn nil\n}\n",
            {"": (1, 13), "Server": (3, 5), "Start": (7, 13)},
        ),
        (
            "rs",
            "#[derive(Debug)]\npub struct Point { x: i32 }\n\nimpl<T> Display for Point {\n"
            "    pub(crate) async fn fmt(&self) -> Result\n    where\n        T: X,\n    {\n        Ok(())\n    }\n}\n",
            {"": (1, 11), "Point": (1, 2), "Display": (4, 11), "Display.fmt": (5, 10)},
        ),
        (
            "java",
            "public class Shop {\n    @Override\n    public List<String> names(int a, Map<String, X> b) throws E {\n"
            "        for (String s : list) {\n            call(s);\n        }\n    }\n}\n",
            {"": (1, 8), "Shop": (1, 8), "Shop.names": (2, 7)},
        ),
        (
            "c",
            "static int helper(const char *name, int n)\n{\n    if (n) {\n        return 1;\n    }\n"
            "    return 0;\n}\n\nint main(void) {\n    helper(1);\n    return 0;\n}\n",
            {"": (1, 12), "helper": (1, 7), "main": (9, 12)},
        ),
        (
            "rb",
            "module Shop\n  class Cart\n    def total(tax)\n      items.each do |i|\n        x\n      end\n"
            "    end\n  end\nend\n",
            {"": (1, 9), "Shop": (1, 9), "Shop.Cart": (2, 8), "Shop.Cart.total": (3, 7)},
        ),
        (
            "sh",
            "set -e\n# Ships it.\ndeploy() {\n  echo hi\n}\nfunction build {\n  make\n}\n",
            {"": (1, 8), "deploy": (2, 5), "build": (6, 8)},
        ),
        (
            "md",
            "intro\n# Title\ntext\n## Install\n```sh\n# no heading\n```\n## Use\nmore\n# Other\nend\n",
            {"": (1, 11), "Title": (2, 9), "Title.Install": (4, 7), "Title.Use": (8, 9), "Other": (10, 11)},
        ),
        ("yaml", "a: 1\nb:\n  c: 2\n", {"": (1, 3)}),
    ],
)
def test_other_languages_by_their_lines(language: str, text: str, expected: dict[str, tuple[int, int]]) -> None:
    assert named(lines_outline(text.split("\n")[:-1], language)) == expected


def test_a_text_that_defines_nothing_is_cut_at_blank_lines() -> None:
    lines = [("" if number % 50 == 0 else f"line {number}") for number in range(1, 171)]
    assert [(each.start, each.end) for each in lines_outline(lines, "txt")] == [
        (1, 50),
        (51, 100),
        (101, 150),
        (151, 170),
    ]


def test_many_nested_beginnings_take_no_long() -> None:
    lines = [f"{' ' * min(depth, 250)}class A{depth} {{" for depth in range(8000)]
    assert len(lines_outline(lines, "java")) > 1


LINE = st.sampled_from(
    [
        "",
        "    ",
        "def f():",
        "  def g(self):",
        "class A:",
        "}",
        "{",
        "  }",
        "function f() {",
        "# x",
        "## y",
        "text",
        "  x",
        "```",
    ]
)


@settings(deadline=None, max_examples=100)
@given(st.lists(LINE, min_size=1, max_size=30), st.sampled_from(["py", "js", "md", "txt"]))
def test_no_line_is_lost_and_no_definition_leaves_its_file(lines: list[str], language: str) -> None:
    definitions = outline(f"a.{language}", lines)
    covered = {number for each in definitions for number, _ in own_lines(each, lines)}
    assert covered == set(range(1, len(lines) + 1))
    assert all(1 <= each.start <= each.end <= len(lines) for each in definitions)


def test_the_recursion_limit_is_left_as_it_was() -> None:
    before = sys.getrecursionlimit()
    python_outline(["[" * 5000])
    assert sys.getrecursionlimit() == before


@pytest.mark.parametrize("count", [1000, 1400, 3000])
def test_a_choice_among_very_many_is_read_by_lines_where_it_is_too_deep(count: int) -> None:
    lines = ["if x == 0: pass", *(f"elif x == {each}: pass" for each in range(count))]
    assert python_outline(lines) in (None, [Definition("", 1, count + 1)])
