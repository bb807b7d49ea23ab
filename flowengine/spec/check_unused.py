"""Warnings about what is declared and never read: inputs, state keys, agents.

Code can read inputs and state too, so a flow that calls code is not warned about them.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from flowengine.spec.check_code import code_of
from flowengine.spec.gaps import gaps_of
from flowengine.spec.levels import nodes_of
from flowengine.spec.references import causes_of, reads_of
from flowengine.spec.report import Report
from flowengine.spec.schema import FlowSpec
from flowengine.spec.schema_nodes import AgentNodeSpec, EvaluationNodeSpec, NodeSpec, RoutingNodeSpec

__all__ = ["check_unused"]


def check_unused(spec: FlowSpec, report: Report) -> None:
    """Inputs, state keys and agents that nobody names."""
    gaps = gaps_of(spec)
    lost = gaps.reads_lost or report.errors & {"FE302", "FE305", "FE308"}
    if not lost and not any(True for _ in code_of(spec)):
        _check_reads(spec, report)
    if gaps.agents_lost or "FE213" in report.errors:
        return
    given: list[Any] = [spec.defaults.agent, *(getattr(node, "agent", None) for _, node in nodes_of(spec))]
    named = {each for each in given if isinstance(each, str)}
    for name in spec.agents:
        if name not in named:
            report.at_key("FE906", f"no node names the agent '{name}'", ("agents", name))


def _check_reads(spec: FlowSpec, report: Report) -> None:
    paths = [use.reference.path for use in reads_of(spec).uses]
    for name in () if "FE304" in report.errors else _unread("shared_state", spec.shared_state, paths):
        report.at_key("FE904", f"nobody reads the state key '{name}'", ("shared_state", name))
    if not _takes_inputs_unnamed(spec) and "FE303" not in report.errors:
        for name in _unread("inputs", spec.inputs, paths):
            report.at_key("FE905", f"nobody reads the input '{name}'", ("inputs", name))


def _unread(root: str, declared: Iterable[str], paths: Iterable[tuple[str, ...]]) -> list[str]:
    read = {path[1] if len(path) > 1 else None for path in paths if path[0] == root}
    return [] if None in read else [name for name in declared if name not in read]


def _takes_inputs_unnamed(spec: FlowSpec) -> bool:
    """Whether a first node's user input is the flow's inputs (rule 7)."""
    followed = {cause.edge.target for cause in causes_of(spec)}
    return any(name not in followed and _asks_nothing(node) for name, node in spec.nodes.items())


def _asks_nothing(node: NodeSpec) -> bool:
    """Whether a node's user input, or what it judges, is left out."""
    if isinstance(node, AgentNodeSpec):
        return node.prompt is None
    return isinstance(node, RoutingNodeSpec | EvaluationNodeSpec) and node.target is None
