"""What the tools of typed contexts change survives a crash: each call's result carries the data as they were after it.

A run that is resumed serves recorded results and calls no tool twice, so the change that the tool made has to
be in its result. It knows contexts and tools; who records results is nobody's matter here.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final, TypeAlias, cast
from uuid import uuid4

from flowengine.contexts.manager import ContextManager
from flowengine.tools.tool import Tool, ToolResult
from flowengine.tools.toolset import ToolSet

__all__ = ["Carrier", "data_of"]

_CARRIED: Final = "typed_contexts"
_BY: Final = "by"

_Run: TypeAlias = Callable[[Mapping[str, Any]], Awaitable[ToolResult]]


def data_of(contexts: ContextManager) -> dict[str, Any]:
    """The data of all contexts, under the names by which they are kept."""
    return {f"context:{each.id}": each.dump() for each in contexts.context_list}


class Carrier:
    """Wraps the tools of a run's contexts, and takes their results apart again."""

    def __init__(self, contexts: ContextManager) -> None:
        self._contexts = contexts
        self._by = uuid4().hex
        """Results that carry this were made here and now: the contexts have their data already."""

    def wrapped(self, sets: Sequence[ToolSet]) -> list[ToolSet]:
        return [
            ToolSet(
                each.name,
                each.description,
                [replace(tool, run=self._carrying(tool)) for tool in each.tools],
                each.active,
                each.source,
            )
            for each in sets
        ]

    def unwrapped(self, result: ToolResult) -> ToolResult:
        """The result as the tool gave it; one from before a crash gives the contexts their data back."""
        value = result.value
        if not isinstance(value, Mapping) or not {_CARRIED, _BY} <= set(cast("Mapping[Any, Any]", value)):
            return result
        carried = cast("Mapping[str, Any]", value)
        if carried[_BY] != self._by:
            self._contexts.load(carried[_CARRIED])
        return result._replace(value=carried.get("value"))

    def _carrying(self, tool: Tool) -> _Run:
        async def run(arguments: Mapping[str, Any]) -> ToolResult:
            before = data_of(self._contexts)
            result = await tool.run(arguments)
            changed = {name: data for name, data in data_of(self._contexts).items() if before[name] != data}
            if not changed:
                return result
            return result._replace(value={"value": _plain(result.value), _CARRIED: changed, _BY: self._by})

        return run


def _plain(value: Any) -> Any:
    """The value where it can be written down, else None: then the result's text has to do."""
    try:
        json.dumps(value)
    except (TypeError, ValueError):
        return None
    return value
