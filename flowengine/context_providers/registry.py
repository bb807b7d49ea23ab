"""Finds the class of a provider by name: our own, those that users register, and those that packages bring.

It imports nothing before its name is asked for, and makes no provider.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from importlib import import_module
from importlib.metadata import EntryPoint
from typing import TYPE_CHECKING, Any, Final, cast

from flowengine.context_providers.parameters import ParameterError
from flowengine.core.user_code import find_entry_points, load_entry_point
from flowengine.errors import DefinitionError, did_you_mean, refuse_other_kind

if TYPE_CHECKING:
    from flowengine.context_providers.provider import ContextProvider

__all__ = ["GROUP", "OURS", "known_names", "object_of", "provider_class", "register"]

# --- Our own, by name

GROUP: Final = "flowengine.context_providers"
"""Entry points under which installed packages bring theirs."""

OURS: Final = {
    "conversation": "flowengine.context_providers.conversation:ConversationHistoryProvider",
    "fixed_file": "flowengine.context_providers.fixed_file:FixedFileProvider",
    "source_code": "flowengine.context_providers.source_code.source_code:SourceCodeProvider",
    "compressor": "flowengine.context_providers.compressor.compressor:ContextCompressorProvider",
    "cut": "flowengine.context_providers.cut:CutProvider",
    "filter": "flowengine.context_providers.filter:ContextFilterProvider",
    "long_term_memory": "flowengine.context_providers.long_term_memory:LongTermMemoryProvider",
    "retrieval": "flowengine.context_providers.retrieval:RetrievalProvider",
    "custom_data": "flowengine.context_providers.custom_data:CustomDataProvider",
}
"""Name → `module:Class`."""

ALIASES: Final = {"conversation_history": "conversation"}


_registered: Final[dict[str, type[ContextProvider]]] = {}


def register(name: str, provider: type[ContextProvider]) -> None:
    """Make a class known under a name; a class without one of its own is named so as well."""
    refuse_other_kind(name, str, "a context provider's name is text", DefinitionError)
    if name in OURS or name in ALIASES:
        raise DefinitionError(f"'{name}' is a context provider of FlowEngine's own; choose another name")
    _registered[name] = _check_class(name, provider)
    if not provider.provider_name:
        provider.provider_name = name


def known_names() -> list[str]:
    """Every name that there is, aliases left out."""
    return [*dict.fromkeys((*OURS, *_registered, *_find_in_packages()))]


def provider_class(name: str) -> type[ContextProvider]:
    """The class of a name; an unknown one is a `ParameterError` with the nearest known name."""
    canonical = ALIASES.get(name, name)
    found = _registered.get(canonical)
    if found is not None:
        return found
    if canonical in OURS:
        return cast("type[ContextProvider]", object_of(OURS[canonical]))
    packaged = _find_in_packages()
    if canonical in packaged:
        return _load(canonical, packaged[canonical])
    known = (*known_names(), *ALIASES)
    raise ParameterError(f"there is no context provider '{name}'{did_you_mean(name, known) or _join_names(known)}")


def object_of(target: str) -> Any:
    """Imports `module:name`; raises `DefinitionError` if that is not possible."""
    module, _, name = target.partition(":")
    try:
        return getattr(import_module(module), name)
    except Exception as error:  # A module is foreign code: whatever it raises is its own failure.
        raise DefinitionError(f"'{target}' cannot be loaded: {type(error).__name__}: {error}") from error


def _load(name: str, point: EntryPoint) -> type[ContextProvider]:
    found = load_entry_point(point, f"the context provider '{name}'")
    register(name, found)
    return found


def _check_class(name: str, provider: object) -> type[ContextProvider]:
    from flowengine.context_providers.provider import ContextProvider

    if isinstance(provider, type) and issubclass(provider, ContextProvider):
        return provider
    raise DefinitionError(f"'{name}' must be a subclass of ContextProvider, not {provider!r:.80}")


def _find_in_packages() -> Mapping[str, EntryPoint]:
    return find_entry_points(GROUP)


def _join_names(names: Iterable[str]) -> str:
    return f"; there are {', '.join(names)}"
