"""Defines what goes into a turn of an agent and what comes out: its request, the parts of the agent, its response."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from flowengine.agents.evaluation import EvaluationAgent
from flowengine.agents.prompt import chat_of, generation_messages, text_of
from flowengine.agents.routing import RoutingAgent
from flowengine.agents.settings import Generation, Improvement
from flowengine.agents.tool_loop import Admit
from flowengine.agents.tooling import Tooling
from flowengine.core import (
    EMPTY,
    Context,
    EvaluationResult,
    FileValue,
    Gateway,
    LLMResult,
    Messages,
    RoutingResult,
    RunScope,
)
from flowengine.models import Message

if TYPE_CHECKING:
    from flowengine.agents.sources import Sources


class Response(NamedTuple):
    """All that one run of an agent has to tell."""

    result: LLMResult
    """Its content is what becomes `_last_generation`."""
    prompt: str
    """The prompt that the result answers, as one text (`_last_prompt`): an improvement's prompt where that was the
    best."""
    evaluation: EvaluationResult | None = None
    routing: RoutingResult | None = None
    kept: Mapping[str, Any] | None = None
    """The values that providers and typed contexts keep for the later nodes of a run (`NodeResult.kept`)."""

    def added_to(self, context: Context, question: str | None = None) -> Context:
        """The context with what the agent has to add; what it does not set stays as it was.

        `question`: what was asked, which with the answer is then the end of the context's chat.
        """
        state = {**context.shared_state, "_last_prompt": self.prompt, "_last_generation": self.result.content}
        changes: dict[str, Any] = {"result": self.result, "shared_state": state}
        if self.evaluation is not None:
            changes["evaluation_result"] = self.evaluation
        if self.routing is not None:
            changes["routing_result"] = self.routing
        if question is not None:
            exchange = Message("user", question), Message("assistant", text_of(self.result.content))
            changes["messages"] = (*context.messages, *exchange)
        return context.with_(**changes)


class TurnRequest(NamedTuple):
    """The request for one run of an agent."""

    input_text: str
    earlier: Sequence[Any]
    """The chat that it goes on from."""
    gateway: Gateway
    options: Mapping[str, Any] = EMPTY
    """Options for the generation calls of this run."""
    scope: RunScope | None = None
    admit: Admit | None = None
    kept: Mapping[str, Any] | None = None
    """The values that the ancestors of the agent's node keep; None for an agent that stands alone."""
    recorded: Sequence[Any] = ()
    """The records of an interrupted attempt of the agent's node."""
    attachments: tuple[FileValue, ...] = ()
    """Files that the model sees with the input."""
    shared: str = ""
    """How the input begins in other runs too."""


class AgentParts(NamedTuple):
    """The parts of an agent that a turn needs; built once for each run, immutable."""

    name: str
    words: Messages
    tooling: Tooling
    sources: Sources | None
    generation: Generation
    evaluator: EvaluationAgent | None
    improvement: Improvement | None
    """None outside orchestration mode."""
    router: RoutingAgent | None

    def messages(self, input_text: str, earlier: Sequence[Any] = (), shared: str = "") -> tuple[Message, ...]:
        """The agent's own part of the prompt for an input: nothing is asked, neither models nor providers."""
        return generation_messages(
            self.words,
            input_text,
            system_message=self.generation.system_message,
            instructions=self.generation.instructions,
            history=self.generation.recent(),
            earlier=chat_of(earlier),
            shared=shared,
        )
