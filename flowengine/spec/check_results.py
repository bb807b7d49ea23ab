"""Checks of `result`: which predecessor speaks, and whether there is one.

Source of the rules: rule 7 of the flow format.
"""

from __future__ import annotations

from typing import Final

from flowengine.spec.gaps import gaps_of
from flowengine.spec.levels import key_path
from flowengine.spec.references import reads_of
from flowengine.spec.report import Report
from flowengine.spec.runs import LAST, Runs
from flowengine.spec.schema import FlowSpec
from flowengine.spec.schema_nodes import AgentNodeSpec, EvaluationNodeSpec, LoopNodeSpec, RoutingNodeSpec
from flowengine.spec.settings import setting_of

__all__ = ["check_results"]

_MANY: Final = 200
"""Predecessors that are compared with each other; beyond that the run finds out."""


def check_results(spec: FlowSpec, runs: Runs, report: Report) -> None:
    """`result` read, or a prompt left out, where nobody speaks or where two predecessors can."""
    speakers = _Speakers(runs)
    for number in range(len(runs.nodes)):
        node, path = runs.nodes[number], runs.path_of(number)
        uses = [use for use in reads_of(spec).of_node[path] if use.reference.path[0] == "result"]
        unprompted = _takes_result(runs, number)
        if unprompted and runs.is_reached_surely(number):
            _check_first(spec, runs, number, report)
        if not runs.is_sure(number) or not (uses or unprompted):
            continue
        pair = speakers.two_before(number)
        if pair is None:
            continue
        one, other = (runs.graph.ids[each] for each in pair)
        names = f"'{one}' and '{other}' can both come before this node"
        if unprompted:
            key = "prompt" if isinstance(node, AgentNodeSpec) else "target"
            text = f"without '{key}' it takes `result`, and {names}: give '{key}'"
            report.at_key("FE215", text, key_path(path))
        for use in uses:
            hint = f"; name one of them: nodes.{one}.output"
            report.at_use("FE215", f"`result` is ambiguous: {names}", use, hint)


def _takes_result(runs: Runs, number: int) -> bool:
    node = runs.nodes[number]
    if isinstance(node, AgentNodeSpec):
        return node.prompt is None
    if isinstance(node, RoutingNodeSpec | EvaluationNodeSpec):
        return node.target is None and runs.sees_surely(number) and not runs.any_before(number, LAST)
    return False


def _check_first(spec: FlowSpec, runs: Runs, number: int, report: Report) -> None:
    """A first node takes the flow's inputs, or the item of a map; in a loop there is nothing to take."""
    node, path = runs.nodes[number], key_path(runs.path_of(number))
    if isinstance(runs.level.holder, LoopNodeSpec):
        if _is_first(runs, number):
            key = "prompt" if isinstance(node, AgentNodeSpec) else "target"
            text = f"a first node of a loop has nobody's result to work on: give '{key}'"
            report.at_key("FE219", text, path)
    elif runs.level.holder is None and not runs.graph.parents[number] and not _has_inputs(spec):
        _ask_for_something(spec, runs, number, report)


def _has_inputs(spec: FlowSpec) -> bool:
    return bool(spec.inputs) or "inputs" in gaps_of(spec).roots


def _is_first(runs: Runs, number: int) -> bool:
    """Whether nothing comes before a node but what passes on what it received."""
    todo, seen = [number], {number}
    while todo:
        for each in runs.predecessors(todo.pop()):
            if not runs.graph.vertices[each].transparent:
                return False
            if each not in seen:
                seen.add(each)
                todo.append(each)
    return True


def _ask_for_something(spec: FlowSpec, runs: Runs, number: int, report: Report) -> None:
    node, path = runs.nodes[number], key_path(runs.path_of(number))
    if isinstance(node, AgentNodeSpec):
        if all(setting_of(spec, node, each) is None for each in ("instructions", "system_message")):
            report.at_key("FE219", "there is nothing to ask: give 'prompt' or 'instructions'", path)
    else:
        what = "route" if isinstance(node, RoutingNodeSpec) else "judge"
        report.at_key("FE219", f"there is nothing to {what}: no node comes before; give 'target'", path)


class _Speakers:
    """Predecessors whose results a node cannot choose between; transparent ones are looked through."""

    def __init__(self, runs: Runs) -> None:
        self._runs = runs
        self._graph = runs.graph
        self._known: dict[int, tuple[int, int] | None] = {}

    def two_before(self, number: int) -> tuple[int, int] | None:
        """Two of them, or None."""
        todo = [number]
        while todo:
            at = todo[-1]
            before = self._runs.predecessors(at)
            through = [each for each in before if self._passes_on(each) and each not in self._known]
            if through and at not in self._known:
                todo.extend(through)
                continue
            todo.pop()
            if at not in self._known:
                self._known[at] = self._two_of(at)
        return self._known[number]

    def _two_of(self, number: int) -> tuple[int, int] | None:
        before = self._runs.predecessors(number)[:_MANY]
        if len(before) == 1:
            return self._known[before[0]] if self._passes_on(before[0]) else None
        for at, other in enumerate(before):
            behind = self._known[other] if self._passes_on(other) else None
            if behind is not None and not self._outspoken(number, other, other, before[at + 1 :]):
                return behind
            for one in before[:at]:
                if self._both_speak(one, other) and not self._outspoken(number, one, other, before[at + 1 :]):
                    return one, other
        return None

    def _both_speak(self, one: int, other: int) -> bool:
        if self._runs.live.exclude(one, other) or self._origin(one) == self._origin(other):
            return False
        return not self._graph.ancestry.holds(one, other)

    def _outspoken(self, number: int, one: int, other: int, later: list[int]) -> bool:
        """Whether a predecessor that comes after both has the last word."""
        holds, certain = self._graph.ancestry.holds, self._runs.live.certain
        return any(holds(one, each) and holds(other, each) and certain(number, each) for each in later)

    def _origin(self, number: int) -> int:
        """The node whose result a transparent node passes on, where there is but one."""
        while self._passes_on(number):
            before = self._runs.predecessors(number)
            if len(before) != 1:
                break
            number = before[0]
        return number

    def _passes_on(self, number: int) -> bool:
        return self._graph.vertices[number].transparent
