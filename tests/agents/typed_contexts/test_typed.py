"""Typed contexts: data behind a schema, tools, and what a prompt shows of them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import date
from typing import Any

import anyio
import pytest
from anyio import to_thread
from pydantic import AliasChoices, BaseModel, ConfigDict, Field, RootModel

from flowengine.agents.tools.toolset import ToolSet
from flowengine.agents.typed_contexts.typed import ToolCallResult, TypedContext
from flowengine.errors import DefinitionError, StateError


class Item(BaseModel):
    name: str
    price: float = Field(ge=0)


class Cart(BaseModel):
    items: list[Item] = []
    note: str = ""


class CartContext(TypedContext[Cart]):
    id = "cart"
    description = "What the customer wants to buy"
    data_schema = Cart

    def tool_set(self) -> ToolSet:
        return ToolSet("cart", "Change the cart", [self.add])

    def add(self, name: str, price: float) -> None:
        """Put an item into the cart."""
        with self.changing() as data:
            data.items.append(Item(name=name, price=price))


def cart(**options: Any) -> TypedContext[Cart]:
    return TypedContext.create("cart", "A cart", Cart, **options)


def test_data_that_does_not_fit_is_refused_and_the_old_data_stay():
    context = cart(initial_data={"note": "gift"})
    with pytest.raises(StateError, match=r"context 'cart' do not fit Cart: items\.0\.price: Input should be greater"):
        context.set_data({"items": [{"name": "tea", "price": -1}]})
    assert context.get_data() == Cart(note="gift")


def test_an_instance_that_was_changed_after_it_was_checked_is_checked_again():
    data = Cart()
    data.note = 3  # type: ignore[assignment]  # what the test is about
    with pytest.raises(StateError, match="note: Input should be a valid string"):
        cart().set_data(data)


def test_initial_data_that_does_not_fit_is_an_error_of_the_definition():
    with pytest.raises(DefinitionError, match="items: Input should be a valid list"):
        cart(initial_data={"items": 1})


def test_a_mapping_with_some_fields_leaves_the_others_as_they_are():
    class Search(BaseModel):
        model_config = ConfigDict(populate_by_name=True)
        recent: list[str] = Field([], alias="recentData")
        last_query: str | None = Field(None, alias="lastQuery")
        enabled: bool = True

    context = TypedContext.create("s", "A search", Search, {"lastQuery": "keep me", "enabled": False})
    context.set_data({"recentData": ["a"]})
    context.set_data({"recent": ["b"]})
    assert context.get_data() == Search(recent=["b"], last_query="keep me", enabled=False)
    context.set_data(Search())
    assert context.get_data() == Search()


def test_changing_what_was_read_changes_nothing():
    context = cart(initial_data={"items": [{"name": "tea", "price": 1}]})
    context.get_data().items.clear()
    given: dict[str, Any] = {"items": []}
    context.set_data(given)
    given["items"].append({"name": "tea", "price": 1})
    assert context.get_data() == Cart()


def test_some_fields_are_replaced_and_the_others_stay():
    context = cart(initial_data={"note": "gift"})
    context.update_data(items=[{"name": "tea", "price": 2}])
    assert context.get_data() == Cart(items=[Item(name="tea", price=2)], note="gift")


def test_a_field_that_there_is_not_is_named_with_the_nearest():
    with pytest.raises(StateError, match="have no field 'itens'; did you mean 'items'"):
        cart().update_data(itens=[])


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ({"description": "", "data_schema": Cart}, "has no id"),
        ({"id": "a", "data_schema": dict}, "context 'a': data_schema must be a pydantic model's class"),
        ({"id": "a"}, "context 'a': data_schema must be a pydantic model's class, not None"),
        ({"id": 3, "data_schema": Cart}, "id must be text, not 3"),
    ],
)
def test_a_context_that_is_not_declared_whole_is_refused(body: Mapping[str, Any], message: str):
    with pytest.raises(DefinitionError, match=message):
        type("Broken", (TypedContext,), dict(body))()


@pytest.mark.parametrize("name", ["render_prompt", "on_tool_call"])
def test_what_is_no_function_is_refused_when_the_context_is_made(name: str):
    with pytest.raises(DefinitionError, match=f"context 'cart': {name} is a function of the context, not str"):
        cart(**{name: "text"})


def test_a_fresh_context_has_the_initial_data_and_its_tools_work_on_it_alone():
    first = CartContext({"note": "gift"})
    first.add("tea", 1)
    second = first.fresh()
    assert second.get_data() == Cart(note="gift")
    (tool,) = second.tool_set().tools
    assert anyio.run(tool.call, {"name": "milk", "price": 2}).is_error is False
    assert [each.name for each in second.get_data().items] == ["milk"]
    assert [each.name for each in first.get_data().items] == ["tea"]


class Strict(BaseModel):
    model_config = ConfigDict(strict=True, extra="forbid")
    day: date
    seen_at: str | None = Field(default=None, alias="seenAt")


def test_what_is_dumped_is_json_and_loads_into_equal_data():
    context = TypedContext.create("day", "A day", Strict, {"day": date(2025, 3, 2), "seenAt": "noon"})
    kept = json.loads(json.dumps(context.dump()))
    other = TypedContext.create("day", "A day", Strict, {"day": date(1999, 1, 1)})
    other.load(kept)
    assert other.get_data() == context.get_data()
    assert not other.is_changed


class Part(BaseModel):
    size: int = Field(1, validation_alias="partSize")


class Aliased(BaseModel):
    name: str = Field("", validation_alias=AliasChoices("userName", "login"), serialization_alias="user")
    parts: list[Part] = []
    by_name: dict[str, Part] = {}
    secret: str = Field("", exclude=True)
    more: RootModel[list[Part]] = RootModel[list[Part]]([])


def test_fields_that_are_written_by_other_names_than_they_are_read_by_are_not_lost():
    given = {"login": "Ann", "parts": [{"partSize": 2}], "by_name": {"a": {"partSize": 3}}, "secret": "s"}
    context = TypedContext.create("aliased", "", Aliased, {**given, "more": [{"partSize": 4}]})
    context.update_data(by_name={"b": Part(partSize=5)})
    data = context.get_data()
    assert (data.name, data.secret) == ("Ann", "s")
    assert [each.size for each in (*data.parts, *data.by_name.values(), *data.more.root)] == [2, 5, 4]
    other = context.fresh()
    other.load(json.loads(json.dumps(context.dump())))
    assert other.get_data() == data.model_copy(update={"secret": ""}), "what is not to be written is not kept"


def test_data_that_json_cannot_hold_are_named():
    class Raw(BaseModel):
        content: bytes

    with pytest.raises(StateError, match=r"the data of context 'raw' are no JSON values: .*utf-8"):
        TypedContext.create("raw", "", Raw, {"content": b"\xff"}).dump()


def test_a_change_beside_an_open_block_is_not_lost_silently():
    context = cart()

    def change() -> None:
        with context.changing() as data:
            context.update_data(note="gift")
            data.items.append(Item(name="tea", price=1))

    with pytest.raises(StateError, match="context 'cart' were changed by another while a block of `changing` was open"):
        change()
    assert context.get_data() == Cart(note="gift")


def test_kept_data_that_no_longer_fit_are_a_clear_error():
    context = cart(initial_data={"note": "gift"})
    with pytest.raises(StateError, match="context 'cart' do not fit Cart: items: Input should be a valid array"):
        context.load({"items": "tea"})
    assert context.get_data().note == "gift"


def test_a_context_is_changed_only_when_its_data_differ():
    context = cart(initial_data={"note": "gift"})
    context.update_data(note="gift")
    assert not context.is_changed
    context.update_data(note="none")
    assert context.is_changed


async def test_the_prompt_text_may_be_sync_or_async_and_defaults_to_the_data():
    async def later(context: TypedContext[Cart]) -> str:
        return f"note: {context.get_data().note}"

    assert await cart(render_prompt=later, initial_data={"note": "gift"}).prompt_text() == "note: gift"
    assert await cart(render_prompt=lambda context: "plain").prompt_text() == "plain"
    assert await cart().prompt_text() == 'A cart\n{"items":[],"note":""}'


def test_tool_sets_may_be_given_as_they_are_or_made_from_the_context():
    fixed = ToolSet("fixed", "", [])
    assert cart(tool_set=fixed).tool_set() is fixed
    assert cart(tool_set=[fixed]).tool_set() == [fixed]
    made = cart(tool_set=lambda context: ToolSet(context.id, "", []))
    assert made.tool_set().name == "cart"  # type: ignore[union-attr]  # one set was made
    assert tuple(cart().tool_set()) == ()  # type: ignore[arg-type]  # none is an empty sequence


async def test_tools_in_threads_lose_no_change():
    class Count(BaseModel):
        calls: dict[str, int] = {}

    context = TypedContext.create("count", "", Count)

    def note(key: str) -> None:
        with context.changing() as data:
            data.calls[key] = len(data.calls)

    async with anyio.create_task_group() as tasks:
        for number in range(40):
            tasks.start_soon(to_thread.run_sync, note, str(number))
    assert sorted(context.get_data().calls.values()) == list(range(40))


def test_what_changing_leaves_unfit_is_refused_whole():
    context = cart(initial_data={"note": "gift"})

    def change() -> None:
        with context.changing() as data:
            data.items.append(Item(name="tea", price=1))
            data.note = 1  # type: ignore[assignment]  # what the test is about

    with pytest.raises(StateError, match="note: Input should be a valid string"):
        change()
    assert context.get_data() == Cart(note="gift")


def test_handlers_are_called_with_the_context():
    seen: list[Any] = []
    context = cart(on_tool_call=lambda context, result: seen.append((context.id, result.name)))
    context.on_tool_call(ToolCallResult("add", {"a": 1}, 2))
    assert seen == [("cart", "add")]


def test_data_that_were_kept_under_another_schema_have_a_way_into_this_one():
    class Numbers(BaseModel):
        items: list[int] = []

    class NumbersContext(TypedContext[Numbers]):
        id = "numbers"
        description = "Numbers"
        data_schema = Numbers

    class Upgrading(NumbersContext):
        def upgrade_data(self, value: Any) -> Any:
            return {"items": [int(each) for each in value["items"]]}

    way = r"define `upgrade_data` in the context, or remove them .* memory rm NAME --context numbers"
    with pytest.raises(StateError, match=way):
        NumbersContext().load({"items": ["one"]})
    context = Upgrading()
    context.load({"items": ["1", "2.5"[:1]]})
    assert context.get_data() == Numbers(items=[1, 2])
    with pytest.raises(ValueError, match="invalid literal"):
        context.load({"items": ["one"]})
    assert context.get_data() == Numbers(items=[1, 2])
