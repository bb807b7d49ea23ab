"""The embedder of a retriever that several runs share: each asks through a door of its own, and pays for itself.

A retriever is made once, with a model's name. Which address and key that means, and where the call is recorded, is
known by whoever searches: it is said for the time of the search.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from functools import partial
from typing import Final

from flowengine.errors import PermanentModelError
from flowengine.llm.embedding import ModelEmbedder, check_embedding
from flowengine.llm.model import Model, Reply, Request
from flowengine.llm.named import PROCESS_MODELS, Models
from flowengine.records import Gateway
from flowengine.retrieval.retriever import Embedder

__all__ = ["NamedEmbedder"]


class NamedEmbedder:
    """A model's name, as an `Embedder`. Outside of `asked_by` it is one of the process's own environment."""

    def __init__(self, model: str) -> None:
        check_embedding(model)
        self.written = model
        self._asking: Final[ContextVar[Embedder | None]] = ContextVar("embedder", default=None)

    @property
    def name(self) -> str:
        return self._current().name

    async def embed(self, texts: Sequence[str]) -> Sequence[Sequence[float]]:
        return await self._current().embed(texts)

    @contextmanager
    def asked_by(self, models: Models, gateway: Gateway | None) -> Generator[None]:
        """Within the block, vectors are made by the model that `models` opens, asked through the gateway."""
        token = self._asking.set(self._opened(models, gateway))
        try:
            yield
        finally:
            self._asking.reset(token)

    def _current(self) -> Embedder:
        return self._asking.get() or self._opened(PROCESS_MODELS, None)

    def _opened(self, models: Models, gateway: Gateway | None) -> Embedder:
        model = models.embedding(self.written)
        if model is None:
            return _Nobody()
        return ModelEmbedder(model, None if gateway is None else partial(_through, gateway))


async def _through(gateway: Gateway, model: Model, request: Request) -> Reply:
    return await gateway.complete(model, request, purpose="embedding")


class _Nobody:
    """Where no model is asked at all."""

    name = "offline"

    async def embed(self, texts: Sequence[str]) -> Sequence[Sequence[float]]:
        raise PermanentModelError("the offline stand-in makes no embeddings")
