"""Makes, from the settings that hold for a node, the agents that do the work.

An agent whose texts have no placeholder is made once; otherwise it is made anew from each run's context.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeVar, cast

from flowengine.agents import Agent, EvaluationAgent, RoutingAgent, Surroundings, ToolChoice
from flowengine.agents.tools import Tool, ToolSet
from flowengine.core import EMPTY, Context, describe_value, load_messages
from flowengine.errors import TemplateError
from flowengine.flowfile.analysis import options_of, settings_of
from flowengine.flowfile.compile.scope import is_static, template, text
from flowengine.flowfile.project import Project, ProjectProblem
from flowengine.flowfile.schema import AgentRouting, AgentSpec, Evaluate, FlowSpec, Guardrails, Improve, MemorySpec
from flowengine.nodes import Templated, Value

if TYPE_CHECKING:
    from flowengine.agents.context import ContextProvider
    from flowengine.agents.skills import SkillStore
    from flowengine.agents.typed_contexts import ContextManager, TypedContext
    from flowengine.flowfile.kinds.agent_kind import AgentNodeSpec
    from flowengine.flowfile.kinds.evaluation_kind import EvaluationNodeSpec
    from flowengine.flowfile.kinds.routing_kind import RoutingNodeSpec

# --- What an agent of a flow draws on, made from the file; each kind of it is imported where a flow has one


def providers_of(entries: Sequence[Any], project: Project) -> list[ContextProvider]:
    """The providers of `context`. Their paths are below the project's root, their code is what the project allows."""
    from flowengine.agents.context import ContextProviderFactory

    return ContextProviderFactory.create_from_config(list(entries), root=project.root, load=project.import_object)


def memory_of(memory: MemorySpec, project: Project, context: Context | None = None) -> ContextProvider:
    """The source of `memory`; without a context, one that stands for it where whose it is depends on the run."""
    from flowengine.agents.context import LongTermMemoryProvider

    settings = memory.settings(project.memory)
    if memory.scope_id is not None and not is_static(memory.scope_id):
        settings["scope_id"] = "C:0" if context is None else _scope_id(memory.scope_id, context)
    store = settings.get("store")
    if "store" in memory.model_fields_set or not isinstance(store, str):
        return LongTermMemoryProvider.from_config(settings, root=project.root)
    # The project's choice, not a flow's.
    return LongTermMemoryProvider.from_config({**settings, "store": str(project.root / store)})


def _scope_id(source: str, context: Context) -> str:
    if template(source)(context) is None:  # As text it would be one memory for all of whom nothing is known.
        raise TemplateError("`scope_id` of the memory gives null, which does not say whose it is")
    return text(source)(context)


def _context(target: str, entry: Any) -> TypedContext[Any] | ContextManager:
    """A typed context of `contexts`; of a class, one with the data that it begins with."""
    from flowengine.agents.typed_contexts import ContextManager, TypedContext

    if isinstance(entry, type) and issubclass(entry, TypedContext):
        return cast("TypedContext[Any]", entry())
    if isinstance(entry, TypedContext | ContextManager):
        return cast("TypedContext[Any] | ContextManager", entry)
    raise ProjectProblem("FE508", f"'{target}' is no typed context: {describe_value(cast(object, entry))}").error()


A = TypeVar("A", Agent, RoutingAgent, EvaluationAgent)

_TEMPLATED: Final = ("generation_instructions", "system_message", "evaluation_instructions", "routing_instruction")
_AS_THEY_ARE: Final = ("temperature", "max_tokens", "max_retries", "locale", "timeout", "prompt_cache")


class AgentMaker:
    """Makes the agents of one flow. `model` goes before every model that the file names."""

    def __init__(self, spec: FlowSpec, project: Project, model: str | None, surroundings: Surroundings) -> None:
        self._spec = spec
        self._project = project
        self._model = model
        self._surroundings = replace(surroundings, flow=spec.name)
        self._skills: dict[tuple[str, ...], SkillStore] = {}
        """Folders → the store that all agents with these folders share."""

    def generating(self, name: str, node: AgentNodeSpec) -> Agent | Templated[Agent]:
        settings = settings_of(self._spec, node)
        # A node that judges decides how: `improve` of its agent gives way to `evaluate` of the node.
        judging = node.improve or node.evaluate or settings.improve or settings.evaluate
        arguments = {
            **self._calls(settings),
            "generation_instructions": settings.instructions or "",
            "system_message": settings.system_message,
            "output_model": self._output(settings.output),
            **self._make_tooling(settings),
            **self._sources(settings),
            **self._make_guardrails(settings.guardrails),
            **self._make_judge(judging, settings.locale),
            **_make_routing(settings.routing),
        }
        memory = settings.memory
        late: dict[str, Value] = {}
        if memory is not None:
            arguments["memory"] = memory_of(memory, self._project)
            if memory.scope_id is not None and not is_static(memory.scope_id):
                late["memory"] = partial(memory_of, memory, self._project)
        return _make_or_defer(partial(Agent, name), arguments, late)

    def routing(self, name: str, node: RoutingNodeSpec) -> RoutingAgent | Templated[RoutingAgent]:
        arguments = {
            **self._calls(settings_of(self._spec, node)),
            "routing_instruction": node.instruction,
            "routes": {label: route.description for label, route in node.routes.items()},
            "fallback": node.fallback,
            "min_confidence": node.min_confidence,
        }
        return _make_or_defer(partial(RoutingAgent, name), arguments)

    def judging(self, name: str, node: EvaluationNodeSpec) -> EvaluationAgent | Templated[EvaluationAgent]:
        arguments = {
            **self._calls(settings_of(self._spec, node)),
            "evaluation_instructions": node.instructions,
            "evaluation_criteria": dict(node.criteria) or None,
            "pass_threshold": node.threshold,
        }
        return _make_or_defer(partial(EvaluationAgent, name), arguments)

    def _calls(self, settings: AgentSpec) -> dict[str, Any]:
        arguments = {key: getattr(settings, key) for key in _AS_THEY_ARE} | {"surroundings": self._surroundings}
        arguments |= options_of(settings)
        if self._model is not None:
            return {**arguments, "model": self._model}
        return {**arguments, "model": settings.model, "fallbacks": settings.fallbacks}

    def _make_tooling(self, settings: AgentSpec) -> dict[str, Any]:
        return {
            "tools": [self._tool(each) for each in settings.tools or ()],
            "mcp_servers": [each.server() for each in settings.mcp_servers or ()],
            "approve": settings.approve or (),
            "approvers": settings.approvers or (),
            "max_tool_rounds": settings.max_tool_rounds,
        }

    def _tool(self, target: str) -> ToolChoice:
        tool = self._project.import_object(target)
        return tool if isinstance(tool, Tool | ToolSet) else self._project.import_callable(target)

    def _sources(self, settings: AgentSpec) -> dict[str, Any]:
        arguments: dict[str, Any] = {"context_budget": settings.context_budget}
        if settings.context or settings.contexts or settings.skills or settings.history_size:
            providers = providers_of(settings.context or (), self._project)
            arguments["context_providers"] = [*_history_of(settings, providers), *providers]
            arguments["contexts"] = [
                _context(each, self._project.import_object(each)) for each in settings.contexts or ()
            ]
            arguments |= self._share_skills(settings.skills) if settings.skills else {}
        return arguments

    def _share_skills(self, folders: tuple[str, ...]) -> dict[str, Any]:
        """The skills of folders below the project's root, and the sandbox of their scripts. Only the project may allow
        unconfined ones, because flow files can be untrusted."""
        from flowengine.agents.skills import SkillStore
        from flowengine.agents.skills.sandbox import Sandbox

        project = self._project
        if folders not in self._skills:
            self._skills[folders] = SkillStore([project.resolve(each) for each in folders], hidden=False)
        sandbox = Sandbox(allow_unconfined=project.allow_unconfined_scripts, root=project.root)
        return {"skills": self._skills[folders], "skill_sandbox": sandbox}

    def _make_guardrails(self, guardrails: Guardrails | None) -> dict[str, Any]:
        if guardrails is None:
            return {}
        load = self._project.import_callable
        return {
            "input_guardrails": [load(each) for each in guardrails.input],
            "output_guardrails": [load(each) for each in guardrails.output],
        }

    def _make_judge(self, judging: Evaluate | None, locale: str | None) -> dict[str, Any]:
        if judging is None:
            return {}
        arguments = {
            "evaluation_instructions": judging.instructions,
            # The block alone asks for a judgement by the default criteria.
            "evaluation_criteria": dict(judging.criteria) or load_messages(locale or "en").section("criteria"),
            "evaluation_threshold": judging.threshold,
            "evaluation_model": self._model or judging.model,
        }
        if isinstance(judging, Improve):
            arguments |= {
                "orchestration_mode": True,
                "max_improvement_iterations": judging.max_iterations,
                "improvement_patience": judging.patience,
            }
        return arguments

    def _output(self, output: str | Mapping[str, Any] | None) -> Any:
        return self._project.import_object(output) if isinstance(output, str) else output


def _history_of(settings: AgentSpec, providers: Iterable[ContextProvider]) -> Iterator[ContextProvider]:
    """The conversation that `history_size` asks for, unless `context` has one already."""
    from flowengine.agents.context import ConversationHistoryProvider

    if settings.history_size and not any(isinstance(each, ConversationHistoryProvider) for each in providers):
        yield ConversationHistoryProvider(settings.history_size)


def _make_routing(routing: AgentRouting | None) -> dict[str, Any]:
    if routing is None:
        return {}
    return {
        "routing_instruction": routing.instruction,
        "routes": {label: route.description for label, route in routing.routes.items()},
        "fallback": routing.fallback,
    }


def _make_or_defer(
    make: Callable[..., A], settings: Mapping[str, Any], late: Mapping[str, Value] = EMPTY
) -> A | Templated[A]:
    """The agent, or where a text of it has placeholders, a function that makes it from the context.

    `late`: settings that are worked out from each run's context.
    """
    arguments = {key: value for key, value in settings.items() if value is not None}
    texts = {key: text(arguments[key]) for key in _TEMPLATED if key in arguments and not is_static(arguments[key])}
    once = make(**arguments)  # A setting that is wrong is wrong now, not in the middle of a run.
    if not texts and not late:
        return once

    def make_agent(context: Context) -> A:
        rendered = {key: render(context) for key, render in texts.items()}
        return make(**arguments | rendered | {key: value(context) for key, value in late.items()})

    return Templated(once, make_agent)
