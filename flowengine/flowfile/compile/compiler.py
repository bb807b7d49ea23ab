"""Compiles a `FlowSpec` to a `CompiledFlow`: templates become callables, settings become nodes."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cache, cached_property, partial
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

from flowengine.agents import Surroundings
from flowengine.agents.tools import Tool
from flowengine.agents.tools.mcp import ServerTool
from flowengine.core import Budget
from flowengine.engine import StateKey
from flowengine.errors import DefinitionError, Diagnostic, FlowEngineError, FlowError, MisplacedKeyError, ProjectError
from flowengine.flowfile.analysis import (
    NodePath,
    edges_of,
    is_asking,
    key_path,
    level_of,
    retry_of,
    settings_of,
    timeout_of,
)
from flowengine.flowfile.checks import check_models, server_named
from flowengine.flowfile.compile.agent_factory import AgentMaker
from flowengine.flowfile.compile.scope import boolean, values
from flowengine.flowfile.file_texts import DISK, FlowFiles
from flowengine.flowfile.loader import load_flow
from flowengine.flowfile.project import Project, find_project
from flowengine.flowfile.run_bundle import pack_bundle
from flowengine.flowfile.schema import (
    BoundedKeys,
    FlowSpec,
    LimitsSpec,
    NodeLimitsSpec,
    NodeSpec,
    RetrySpec,
    is_code,
    kind_of,
)
from flowengine.models import read_environment
from flowengine.models.wrappers import Limiters, limiter_for
from flowengine.nodes import (
    REQUIRED,
    CompiledFlow,
    FlowNode,
    InputField,
    NodeLimits,
    Notifier,
    RetryPolicy,
    RunLimits,
    assemble,
)

if TYPE_CHECKING:
    from flowengine.agents import Agent, EvaluationAgent, RoutingAgent
    from flowengine.flowfile.kinds.agent_kind import AgentNodeSpec
    from flowengine.flowfile.kinds.evaluation_kind import EvaluationNodeSpec
    from flowengine.flowfile.kinds.routing_kind import RoutingNodeSpec
    from flowengine.flowfile.schema import AgentRouting
    from flowengine.flowfile.schema.node_kinds import ToolTarget
    from flowengine.nodes import Sender, Templated


def load_plan(
    path: str | PathLike[str],
    *,
    text: str | None = None,
    model: str | None = None,
    environ: Mapping[str, str] | None = None,
    project: Project | None = None,
    files: FlowFiles = DISK,
    limiters: Limiters = limiter_for,
) -> CompiledFlow:
    """The plan of a flow file, or of its text. `FlowError` holds every problem.

    `environ` (None: the process's own) goes before the `.env` file of the project's root. `project`: instead of the
    one that the file lies in; `files`: where the flows are that it runs as nodes; `limiters`: who keeps the limits of
    the project's providers.
    """
    project = project or find_project(path)
    environ = os.environ if environ is None else environ
    spec = load_flow(path, text=text, project=project, files=files)
    plan = build(spec, project, model=model, environ=read_environment(project.root, environ), limiters=limiters)
    here = Path() if os.path.isabs(path) else Path.cwd()  # It is packed later, when the process may be elsewhere.
    return replace(plan, pack=partial(pack_bundle, spec, project, here))


def build(
    spec: FlowSpec,
    project: Project,
    *,
    model: str | None = None,
    environ: Mapping[str, str] | None = None,
    limiters: Limiters = limiter_for,
) -> CompiledFlow:
    """The plan of a checked spec. Imports what `call:` and `output:` name; `FlowError` where that fails.

    `environ`: where keys, addresses and the values of `allow_env` are looked up while the plan runs; None: in the
    process's own environment. `limiters`: who keeps the limits of the project's providers.
    """
    environ = os.environ if environ is None else environ
    around = Surroundings(
        environ,
        project.providers,
        project.prices,
        limiters,
        default_provider=project.default_provider,
        stand_in=model,
        models=project.models,
        approve_external=project.approve_external,
    )

    def subflow(inner: FlowSpec) -> CompiledFlow:
        return build(inner, project, model=model, environ=environ, limiters=limiters)

    def place_of(name: str) -> tuple[int, int]:
        return spec.source.key_position(key_path(tuple(name.split("."))))

    def model_problems() -> Sequence[Diagnostic]:
        from flowengine.models import ModelFacts  # Only what is wrong needs it.

        facts = ModelFacts(environ, project.prices, project.default_provider, project.models, project.providers)
        return check_models(spec, facts, model)

    builder = _Builder(spec, project, model, around, subflow)
    return assemble(
        spec.name,
        builder.nodes(()),
        inputs={name: _input(each) for name, each in spec.inputs.items()},
        state={name: StateKey(each.default, each.merge, each.type) for name, each in spec.shared_state.items()},
        outputs={name: values(each) for name, each in spec.outputs.items()} if spec.outputs else None,
        limits=_flow_limits(spec.limits),
        description=spec.description,
        allow_env=project.allow_env,
        files=replace(project.files, root=project.root),
        environ=environ,
        notifier=_notifier(project, environ),
        prepares_slowly=any(each.key_command for each in (*project.models.values(), *project.providers.values())),
        path=None if spec.path is None else str(spec.path),
        source=spec.text,
        place_of=place_of,
        model_problems=model_problems,
    )


def _notifier(project: Project, environ: Mapping[str, str]) -> Notifier | None:
    """Tells people of questions, where the project says how."""
    if project.notify is None:
        return None
    from flowengine.nodes import HttpSender
    from flowengine.nodes.notify import PeopleNotifier

    return PeopleNotifier(
        project.notify, HttpSender(project.allow_http, environ, uses_proxy=project.http_proxy), environ
    )


class _Compiler:
    """The services available to a kind while it makes a node."""

    def __init__(self, builder: _Builder, path: NodePath) -> None:
        self._builder = builder
        self._path = path

    def import_callable(self, target: str, /) -> Callable[..., Any]:
        return self._builder.import_callable(target)

    def tool(self, target: str, /) -> ToolTarget:
        return self._builder.tool(target)

    @property
    def root(self) -> Path:
        return self._builder.project.root

    @property
    def approve_external(self) -> bool:
        return self._builder.project.approve_external

    def http_sender(self) -> Sender:
        return self._builder.http_sender

    def body(self) -> dict[str, FlowNode]:
        return self._builder.nodes(self._path)

    def is_repeated(self) -> bool:
        return len(self._path) > 1

    def subflow(self, flow: str, /) -> CompiledFlow:
        return self._builder.subflow(flow)

    @property
    def _agents(self) -> AgentMaker:
        return self._builder.repeated_agents if self.is_repeated() else self._builder.agents

    def agent(self, node: AgentNodeSpec, /) -> Agent | Templated[Agent]:
        return self._agents.generating(self._path[-1], node)

    def routing_agent(self, node: RoutingNodeSpec, /) -> RoutingAgent | Templated[RoutingAgent]:
        return self._agents.routing(self._path[-1], node)

    def judge(self, node: EvaluationNodeSpec, /) -> EvaluationAgent | Templated[EvaluationAgent]:
        return self._agents.judging(self._path[-1], node)

    def routing_of(self, node: AgentNodeSpec, /) -> AgentRouting | None:
        return settings_of(self._builder.spec, node).routing


class _Builder:
    """Makes the nodes of one flow, and collects what is wrong with what they import."""

    def __init__(
        self,
        spec: FlowSpec,
        project: Project,
        model: str | None,
        around: Surroundings,
        subflow: Callable[[FlowSpec], CompiledFlow],
    ) -> None:
        self.spec = spec
        self._model = model
        self.project = project
        self._build = subflow
        self._environ = around.environ
        self.import_object = cache(project.import_object)
        self.import_callable = cache(project.import_callable)
        self._around = around
        self.agents = AgentMaker(spec, project, model, around)

    @cached_property
    def repeated_agents(self) -> AgentMaker:
        """Makes the agents of maps and loops."""
        return AgentMaker(self.spec, self.project, self._model, replace(self._around, repeats=True))

    def subflow(self, flow: str) -> CompiledFlow:
        """The plan of another file that the flow names."""
        return self._build(self.spec.subflows[flow])

    @cached_property
    def http_sender(self) -> Sender:
        """Sends requests to where the project allows it."""
        from flowengine.nodes import HttpSender

        project = self.project
        bound, proxy = project.files.max_file, project.http_proxy
        return HttpSender(project.allow_http, self._environ, max_bytes=bound, uses_proxy=proxy)

    def tool(self, target: str) -> ToolTarget:
        """The tool of `server.tool` or `module:function`."""
        if is_code(target):
            imported = self.import_object(target)
            return imported if isinstance(imported, Tool) else self.import_callable(target)
        server, _, tool = target.partition(".")
        return ServerTool(server_named(self.spec, self.project, server), tool, self._environ)

    def nodes(self, level: NodePath) -> dict[str, FlowNode]:
        """The nodes of one level: the flow's own, or those inside the container at a path."""
        reads: dict[str, list[str]] = {}
        for source, target, route in edges_of(self.spec, level):
            if route is None:
                reads.setdefault(target, []).append(source)
        nodes: dict[str, FlowNode] = {}
        problems: list[Diagnostic] = []
        for name, node in level_of(self.spec, level).items():
            path = (*level, name)
            try:
                nodes[name] = self._node(path, node, self._common(node, reads.get(name, ())))
            except FlowError as error:
                problems += error.diagnostics
            except DefinitionError as error:
                problems.append(self._problem(path, error))
        if problems:
            raise FlowError(sorted(problems, key=lambda each: (each.line or 0, each.column or 0)))
        return nodes

    def _node(self, path: NodePath, node: NodeSpec, common: dict[str, Any]) -> FlowNode:
        kind = kind_of(node.type)
        flow_node = kind.make(node, common, _Compiler(self, path))
        if flow_node.kind != node.type:
            raise DefinitionError(f"the node type '{node.type}' makes a node of the type '{flow_node.kind}'")
        for trait in ("transparent", "container"):
            if getattr(flow_node, trait) != getattr(kind.traits, trait):
                raise DefinitionError(
                    f"`{trait}` of {type(flow_node).__name__} is not what the traits of '{node.type}' say"
                )
        return flow_node

    def _problem(self, path: NodePath, error: FlowEngineError) -> Diagnostic:
        at = error.at if isinstance(error, MisplacedKeyError) else ()
        line, column = self.spec.position((*key_path(path), *at))
        file = None if self.spec.path is None else str(self.spec.path)
        name = ".".join(path)
        if isinstance(error, ProjectError):
            return Diagnostic(error.code or "FE507", error.message, file, line, column, node=name)
        return Diagnostic("FE403", str(error), file, line, column, node=name)

    def _common(self, node: NodeSpec, reads: Sequence[str]) -> dict[str, Any]:
        """The keys of every node."""
        retry = retry_of(self.spec, node)
        return {
            "needs": node.needs,
            "reads": reads,
            "join": node.join,
            "when": None if node.when is None else boolean(node.when),
            "set": {key: values(each) for key, each in node.set.items()},
            "retry": None if retry is None else _retry(retry),
            "timeout": timeout_of(self.spec, node),
            "on_error": node.on_error.then or node.on_error.action,
            "effect": node.known_effect() if isinstance(node, BoundedKeys) else "none",
            "cache": isinstance(node, BoundedKeys) and node.cache,
            "limits": _part_limits(node.limits) if isinstance(node, BoundedKeys) else None,
            "description": node.description,
            "version": node.version if isinstance(node, BoundedKeys) else "",
            "fingerprint": lambda: self._fingerprint(node),
        }

    def _fingerprint(self, node: NodeSpec) -> str:
        """The node's own definition with everything that it inherits; nodes inside it have one of their own."""
        agent = None
        if is_asking(node):
            agent = settings_of(self.spec, node).model_dump(mode="json", exclude_unset=True)
        inherited = [self._model, agent, timeout_of(self.spec, node), repr(retry_of(self.spec, node))]
        unmeant = {"nodes", "limits", "notify", "trust", "untrusted"}
        own = node.model_dump(mode="json", exclude_unset=True, exclude=unmeant)
        return json.dumps([own, *inherited], sort_keys=True, ensure_ascii=False)


def _flow_limits(limits: LimitsSpec) -> RunLimits:
    return RunLimits(limits.concurrency, limits.timeout, limits.on_failure, _bounds(limits), limits.on_limit)


def _part_limits(limits: NodeLimitsSpec | None) -> NodeLimits | None:
    return None if limits is None else NodeLimits(_bounds(limits), limits.timeout, limits.on_limit)


def _bounds(limits: NodeLimitsSpec) -> Budget:
    return Budget(limits.cost_usd, limits.tokens, limits.model_calls)


def _retry(retry: RetrySpec) -> RetryPolicy:
    return RetryPolicy(retry.attempts, retry.backoff, retry.initial, retry.max, retry.jitter, tuple(retry.on))


def _input(each: Any) -> InputField:
    default = REQUIRED if each.required else each.default
    return InputField(each.type, default, each.enum, each.schema_, each.description, each.media_types)
