"""Checks of `module:function` references: allowed, there, defined. The code is read, never run."""

from __future__ import annotations

from collections.abc import Iterator
from typing import cast

from pydantic import BaseModel

from flowengine.spec.code_names import code_name
from flowengine.spec.defined import imports_in
from flowengine.spec.levels import key_path, nodes_of
from flowengine.spec.mending import STAND_IN_CODE
from flowengine.spec.positions import KeyPath
from flowengine.spec.project import Project
from flowengine.spec.report import Report
from flowengine.spec.schema import FlowSpec
from flowengine.spec.schema_agent import AgentSettings
from flowengine.spec.schema_nodes import AgentNodeSpec, ConditionNodeSpec, EvaluationNodeSpec, FunctionNodeSpec

__all__ = ["check_code", "code_of"]


def check_code(spec: FlowSpec, project: Project, report: Report) -> None:
    """Each reference to code that the project does not allow, or that is not there."""
    for path, target in code_of(spec):
        if report.is_enough:
            return
        if target != STAND_IN_CODE:
            problem = project.problem_with(target)
            if problem is not None:
                report.at_value(problem.code, problem.message, path, problem.hint)
            else:
                _check_imports(target, path, project, report)


def _check_imports(target: str, path: KeyPath, project: Project, report: Report) -> None:
    said = code_name(target)
    file = None if said is None else project.module_file(said.module)
    if said is None or file is None:
        return
    for module in imports_in(file, said.name):
        if not project.has_module(module):
            known = (each.stem for each in file.parent.glob("*.py"))
            text = f"'{target}' imports '{module}', and there is no such module"
            report.at_value("FE505", text, path, report.nearest(module, list(known)))


def code_of(spec: FlowSpec) -> Iterator[tuple[KeyPath, str]]:
    """Every reference to code in the file."""
    for node_path, node in nodes_of(spec):
        path = key_path(node_path)
        if isinstance(node, ConditionNodeSpec | EvaluationNodeSpec | FunctionNodeSpec) and node.call is not None:
            yield (*path, "call"), node.call
        if isinstance(node, AgentNodeSpec):
            yield from _of_agent(node, path)
        if isinstance(getattr(node, "agent", None), AgentSettings):
            yield from _of_agent(cast("AgentNodeSpec", node).agent, (*path, "agent"))
    for name, agent in spec.agents.items():
        yield from _of_agent(agent, ("agents", name))
    yield from _of_agent(spec.defaults.agent, ("defaults", "agent"))


def _of_agent(agent: BaseModel | str | None, path: KeyPath) -> Iterator[tuple[KeyPath, str]]:
    if not isinstance(agent, AgentSettings):
        return
    if isinstance(agent.output, str):
        yield (*path, "output"), agent.output
    for number, target in enumerate(agent.tools or ()):
        yield (*path, "tools", number), target
    for number, target in enumerate(agent.contexts or ()):
        yield (*path, "contexts", number), target
    if agent.guardrails is not None:
        for side in ("input", "output"):
            for number, target in enumerate(cast("tuple[str, ...]", getattr(agent.guardrails, side))):
                yield (*path, "guardrails", side, number), target
