"""Checks values that several nodes write: the engine's own where two could have set them last, and shared
state where two writers have no order.

An error is said only of what is sure to be ambiguous where both nodes are live; what cannot be seen here
is a clear error of the run.

Source of the rules: rules 6, 8 and 10 of the flow format.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from flowengine.flowfile.analysis import (
    EVALUATION,
    LAST,
    ROUTING,
    LevelAnalysis,
    Use,
    gaps_of,
    holders_of,
    is_agent,
    is_judging,
    is_loop,
    is_map_node,
    is_routing,
    key_path,
    masks_of,
    node_at,
    reads_of,
    setting_of,
    writes_of,
)
from flowengine.flowfile.checks.report import Report
from flowengine.flowfile.compile import ENGINE_KEYS
from flowengine.flowfile.schema import FlowSpec
from flowengine.flowfile.yaml import KeyPath

# --- Checks of `result`

_MANY: Final = 200
"""Predecessors that are compared with each other; beyond that the run finds out."""


def check_results(spec: FlowSpec, runs: LevelAnalysis, report: Report) -> None:
    """`result` read, or a prompt left out, where no predecessor gives one or where two can."""
    speakers = _Speakers(runs)
    for number in range(len(runs.nodes)):
        node, path = runs.nodes[number], runs.path_of(number)
        uses = [use for use in reads_of(spec).of_node[path] if use.reference.path[0] == "result"]
        unprompted = _takes_result(runs, number)
        if unprompted and runs.is_reached_surely(number):
            _check_first(spec, runs, number, report)
        if not runs.is_sure(number) or not (uses or unprompted):
            continue
        pair = speakers.two_before(number)
        if pair is None:
            continue
        one, other = (runs.graph.ids[each] for each in pair)
        names = f"'{one}' and '{other}' can both come before this node"
        if unprompted:
            key = "prompt" if is_agent(node) else "target"
            text = f"without '{key}' it takes `result`, and {names}: give '{key}'"
            report.at_key("FE215", text, key_path(path))
        for use in uses:
            hint = f"; name one of them: nodes.{one}.output"
            report.at_use("FE215", f"`result` is ambiguous: {names}", use, hint)


def _takes_result(runs: LevelAnalysis, number: int) -> bool:
    node = runs.nodes[number]
    if is_agent(node):
        return node.prompt is None
    if is_judging(node):
        return node.target is None and runs.sees_surely(number) and not runs.any_before(number, LAST)
    return False


def _check_first(spec: FlowSpec, runs: LevelAnalysis, number: int, report: Report) -> None:
    """A first node takes the flow's inputs, or the item of a map; in a loop there is nothing to take."""
    node, path = runs.nodes[number], key_path(runs.path_of(number))
    if is_loop(runs.level.holder):
        if _is_first(runs, number):
            key = "prompt" if is_agent(node) else "target"
            text = f"the first node of a loop receives no result: give '{key}'"
            report.at_key("FE219", text, path)
    elif runs.level.holder is None and not runs.graph.parents[number] and not _has_inputs(spec):
        _ask_for_something(spec, runs, number, report)


def _has_inputs(spec: FlowSpec) -> bool:
    return bool(spec.inputs) or "inputs" in gaps_of(spec).roots


def _is_first(runs: LevelAnalysis, number: int) -> bool:
    """Tells whether nothing comes before a node but what passes on what it received."""
    todo, visits = [number], {number}
    while todo:
        for each in runs.predecessors(todo.pop()):
            if not runs.graph.vertices[each].transparent:
                return False
            if each not in visits:
                visits.add(each)
                todo.append(each)
    return True


def _ask_for_something(spec: FlowSpec, runs: LevelAnalysis, number: int, report: Report) -> None:
    node, path = runs.nodes[number], key_path(runs.path_of(number))
    if is_agent(node):
        if all(setting_of(spec, node, each) is None for each in ("instructions", "system_message")):
            report.at_key("FE219", "there is nothing to ask: give 'prompt' or 'instructions'", path)
    else:
        what = "route" if is_routing(node) else "judge"
        report.at_key("FE219", f"there is nothing to {what}: no node comes before; give 'target'", path)


class _Speakers:
    """Predecessors whose results a node cannot choose between; transparent ones are looked through."""

    def __init__(self, runs: LevelAnalysis) -> None:
        self._runs = runs
        self._graph = runs.graph
        self._pairs: dict[int, tuple[int, int] | None] = {}

    def two_before(self, number: int) -> tuple[int, int] | None:
        """Two of them, or None."""
        todo = [number]
        while todo:
            at = todo[-1]
            before = self._runs.predecessors(at)
            through = [each for each in before if self._passes_on(each) and each not in self._pairs]
            if through and at not in self._pairs:
                todo.extend(through)
                continue
            todo.pop()
            if at not in self._pairs:
                self._pairs[at] = self._two_of(at)
        return self._pairs[number]

    def _two_of(self, number: int) -> tuple[int, int] | None:
        before = self._runs.predecessors(number)[:_MANY]
        if len(before) == 1:
            return self._pairs[before[0]] if self._passes_on(before[0]) else None
        for at, other in enumerate(before):
            behind = self._pairs[other] if self._passes_on(other) else None
            if behind is not None and not self._is_overruled(number, other, other, before[at + 1 :]):
                return behind
            for one in before[:at]:
                if self._both_speak(one, other) and not self._is_overruled(number, one, other, before[at + 1 :]):
                    return one, other
        return None

    def _both_speak(self, one: int, other: int) -> bool:
        if self._runs.live.exclude(one, other) or self._origin(one) == self._origin(other):
            return False
        return not self._graph.ancestry.holds(one, other)

    def _is_overruled(self, number: int, one: int, other: int, later: list[int]) -> bool:
        """Tells whether a predecessor that comes after both has the last word."""
        holds, certain = self._graph.ancestry.holds, self._runs.live.certain
        return any(holds(one, each) and holds(other, each) and certain(number, each) for each in later)

    def _origin(self, number: int) -> int:
        """The node whose result a transparent node passes on, where there is but one."""
        while self._passes_on(number):
            before = self._runs.predecessors(number)
            if len(before) != 1:
                break
            number = before[0]
        return number

    def _passes_on(self, number: int) -> bool:
        return self._graph.vertices[number].transparent


_ROOTS: Final = {"routing_result": ROUTING, "evaluation_result": EVALUATION}
_COMPARED: Final = 50_000
"""Pairs of writers of one key that are compared; beyond that the run finds out."""


def check_engine_values(spec: FlowSpec, runs: LevelAnalysis, report: Report) -> None:
    """A value of the engine read where two ancestors without an order could have set it."""
    for number, node in enumerate(runs.nodes):
        path = runs.path_of(number)
        if not runs.sees_surely(number):
            continue
        if is_judging(node) and node.target is None:
            pair = runs.two_before(number, LAST)
            if pair is not None:
                text = f"without 'target' it reads the last generation, and {_names(pair)}: give 'target'"
                report.at_key("FE216", text, key_path(path))
        for use in reads_of(spec).of_node[path]:
            _check_use(runs, use, number, report)
    for use in reads_of(spec).at_end.get(runs.level.path, ()) if runs.sees_surely(None) else ():
        _check_use(runs, use, None, report)


def _check_use(runs: LevelAnalysis, use: Use, number: int | None, report: Report) -> None:
    root, *fields = use.reference.path
    what = _ROOTS.get(root)
    if root == "shared_state" and fields and fields[0] in ENGINE_KEYS:
        what = LAST
    pair = None if what is None else runs.two_before(number, what)
    if pair is not None:
        hint = f"; name the node: nodes.{pair[1]}.output"
        report.at_use("FE216", f"{what} is ambiguous: {_names(pair)}", use, hint)


def _names(pair: tuple[str, str]) -> str:
    return f"both '{pair[0]}' and '{pair[1]}' could have set it"


# --- shared state


def check_writers(spec: FlowSpec, runs: LevelAnalysis, report: Report) -> None:
    """Nodes without an order that write one key with `set`, where the key has no merge rule."""
    writers: dict[str, list[tuple[int, KeyPath]]] = {}
    unknown = gaps_of(spec).keys
    for number, node in enumerate(runs.nodes):
        for key, at in writes_of(node, runs.path_of(number)).items():
            if key in spec.shared_state and key not in unknown and spec.shared_state[key].merge == "error":
                writers.setdefault(key, []).append((number, at))
    if is_map_node(runs.level.holder):
        _refuse_items(spec, runs, writers, report)
    shared = {key: each for key, each in writers.items() if len(each) > 1}
    masks = masks_of(runs.graph, {number for each in shared.values() for number, _ in each}) if shared else {}
    for key, each in shared.items():
        places = dict(each)
        for one, other in _find_races(runs, [number for number in places if runs.is_sure(number)], masks):
            ids = runs.graph.ids
            text = f"'{ids[one]}' writes '{key}' too, and neither node comes before the other"
            hint = "; order them with `needs`, or give the key a `merge` rule"
            report.at_key("FE217", text, places[other], hint)


def _refuse_items(
    spec: FlowSpec, runs: LevelAnalysis, writers: Mapping[str, list[tuple[int, KeyPath]]], report: Report
) -> None:
    for key, each in writers.items():
        for _, at in each:
            maps = (level for level in holders_of(spec, node_at(at)[:-1]) if is_map_node(level.holder))
            if next(maps).path == runs.level.path:  # Else the map inside has said it already.
                text = f"every item of '{runs.level.path[-1]}' writes '{key}', and items come in no order"
                report.at_key("FE217", text, at, "; give the key a `merge` rule")
                break


def _find_races(runs: LevelAnalysis, numbers: list[int], masks: dict[int, int]) -> Iterator[tuple[int, int]]:
    """Each writer with the first one that it has no order with and that can be live beside it."""
    compared = 0
    for at, other in enumerate(numbers):
        for one in numbers[:at]:
            if compared < _COMPARED and not masks[other] >> one & 1:
                compared += 1
                if not runs.live.exclude(one, other):
                    yield one, other
                    break
