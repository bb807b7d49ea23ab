"""Checks of values that several nodes write: the engine's own where two could have set them last, and shared
state where two writers have no order.

An error is said only of what is sure to be ambiguous where both nodes are live; what cannot be seen here
is a clear error of the run.

Source of the rules: rules 6, 8 and 10 of the flow format.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from flowengine.spec.gaps import gaps_of
from flowengine.spec.last import masks_of
from flowengine.spec.levels import key_path, node_at
from flowengine.spec.names import ENGINE_KEYS, holders_of
from flowengine.spec.positions import KeyPath
from flowengine.spec.references import Use, reads_of
from flowengine.spec.report import Report
from flowengine.spec.runs import EVALUATION, LAST, ROUTING, Runs, writes_of
from flowengine.spec.schema import FlowSpec
from flowengine.spec.schema_nodes import EvaluationNodeSpec, MapNodeSpec, RoutingNodeSpec

__all__ = ["check_engine_values", "check_writers"]

_ROOTS: Final = {"routing_result": ROUTING, "evaluation_result": EVALUATION}
_COMPARED: Final = 50_000
"""Pairs of writers of one key that are compared; beyond that the run finds out."""


def check_engine_values(spec: FlowSpec, runs: Runs, report: Report) -> None:
    """A value of the engine read where two ancestors without an order could have set it."""
    for number, node in enumerate(runs.nodes):
        path = runs.path_of(number)
        if not runs.sees_surely(number):
            continue
        if isinstance(node, RoutingNodeSpec | EvaluationNodeSpec) and node.target is None:
            pair = runs.two_before(number, LAST)
            if pair is not None:
                text = f"without 'target' it reads the last generation, and {_names(pair)}: give 'target'"
                report.at_key("FE216", text, key_path(path))
        for use in reads_of(spec).of_node[path]:
            _check_use(runs, use, number, report)
    for use in reads_of(spec).at_end.get(runs.level.path, ()) if runs.sees_surely(None) else ():
        _check_use(runs, use, None, report)


def _check_use(runs: Runs, use: Use, number: int | None, report: Report) -> None:
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


def check_writers(spec: FlowSpec, runs: Runs, report: Report) -> None:
    """Nodes without an order that write one key with `set`, where the key has no merge rule."""
    writers: dict[str, list[tuple[int, KeyPath]]] = {}
    unknown = gaps_of(spec).keys
    for number, node in enumerate(runs.nodes):
        for key, at in writes_of(node, runs.path_of(number)).items():
            if key in spec.shared_state and key not in unknown and spec.shared_state[key].merge == "error":
                writers.setdefault(key, []).append((number, at))
    if isinstance(runs.level.holder, MapNodeSpec):
        _refuse_items(spec, runs, writers, report)
    shared = {key: each for key, each in writers.items() if len(each) > 1}
    masks = masks_of(runs.graph, {number for each in shared.values() for number, _ in each}) if shared else {}
    for key, each in shared.items():
        places = dict(each)
        for one, other in _racing(runs, [number for number in places if runs.is_sure(number)], masks):
            ids = runs.graph.ids
            text = f"'{ids[one]}' writes '{key}' too, and neither node comes before the other"
            hint = "; order them with `needs`, or give the key a `merge` rule"
            report.at_key("FE217", text, places[other], hint)


def _refuse_items(spec: FlowSpec, runs: Runs, writers: Mapping[str, list[tuple[int, KeyPath]]], report: Report) -> None:
    for key, each in writers.items():
        for _, at in each:
            maps = (level for level in holders_of(spec, node_at(at)[:-1]) if isinstance(level.holder, MapNodeSpec))
            if next(maps).path == runs.level.path:  # Else the map inside has said it already.
                text = f"every item of '{runs.level.path[-1]}' writes '{key}', and items come in no order"
                report.at_key("FE217", text, at, "; give the key a `merge` rule")
                break


def _racing(runs: Runs, numbers: list[int], masks: dict[int, int]) -> Iterator[tuple[int, int]]:
    """Each writer with the first one that it has no order with and that can be live beside it."""
    compared = 0
    for at, other in enumerate(numbers):
        for one in numbers[:at]:
            if compared < _COMPARED and not masks[other] >> one & 1:
                compared += 1
                if not runs.live.exclude(one, other):
                    yield one, other
                    break
