"""Holds what an agent draws on beside its own texts: context providers, typed contexts, skills.

As users give them they are checked when the agent is made. In a run each provider and context begins with what earlier
nodes kept, and adds to it; under which names that is kept is known here. What becomes a memory is each provider's own
matter, and what enters a prompt that of `prompt_builder`.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from os import PathLike, fspath
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias, cast

from flowengine.agents.context import (
    FAILED,
    MEMORY,
    ContextProvider,
    ContextProviderFactory,
    call_guarded,
    clear_providers,
    entry_of,
    read_remembered,
    tell_providers,
    to_kept_items,
)
from flowengine.agents.settings import check_count
from flowengine.agents.typed_contexts import ContextManager, TypedContext
from flowengine.core import Gateway, describe_value, ignore_record
from flowengine.errors import DefinitionError, refuse_other_kind

if TYPE_CHECKING:
    from flowengine.agents.skills import SkillChoice, SkillStore
    from flowengine.agents.skills.sandbox import Sandbox

ProviderConfig: TypeAlias = str | Sequence[str | Mapping[str, Any]]
"""The values a user may give as `context_providers_config`: YAML, or its list as data."""

ContextChoice: TypeAlias = TypedContext[Any] | ContextManager
"""The values a user may give as one of `contexts`."""

MemoryChoice: TypeAlias = "str | PathLike[str] | Mapping[str, Any] | ContextProvider"
"""The values a user may give as `memory`: the file that holds it, the settings of a `LongTermMemoryProvider`, or a
source."""


@dataclass(frozen=True, slots=True)
class Sources:
    """Standing alone, an agent works with these; in a flow each run and node with fresh ones."""

    providers: tuple[ContextProvider, ...] = ()
    """Context providers, in the order of their chain."""
    contexts: ContextManager | None = None
    skills: SkillStore | None = None
    sandbox: Sandbox | None = None
    """The sandbox of skills' scripts; None: one where nothing is allowed that is not confined."""
    budget: int | None = None
    """Tokens that a prompt may have; None: what the model's window leaves beside its answer."""

    def names(self) -> list[str]:
        """Providers, contexts and folders of skills by name."""
        return [
            *(each.provider_name for each in self.providers),
            *(each.id for each in (self.contexts.context_list if self.contexts is not None else ())),
            *(each.name for each in (self.skills.roots if self.skills is not None else ())),
        ]

    async def clear(self) -> None:
        """Have the providers forget; what fails is in the log."""
        await clear_providers(self.providers, ignore_record)


def sources_of(
    providers: Iterable[ContextProvider],
    config: ProviderConfig | None,
    contexts: Iterable[ContextChoice],
    memory: MemoryChoice | None,
    skills: SkillChoice | None,
    sandbox: Sandbox | None,
    budget: int | None,
) -> Sources:
    """The sources as users give them."""
    chain = (*_check_list("context_providers", providers, (ContextProvider,), _IN_CONFIG), *_make_configured(config))
    if memory is not None:
        chain = (*chain, _open_memory(memory))  # Behind the transforms: it has been chosen for the query already.
    typed_contexts = _check_list("contexts", contexts, (TypedContext, ContextManager))
    if budget is not None:
        check_count("context_budget", budget, 1)
    if sandbox is not None:
        _check_sandbox(sandbox)
        if skills is None:
            raise DefinitionError("skill_sandbox is where scripts of skills run: give skills as well")
    return Sources(
        chain, _make_manager(typed_contexts), None if skills is None else _open_store(skills), sandbox, budget
    )


_IN_CONFIG = "; configuration goes into context_providers_config"


def _make_configured(config: ProviderConfig | None) -> list[ContextProvider]:
    if config is None:
        return []
    if isinstance(config, str):
        return ContextProviderFactory.create_from_yaml(config)
    return ContextProviderFactory.create_from_config(config)


def _open_memory(memory: Any) -> ContextProvider:
    if isinstance(memory, ContextProvider):
        return memory
    # Imported here: most agents that draw on anything remember nothing for good.
    from flowengine.agents.context import LongTermMemoryProvider

    if isinstance(memory, str | PathLike):
        return LongTermMemoryProvider.from_config({"store": fspath(cast("PathLike[str]", memory))})
    if isinstance(memory, Mapping):
        return LongTermMemoryProvider.from_config(cast("Mapping[str, Any]", memory))
    raise DefinitionError(
        "memory must be a file, the settings of a LongTermMemoryProvider, or a context provider, "
        f"not {describe_value(memory)}"
    )


def _open_store(skills: SkillChoice) -> SkillStore:
    from flowengine.agents.skills import SkillStore  # Most agents have no skills.

    return skills if isinstance(skills, SkillStore) else SkillStore(skills)


def _check_sandbox(sandbox: Sandbox) -> None:
    from flowengine.agents.skills.sandbox import Sandbox  # As above.

    refuse_other_kind(sandbox, Sandbox, "skill_sandbox is a Sandbox", DefinitionError)


def _make_manager(contexts: Sequence[Any]) -> ContextManager | None:
    if not contexts:
        return None
    if len(contexts) == 1 and isinstance(contexts[0], ContextManager):
        return contexts[0]  # The user's own: what is registered with it later is there as well.
    manager = ContextManager()
    for each in contexts:
        for context in each.context_list if isinstance(each, ContextManager) else (each,):
            manager.register_context(context)
    return manager


def _check_list(name: str, values: Any, kinds: tuple[type[Any], ...], hint: str = "") -> list[Any]:
    if isinstance(values, (str, Mapping, *kinds)) or not isinstance(values, Iterable):
        raise DefinitionError(f"{name} must be a list, not {describe_value(cast(object, values))}{hint}")
    items = list(cast("Iterable[Any]", values))
    for each in items:
        if not isinstance(each, kinds):
            allowed = " or ".join(kind.__name__ for kind in kinds)
            raise DefinitionError(f"one of {name} is no {allowed}: {describe_value(each)}{hint}")
    return items


# --- Providers in a run

_CONVERSATION: Final = "conversation"
"""The provider, and the name under which its new interactions are kept."""


class _OpenProvider(NamedTuple):
    """A provider of this run."""

    provider: ContextProvider
    name: str
    """The name under which its state is kept."""
    before: Any
    """The state that its ancestors keep."""


async def load_provider_state(
    providers: Sequence[ContextProvider], values: Mapping[str, Any] | None, gateway: Gateway
) -> ProviderState:
    """The providers of one run, which are the agent's own where it stands alone (`values` is None).

    One that cannot be made anew is told of, and the run goes on without it.
    """
    if values is None:
        return ProviderState([_OpenProvider(each, "", None) for each in providers], gateway)
    open_providers: list[_OpenProvider] = []
    for number, provider in enumerate(providers):
        name = _name_in_store(provider, providers[:number])
        before = read_remembered(provider, values) if provider.adds else values.get(name)
        fresh = await call_guarded(provider, _load_provider, provider, before or None, note=gateway.note)
        if fresh is not FAILED:
            open_providers.append(_OpenProvider(fresh, name, before))
    return ProviderState(open_providers, gateway)


class ProviderState:
    """The context providers of one run, and the state they keep."""

    def __init__(self, open_providers: Sequence[_OpenProvider], gateway: Gateway) -> None:
        self.providers = [each.provider for each in open_providers]
        self._open_providers = open_providers
        self._gateway = gateway

    async def tell(self, interaction: Mapping[str, Any]) -> None:
        """Tell all providers of an interaction that is over."""
        await tell_providers(self.providers, interaction, self._gateway.note)

    async def collect_kept(self, interaction: Mapping[str, Any]) -> dict[str, Any]:
        """Name → what the providers add to what the node's ancestors keep, or put in its place."""
        values: dict[str, Any] = {}
        memory: list[Any] = []
        for provider, name, before in self._open_providers:
            if name == _CONVERSATION:
                entry = entry_of(interaction)
                values |= {} if entry is None else {name: [entry]}
                continue
            value = await call_guarded(provider, _dump_provider, provider, note=self._gateway.note)
            if value is FAILED or value is None:
                continue
            if provider.adds:
                memory += to_kept_items(provider, value[len(before) :])
            else:
                values[name] = value
        return values | {MEMORY: memory} if memory else values


async def _load_provider(provider: ContextProvider, state: Any) -> ContextProvider:
    """A fresh one that remembers what was kept."""
    fresh = provider.fresh()
    if state is not None:
        fresh.load(state)
    return fresh


async def _dump_provider(provider: ContextProvider) -> Any:
    value = provider.dump()
    json.dumps(value)  # What cannot be written down is told of as the provider's failure.
    return value


def _name_in_store(provider: ContextProvider, before: Sequence[ContextProvider]) -> str:
    """The name under which a provider is kept; of equal ones the second has a number, and so on.

    Conversations have one name for all, since what is kept is what was said.
    """
    name = provider.provider_name
    if name == _CONVERSATION:
        return name
    number = sum(each.provider_name == name for each in before) + 1
    return f"provider:{name}.{number}" if number > 1 else f"provider:{name}"
