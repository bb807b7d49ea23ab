"""Computes what a flow may take at most, from its file before anything runs: model calls, tokens, cost.

Nothing is run and no model is asked. Of ways through the flow that exclude each other, because one node's
routes lead into them, the dearest counts; where it is not so plain, all of them do. Functions of the
project are not looked into: models that they ask themselves are not in the numbers.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from graphlib import TopologicalSorter
from typing import Any, NamedTuple

from flowengine.engine import Edge
from flowengine.flowfile.analysis import NodePath, edges_of, level_of
from flowengine.flowfile.estimate.cost_bound import Most, dearest_way, longest_way
from flowengine.flowfile.estimate.model_call_bounds import Asking
from flowengine.flowfile.estimate.output_sizes import OutputSizes, foreseen_value
from flowengine.flowfile.kinds.map_kind import MapNodeSpec
from flowengine.flowfile.kinds.subflow_kind import SubflowNodeSpec
from flowengine.flowfile.schema import BodyKeys, BoundedKeys, FlowSpec, NodeLimitsSpec, NodeSpec
from flowengine.models import ModelFacts


class NodeBound(NamedTuple):
    """The maximum usage of one node in all its runs."""

    path: str
    """The node's path as events have it, without positions: `polish.judge`."""
    kind: str
    runs: int | None
    """How often it can run; None: unknown."""
    most: Most
    depth: int
    """Containers round it."""


class Waves(NamedTuple):
    """Model calls of a run that come one after the other: batches that it goes through, one for each."""

    usual: int | None
    """The batches where each node asks once in each round; None: unknown."""
    most: int | None


class FlowBound(NamedTuple):
    """The maximum usage of a flow."""

    nodes: Sequence[NodeBound]
    """Every node, in the order of the file, a container before those inside it."""
    unlimited: Most
    """The bound without the limits of the run; those of its parts count."""
    most: Most
    """Within the limits of the run, too."""
    billed: Most
    """The same, where as many attempts as there can be get no answer, and are billed all the same."""
    longest: Sequence[str]
    """The longest chain of nodes that come one after the other."""
    waves: Waves
    """Calls that come one after the other."""


def bound_of(
    spec: FlowSpec,
    facts: ModelFacts | None = None,
    *,
    inputs: Mapping[str, Any] | None = None,
    model: str | None = None,
) -> FlowBound:
    """The bound of a flow. `inputs`: those that are known; `model`: instead of every model that the file names.

    >>> from flowengine.flowfile.loader import load_flow
    >>> spec = load_flow(text="{flowengine: v1, name: f, nodes: {a: {prompt: Why?, model: gpt-4o-mini}}}")
    >>> bound_of(spec).most.calls
    2
    """
    arguments = {name: each.default for name, each in spec.inputs.items() if not each.required} | dict(inputs or {})
    flow = _File(spec, facts or ModelFacts(), arguments, model, _bounds_answers(spec.limits))
    nodes = flow.level((), is_capped=_bounds_answers(spec.limits))
    unlimited, billed = flow.together((), nodes)
    return FlowBound(
        list(_list_rows(nodes, "", 1, 0)),
        unlimited,
        unlimited.within(spec.limits),
        billed.within(spec.limits),
        longest_way(list(level_of(spec)), edges_of(spec)),
        Waves(*(_count_waves(nodes, edges_of(spec), usual=usual) for usual in (True, False))),
    )


class _Node(NamedTuple):
    """A node in one run of the level round it."""

    name: str
    kind: str
    most: Most
    billed: Most
    """The bound with attempts that get no answer."""
    times: int | None
    """How often its body runs."""
    inside: Sequence[_Node]
    edges: Sequence[Edge] = ()
    """The edges of its body."""


class _File:
    """One file: the flow's own, or that of a subflow."""

    def __init__(
        self, spec: FlowSpec, facts: ModelFacts, inputs: Mapping[str, Any], model: str | None, is_capped: bool
    ) -> None:
        self._spec = spec
        self._facts = facts
        self._inputs = inputs
        self._model = model
        self._inner: dict[NodePath, _File] = {}
        self._asking = {capped: Asking(spec, facts, model, is_capped=capped) for capped in (False, True)}
        self.sizes = OutputSizes(spec, inputs, self._asking[is_capped].answer, self._sizes_inside)

    def level(self, level: NodePath, *, is_capped: bool) -> list[_Node]:
        """The nodes of one level. `is_capped`: a limit on cost or tokens holds for it."""
        return [self._node((*level, name), node, is_capped) for name, node in level_of(self._spec, level).items()]

    def together(self, level: NodePath, nodes: Sequence[_Node]) -> tuple[Most, Most]:
        """Adds up one run of a level: (where all attempts are answered, with those that are not)."""
        edges = list(edges_of(self._spec, level))
        always = [name for name, node in level_of(self._spec, level).items() if node.join == "always"]
        most, billed = {each.name: each.most for each in nodes}, {each.name: each.billed for each in nodes}
        return dearest_way(most, edges, always), dearest_way(billed, edges, always)

    def _node(self, path: NodePath, node: NodeSpec, is_capped: bool) -> _Node:
        limits = node.limits if isinstance(node, BoundedKeys) else None
        is_capped = is_capped or _bounds_answers(limits)
        times, inside, edges = 1, list[_Node](), list[Edge]()
        if isinstance(node, BodyKeys):
            times = self.sizes.over(path).items if isinstance(node, MapNodeSpec) else node.most_rounds()
            inside, edges = self.level(path, is_capped=is_capped), list(edges_of(self._spec, path))
            most, billed = (each.times(times) for each in self.together(path, inside))
        elif isinstance(node, SubflowNodeSpec):
            inner = self._file(path, node)
            inside = inner.level((), is_capped=is_capped or _bounds_answers(inner._spec.limits))
            edges = list(edges_of(inner._spec))
            most, billed = (each.within(inner._spec.limits) for each in inner.together((), inside))
        else:
            asking = self._asking[is_capped]
            most = asking.most(path, node, self.sizes)
            billed = most.times(asking.attempts(node))
        return _Node(path[-1], node.type, most.within(limits), billed.within(limits), times, inside, edges)

    def _file(self, path: NodePath, node: SubflowNodeSpec) -> _File:
        """The file of a subflow, with those of its inputs that are known here."""
        if path not in self._inner:
            spec = self._spec.subflows[node.flow]
            inputs = {name: each.default for name, each in spec.inputs.items() if not each.required}
            for name, value in node.with_.items():
                inputs.pop(name, None)
                answer = foreseen_value(value, self._inputs)
                if answer is not None:
                    inputs[name] = answer.value
            self._inner[path] = _File(spec, self._facts, inputs, self._model, _bounds_answers(spec.limits))
        return self._inner[path]

    def _sizes_inside(self, path: NodePath) -> OutputSizes:
        node = level_of(self._spec, path[:-1])[path[-1]]
        assert isinstance(node, SubflowNodeSpec)
        return self._file(path, node).sizes


def _bounds_answers(limits: NodeLimitsSpec | None) -> bool:
    """Tells whether these limits make calls have a bound on their answers."""
    return limits is not None and (limits.cost_usd is not None or limits.tokens is not None)


def _list_rows(nodes: Sequence[_Node], prefix: str, runs: int | None, depth: int) -> Iterator[NodeBound]:
    for each in nodes:
        yield NodeBound(f"{prefix}{each.name}", each.kind, runs, each.most.times(runs), depth)
        inside = None if runs is None or each.times is None else runs * each.times
        yield from _list_rows(each.inside, f"{prefix}{each.name}.", inside, depth + 1)


def _count_waves(nodes: Sequence[_Node], edges: Iterable[Edge], *, usual: bool) -> int | None:
    """The calls on the way with the most of them; the items of a map ask at once, the rounds of a loop in turn."""
    own: dict[str, int | None] = {}
    for node in nodes:
        if not node.inside:
            own[node.name] = min(1, node.most.calls or 0) if usual and node.most.calls is not None else node.most.calls
            continue
        inner, rounds = _count_waves(node.inside, node.edges, usual=usual), node.times if node.kind == "loop" else 1
        own[node.name] = None if inner is None or rounds is None else inner * rounds
    before: dict[str, list[str]] = {}
    for edge in edges:
        before.setdefault(edge.target, []).append(edge.source)
    graph = {name: [each for each in before.get(name, ()) if each in own] for name in own}
    waves: dict[str, int] = {}
    for name in TopologicalSorter(graph).static_order():
        calls = own[name]
        if calls is None:
            return None
        waves[name] = calls + max((waves[each] for each in graph[name]), default=0)
    return max(waves.values(), default=0)
