"""Asks for embeddings through litellm: texts in, vectors out."""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

from flowengine.errors import TransientModelError
from flowengine.models.litellm import loading as litellm_import
from flowengine.models.litellm.error_classes import as_model_error, secrets_of, tellable
from flowengine.models.litellm.loading import (
    LITELLM_LOOP,
    litellm_loaded,
    mute_background_logging,
    silence_warnings,
    wait_for_litellm,
)
from flowengine.models.litellm.reply import read_vectors
from flowengine.models.model import Model, Reply, Request
from flowengine.models.outbound import check_outbound
from flowengine.models.vendors import Vendor

__all__ = ["LiteLLMEmbedding", "make_embedding"]


class LiteLLMEmbedding:
    """One vendor's model. `prefix` and `settings` as for `LiteLLMModel`.

    litellm's client for OpenAI takes a 0 for its own 2 retries here, so that vendor is asked more often.
    """

    def __init__(
        self, name: str, provider: str, *, prefix: str | None = None, settings: Mapping[str, Any] | None = None
    ) -> None:
        self.name = name
        self.provider = provider
        self._full_name = f"{provider}/{name}"
        self._model = f"{prefix or provider}/{name}"
        self._settings = dict(settings or {})

    async def ready(self) -> None:
        """Load what a first call would wait for: one that is made from now on goes out at once."""
        await litellm_loaded()

    async def complete(self, request: Request) -> Reply:
        """A vector for each of the messages."""
        check_outbound(self._full_name, self._settings)
        silence_warnings()
        litellm = litellm_import.litellm_ready() or await LITELLM_LOOP.call(wait_for_litellm)
        texts = [each.content for each in request.messages]
        started = time.perf_counter()

        async def call() -> Any:
            mute_background_logging(litellm)
            return await litellm.aembedding(model=self._model, input=texts, max_retries=0, **self._settings)

        try:
            response = await LITELLM_LOOP.call(call, request.timeout)
        except TimeoutError as error:
            raise TransientModelError(f"{self._full_name} did not answer within {request.timeout:g} s") from error
        except Exception as error:  # foreign code
            secrets = secrets_of(self._settings)
            raise as_model_error(error, self.provider, self.name, secrets) from tellable(error, secrets)
        return read_vectors(response, self.provider, self.name, len(texts), time.perf_counter() - started)

    @asynccontextmanager
    async def stream(self, request: Request) -> AsyncGenerator[AsyncIterator[str | Reply]]:
        """Vectors come at once or not at all."""

        async def pieces() -> AsyncGenerator[str | Reply]:
            yield await self.complete(request)

        yield pieces()


def make_embedding(vendor: Vendor, name: str, settings: Mapping[str, Any]) -> Model:
    """The backend of every vendor that has no other."""
    return LiteLLMEmbedding(name, vendor.name, prefix=vendor.prefix.removesuffix("_chat"), settings=settings)
