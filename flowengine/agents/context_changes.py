"""Keeps what tool calls change in a run's typed contexts on record, so that a resumed node finds the same data.

1. The result of a call carries the changes that it made, each with its place in the order of all changes of the node.
   What a call makes after its end, or what one made that was given up, does not count, in a live run neither.
2. Where a round's calls are on record, their changes are made before its other calls run, in the order in which they
   happened. Those that are only found out when they are served (from another run) follow at the end of the round.
3. A change says what is different, not how all data were: changes of calls without a record are in nobody else's.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import replace
from itertools import count
from operator import itemgetter
from typing import Any, Final, NamedTuple, cast
from uuid import uuid4

from flowengine.agents.tools import Tool, ToolResult, ToolSet
from flowengine.agents.typed_contexts import CHANGES_OF, ContextManager, apply_change, describe_change
from flowengine.core import ToolCall, tool_key
from flowengine.errors import StateError

_CHANGES: Final = "context_changes"
_SNAPSHOT: Final = "typed_contexts"
"""The key that journals of before 2026-11-28 have instead: the data of all contexts that the call changed."""
_BY: Final = "by"


def data_of(contexts: ContextManager | None) -> dict[str, Any]:
    """The data of all contexts, under the names by which they are kept."""
    return {_name_of(each.id): each.dump() for each in (contexts.context_list if contexts is not None else ())}


def kept_changes(contexts: ContextManager | None, before: Mapping[str, Any]) -> dict[str, Any]:
    """Returns what a node keeps of contexts that it has changed: the data, or the change where changes are added up.

    `before`: their data before (`data_of`).
    """
    values: dict[str, Any] = {}
    for each in contexts.context_list if contexts is not None else ():
        data = each.dump()
        change = describe_change(before[_name_of(each.id)], data)
        if change is not None and each.merge == "changes":
            values[f"{CHANGES_OF}{each.id}"] = [change]
        elif change is not None:
            values[_name_of(each.id)] = data
    return values


def _name_of(context: str) -> str:
    return f"context:{context}"


class _Change(NamedTuple):
    number: int
    """The place in the order of all changes of the node."""
    context: str
    before: Any
    after: Any


class _OpenCall:
    """A call of a context's tool, with what it has changed so far."""

    __slots__ = ("changes", "is_open", "owner")

    def __init__(self, owner: ContextChanges) -> None:
        self.owner = owner
        self.is_open = True
        self.changes: list[_Change] = []


_CALL: Final[ContextVar[_OpenCall | None]] = ContextVar("_CALL", default=None)


class ContextChanges:
    """The changes of contexts in one run of an agent in a flow: wraps the tools of its contexts, and takes their
    results apart again."""

    def __init__(self, contexts: ContextManager, recorded: Iterable[Any]) -> None:
        """`recorded`: what an interrupted attempt of the node has told."""
        self._contexts = contexts
        self._by = uuid4().hex
        """Results that carry this were made here and now: the contexts have their changes already."""
        self._open: list[_OpenCall] = []
        self._recorded: defaultdict[str, list[Any]] = defaultdict(list)
        """Key of a call → what its records carry, for those that have not been asked for again."""
        self._replayed: list[Any] = []
        """The recorded changes of calls that are served in this round, which the contexts have already."""
        self._pending: list[Any] = []
        """Changes that were served in this round, and are to be made at its end."""
        numbers = [0]
        for each in recorded:
            if type(each) is ToolCall and not each.started and _carries(each.value):
                self._recorded[each.key].append(each.value)
                numbers += [number for number, *_ in each.value.get(_CHANGES, ())]
        self._numbers = count(max(numbers) + 1)
        for each in contexts.context_list:
            each.observe(self._note_change)

    def wrap_sets(self, sets: Sequence[ToolSet]) -> list[ToolSet]:
        return [
            ToolSet(
                each.name,
                each.description,
                [replace(tool, run=_ObservedRun(tool, self)) for tool in each.tools],
                each.active,
                each.source,
            )
            for each in sets
        ]

    def begin_round(self, calls: Iterable[tuple[Tool, Mapping[str, Any]]]) -> None:
        """Make the changes of those of the calls that are on record."""
        due: list[Any] = []
        for tool, arguments in calls:
            changes = self._recorded.get(tool_key(tool.name, arguments)) if isinstance(tool.run, _ObservedRun) else None
            if changes:
                due.append(changes.pop(0))
        self._make_changes(due)
        self._replayed = due

    def unwrap_result(self, tool: Tool, result: ToolResult) -> ToolResult:
        """The result as the tool gave it; the changes of one that was served are made at the end of the round.

        What other tools give is theirs, whatever it looks like: no server may write into a context.
        """
        if not isinstance(tool.run, _ObservedRun) or not _carries(result.value):
            return result
        if result.value[_BY] != self._by and result.value not in self._replayed:
            self._pending.append(result.value)
        return result._replace(value=result.value.get("value"))

    def end_round(self) -> None:
        changes, self._pending = self._pending, []
        self._make_changes(changes)

    def open_call(self) -> _OpenCall:
        call = _OpenCall(self)
        self._open.append(call)
        return call

    def close_call(self, call: _OpenCall) -> list[Any]:
        """The changes of a call that has ended, as JSON values; what it still changes is refused."""
        self._open.remove(call)
        call.is_open = False
        return [
            [number, context, change]
            for number, context, before, after in call.changes
            if (change := self._describe(context, before, after)) is not None
        ]

    def give_up(self, call: _OpenCall) -> None:
        """Take back what a call has changed that was given up: nobody will know of it."""
        self._open.remove(call)
        call.is_open = False
        for _, context, before, after in reversed(call.changes):
            undo = self._describe(context, after, before)
            if undo is not None:
                self._change_data(context, undo)

    def add_carried(self, result: ToolResult, changes: list[Any]) -> ToolResult:
        if not changes and not _carries(result.value):
            return result
        return result._replace(value={"value": _json_or_none(result.value), _CHANGES: changes, _BY: self._by})

    def _note_change(self, context: str, before: Any, after: Any) -> None:
        """Called in whatever thread makes the change."""
        call = _CALL.get()
        if call is None or call.owner is not self:  # A thread of the tool's own knows no call.
            call = self._open[-1] if self._open else None
        elif not call.is_open:
            raise StateError(f"a tool call that has ended cannot change the data of context '{context}' any more")
        if call is not None:
            call.changes.append(_Change(next(self._numbers), context, before, after))

    def _describe(self, context: str, before: Any, after: Any) -> Any:
        target = self._contexts.find_context_by_id(context)
        return None if target is None else describe_change(target.to_json(before), target.to_json(after))

    def _make_changes(self, carried: Iterable[Mapping[str, Any]]) -> None:
        changes: list[Any] = []
        for each in carried:
            self._contexts.load(each.get(_SNAPSHOT, {}))
            changes += each.get(_CHANGES, ())
        for _, context, change in sorted(changes, key=itemgetter(0)):
            self._change_data(context, change)

    def _change_data(self, context: str, change: Any) -> None:
        target = self._contexts.find_context_by_id(context)
        if target is not None:
            target.load(apply_change(target.dump(), change))


class _ObservedRun(NamedTuple):
    """Runs the tool of a context, and adds what it has changed in the contexts to its result."""

    tool: Tool
    changes: ContextChanges

    async def __call__(self, arguments: Mapping[str, Any]) -> ToolResult:
        call = self.changes.open_call()
        token = _CALL.set(call)
        try:
            result = await replace(self.tool, timeout=None).call(arguments)
        except BaseException:  # It took too long, or the run was stopped.
            self.changes.give_up(call)
            raise
        finally:
            _CALL.reset(token)
        return self.changes.add_carried(result, self.changes.close_call(call))


def _carries(value: Any) -> bool:
    if not isinstance(value, Mapping) or _BY not in value:
        return False
    return not {_CHANGES, _SNAPSHOT}.isdisjoint(cast("Mapping[Any, Any]", value))


def _json_or_none(value: Any) -> Any:
    """The value where it can be written down, else None: then the result's text has to do."""
    try:
        json.dumps(value)
    except (TypeError, ValueError):
        return None
    return value
