"""One method a kind: what a node's spec says becomes the node that runs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, TypeVar

from flowengine.core.budget import Budget
from flowengine.core.context import Context
from flowengine.errors import DefinitionError
from flowengine.flowfile.analysis.flow_levels import NodePath
from flowengine.flowfile.analysis.node_settings import settings_of
from flowengine.flowfile.compile.agent_factory import AgentMaker
from flowengine.flowfile.compile.scope import boolean, expression, template, values
from flowengine.flowfile.project.project import Project
from flowengine.flowfile.schema.fields import Route
from flowengine.flowfile.schema.flow_file import FlowSpec
from flowengine.flowfile.schema.node_types import (
    AgentNodeSpec,
    ApprovalNodeSpec,
    ConditionNodeSpec,
    EvaluationNodeSpec,
    FunctionNodeSpec,
    LoopNodeSpec,
    MapNodeSpec,
    NodeSpec,
    RoutingNodeSpec,
    SubflowNodeSpec,
)
from flowengine.flowfile.schema.packaged_kinds import PackagedNodeSpec, load_kind
from flowengine.nodes.agent import AgentNode, EvaluationNode, RoutingNode
from flowengine.nodes.approval import ApprovalNode
from flowengine.nodes.compiled_flow import CompiledFlow
from flowengine.nodes.condition import CasesNode, ConditionNode
from flowengine.nodes.function import FunctionNode
from flowengine.nodes.loop import LoopNode
from flowengine.nodes.map import MapNode
from flowengine.nodes.node import FlowNode, NodeLimits, RunLimits, Value
from flowengine.nodes.subflow import SubflowNode
from flowengine.templating.access import Missing

__all__ = ["Kinds"]

N = TypeVar("N", int, float)


class Kinds:
    """Makes nodes of one flow. `inside` gives the nodes of a container's body, `subflow` the plan of another file."""

    def __init__(
        self,
        spec: FlowSpec,
        project: Project,
        agents: AgentMaker,
        inside: Callable[[NodePath], dict[str, FlowNode]],
        subflow: Callable[[FlowSpec], CompiledFlow],
    ) -> None:
        self._spec = spec
        self._project = project
        self._agents = agents
        self._inside = inside
        self._subflow = subflow

    def make(self, path: NodePath, node: NodeSpec, common: dict[str, Any]) -> FlowNode:
        """The node; `common` are the settings that every node has."""
        if isinstance(node, PackagedNodeSpec):
            return _make_packaged(node, common)
        return _MAKERS[type(node)](self, path, node, common)

    def agent(self, path: NodePath, node: AgentNodeSpec, common: dict[str, Any]) -> FlowNode:
        routing = settings_of(self._spec, node).routing
        targets, fallback = ({}, None) if routing is None else _targets(routing.routes, routing.fallback)
        return AgentNode(
            self._agents.generating(path[-1], node),
            prompt=None if node.prompt is None else template(node.prompt),
            targets=targets,
            fallback=fallback,
            **common,
        )

    def routing(self, path: NodePath, node: RoutingNodeSpec, common: dict[str, Any]) -> FlowNode:
        targets, fallback = _targets(node.routes, node.fallback)
        target = None if node.target is None else template(node.target)
        return RoutingNode(self._agents.routing(path[-1], node), targets, fallback=fallback, target=target, **common)

    def condition(self, path: NodePath, node: ConditionNodeSpec, common: dict[str, Any]) -> FlowNode:
        if node.cases is not None:
            cases = [(boolean(each.if_), each.taken, each.then) for each in node.cases]
            return CasesNode(cases, node.else_, has_otherwise=node.has_else, **common)
        if node.call is not None:
            targets = {label: route.to for label, route in (node.routes or {}).items()}
            call = self._project.import_callable(node.call)
            return ConditionNode(call, targets, node.else_, has_otherwise=node.has_else, **common)
        assert node.if_ is not None  # One of the three forms is there.
        return ConditionNode(boolean(node.if_), node.then, node.else_, **common)

    def evaluation(self, path: NodePath, node: EvaluationNodeSpec, common: dict[str, Any]) -> FlowNode:
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
        return EvaluationNode(self._agents.judging(path[-1], node), **settings)

    def function(self, path: NodePath, node: FunctionNodeSpec, common: dict[str, Any]) -> FlowNode:
        arguments = {key: values(each) for key, each in node.with_.items()} if node.with_ else None
        return FunctionNode(self._project.import_callable(node.call), arguments=arguments, **common)

    def map(self, path: NodePath, node: MapNodeSpec, common: dict[str, Any]) -> FlowNode:
        return MapNode(
            self._inside(path),
            over=expression(node.over),
            name=node.as_,
            concurrency=node.concurrency,
            on_item_error=node.on_item_error,
            result=None if node.result is None else values(node.result),
            **common,
        )

    def loop(self, path: NodePath, node: LoopNodeSpec, common: dict[str, Any]) -> FlowNode:
        return LoopNode(
            self._inside(path),
            max_iterations=node.max_iterations,
            initial={name: values(each) for name, each in node.initial.items()},
            until=None if node.until is None else boolean(node.until),
            carry={name: values(each) for name, each in node.carry.items()},
            best_by=None if node.best_by is None else _or_none(expression(node.best_by)),
            exhausted_fails=node.on_exhausted == "fail",
            **common,
        )

    def subflow(self, path: NodePath, node: SubflowNodeSpec, common: dict[str, Any]) -> FlowNode:
        plan = self._subflow(self._spec.subflows[node.flow])
        given = {name: values(each) for name, each in node.with_.items()}
        limited: dict[str, Any] = {**common, "limits": _tighter(common["limits"], plan.limits)}
        return SubflowNode(plan, arguments=given, **limited)

    def approval(self, path: NodePath, node: ApprovalNodeSpec, common: dict[str, Any]) -> FlowNode:
        return ApprovalNode(
            template(node.message),
            {choice: route.to for choice, route in node.routes.items()},
            form=node.form,
            expires=node.expires,
            on_expire=node.on_expire,
            **common,
        )


_MAKERS: Final[Mapping[type[Any], Callable[[Kinds, NodePath, Any, dict[str, Any]], FlowNode]]] = {
    AgentNodeSpec: Kinds.agent,
    RoutingNodeSpec: Kinds.routing,
    ConditionNodeSpec: Kinds.condition,
    EvaluationNodeSpec: Kinds.evaluation,
    FunctionNodeSpec: Kinds.function,
    MapNodeSpec: Kinds.map,
    LoopNodeSpec: Kinds.loop,
    SubflowNodeSpec: Kinds.subflow,
    ApprovalNodeSpec: Kinds.approval,
}


def _make_packaged(node: PackagedNodeSpec, common: Mapping[str, Any]) -> FlowNode:
    kind = load_kind(node.type)
    made = kind.make(node, common)
    if made.kind != node.type:
        raise DefinitionError(f"the package of the node type '{node.type}' makes a node of the type '{made.kind}'")
    if made.transparent != kind.traits.transparent:
        raise DefinitionError(f"`transparent` of {type(made).__name__} is not what the traits of '{node.type}' say")
    return made


def _or_none(value: Value) -> Value:
    """What is undefined counts as nothing."""

    def found(context: Context) -> Any:
        mark = value(context)
        return None if isinstance(mark, Missing) else mark

    return found


def _tighter(own: NodeLimits | None, of_file: RunLimits) -> NodeLimits | None:
    """What holds for a subflow: the node's limits and those of its file, whichever is reached first."""
    if not any(of_file.bounds) and of_file.timeout is None:
        return own
    if own is None:
        return NodeLimits(of_file.bounds, of_file.timeout, of_file.on_limit)
    mine, its = own.bounds, of_file.bounds
    bounds = Budget(
        _least(mine.cost_usd, its.cost_usd),
        _least(mine.tokens, its.tokens),
        _least(mine.model_calls, its.model_calls),
    )
    timeout = _least(own.timeout, of_file.timeout)
    return NodeLimits(bounds, timeout, own.on_limit)


def _least(one: N | None, other: N | None) -> N | None:
    return min((each for each in (one, other) if each is not None), default=None)


def _targets(routes: Mapping[str, Route], fallback: str | None) -> tuple[dict[str, str | None], str | None]:
    """Label → node; and the fallback where it is a node and not one of the labels."""
    targets = {label: route.to for label, route in routes.items()}
    return targets, None if fallback in targets else fallback
