"""What names that lead nowhere, and texts that do not parse, leave unknown of a flow's order.

What is wrong with them is said by the checks; here it is noted which nodes may come after, or lead to, others.
"""

from __future__ import annotations

from collections.abc import Iterator

from flowengine.spec.gaps import Gaps
from flowengine.spec.levels import Level, home_of, key_path, levels_of, nodes_of
from flowengine.spec.names import visible
from flowengine.spec.nearest import Nearest
from flowengine.spec.references import Cause, Use, causes_of, reads_of
from flowengine.spec.routes import routes_of
from flowengine.spec.schema import FlowSpec
from flowengine.spec.schema_nodes import AgentNodeSpec, EvaluationNodeSpec, RoutingNodeSpec
from flowengine.spec.settings import agent_path

__all__ = ["note_adrift"]


def note_adrift(spec: FlowSpec, gaps: Gaps) -> None:
    """Notes the nodes whose texts, agents, targets and labels are not as they were meant."""
    _note_texts(spec, gaps)
    _note_agents(spec, gaps)
    nearest = Nearest()
    for level in levels_of(spec).values():
        for cause in causes_of(spec, level.path):
            _note_end(level, cause, gaps, nearest)
        for name in level.nodes:
            if any(True for _ in _ambiguous(spec, level, name)):
                gaps.lead((*level.path, name), ())


def _note_texts(spec: FlowSpec, gaps: Gaps) -> None:
    reads = reads_of(spec)
    for text, _ in reads.errors:
        gaps.reads_lost = True
        if text.node:
            gaps.waits.add(text.node)
        elif text.path[0] in ("agents", "defaults"):
            gaps.agents[text.path[:2]].add("waits")
    gaps.everything = gaps.everything or reads.too_much is not None
    for path, uses in reads.of_node.items():
        if any(_is_adrift(spec, use, path[:-1]) for use in uses):
            gaps.waits.add(path)
    for path, uses in reads.at_end.items():
        if path and any(_is_adrift(spec, use, path) for use in uses):
            gaps.waits.add(path)


def _is_adrift(spec: FlowSpec, use: Use, level: tuple[str, ...]) -> bool:
    """Whether a text names a node that nobody sees from its level, or may mean to name one."""
    root, *fields = use.reference.path
    if root == "nodes":
        return not fields or home_of(spec, level, fields[0]) is None
    return root.startswith("node") and root not in visible(spec, level, use.text.scope)


def _note_agents(spec: FlowSpec, gaps: Gaps) -> None:
    routing = "agents" in gaps.roots or any(each.routing is not None for each in spec.agents.values())
    for path, node in nodes_of(spec):
        if not isinstance(node, AgentNodeSpec | RoutingNodeSpec | EvaluationNodeSpec):
            continue
        at = agent_path(spec, key_path(path), node)
        if at is None:
            continue
        if at[0] == "agents" and at[1] not in spec.agents:
            gaps.apply(path, ("waits", "gives", "leads") if routing else ("waits", "gives"))
        elif at in gaps.agents:
            gaps.apply(path, gaps.agents[at])


def _note_end(level: Level, cause: Cause, gaps: Gaps, nearest: Nearest) -> None:
    (source, target, label), _, use = cause
    if source == target or (use is None and label is None and source not in level.nodes):
        gaps.waits.add((*level.path, target))
    elif use is None and label is not None and target not in level.nodes:
        meant = nearest.of(target, level.nodes)
        gaps.lead((*level.path, source), None if meant is None else (meant,))


def _ambiguous(spec: FlowSpec, level: Level, name: str) -> Iterator[str]:
    """The labels of a node that lead to two places."""
    targets: dict[str, str | None] = {}
    for each in routes_of(spec, name, level.path):
        if targets.setdefault(each.label, each.target) != each.target:
            yield each.label
