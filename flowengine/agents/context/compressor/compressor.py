"""Makes all that was gathered before fit: mechanically, and with a summary where a model is given.

It asks the model and keeps its last summary. What gives way, and in which order, is decided in `compression`.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace
from hashlib import sha256
from typing import Any, ClassVar, Final, NamedTuple

import anyio
from anyio import to_thread

from flowengine.agents.context.compressor.compression import Compression
from flowengine.agents.context.compressor.extraction import summary_of, summary_request
from flowengine.agents.context.provider import ContextProvider, ParameterError
from flowengine.agents.retrieval import subject_terms
from flowengine.core import Fragment, Gateway, Messages, check_arguments, load_messages
from flowengine.models import (
    DECIDING,
    PROCESS_MODELS,
    Model,
    Models,
    check_name,
    count_tokens,
    default_options,
    shorten_text,
)

_SUMMARY_SHARE: Final = 0.3
"""The share of the room that a summary may have."""
_MAX_MATERIAL: Final = 60_000
"""Tokens that a model is asked to sum up at once."""
_PATIENCE: Final = 60.0
"""Seconds that a summary may take."""

_logger: Final = logging.getLogger(__name__)


class _KeptSummary(NamedTuple):
    """A summary, and what it stands for."""

    covered: tuple[str, ...] = ()
    """Hashes of the units, in their order."""
    text: str = ""


class ContextCompressorProvider(ContextProvider):
    """Keeps the context within a number of tokens; the beginning and the newest stay as they are for longest.

    Paths of files, errors and ids survive word for word, and a tool's call stays with its result. Where the model
    fails, the context is shortened without it. A summary is remembered: what it covers is not summed up again.
    """

    provider_name: ClassVar[str] = "compressor"
    transforms: ClassVar[bool] = True
    config_description: ClassVar[str] = "Makes all that was gathered before fit into a number of tokens"
    config_parameters: ClassVar[Mapping[str, str]] = {
        "max_tokens": "Tokens up to which nothing is changed",
        "compression_ratio": "The share that is kept once there are more, and never more than max_tokens",
        "model": "A model that sums up what would otherwise be cut",
        "locale": "Language of summaries and marks: en, ja or zh; by default the agent's",
    }
    config_example: ClassVar[str] = "- compressor: {max_tokens: 8000, compression_ratio: 0.7}"

    def __init__(
        self,
        max_tokens: int = 8000,
        compression_ratio: float = 0.7,
        model: str | Model | None = None,
        locale: str | None = None,
    ) -> None:
        """`locale`: of the texts that stand for what is left out; None: the agent's."""
        check_arguments(ContextCompressorProvider.__init__, locals(), ParameterError)
        if max_tokens < 1:
            raise ParameterError(f"max_tokens must be at least 1, not {max_tokens}", "max_tokens")
        if not 0 < compression_ratio <= 1:
            near = f"; did you mean {compression_ratio / 100:g}?" if 1 < compression_ratio <= 100 else ""
            raise ParameterError(
                f"compression_ratio must be above 0.0 and at most 1.0, not {compression_ratio!r}{near}",
                "compression_ratio",
            )
        self.max_tokens = max_tokens
        self.compression_ratio = compression_ratio
        self.locale = locale
        self.timeout = 30.0 if model is None else 30.0 + _PATIENCE
        self._model = model
        if isinstance(model, str):
            check_name(model)
        self._remembered = _KeptSummary()
        if locale is not None:
            load_messages(locale)

    async def fragments(self, query: str, previous: Sequence[Fragment], **kwargs: Any) -> Sequence[Fragment]:
        words = load_messages(self.locale or kwargs.get("locale", "en"))
        work = await to_thread.run_sync(self._begin, query, previous, words)
        if work is None:
            return previous
        if self._model is not None and not work.is_enough:
            model = self._open_model(self._model, kwargs.get("models", PROCESS_MODELS))
            await self._summarise(work, model, query, words, kwargs.get("gateway"))
        await to_thread.run_sync(work.cut)
        return await to_thread.run_sync(work.fragments)

    def prepare_models(self, models: Models) -> None:
        if self._model is not None:
            self._open_model(self._model, models)

    def fresh(self) -> ContextCompressorProvider:
        return ContextCompressorProvider(self.max_tokens, self.compression_ratio, self._model, self.locale)

    def clear(self) -> None:
        self._remembered = _KeptSummary()

    def dump(self) -> Any:
        covered, text = self._remembered
        return {"covered": list(covered), "text": text} if text else None

    def load(self, value: Any) -> None:
        self._remembered = _KeptSummary(tuple(value["covered"]), value["text"])

    def _open_model(self, model: str | Model, models: Models) -> Model:
        return models.model(model) if isinstance(model, str) else model

    def _begin(self, query: str, previous: Sequence[Fragment], words: Messages) -> Compression | None:
        """The work after its gentle stages; None where there is nothing to do."""
        tokens = sum(count_tokens(each.text) + 1 for each in previous)
        if tokens <= self.max_tokens:
            return None
        room = min(self.max_tokens, int(tokens * self.compression_ratio))
        work = Compression(previous, room, subject_terms(query), words, count_tokens)
        work.mask()
        work.extract()
        return work

    async def _summarise(
        self, work: Compression, model: Model, query: str, words: Messages, gateway: Gateway | None
    ) -> None:
        """Put a summary in the middle's place: the one that is remembered where it still does, else a new one."""
        middle = tuple(_hash(each) for each in work.middle)
        covered, summary = self._remembered
        number = len(covered) if covered and middle[: len(covered)] == covered else 0
        if number:
            work.summarise(summary, number)
        if not middle or work.is_enough:
            return
        room = max(int(work.room * _SUMMARY_SHARE), 50)
        material = shorten_text(work.material(number), _MAX_MATERIAL, count_tokens)
        if not material:
            return
        base_request = summary_request(words, model.name, query, material, room, previous=summary if number else "")
        options = default_options(model)
        temperature = None if DECIDING & options.keys() else base_request.temperature
        request = replace(base_request, temperature=temperature, extra=options)
        try:
            with anyio.fail_after(_PATIENCE):
                complete = (
                    model.complete(request) if gateway is None else gateway.complete(model, request, purpose="summary")
                )
                text = summary_of(words, (await complete).content)
        except Exception as error:  # A model's failure is no reason to send too much, and none to send nothing.
            _logger.warning("the context is shortened without a summary: %s: %s", type(error).__name__, error)
            return
        self._remembered = _KeptSummary(middle, shorten_text(text, room, count_tokens))
        work.summarise(self._remembered.text, len(middle))


def _hash(text: str) -> str:
    return sha256(text.encode(errors="replace")).hexdigest()[:16]
