"""Checks of what can happen in a run: which predecessor speaks, who wrote last, what may be absent.

An error is said only of what is sure to be ambiguous where both nodes are live; what cannot be seen
here is a clear error of the run.

Source of the rules: rules 6, 7, 8 and 15 of the flow format, and its list of warnings.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from flowengine.engine.exclusion import Liveness
from flowengine.engine.graph import ON_ERROR, Graph
from flowengine.spec.last import Lasts, masks_of
from flowengine.spec.positions import KeyPath
from flowengine.spec.references import Use, edges_of, labels_of, reads_of, vertices_of
from flowengine.spec.report import Report
from flowengine.spec.schema import FlowSpec
from flowengine.spec.schema_nodes import AgentNodeSpec, EvaluationNodeSpec, RoutingNodeSpec
from flowengine.spec.settings import setting_of

__all__ = ["check_runs"]

_LAST: Final = "the last generation"
_ROUTING: Final = "`routing_result`"
_EVALUATION: Final = "`evaluation_result`"
_ENGINE_ROOTS: Final = {"routing_result": _ROUTING, "evaluation_result": _EVALUATION}
_MANY: Final = 200
"""Predecessors that are compared with each other; beyond that the run finds out."""
_COMPARED: Final = 50_000
"""Pairs of writers of one key that are compared; beyond that the run finds out."""


def check_runs(spec: FlowSpec, report: Report, *, warnings: bool) -> None:
    """Ambiguous values and unordered writers; with `warnings` also what is merely doubtful."""
    runs = _Runs(spec, report)
    runs.check_results()
    runs.check_engine_values()
    runs.check_writers()
    if warnings and not report.failed:
        runs.warn_of_absent_values()
        runs.warn_of_targets_behind_siblings()
        runs.warn_of_dead_nodes()


class _Runs:
    def __init__(self, spec: FlowSpec, report: Report) -> None:
        self._spec = spec
        self._report = report
        self._graph = graph = Graph(vertices_of(spec), edges_of(spec))
        self._nodes = [spec.nodes[name] for name in graph.ids]
        labels = {number: labels_of(spec, name) for number, name in enumerate(graph.ids)}
        optional = {
            number for number, node in enumerate(self._nodes) if node.when is not None or node.on_error.action == "skip"
        }
        self._live = Liveness(graph, labels, optional)
        self._speakers: dict[int, tuple[int, int] | None] = {}
        self._lasts = Lasts(graph, self._live, {
            _LAST: {number for number, node in enumerate(self._nodes) if isinstance(node, AgentNodeSpec)},
            _ROUTING: {number for number in range(len(graph)) if self._routes(number)},
            _EVALUATION: {number for number in range(len(graph)) if self._evaluates(number)},
        })  # fmt: skip

    def _routes(self, number: int) -> bool:
        node = self._nodes[number]
        if isinstance(node, AgentNodeSpec):
            return setting_of(self._spec, node, "routing") is not None
        return isinstance(node, RoutingNodeSpec)

    def _evaluates(self, number: int) -> bool:
        node = self._nodes[number]
        if isinstance(node, AgentNodeSpec):
            return any(setting_of(self._spec, node, each) is not None for each in ("improve", "evaluate"))
        return isinstance(node, EvaluationNodeSpec)

    # --- rule 7: `result`

    def check_results(self) -> None:
        """`result` read, or a prompt left out, where two predecessors can both speak."""
        for number, name in enumerate(self._graph.ids):
            node = self._nodes[number]
            path: KeyPath = ("nodes", name)
            uses = [use for use in reads_of(self._spec).of_node[name] if use.reference.path[0] == "result"]
            unprompted = self._takes_result(number)
            if unprompted and not self._graph.parents[number] and not self._spec.inputs:
                self._ask_for_something(number, path)
            if not uses and not unprompted:
                continue
            pair = self._two_speakers(number)
            if pair is None:
                continue
            one, other = (self._graph.ids[each] for each in pair)
            names = f"'{one}' and '{other}' can both come before this node"
            if unprompted:
                key = "prompt" if isinstance(node, AgentNodeSpec) else "target"
                self._report.at_key("FE215", f"without '{key}' it takes `result`, and {names}: give '{key}'", path)
            for use in uses:
                hint = f"; name one of them: nodes.{one}.output"
                self._report.at_use("FE215", f"`result` is ambiguous: {names}", use, hint)

    def _takes_result(self, number: int) -> bool:
        node = self._nodes[number]
        if isinstance(node, AgentNodeSpec):
            return node.prompt is None
        if isinstance(node, RoutingNodeSpec | EvaluationNodeSpec):
            return node.target is None and not self._lasts.before(number, _LAST)
        return False

    def _ask_for_something(self, number: int, path: KeyPath) -> None:
        node = self._nodes[number]
        if isinstance(node, AgentNodeSpec):
            if all(setting_of(self._spec, node, each) is None for each in ("instructions", "system_message")):
                self._report.at_key("FE219", "there is nothing to ask: give 'prompt' or 'instructions'", path)
        else:
            what = "route" if isinstance(node, RoutingNodeSpec) else "judge"
            self._report.at_key("FE219", f"there is nothing to {what}: no node comes before; give 'target'", path)

    def _two_speakers(self, number: int) -> tuple[int, int] | None:
        """Two predecessors whose results a node cannot choose between, or None; transparent ones are looked through."""
        todo = [number]
        while todo:
            at = todo[-1]
            through = [each for each in self._predecessors(at) if self._passes_on(each) and each not in self._speakers]
            if through and at not in self._speakers:
                todo.extend(through)
                continue
            todo.pop()
            if at not in self._speakers:
                self._speakers[at] = self._speakers_of(at)
        return self._speakers[number]

    def _speakers_of(self, number: int) -> tuple[int, int] | None:
        before = self._predecessors(number)[:_MANY]
        if len(before) == 1:
            return self._speakers[before[0]] if self._passes_on(before[0]) else None
        for at, other in enumerate(before):
            for one in before[:at]:
                if self._both_speak(one, other) and not self._outspoken(number, one, other, before[at + 1 :]):
                    return one, other
        return None

    def _both_speak(self, one: int, other: int) -> bool:
        if self._live.exclude(one, other) or self._origin(one) == self._origin(other):
            return False
        return not self._graph.ancestry.holds(one, other)

    def _outspoken(self, number: int, one: int, other: int, later: list[int]) -> bool:
        """Whether a predecessor that comes after both has the last word."""
        holds = self._graph.ancestry.holds
        return any(holds(one, each) and holds(other, each) and self._live.certain(number, each) for each in later)

    def _origin(self, number: int) -> int:
        """The node whose result a transparent node passes on, where there is but one."""
        while self._passes_on(number):
            before = self._predecessors(number)
            if len(before) != 1:
                break
            number = before[0]
        return number

    def _passes_on(self, number: int) -> bool:
        return self._graph.vertices[number].transparent

    def _predecessors(self, number: int) -> list[int]:
        """Parents that may have succeeded; the failed one that this node handles says nothing."""
        gates = dict(self._graph.gates.get(number, ()))
        return [parent for parent in self._graph.parents[number] if gates.get(parent) != frozenset({ON_ERROR})]

    # --- rule 8: the engine's values

    def check_engine_values(self) -> None:
        """A value of the engine read where two ancestors without an order could have set it."""
        for number, name in enumerate(self._graph.ids):
            node = self._nodes[number]
            judges = isinstance(node, RoutingNodeSpec | EvaluationNodeSpec)
            if judges and node.target is None:
                pair = self._lasts.two_before(number, _LAST)
                if pair is not None:
                    text = f"without 'target' it reads the last generation, and {self._names(pair)}: give 'target'"
                    self._report.at_key("FE216", text, ("nodes", name))
            for use in reads_of(self._spec).of_node[name]:
                self._check_engine_use(use, number)
        for use in reads_of(self._spec).uses:
            if use.text.scope == "outputs":
                self._check_engine_use(use, None)

    def _check_engine_use(self, use: Use, number: int | None) -> None:
        root, *fields = use.reference.path
        what = _ENGINE_ROOTS.get(root)
        if root == "shared_state" and fields and fields[0] in ("_last_prompt", "_last_generation"):
            what = _LAST
        if what is not None:
            pair = self._lasts.two_before(number, what)
            if pair is not None:
                hint = f"; name the node: nodes.{self._graph.ids[pair[1]]}.output"
                self._report.at_use("FE216", f"{what} is ambiguous: {self._names(pair)}", use, hint)

    def _names(self, pair: tuple[int, int]) -> str:
        return f"both '{self._graph.ids[pair[0]]}' and '{self._graph.ids[pair[1]]}' could have set it"

    # --- rule 6: writers of one key

    def check_writers(self) -> None:
        """Two nodes without an order that write one key with `set`, where the key has no merge rule."""
        writers: dict[str, list[int]] = {}
        for number, node in enumerate(self._nodes):
            for key in node.set:
                if self._spec.shared_state[key].merge == "error":
                    writers.setdefault(key, []).append(number)
        shared = {key: numbers for key, numbers in writers.items() if len(numbers) > 1}
        masks = masks_of(self._graph, {number for numbers in shared.values() for number in numbers}) if shared else {}
        for key, numbers in shared.items():
            for one, other in self._racing(numbers, masks):
                ids = self._graph.ids
                text = f"'{ids[one]}' writes '{key}' too, and neither node comes before the other"
                hint = "; order them with `needs`, or give the key a `merge` rule"
                self._report.at_key("FE217", text, ("nodes", ids[other], "set", key), hint)

    def _racing(self, numbers: list[int], masks: dict[int, int]) -> Iterator[tuple[int, int]]:
        """Each writer with the first one that it has no order with and that can be live beside it."""
        compared = 0
        for at, other in enumerate(numbers):
            for one in numbers[:at]:
                if compared < _COMPARED and not masks[other] >> one & 1:
                    compared += 1
                    if not self._live.exclude(one, other):
                        yield one, other
                        break

    # --- warnings

    def warn_of_absent_values(self) -> None:
        """A printed output of a node that can be skipped while the reader runs."""
        for number, name in enumerate(self._graph.ids):
            uses = reads_of(self._spec).of_node[name]
            tested = {use.reference.path[1:2] for use in uses if use.text.path[-1] == "when"}
            for use in uses:
                if use.reference.path[1:2] not in tested:
                    self._warn_if_absent(use, number)
        for use in reads_of(self._spec).uses:
            if use.text.scope == "outputs":
                self._warn_if_absent(use, None)

    def _warn_if_absent(self, use: Use, reader: int | None) -> None:
        path = use.reference.path
        if path[0] != "nodes" or len(path) < 3 or not use.reference.printed or use.reference.guarded:
            return
        _, node, field, *_ = path
        if field in ("output", "result") and not self._live.certain(reader, self._graph.index[node]):
            text = f"'{node}' may be skipped, and then it has no {field} to print"
            self._report.at_use("FE903", text, use, "; add `| default(…)`")

    def warn_of_targets_behind_siblings(self) -> None:
        """A route's target that another target of the same node leads to without a route."""
        graph = self._graph
        for number, routes in graph.routes.items():
            targets = [target for target, _ in routes]
            for target in targets:
                gated = {gate for gate, _ in graph.gates[target]}
                plain = [parent for parent in graph.parents[target] if parent not in gated]
                sibling = self._sibling_above(plain, [each for each in targets if each != target])
                if sibling is not None:
                    name, chooser, other = graph.ids[target], graph.ids[number], graph.ids[sibling]
                    text = f"'{name}' is a route of '{chooser}' and also comes after its sibling '{other}'"
                    self._report.at_key("FE901", text, ("nodes", name))

    def _sibling_above(self, parents: list[int], siblings: list[int]) -> int | None:
        holds = self._graph.ancestry.holds
        for parent in parents:
            for sibling in siblings:
                if sibling == parent or (sibling < parent and holds(sibling, parent)):
                    return sibling
        return None

    def warn_of_dead_nodes(self) -> None:
        """A node whose predecessors can never be live together."""
        for number in self._live.dead:
            text = "no run can reach this node: what it waits for excludes itself"
            self._report.at_key("FE902", text, ("nodes", self._graph.ids[number]))
