"""Exports what a file of a node kind imports, ours and a package's alike; each kind has a file in this folder.

A package names a `NodeKind` under the entry point group `flowengine.nodes`.
"""

from __future__ import annotations

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

__all__ = [
    "BodyKeys",
    "BoundedKeys",
    "CodePath",
    "Duration",
    "Expression",
    "Identifier",
    "Keys",
    "ListOf",
    "Maybe",
    "NodeCompiler",
    "NodeId",
    "NodeKeys",
    "NodeKind",
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
