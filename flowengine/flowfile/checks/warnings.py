"""Warns about what is declared and never read: inputs, state keys, agents.

Code can read inputs and state too, so a flow that calls code is not warned about them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from flowengine.errors import ProjectError
from flowengine.flowfile.analysis import (
    LevelAnalysis,
    NodePath,
    SpecLevel,
    Use,
    causes_of,
    code_of,
    gaps_of,
    home_of,
    is_agent,
    is_judging,
    is_loop,
    key_path,
    levels_of,
    nodes_of,
    reads_of,
    texts_of,
    writes_of,
)
from flowengine.flowfile.checks.report import Report
from flowengine.flowfile.compile import ENGINE_KEYS, ROUND
from flowengine.flowfile.file_texts import DISK
from flowengine.flowfile.project import Project, ProjectProblem
from flowengine.flowfile.schema import FlowSpec, NodeSpec, format_found

if TYPE_CHECKING:
    from flowengine.flowfile.kinds.loop_kind import LoopNodeSpec

# --- Warnings about what a graph allows and hardly anybody means

# --- what may be absent


def warn_of_absent_values(spec: FlowSpec, runs: LevelAnalysis, report: Report) -> None:
    """A printed output of a node that can be skipped while the reader runs."""
    for number in range(len(runs.nodes)):
        path = runs.path_of(number)
        uses = reads_of(spec).reaching.get(path, ())
        tested = {(_reader(use, path), use.reference.path[1]) for use in uses if use.text.path[-1] == "when"}
        for use in uses:
            reader, name = _reader(use, path), use.reference.path[1]
            if not any((reader[:depth], name) in tested for depth in range(len(reader) + 1)):
                _warn_if_absent(use, runs, number, report)
    unclear = runs.level.path in gaps_of(spec).waits  # What `until` reads decides on what `carry` sees.
    excused = _find_excused(spec, runs) if is_loop(runs.level.holder) else ()
    for use in reads_of(spec).at_end.get(runs.level.path, ()):
        path, key = use.reference.path, use.text.path[len(key_path(runs.level.path))]
        if len(path) < 2:  # Told elsewhere.
            continue
        inside = path[0] == "nodes" and home_of(spec, runs.level.path, path[1]) == runs.level.path
        if inside and key != "best_by" and not (key == "carry" and (path[1] in excused or unclear)):
            _warn_if_absent(use, runs, None, report)


def warn_of_open_choices(spec: FlowSpec, report: Report) -> None:
    """A printed inline `if` without `else`: Jinja prints nothing there, and here it is an error."""
    for text, line, column in reads_of(spec).open_choices:
        message = "this `if` without `else` has nothing to print where it does not hold, which is an error"
        report.in_text("FE903", message, text, line, column, "; add `else ''`")


def _reader(use: Use, path: NodePath) -> NodePath:
    """The node whose text it is; for a shared agent's, the node that names it."""
    return use.text.node or path


def _warn_if_absent(use: Use, runs: LevelAnalysis, reader: int | None, report: Report) -> None:
    path = use.reference.path
    if len(path) < 3 or not use.reference.printed or use.reference.guarded:
        return
    _, node, field, *_ = path
    if field not in ("output", "result") or node not in runs.graph:
        return
    number = runs.graph.index[node]
    if not runs.is_sure(number if reader is None else reader):
        return
    if reader is not None and runs.nodes[reader].join == "always":
        text = f"'{node}' may have failed when this runs, and then it has no {field} to print"
        report.at_use("FE903", text, use, "; add `| default(…)`")
    elif not runs.live.certain(reader, number):
        text = f"'{node}' may be skipped, and then it has no {field} to print"
        report.at_use("FE903", text, use, "; add `| default(…)`")


def _find_excused(spec: FlowSpec, runs: LevelAnalysis) -> Collection[str]:
    """The nodes that are there where `carry` is read: after a round that `until` refused and that was not the last.

    `until` is what they depend on then, so nothing is said of nodes that stand behind the choosers it reads,
    nor of a `when` that asks for the round.
    """
    choosers = _read_by_until(spec, runs)
    there: set[int] = set()
    for number, node in enumerate(runs.nodes):
        gates = [gate for gate, _ in runs.graph.gates.get(number, ())]
        asks = node.when is None or "round." in node.when
        plain = [parent for parent in runs.graph.parents[number] if parent not in gates]
        behind = all(gate in choosers and gate in there for gate in gates) and all(each in there for each in plain)
        if runs.live.certain(None, number) or (behind and asks and node.on_error.action != "skip"):
            there.add(number)
    return {runs.graph.ids[number] for number in there}


_RESULTS: Final = {"evaluation_result": "evaluation", "routing_result": "routing"}


def _read_by_until(spec: FlowSpec, runs: LevelAnalysis) -> set[int]:
    numbers: set[int] = set()
    for use in reads_of(spec).at_end.get(runs.level.path, ()):
        if use.text.path[-1] == "until":
            root, *fields = use.reference.path
            if root == "nodes" and fields and fields[0] in runs.graph:
                numbers.add(runs.graph.index[fields[0]])
            elif root in _RESULTS:
                numbers.update(n for n, node in enumerate(runs.nodes) if node.type == _RESULTS[root])
    return numbers


# --- branches


def warn_of_targets_behind_siblings(runs: LevelAnalysis, report: Report) -> None:
    """A route's target that another target of the same node leads to without a route."""
    graph = runs.graph
    for number, routes in graph.routes.items():
        targets = [target for target, _ in routes]
        for target in targets:
            gated = {gate for gate, _ in graph.gates[target]}
            plain = [parent for parent in graph.parents[target] if parent not in gated]
            sibling = _sibling_above(runs, plain, [each for each in targets if each != target])
            if sibling is not None and runs.is_sure(target):
                name, chooser, other = graph.ids[target], graph.ids[number], graph.ids[sibling]
                text = f"'{name}' is a route of '{chooser}' and also comes after its sibling '{other}'"
                report.at_key("FE901", text, key_path(runs.path_of(target)))


def _sibling_above(runs: LevelAnalysis, parents: list[int], siblings: list[int]) -> int | None:
    holds = runs.graph.ancestry.holds
    for parent in parents:
        for sibling in siblings:
            if sibling == parent or (sibling < parent and holds(sibling, parent)):
                return sibling
    return None


def warn_of_dead_nodes(runs: LevelAnalysis, report: Report) -> None:
    """A node whose predecessors can never be live together."""
    for number in filter(runs.is_reached_surely, runs.live.dead):
        text = "no run can reach this node: what it waits for excludes itself"
        report.at_key("FE902", text, key_path(runs.path_of(number)))


# --- Warnings about loops that can only end exhausted


def warn_of_endless_loop(spec: FlowSpec, level: SpecLevel, report: Report) -> None:
    """A loop whose `until` says the same after each round. Without one, a loop has a fixed number of rounds."""
    holder = level.holder
    if not is_loop(holder) or holder.until is None:
        return
    at = (*key_path(level.path), "until")
    uses = [use for use in reads_of(spec).at_end.get(level.path, ()) if use.text.path == at]
    if not any(_changes(spec, level, holder, use) for use in uses) and _is_known(spec, level, report):
        text = "nothing that `until` reads changes from round to round, so it ends the first round or none"
        report.at_value("FE907", text, at)


def _is_known(spec: FlowSpec, level: SpecLevel, report: Report) -> bool:
    """Tells whether there is no mistake in the loop, be it that what `until` reads or what the body does is not as
    meant.
    """
    gaps, name = gaps_of(spec), ".".join(level.path)
    if level.path in gaps.find_levels() or level.path in gaps.waits | gaps.gives | gaps.variables:
        return False
    wrong = (f"{each.node}." for each in report.diagnostics if each.severity == "error")
    return not any(node.startswith(f"{name}.") for node in wrong)


def _changes(spec: FlowSpec, level: SpecLevel, holder: LoopNodeSpec, use: Use) -> bool:
    root, *fields = use.reference.path
    judge = _BY_ROOT.get(root)
    return judge is not None and (not fields or judge(spec, level, holder, fields[0]))


def _of_body(spec: FlowSpec, level: SpecLevel, holder: LoopNodeSpec, name: str) -> bool:
    return name in level.nodes


def _variable(spec: FlowSpec, level: SpecLevel, holder: LoopNodeSpec, name: str) -> bool:
    return name in ROUND or (name in holder.carry and not _is_same(holder.carry[name], name))


def _is_same(value: Any, name: str) -> bool:
    """Tells whether a variable is carried as it is."""
    return isinstance(value, str) and re.fullmatch(rf"{{{{\s*round\.{name}\s*}}}}", value.strip()) is not None


def _state(spec: FlowSpec, level: SpecLevel, holder: LoopNodeSpec, key: str) -> bool:
    """Written by the body: by `set`, by code, which may write any key, or by the engine."""
    types = _types_inside(spec, level)
    if key in ENGINE_KEYS:
        return bool(types & {"agent", "loop"})
    return "function" in types or any(
        key in writes_of(node, (*level.path, name)) for name, node in holder.nodes.items()
    )


def _result(spec: FlowSpec, level: SpecLevel, holder: LoopNodeSpec, name: str) -> bool:
    return bool(_types_inside(spec, level) & {"agent", "routing", "evaluation"})


def _types_inside(spec: FlowSpec, level: SpecLevel) -> set[str]:
    depth, levels = len(level.path), levels_of(spec).values()
    return {node.type for each in levels if each.path[:depth] == level.path for node in each.nodes.values()}


_BY_ROOT: Final[Mapping[str, Callable[[FlowSpec, SpecLevel, LoopNodeSpec, str], bool]]] = {
    "nodes": _of_body,
    "prev_outputs": _of_body,
    "round": _variable,
    "shared_state": _state,
    "routing_result": _result,
    "evaluation_result": _result,
}


def warn_of_inputs(spec: FlowSpec, project: Callable[[], Project], report: Report) -> None:
    """Values of `enum` that no caller can give, and files that an input has by default and that are not there."""
    for name, declared in spec.inputs.items():
        for number, value in enumerate(declared.enum or ()):
            if value is not None and not declared.may_be(value):
                text = f"the input '{name}' is of type {declared.type}, and never {format_found(value)}"
                report.at_value("FE909", text, ("inputs", name, "enum", number))
        if declared.type == "file" and isinstance(declared.default, str) and not _ELSEWHERE.match(declared.default):
            try:
                problem = DISK.unreadable(project().resolve(declared.default), Path(declared.default))
            except ProjectError as error:
                problem = ProjectProblem("FE503", error.message)
            if problem is not None:
                report.at_value("FE910", problem.message, ("inputs", name, "default"), problem.hint)


_ELSEWHERE: Final = re.compile(r"(data|https?):", re.IGNORECASE)
"""Files that are no paths."""


def warn_of_bare_expressions(spec: FlowSpec, report: Report) -> None:
    """A text that only spells out a value that there is: without braces it is that text, and not the value."""
    names = {
        "inputs": spec.inputs,
        "nodes": {path[-1] for path, _ in nodes_of(spec)},
        "shared_state": spec.shared_state,
    }
    for text in texts_of(spec):
        match = _BARE.fullmatch(text.text) if text.kind == "template" else None
        if match is not None and match[2] in names[match[1]]:
            hint = f"; did you mean '{{{{ {text.text} }}}}'?"
            report.at_value("FE911", f"'{text.text}' is a text here, and not the value of that name", text.path, hint)


_BARE: Final = re.compile(r"(inputs|nodes|shared_state)\.(\w+)(?:\.\w+)*", re.ASCII)


def check_unused(spec: FlowSpec, report: Report) -> None:
    """Inputs, state keys and agents that nothing names."""
    gaps = gaps_of(spec)
    is_incomplete = gaps.reads_lost or report.errors & {"FE302", "FE305", "FE308"}
    if not is_incomplete and not any(True for _ in code_of(spec)):
        _check_reads(spec, report)
    if gaps.agents_lost or "FE213" in report.errors:
        return
    agents: list[Any] = [spec.defaults.agent, *(getattr(node, "agent", None) for _, node in nodes_of(spec))]
    names = {each for each in agents if isinstance(each, str)}
    for name in spec.agents:
        if name not in names:
            report.at_key("FE906", f"no node names the agent '{name}'", ("agents", name))


def _check_reads(spec: FlowSpec, report: Report) -> None:
    paths = [use.reference.path for use in reads_of(spec).uses]
    for name in () if "FE304" in report.errors else _unread("shared_state", spec.shared_state, paths):
        report.at_key("FE904", f"nothing reads the state key '{name}'", ("shared_state", name))
    if not _takes_inputs_unnamed(spec) and "FE303" not in report.errors:
        for name in _unread("inputs", spec.inputs, paths):
            report.at_key("FE905", f"nothing reads the input '{name}'", ("inputs", name))


def _unread(root: str, names: Iterable[str], paths: Iterable[tuple[str, ...]]) -> list[str]:
    read = {path[1] if len(path) > 1 else None for path in paths if path[0] == root}
    return [] if None in read else [name for name in names if name not in read]


def _takes_inputs_unnamed(spec: FlowSpec) -> bool:
    """Tells whether a first node's user input is the flow's inputs (rule 7)."""
    followed = {cause.edge.target for cause in causes_of(spec)}
    return any(name not in followed and _asks_nothing(node) for name, node in spec.nodes.items())


def _asks_nothing(node: NodeSpec) -> bool:
    """Tells whether a node's user input, or what it judges, is left out."""
    if is_agent(node):
        return node.prompt is None
    return is_judging(node) and node.target is None
