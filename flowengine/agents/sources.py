"""Checks what an agent draws on beside its own texts: context providers, typed contexts, skills, as users give them.

The check is made when the agent is made. What a run does with them is the matter of `prompt_builder`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from os import PathLike, fspath
from typing import TYPE_CHECKING, Any, TypeAlias, cast

from flowengine.agents.settings import check_count
from flowengine.context_providers.chain import clear_providers
from flowengine.context_providers.factory import ContextProviderFactory
from flowengine.context_providers.provider import ContextProvider
from flowengine.core.values import describe_value
from flowengine.errors import DefinitionError, refuse_other_kind
from flowengine.typed_contexts.manager import ContextManager
from flowengine.typed_contexts.typed import TypedContext

if TYPE_CHECKING:
    from flowengine.skills.disclosure import SkillChoice
    from flowengine.skills.sandbox.sandbox import Sandbox
    from flowengine.skills.skill_store import SkillStore

__all__ = ["ContextChoice", "MemoryChoice", "ProviderConfig", "Sources", "sources_of"]

ProviderConfig: TypeAlias = str | Sequence[str | Mapping[str, Any]]
"""What a user gives as `context_providers_config`: YAML, or its list as data."""

ContextChoice: TypeAlias = TypedContext[Any] | ContextManager
"""What a user gives as one of `contexts`."""

MemoryChoice: TypeAlias = "str | PathLike[str] | Mapping[str, Any] | ContextProvider"
"""What a user gives as `memory`: the file that holds it, the settings of a `LongTermMemoryProvider`, or a source."""


@dataclass(frozen=True, slots=True)
class Sources:
    """Standing alone, an agent works with these; in a flow each run and node with fresh ones."""

    providers: tuple[ContextProvider, ...] = ()
    """In the order of their chain."""
    contexts: ContextManager | None = None
    skills: SkillStore | None = None
    sandbox: Sandbox | None = None
    """Where skills' scripts run; None: where nothing is allowed that is not confined."""
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
        """Have the providers forget."""
        await clear_providers(self.providers, _ignore_record)


async def _ignore_record(record: Any) -> None:
    """Reports nothing; what fails is in the log."""


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
    chosen = _check_list("contexts", contexts, (TypedContext, ContextManager))
    if budget is not None:
        check_count("context_budget", budget, 1)
    if sandbox is not None:
        _check_sandbox(sandbox)
        if skills is None:
            raise DefinitionError("skill_sandbox is where scripts of skills run: give skills as well")
    return Sources(chain, _make_manager(chosen), None if skills is None else _open_store(skills), sandbox, budget)


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
    from flowengine.context_providers.long_term_memory import memory_source

    if isinstance(memory, str | PathLike):
        return memory_source({"store": fspath(cast("PathLike[str]", memory))}, None)
    if isinstance(memory, Mapping):
        return memory_source(cast("Mapping[str, Any]", memory), None)
    raise DefinitionError(
        "memory must be a file, the settings of a LongTermMemoryProvider, or a context provider, "
        f"not {describe_value(memory)}"
    )


def _open_store(skills: SkillChoice) -> SkillStore:
    from flowengine.skills.skill_store import SkillStore  # Most agents have no skills.

    return skills if isinstance(skills, SkillStore) else SkillStore(skills)


def _check_sandbox(sandbox: Sandbox) -> None:
    from flowengine.skills.sandbox.sandbox import Sandbox  # As above.

    refuse_other_kind(sandbox, Sandbox, "skill_sandbox is a Sandbox", DefinitionError)


def _make_manager(chosen: Sequence[Any]) -> ContextManager | None:
    if not chosen:
        return None
    if len(chosen) == 1 and isinstance(chosen[0], ContextManager):
        return chosen[0]  # The user's own: what is registered with it later is there as well.
    manager = ContextManager()
    for each in chosen:
        for context in each.context_list if isinstance(each, ContextManager) else (each,):
            manager.register_context(context)
    return manager


def _check_list(name: str, given: Any, kinds: tuple[type[Any], ...], hint: str = "") -> list[Any]:
    if isinstance(given, (str, Mapping, *kinds)) or not isinstance(given, Iterable):
        raise DefinitionError(f"{name} must be a list, not {describe_value(cast(object, given))}{hint}")
    found = list(cast("Iterable[Any]", given))
    for each in found:
        if not isinstance(each, kinds):
            allowed = " or ".join(kind.__name__ for kind in kinds)
            raise DefinitionError(f"one of {name} is no {allowed}: {describe_value(each)}{hint}")
    return found
