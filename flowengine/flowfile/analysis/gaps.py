"""Tells what a file's mistakes leave unknown, so that no check takes for missing what is merely written wrongly.

A node that was mended may wait for nodes, lead to nodes and give fields that are not known yet. A finding that such
an unknown could undo is not made; all others are. It finds no mistakes itself.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any, Final, Literal, TypeAlias

from flowengine.flowfile.analysis.flow_nodes import (
    NodePath,
    SpecLevel,
    agent_path,
    home_of,
    is_asking,
    key_path,
    levels_of,
    node_at,
    nodes_of,
    routes_of,
)
from flowengine.flowfile.analysis.references import Cause, Use, causes_of, reads_of, strings_in, visible
from flowengine.flowfile.checks import Nearest
from flowengine.flowfile.schema import AgentSpec, BoundedKeys, FlowSpec
from flowengine.flowfile.yaml import KeyPath

Effect: TypeAlias = Literal["waits", "leads", "gives"]
"""The part of a node that is not fully known: its predecessors, its targets, or its output."""

ALL: Final[frozenset[Effect]] = frozenset({"waits", "leads", "gives"})
_NONE: Final[frozenset[Effect]] = frozenset()
_WAITS: Final[frozenset[Effect]] = frozenset({"waits"})

_EFFECTS: Final[Mapping[str, frozenset[Effect]]] = {
    **dict.fromkeys((*BoundedKeys.model_fields, *AgentSpec.model_fields, "retry"), _NONE),
    **dict.fromkeys(
        ("threshold", "min_confidence", "criteria", "concurrency", "max_iterations", "on_exhausted"), _NONE
    ),
    **dict.fromkeys(("expires", "on_expire", "call", "tool", "code", "as"), _NONE),
    **dict.fromkeys(("method", "follow", "headers_env"), _NONE),
    **dict.fromkeys(("expect",), frozenset[Effect]({"gives"})),
    **dict.fromkeys(("output", "form", "on_item_error", "flow"), frozenset[Effect]({"gives"})),
    **dict.fromkeys(("needs", "when", "join", "set", "instructions", "system_message", "memory"), _WAITS),
    **dict.fromkeys(("improve", "evaluate"), _WAITS),
    **dict.fromkeys(("routes", "then", "else", "fallback"), frozenset[Effect]({"leads"})),
    **dict.fromkeys(("routing", "cases", "on_error"), frozenset[Effect]({"waits", "leads"})),
    **dict.fromkeys(("agent", "type"), ALL),
    **dict.fromkeys(("result", "carry", "initial"), frozenset[Effect]({"waits", "gives"})),
}
"""Key of a node or of an agent → what is unknown of the node where its value is; the others hold texts or order."""

_DECLARED: Final = ("inputs", "shared_state", "agents")


class Gaps:
    """The unknowns of one file."""

    def __init__(self) -> None:
        self.waits: set[NodePath] = set()
        """Nodes that may come after more than is known."""
        self.leads: dict[NodePath, set[str] | None] = {}
        """Nodes that may lead to more than is known: to these, or to any where it is None."""
        self.labels: set[NodePath] = set()
        """Nodes that may have other labels."""
        self.gives: set[NodePath] = set()
        """Nodes whose output may have other fields."""
        self.bodies: set[NodePath] = set()
        """Levels that may have other nodes."""
        self.variables: set[NodePath] = set()
        """Maps and loops whose item or variables may have other names."""
        self.arguments: set[NodePath] = set()
        """Nodes that may give other arguments."""
        self.roots: set[str] = set()
        """`inputs`, `shared_state` and `agents` where others may be declared."""
        self.keys: set[str] = set()
        """State keys whose merge rule is not known."""
        self.agents: defaultdict[KeyPath, set[Effect]] = defaultdict(set)
        """Place of an agent → what is unknown of the nodes that have it."""
        self.words: set[str] = set()
        """Names that are refused where they are declared, and what expressions make of them."""
        self.reads_lost = False
        """Whether a text is lost, and with it what it reads."""
        self.agents_lost = False
        """Whether it is lost which agent a node names."""
        self.everything = False
        """Whether nothing is known of any order."""

    # --- what is noted

    def note(self, path: KeyPath, value: Any, *, unknown_key: bool = False, missing: bool = False) -> None:
        """A value at a path that is no longer as the file has it; `unknown_key`: what it was meant for is not known."""
        head, inside = str(path[0]), path[1:]
        if head == "nodes":
            self._note_node(path, value, unknown_key=unknown_key, missing=missing)
        elif head == "defaults" or (head == "agents" and inside):
            self._note_agent(path, unknown_key=unknown_key)
        elif head in _DECLARED and not inside:
            self.roots.add(head)
        elif head == "shared_state" and (not inside[1:] or inside[1:2] == ("merge",) or unknown_key):
            self.keys.update(str(each) for each in inside[:1])
        elif head == "outputs":
            self.reads_lost = True
        elif unknown_key and not inside:
            self.roots.update(_DECLARED)
            self.reads_lost = True

    def note_word(self, name: str) -> None:
        """A name that cannot be declared: what reads it reads something that is there."""
        self.words.update((name, *re.split(r"\W+", name)))

    def lead(self, node: NodePath, targets: Collection[str] | None) -> None:
        """A node may lead to these others; None: to any."""
        targets_before = self.leads.get(node, set())
        self.leads[node] = None if targets is None or targets_before is None else targets_before | {*targets}

    def apply(self, node: NodePath, effects: Iterable[Effect], targets: Collection[str] | None = None) -> None:
        """Marks what is unknown about a node."""
        for effect in effects:
            if effect == "waits":
                self.waits.add(node)
            elif effect == "gives":
                self.gives.add(node)
            else:
                self.labels.add(node)
                self.lead(node, targets)

    def _note_node(self, path: KeyPath, value: Any, *, unknown_key: bool, missing: bool) -> None:
        node = node_at(path)
        inside = path[len(key_path(node)) :]
        self.agents_lost = self.agents_lost or unknown_key or inside in ((), ("nodes",), ("agent",))
        if not inside:
            self.reads_lost = True
            self.apply(node, ALL, words_in(value) if isinstance(value, dict) else None)
            self.variables.add(node)
        elif inside == ("nodes",):
            self.reads_lost = True
            self.bodies.add(node)
            self.apply(node, ("waits", "gives") if node else ())
        elif unknown_key:
            self.reads_lost = True
            self.apply(node, ALL, words_in(value))
            self.variables.add(node)
            self.arguments.add(node)
        else:
            self._note_key(node, str(inside[0]), value, missing=missing)

    def _note_key(self, node: NodePath, key: str, value: Any, *, missing: bool) -> None:
        effects = _EFFECTS.get(key, _WAITS)
        self.reads_lost = self.reads_lost or "waits" in effects
        targets = None if missing else words_in(value)
        self.apply(node, effects, targets if targets or key == "on_error" else None)
        if key in ("as", "initial", "over"):
            self.variables.add(node)
        if key in ("with", "call"):
            self.arguments.add(node)

    def _note_agent(self, path: KeyPath, *, unknown_key: bool) -> None:
        if path[0] == "defaults" and path[1:2] not in ((), ("agent",)):
            return
        self.agents_lost = self.agents_lost or path[0] == "defaults"
        at = path[:2] if len(path) > 1 else ("defaults", "agent")
        key = str(path[2]) if len(path) > 2 and not unknown_key else None
        effects = ALL if key is None else _EFFECTS.get(key, _WAITS)
        self.agents[at].update(effects)
        self.reads_lost = self.reads_lost or "waits" in effects

    # --- what follows

    def may_be(self, root: str, name: str) -> bool:
        """Tells whether an undeclared name may be part of what is written wrongly."""
        return root in self.roots or name in self.words

    def find_levels(self) -> set[NodePath]:
        """The levels of whose nodes, or of what is inside these, the order is not fully known."""
        inside = (each[:depth] for each in (*self.waits, *self.leads) for depth in range(len(each)))
        return {*self.bodies, *inside}

    def unsure(self, level: NodePath, nodes: Collection[str], edges: Iterable[tuple[str, str]]) -> frozenset[str]:
        """The nodes of a level of which an unknown could change what comes before them."""
        waits = {each[len(level)] for each in (*self.waits, *self.bodies) if _is_below(each, level)}
        leads = {each[-1]: to for each, to in self.leads.items() if each[:-1] == level and each}
        if self.everything or any(to is None and name in waits for name, to in leads.items()):
            return frozenset(nodes)
        after: defaultdict[str, list[str]] = defaultdict(list)
        before: defaultdict[str, list[str]] = defaultdict(list)
        possible = ((name, target) for name, to in leads.items() for target in to or () if target in nodes)
        for source, target in (*edges, *possible):
            after[source].append(target)
            before[target].append(source)
        anywhere = _find_reachable([name for name, to in leads.items() if to is None], before)
        return frozenset(_find_reachable([*waits, *leads, *anywhere], after))


def _is_below(path: NodePath, level: NodePath) -> bool:
    return len(path) > len(level) and path[: len(level)] == level


def _find_reachable(start: Iterable[str], following: Mapping[str, list[str]]) -> set[str]:
    """The nodes that begin, and whatever follows on them."""
    todo = list(start)
    reachable = set(todo)
    while todo:
        for each in following.get(todo.pop(), ()):
            if each not in reachable:
                reachable.add(each)
                todo.append(each)
    return reachable


def gaps_of(spec: FlowSpec) -> Gaps:
    """The unknowns of a spec; of one without mistakes there are none."""
    return spec.remember("gaps", lambda _: Gaps())


def words_in(value: Any) -> set[str]:
    """Every text in a value of a file, and every word of it: ids that it may name."""
    words: set[str] = set()
    for _, each in strings_in(value):
        words.add(each)
        words.update(re.findall(r"\w+", each))
    return words


# --- What names that lead nowhere, and texts that do not parse, leave unknown of a flow's order


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
    """Tells whether a text names a node that its level does not see, or may mean to name one."""
    root, *fields = use.reference.path
    if root == "nodes":
        return not fields or home_of(spec, level, fields[0]) is None
    return root.startswith("node") and root not in visible(spec, level, use.text.scope)


def _note_agents(spec: FlowSpec, gaps: Gaps) -> None:
    routing = "agents" in gaps.roots or any(each.routing is not None for each in spec.agents.values())
    for path, node in nodes_of(spec):
        if not is_asking(node):
            continue
        at = agent_path(spec, key_path(path), node)
        if at is None:
            continue
        if at[0] == "agents" and at[1] not in spec.agents:
            gaps.apply(path, ("waits", "gives", "leads") if routing else ("waits", "gives"))
        elif at in gaps.agents:
            gaps.apply(path, gaps.agents[at])


def _note_end(level: SpecLevel, cause: Cause, gaps: Gaps, nearest: Nearest) -> None:
    (source, target, label), _, use = cause
    if source == target or (use is None and label is None and source not in level.nodes):
        gaps.waits.add((*level.path, target))
    elif use is None and label is not None and target not in level.nodes:
        likely_target = nearest.of(target, level.nodes)
        gaps.lead((*level.path, source), None if likely_target is None else (likely_target,))


def _ambiguous(spec: FlowSpec, level: SpecLevel, name: str) -> Iterator[str]:
    """The labels of a node that lead to two places."""
    targets: dict[str, str | None] = {}
    for each in routes_of(spec, name, level.path):
        if targets.setdefault(each.label, each.target) != each.target:
            yield each.label
