"""Chooses one of the declared routes with one structured call.

It knows labels and when an answer names one: exactly, after trimming, case folding and composing letters, and never as
a part of something else. Which node a label leads to is not its matter.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import NoneType
from typing import Any, Final, Unpack

from pydantic import BaseModel, ValidationError

from flowengine.agents.caller import Caller, SubjectAgent, naming
from flowengine.agents.prompt import Subject, routing_messages
from flowengine.agents.settings import (
    PROCESS,
    CallSettings,
    ModelChoice,
    Surroundings,
    UsualTemperature,
    call_settings,
    check_descriptions,
    check_share,
)
from flowengine.agents.structured import AnswerShape, UnfitError, UnusableAnswerError, error_lines
from flowengine.core import Gateway, Notice, RoutingResult, Share, find_label, label_key, load_messages
from flowengine.errors import DefinitionError, RouteError, names_arguments, refuse_other_kind
from flowengine.models import Model, ModelOptions, PromptCaching

_TEMPERATURE: Final = UsualTemperature(0.1)


class _Choice(BaseModel):
    """A model's choice; after parsing, `next_route` is one of the declared labels."""

    next_route: str
    confidence: Share
    reasoning: str = ""


class RoutingAgent(SubjectAgent):
    """Chooses the route for the last generation of a context, in one structured call.

    >>> from flowengine.models.scripted import ScriptedModel
    >>> model = ScriptedModel([{"next_route": "Tea", "confidence": 0.8, "reasoning": "It says so"}])
    >>> router = RoutingAgent("drinks", "What is it about?", {"tea": "Tea", "coffee": "Coffee"}, model=model)
    >>> router.run("Sencha is lovely.").routing_result.next_route
    'tea'
    """

    @names_arguments
    def __init__(
        self,
        name: str,
        routing_instruction: str,
        routes: Mapping[str, str],
        fallback: str | None = None,
        min_confidence: float | None = None,
        *,
        model: ModelChoice = None,
        temperature: float | None = _TEMPERATURE,
        max_tokens: int | None = None,
        max_retries: int = 3,
        timeout: float | None = None,
        fallbacks: Sequence[str | Model] = (),
        locale: str = "en",
        prompt_cache: PromptCaching | None = None,
        surroundings: Surroundings = PROCESS,
        **options: Unpack[ModelOptions],
    ) -> None:
        """`routes` are label → description; `fallback` is taken where no answer can be used or trusted, and may
        be a name that is none of the labels. `options` reach the model call."""
        with naming(name):
            self.name = name
            refuse_other_kind(routing_instruction, str, "routing_instruction is text", DefinitionError)
            refuse_other_kind(fallback, (str, NoneType), "fallback is text", DefinitionError)
            self.instruction = routing_instruction
            self.routes = _check_labels(routes)
            self.fallback = fallback
            self.min_confidence = None if min_confidence is None else check_share("min_confidence", min_confidence)
            self.settings: CallSettings = call_settings(RoutingAgent, locals())
            self.words = load_messages(locale)
            self._shape = _choice_shape(self.routes)

    async def _look(self, subject: Subject, gateway: Gateway | None, options: Mapping[str, Any]) -> Mapping[str, Any]:
        routing = await self.route(subject, gateway, **options)
        return {"result": routing, "routing_result": routing}

    async def route(self, subject: Subject, gateway: Gateway | None = None, **options: Any) -> RoutingResult:
        """The route of one subject.

        An answer that names no route is sent back for correction, `max_retries` times; then the
        fallback is taken, or it is a `RouteError`. So it is with too little confidence.
        """
        with naming(self.name):
            caller = await self._open_caller(subject, gateway, options)
            messages = routing_messages(self.words, subject, self.instruction, self.routes)
            try:
                answer = await caller.answer(messages, self._shape, "routing")
            except UnusableAnswerError as error:
                return await self._handle_unusable(subject, caller, error)
            choice: _Choice = answer.value
            result = RoutingResult(content=subject.content, metadata=answer.metadata(), **choice.model_dump())
            if self.min_confidence is None or choice.confidence >= self.min_confidence:
                return result
            why = (
                f"route '{choice.next_route}' was chosen with confidence {choice.confidence:g}, "
                f"below min_confidence {self.min_confidence:g}"
            )
            return await self._fall_back(result, caller, why)

    async def _handle_unusable(self, subject: Subject, caller: Caller, error: UnusableAnswerError) -> RoutingResult:
        why = f"the answer {error.answer[:200]!r} names no route after {error.calls} call(s): {error.problem}"
        # Confidence 0: the route was not chosen by the model.
        result = RoutingResult(content=subject.content, next_route="", confidence=0.0, metadata={"calls": error.calls})
        try:
            return await self._fall_back(result, caller, why)
        except RouteError as failure:
            raise failure from error

    async def _fall_back(self, result: RoutingResult, caller: Caller, why: str) -> RoutingResult:
        if self.fallback is None:
            raise RouteError(f"{why}; allowed routes: {', '.join(self.routes)}; there is no fallback")
        await caller.gateway.note(Notice(f"agent '{self.name}': {why}; fallback '{self.fallback}' is taken"))
        metadata = {**result.metadata, "fallback": True, "chosen": result.next_route or None, "why": why}
        return result.model_copy(update={"next_route": self.fallback, "metadata": metadata})


def _choice_shape(routes: Mapping[str, str]) -> AnswerShape:
    described = "; ".join(f"{label}: {text}" if text else label for label, text in routes.items())
    properties = {
        "next_route": {"type": "string", "enum": list(routes), "description": described},
        "confidence": {"type": "number", "minimum": 0, "maximum": 1},
        "reasoning": {"type": "string"},
    }

    def parse(value: Any) -> _Choice:
        try:
            choice = _Choice.model_validate(value)
        except ValidationError as error:
            raise UnfitError(error_lines(error)) from error
        label = find_label(choice.next_route, routes, in_any_case=True)
        if label is None:
            raise UnfitError(f"next_route: {choice.next_route[:200]!r} is none of the routes {', '.join(routes)}")
        return choice.model_copy(update={"next_route": label})

    schema = {"type": "object", "properties": properties, "required": list(properties), "additionalProperties": False}
    return AnswerShape("routing", schema, parse)


def router_of(
    name: str,
    instruction: str | None,
    routes: Mapping[str, str] | None,
    fallback: str | None,
    min_confidence: float | None,
    **settings: Any,
) -> RoutingAgent | None:
    """The router inside an agent; None where nothing asks for one, and half a definition is an error."""
    if instruction and routes:
        return RoutingAgent(f"{name}.routing", instruction, routes, fallback, min_confidence, **settings)
    arguments = {
        "routing_instruction": instruction,
        "routes": routes,
        "fallback": fallback,
        "min_confidence": min_confidence,
    }
    for argument, value in arguments.items():
        if value is not None:
            raise DefinitionError(
                f"agent '{name}': {argument} needs both routing_instruction and routes to be set: "
                "routes={'label': 'when it is taken'}"
            )
    return None


def _check_labels(labels: Mapping[str, str] | None) -> dict[str, str]:
    """Routes that can be told apart after trimming, case folding and composing letters."""
    routes = check_descriptions("routes", {} if labels is None else labels, "label")
    if not routes:
        raise DefinitionError("routes must declare at least one label: {label: description}")
    folded: dict[str, str] = {}
    for label in routes:
        key = label_key(label, in_any_case=True)
        if key in folded:
            message = f"routes {folded[key]!r} and {label!r} differ in upper and lower case only"
            raise DefinitionError(f"{message}, or in how letters are composed")
        folded[key] = label
    return routes
