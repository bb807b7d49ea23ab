from __future__ import annotations

from datetime import date
from decimal import Decimal
from typing import Any

import pytest
from pydantic import BaseModel

from flowengine.agents.context.custom_data import CustomDataProvider
from flowengine.agents.context.provider import ParameterError


async def test_each_entry_of_a_mapping_is_a_fragment():
    provider = CustomDataProvider({"hours": "9 to 5", "prices": {"tea": 3}})
    found = await provider.fragments("", ())
    assert [(each.label, each.text) for each in found] == [
        ("hours", "hours: 9 to 5"),
        ("prices", 'prices: {"tea": 3}'),
    ]


@pytest.mark.parametrize("is_async", [True, False])
async def test_a_function_is_asked_with_the_query_and_its_configuration(is_async: bool):
    def plain(query: str, unit: str) -> dict[str, str]:
        return {"在庫": f"{query} {unit}"}

    async def waiting(query: str, unit: str) -> dict[str, str]:
        return plain(query, unit)

    provider = CustomDataProvider(waiting if is_async else plain, {"unit": "kg"})
    assert await provider.get_context("お茶") == "在庫: お茶 kg"


class Order(BaseModel):
    id: str = "A1"
    tags: set[str] = {"new"}


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ("Text", "Text"),
        ([1, 2], "[1, 2]"),
        (None, ""),
        ({}, ""),
        (Order(), '{"id": "A1", "tags": ["new"]}'),
        ({"due": date(2025, 3, 1), "at": {(1, 2): Decimal("3.50")}}, 'due: 2025-03-01\n\nat: {"(1, 2)": "3.50"}'),
    ],
)
async def test_what_a_function_returns_may_be_text_or_any_value(given: Any, text: str):
    assert await CustomDataProvider(lambda query: given).get_context("") == text


async def test_what_a_function_raises_is_its_own_failure():
    def fail(query: str) -> None:
        raise LookupError("no such table")

    with pytest.raises(LookupError, match="no such table"):
        await CustomDataProvider(fail).get_context("")


def test_arguments_for_a_mapping_and_sources_that_are_neither_are_refused():
    with pytest.raises(ParameterError, match="config holds arguments of a function") as raised:
        CustomDataProvider({"a": 1}, {"b": 2})
    assert raised.value.parameter == "config"
    with pytest.raises(ParameterError, match="data_source must be a mapping or a function, not int 3"):
        CustomDataProvider(3)


async def test_entries_may_have_names_that_are_no_texts():
    assert await CustomDataProvider({1: "a", None: 2}).get_context("q") == "1: a\n\nNone: 2"
