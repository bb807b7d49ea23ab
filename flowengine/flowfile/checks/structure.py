"""Checks nodes that run another flow file: the file, the circle that it may close, and the inputs that it gets."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from flowengine.core import is_json_type
from flowengine.engine import FALLBACK, ON_ERROR, StateKey, check_contribution, find_cycles
from flowengine.errors import StateError
from flowengine.flowfile.analysis import (
    Cause,
    Leads,
    NodePath,
    SpecLevel,
    causes_of,
    gaps_of,
    is_asking,
    is_subflow,
    key_path,
    levels_of,
    named_input,
    nodes_of,
    places_of,
    routes_of,
)
from flowengine.flowfile.checks.report import Report
from flowengine.flowfile.file_texts import Subflows
from flowengine.flowfile.project import Project, ProjectProblem
from flowengine.flowfile.recovery import STAND_IN_FLOW
from flowengine.flowfile.schema import FlowSpec, InputSpec, format_found
from flowengine.flowfile.yaml import KeyPath

if TYPE_CHECKING:
    from flowengine.flowfile.kinds.subflow_kind import SubflowNodeSpec

# --- Checks of names between nodes


def check_structure(spec: FlowSpec, report: Report) -> None:
    """Unknown targets, agents and state keys, labels, self references, cycles."""
    _check_agents(spec, report)
    _check_writes(spec, report)
    for level in levels_of(spec).values():
        _check_ends(spec, level, report)
        _check_labels(spec, level, report)
        _check_cycles(spec, level, report)


def _check_ends(spec: FlowSpec, level: SpecLevel, report: Report) -> None:
    gaps = gaps_of(spec)
    for cause in causes_of(spec, level.path):
        (source, target, label), path, use = cause
        if source == target:
            _refuse_self(level, cause, report)
        elif use is None:
            other = source if label is None else target
            # A fallback may be one of the labels that are not known.
            if other not in level.nodes and (label != FALLBACK or (*level.path, source) not in gaps.labels):
                _refuse_end(spec, level, other, path, report)


def _refuse_self(level: SpecLevel, cause: Cause, report: Report) -> None:
    use, name = cause.use, cause.edge.target
    if use is None:
        report.at_value("FE211", "a node cannot wait for itself or lead to itself", cause.path)
    elif use.text.scope in ("end", "enough") or len(use.text.node or ()) > len(level.path) + 1:
        report.at_use("FE211", f"this is part of '{name}', whose own output is not there yet", use)
    else:
        report.at_use("FE211", f"the template of '{name}' reads the node's own output", use)


def _refuse_end(spec: FlowSpec, level: SpecLevel, other: str, path: KeyPath, report: Report) -> None:
    elsewhere, gaps = places_of(spec).get(other), gaps_of(spec)
    if other in gaps.words or level.path in gaps.bodies:
        return
    if elsewhere is None:
        report.at_value("FE203", f"unknown target '{other}'", path, report.nearest(other, level.nodes))
        return
    around = next((each for each in elsewhere if level.path[: len(each)] == each), None)
    if around is not None:
        text = f"'{other}' is outside of '{level.path[len(around)]}', and routes and `needs` stay on their level"
        report.at_value("FE223", text, path, f"; let '{level.path[len(around)]}' lead to it, or need it")
    else:
        text = f"'{other}' is inside '{'.'.join(elsewhere[0])}', and routes and `needs` stay on their level"
        report.at_value("FE223", text, path)


def _check_agents(spec: FlowSpec, report: Report) -> None:
    references: list[tuple[str, KeyPath]] = []
    gaps = gaps_of(spec)
    if isinstance(spec.defaults.agent, str):
        references.append((spec.defaults.agent, ("defaults", "agent")))
    for path, node in nodes_of(spec):
        if is_asking(node) and isinstance(node.agent, str):
            references.append((node.agent, (*key_path(path), "agent")))
    for agent, at in references:
        if agent not in spec.agents and not gaps.may_be("agents", agent):
            report.at_value("FE213", f"unknown agent '{agent}'", at, report.nearest(agent, spec.agents))


def _check_labels(spec: FlowSpec, level: SpecLevel, report: Report) -> None:
    for name, node in level.nodes.items():
        leads = routes_of(spec, name, level.path)
        targets: dict[str, str | None] = {}
        for each in leads:
            if targets.get(each.label, each.target) != each.target and each.path[-1] != FALLBACK:
                report.at_value("FE212", f"the label '{each.label}' leads to two places", each.path)
            targets.setdefault(each.label, each.target)
        if node.on_error.then is not None and ON_ERROR in targets:
            at = next(each.path for each in leads if each.label == ON_ERROR)
            report.at_key("FE212", f"the label '{ON_ERROR}' is the engine's where `on_error` leads to a node", at[:-1])
        _check_fallback(leads, report)


def _check_fallback(leads: list[Leads], report: Report) -> None:
    """A fallback to a node is a label of its own, so no declared label may have its name."""
    labels = Counter(each.label for each in leads)
    own = next((each for each in leads if each.label == FALLBACK and each.path[-1] == FALLBACK), None)
    if own is not None and labels[FALLBACK] > 1:
        text = f"the label '{FALLBACK}' is the engine's where `fallback` leads to a node; rename it"
        report.at_key("FE212", text, (*own.path[:-1], "routes", FALLBACK))


def _check_writes(spec: FlowSpec, report: Report) -> None:
    gaps = gaps_of(spec)
    for path, node in nodes_of(spec):
        for key, value in node.set.items():
            at, declared = (*key_path(path), "set", key), spec.shared_state.get(key)
            if declared is not None:
                try:
                    if not _has_templates(value) and key not in gaps.keys:
                        check_contribution(key, StateKey(None, declared.merge, declared.type), value)
                except StateError as error:
                    report.at_value("FE407", str(error), at)
            elif not gaps.may_be("shared_state", key):
                report.at_key("FE218", f"shared state has no key '{key}'", at, report.nearest(key, spec.shared_state))


def _has_templates(value: Any) -> bool:
    """Tells whether a value is a text that gives another one; what is in lists and maps does not change their type."""
    return isinstance(value, str) and ("{{" in value or "{%" in value)


def _check_cycles(spec: FlowSpec, level: SpecLevel, report: Report) -> None:
    nodes = level.nodes
    causes = {(cause.edge.source, cause.edge.target): cause for cause in reversed(causes_of(spec, level.path))}
    edges = [(s, t) for s, t in causes if s != t and s in nodes and t in nodes]
    for cycle in find_cycles(list(nodes), reversed(edges)):
        message = f"the nodes form a cycle: {' → '.join(cycle)}"
        cause = causes[cycle[-2], cycle[-1]]
        if cause.use is None:
            report.at_value("FE210", message, cause.path)
        else:
            report.at_use("FE210", message, cause.use)


MAX_NODES: Final = 20_000
"""The most nodes of a flow with all its subflows: files that run each other twice have twice as many at each level."""
MAX_CHARACTERS: Final = 8_000_000
"""The most characters of their texts, each as often as it stands in the flow: nodes are followed and drawn by it."""


class _Weight(NamedTuple):
    """The size of a flow with its subflows, each as often as it stands in it."""

    nodes: int
    characters: int

    def with_flow(self, other: _Weight) -> _Weight:
        return _Weight(self.nodes + other.nodes, self.characters + other.characters)

    def excess(self) -> str | None:
        """Describes the bound that is passed."""
        if self.nodes > MAX_NODES:
            return f"{MAX_NODES:,} nodes"
        return f"{MAX_CHARACTERS:,} characters" if self.characters > MAX_CHARACTERS else None


def check_subflows(spec: FlowSpec, project: Project, subflows: Subflows, report: Report, *, whole: bool) -> None:
    """Opens the files, so that the spec knows them from here on. `whole`: nothing of the spec was mended."""
    base = project.root if spec.path is None else spec.path.parent
    outcomes: dict[str, FlowSpec | ProjectProblem | None] = {}
    weight = _weigh_file(spec)
    for path, node in nodes_of(spec):
        if not is_subflow(node) or (node.flow == STAND_IN_FLOW and not whole):
            continue
        if node.flow not in outcomes and report.is_enough:
            continue
        if node.flow not in outcomes:
            outcomes[node.flow] = subflows.open(node.flow, base, project)
        inner = outcomes[node.flow]
        if isinstance(inner, ProjectProblem):
            report.at_value(inner.code, inner.message, (*key_path(path), "flow"), inner.hint)
        elif inner is not None:
            _check_inputs(spec, path, node, inner, report)
            added = _weigh(inner)
            heavier = weight.with_flow(added)
            excess = heavier.excess()
            if excess is not None and weight.excess() is None and added.excess() is None:  # Else it was told already.
                text = f"a flow may have {excess} with those of its subflows, and here they are more"
                report.at_value("FE227", text, (*key_path(path), "flow"))
            weight = heavier
    spec.with_subflows({flow: inner for flow, inner in outcomes.items() if isinstance(inner, FlowSpec)})


def _weigh(spec: FlowSpec) -> _Weight:
    """Returns what a flow has with its subflows."""
    return spec.remember("weight", _weigh_all)


def _weigh_all(spec: FlowSpec) -> _Weight:
    weight = _weigh_file(spec)
    for _, node in nodes_of(spec):
        if is_subflow(node) and node.flow in spec.subflows:
            weight = weight.with_flow(_weigh(spec.subflows[node.flow]))
    return weight


def _weigh_file(spec: FlowSpec) -> _Weight:
    """Returns what a flow has without its subflows."""
    characters = len(spec.text) + sum(map(len, spec.source.texts.values()))
    return _Weight(sum(1 for _ in nodes_of(spec)), characters)


def _check_inputs(spec: FlowSpec, path: NodePath, node: SubflowNodeSpec, inner: FlowSpec, report: Report) -> None:
    at, gaps = key_path(path), gaps_of(spec)
    for name, value in node.with_.items():
        declared = inner.inputs.get(name)
        if declared is None:
            text = f"the flow '{inner.name}' has no input '{name}'"
            report.at_key("FE228", text, (*at, "with", name), report.nearest(name, inner.inputs))
        else:
            problem = _misfit(declared, value)
            if problem is not None:
                text = f"the input '{name}' of '{inner.name}' is {problem}, found {format_found(value)}"
                report.at_value("FE228", text, (*at, "with", name))
            source = named_input(spec, value) if declared.type == "file" and isinstance(value, str) else None
            if source is not None and source.type not in ("file", None):
                text = f"an input of type {source.type} is no file, and no path that a run is given is read"
                report.at_value("FE230", text, (*at, "with", name), "; declare it with type: file")
    misspelt = {report.nearest.of(name, inner.inputs) for name in node.with_ if name not in inner.inputs}
    required = (name for name, each in inner.inputs.items() if each.required)
    missing = [name for name in required if name not in node.with_ and name not in misspelt]
    if missing and path not in gaps.arguments:
        names = ", ".join(f"'{name}'" for name in missing)
        report.at_key("FE228", f"the flow '{inner.name}' needs {names}: give it in 'with'", (*at, "with"))


def _misfit(input_spec: InputSpec, value: Any) -> str | None:
    """Describes how a plain value violates its schema; values with templates are not checked."""
    if _has_templates(value):
        return None
    if input_spec.type == "file":
        return None if isinstance(value, str) else "a file's path"
    if input_spec.type is not None and not is_json_type(value, input_spec.type):
        return f"of type {input_spec.type}"
    if input_spec.enum is not None and not isinstance(value, dict | list) and value not in input_spec.enum:
        return f"one of {', '.join(map(format_found, input_spec.enum))}"
    return None
