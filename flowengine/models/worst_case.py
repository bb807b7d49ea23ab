"""Bounds what a call can take, before it is made: its question counted, and the longest answer it may get.

A question's tokens are exact for the models whose vocabulary is public; for all others there is a margin,
since theirs cut some texts into more pieces. What a vendor adds of its own (roles, tools) is allowed for.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, NamedTuple

from flowengine.models.attachments import most_file_tokens
from flowengine.models.definitions import ModelDefinition, definition_of, find_meaning, innermost_models, listed_as
from flowengine.models.messages import as_dict
from flowengine.models.model import Model, Request, Unanswered, to_plain
from flowengine.models.open import default_model
from flowengine.models.pricing import Price, context_window, listed_price, listed_vision, longest_answer
from flowengine.models.tokens import count_tokens
from flowengine.models.vendors import ProviderSettings, is_stand_in
from flowengine.models.wrappers import find_user_price, price_of

LONGEST_ANSWER: Final = 4096
"""Tokens allowed to an answer where neither its author nor its vendor sets a bound."""


class WorstCase(NamedTuple):
    """A call that takes no more than this if the request is sent as it is here."""

    request: Request
    tokens: int
    """Tokens of question and answer."""
    cost_usd: float | None = None
    """None where the price of a model that may answer is unknown."""
    price: Price | None = None
    """The price at which that cost was reckoned."""
    unpriced: Sequence[str] = ()
    """Models that may answer and whose price is unknown, as `provider/name`."""
    cap: int | None = None
    """The bound on the answer that was set here; None where the request had one."""


def most_of(worst: WorstCase, calls: int) -> Unanswered:
    """So many calls at their worst case, for which no answer came."""
    if not calls:
        return Unanswered()
    return Unanswered(calls, worst.tokens * calls, None if worst.cost_usd is None else worst.cost_usd * calls)


def worst_cases(model: Model, request: Request) -> Iterator[WorstCase]:
    """The call as it stands; and where it has no bound on its answer, once more with a modest one.

    Of several models that may answer, the dearest counts: what refusals of others take is reserved once it is known.
    """
    models = [_AskedModel(each, request) for each in innermost_models(model)]
    own_bound = _own_bound(request)
    if own_bound is not None:
        yield _bound_call(models, request, own_bound, None)
        return
    longest = min(each.longest_answer() for each in models)
    for bound in dict.fromkeys((longest, min(longest, _modest_bound(request.extra)))):
        yield _bound_call(models, replace(request, max_tokens=bound), bound, bound)


def _bound_call(models: Sequence[_AskedModel], request: Request, answer: int, cap: int | None) -> WorstCase:
    question = max(each.question for each in models)
    prices = [each.price for each in models if each.price is not None]
    unpriced = [each.name for each in models if each.price is None]
    if unpriced:
        return WorstCase(request, question + answer, unpriced=unpriced, cap=cap)
    dearest = Price(*(max(rates) for rates in zip(*((p.input, p.output, p.per_call) for p in prices), strict=True)))
    return WorstCase(request, question + answer, dearest.of(question, answer), dearest, cap=cap)


class _AskedModel:
    """One model that may answer, and the size of the question in its eyes."""

    def __init__(self, model: Model, request: Request) -> None:
        self.name = f"{model.provider}/{model.name}"
        self._model = model
        self._request = request
        files = [each for message in request.messages for each in message.attachments]
        of_files = sum(most_file_tokens(each, model.provider, model.name) for each in files)
        self._counted = _count_question(request, model.name) + of_files
        widened = with_margin(self._counted - of_files, model.provider)
        self.question = min(widened, _count_bytes(request) + _MARGIN) + of_files
        """Its tokens, at most."""
        self.price = price_of(model, prompt_tokens=self.question, extra=request.extra)

    def longest_answer(self) -> int:
        own = definition_of(self._model)
        if own is not None and own.longest_answer is not None:
            return own.longest_answer
        table_limit = longest_answer(self._model.provider, self._model.name, prompt_tokens=self._counted)
        return _modest_bound(self._request.extra) if table_limit is None else table_limit


# --- The question

_PUBLIC: Final = frozenset({"openai", "azure"})
"""Vendors whose vocabularies are counted with."""
_PER_MESSAGE: Final = 6
_PER_REQUEST: Final = 16
_FOR_TOOLS: Final = 600
"""Tokens that vendors add to explain tools to a model."""
_MARGIN: Final = 64


def with_margin(counted: int, provider: str) -> int:
    """The most tokens that a vendor's models may make of so many counted here."""
    return counted if provider in _PUBLIC else counted * 3 // 2 + _MARGIN


def _texts_of(request: Request) -> Iterator[str]:
    for message in request.messages:
        yield message.content
        if message.tool_calls:
            yield json.dumps(as_dict(message)["tool_calls"], ensure_ascii=False)
    if request.tools:
        yield json.dumps(list(request.tools), ensure_ascii=False, default=to_plain)
    if request.response_schema is not None:
        yield json.dumps(request.response_schema, ensure_ascii=False, default=to_plain)


def _vendor_tokens(request: Request) -> int:
    return _PER_REQUEST + _PER_MESSAGE * len(request.messages) + (_FOR_TOOLS if request.tools else 0)


def _count_question(request: Request, model: str) -> int:
    return sum(count_tokens(text, model) for text in _texts_of(request)) + _vendor_tokens(request)


def _count_bytes(request: Request) -> int:
    """No vocabulary has pieces shorter than a byte."""
    return sum(len(text.encode(errors="replace")) for text in _texts_of(request)) + _vendor_tokens(request)


# --- The answer


def _own_bound(request: Request) -> int | None:
    """The bound that the request has; vendors have other names for it, too."""
    bounds = [request.max_tokens, *(request.extra.get(name) for name in ("max_completion_tokens", "max_output_tokens"))]
    return max((bound for bound in bounds if isinstance(bound, int)), default=None)


def _modest_bound(extra: Mapping[str, Any]) -> int:
    """A bound for an answer; thinking that is asked for comes on top of it."""
    thinking = extra.get("thinking")
    budget: Any = thinking.get("budget_tokens") if isinstance(thinking, Mapping) else None  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType] - an option of a vendor's
    return LONGEST_ANSWER + (budget if isinstance(budget, int) else 0)


# --- Models known by name alone


class KnownModel(NamedTuple):
    """A model, as far as it is known before it is asked."""

    provider: str
    name: str
    window: int | None
    """The longest question in tokens; None where no list says it."""
    longest: int | None
    """The longest answer; None where no list says it."""
    own_price: Price | None = None
    """The price that the user says."""
    because: str = ""
    """Why it is that provider's."""
    options: Mapping[str, Any] | None = None
    """Options of its calls, as `Request.extra` has them; None where they are not known."""
    definition: ModelDefinition | None = None
    """The project's definition of it, under a name of its own."""

    @property
    def takes_images(self) -> bool | None:
        """Whether it takes images; None where that is unknown."""
        if self.definition is not None and self.definition.images is not None:
            return self.definition.images
        return listed_vision(*listed_as(self.definition, self.provider, self.name))

    def __str__(self) -> str:
        return f"{self.provider}/{self.name}"

    def price(self, question: int) -> Price | None:
        """The price for a question of so many tokens; None where it is unknown."""
        if self.own_price is not None:
            return self.own_price.dearest()
        return listed_price(self.provider, self.name, prompt_tokens=question, extra=self.options)

    def answer(self, *, is_bounded: bool) -> int | None:
        """The longest answer; where none is listed and answers get a bound, that bound."""
        return _modest_bound(self.options or {}) if self.longest is None and is_bounded else self.longest

    def question(self, counted: int | None) -> int | None:
        """The most tokens of a question that has so many by our count; never more than the window."""
        widened = None if counted is None else with_margin(counted, self.provider)
        return min((each for each in (widened, self.window) if each is not None), default=None)


@dataclass(frozen=True)
class ModelFacts:
    """Models by the names that flows write, looked up in an environment; `prices` are the user's."""

    environ: Mapping[str, str] = field(default_factory=lambda: os.environ, repr=False)
    prices: Mapping[str, Price] = field(default_factory=dict[str, Price])
    default_provider: str | None = None
    """The project's, for names that no table knows."""
    models: Mapping[str, ModelDefinition] = field(default_factory=dict[str, ModelDefinition])
    """Names of the project's own."""
    providers: Mapping[str, ProviderSettings] = field(default_factory=dict[str, ProviderSettings])
    """The project's settings of vendors."""

    def adapter_of(self, model: KnownModel) -> str | None:
        """The adapter through which a model is asked, where the project says it."""
        settings = self.providers.get(model.provider)
        return (model.definition and model.definition.adapter) or (settings and settings.adapter) or None

    def of(self, model: str | None) -> KnownModel:
        """The model of a name, or the default one. `ModelConfigError` for a provider or a name that is unknown.

        >>> str(ModelFacts({}).of("gpt-4o-mini")), ModelFacts({}).of("offline").price(100)
        ('openai/gpt-4o-mini', Price(input=0.0, output=0.0, per_call=0.0))
        """
        reference = default_model(self.environ).name if model is None else model
        choice, own, _ = find_meaning(reference, self.models, self.environ, self.default_provider)
        provider, name = choice.provider, choice.name
        own_price = (own and own.price) or find_user_price(self.prices, reference, provider, name)
        if is_stand_in(provider):
            own_price = Price(0.0, 0.0)
        vendor_and_name = listed_as(own, provider, name)
        window, longest = context_window(*vendor_and_name), longest_answer(*vendor_and_name)
        if own is not None:
            window, longest = own.window or window, own.longest_answer or longest
        options = None if own is None else own.options
        return KnownModel(provider, name, window, longest, own_price, choice.because, options, own)
