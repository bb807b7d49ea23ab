"""What a flow's texts read, and the edges that follow: from references, `needs`, routes and failures.

Each distinct text is parsed once for a spec, never compiled. Nothing is judged here: an edge whose end
does not exist is left to the checks.

Source of the rules: rules 1, 2 and 14 of the flow format.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Literal, NamedTuple, cast

from pydantic import BaseModel

from flowengine.engine.graph import FALLBACK, ON_ERROR, Edge, Vertex
from flowengine.errors import TemplateSyntaxError
from flowengine.spec.fields import Routes, TextKind, text_fields
from flowengine.spec.positions import KeyPath
from flowengine.spec.schema import FlowSpec
from flowengine.spec.schema_agent import AgentRouting
from flowengine.spec.schema_nodes import (
    AgentNodeSpec,
    ConditionNodeSpec,
    EvaluationNodeSpec,
    NodeSpec,
    RoutingNodeSpec,
)
from flowengine.spec.settings import agent_path, setting_of
from flowengine.templating.parse import Reference, parse_expression, parse_template

__all__ = [
    "Cause",
    "Text",
    "Use",
    "causes_of",
    "edges_of",
    "labels_of",
    "reads_of",
    "routes_of",
    "texts_of",
    "vertices_of",
]

TRANSPARENT = frozenset({"routing", "condition", "evaluation"})
"""Node types that pass on the `result` they received."""


class Text(NamedTuple):
    """One text of the file."""

    path: KeyPath
    text: str
    kind: TextKind
    node: str | None
    """The node that it belongs to; None for shared agents, defaults and outputs."""
    scope: Literal["node", "set", "outputs"]
    """Where it is evaluated."""


class Use(NamedTuple):
    """A name that a text reads."""

    text: Text
    reference: Reference


class Reads(NamedTuple):
    """What all texts of a spec read, and which of them do not parse."""

    uses: list[Use]
    errors: list[tuple[Text, TemplateSyntaxError]]
    of_node: dict[str, list[Use]]
    """Node → what it reads, its agent's templates included."""


class Cause(NamedTuple):
    """An edge, and the place in the file that makes it."""

    edge: Edge
    path: KeyPath
    use: Use | None = None


class Leads(NamedTuple):
    """One label of a node, and where it leads."""

    label: str
    target: str | None
    path: KeyPath


# --- texts -------------------------------------------------------------------------------------------


def texts_of(spec: FlowSpec) -> Iterator[Text]:
    """Every text of the file that is rendered, evaluated, or must not have braces."""
    for name, node in spec.nodes.items():
        for path, text, kind in _texts(node, ("nodes", name)):
            yield Text(path, text, kind, name, "set" if path[2] == "set" else "node")
    for name, agent in spec.agents.items():
        for path, text, kind in _texts(agent, ("agents", name)):
            yield Text(path, text, kind, None, "node")
    if isinstance(spec.defaults.agent, BaseModel):
        for path, text, kind in _texts(spec.defaults.agent, ("defaults", "agent")):
            yield Text(path, text, kind, None, "node")
    for name, value in spec.outputs.items():
        for path, text in _strings(value, ("outputs", name)):
            yield Text(path, text, "template", None, "outputs")


def _texts(model: BaseModel, path: KeyPath) -> Iterator[tuple[KeyPath, str, TextKind]]:
    """The texts of a model and of the models in it, in the order of its fields."""
    kinds = text_fields(type(model))
    given = model.model_fields_set
    for name, key, kind in kinds:
        if name in given:
            value = getattr(model, name)
            if kind is None:
                for inner, at in _models(value, (*path, key)):
                    yield from _texts(inner, at)
            else:
                for at, text in _strings(value, (*path, key)):
                    yield at, text, "template" if kind == "values" else kind


def _models(value: Any, path: KeyPath) -> Iterator[tuple[BaseModel, KeyPath]]:
    if isinstance(value, BaseModel):
        yield value, path
    elif isinstance(value, dict):
        for key, each in cast("dict[str, Any]", value).items():
            yield from _models(each, (*path, key))
    elif isinstance(value, tuple):
        for number, each in enumerate(cast("tuple[Any, ...]", value)):
            yield from _models(each, (*path, number))


def _strings(value: Any, path: KeyPath) -> Iterator[tuple[KeyPath, str]]:
    if isinstance(value, str):
        yield path, value
    elif isinstance(value, dict):
        for key, each in cast("dict[str, Any]", value).items():
            yield from _strings(each, (*path, key))
    elif isinstance(value, list | tuple):
        for number, each in enumerate(cast("list[Any]", value)):
            yield from _strings(each, (*path, number))


# --- what they read ----------------------------------------------------------------------------------


def reads_of(spec: FlowSpec) -> Reads:
    """What the texts of a spec read; worked out once."""
    return spec.remembered("reads", _reads)


def _reads(spec: FlowSpec) -> Reads:
    parsed: dict[tuple[str, TextKind], tuple[Reference, ...] | TemplateSyntaxError] = {}
    reads = Reads([], [], {name: [] for name in spec.nodes})
    shared: dict[KeyPath, list[Use]] = {}
    for text in texts_of(spec):
        if text.kind == "plain":
            continue
        found = parsed.get((text.text, text.kind))
        if found is None:
            found = parsed[text.text, text.kind] = _parsed(text)
        if isinstance(found, TemplateSyntaxError):
            reads.errors.append((text, found))
            continue
        uses = [Use(text, reference) for reference in found]
        reads.uses.extend(uses)
        if text.node is not None:
            reads.of_node[text.node].extend(uses)
        elif text.scope == "node":
            shared.setdefault(text.path[:2], []).extend(uses)
    for name, node in spec.nodes.items():
        if isinstance(node, AgentNodeSpec):
            path = agent_path(spec, name, node)
            uses = shared.get(path or (), [])
            reads.of_node[name].extend(use for use in uses if use.text.path[2] not in node.model_fields_set)
    return reads


def _parsed(text: Text) -> tuple[Reference, ...] | TemplateSyntaxError:
    try:
        return (parse_expression if text.kind == "expression" else parse_template)(text.text).references
    except TemplateSyntaxError as error:
        return error


# --- where they lead ---------------------------------------------------------------------------------


def routes_of(spec: FlowSpec, name: str) -> list[Leads]:
    """A node's labels, those that lead nowhere included, with their targets; failures go aside."""
    node = spec.nodes[name]
    path: KeyPath = ("nodes", name)
    if isinstance(node, ConditionNodeSpec):
        return _ways(node, path)
    if isinstance(node, RoutingNodeSpec):
        return _choices(node.routes, node.fallback, path)
    if isinstance(node, EvaluationNodeSpec):
        routes = node.routes or {}
        found = _choices(routes, None, path)
        return found + [Leads(label, None, path) for label in ("pass", "fail") if label not in routes]
    if isinstance(node, AgentNodeSpec):
        routing: AgentRouting | None = setting_of(spec, node, "routing")
        if routing is not None:
            own = node.routing is not None
            start = (*(path if own else agent_path(spec, name, node) or path), "routing")
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


def labels_of(spec: FlowSpec, name: str) -> frozenset[str]:
    """Every label that a node can take; none where it has no routes."""
    return frozenset(each.label for each in routes_of(spec, name))


def causes_of(spec: FlowSpec) -> list[Cause]:
    """Every edge with the place that makes it; also edges whose ends do not exist."""
    return spec.remembered("causes", lambda each: [cause for name in each.nodes for cause in _causes(each, name)])


def _causes(spec: FlowSpec, name: str) -> Iterator[Cause]:
    node = spec.nodes[name]
    for number, source in enumerate(node.needs):
        yield Cause(Edge(source, name), ("nodes", name, "needs", number))
    for use in reads_of(spec).of_node[name]:
        path = use.reference.path
        if path[0] == "nodes" and len(path) > 1:
            yield Cause(Edge(path[1], name), use.text.path, use)
    for label, target, path in routes_of(spec, name):
        if target is not None:
            yield Cause(Edge(name, target, label), path)
    if node.on_error.then is not None:
        yield Cause(Edge(name, node.on_error.then, ON_ERROR), ("nodes", name, "on_error", "then"))


def edges_of(spec: FlowSpec) -> list[Edge]:
    """The edges of a flow, each once: the order is that of the file."""
    edges = dict.fromkeys(cause.edge for cause in causes_of(spec))
    return [edge for edge in edges if edge.source in spec.nodes and edge.target in spec.nodes]


def vertices_of(spec: FlowSpec) -> list[Vertex]:
    """The vertices of a flow, in the order of the file."""
    return [_vertex(name, node) for name, node in spec.nodes.items()]


def _vertex(name: str, node: NodeSpec) -> Vertex:
    return Vertex(name, node.type, node.join, node.on_error.action, node.type in TRANSPARENT)
