"""Keeps the memories that a run held back, once it has succeeded, and hands them on to its later nodes until then.

It knows whose they are: a provider, by its name and its settings. What a memory says is the provider's matter.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from flowengine.agents.context.provider import ContextProvider, call_method
from flowengine.core import describe_error

MEMORY: Final = "memory"
"""The name under which memories are kept: a list, to which each node adds."""

_STORE_KEY: Final = "store"
"""The setting that says where a provider keeps its memories."""

_logger: Final = logging.getLogger(__name__)


def read_remembered(provider: ContextProvider, values: Mapping[str, Any]) -> list[Any]:
    """Returns what the provider has remembered in nodes before."""
    owner = _describe_owner(provider)
    return [each["item"] for each in values.get(MEMORY, ()) if {**each, "item": None} == {**owner, "item": None}]


def to_kept_items(provider: ContextProvider, items: Sequence[Any]) -> list[dict[str, Any]]:
    """Items as they are kept."""
    owner = _describe_owner(provider)
    return [{**owner, "item": each} for each in items]


async def keep_for_good(values: Mapping[str, Any], providers: Iterable[ContextProvider]) -> list[str]:
    """Keep the memories of a run that has succeeded. Returned is whose cannot be kept, and why; it is logged, too.

    `providers`: those of the flow. They say where memories are kept: a run's record may come from elsewhere, and
    chooses no files.
    """
    own, problems = [each for each in providers if each.adds], list[str]()
    for name, settings, items in _group_by_owner(values.get(MEMORY, ())):
        home = _find_home(name, settings, own)
        if home is None:
            problems.append(f"memories of '{name}' cannot be kept: no agent of the flow has such a memory")
            continue
        kind, config = home
        try:
            target = kind.from_config(config, root=None)
            await call_method(target.load, items)
            await call_method(target.commit)
        except Exception as error:  # Classes of users, and disks.
            problems.append(f"memories of '{name}' cannot be kept: {describe_error(error)}")
    for each in problems:
        _logger.warning("%s", each)
    return problems


def _find_home(
    name: str, settings: Mapping[str, Any], own: Sequence[ContextProvider]
) -> tuple[type[ContextProvider], Mapping[str, Any]] | None:
    """The class of the flow's own provider of this sort, and the settings with its place here; None: there is none.

    Where it has several, the record says which of their places is meant. Whose memories they are depends on the run.
    """
    alike = [
        each
        for each in own
        if each.provider_name == name and _settings_without_place(each.settings()) == _settings_without_place(settings)
    ]
    places = [each.settings().get(_STORE_KEY) for each in alike]
    if settings.get(_STORE_KEY) in places:
        return type(alike[places.index(settings.get(_STORE_KEY))]), settings
    return (type(alike[0]), {**settings, _STORE_KEY: places[0]}) if len(set(places)) == 1 else None


def _settings_without_place(settings: Mapping[str, Any]) -> Mapping[str, Any]:
    return {name: each for name, each in settings.items() if name not in (_STORE_KEY, "scope_id")}


def _describe_owner(provider: ContextProvider) -> dict[str, Any]:
    return {"provider": provider.provider_name, "settings": dict(provider.settings())}


def _group_by_owner(entries: Iterable[Mapping[str, Any]]) -> list[tuple[str, dict[str, Any], list[Any]]]:
    owners: dict[str, tuple[str, dict[str, Any], list[Any]]] = {}
    for each in entries:
        key = json.dumps([each["provider"], each["settings"]], sort_keys=True)
        owner = owners.setdefault(key, (each["provider"], dict(each["settings"]), []))
        owner[2].append(each["item"])
    return list(owners.values())
