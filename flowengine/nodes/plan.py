"""A flow made ready to run: graph, wrapped nodes, inputs, merge rules, outputs. Built once, shared by runs.

Flows from YAML and flows built in Python end here, in the same compiled form.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from flowengine.context import Context
from flowengine.engine.graph import Edge, Graph
from flowengine.engine.merging import StateKey
from flowengine.engine.ports import Node
from flowengine.engine.scheduler import OnFailure
from flowengine.engine.state import ENGINE_KEYS
from flowengine.errors import Diagnostic, FlowError
from flowengine.nodes.inputs import InputField
from flowengine.nodes.node import FlowNode
from flowengine.nodes.policy import wrapped
from flowengine.values import freeze

__all__ = ["FlowLimits", "Plan", "assemble"]


@dataclass(frozen=True, slots=True)
class FlowLimits:
    """Bounds of a whole run."""

    concurrency: int | None = None
    """Nodes in flight at once; None: as many as are ready."""
    timeout: float | None = None
    """Seconds for the whole run; None: no bound."""
    on_failure: OnFailure = "drain"


@dataclass(frozen=True)
class Plan:
    """Everything a runner needs. `nodes` are in the graph's topological order."""

    name: str
    graph: Graph
    definitions: Mapping[str, FlowNode]
    nodes: Sequence[Node]
    inputs: Mapping[str, InputField] | None = None
    state: Mapping[str, StateKey] = field(default_factory=dict[str, StateKey])
    outputs: Mapping[str, Callable[[Context], Any]] | None = None
    """Output name → value; None: the outputs of the last nodes, by name."""
    limits: FlowLimits = FlowLimits()
    description: str = ""
    allow_env: Sequence[str] = ()
    """Environment values that templates may read; they are kept in the journal."""
    environ: Mapping[str, str] = field(default_factory=lambda: os.environ, repr=False)
    """Where they are read from."""
    path: str | None = None
    source: str | None = None

    @cached_property
    def fingerprints(self) -> Mapping[str, str]:
        """Node → hash of its definition; worked out at the first use."""
        return {name: _hash(node.fingerprint_source) for name, node in self.definitions.items()}

    @cached_property
    def skeleton(self) -> Mapping[str, Any]:
        """Nodes with kinds and edges with labels, so that a run can be drawn without its flow.

        Frozen, so that a journal may keep the text of it from one run to the next.
        """
        labels: dict[tuple[str, str], list[str]] = {}
        for source, target, route in self.graph.edges:
            opened = labels.setdefault((source, target), [])
            if route is not None:
                opened.append(route)
        return freeze(
            {
                "nodes": [[vertex.id, vertex.kind] for vertex in self.graph.vertices],
                "edges": [[source, target, opened] for (source, target), opened in labels.items()],
            }
        )

    def prepare(self) -> None:
        """Let every node say now what would fail later (a missing key), before anything is paid."""
        for node in self._preparing:
            node.prepare()

    @cached_property
    def _preparing(self) -> Sequence[FlowNode]:
        return [node for node in self.definitions.values() if type(node).prepare is not FlowNode.prepare]


def assemble(name: str, nodes: Mapping[str, FlowNode], **parts: Any) -> Plan:
    """The plan of a flow; `parts` are the other fields of `Plan`.

    Raises `FlowError` for no nodes, unknown targets and cycles.
    """
    if not nodes:
        raise FlowError([Diagnostic("FE208", f"flow '{name}' has no nodes")])
    graph = Graph(
        (node.vertex(each) for each, node in nodes.items()),
        (edge for each, node in nodes.items() for edge in _edges(each, node)),
    )
    reserved = [key for key in parts.get("state", ()) if key in ENGINE_KEYS or key.startswith("=")]
    if reserved:
        raise FlowError([Diagnostic("FE402", f"shared state key '{reserved[0]}' belongs to the engine")])
    runnable = {each: wrapped(node) for each, node in nodes.items()}
    return Plan(name, graph, dict(nodes), [runnable[each] for each in graph.ids], **parts)


def _edges(name: str, node: FlowNode) -> list[Edge]:
    return list(node.edges(name))


def _hash(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value, default=repr, sort_keys=True, ensure_ascii=False)
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:16]
