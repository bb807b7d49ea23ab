"""Makes vectors of texts with models for embeddings.

A model for embeddings is a `Model` like any other, whose replies hold vectors instead of text. So it is limited,
priced, tried again and recorded as all models are. What vectors are for is not known here.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from typing import Any, Final, TypeAlias

from flowengine.errors import ModelConfigError
from flowengine.models.messages import Message, vectors_of
from flowengine.models.model import Model, Reply, Request
from flowengine.models.open import NO_EMBEDDINGS, get_embedding
from flowengine.models.vendor_choice import check_name
from flowengine.models.vendors import is_stand_in

Ask: TypeAlias = Callable[[Model, Request], Awaitable[Reply]]
"""Asks a model."""

_BATCH: Final = 64
"""Texts of one request."""
_LONGEST: Final = 20_000
"""Characters of a text that count; no model takes more than some thousand tokens."""
_TIMEOUT: Final = 60.0
"""Seconds that one request may take."""


def check_embedding(model: str) -> None:
    """Refuse a name that no model for embeddings can have, whatever the environment is."""
    check_name(model)
    if is_stand_in(model):
        raise ModelConfigError(NO_EMBEDDINGS)


def embedder(model: str, *, environ: Mapping[str, str] | None = None, **settings: Any) -> ModelEmbedder:
    """Returns an embedding function for a model name, for your own index."""
    return ModelEmbedder(get_embedding(model, environ=environ, **settings))


class ModelEmbedder:
    """Texts to vectors, as retrievers want it. `ask` is how the model is asked: by default, directly."""

    def __init__(self, model: Model, ask: Ask | None = None) -> None:
        self.name = f"{model.provider}/{model.name}"
        self._model = model
        self._ask: Ask = ask or _complete_directly

    async def embed(self, texts: Sequence[str]) -> list[list[float]]:
        """A vector a text, in their order."""
        vectors: list[list[float]] = []
        for request in _split_requests(self._model.name, texts):
            reply = await self._ask(self._model, request)
            vectors += vectors_of(reply.vectors)
        return vectors


async def _complete_directly(model: Model, request: Request) -> Reply:
    return await model.complete(request)


def _split_requests(model: str, texts: Sequence[str]) -> Iterator[Request]:
    for at in range(0, len(texts), _BATCH):
        # Some vendors refuse a text that is empty.
        batch = [text[:_LONGEST] if text.strip() else "." for text in texts[at : at + _BATCH]]
        messages = tuple(Message("user", text) for text in batch)
        yield Request(model, messages, max_tokens=0, timeout=_TIMEOUT, extra={"embedding": True})
