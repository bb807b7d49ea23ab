"""The labels that a node can take, and where each of them leads. Whether the targets exist is for the checks.

Source of the rules: rule 2 of the flow format.
"""

from __future__ import annotations

from typing import NamedTuple

from flowengine.engine.graph import FALLBACK
from flowengine.spec.fields import Routes
from flowengine.spec.levels import NodePath, key_path, level_of
from flowengine.spec.positions import KeyPath
from flowengine.spec.schema import FlowSpec
from flowengine.spec.schema_agent import AgentRouting
from flowengine.spec.schema_nodes import (
    AgentNodeSpec,
    ApprovalNodeSpec,
    ConditionNodeSpec,
    EvaluationNodeSpec,
    RoutingNodeSpec,
)
from flowengine.spec.settings import agent_path, setting_of

__all__ = ["Leads", "labels_of", "routes_of"]


class Leads(NamedTuple):
    """One label of a node, and where it leads."""

    label: str
    target: str | None
    path: KeyPath


def routes_of(spec: FlowSpec, name: str, level: NodePath = ()) -> list[Leads]:
    """A node's labels, those that lead nowhere included, with their targets; failures go aside."""
    node = level_of(spec, level)[name]
    path = key_path((*level, name))
    if isinstance(node, ConditionNodeSpec):
        return _ways(node, path)
    if isinstance(node, RoutingNodeSpec):
        return _choices(node.routes, node.fallback, path)
    if isinstance(node, ApprovalNodeSpec):
        return _choices(node.routes, None, path)
    if isinstance(node, EvaluationNodeSpec):
        routes = node.routes or {}
        found = _choices(routes, None, path)
        return found + [Leads(label, None, path) for label in ("pass", "fail") if label not in routes]
    if isinstance(node, AgentNodeSpec):
        routing: AgentRouting | None = setting_of(spec, node, "routing")
        if routing is not None:
            own = node.routing is not None
            start = (*(path if own else agent_path(spec, path, node) or path), "routing")
            return _choices(routing.routes, routing.fallback, start)
    return []


def _choices(routes: Routes, fallback: str | None, path: KeyPath) -> list[Leads]:
    found = [Leads(label, route.to, (*path, "routes", label, "to")) for label, route in routes.items()]
    if fallback is not None and fallback not in routes:
        found.append(Leads(FALLBACK, fallback, (*path, "fallback")))
    return found


def _ways(node: ConditionNodeSpec, path: KeyPath) -> list[Leads]:
    if node.form == "if":
        return [Leads("then", node.then, (*path, "then")), Leads("else", node.else_, (*path, "else"))]
    if node.form == "call":
        found = _choices(node.routes or {}, None, path)
    else:
        cases = enumerate(node.cases or ())
        found = [Leads(case.taken, case.then, (*path, "cases", number, "then")) for number, case in cases]
    return [*found, Leads("else", node.else_, (*path, "else"))] if node.has_else else found


def labels_of(spec: FlowSpec, name: str, level: NodePath = ()) -> frozenset[str]:
    """Every label that a node can take; none where it has no routes."""
    return frozenset(each.label for each in routes_of(spec, name, level))
