"""What is read from docstrings, style by style."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flowengine.agents.tools.docstring import Docstring, parse

GOOGLE = """Find flights.

    Cheapest first.

    Args:
        origin (str): Where from,
            as an airport code.
        target: Where to: city or code.

    Returns:
        Flights.
    """

SPHINX = """Find flights.

    Cheapest first.

    :param str origin: Where from,
        as an airport code.
    :param target: Where to: city or code.
    :type target: str
    :returns: Flights.
    """

NUMPY = """Find flights.

    Cheapest first.

    Parameters
    ----------
    origin : str
        Where from,
        as an airport code.
    target
        Where to: city or code.

    Returns
    -------
    list
        Flights.
    """


@pytest.mark.parametrize("text", [GOOGLE, SPHINX, NUMPY], ids=["google", "sphinx", "numpy"])
def test_each_style_gives_the_description_and_its_parameters(text: str) -> None:
    assert parse(text) == Docstring(
        "Find flights.\n\nCheapest first.",
        {"origin": "Where from, as an airport code.", "target": "Where to: city or code."},
    )


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (None, Docstring("", {})),
        ("", Docstring("", {})),
        ("One line.", Docstring("One line.", {})),
        ("Note this: it is no section.", Docstring("Note this: it is no section.", {})),
        ("A.\n\nArgs:\n    x: 1\n    x: 2", Docstring("A.", {"x": "1"})),
        ("A.\n\nArgs:", Docstring("A.", {})),
        ("A.\n\nReturns:\n    x: not a parameter", Docstring("A.", {})),
        ("A.\n\nParameters\n----------\na, b : int\n    Sides.", Docstring("A.", {"a": "Sides.", "b": "Sides."})),
        ("A.\n\n:param:\n:raises ValueError: never", Docstring("A.", {})),
    ],
)
def test_odd_docstrings_give_what_they_say_and_no_more(text: str | None, expected: Docstring) -> None:
    assert parse(text) == expected


@settings(deadline=None, max_examples=100)
@given(st.lists(st.sampled_from(["Args:", "  x: y", "x : int", "-----", "Parameters", ":param x: y", "", "\t", ":"])))
def test_no_text_makes_it_fail(lines: list[str]) -> None:
    found = parse("\n".join(lines))
    assert all("\n" not in text for text in found.parameters.values())
