"""Python functions as tools: their schemas, their arguments, their calls."""

from __future__ import annotations

import functools
import os
import sys
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass
from enum import Enum
from typing import Annotated, Any, Literal

import anyio
import anyio.lowlevel
import pytest
from pydantic import BaseModel, Field

from flowengine.agents.tools.function_tool import tool, tool_of
from flowengine.agents.tools.tool import Tool, ToolResult
from flowengine.core.context import Context
from flowengine.errors import DefinitionError
from tests.support.pace import done_within


class Unit(Enum):
    CELSIUS = "c"
    KELVIN = "k"


class Place(BaseModel):
    city: str
    country: str = "NO"


@dataclass
class Span:
    days: int


def forecast(
    place: Place,
    days: int = 3,
    unit: Unit = Unit.CELSIUS,
    *,
    detail: Literal["low", "high"] | None = None,
    tags: Annotated[list[str], Field(description="Labels.", max_length=2)] = [],  # noqa: B006 - as users write it
) -> str:
    """Tell the weather.

    Args:
        place: Where.
        days: How many days ahead.
    """
    return f"{place.city} {place.country} {days} {unit.name} {detail} {tags}"


def test_the_schema_comes_from_signature_hints_and_docstring() -> None:
    made = tool_of(forecast)
    assert (made.name, made.description, made.effect, made.timeout) == ("forecast", "Tell the weather.", "none", 60)
    assert made.parameters == {
        "type": "object",
        "additionalProperties": False,
        "required": ["place"],
        "properties": {
            "place": {"$ref": "#/$defs/Place", "description": "Where."},
            "days": {"type": "integer", "default": 3, "description": "How many days ahead."},
            "unit": {"$ref": "#/$defs/Unit"},
            "detail": {"anyOf": [{"enum": ["low", "high"], "type": "string"}, {"type": "null"}], "default": None},
            "tags": {"type": "array", "items": {"type": "string"}, "maxItems": 2, "description": "Labels."},
        },
        "$defs": {
            "Place": {
                "title": "Place",
                "type": "object",
                "required": ["city"],
                "properties": {"city": {"type": "string"}, "country": {"type": "string", "default": "NO"}},
            },
            "Unit": {"title": "Unit", "type": "string", "enum": ["c", "k"]},
        },
    }


async def test_arguments_are_converted_and_defaults_are_the_functions_own() -> None:
    result = await tool_of(forecast).call({"place": {"city": "Oslo"}, "days": "5", "unit": "k"})
    assert result == ToolResult("Oslo NO 5 KELVIN None []", "Oslo NO 5 KELVIN None []", False)


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        ({}, "- 'place' is missing"),
        ({"place": {}}, "- 'place.city' is missing"),
        ({"place": {"city": "a"}, "days": "many"}, "- 'days': Input should be a valid integer"),
        ({"place": {"city": "a"}, "dayz": 1}, "- 'dayz' is unknown; did you mean 'days'?"),
        ({"place": {"city": "a"}, "unit": "f"}, "- 'unit': Input should be 'c' or 'k'"),
        ({"place": {"city": "a"}, "tags": ["a", "b", "c"]}, "- 'tags': List should have at most 2 items"),
        ({"place": "x" * 100_000}, "- 'place': Input should be"),
        ({"x" * 100_000: 1}, "is unknown"),
        ({str(n): n for n in range(50)}, "- and 41 more"),
    ],
)
async def test_wrong_arguments_are_told_so_that_the_model_can_mend_them(
    arguments: dict[str, Any], problem: str
) -> None:
    result = await tool_of(forecast).call(arguments)
    assert result.is_error
    assert result.value is None
    assert problem in result.text
    assert result.text.startswith("wrong arguments for tool 'forecast':\n")
    assert result.text.endswith("expected arguments: place, days, unit, detail, tags")
    assert len(result.text) < 3_000


def test_parameters_may_have_names_that_models_of_pydantic_reserve() -> None:
    def odd(schema: str, _x: int, model_config: str, json: str = "", self: int = 0) -> None: ...

    assert list(tool_of(odd).parameters["properties"]) == ["schema", "_x", "model_config", "json", "self"]


async def test_odd_names_reach_the_function() -> None:
    def odd(schema: str, _x: int) -> str:
        return f"{schema} {_x}"

    assert (await tool_of(odd).call({"schema": "a", "_x": 1})).text == "a 1"


class Shop:
    """A shop."""

    def price(self, item: str) -> float:
        """What an item costs.

        :param item: Its name.
        """
        return 1.5

    async def __call__(self, item: str) -> str:
        """Buy an item."""
        return f"bought {item}"


async def test_methods_partials_and_callable_objects_are_tools_too() -> None:
    price, buy = tool_of(Shop().price), tool_of(Shop())
    fixed = tool_of(functools.partial(forecast, Place(city="Rome")), name="rome")
    assert price.parameters["properties"]["item"] == {"type": "string", "description": "Its name."}
    assert (await price.call({"item": "a"})).value == 1.5
    assert (buy.name, buy.description) == ("Shop", "Buy an item.")
    assert (await buy.call({"item": "a"})).text == "bought a"
    assert fixed.description == "Tell the weather."


async def test_a_parameter_without_a_hint_takes_anything() -> None:
    def anything(value):  # type: ignore[no-untyped-def] # a user writes it so
        return value

    assert tool_of(anything).parameters["properties"]["value"] == {}
    assert (await tool_of(anything).call({"value": [1]})).value == [1]


def variable(*items: str) -> None: ...
def keywords(**items: str) -> None: ...
def positional(item: str, /) -> None: ...
def unreadable(item: "Nowhere") -> None: ...  # type: ignore[name-defined] # noqa: F821, UP037 - that is the point
def undescribable(item: threading.Lock) -> None: ...  # type: ignore[valid-type]
def called(item: Callable[[int], int]) -> None: ...


def contextual(context: Context) -> None: ...
def generated() -> Iterator[int]:
    yield 1


async def generated_async() -> AsyncIterator[int]:
    yield 1


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (variable, "parameter 'items' is variadic positional"),
        (keywords, "parameter 'items' is variadic keyword"),
        (positional, "parameter 'item' is positional-only"),
        (unreadable, "its type hints cannot be read: NameError"),
        (undescribable, "its parameters cannot be described"),
        (called, "its parameters cannot be described"),
        (contextual, "its parameter 'context' is a Context, which no model can give"),
        (generated, "tool 'generated' is a generator"),
        (generated_async, "tool 'generated_async' is a generator"),
        (lambda: 1, "tool name '<lambda>' is not one that models can call"),
        (dict.get, "positional-only"),
    ],
)
def test_a_function_that_no_model_could_call_is_refused(function: Callable[..., Any], message: str) -> None:
    with pytest.raises(DefinitionError, match=message.replace("(", r"\(")):
        tool_of(function)


def test_the_mark_is_taken_over_and_can_be_overruled() -> None:
    @tool(name="mail", effect="external", timeout=5)
    def send(text: str) -> str:
        return text

    assert send("stays a function") == "stays a function"
    made, other = tool_of(send), tool_of(send, name="post", effect="idempotent", timeout=1)
    assert (made.name, made.effect, made.timeout) == ("mail", "external", 5)
    assert (other.name, other.effect, other.timeout) == ("post", "idempotent", 1)


def test_the_mark_works_without_arguments_and_on_methods() -> None:
    class Post:
        @tool(effect="external")
        def send(self, text: str) -> None: ...

    @tool
    def plain() -> None: ...

    assert (tool_of(plain).name, tool_of(plain).effect) == ("plain", "none")
    assert tool_of(Post().send).effect == "external"


async def test_a_plain_function_does_not_stop_the_loop() -> None:
    ticked = threading.Event()

    async def tick() -> None:
        await anyio.sleep(0.01)
        ticked.set()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(tick)
        assert (await tool_of(lambda: ticked.wait(20), name="wait").call({})).value is True


async def test_an_async_function_runs_on_the_loop() -> None:
    async def where() -> str:
        await anyio.lowlevel.checkpoint()
        return threading.current_thread().name

    assert (await tool_of(where).call({})).text == threading.current_thread().name


async def test_a_plain_function_may_hand_back_something_to_wait_for() -> None:
    async def later() -> int:
        return 3

    assert (await tool_of(lambda: later(), name="later").call({})).value == 3


def fails() -> None:
    raise ValueError("no such city: " + "x" * 10_000)


def leaves() -> None:
    sys.exit("goodbye")


def stops() -> None:
    raise StopIteration


async def leaves_async() -> None:
    sys.exit(3)


async def fails_in_a_group() -> None:
    async with anyio.create_task_group():
        raise ValueError("inner")


def gives_a_generator() -> Any:
    return (each for each in [1])


@pytest.mark.parametrize(
    ("function", "text"),
    [
        (gives_a_generator, "tool 'gives_a_generator' failed: TypeError: it gave a generator, whose code runs only"),
        (fails, "tool 'fails' failed: ValueError: no such city: xxx"),
        (leaves, "tool 'leaves' failed: SystemExit: goodbye"),
        (leaves_async, "tool 'leaves_async' failed: SystemExit: 3"),
        (stops, "tool 'stops' failed: RuntimeError"),
        (fails_in_a_group, "tool 'fails_in_a_group' failed: ValueError: inner"),
    ],
)
async def test_what_a_function_raises_is_an_error_result(function: Callable[..., Any], text: str) -> None:
    result = await tool_of(function).call({})
    assert result.is_error
    assert result.text.startswith(text)
    assert len(result.text) < 3_000


async def test_a_function_that_blocks_is_left_behind_at_its_timeout() -> None:
    released = threading.Event()

    def block() -> None:
        released.wait(120)

    with done_within(8):
        result = await tool_of(block, timeout=0.1).call({})
    released.set()
    assert result == ToolResult("tool 'block' did not answer within 0.1 s and was given up", None, True)


async def test_an_external_tool_that_timed_out_may_have_taken_effect() -> None:
    async def pay() -> None:
        await anyio.sleep_forever()

    result = await tool_of(pay, effect="external", timeout=0.05).call({})
    assert result.text.endswith("whether it took effect is unknown")


@pytest.mark.parametrize(
    ("error", "acted"),
    [(ConnectionResetError("by peer"), True), (ConnectionRefusedError("no"), False), (ValueError("no"), False)],
)
async def test_an_external_tool_whose_exchange_broke_off_may_have_taken_effect(error: Exception, acted: bool) -> None:
    async def pay() -> None:
        raise error

    result = await tool_of(pay, effect="external").call({})
    assert (result.may_have_acted, "whether it took effect is unknown" in result.text) == (acted, acted)
    assert not (await tool_of(pay).call({})).may_have_acted


async def test_what_comes_after_the_time_is_up_does_not_count() -> None:
    async def late() -> str:
        with anyio.CancelScope(shield=True):
            await anyio.sleep(0.1)
        return "late"

    result = await tool_of(late, timeout=0.01).call({})
    assert result.text == "tool 'late' did not answer within 0.01 s and was given up"


async def test_an_error_shows_no_secret_of_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHOP_API_KEY", "sk-topsecret-123456")

    def ask() -> None:
        raise ValueError(f"401 for key {os.environ['SHOP_API_KEY']}")

    assert (await tool_of(ask).call({})).text == "tool 'ask' failed: ValueError: 401 for key [hidden]"


async def test_a_timeout_error_of_the_functions_own_is_told_as_such() -> None:
    async def asks() -> None:
        raise TimeoutError("the database is slow")

    assert "TimeoutError: the database is slow" in (await tool_of(asks).call({})).text


async def test_cancelling_the_caller_passes_through() -> None:
    async def forever() -> None:
        await anyio.sleep_forever()

    made: Tool = tool_of(forever)
    with anyio.move_on_after(0.05) as scope:
        await made.call({})
    assert scope.cancelled_caught


async def test_results_keep_the_raw_value_beside_the_text() -> None:
    def large() -> str:
        return "x" * 10_000_000

    def socket() -> object:
        return threading.Lock()

    def span() -> Span:
        return Span(3)

    assert len((await tool_of(large).call({})).value) == 10_000_000
    assert len((await tool_of(large).call({})).text) < 33_000
    shown = await tool_of(socket).call({})
    assert (shown.text, shown.is_error) == ("[a value of type lock, which has no text form]", False)
    assert await tool_of(span).call({}) == ToolResult('{"days": 3}', Span(3))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"name": ""}, "is not one that models can call"),
        ({"name": "a.b"}, "'a.b' is not one that models can call"),
        ({"name": "a" * 65}, "is not one that models can call"),
        ({"name": "été"}, "is not one that models can call"),
        ({"name": "ok\n"}, "is not one that models can call"),
        ({"effect": "deadly"}, "effect 'deadly' is none of none, idempotent, external"),
        ({"timeout": 0}, "timeout is 0; seconds above 0"),
        ({"timeout": float("nan")}, "timeout is nan; seconds above 0"),
    ],
)
def test_a_tool_checks_its_settings(settings: dict[str, Any], message: str) -> None:
    async def run(arguments: Any) -> ToolResult:
        return ToolResult("")

    with pytest.raises(DefinitionError, match=message):
        Tool(**{"name": "a", "description": "", "parameters": {}, "run": run, **settings})


@pytest.mark.parametrize(
    ("marks", "message"),
    [
        ({"timeout": 0}, "tool 'wait': timeout is 0; seconds above 0 are expected"),
        ({"timeout": "3"}, "tool 'wait': timeout is '3'; seconds above 0 are expected"),
        ({"name": ""}, "tool name '' is not one that models can call"),
        ({"name": 5}, "a tool's name is text, not int"),
        ({"approve": "no"}, "tool 'wait': approve is True or False, not 'no'"),
    ],
)
def test_a_wrong_mark_of_a_function_is_refused(marks: Any, message: str) -> None:
    @tool(**marks)
    def wait() -> None: ...

    with pytest.raises(DefinitionError, match=message):
        tool_of(wait)
