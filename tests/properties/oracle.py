"""What a flow means: an interpreter of the format's rules in plain recursion, to compare the engine with.

It evaluates the nodes of a level one after the other in the file's order, which has to be a topological one, as though
no failure ever stopped the rest; `Outcome.sure` says which outcomes do not depend on how far the others came when
something failed. It has no clock, no task and no journal, and nothing of the engine. What the format leaves open raises
`Unclear`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache
from typing import Any, NamedTuple

import yaml

from tests.properties.oracle_expressions import ExpressionError, Unclear, choose, node_names, render
from tests.properties.oracle_nodes import KINDS, Result, routes_of
from tests.properties.oracle_scope import Library, Outcome, Scope
from tests.properties.oracle_state import Write, Writes, fold, joined

__all__ = ["Level", "Library", "Meaning", "Outcome", "mean"]


class Meaning(NamedTuple):
    """What a run of the flow gives."""

    status: str
    outputs: Mapping[str, Any]
    state: Mapping[str, Any]
    nodes: Mapping[str, Outcome]
    """By path, those inside of containers too."""
    failures: frozenset[str]
    """Nodes of the top level whose failure nothing handled."""


def mean(flow: Mapping[str, Any], inputs: Mapping[str, Any], library: Library) -> Meaning:
    """The meaning of a flow file, given as what YAML reads from it."""
    given = _given_inputs(flow, inputs)
    outcomes: dict[str, Outcome] = {}
    level = Level(library, "", flow["nodes"], flow.get("shared_state", {}), given, outcomes=outcomes)
    level.evaluate()
    if level.failures:
        return Meaning("failed", {}, {}, outcomes, frozenset(level.failures))
    outputs, state = level.end(flow.get("outputs"))
    return Meaning("succeeded", outputs, state, outcomes, frozenset())


@lru_cache(64)
def _load(text: str) -> Mapping[str, Any]:
    return yaml.safe_load(text)


def _given_inputs(flow: Mapping[str, Any], inputs: Mapping[str, Any]) -> dict[str, Any]:
    declared = flow.get("inputs", {})
    return {name: inputs[name] if name in inputs else spec.get("default") for name, spec in declared.items()}


class Level:
    """Nodes that are ordered among themselves: a flow's own, those of a round, of an item."""

    def __init__(
        self,
        library: Library,
        prefix: str,
        nodes: Mapping[str, Any],
        declared: Mapping[str, Any],
        inputs: Mapping[str, Any],
        *,
        outcomes: dict[str, Outcome],
        outer: Scope | None = None,
        variables: Mapping[str, Any] | None = None,
        before: Writes | None = None,
    ) -> None:
        self.library, self.prefix, self.nodes, self.declared, self.inputs = library, prefix, nodes, declared, inputs
        self.all_outcomes, self.outer = outcomes, outer
        self.variables: dict[str, Any] = {**(outer.level.variables if outer else {}), **(variables or {})}
        self.before: Writes = before or {}
        self.outcomes: dict[str, Outcome] = {}
        self.gates = {node: {each for each in nodes if node in routes_of(nodes[each])} for node in nodes}
        self.parents = {node: self._parents_of(node) for node in nodes}
        self.ancestors: dict[str, list[str]] = {}
        self.failures: list[str] = []

    def _parents_of(self, node: str) -> list[str]:
        spec = self.nodes[node]
        named = node_names(spec) | set(spec.get("needs", ())) | self.gates[node]
        return [each for each in self.nodes if each in named and each != node]

    def evaluate(self) -> None:
        for node in self.nodes:
            behind = {each for parent in self.parents[node] for each in (parent, *self.ancestors[parent])}
            self.ancestors[node] = [each for each in self.nodes if each in behind]
            outcome = self._decided(node)
            self.outcomes[node] = self.all_outcomes[self.prefix + node] = outcome
            if outcome.status == "failed" and not outcome.handled:
                self.failures.append(node)
        if self.failures:
            self._doubt()

    def _doubt(self) -> None:
        """How far the others came depends on timing, here and in all that is inside."""
        for path, outcome in self.all_outcomes.items():
            if path.startswith(self.prefix):
                outcome.sure = False
        for node, outcome in self.outcomes.items():
            behind = (node, *self.ancestors[node])
            outcome.free = outcome.free or any(self.nodes[each].get("join") == "always" for each in behind)

    def _decided(self, node: str) -> Outcome:
        """Gate, join, `when`, in this order; then it runs (rules 2 to 4)."""
        spec, parents = self.nodes[node], [self.outcomes[each] for each in self.parents[node]]
        bad = any(each.failed_behind or (each.status == "failed" and not each.handled) for each in parents)
        good = [each for each in parents if each.status == "succeeded" or (each.handled and each.taken == node)]
        join = spec.get("join", "some")
        deciders = [self.outcomes[each] for each in self.gates[node]]
        if deciders and not any(each.taken == node for each in deciders):
            return Outcome("skipped", cause=_unchosen(deciders), failed_behind=bad)
        if parents and join != "always" and (bad or not good or (join == "all" and len(good) < len(parents))):
            return Outcome("skipped", cause="upstream_failed" if bad else "upstream_skipped", failed_behind=bad)
        scope = Scope(self, node)
        try:
            if "when" in spec and not choose(spec["when"], scope.look_up):
                return Outcome("skipped", cause="condition_false", failed_behind=bad)
            return self._ran(node, spec, scope)
        except ExpressionError:
            return self._failed(spec)

    def _ran(self, node: str, spec: Mapping[str, Any], scope: Scope) -> Outcome:
        kind = spec.get("type", "agent")
        attempts = spec.get("retry", {}).get("attempts", 1)
        while True:
            try:
                result = KINDS[kind](spec, scope)
                written = {key: render(each, _with_output(scope, result)) for key, each in spec.get("set", {}).items()}
                break
            except ExpressionError:
                attempts -= 1
                if not attempts:
                    raise
        path = self.prefix + node
        writes = {**result.writes, **{key: [Write(path, value)] for key, value in written.items()}}
        fold(self.declared, joined([scope.writes, writes]))
        values: dict[str, Any] = {**result._asdict(), "writes": writes}
        return Outcome("succeeded", **values)

    def _failed(self, spec: Mapping[str, Any]) -> Outcome:
        on_error = spec.get("on_error", "fail")
        if on_error == "skip":
            return Outcome("skipped", cause="error")
        if isinstance(on_error, Mapping):
            return Outcome("failed", handled=True, taken=str(spec["on_error"]["then"]))
        return Outcome("failed")

    def inside(
        self, scope: Scope, suffix: str, spec: Mapping[str, Any], variables: Mapping[str, Any], before: Writes
    ) -> Level:
        level = Level(
            self.library,
            f"{scope.path}{suffix}.",
            spec["nodes"],
            self.declared,
            self.inputs,
            outcomes=self.all_outcomes,
            outer=scope,
            variables=variables,
            before=before,
        )
        level.evaluate()
        return level

    def subflow(self, scope: Scope, spec: Mapping[str, Any]) -> Mapping[str, Any]:
        """The outputs of another file, which shares nothing with this one."""
        flow = _load((self.library.folder / spec["flow"]).read_text("utf-8"))
        inputs, state = _given_inputs(flow, scope.render(spec.get("with", {}))), flow.get("shared_state", {})
        level = Level(self.library, f"{scope.path}.", flow["nodes"], state, inputs, outcomes=self.all_outcomes)
        level.evaluate()
        if level.failures:
            raise ExpressionError(f"{level.failures} failed")
        return level.end(flow.get("outputs"))[0]

    @property
    def written(self) -> Writes:
        """What all nodes wrote, in order."""
        return joined(each.writes for each in self.outcomes.values())

    def end(self, outputs: Mapping[str, Any] | None) -> tuple[Mapping[str, Any], Mapping[str, Any]]:
        """A flow's outputs, which see every node, and its state in the end."""
        state = fold(self.declared, self.written)
        if outputs is None:
            raise Unclear("what a flow without `outputs` gives")
        return self.whole.render(outputs), state

    @property
    def whole(self) -> Scope:
        """What sees all nodes of the level."""
        return Scope(self, None)


def _unchosen(deciders: Iterable[Outcome]) -> str:
    """Why none of the routes to a node was taken (rule 2)."""
    if any(each.status == "succeeded" or each.handled for each in deciders):
        return "not_selected"
    return (
        "upstream_failed"
        if any(each.failed_behind or each.status == "failed" for each in deciders)
        else "upstream_skipped"
    )


def _with_output(scope: Scope, result: Result) -> Callable[[str], Any]:
    """Names as `set` sees them: this node's and `output`."""
    return lambda name: result.output if name == "output" else scope.look_up(name)
