"""Memories that a run held back, kept for good once it has succeeded.

What providers with a memory of their own add in a run is handed on from node to node (`NodeResult.kept`, under
`memory`), each item with the provider and the settings that it belongs to. So whoever ends the run can keep it, also
where other processes ran its nodes.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from flowengine.providers.provider import ContextProvider, called
from flowengine.providers.registry import provider_class

__all__ = ["MEMORY", "added", "keep_for_good", "remembered"]

MEMORY: Final = "memory"
"""The name under which memories are kept: a list, to which each node adds."""

_PLACE: Final = "store"
"""The setting that says where a provider keeps its memories."""

_LOGGER: Final = logging.getLogger(__name__)


def remembered(provider: ContextProvider, kept: Mapping[str, Any]) -> list[Any]:
    """What a provider's ancestors added to its memory."""
    owner = _owner(provider)
    return [each["item"] for each in kept.get(MEMORY, ()) if {**each, "item": None} == {**owner, "item": None}]


def added(provider: ContextProvider, items: Sequence[Any]) -> list[dict[str, Any]]:
    """Items as they are kept."""
    owner = _owner(provider)
    return [{**owner, "item": each} for each in items]


async def keep_for_good(kept: Mapping[str, Any], providers: Iterable[ContextProvider]) -> None:
    """Keep the memories of a run that has succeeded. What cannot be kept is logged: the run is over.

    `providers`: those of the flow. They say where memories are kept: a run's record may come from elsewhere, and
    chooses no files.
    """
    own = [(each.provider_name, each.settings()) for each in providers if each.adds]
    for provider, settings, items in _by_owner(kept.get(MEMORY, ())):
        home = _home(provider, settings, own)
        if home is None:
            _LOGGER.warning("memories of '%s' cannot be kept: no agent of the flow has such a memory", provider)
            continue
        try:
            made = provider_class(provider).from_config(home, root=None)
            await called(made.load, items)
            await called(made.commit)
        except Exception as error:  # Classes of users, and disks.
            _LOGGER.warning("memories of '%s' cannot be kept: %s: %s", provider, type(error).__name__, error)


def _home(
    provider: str, settings: Mapping[str, Any], own: Sequence[tuple[str, Mapping[str, Any]]]
) -> Mapping[str, Any] | None:
    """The settings with the place that the flow's own provider of this sort has here; None: it has no such provider.

    Where it has several, the record says which of their places is meant. Whose memories they are depends on the run.
    """
    alike = [each for name, each in own if name == provider and _sort(each) == _sort(settings)]
    places = [each.get(_PLACE) for each in alike]
    if settings.get(_PLACE) in places:
        return settings
    return {**settings, _PLACE: places[0]} if len(set(places)) == 1 else None


def _sort(settings: Mapping[str, Any]) -> Mapping[str, Any]:
    return {name: each for name, each in settings.items() if name not in (_PLACE, "scope_id")}


def _owner(provider: ContextProvider) -> dict[str, Any]:
    return {"provider": provider.provider_name, "settings": dict(provider.settings())}


def _by_owner(entries: Iterable[Mapping[str, Any]]) -> list[tuple[str, dict[str, Any], list[Any]]]:
    owners: dict[str, tuple[str, dict[str, Any], list[Any]]] = {}
    for each in entries:
        key = json.dumps([each["provider"], each["settings"]], sort_keys=True)
        owner = owners.setdefault(key, (each["provider"], dict(each["settings"]), []))
        owner[2].append(each["item"])
    return list(owners.values())
