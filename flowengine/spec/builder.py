"""FlowSpec → Plan: templates become callables, settings become nodes. YAML is not seen again after this."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from os import PathLike
from typing import Any, Final

from flowengine.agents.surroundings import Surroundings
from flowengine.engine.merging import StateKey
from flowengine.errors import DefinitionError, Diagnostic, FlowEngineError, FlowError, ProjectError
from flowengine.llm.dotenv import read_environment
from flowengine.nodes.agent import AgentNode, EvaluationNode, RoutingNode
from flowengine.nodes.condition import CasesNode, ConditionNode
from flowengine.nodes.function import FunctionNode
from flowengine.nodes.inputs import REQUIRED, InputField
from flowengine.nodes.node import FlowNode
from flowengine.nodes.plan import FlowLimits, Plan, assemble
from flowengine.nodes.retry import Retry
from flowengine.spec.agents import AgentMaker
from flowengine.spec.fields import Route
from flowengine.spec.loader import load_flow
from flowengine.spec.project import Project, find_project
from flowengine.spec.references import edges_of
from flowengine.spec.schema import FlowSpec
from flowengine.spec.schema_nodes import (
    AgentNodeSpec,
    ConditionNodeSpec,
    EvaluationNodeSpec,
    FunctionNodeSpec,
    NodeSpec,
    RetrySpec,
    RoutingNodeSpec,
)
from flowengine.spec.scope import boolean, template, values
from flowengine.spec.settings import retry_of, settings_of, timeout_of

__all__ = ["build", "load_plan"]


def load_plan(
    path: str | PathLike[str],
    *,
    text: str | None = None,
    model: str | None = None,
    environ: Mapping[str, str] = os.environ,
) -> Plan:
    """The plan of a flow file, or of its text. `FlowError` holds every problem.

    `environ` goes before the `.env` file of the project's root.
    """
    project = find_project(path)
    spec = load_flow(path, text=text, project=project)
    return build(spec, project, model=model, environ=read_environment(project.root, environ))


def build(
    spec: FlowSpec, project: Project, *, model: str | None = None, environ: Mapping[str, str] = os.environ
) -> Plan:
    """The plan of a checked spec. Imports what `call:` and `output:` name; `FlowError` where that fails.

    `environ`: where keys, addresses and the values of `allow_env` are looked up while the plan runs.
    """
    builder = _Builder(spec, project, model, Surroundings(environ, project.providers))
    nodes = builder.nodes()
    return assemble(
        spec.name,
        nodes,
        inputs={name: _input(each) for name, each in spec.inputs.items()},
        state={name: StateKey(each.default, each.merge, each.type) for name, each in spec.shared_state.items()},
        outputs={name: values(each) for name, each in spec.outputs.items()} if spec.outputs else None,
        limits=FlowLimits(spec.limits.concurrency, spec.limits.timeout, spec.limits.on_failure),
        description=spec.description,
        allow_env=project.allow_env,
        environ=environ,
        path=None if spec.path is None else str(spec.path),
        source=spec.text,
    )


class _Builder:
    """Makes the nodes of one flow, and collects what is wrong with what they import."""

    def __init__(self, spec: FlowSpec, project: Project, model: str | None, surroundings: Surroundings) -> None:
        self._spec = spec
        self._project = project
        self._model = model
        self._agents = AgentMaker(spec, project, model, surroundings)
        self._reads: dict[str, list[str]] = {}
        for source, target, route in edges_of(spec):
            if route is None:
                self._reads.setdefault(target, []).append(source)

    def nodes(self) -> dict[str, FlowNode]:
        made: dict[str, FlowNode] = {}
        problems: list[Diagnostic] = []
        for name, node in self._spec.nodes.items():
            try:
                made[name] = self._node(name, node)
            except FlowError as error:
                problems += error.diagnostics
            except DefinitionError as error:
                problems.append(self._problem(name, error))
        if problems:
            raise FlowError(sorted(problems, key=lambda each: (each.line or 0, each.column or 0)))
        return made

    def _problem(self, name: str, error: FlowEngineError) -> Diagnostic:
        line, column = self._spec.position(("nodes", name))
        file = None if self._spec.path is None else str(self._spec.path)
        if isinstance(error, ProjectError):
            return Diagnostic(error.code or "FE507", error.message, file, line, column, node=name)
        return Diagnostic("FE403", str(error), file, line, column, node=name)

    def _node(self, name: str, node: NodeSpec) -> FlowNode:
        return _MAKERS[type(node)](self, name, node, self._common(name, node))

    def _common(self, name: str, node: NodeSpec) -> dict[str, Any]:
        """What every node may say."""
        retry = retry_of(self._spec, node)
        return {
            "needs": node.needs,
            "reads": self._reads.get(name, ()),
            "join": node.join,
            "when": None if node.when is None else boolean(node.when),
            "set": {key: values(each) for key, each in node.set.items()},
            "retry": None if retry is None else _retry(retry),
            "timeout": timeout_of(self._spec, node),
            "on_error": node.on_error.then or node.on_error.action,
            "description": node.description,
            "fingerprint": lambda: self._fingerprint(node),
        }

    def _fingerprint(self, node: NodeSpec) -> str:
        """The node's own definition with everything that it inherits."""
        agent = None
        if isinstance(node, AgentNodeSpec | RoutingNodeSpec | EvaluationNodeSpec):
            agent = settings_of(self._spec, node).model_dump(mode="json", exclude_unset=True)
        inherited = [self._model, agent, timeout_of(self._spec, node), repr(retry_of(self._spec, node))]
        own = node.model_dump(mode="json", exclude_unset=True)
        return json.dumps([own, *inherited], sort_keys=True, ensure_ascii=False)

    # --- one method a kind

    def _agent(self, name: str, node: AgentNodeSpec, common: dict[str, Any]) -> FlowNode:
        routing = settings_of(self._spec, node).routing
        targets, fallback = ({}, None) if routing is None else _targets(routing.routes, routing.fallback)
        return AgentNode(
            self._agents.generating(name, node),
            prompt=None if node.prompt is None else template(node.prompt),
            targets=targets,
            fallback=fallback,
            **common,
        )

    def _routing(self, name: str, node: RoutingNodeSpec, common: dict[str, Any]) -> FlowNode:
        targets, fallback = _targets(node.routes, node.fallback)
        target = None if node.target is None else template(node.target)
        return RoutingNode(self._agents.routing(name, node), targets, fallback=fallback, target=target, **common)

    def _condition(self, name: str, node: ConditionNodeSpec, common: dict[str, Any]) -> FlowNode:
        if node.cases is not None:
            cases = [(boolean(each.if_), each.taken, each.then) for each in node.cases]
            return CasesNode(cases, node.else_, has_otherwise=node.has_else, **common)
        if node.call is not None:
            targets = {label: route.to for label, route in (node.routes or {}).items()}
            call = self._project.import_callable(node.call)
            return ConditionNode(call, targets, node.else_, has_otherwise=node.has_else, **common)
        assert node.if_ is not None  # One of the three forms is there.
        return ConditionNode(boolean(node.if_), node.then, node.else_, **common)

    def _evaluation(self, name: str, node: EvaluationNodeSpec, common: dict[str, Any]) -> FlowNode:
        routes = node.routes or {}
        settings: dict[str, Any] = {
            "passes": routes["pass"].to if "pass" in routes else None,
            "fails": routes["fail"].to if "fail" in routes else None,
            "target": None if node.target is None else template(node.target),
            **common,
        }
        if node.call is not None:
            scorer = self._project.import_callable(node.call)
            threshold = 0.7 if node.threshold is None else node.threshold
            return EvaluationNode(scorer=scorer, threshold=threshold, **settings)
        return EvaluationNode(self._agents.judging(name, node), **settings)

    def _function(self, name: str, node: FunctionNodeSpec, common: dict[str, Any]) -> FlowNode:
        arguments = {key: values(each) for key, each in node.with_.items()} if node.with_ else None
        return FunctionNode(self._project.import_callable(node.call), arguments=arguments, **common)


_MAKERS: Final[Mapping[type[Any], Callable[[_Builder, str, Any, dict[str, Any]], FlowNode]]] = {
    AgentNodeSpec: _Builder._agent,  # pyright: ignore[reportPrivateUsage] - the table of this module's own class
    RoutingNodeSpec: _Builder._routing,  # pyright: ignore[reportPrivateUsage]
    ConditionNodeSpec: _Builder._condition,  # pyright: ignore[reportPrivateUsage]
    EvaluationNodeSpec: _Builder._evaluation,  # pyright: ignore[reportPrivateUsage]
    FunctionNodeSpec: _Builder._function,  # pyright: ignore[reportPrivateUsage]
}


def _targets(routes: Mapping[str, Route], fallback: str | None) -> tuple[dict[str, str | None], str | None]:
    """Label → node; and the fallback where it is a node and not one of the labels."""
    targets = {label: route.to for label, route in routes.items()}
    return targets, None if fallback in targets else fallback


def _retry(retry: RetrySpec) -> Retry:
    return Retry(retry.attempts, retry.backoff, retry.initial, retry.max, retry.jitter, tuple(retry.on))


def _input(each: Any) -> InputField:
    default = REQUIRED if each.required else each.default
    return InputField(each.type, default, each.enum, each.schema_, each.description)
