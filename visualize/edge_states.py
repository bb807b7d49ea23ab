"""Decides which edges a run took, which rows decided how long it took, and in which order its rows are listed.

It reads the fold of a run and draws nothing.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from math import inf
from typing import Final, Literal, NamedTuple

from flowengine.engine import ON_ERROR
from visualize.progress import NodeRow, Progress
from visualize.skeleton import Site, SkeletonLevel

# --- Edges that a run took

EdgeState = Literal["declared", "taken", "not_taken", "undecided"]

OPEN_STATUSES: Final = frozenset({"pending", "running", "waiting"})


class SiteEdge(NamedTuple):
    """An edge between two sites; its ends are their paths."""

    source: str
    target: str
    labels: tuple[str, ...]
    state: EdgeState
    critical: bool


def edges_of(progress: Progress, critical: CriticalPath) -> Iterator[SiteEdge]:
    """All edges of all levels."""
    for _, level in progress.skeleton.levels():
        for source, target, labels in level.edges:
            ends = level.sites[source], level.sites[target]
            pairs = list(_pair_rows(progress, *ends))
            states: set[EdgeState] = {edge_state(before, after, labels) for before, after in pairs}
            is_critical = any(
                (before.id, after.id) in critical.steps and edge_state(before, after, labels) == "taken"
                for before, after in pairs
            )
            yield SiteEdge(ends[0].path, ends[1].path, labels, _combine_states(states), is_critical)


def _pair_rows(progress: Progress, source: Site, target: Site) -> Iterator[tuple[NodeRow, NodeRow]]:
    """The rows at both ends that belong to one item or round."""
    for after in progress.times.get(target.path, ()):
        before = progress.nodes.get(after.spot.unit + source.id)
        if before is not None and before.spot.site == source.path:
            yield before, after


STATE_ORDER: Final[tuple[EdgeState, ...]] = ("taken", "undecided", "not_taken")
"""The order of states: the first that an edge had at any time is shown."""


def _combine_states(states: Collection[EdgeState]) -> EdgeState:
    return min(states or ("undecided",), key=STATE_ORDER.index)


def edge_state(before: NodeRow, after: NodeRow, labels: Sequence[str]) -> EdgeState:
    """Taken when its source let its target run; undecided while either may still change."""
    if before.status in OPEN_STATUSES or after.status == "pending":
        return "undecided"
    route = None if before.result is None else before.result.route
    is_open = before.status == "succeeded" and (not labels or route in labels)
    handled = before.status == "failed" and ON_ERROR in labels
    return "taken" if (is_open or handled) and after.has_run else "not_taken"


class CriticalPath(NamedTuple):
    """The rows and steps that decided how long a run took."""

    rows: frozenset[str]
    """Paths of rows."""
    steps: frozenset[tuple[str, str]]
    """Pairs of rows, from one to the next within a level."""


def critical_path(progress: Progress) -> CriticalPath:
    """The rows that decided how long the run took, and the steps between them.

    From the row that ended last (one that is still open ends last of all), back along the parents that ended last;
    and in the same way inside the containers on it: through every round of a loop; through the item of a map that
    ended last, and the items that it waited for, as far as the map has fewer places than items.
    """
    nodes: set[str] = set()
    steps: set[tuple[str, str]] = set()
    units = _group_by_unit(progress.nodes.values())
    todo = [("", progress.skeleton.top)]
    while todo:
        unit, level = todo.pop()
        rows = units.get(unit, {})
        chain = _find_chain({each: rows[each] for each in level.sites if each in rows}, level)
        steps |= {(unit + before, unit + after) for after, before in pairwise(chain)}
        for name in chain:
            row = progress.nodes[unit + name]
            nodes.add(row.id)
            body = level.sites[name].body
            if body is not None:
                todo += [(each, body) for each in _find_deciding(row, units)]
    return CriticalPath(frozenset(nodes), frozenset(steps))


def _group_by_unit(rows: Iterable[NodeRow]) -> dict[str, dict[str, NodeRow]]:
    """Groups rows by the beginning of their paths: unit → local id → row."""
    units: dict[str, dict[str, NodeRow]] = {}
    for row in rows:
        units.setdefault(row.spot.unit, {})[row.id[len(row.spot.unit) :]] = row
    return units


def _find_chain(rows: Mapping[str, NodeRow], level: SkeletonLevel) -> list[str]:
    """Ids of the one line through a level that ended last."""
    ended = {name: _end_of(row) for name, row in rows.items() if row.started is not None and _end_of(row) >= 0}
    if not ended:
        return []
    parents: dict[str, list[str]] = {}
    for source, target, labels in level.edges:
        if source in ended and target in rows and edge_state(rows[source], rows[target], labels) == "taken":
            parents.setdefault(target, []).append(source)
    line = [max(ended, key=ended.__getitem__)]
    while len(line) <= len(rows) and line[-1] in parents:
        line.append(max(parents[line[-1]], key=ended.__getitem__))
    return line


def units_of(container: NodeRow) -> list[str]:
    """Returns the path prefixes of a container's items or rounds, in order."""
    if container.kind == "subflow":
        return [f"{container.id}."]
    between = ".round" if container.kind == "loop" else ""
    return [f"{container.id}{between}[{index}]." for index in sorted(container.units)]


def _find_deciding(container: NodeRow, units: Mapping[str, Mapping[str, NodeRow]]) -> list[str]:
    """Returns those of a container's items or rounds that it waited for."""
    own = units_of(container)
    if container.kind != "map" or not own:
        return own
    spans = sorted((_span_of(units.get(unit, {}).values()), unit) for unit in own)
    ends = [end for (end, _), _ in spans]
    line = [len(spans) - 1]
    while (before := bisect_right(ends, spans[line[-1]][0][1], hi=line[-1]) - 1) >= 0:
        if ends[before] < 0:
            break
        line.append(before)
    return [spans[number][1] for number in line]


def _span_of(rows: Iterable[NodeRow]) -> tuple[float, float]:
    """Returns an item's end and start."""
    spans = [(_end_of(row), row.started) for row in rows if row.has_run and row.started is not None]
    return max((end for end, _ in spans), default=-1.0), min((start for _, start in spans), default=0.0)


def _end_of(row: NodeRow) -> float:
    """Returns a row's end: infinite while it runs; before all others if it did not run."""
    if row.status in ("running", "waiting"):
        return inf
    return -1.0 if row.ended is None or not row.has_run else row.ended


def in_order(progress: Progress) -> list[NodeRow]:
    """Every row once; those that the skeleton does not know come last."""
    rows: dict[str, NodeRow] = {}
    _gather(progress, progress.skeleton.top, "", rows)
    rows.update((path, row) for path, row in progress.nodes.items() if path not in rows)
    return list(rows.values())


def _gather(progress: Progress, level: SkeletonLevel, unit: str, rows: dict[str, NodeRow]) -> None:
    for name, site in level.sites.items():
        row = progress.nodes.get(unit + name)
        if row is None:
            continue
        rows[row.id] = row
        if site.body is not None:
            for each in units_of(row):
                _gather(progress, site.body, each, rows)
