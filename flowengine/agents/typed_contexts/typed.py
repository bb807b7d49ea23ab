"""Declares a typed context: data of a declared shape that owns tools and shows itself in the prompt.

It knows its data, the check that every change of it has to pass, and what its author wrote about tools and
text. It knows no model, no prompt round its own text, and no other context.

Every way to the data leads through the schema: what is read is a copy, so a change in place changes nothing.
"""

from __future__ import annotations

import copy
import json
import threading
from collections.abc import Awaitable, Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from types import NoneType
from typing import TYPE_CHECKING, Any, Generic, Literal, NamedTuple, Self, TypeAlias, TypeVar, cast

from pydantic import AliasChoices, BaseModel, RootModel, ValidationError
from pydantic.fields import FieldInfo

from flowengine.agents.context import settle
from flowengine.agents.tools import ToolSet
from flowengine.errors import (
    DefinitionError,
    StateError,
    did_you_mean,
    find_attribute,
    names_arguments,
    refuse_other_kind,
)

# --- The result of a tool call


class ToolCallResult(NamedTuple):
    """One tool call, of whatever tool: a function's, a server's, another context's."""

    name: str
    arguments: Mapping[str, Any]
    result: Any = None
    """The result of the tool: the raw value, or the text where there is no more than that."""
    is_error: bool = False


D = TypeVar("D", bound=BaseModel)

ToolSets: TypeAlias = ToolSet | Sequence[ToolSet]
"""One set of tools, or several."""

Observer: TypeAlias = Callable[[str, Any, Any], None]
"""Is told the id of a context, its data before a change, and after it; from the thread that makes the change."""


class TypedContext(Generic[D]):
    """Subclass it, or make one from functions with `create`.

    >>> class Cart(BaseModel):
    ...     items: list[str] = []
    >>> class CartContext(TypedContext[Cart]):
    ...     id = "cart"
    ...     description = "What the customer wants to buy"
    ...     data_schema = Cart
    ...     def tool_set(self):
    ...         return ToolSet("cart", "Change the cart", [self.add])
    ...     def add(self, item: str) -> None:
    ...         "Put an item into the cart."
    ...         with self.changing() as data:
    ...             data.items.append(item)
    >>> cart = CartContext()
    >>> cart.add("tea")
    >>> cart.render_prompt()
    'What the customer wants to buy\\n{"items":["tea"]}'

    Tools are made in `tool_set`, bound to the context that is asked for them: a run works on a `fresh` one.
    """

    id: str = ""
    description: str = ""
    data_schema: type[D]
    merge: Literal["error", "changes"] = "error"
    """The answer to changes by nodes of a flow that are in no order: an error, or each node's changes are
    made one after the other, in the order of the flow (an entry that each adds to a list is there, numbers add up)."""

    def __init__(self, initial_data: D | Mapping[str, Any] | None = None) -> None:
        """`initial_data`: what it begins with; None for the schema's defaults."""
        self._check_declaration()
        try:
            self._data: D = self._validate_data({} if initial_data is None else initial_data)
        except StateError as error:
            raise DefinitionError(str(error)) from error
        self._initial = self._start = self._data
        self._observe: Observer | None = None
        self._lock = threading.RLock()  # Plain tools run in threads, several at once.

    @classmethod
    @names_arguments
    def create(
        cls,
        id: str,
        description: str,
        data_schema: type[D],
        initial_data: D | Mapping[str, Any] | None = None,
        render_prompt: Callable[[Any], str | Awaitable[str]] | None = None,
        tool_set: Callable[[Any], ToolSets] | ToolSets | None = None,
        on_tool_call: Callable[[Any, ToolCallResult], Awaitable[None] | None] | None = None,
        merge: Literal["error", "changes"] = "error",
    ) -> Self:
        """One from functions; each gets the context as its first argument, sync or async as in a subclass.

        >>> class Count(BaseModel):
        ...     calls: int = 0
        >>> def count(context, result):
        ...     context.update_data(calls=context.get_data().calls + 1)
        >>> counter = TypedContext.create("count", "Tool calls so far", Count, on_tool_call=count)
        >>> counter.on_tool_call(ToolCallResult("add", {}))
        >>> counter.get_data()
        Count(calls=1)
        """
        for name, function in (("render_prompt", render_prompt), ("on_tool_call", on_tool_call)):
            refuse_other_kind(
                function, (Callable, NoneType), f"context '{id}': {name} is a function of the context", DefinitionError
            )
        functions = {"render_prompt": render_prompt, "tool_set": tool_set, "on_tool_call": on_tool_call}
        methods = {name: _to_method(each) for name, each in functions.items() if each is not None}
        body = {"id": id, "description": description, "data_schema": data_schema, "merge": merge, **methods}
        context_class = cast("type[Self]", type(f"{cls.__name__}_{id}", (cls,), body))
        return context_class(initial_data)

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            return find_attribute(self, name, "TypedContext")

    # --- what a subclass may define

    def tool_set(self) -> ToolSets:
        """Its tools, asked for before each model call; none by default."""
        return ()

    def render_prompt(self) -> str | Awaitable[str]:
        """Its text in the prompt; by default the description and the data as JSON. The empty text is none."""
        return f"{self.description}\n{self.get_data().model_dump_json()}".strip()

    def on_tool_call(self, result: ToolCallResult) -> Awaitable[None] | None:
        """Called after every tool call of the agent, its own tools and all others."""

    def upgrade_data(self, value: Any) -> Any:
        """Makes data that were kept under an earlier schema into data that fit this one: JSON value → JSON value.
        Called with what does not fit; by default it stays so."""
        return value

    async def prompt_text(self, query: str | None = None) -> str:
        """Returns the text for the prompt; contexts that search by the query add their results."""
        return await settle(self.render_prompt())

    # --- the data

    def get_data(self) -> D:
        """A copy of the data."""
        return self._data.model_copy(deep=True)

    def set_data(self, data: D | Mapping[str, Any]) -> None:
        """Replace the data by an instance of the schema, or those fields that a mapping has: the others stay.

        What does not fit the schema is a `StateError`, and the data stay as they were.
        """
        with self._lock:
            validated = self._validate_data(self._fill_fields(data) if isinstance(data, Mapping) else data)
            if self._observe is not None:
                self._observe(self.id, self._data, validated)
            self._data = validated

    def _fill_fields(self, changes: Mapping[str, Any]) -> Mapping[str, Any]:
        """The changes with the present values of the fields that they do not name, under the names that are read."""
        own = self._data
        if isinstance(own, RootModel):
            return changes
        dump = own.model_dump(by_alias=True, round_trip=True, warnings=False)
        present = cast("Mapping[str, Any]", _name_as_read(dump, own, is_whole=True))
        spellings = [
            {name, *(each for each in (field.alias, field.validation_alias) if isinstance(each, str))}
            for name, field in type(own).model_fields.items()
        ]
        outdated = {spelling for names in spellings if not names.isdisjoint(changes) for spelling in names}
        return {**{key: value for key, value in present.items() if key not in outdated}, **changes}

    def update_data(self, **changes: Any) -> None:
        """Replace some fields; the whole is checked again."""
        fields = self.data_schema.model_fields
        for name in changes:
            if name not in fields and self.data_schema.model_config.get("extra") != "allow":
                raise StateError(f"the data of context '{self.id}' have no field '{name}'{did_you_mean(name, fields)}")
        with self._lock:
            self.set_data(self._data.model_copy(update=changes))

    @contextmanager
    def changing(self) -> Generator[D]:
        """A copy to change in place, which becomes the data at the end of the block; no other thread changes them
        meanwhile.

        What is left unfit is a `StateError`, and so is a block in which the data were changed in another way (a tool
        that awaits in it lets others run): one change would undo the other. What raises in the block changes nothing.
        """
        with self._lock:
            before, data = self._data, self.get_data()
            yield data
            if self._data is not before:
                raise StateError(
                    f"the data of context '{self.id}' were changed by another while a block of `changing` was open: "
                    "await nothing in the block"
                )
            self.set_data(data)

    # --- one for each run

    def fresh(self) -> Self:
        """The same context with its initial data: each run and agent node has its own."""
        other = copy.copy(self)
        other._data = other._start = self._initial
        other._observe = None
        other._lock = threading.RLock()
        return other

    def observe(self, observer: Observer) -> None:
        """Have each change of the data told before it is made; what the observer raises refuses the change."""
        self._observe = observer

    @property
    def is_changed(self) -> bool:
        """Whether the data differ from those that it began with, or that were loaded."""
        return self._data is not self._start and self._data != self._start

    def dump(self) -> Any:
        """The data as a JSON value; a `StateError` where they hold what JSON cannot."""
        return self.to_json(self._data)

    def to_json(self, data: D) -> Any:
        """Data that it has, or had, as `dump` gives them."""
        try:
            dump = data.model_dump(mode="json", by_alias=True, round_trip=True)
        except ValueError as error:
            raise StateError(f"the data of context '{self.id}' are no JSON values: {error}") from error
        return _name_as_read(dump, data, is_whole=False)

    def load(self, value: Any) -> None:
        """Take over what `dump` gave, also before the schema was changed (`upgrade_data`); what does not fit is a
        `StateError`."""
        try:
            validated = self._read_json(value)
        except StateError as error:
            upgraded = self.upgrade_data(copy.deepcopy(value))
            if upgraded == value:
                raise StateError(
                    f"{error}; where the schema was changed since they were kept, define `upgrade_data` in the "
                    f"context, or remove them from the session (`flowengine memory rm NAME --context {self.id}`)"
                ) from error
            validated = self._read_json(upgraded)
        with self._lock:
            self._data = self._start = validated

    def _read_json(self, value: Any) -> D:
        # Through JSON text: only there do strict models read dates and enums from what JSON has.
        return self._check_data(lambda: self.data_schema.model_validate_json(json.dumps(value)))

    def _check_declaration(self) -> None:
        for name in ("id", "description"):
            if not isinstance(getattr(self, name), str):
                raise DefinitionError(f"{type(self).__name__}.{name} must be text, not {getattr(self, name)!r}")
        if not self.id:
            raise DefinitionError(f"{type(self).__name__} has no id: contexts are found, and kept, by it")
        if self.merge not in ("error", "changes"):
            raise DefinitionError(f"context '{self.id}': merge is 'error' or 'changes', not {self.merge!r}")
        schema: object = getattr(self, "data_schema", None)
        if not (isinstance(schema, type) and issubclass(schema, BaseModel)):
            raise DefinitionError(f"context '{self.id}': data_schema must be a pydantic model's class, not {schema!r}")

    def _validate_data(self, data: D | Mapping[str, Any]) -> D:
        # An instance too: it may have been changed since it was checked.
        plain: Any = data
        if isinstance(data, BaseModel):
            dump = data.model_dump(by_alias=True, round_trip=True, warnings=False)
            plain = _name_as_read(dump, data, is_whole=True)
        return self._check_data(lambda: self.data_schema.model_validate(copy.deepcopy(plain)))

    def _check_data(self, validate: Callable[[], D]) -> D:
        try:
            return validate()
        except ValidationError as error:
            problem = f"context '{self.id}' do not fit {self.data_schema.__name__}: {_format_problems(error)}"
            raise StateError(f"the data of {problem}") from error


def _name_as_read(dump: Any, value: Any, *, is_whole: bool) -> Any:
    """Returns pydantic's dump of a value, with the keys under which it reads them: a field may have one alias for each.

    `is_whole`: with the fields that are never written, as they are.
    """
    if isinstance(value, RootModel):
        return _name_as_read(dump, cast("RootModel[Any]", value).root, is_whole=is_whole)
    if isinstance(value, BaseModel) and isinstance(dump, dict):
        remaining = dict(cast("dict[str, Any]", dump))
        named_fields: dict[str, Any] = {}
        for name, field in type(value).model_fields.items():
            key, inner = field.serialization_alias or name, getattr(value, name)
            if key in remaining:
                named_fields[_key_of(name, field)] = _name_as_read(remaining.pop(key), inner, is_whole=is_whole)
            elif is_whole:
                named_fields[_key_of(name, field)] = inner
        return named_fields | remaining
    if isinstance(value, Mapping) and isinstance(dump, dict):
        entries = zip(cast("dict[Any, Any]", dump).items(), cast("Mapping[Any, Any]", value).values(), strict=False)
        return {key: _name_as_read(each, inner, is_whole=is_whole) for (key, each), inner in entries}
    if type(dump) in (list, tuple) and isinstance(value, list | tuple):
        pairs = zip(dump, cast("Sequence[Any]", value), strict=False)
        return type(dump)(_name_as_read(each, inner, is_whole=is_whole) for each, inner in pairs)
    return dump


def _key_of(name: str, field: FieldInfo) -> str:
    """The key of a field in what is read."""
    alias = field.validation_alias
    choices = alias.choices if isinstance(alias, AliasChoices) else [alias]
    return next((each for each in choices if isinstance(each, str)), name)


def _to_method(function: Any) -> Callable[..., Any]:
    """A function, or what it always gives, as a method: a callable object in a class would not be bound."""

    def method(self: Any, *args: Any) -> Any:
        return function(self, *args) if callable(function) else function

    return method


def _format_problems(error: ValidationError) -> str:
    """Formats pydantic's errors, five at most."""
    problems = error.errors(include_url=False, include_context=False)
    lines = [f"{'.'.join(map(str, each['loc'])) or 'the data'}: {each['msg']}" for each in problems[:5]]
    return "; ".join([*lines, f"and {len(problems) - 5} more"] if len(problems) > 5 else lines)
