"""Sets of tools, and what is offered of them."""

from __future__ import annotations

from typing import Any

import pytest

from flowengine.agents.tools.function_tool import tool_of
from flowengine.agents.tools.toolset import Offer, ToolSet
from flowengine.errors import DefinitionError


def add(a: int, b: int) -> int:
    """Add."""
    return a + b


def subtract(a: int, b: int) -> int:
    """Subtract."""
    return a - b


def test_an_offer_merges_the_sets_in_their_order() -> None:
    offer = Offer([ToolSet("one", "", [subtract]), ToolSet("two", "", [tool_of(add)])])
    assert [tool.name for tool in offer] == ["subtract", "add"]
    assert len(offer) == 2


def test_tools_of_an_inactive_set_are_not_offered() -> None:
    offer = Offer([ToolSet("one", "", [add]), ToolSet("two", "", [subtract, add], active=False)])
    assert [tool.name for tool in offer] == ["add"]
    assert offer.find("subtract") is None


def test_two_tools_of_one_name_name_both_sets() -> None:
    sets = [ToolSet("one", "", [add], source="tools.py"), ToolSet("two", "", [add])]
    with pytest.raises(DefinitionError, match=r"two tools are named 'add': one of the set 'one' \(tools.py\), one of"):
        Offer(sets)


def test_two_tools_of_one_name_in_one_set_are_refused_too() -> None:
    with pytest.raises(DefinitionError, match="two tools are named 'add'"):
        Offer([ToolSet("one", "", [add, add])])


def test_schemas_are_in_openais_function_format() -> None:
    assert Offer([ToolSet("one", "", [add])]).schemas() == (
        {
            "type": "function",
            "function": {
                "name": "add",
                "description": "Add.",
                "parameters": {
                    "type": "object",
                    "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}},
                    "required": ["a", "b"],
                    "additionalProperties": False,
                },
            },
        },
    )


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("ad", "there is no tool 'ad'; did you mean 'add'?"),
        ("fly", "there is no tool 'fly'; the tools are: add, subtract"),
    ],
)
def test_an_unknown_tool_is_an_error_result_that_helps(name: str, text: str) -> None:
    result = Offer([ToolSet("one", "", [add, subtract])]).unknown(name)
    assert (result.text, result.is_error) == (text, True)


def test_the_name_that_a_model_made_up_is_cut() -> None:
    assert len(Offer([]).unknown("x" * 100_000).text) < 300


def test_a_set_is_frozen() -> None:
    with pytest.raises(AttributeError):
        ToolSet("one", "", [add]).active = False  # type: ignore[misc] # that is the point


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ((None, "", [add]), "the name of a ToolSet is text, not NoneType"),
        (("sums", None, [add]), "the description of a ToolSet is text, not NoneType"),
        (("sums", "", add), "the tools of the ToolSet 'sums' are a list, not function"),
        (("sums", "", "add"), "a tool is made of a function, not str"),
    ],
)
def test_a_set_of_wrong_arguments_is_refused(given: Any, message: str) -> None:
    with pytest.raises(DefinitionError, match=message):
        ToolSet(*given)
