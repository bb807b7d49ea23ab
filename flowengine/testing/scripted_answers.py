"""Answers a flow's agents from a script, written down by node.

    run = scripted(flow, {"analyze": "A refund.", "triage": {"next_route": "billing", "confidence": 0.9}}).run_sync(…)

A call for which there is no answer is an error that shows the prompt. What answers mean to agents is
`flowengine.models.scripted`'s matter; `model_overrides` puts them in their place.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import asynccontextmanager
from functools import partial
from typing import Any, TypeAlias, cast

from flowengine.agents import CallSettings
from flowengine.errors import DefinitionError, did_you_mean
from flowengine.flow import Flow
from flowengine.models import (
    Answer,
    Finish,
    Model,
    PassThroughModel,
    Reply,
    Request,
    ScriptedModel,
    UnscriptedCallError,
    format_prompt,
)
from flowengine.testing.model_overrides import ModelSlot, seat_names, with_models

__all__ = ["NodeAnswers", "Script", "scripted"]

NodeAnswers: TypeAlias = Answer | list[Answer] | Callable[[Request], Answer] | Model
"""One answer for every call, a list of answers for one call after the other, a function of the request, or a model."""


def scripted(flow: Flow, answers: Mapping[str, NodeAnswers]) -> Flow:
    """The flow with scripted answers in the place of its models.

    A key is a node; `node.evaluation` and `node.routing` are the judge and the router inside of an agent
    node, which otherwise take their answers from the node's. A list is used up once: make the flow anew
    for each run. Raises `DefinitionError` for a key that is no node, or one that asks no model.

    >>> from flowengine import Flow
    >>> from flowengine.agents.agent import Agent
    >>> flow = Flow("tea", {"ask": Agent("ask", "Name a tea.", model="openai/gpt-4o-mini")})
    >>> scripted(flow, {"ask": "Sencha."}).run_sync().outputs["ask"]
    'Sencha.'
    """
    return Script(answers).around(flow)


class Script:
    """Answers by node, and the calls that had none (`misses`), to look at after the run."""

    def __init__(self, answers: Mapping[str, NodeAnswers]) -> None:
        self.misses: list[str] = []
        self._answers = dict(answers)
        self._models = {name: self._watch_model(_to_model(each)) for name, each in answers.items()}

    def around(self, flow: Flow) -> Flow:
        self._check(flow)
        return with_models(flow, self._choose)

    def _check(self, flow: Flow) -> None:
        agents, nodes = list(seat_names(flow)), flow.plan.all_nodes
        for name in self._answers:
            if name in agents:
                continue
            node = nodes.get(name)
            if node is not None:
                raise DefinitionError(f"answers for '{name}', which is a {node.kind} node here and asks no model")
            hint = did_you_mean(name, agents) or f"; agents are: {', '.join(agents) or 'none'}"
            raise DefinitionError(f"answers for '{name}', and flow '{flow.name}' has no agent of that name{hint}")

    def _choose(self, seat: ModelSlot, settings: CallSettings) -> Model:
        model = self._models.get(str(seat)) or self._models.get(seat.node)
        return model or self._watch_model(ScriptedModel(self._refusal(seat)))

    def _refusal(self, seat: ModelSlot) -> Callable[[Request], Answer]:
        def refuse(request: Request) -> Answer:
            nodes = ", ".join(self._answers) or "no node"
            raise UnscriptedCallError(
                f"'{seat}' asked its model, and there is no answer for it in the script, which has answers for: "
                f"{nodes}{format_prompt(request)}"
            )

        return refuse

    def _watch_model(self, model: Model) -> Model:
        return _RefusalRecorder(model, self.misses)


class _RefusalRecorder(PassThroughModel):
    """A model whose refusals are put on a list, since a flow may have a way to go on without the answer."""

    def __init__(self, model: Model, misses: list[str]) -> None:
        super().__init__(model)
        self._misses = misses

    @asynccontextmanager
    async def _around(self, request: Request) -> AsyncGenerator[tuple[Request, Finish]]:
        try:
            yield request, partial(_check_tools, request)
        except UnscriptedCallError as error:
            self._misses.append(str(error))
            raise


def _check_tools(request: Request, reply: Reply) -> Reply:
    """The reply; `UnscriptedCallError` for a script that calls a tool which the agent is not offered."""
    offered = [str(tool["function"]["name"]) for tool in request.tools]
    if not offered and any(message.role == "tool" for message in request.messages):
        return reply  # No tool is offered any more: that is the limit of rounds, of which the loop tells.
    for call in reply.tool_calls:
        if call.name not in offered:
            hint = did_you_mean(call.name, offered) or f"; the agent is offered: {', '.join(offered) or 'no tool'}"
            raise UnscriptedCallError(f"the script calls the tool '{call.name}', which the agent does not have{hint}")
    return reply


def _to_model(answers: NodeAnswers) -> Model:
    if isinstance(answers, list):
        return ScriptedModel(cast("list[Answer]", answers))
    if callable(answers):
        return ScriptedModel(answers)
    if hasattr(answers, "complete"):
        return cast(Model, answers)
    answer = cast(Any, answers)
    return ScriptedModel(lambda request: answer)
