"""Checks of names between nodes: targets, agents, labels, state keys that are written, cycles."""

from __future__ import annotations

from collections import Counter

from flowengine.engine.graph import FALLBACK, ON_ERROR
from flowengine.engine.order import cycles_of
from flowengine.spec.gaps import gaps_of
from flowengine.spec.levels import Level, key_path, levels_of, nodes_of, places_of
from flowengine.spec.positions import KeyPath
from flowengine.spec.references import Cause, causes_of
from flowengine.spec.report import Report
from flowengine.spec.routes import Leads, routes_of
from flowengine.spec.schema import FlowSpec
from flowengine.spec.schema_nodes import AgentNodeSpec, EvaluationNodeSpec, RoutingNodeSpec

__all__ = ["check_structure"]


def check_structure(spec: FlowSpec, report: Report) -> None:
    """Unknown targets, agents and state keys, labels, self references, cycles."""
    _check_agents(spec, report)
    _check_writes(spec, report)
    for level in levels_of(spec).values():
        _check_ends(spec, level, report)
        _check_labels(spec, level, report)
        _check_cycles(spec, level, report)


def _check_ends(spec: FlowSpec, level: Level, report: Report) -> None:
    gaps = gaps_of(spec)
    for cause in causes_of(spec, level.path):
        (source, target, label), path, use = cause
        if source == target:
            _refuse_self(level, cause, report)
        elif use is None:
            other = source if label is None else target
            # A fallback may be one of the labels that are not known.
            if other not in level.nodes and (label != FALLBACK or (*level.path, source) not in gaps.labels):
                _refuse_end(spec, level, other, path, report)


def _refuse_self(level: Level, cause: Cause, report: Report) -> None:
    use, name = cause.use, cause.edge.target
    if use is None:
        report.at_value("FE211", "a node cannot wait for itself or lead to itself", cause.path)
    elif use.text.scope == "end" or len(use.text.node or ()) > len(level.path) + 1:
        report.at_use("FE211", f"this is part of '{name}', whose own output is not there yet", use)
    else:
        report.at_use("FE211", f"the template of '{name}' reads the node's own output", use)


def _refuse_end(spec: FlowSpec, level: Level, other: str, path: KeyPath, report: Report) -> None:
    elsewhere, gaps = places_of(spec).get(other), gaps_of(spec)
    if other in gaps.words or level.path in gaps.bodies:
        return
    if elsewhere is None:
        report.at_value("FE203", f"unknown target '{other}'", path, report.nearest(other, level.nodes))
        return
    around = next((each for each in elsewhere if level.path[: len(each)] == each), None)
    if around is not None:
        text = f"'{other}' is outside of '{level.path[len(around)]}', and routes and `needs` stay on their level"
        report.at_value("FE223", text, path, f"; let '{level.path[len(around)]}' lead to it, or need it")
    else:
        text = f"'{other}' is inside '{'.'.join(elsewhere[0])}', and routes and `needs` stay on their level"
        report.at_value("FE223", text, path)


def _check_agents(spec: FlowSpec, report: Report) -> None:
    named: list[tuple[str, KeyPath]] = []
    gaps = gaps_of(spec)
    if isinstance(spec.defaults.agent, str):
        named.append((spec.defaults.agent, ("defaults", "agent")))
    for path, node in nodes_of(spec):
        if isinstance(node, AgentNodeSpec | RoutingNodeSpec | EvaluationNodeSpec) and isinstance(node.agent, str):
            named.append((node.agent, (*key_path(path), "agent")))
    for agent, at in named:
        if agent not in spec.agents and not gaps.may_be("agents", agent):
            report.at_value("FE213", f"unknown agent '{agent}'", at, report.nearest(agent, spec.agents))


def _check_labels(spec: FlowSpec, level: Level, report: Report) -> None:
    for name, node in level.nodes.items():
        leads = routes_of(spec, name, level.path)
        targets: dict[str, str | None] = {}
        for each in leads:
            if targets.get(each.label, each.target) != each.target and each.path[-1] != FALLBACK:
                report.at_value("FE212", f"the label '{each.label}' leads to two places", each.path)
            targets.setdefault(each.label, each.target)
        if node.on_error.then is not None and ON_ERROR in targets:
            at = next(each.path for each in leads if each.label == ON_ERROR)
            report.at_key("FE212", f"the label '{ON_ERROR}' is the engine's where `on_error` leads to a node", at[:-1])
        _check_fallback(leads, report)


def _check_fallback(leads: list[Leads], report: Report) -> None:
    """A fallback to a node is a label of its own, so no declared label may have its name."""
    labels = Counter(each.label for each in leads)
    own = next((each for each in leads if each.label == FALLBACK and each.path[-1] == FALLBACK), None)
    if own is not None and labels[FALLBACK] > 1:
        text = f"the label '{FALLBACK}' is the engine's where `fallback` leads to a node; rename it"
        report.at_key("FE212", text, (*own.path[:-1], "routes", FALLBACK))


def _check_writes(spec: FlowSpec, report: Report) -> None:
    gaps = gaps_of(spec)
    for path, node in nodes_of(spec):
        for key in node.set:
            if key not in spec.shared_state and not gaps.may_be("shared_state", key):
                hint = report.nearest(key, spec.shared_state)
                report.at_key("FE218", f"shared state has no key '{key}'", (*key_path(path), "set", key), hint)


def _check_cycles(spec: FlowSpec, level: Level, report: Report) -> None:
    nodes = level.nodes
    causes = {(cause.edge.source, cause.edge.target): cause for cause in reversed(causes_of(spec, level.path))}
    edges = [(s, t) for s, t in causes if s != t and s in nodes and t in nodes]
    for cycle in cycles_of(list(nodes), reversed(edges)):
        message = f"the nodes form a cycle: {' → '.join(cycle)}"
        cause = causes[cycle[-2], cycle[-1]]
        if cause.use is None:
            report.at_value("FE210", message, cause.path)
        else:
            report.at_use("FE210", message, cause.use)
