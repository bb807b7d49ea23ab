"""Compares what two versions of a flow can take at most, and finds which changes of which nodes are the cause.

A node's own cost is what its calls take; containers have none of their own, they multiply. So a change of cost is told
of the nodes that ask models, and traced back to the definitions that differ: the node's own, its agent's, those of the
containers round it (which say how often it runs), and what holds for the whole flow. Nothing is run.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

from flowengine.core import cut_text
from flowengine.flowfile.analysis import is_asking, is_subflow, nodes_of, retry_of, settings_of
from flowengine.flowfile.estimate.bounds import FlowBound, NodeBound
from flowengine.flowfile.estimate.cost_bound import Most
from flowengine.flowfile.schema import FlowSpec, NodeSpec


class NodeChange(NamedTuple):
    """A node whose part of the worst case is another one."""

    path: str
    kind: str
    before: Most | None
    """None: the node is new."""
    after: Most | None
    """None: the node is gone."""
    causes: tuple[str, ...]
    """Keys that differ: `model: a → b`, and of a container with its path: `polish.max_iterations: 4 → 8`."""


class BoundChange(NamedTuple):
    """The effect of a change on a flow's worst case."""

    before: Most | None
    """None: there was no such flow."""
    after: Most
    nodes: Sequence[NodeChange]
    """The nodes whose part differs, the largest difference of cost first."""

    @property
    def more_usd(self) -> float | None:
        """The difference in dollars; None where one of both is not known."""
        return None if self.before is None else difference(self.before.cost_usd, self.after.cost_usd)


def difference(before: float | None, after: float | None) -> float | None:
    """Returns the increase."""
    return None if before is None or after is None else after - before


def compare_bounds(old: tuple[FlowSpec, FlowBound] | None, new: tuple[FlowSpec, FlowBound]) -> BoundChange:
    """The change from one version to another, each with its bound. `old`: None where there was no such flow."""
    new_spec, after = new
    old_nodes = () if old is None else old[1].nodes
    definitions = {} if old is None else _definitions(old[0]), _definitions(new_spec)
    rows = {each.path: each for each in old_nodes}, {each.path: each for each in after.nodes}
    whole = () if old is None else tuple(_find_differences("", _of_flow(old[0]), _of_flow(new_spec)))
    changes: list[NodeChange] = []
    for path in dict.fromkeys((*rows[1], *rows[0])):
        one, other = rows[0].get(path), rows[1].get(path)
        if _asks(one) or _asks(other):
            was, now = None if one is None else one.most, None if other is None else other.most
            if was is None or now is None or was[:3] != now[:3]:
                kind = (other or one or _NOBODY).kind
                causes = () if was is None or now is None else tuple(_causes(path, *definitions)) or whole
                changes.append(NodeChange(path, kind, was, now, causes))
    return BoundChange(None if old is None else old[1].most, after.most, sorted(changes, key=_weight, reverse=True))


_NOBODY: Final = NodeBound("", "", None, Most(), 0)
_Definition = Mapping[str, Any]


def _asks(row: NodeBound | None) -> bool:
    return row is not None and row.kind not in ("map", "loop", "subflow") and row.most.calls != 0


def _weight(change: NodeChange) -> tuple[bool, float, float]:
    before, after = change.before or Most(), change.after or Most()
    cost = difference(before.cost_usd, after.cost_usd)
    tokens = difference(before.tokens, after.tokens)
    return cost is None, abs(cost or 0.0), abs(tokens or 0.0)


def _causes(path: str, old: Mapping[str, _Definition], new: Mapping[str, _Definition]) -> Iterator[str]:
    """The keys that differ, of the node and of the containers round it."""
    parts = path.split(".")
    for depth in range(len(parts), 0, -1):
        name = ".".join(parts[:depth])
        holder = "" if depth == len(parts) else f"{name}."
        yield from _find_differences(holder, old.get(name, {}), new.get(name, {}))


def _find_differences(holder: str, old: _Definition, new: _Definition) -> Iterator[str]:
    for key in dict.fromkeys((*old, *new)):
        if old.get(key) != new.get(key):
            yield f"{holder}{key}: {_format_value(old.get(key))} → {_format_value(new.get(key))}"


_SHOWN: Final = 40


def _format_value(value: Any) -> str:
    if value is None:
        return "–"
    if isinstance(value, str) and len(value) > _SHOWN:
        return f"{len(value):,} characters"
    return cut_text(" ".join(str(value).split()), _SHOWN)


def _definitions(spec: FlowSpec, prefix: str = "") -> dict[str, _Definition]:
    """Path of each node, those of subflows included → what decides on its cost."""
    definitions: dict[str, _Definition] = {}
    for path, node in nodes_of(spec):
        name = f"{prefix}{'.'.join(path)}"
        definitions[name] = _definition(spec, node)
        inner = spec.subflows.get(node.flow) if is_subflow(node) else None
        if inner is not None:
            definitions |= _definitions(inner, f"{name}.")
            definitions[name] = {**definitions[name], **_of_flow(inner)}
    return definitions


def _definition(spec: FlowSpec, node: NodeSpec) -> _Definition:
    left_out = {"nodes", "trust", "description", "agent"}
    own = node.model_dump(mode="json", by_alias=True, exclude_unset=True, exclude=left_out)
    if is_asking(node):
        own |= settings_of(spec, node).model_dump(mode="json", by_alias=True, exclude_unset=True)
    retry = retry_of(spec, node)
    return own if retry is None else {**own, "retry": retry.model_dump(mode="json")}


def _of_flow(spec: FlowSpec) -> _Definition:
    """Returns bounds for all nodes: limits, and the inputs that bound what they read."""
    limits = spec.limits.model_dump(mode="json", exclude_unset=True)
    inputs = {
        name: each.model_dump(mode="json", by_alias=True, exclude_unset=True) for name, each in spec.inputs.items()
    }
    return {f"limits.{key}": value for key, value in limits.items()} | {f"inputs.{key}": v for key, v in inputs.items()}
