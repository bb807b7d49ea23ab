"""What an agent's providers remember: in a run each begins with what the node's ancestors keep, and adds to it.

It knows under which names that is kept. What becomes a memory is each provider's own matter.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from flowengine.providers.chain import FAILED, guarded, told
from flowengine.providers.conversation import entry_of
from flowengine.providers.keeping import MEMORY, added, remembered
from flowengine.providers.provider import ContextProvider
from flowengine.records import Gateway

__all__ = ["Remembering", "begin_remembering"]

_CONVERSATION: Final = "conversation"
"""The provider, and the name under which its new interactions are kept."""


class _Held(NamedTuple):
    """A provider of this run."""

    provider: ContextProvider
    name: str
    """Under which it is kept."""
    before: Any
    """What its ancestors keep."""


async def begin_remembering(
    providers: Sequence[ContextProvider], kept: Mapping[str, Any] | None, gateway: Gateway
) -> Remembering:
    """The providers of one run, which are the agent's own where it stands alone (`kept` is None).

    One that cannot be made anew is told of, and the run goes on without it.
    """
    if kept is None:
        return Remembering([_Held(each, "", None) for each in providers], gateway)
    held: list[_Held] = []
    for number, provider in enumerate(providers):
        name = _name(provider, providers[:number])
        before = remembered(provider, kept) if provider.adds else kept.get(name)
        made = await guarded(provider, _loaded, provider, before or None, note=gateway.note)
        if made is not FAILED:
            held.append(_Held(made, name, before))
    return Remembering(held, gateway)


class Remembering:
    """Of one run."""

    def __init__(self, held: Sequence[_Held], gateway: Gateway) -> None:
        self.providers = [each.provider for each in held]
        self._held = held
        self._gateway = gateway

    async def tell(self, interaction: Mapping[str, Any]) -> None:
        """Tell all providers of an interaction that is over."""
        await told(self.providers, interaction, self._gateway.note)

    async def kept(self, interaction: Mapping[str, Any]) -> dict[str, Any]:
        """Name → what the providers add to what the node's ancestors keep, or put in its place."""
        kept: dict[str, Any] = {}
        memory: list[Any] = []
        for provider, name, before in self._held:
            if name == _CONVERSATION:
                said = entry_of(interaction)
                kept |= {} if said is None else {name: [said]}
                continue
            value = await guarded(provider, _dumped, provider, note=self._gateway.note)
            if value is FAILED or value is None:
                continue
            if provider.adds:
                memory += added(provider, value[len(before) :])
            else:
                kept[name] = value
        return kept | {MEMORY: memory} if memory else kept


async def _loaded(provider: ContextProvider, kept: Any) -> ContextProvider:
    """A fresh one that remembers what was kept."""
    fresh = provider.fresh()
    if kept is not None:
        fresh.load(kept)
    return fresh


async def _dumped(provider: ContextProvider) -> Any:
    value = provider.dump()
    json.dumps(value)  # What cannot be written down is told of as the provider's failure.
    return value


def _name(provider: ContextProvider, before: Sequence[ContextProvider]) -> str:
    """Under which a provider is kept; of equal ones the second has a number, and so on.

    Conversations have one name for all, since what is kept is what was said.
    """
    name = provider.provider_name
    if name == _CONVERSATION:
        return name
    number = sum(each.provider_name == name for each in before) + 1
    return f"provider:{name}.{number}" if number > 1 else f"provider:{name}"
