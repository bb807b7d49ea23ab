"""From the settings of a node, its agent and the defaults to the agents that do the work.

A key of the node goes before its agent's, and that before the default agent's. An agent whose texts
have no placeholder is made once; otherwise it is made anew from each run's context.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, TypeVar, cast

from flowengine.agents.agent import Agent
from flowengine.agents.evaluation import EvaluationAgent
from flowengine.agents.routing import RoutingAgent
from flowengine.context import Context
from flowengine.spec.project import Project
from flowengine.spec.schema import FlowSpec
from flowengine.spec.schema_agent import AgentRef, AgentSpec, Evaluate, Improve
from flowengine.spec.schema_nodes import AgentNodeSpec, EvaluationNodeSpec, NodeSpec, RoutingNodeSpec
from flowengine.spec.scope import is_static, template

__all__ = ["AgentMaker"]

A = TypeVar("A")

_TEMPLATED: Final = ("generation_instructions", "system_message", "evaluation_instructions", "routing_instruction")
_PLAIN: Final = ("temperature", "max_tokens", "max_retries", "fallbacks", "locale")


class AgentMaker:
    """Makes the agents of one flow. `model` goes before every model that the file names."""

    def __init__(self, spec: FlowSpec, project: Project, model: str | None) -> None:
        self._spec = spec
        self._project = project
        self._model = model

    def sources(self, node: NodeSpec) -> list[Any]:
        """Where a node's settings come from, the nearest first: the node, its agent, the default agent."""
        named = getattr(node, "agent", None)
        found = [node, self._agent(named), self._agent(self._spec.defaults.agent)]
        return [each for each in found if each is not None]

    def generating(self, name: str, node: AgentNodeSpec) -> Agent | Callable[[Context], Agent]:
        sources = self.sources(node)
        settings = self._call_settings(sources)
        settings["generation_instructions"] = _first(sources, "instructions") or ""
        settings["system_message"] = _first(sources, "system_message")
        settings["output_model"] = self._output(_first(sources, "output"))
        settings["history_size"] = _first(sources, "history_size")
        guardrails = _first(sources, "guardrails")
        if guardrails is not None:
            load = self._project.import_callable
            settings["input_guardrails"] = [load(each) for each in guardrails.input]
            settings["output_guardrails"] = [load(each) for each in guardrails.output]
        # The nearest source that judges decides how: `improve` of an agent gives way to `evaluate` of its node.
        judging = next((each.improve or each.evaluate for each in sources if each.improve or each.evaluate), None)
        if judging is not None:
            settings |= self._judging(judging)
        routing = _first(sources, "routing")
        if routing is not None:
            settings["routing_instruction"] = routing.instruction
            settings["routes"] = {label: route.description for label, route in routing.routes.items()}
            settings["fallback"] = routing.fallback
        return _made(lambda **given: Agent(name, **given), settings)

    def routing(self, name: str, node: RoutingNodeSpec) -> RoutingAgent | Callable[[Context], RoutingAgent]:
        settings = self._call_settings(self.sources(node))
        settings["routing_instruction"] = node.instruction
        settings["routes"] = {label: route.description for label, route in node.routes.items()}
        settings["fallback"] = node.fallback
        settings["min_confidence"] = node.min_confidence
        return _made(lambda **given: RoutingAgent(name, **given), settings)

    def judging(self, name: str, node: EvaluationNodeSpec) -> EvaluationAgent | Callable[[Context], EvaluationAgent]:
        settings = self._call_settings(self.sources(node))
        settings["evaluation_instructions"] = node.instructions
        settings["evaluation_criteria"] = dict(node.criteria) or None
        settings["pass_threshold"] = node.threshold
        return _made(lambda **given: EvaluationAgent(name, **given), settings)

    def _agent(self, reference: AgentRef | None) -> AgentSpec | None:
        return self._spec.agents[reference] if isinstance(reference, str) else reference

    def _call_settings(self, sources: list[Any]) -> dict[str, Any]:
        """Settings of the model calls. The timeout of an agent is that of one call."""
        settings = {key: _first(sources, key) for key in _PLAIN}
        settings["model"] = self._model or _first(sources, "model")
        if self._model is not None:
            settings["fallbacks"] = None
        agents = [each for each in sources if isinstance(each, AgentSpec)]
        settings["timeout"] = _first(agents, "timeout")
        return settings

    def _judging(self, judging: Evaluate) -> dict[str, Any]:
        settings: dict[str, Any] = {
            "evaluation_instructions": judging.instructions,
            "evaluation_criteria": dict(judging.criteria) or None,
            "evaluation_threshold": judging.threshold,
            "evaluation_model": self._model or judging.model,
        }
        if isinstance(judging, Improve):
            settings |= {"orchestration_mode": True, "max_improvement_iterations": judging.max_iterations}
        elif not judging.instructions and not judging.criteria:
            # One evaluation by the default criteria is asked for by the block being there.
            settings["evaluation_criteria"] = _default_criteria(settings)
        return settings

    def _output(self, output: str | Mapping[str, Any] | None) -> Any:
        return self._project.import_object(output) if isinstance(output, str) else output


def _default_criteria(settings: Mapping[str, Any]) -> dict[str, str]:
    from flowengine.agents.catalogue import catalogue

    return dict(catalogue(settings.get("locale") or "en").section("criteria"))


def _first(sources: list[Any], key: str) -> Any:
    """The nearest source's value of a key."""
    return next((value for each in sources if (value := getattr(each, key, None)) is not None), None)


def _made(make: Callable[..., A], settings: Mapping[str, Any]) -> A | Callable[[Context], A]:
    """The agent, or where a text of it has placeholders, a function that makes it from the context."""
    given = {key: value for key, value in settings.items() if value is not None}
    rendered = {key: template(cast(str, given[key])) for key in _TEMPLATED if key in given and not is_static(given[key])}
    if not rendered:
        return make(**given)
    make(**given)  # A setting that is wrong is wrong now, not in the middle of a run.
    return lambda context: make(**given | {key: str(text(context)) for key, text in rendered.items()})
