"""Arguments of tools are checked before the call, against schemas that may be hostile."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from time import perf_counter
from typing import Any

import anyio
import pytest

from flowengine.agents.tools.function_tool import tool_of
from flowengine.agents.tools.mcp.server_clients import ServerTool, serve
from flowengine.agents.tools.mcp.server_settings import McpServer
from flowengine.agents.tools.tool import ArgumentCheck, ToolResult
from flowengine.core.run_scope import RunScope

SCHEMA = {
    "type": "object",
    "properties": {"city": {"type": "string"}, "days": {"type": "integer", "minimum": 1}},
    "required": ["city"],
    "additionalProperties": False,
}


def counted(calls: Path) -> str:
    return calls.read_text()


@pytest.mark.parametrize(
    ("arguments", "unknown", "found"),
    [
        ({"city": "Kyoto", "days": 2}, (), []),
        ({"days": 2}, (), ["'city' is missing"]),
        ({"city": "Kyoto", "dys": 2}, (), ["'dys' is unknown; did you mean 'days'?"]),
        ({"city": 7, "days": 0}, (), ["'city': 7 is not of type 'string'", "'days': 0 is less than the minimum of 1"]),
        ({"city": None, "days": None}, ("city", "days"), []),
        ({"city": None, "days": 0}, ("city",), ["'days': 0 is less than the minimum of 1"]),
        ({"days": None}, ("days",), ["'city' is missing"]),
    ],
)
def test_what_is_wrong_is_said_of_each_argument(arguments: dict[str, Any], unknown: tuple[str, ...], found: list[str]):
    assert [each.text for each in ArgumentCheck(SCHEMA).problems(arguments, unknown)] == found


@pytest.mark.parametrize(
    "schema",
    [
        {"properties": {"text": {"pattern": "^(a|a)*$"}}},
        {"properties": {"text": {"pattern": "((((a{1,1000}){1,1000}){1,1000}){1,1000}){1,1000}"}}},
        {"properties": {"text": {"$ref": "file:///etc/passwd"}}},
        {"properties": {"text": {"$ref": "#/$defs/a"}}, "$defs": {"a": {"$ref": "#/$defs/a"}}},
        {
            "properties": {"text": {"$ref": "#/$defs/a0"}},
            "$defs": {f"a{n}": {"allOf": [{"$ref": f"#/$defs/a{n + 1}"}] * 9} for n in range(12)} | {"a12": {}},
        },
        {"type": "no such type"},
        {"properties": 7},
    ],
    ids=["slow pattern", "large pattern", "a file", "a circle", "growing references", "no type", "no schema"],
)
def test_a_schema_that_cannot_be_used_checks_nothing_and_takes_no_time(schema: dict[str, Any]):
    begun = perf_counter()
    assert ArgumentCheck(schema).problems({"text": "a" * 40 + "!"}) == []
    assert perf_counter() - begun < 20  # Regular expressions of such a kind take hours.


@pytest.mark.parametrize(
    ("keys", "arguments", "found"),
    [
        (
            {"properties": {"id": {"pattern": "^[A-Z]-[0-9]+$"}}},
            {"id": "17"},
            "'id': '17' does not match '^[A-Z]-[0-9]+$'",
        ),
        (
            {"patternProperties": {"^x-": {}}, "additionalProperties": False},
            {"x-a": 1, "y": 1},
            "Additional properties are not allowed ('y' was unexpected)",
        ),
        ({"properties": {"ids": {"uniqueItems": True}}}, {"ids": [1, 1]}, "'ids': [1, 1] has non-unique elements"),
    ],
)
def test_arguments_are_checked_by_every_keyword(keys: dict[str, Any], arguments: dict[str, Any], found: str):
    assert [each.text for each in ArgumentCheck(keys).problems(arguments)] == [found]


async def test_a_server_is_not_asked_with_arguments_that_its_schema_refuses(
    server: Callable[..., McpServer], calls: Path
):
    async with RunScope() as scope:
        served = await serve([server(allow=["count"])], scope)
        [tool] = served.sets[0].tools
        refused = await tool.call({"value": 7})
        assert refused.is_error
        assert "'value': 7 is not of type 'string'\nexpected arguments: value" in refused.text
        assert counted(calls) == ""
        assert not (await tool.call({"value": "7"})).is_error
    assert counted(calls) == "called\n"


async def test_a_tool_is_opened_by_its_servers_name_for_it(server: Callable[..., McpServer]):
    async with RunScope() as scope:
        tool = await ServerTool(server(), "structured").open(scope)
        assert (tool.name, tool.effect) == ("test_structured", "none")
        assert (await tool.call({})).value == {"degrees": 3}


class Panic(BaseException):
    """As extension modules raise it."""


async def raises() -> str:
    """Raises."""
    raise Panic("so")


async def makes_something_of_it() -> str:
    """Catches its cancellation."""
    try:
        await anyio.sleep_forever()
    except BaseException:
        return "made of it"
    return "never"


@pytest.mark.anyio
async def test_whatever_a_tool_raises_is_its_result_but_for_what_it_makes_of_its_cancellation():
    assert (await tool_of(raises).call({})).text == "tool 'raises' failed: Panic: so"
    found: list[ToolResult] = []
    with anyio.move_on_after(0.001) as scope:
        found.append(await tool_of(makes_something_of_it).call({}))
    assert scope.cancelled_caught
    assert found == []
    late = await tool_of(makes_something_of_it, timeout=0.001).call({})
    assert "was given up" in late.text
