"""Computes shared state as each node of a run saw it and left it, by the engine's own merge rules.

The rules come from the skeleton in the run's first event; a key that it does not declare is taken as one that
the last writer decides. It knows rows and writes, and nothing of pages.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from functools import cached_property
from typing import Any, Final, NamedTuple, cast

from flowengine.core import EMPTY
from flowengine.engine import FOLDS, Layer, StateKey, StateStore
from visualize.edge_states import units_of
from visualize.progress import Progress
from visualize.skeleton import SkeletonLevel

_RULES: Final = (*FOLDS, "error", "replace")


class Change(NamedTuple):
    """One node's change of one key."""

    key: str
    had: bool
    """Whether there was a value before."""
    before: Any
    after: Any
    rule: str
    """The key's merge rule; empty where it is not declared."""


class _Place(NamedTuple):
    store: StateStore
    input_layer: Layer
    output_layer: Layer


def read_declared(progress: Progress) -> dict[str, StateKey]:
    """The keys that the run's skeleton declares: `{"state": {key: [rule, default]}}`."""
    rows: Any = None if progress.started is None else progress.started.graph.get("state")
    keys: dict[str, StateKey] = {}
    if isinstance(rows, Mapping):
        for key, row in cast("Mapping[str, Any]", rows).items():
            if isinstance(row, (list, tuple)) and len(cast("list[Any]", row)) == 2 and row[0] in _RULES:
                keys[key] = StateKey(row[1], row[0])
    return keys


class States:
    """The state round every node of a run."""

    def __init__(self, progress: Progress) -> None:
        self._progress = progress
        self._rules = read_declared(progress)
        self._units: dict[str, dict[str, _Place]] = {}
        self._loop_writes: dict[str, Mapping[str, Any]] = {}
        """Round → what it and the rounds before it wrote."""

    @cached_property
    def keys(self) -> tuple[str, ...]:
        """Declared keys, and those that were written all the same."""
        states = (row.result.state or () for row in self._progress.nodes.values() if row.result)
        return tuple(dict.fromkeys([*self._rules, *(key for state in states for key in state)]))

    def read_seen(self, path: str) -> dict[str, Any]:
        """Key → value as the node at a path saw it."""
        place = self._place(path) if self.keys else None
        return {} if place is None else self._read(place.store, place.input_layer)

    def changes(self, path: str) -> list[Change]:
        """Returns the writes of the node at a path, in the order of the keys."""
        row = self._progress.nodes.get(path)
        place = None if row is None or row.result is None or not row.result.state else self._place(path)
        if place is None or row is None or row.result is None:
            return []
        before, after = self._read(place.store, place.input_layer), self._read(place.store, place.output_layer)
        rules = {key: declared.merge for key, declared in self._rules.items()}
        return [
            Change(key, key in before, before.get(key), after.get(key), rules.get(key, ""))
            for key in self.keys
            if key in (row.result.state or ())
        ]

    def final(self) -> dict[str, Any]:
        """Key → value where the states that all nodes left behind meet."""
        places = self._enter(None, "") if self.keys else {}
        return self._read(*_merge_places(places)) if places else {}

    def so_far(self) -> dict[str, Any]:
        """Key → value as far as the run has come: also of what is written inside of a container that goes on."""
        store = StateStore(self._rules)
        layer = store.root
        for number, writes in enumerate(self._list_writes(self._progress.skeleton.top, "")):
            layer = store.write(number, layer, writes)
        return self._read(store, layer)

    def _list_writes(self, level: SkeletonLevel, unit: str) -> Iterator[Mapping[str, Any]]:
        """Lists the writes in the order of the flow; a finished container reports for its body."""
        for name, site in level.sites.items():
            row = self._progress.nodes.get(unit + name)
            if row is not None and row.status == "succeeded" and row.result is not None:
                yield from [row.result.state] if row.result.state else []
            elif row is not None and site.body is not None and site.kind != "subflow":
                for unit_inside in units_of(row):
                    yield from self._list_writes(site.body, unit_inside)

    def _read(self, store: StateStore, layer: Layer) -> dict[str, Any]:
        values: dict[str, Any] = {}
        for key in self.keys:
            if key in self._rules or store.has(layer, key):
                with suppress(KeyError, TypeError):  # Writes that do not add up; rules that only the outside has.
                    values[key] = store.get(layer, key)
        return values

    def _place(self, path: str) -> _Place | None:
        spot = self._progress.skeleton.spot(path)
        if spot.unit not in self._units:
            self._units[spot.unit] = self._enter(spot.container, spot.unit)
        return self._units[spot.unit].get(path)

    def _enter(self, container: str | None, unit: str) -> dict[str, _Place]:
        """The places of all nodes of one level: the top, an item, or a round."""
        if container is None:
            return self._walk(self._progress.skeleton.top, unit, StateStore(self._rules))
        around = self._place(container)
        site = self._progress.skeleton.sites.get(self._progress.skeleton.spot(container).site)
        if around is None or site is None or site.body is None:
            return {}
        # A subflow has a state of its own, whose rules are not recorded.
        store = (
            StateStore({}) if site.kind == "subflow" else around.store.inside(around.input_layer, self._before(unit))
        )
        return self._walk(site.body, unit, store)

    def _before(self, unit: str) -> Mapping[str, Any]:
        """Returns the writes of earlier rounds of a loop; empty for other levels."""
        loop, separator, index = unit.rpartition(".round[")
        rounds = int(index[:-2]) if separator and index[:-2].isdecimal() else 0
        wrote: Mapping[str, Any] = EMPTY
        for number in range(min(rounds, len(self._progress.nodes))):
            level = f"{loop}.round[{number}]."
            if level not in self._loop_writes:
                self._loop_writes[level] = self._after(wrote, self._enter(loop, level))
            wrote = self._loop_writes[level]
        return wrote

    def _after(self, wrote: Mapping[str, Any], places: Mapping[str, _Place]) -> Mapping[str, Any]:
        """Returns the writes of the rounds up to this one."""
        if not places:
            return wrote
        store, layer = _merge_places(places)
        try:
            return store.following(wrote, store.contribution(layer))
        except TypeError:  # As in `_read`.
            return wrote

    def _walk(self, level: SkeletonLevel, unit: str, store: StateStore) -> dict[str, _Place]:
        places: dict[str, _Place] = {}
        for number, name in enumerate(level.sites):  # In topological order.
            above = [places[unit + each].output_layer for each in level.parents.get(name, ()) if unit + each in places]
            input_layer = store.meet(number, above) if above else store.root
            row = self._progress.nodes.get(unit + name)
            writes = None if row is None or row.result is None else row.result.state
            places[unit + name] = _Place(
                store, input_layer, store.write(number, input_layer, writes) if writes else input_layer
            )
        return places


def _merge_places(places: Mapping[str, _Place]) -> tuple[StateStore, Layer]:
    """Merges the states of all nodes of a level, in the level's store."""
    layers = [each.output_layer for each in places.values()]
    store = next(iter(places.values())).store
    return store, store.meet(len(layers), layers)
