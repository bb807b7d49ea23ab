"""Warns of repetitions that have no bound but what models decide: maps over a model's list, loops that ask models.

It knows what a file says, and no price; what a run may cost at most is for `flowengine plan`.
"""

from __future__ import annotations

from typing import Final

from flowengine.core import is_map
from flowengine.flowfile.analysis import (
    NodePath,
    SpecLevel,
    flows_in,
    holders_of,
    home_of,
    is_agent,
    is_asking,
    is_loop,
    is_map_node,
    key_path,
    level_of,
    levels_of,
    nodes_of,
    over_shape,
)
from flowengine.flowfile.checks.report import Report
from flowengine.flowfile.schema import FlowSpec, NodeLimitsSpec

_ITEMS: Final = 20
"""The bound of a list that the warning proposes."""
_CALLS: Final = 2
"""Calls of each node in a round that the proposed limit allows: one, and one for an answer that does not fit."""


def warn_of_unbounded(spec: FlowSpec, report: Report) -> None:
    """Maps over a list of a model that may have any length, and loops whose rounds ask models without `limits`."""
    loops: list[NodePath] = []
    for level in levels_of(spec).values():
        path, holder, asking = level.path, level.holder, _count_asking(spec, level)
        if holder is None or (asking and _is_limited(spec, path)):
            continue
        if is_map_node(holder) and _is_open_list(spec, path, holder.over):
            message = f"a model decides how long the list '{holder.over.strip()}' is, and each item is worked on"
            hint = f"; add `maxItems: {_ITEMS}` to its schema"
            if asking:
                hint += f", or `limits: {{model_calls: {_ITEMS * asking * _CALLS}}}` to the map"
            report.at_value("FE912", message, (*key_path(path), "over"), hint)
        if is_loop(holder) and asking and not any(path[: len(outer)] == outer for outer in loops):
            loops.append(path)  # Its limits hold for the loops inside it.
            calls = holder.max_iterations * asking * _CALLS
            message = f"up to {holder.max_iterations:,} rounds ask models, and nothing bounds what they cost"
            report.at_key("FE912", message, key_path(path), f"; add `limits: {{model_calls: {calls}}}`")


def _count_asking(spec: FlowSpec, level: SpecLevel) -> int:
    """The nodes that ask models, anywhere in a level, those of its subflows too."""
    depth, count = len(level.path), 0
    for path, node in nodes_of(spec):
        if path[:depth] != level.path or len(path) == depth:
            continue
        if is_asking(node):
            count += getattr(node, "call", None) is None
        elif (inner := spec.subflows.get(getattr(node, "flow", None) or "")) is not None:
            count += sum(is_asking(each) for flow in flows_in(inner) for _, each in nodes_of(flow))
    return count


def _is_limited(spec: FlowSpec, path: NodePath) -> bool:
    """Tells whether calls, tokens or money are limited: of the container, of one round it, or of the flow."""
    holders = [each.holder for each in holders_of(spec, path)]
    limits = [spec.limits, *(each.limits for each in holders if each is not None)]
    return any(each is not None and _has_bound(each) for each in limits)


def _has_bound(limits: NodeLimitsSpec) -> bool:
    return not (limits.cost_usd is limits.tokens is limits.model_calls is None)


def _is_open_list(spec: FlowSpec, path: NodePath, over: str) -> bool:
    """Tells whether a map goes over a list that a model answers, and whose schema sets no bound."""
    shape = over_shape(spec, path[:-1], over)
    return is_map(shape) and shape.get("type") == "array" and "maxItems" not in shape and _is_answer(spec, path, over)


def _is_answer(spec: FlowSpec, path: NodePath, over: str) -> bool:
    """Tells whether a plain path leads into a model's answer, directly or by the item of a map round it."""
    root, *fields = over.strip().split(".")
    if root == "nodes" and fields:
        home = home_of(spec, path[:-1], fields[0])
        return home is not None and is_agent(level_of(spec, home)[fields[0]])
    for each in holders_of(spec, path[:-1]):
        if is_map_node(each.holder) and each.holder.as_ == root:
            return _is_answer(spec, each.path, each.holder.over)
    return False
