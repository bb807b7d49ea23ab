"""Finds the nodes of a flow at all its levels, their kinds, the settings that hold for each, and where labels lead.

A node's own settings come before its agent's, and `defaults` hold where it has none: the builder makes agents from
this, and the checks find here which templates a node renders. It knows no default of the agents themselves, and whether
the targets of labels exist is for the checks. Source of the rules of labels: rule 2 of the flow format.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias

from typing_extensions import TypeIs

from flowengine.flowfile.schema import (
    AgentRouting,
    AgentSettings,
    AgentSpec,
    BodyKeys,
    BoundedKeys,
    FlowSpec,
    InputSpec,
    ModelSettings,
    NodeKeys,
    NodeSpec,
    OwnRoute,
    RetrySpec,
    WorkKeys,
    routes_to,
)
from flowengine.flowfile.yaml import KeyPath
from flowengine.models import OF_GENERATING, OPTIONS

if TYPE_CHECKING:
    from flowengine.flowfile.kinds.agent_kind import AgentNodeSpec
    from flowengine.flowfile.kinds.approval_kind import ApprovalNodeSpec
    from flowengine.flowfile.kinds.code_kind import CodeNodeSpec
    from flowengine.flowfile.kinds.condition_kind import ConditionNodeSpec
    from flowengine.flowfile.kinds.evaluation_kind import EvaluationNodeSpec
    from flowengine.flowfile.kinds.function_kind import FunctionNodeSpec
    from flowengine.flowfile.kinds.http_kind import HttpNodeSpec
    from flowengine.flowfile.kinds.loop_kind import LoopNodeSpec
    from flowengine.flowfile.kinds.map_kind import MapNodeSpec
    from flowengine.flowfile.kinds.routing_kind import RoutingNodeSpec
    from flowengine.flowfile.kinds.subflow_kind import SubflowNodeSpec
    from flowengine.flowfile.kinds.tool_kind import ToolNodeSpec

# --- The levels of a flow

NodePath: TypeAlias = tuple[str, ...]
"""A node (or the container that a level is inside), by its own id and those of the containers round it."""


class SpecLevel(NamedTuple):
    """Nodes that are ordered among themselves."""

    path: NodePath
    nodes: Mapping[str, NodeSpec]
    holder: BodyKeys | None = None
    """The container whose body this is."""


def levels_of(spec: FlowSpec) -> Mapping[NodePath, SpecLevel]:
    """Every level, a container's before those inside it."""
    return spec.remember("levels", lambda each: {level.path: level for level in _levels(SpecLevel((), each.nodes))})


def _levels(level: SpecLevel) -> Iterator[SpecLevel]:
    yield level
    for name, node in level.nodes.items():
        if isinstance(node, BodyKeys):
            yield from _levels(SpecLevel((*level.path, name), node.nodes, node))


def holders_of(spec: FlowSpec, level: NodePath) -> list[SpecLevel]:
    """The bodies that a level is or is inside, the innermost first."""
    levels = levels_of(spec)
    return [levels[level[:depth]] for depth in range(len(level), 0, -1)]


def level_of(spec: FlowSpec, path: NodePath = ()) -> Mapping[str, NodeSpec]:
    """The nodes of one level, by id."""
    return levels_of(spec)[path].nodes


def flows_in(spec: FlowSpec) -> list[FlowSpec]:
    """A flow, and those that run as nodes in it or in these, each once, however many ways lead to it."""
    flows: dict[int, FlowSpec] = {}
    todo = [spec]
    while todo:
        each = todo.pop()
        if id(each) not in flows:
            flows[id(each)] = each
            todo += reversed([*each.subflows.values()])
    return list(flows.values())


def nodes_of(spec: FlowSpec) -> Iterator[tuple[NodePath, NodeSpec]]:
    """Every node of every level."""
    for level in levels_of(spec).values():
        for name, node in level.nodes.items():
            yield (*level.path, name), node


def settings_in(spec: FlowSpec) -> Iterator[tuple[KeyPath, ModelSettings]]:
    """All settings of models and agents with their places: the default, shared agents, nodes, agents in nodes."""
    if isinstance(spec.defaults.agent, ModelSettings):
        yield ("defaults", "agent"), spec.defaults.agent
    for name, shared in spec.agents.items():
        yield ("agents", name), shared
    for node_path, node in nodes_of(spec):
        path = key_path(node_path)
        if isinstance(node, ModelSettings):
            yield path, node
        agent = getattr(node, "agent", None)
        if isinstance(agent, ModelSettings):
            yield (*path, "agent"), agent


def home_of(spec: FlowSpec, path: NodePath, name: str) -> NodePath | None:
    """The level of the node that a name means inside a level: its own, or the nearest one round it."""
    levels = levels_of(spec)
    for depth in range(len(path), -1, -1):
        if name in levels[path[:depth]].nodes:
            return path[:depth]
    return None


def places_of(spec: FlowSpec) -> Mapping[str, list[NodePath]]:
    """Node's id → the levels that have such a node."""

    def places(spec: FlowSpec) -> dict[str, list[NodePath]]:
        places: dict[str, list[NodePath]] = {}
        for path, _ in nodes_of(spec):
            places.setdefault(path[-1], []).append(path[:-1])
        return places

    return spec.remember("places", places)


def key_path(node: NodePath) -> KeyPath:
    """Returns a node's key path in the file.

    >>> key_path(("polish", "judge"))
    ('nodes', 'polish', 'nodes', 'judge')
    """
    return tuple(part for name in node for part in ("nodes", name))


def node_at(path: KeyPath) -> NodePath:
    """The innermost node that a value of the file belongs to; empty where it belongs to none.

    >>> node_at(("nodes", "polish", "nodes", "judge", "routes", "fail"))
    ('polish', 'judge')
    """
    names: list[str] = []
    for key, name in zip(path[::2], path[1::2], strict=False):
        if key != "nodes":
            break
        names.append(str(name))
    return tuple(names)


# --- Of which kind of ours a node is, told without importing the kind


def is_agent(node: NodeKeys | None) -> TypeIs[AgentNodeSpec]:
    return node is not None and node.type == "agent"


def is_approval(node: NodeKeys | None) -> TypeIs[ApprovalNodeSpec]:
    return node is not None and node.type == "approval"


def is_routing(node: NodeKeys | None) -> TypeIs[RoutingNodeSpec]:
    return node is not None and node.type == "routing"


def is_evaluation(node: NodeKeys | None) -> TypeIs[EvaluationNodeSpec]:
    return node is not None and node.type == "evaluation"


def is_judging(node: NodeKeys | None) -> TypeIs[RoutingNodeSpec | EvaluationNodeSpec]:
    """Tells whether a model judges a text in it, to choose or to score."""
    return node is not None and node.type in ("routing", "evaluation")


def is_asking(node: NodeKeys | None) -> TypeIs[AgentNodeSpec | RoutingNodeSpec | EvaluationNodeSpec]:
    """Tells whether it names an agent, or may."""
    return node is not None and node.type in ("agent", "routing", "evaluation")


def may_call(node: NodeKeys | None) -> TypeIs[ConditionNodeSpec | EvaluationNodeSpec | FunctionNodeSpec]:
    """Tells whether it may name a function of the project."""
    return node is not None and node.type in ("condition", "evaluation", "function")


def is_condition(node: NodeKeys | None) -> TypeIs[ConditionNodeSpec]:
    return node is not None and node.type == "condition"


def is_function(node: NodeKeys | None) -> TypeIs[FunctionNodeSpec]:
    return node is not None and node.type == "function"


def is_map_node(node: NodeKeys | None) -> TypeIs[MapNodeSpec]:
    return node is not None and node.type == "map"


def is_loop(node: NodeKeys | None) -> TypeIs[LoopNodeSpec]:
    return node is not None and node.type == "loop"


def is_subflow(node: NodeKeys | None) -> TypeIs[SubflowNodeSpec]:
    return node is not None and node.type == "subflow"


_INPUT: Final = re.compile(r"\s*\{\{\s*inputs\.([A-Za-z_]\w*)\s*\}\}\s*")


def named_input(spec: FlowSpec, text: str) -> InputSpec | None:
    """The flow's input that a template gives as it is; None where it gives anything else."""
    match = _INPUT.fullmatch(text)
    return None if match is None else spec.inputs.get(match[1])


def is_tool(node: NodeKeys | None) -> TypeIs[ToolNodeSpec]:
    return node is not None and node.type == "tool"


def is_http(node: NodeKeys | None) -> TypeIs[HttpNodeSpec]:
    return node is not None and node.type == "http"


def is_code_node(node: NodeKeys | None) -> TypeIs[CodeNodeSpec]:
    return node is not None and node.type == "code"


# --- The settings that hold for a node

AskingNode: TypeAlias = "AgentNodeSpec | RoutingNodeSpec | EvaluationNodeSpec"

_UNSET: Final = AgentSpec.model_construct()
"""Settings of which none is given. A copy costs a tenth of a new one, and large flows have many."""
_OF_AGENTS: Final = frozenset(AgentSpec.model_fields)
_OF_JUDGES: Final = frozenset(ModelSettings.model_fields) - {"temperature", *OF_GENERATING} | {"timeout"}
"""Settings that routing and evaluation nodes take from an agent; its temperature is for generating."""
_OPTIONS: Final = (*OPTIONS, "model_options")


_JUDGING: Final = frozenset({"improve", "evaluate"})
"""A node that says one of them decides how it is judged, whatever its agent says."""


def agent_path(spec: FlowSpec, at: KeyPath, node: AskingNode) -> KeyPath | None:
    """Returns the key path of a node's agent; None if it has none."""
    if node.agent is not None:
        return ("agents", node.agent) if isinstance(node.agent, str) else (*at, "agent")
    if spec.defaults.agent is not None:
        return ("agents", spec.defaults.agent) if isinstance(spec.defaults.agent, str) else ("defaults", "agent")
    return None


def holder_path(spec: FlowSpec, at: KeyPath, node: AskingNode, key: str) -> KeyPath:
    """Returns the key path of what gives a node a setting: the node, else its agent."""
    return at if key in node.model_fields_set else agent_path(spec, at, node) or at


def agent_of(spec: FlowSpec, node: AskingNode) -> AgentSpec | None:
    """The agent that a node names, holds, or gets from `defaults`."""
    agent = node.agent if node.agent is not None else spec.defaults.agent
    return spec.agents.get(agent) if isinstance(agent, str) else agent


def settings_of(spec: FlowSpec, node: AskingNode) -> AgentSpec:
    """The settings that hold for a node; only what was given somewhere is set. `timeout` is that of a model call.

    Routing and evaluation nodes take the model and how it is asked from the agent, but for its temperature and what
    else is for generating. Options go with the model that they were given for: a node that names another one than its
    agent takes none of the agent's.
    """
    agent = agent_of(spec, node)
    allowed = _OF_AGENTS if is_agent(node) else _OF_JUDGES
    settings: dict[str, Any] = {}
    if agent is not None:
        settings = {name: getattr(agent, name) for name in agent.model_fields_set if name in allowed}
    if is_agent(node) and node.model_fields_set & _JUDGING:
        settings = {name: value for name, value in settings.items() if name not in _JUDGING}
    if agent is not None and node.model is not None and node.model != agent.model:
        settings = {name: value for name, value in settings.items() if name not in _OPTIONS}
    shared = AgentSettings if is_agent(node) else ModelSettings
    settings |= {name: getattr(node, name) for name in node.model_fields_set & shared.model_fields.keys()}
    return _UNSET.model_copy(update=settings)


def options_of(settings: ModelSettings) -> dict[str, Any]:
    """The options of the model call that are said, as agents take them."""
    options = {name: getattr(settings, name) for name in _OPTIONS if getattr(settings, name, None) is not None}
    if settings.thinking is not None:
        options["thinking"] = settings.thinking.budget_tokens
    return options


def setting_of(spec: FlowSpec, node: AgentNodeSpec, name: str) -> Any:
    """One setting of an agent node, as `settings_of` has it."""
    if name in node.model_fields_set or (name in _JUDGING and node.model_fields_set & _JUDGING):
        return getattr(node, name)
    agent = agent_of(spec, node)
    return None if agent is None else getattr(agent, name)


def retry_of(spec: FlowSpec, node: NodeKeys) -> RetrySpec | None:
    """A node's retry, or the flow's default, which is only for what is known to have no external effect."""
    if not isinstance(node, WorkKeys):
        return None
    if node.retry is not None or node.known_effect() not in ("none", "idempotent") or not _takes_defaults(node):
        return node.retry
    return spec.defaults.retry


def timeout_of(spec: FlowSpec, node: NodeKeys) -> float | None:
    """A node's timeout in seconds, or the flow's default."""
    if not isinstance(node, BoundedKeys):
        return None
    return spec.defaults.timeout if node.timeout is None and _takes_defaults(node) else node.timeout


def _takes_defaults(node: NodeKeys) -> bool:
    """Agent, routing and evaluation nodes do, and those that call something."""
    return isinstance(node, WorkKeys) and not is_condition(node)


# --- Labels, and where they lead


class Leads(NamedTuple):
    """One label of a node, and where it leads."""

    label: str
    target: str | None
    path: KeyPath


def routes_of(spec: FlowSpec, name: str, level: NodePath = ()) -> list[Leads]:
    """A node's labels, those that lead nowhere included, with their targets; failures go aside."""
    node = level_of(spec, level)[name]
    path = key_path((*level, name))
    if is_agent(node):
        routing: AgentRouting | None = setting_of(spec, node, "routing")
        if routing is not None:
            start = (*holder_path(spec, path, node, "routing"), "routing")
            return _place_routes(routes_to(routing.routes, routing.fallback), start)
    return _place_routes(node.own_routes(), path)


def _place_routes(routes: Iterable[OwnRoute], path: KeyPath) -> list[Leads]:
    return [Leads(each.label, each.target, (*path, *each.at)) for each in routes]


def labels_of(spec: FlowSpec, name: str, level: NodePath = ()) -> frozenset[str]:
    """Every label that a node can take; none where it has no routes."""
    return frozenset(each.label for each in routes_of(spec, name, level))
