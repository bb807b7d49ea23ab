"""Exports what a file of a node kind imports, ours and a package's alike; each kind has a file in this folder.

A package names a `NodeKind` under the entry point group `flowengine.nodes`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from flowengine.core.context import Context, NodeResult
from flowengine.core.node_traits import NodeTraits
from flowengine.flowfile.compile.scope import address, boolean, expression, template, values
from flowengine.flowfile.schema.fields import (
    CodePath,
    Duration,
    Expression,
    Identifier,
    Keys,
    ListOf,
    Maybe,
    NodeId,
    Plain,
    Prompt,
    Rendered,
    Routes,
    Score,
    Target,
    Template,
    Values,
    refuse,
)
from flowengine.flowfile.schema.keys import BoundedKeys, NodeKeys, OwnRoute, WorkKeys, routes_to, targets_of
from flowengine.flowfile.schema.node_kinds import BodyKeys, NodeCompiler, NodeKind

if TYPE_CHECKING:
    from flowengine.nodes.node import FlowNode

__all__ = [
    "BodyKeys",
    "BoundedKeys",
    "CodePath",
    "Context",
    "Duration",
    "Expression",
    "FlowNode",
    "Identifier",
    "Keys",
    "ListOf",
    "Maybe",
    "NodeCompiler",
    "NodeId",
    "NodeKeys",
    "NodeKind",
    "NodeResult",
    "NodeTraits",
    "OwnRoute",
    "Plain",
    "Prompt",
    "Rendered",
    "Routes",
    "Score",
    "Target",
    "Template",
    "Values",
    "WorkKeys",
    "address",
    "boolean",
    "expression",
    "refuse",
    "routes_to",
    "targets_of",
    "template",
    "values",
]


def __getattr__(name: str) -> type[FlowNode]:
    """Imports the class of all nodes at its first use: a file is checked without the engine."""
    if name != "FlowNode":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from flowengine.nodes.node import FlowNode

    return FlowNode
