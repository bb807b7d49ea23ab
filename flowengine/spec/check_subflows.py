"""Checks of nodes that run another flow file: the file, the circle that it may close, and the inputs that it gets."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from flowengine.spec.fields import found
from flowengine.spec.gaps import gaps_of
from flowengine.spec.levels import NodePath, key_path, nodes_of
from flowengine.spec.mending import STAND_IN_FLOW
from flowengine.spec.project import Problem, Project
from flowengine.spec.report import Report
from flowengine.spec.schema import FlowSpec, InputSpec
from flowengine.spec.schema_nodes import SubflowNodeSpec
from flowengine.spec.shapes import fits
from flowengine.spec.subflows import Subflows

__all__ = ["check_subflows", "subflows_of"]


def subflows_of(spec: FlowSpec) -> Iterator[tuple[NodePath, SubflowNodeSpec]]:
    """Every node that runs another file."""
    for path, node in nodes_of(spec):
        if isinstance(node, SubflowNodeSpec):
            yield path, node


def check_subflows(spec: FlowSpec, project: Project, subflows: Subflows, report: Report, *, whole: bool) -> None:
    """Opens the files, so that the spec knows them from here on. `whole`: nothing of the spec was mended."""
    base = project.root if spec.path is None else spec.path.parent
    opened: dict[str, FlowSpec | Problem | None] = {}
    for path, node in subflows_of(spec):
        if node.flow == STAND_IN_FLOW and not whole:
            continue
        if node.flow not in opened and report.is_enough:
            continue
        if node.flow not in opened:
            opened[node.flow] = subflows.open(node.flow, base, project)
        inner = opened[node.flow]
        if isinstance(inner, Problem):
            report.at_value(inner.code, inner.message, (*key_path(path), "flow"), inner.hint)
        elif inner is not None:
            _check_inputs(spec, path, node, inner, report)
    spec.joined({flow: inner for flow, inner in opened.items() if isinstance(inner, FlowSpec)})


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
                text = f"the input '{name}' of '{inner.name}' is {problem}, found {found(value)}"
                report.at_value("FE228", text, (*at, "with", name))
    misspelt = {report.nearest.of(name, inner.inputs) for name in node.with_ if name not in inner.inputs}
    required = (name for name, each in inner.inputs.items() if each.required)
    missing = [name for name in required if name not in node.with_ and name not in misspelt]
    if missing and path not in gaps.arguments:
        names = ", ".join(f"'{name}'" for name in missing)
        report.at_key("FE228", f"the flow '{inner.name}' needs {names}: give it in 'with'", (*at, "with"))


def _misfit(declared: InputSpec, value: Any) -> str | None:
    """What a plain value should be and is not; nothing is said of what a template may give."""
    if isinstance(value, str) and ("{{" in value or "{%" in value):
        return None
    if declared.type is not None and not fits(value, declared.type):
        return f"of type {declared.type}"
    if declared.enum is not None and not isinstance(value, dict | list) and value not in declared.enum:
        return f"one of {', '.join(map(found, declared.enum))}"
    return None
