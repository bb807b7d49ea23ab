"""Keeps the state of an agent's providers in a run: each begins with what earlier nodes kept, and adds to it.

It knows under which names that is kept. What becomes a memory is each provider's own matter.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final, NamedTuple, cast
from uuid import uuid4

from flowengine.context_providers.chain import (
    FAILED,
    MEMORY,
    call_guarded,
    read_remembered,
    tell_providers,
    to_kept_items,
)
from flowengine.context_providers.conversation import entry_of
from flowengine.context_providers.provider import ContextProvider
from flowengine.core.records import Gateway
from flowengine.tools.tool import Tool, ToolResult
from flowengine.tools.toolset import ToolSet
from flowengine.typed_contexts.manager import ContextManager

__all__ = ["ProviderState", "TypedContextSnapshots", "data_of", "load_provider_state"]

# --- Snapshots of typed contexts, which survive a crash

_CARRIED: Final = "typed_contexts"
_BY: Final = "by"


def data_of(contexts: ContextManager | None) -> dict[str, Any]:
    """The data of all contexts, under the names by which they are kept."""
    return {f"context:{each.id}": each.dump() for each in (contexts.context_list if contexts is not None else ())}


class TypedContextSnapshots:
    """Wraps the tools of a run's contexts, and takes their results apart again."""

    def __init__(self, contexts: ContextManager) -> None:
        self._contexts = contexts
        self._by = uuid4().hex
        """Results that carry this were made here and now: the contexts have their data already."""

    def wrap_sets(self, sets: Sequence[ToolSet]) -> list[ToolSet]:
        return [
            ToolSet(
                each.name,
                each.description,
                [replace(tool, run=_SnapshotRun(tool, self._contexts, self._by)) for tool in each.tools],
                each.active,
                each.source,
            )
            for each in sets
        ]

    def unwrap_result(self, tool: Tool, result: ToolResult) -> ToolResult:
        """The result as the tool gave it; one from before a crash gives the contexts their data back.

        What other tools give is theirs, whatever it looks like: no server may write into a context.
        """
        if not isinstance(tool.run, _SnapshotRun) or not _is_snapshot(result.value):
            return result
        carried: Mapping[str, Any] = result.value
        if carried[_BY] != self._by:
            self._contexts.load(carried[_CARRIED])
        return result._replace(value=carried.get("value"))


class _SnapshotRun(NamedTuple):
    """Runs the tool of a context, and adds what has changed in the contexts to its result."""

    tool: Tool
    contexts: ContextManager
    by: str

    async def __call__(self, arguments: Mapping[str, Any]) -> ToolResult:
        before = data_of(self.contexts)
        result = await self.tool.run(arguments)
        changed = {name: data for name, data in data_of(self.contexts).items() if before[name] != data}
        if not changed and not _is_snapshot(result.value):
            return result
        return result._replace(value={"value": _json_or_none(result.value), _CARRIED: changed, _BY: self.by})


def _is_snapshot(value: Any) -> bool:
    return isinstance(value, Mapping) and cast("Mapping[Any, Any]", value).keys() >= {_CARRIED, _BY}


def _json_or_none(value: Any) -> Any:
    """The value where it can be written down, else None: then the result's text has to do."""
    try:
        json.dumps(value)
    except (TypeError, ValueError):
        return None
    return value


_CONVERSATION: Final = "conversation"
"""The provider, and the name under which its new interactions are kept."""


class _Held(NamedTuple):
    """A provider of this run."""

    provider: ContextProvider
    name: str
    """Under which it is kept."""
    before: Any
    """What its ancestors keep."""


async def load_provider_state(
    providers: Sequence[ContextProvider], kept: Mapping[str, Any] | None, gateway: Gateway
) -> ProviderState:
    """The providers of one run, which are the agent's own where it stands alone (`kept` is None).

    One that cannot be made anew is told of, and the run goes on without it.
    """
    if kept is None:
        return ProviderState([_Held(each, "", None) for each in providers], gateway)
    held: list[_Held] = []
    for number, provider in enumerate(providers):
        name = _name_in_store(provider, providers[:number])
        before = read_remembered(provider, kept) if provider.adds else kept.get(name)
        made = await call_guarded(provider, _load_provider, provider, before or None, note=gateway.note)
        if made is not FAILED:
            held.append(_Held(made, name, before))
    return ProviderState(held, gateway)


class ProviderState:
    """Of one run."""

    def __init__(self, held: Sequence[_Held], gateway: Gateway) -> None:
        self.providers = [each.provider for each in held]
        self._held = held
        self._gateway = gateway

    async def tell(self, interaction: Mapping[str, Any]) -> None:
        """Tell all providers of an interaction that is over."""
        await tell_providers(self.providers, interaction, self._gateway.note)

    async def collect_kept(self, interaction: Mapping[str, Any]) -> dict[str, Any]:
        """Name → what the providers add to what the node's ancestors keep, or put in its place."""
        kept: dict[str, Any] = {}
        memory: list[Any] = []
        for provider, name, before in self._held:
            if name == _CONVERSATION:
                said = entry_of(interaction)
                kept |= {} if said is None else {name: [said]}
                continue
            value = await call_guarded(provider, _dump_provider, provider, note=self._gateway.note)
            if value is FAILED or value is None:
                continue
            if provider.adds:
                memory += to_kept_items(provider, value[len(before) :])
            else:
                kept[name] = value
        return kept | {MEMORY: memory} if memory else kept


async def _load_provider(provider: ContextProvider, kept: Any) -> ContextProvider:
    """A fresh one that remembers what was kept."""
    fresh = provider.fresh()
    if kept is not None:
        fresh.load(kept)
    return fresh


async def _dump_provider(provider: ContextProvider) -> Any:
    value = provider.dump()
    json.dumps(value)  # What cannot be written down is told of as the provider's failure.
    return value


def _name_in_store(provider: ContextProvider, before: Sequence[ContextProvider]) -> str:
    """Under which a provider is kept; of equal ones the second has a number, and so on.

    Conversations have one name for all, since what is kept is what was said.
    """
    name = provider.provider_name
    if name == _CONVERSATION:
        return name
    number = sum(each.provider_name == name for each in before) + 1
    return f"provider:{name}.{number}" if number > 1 else f"provider:{name}"
