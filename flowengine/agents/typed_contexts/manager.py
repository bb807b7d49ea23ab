"""Manages the typed contexts of one agent: renders them in order, and passes every tool call to each of them.

It knows their order and what each of them keeps. It knows no agent: the caller of tools passes the results in,
and records the failures that it gives back.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import reduce
from typing import TYPE_CHECKING, Any, Final, cast

from flowengine.agents.context import join_fragments, settle
from flowengine.agents.tools import ToolSet
from flowengine.agents.typed_contexts.data_changes import apply_change
from flowengine.agents.typed_contexts.typed import ToolCallResult, TypedContext
from flowengine.core import Fragment, ProviderFailed, describe_error
from flowengine.errors import DefinitionError, RunError, find_attribute, refuse_other_kind
from flowengine.models import CallSlots

CHANGES_OF: Final = "changes:"
"""How names begin under which the changes of a context are kept that are to be added up (`TypedContext.merge`)."""
_LOGGER: Final = logging.getLogger("flowengine.typed_contexts")

AnyContext = TypedContext[Any]


class ContextManager:
    """Some typed contexts, in the order in which they were registered.

    >>> from pydantic import BaseModel
    >>> class Guest(BaseModel):
    ...     name: str = "Ann"
    >>> manager = ContextManager([TypedContext.create("guest", "Who is here", Guest)])
    >>> manager.find_context_by_id("guest").get_data().name
    'Ann'
    """

    def __init__(self, contexts: Iterable[AnyContext] = ()) -> None:
        self._contexts: dict[str, AnyContext] = {}
        self._telling = CallSlots(1)  # Agents may run in several threads.
        for each in contexts:
            self.register_context(each)

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            return find_attribute(self, name, "ContextManager")

    def register_context(self, context: AnyContext) -> None:
        """Add one at the end; an id that is there already is a `DefinitionError`."""
        refuse_other_kind(context, TypedContext, "a ContextManager holds TypedContexts", DefinitionError)
        if context.id in self._contexts:
            raise DefinitionError(f"two typed contexts have the id '{context.id}': rename one of them")
        self._contexts[context.id] = context

    def find_context_by_id(self, id: str) -> AnyContext | None:
        """The context of an id; None where there is none."""
        return self._contexts.get(id)

    @property
    def context_list(self) -> Sequence[AnyContext]:
        """All contexts, in order."""
        return tuple(self._contexts.values())

    async def render_prompt(self, query: str | None = None) -> str:
        """All contexts' texts, in order, a blank line between them.

        With a query, contexts that can look things up add what they find. A context that cannot be rendered is a
        `RunError` that names it: its tools would change what the model cannot see.
        """
        return join_fragments(await self.fragments(query))

    async def fragments(self, query: str | None = None) -> list[Fragment]:
        """The same, a fragment each; contexts that say nothing have none."""
        rendered = [(each, await _render(each, query)) for each in self._contexts.values()]
        return [Fragment(text, _name_of(each), label=each.id) for each, text in rendered if text.strip()]

    def tool_sets(self) -> list[ToolSet]:
        """The sets of all contexts, as they are now; each says whose it is."""
        return [sourced for context in self._contexts.values() for sourced in _list_sets(context)]

    async def tool_called(self, result: ToolCallResult) -> list[ProviderFailed]:
        """Tell every context of a tool call, one call at a time; the handlers that raised are given back.

        They are logged too, and the other contexts are told all the same.
        """
        failures: list[ProviderFailed] = []
        async with self._telling.take():
            for context in self._contexts.values():
                try:
                    await settle(context.on_tool_call(result))
                except Exception as error:
                    message = describe_error(error)
                    _LOGGER.warning("context '%s' failed on the call of '%s': %s", context.id, result.name, message)
                    failures.append(ProviderFailed(_name_of(context), message))
        return failures

    # --- one for each run

    def fresh(self) -> ContextManager:
        """The same contexts, each with its initial data."""
        return ContextManager(each.fresh() for each in self._contexts.values())

    def dump(self) -> dict[str, Any]:
        """Returns the changes since `load`: name (`context:<id>`) → data as a JSON value."""
        return {_name_of(each): each.dump() for each in self._contexts.values() if each.is_changed}

    def load(self, values: Mapping[str, Any]) -> None:
        """Take over what `dump` gave; other names are other owners' matter."""
        for each in self._contexts.values():
            if _name_of(each) in values:
                each.load(values[_name_of(each)])
            changes = values.get(f"{CHANGES_OF}{each.id}", ())
            if changes:
                each.load(reduce(apply_change, changes, each.dump()))


def _name_of(context: AnyContext) -> str:
    """The name under which its data are kept, and its text and its failures are told of."""
    return f"context:{context.id}"


async def _render(context: AnyContext, query: str | None) -> str:
    try:
        text = cast(object, await context.prompt_text(query))
    except Exception as error:
        raise RunError(f"context '{context.id}' cannot be rendered: {describe_error(error)}") from error
    if not isinstance(text, str):
        raise RunError(f"context '{context.id}': render_prompt must return text, not {type(text).__name__}")
    return text


def _list_sets(context: AnyContext) -> list[ToolSet]:
    try:
        answer = cast(object, context.tool_set())
        sets = (
            [*cast("Iterable[object]", answer)] if isinstance(answer, Iterable) else [] if answer is None else [answer]
        )
    except Exception as error:  # Also of a generator, which fails while it is read.
        raise RunError(f"context '{context.id}': tool_set failed: {describe_error(error)}") from error
    for each in sets:
        if not isinstance(each, ToolSet):
            raise DefinitionError(f"context '{context.id}': tool_set must return ToolSets, found {each!r:.80}")
    tool_sets = cast("list[ToolSet]", sets)
    return [each if each.source else replace(each, source=f"context '{context.id}'") for each in tool_sets]
