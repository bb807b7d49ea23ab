"""Warnings about what a graph allows and hardly anybody means: absent values, branches that meet, dead nodes.

Source of the rules: rules 2, 11 and 15 of the flow format, and its list of warnings.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

from flowengine.spec.gaps import gaps_of
from flowengine.spec.levels import NodePath, home_of, key_path
from flowengine.spec.references import Use, reads_of
from flowengine.spec.report import Report
from flowengine.spec.runs import Runs
from flowengine.spec.schema import FlowSpec
from flowengine.spec.schema_nodes import EvaluationNodeSpec, LoopNodeSpec, RoutingNodeSpec

__all__ = ["warn_of_absent_values", "warn_of_dead_nodes", "warn_of_targets_behind_siblings"]


# --- what may be absent


def warn_of_absent_values(spec: FlowSpec, runs: Runs, report: Report) -> None:
    """A printed output of a node that can be skipped while the reader runs."""
    for number in range(len(runs.nodes)):
        path = runs.path_of(number)
        uses = reads_of(spec).reaching.get(path, ())
        tested = {(_reader(use, path), use.reference.path[1]) for use in uses if use.text.path[-1] == "when"}
        for use in uses:
            reader, name = _reader(use, path), use.reference.path[1]
            if not any((reader[:depth], name) in tested for depth in range(len(reader) + 1)):
                _warn_if_absent(use, runs, number, report)
    unclear = runs.level.path in gaps_of(spec).waits  # What `until` reads decides on what `carry` sees.
    excused = _excused(spec, runs) if isinstance(runs.level.holder, LoopNodeSpec) else ()
    for use in reads_of(spec).at_end.get(runs.level.path, ()):
        path, key = use.reference.path, use.text.path[len(key_path(runs.level.path))]
        inside = path[0] == "nodes" and home_of(spec, runs.level.path, path[1]) == runs.level.path
        if inside and key != "best_by" and not (key == "carry" and (path[1] in excused or unclear)):
            _warn_if_absent(use, runs, None, report)


def _reader(use: Use, path: NodePath) -> NodePath:
    """The node whose text it is; for a shared agent's, the node that names it."""
    return use.text.node or path


def _warn_if_absent(use: Use, runs: Runs, reader: int | None, report: Report) -> None:
    path = use.reference.path
    if len(path) < 3 or not use.reference.printed or use.reference.guarded:
        return
    _, node, field, *_ = path
    if field not in ("output", "result") or node not in runs.graph:
        return
    number = runs.graph.index[node]
    if not runs.is_sure(number if reader is None else reader):
        return
    if reader is not None and runs.nodes[reader].join == "always":
        text = f"'{node}' may have failed when this runs, and then it has no {field} to print"
        report.at_use("FE903", text, use, "; add `| default(…)`")
    elif not runs.live.certain(reader, number):
        text = f"'{node}' may be skipped, and then it has no {field} to print"
        report.at_use("FE903", text, use, "; add `| default(…)`")


def _excused(spec: FlowSpec, runs: Runs) -> Collection[str]:
    """The nodes that are there where `carry` is read: after a round that `until` refused and that was not the last.

    `until` is what they depend on then, so nothing is said of nodes that stand behind the choosers it reads,
    nor of a `when` that asks for the round.
    """
    choosers = _read_by_until(spec, runs)
    there: set[int] = set()
    for number, node in enumerate(runs.nodes):
        gates = [gate for gate, _ in runs.graph.gates.get(number, ())]
        asks = node.when is None or "round." in node.when
        plain = [parent for parent in runs.graph.parents[number] if parent not in gates]
        behind = all(gate in choosers and gate in there for gate in gates) and all(each in there for each in plain)
        if runs.live.certain(None, number) or (behind and asks and node.on_error.action != "skip"):
            there.add(number)
    return {runs.graph.ids[number] for number in there}


_RESULTS: Final = {"evaluation_result": EvaluationNodeSpec, "routing_result": RoutingNodeSpec}


def _read_by_until(spec: FlowSpec, runs: Runs) -> set[int]:
    found: set[int] = set()
    for use in reads_of(spec).at_end.get(runs.level.path, ()):
        if use.text.path[-1] == "until":
            root, *fields = use.reference.path
            if root == "nodes" and fields and fields[0] in runs.graph:
                found.add(runs.graph.index[fields[0]])
            elif root in _RESULTS:
                found.update(n for n, node in enumerate(runs.nodes) if isinstance(node, _RESULTS[root]))
    return found


# --- branches


def warn_of_targets_behind_siblings(runs: Runs, report: Report) -> None:
    """A route's target that another target of the same node leads to without a route."""
    graph = runs.graph
    for number, routes in graph.routes.items():
        targets = [target for target, _ in routes]
        for target in targets:
            gated = {gate for gate, _ in graph.gates[target]}
            plain = [parent for parent in graph.parents[target] if parent not in gated]
            sibling = _sibling_above(runs, plain, [each for each in targets if each != target])
            if sibling is not None and runs.is_sure(target):
                name, chooser, other = graph.ids[target], graph.ids[number], graph.ids[sibling]
                text = f"'{name}' is a route of '{chooser}' and also comes after its sibling '{other}'"
                report.at_key("FE901", text, key_path(runs.path_of(target)))


def _sibling_above(runs: Runs, parents: list[int], siblings: list[int]) -> int | None:
    holds = runs.graph.ancestry.holds
    for parent in parents:
        for sibling in siblings:
            if sibling == parent or (sibling < parent and holds(sibling, parent)):
                return sibling
    return None


def warn_of_dead_nodes(runs: Runs, report: Report) -> None:
    """A node whose predecessors can never be live together."""
    for number in filter(runs.is_reached_surely, runs.live.dead):
        text = "no run can reach this node: what it waits for excludes itself"
        report.at_key("FE902", text, key_path(runs.path_of(number)))
