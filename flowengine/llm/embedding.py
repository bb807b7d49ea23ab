"""Embeddings of all vendors, through litellm: texts in, vectors out.

What vectors are for is not known here. Errors and the import are those of `litellm_model`'s neighbours.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any, Final

import anyio

from flowengine.errors import ModelConfigError, TransientModelError
from flowengine.llm import litellm_import
from flowengine.llm.detect import connection_to
from flowengine.llm.litellm_errors import as_model_error
from flowengine.llm.litellm_import import LITELLM_LOOP, mute_background_logging, silence_warnings, wait_for_litellm
from flowengine.llm.outbound import check_outbound

__all__ = ["LiteLLMEmbedder", "embedder"]

_BATCH: Final = 64
"""Texts of one request."""
_LONGEST: Final = 20_000
"""Characters of a text that count; no model takes more than some thousand tokens."""
_TIMEOUT: Final = 60.0
"""Seconds that one request may take."""


def embedder(model: str, *, environ: Mapping[str, str] | None = None, **settings: Any) -> LiteLLMEmbedder:
    """The embedder that a name means: `openai/text-embedding-3-small`, `ollama/nomic-embed-text`.

    The vendor, its key and its address are found as `get_llm` finds them.
    """
    vendor, name, found = connection_to(model, environ=environ, **settings)
    if vendor.name == "offline":
        raise ModelConfigError("the offline stand-in makes no embeddings: name a model that does, or leave it out")
    return LiteLLMEmbedder(name, vendor.name, prefix=vendor.prefix.removesuffix("_chat"), settings=found)


class LiteLLMEmbedder:
    """One vendor's model for embeddings. `prefix` and `settings` as for `LiteLLMModel`."""

    def __init__(
        self,
        name: str,
        provider: str,
        *,
        prefix: str | None = None,
        settings: Mapping[str, Any] | None = None,
        max_retries: int = 2,
        first_wait: float = 1.0,
    ) -> None:
        self.name = f"{provider}/{name}"
        self._model = f"{prefix or provider}/{name}"
        self._provider = provider
        self._settings = dict(settings or {})
        self._max_retries = max_retries
        self._first_wait = first_wait

    async def embed(self, texts: Sequence[str]) -> list[list[float]]:
        """A vector a text, in their order. What fails for the moment is tried again.

        litellm's client for OpenAI takes a 0 for its own 2 retries here, so that vendor is asked more often.
        """
        check_outbound(self.name, self._settings)
        vectors: list[list[float]] = []
        for at in range(0, len(texts), _BATCH):
            # Some vendors refuse a text that is empty.
            batch = [text[:_LONGEST] if text.strip() else "." for text in texts[at : at + _BATCH]]
            vectors += await self._with_retries(batch)
        return vectors

    async def _with_retries(self, batch: Sequence[str]) -> list[list[float]]:
        import tenacity

        attempts = tenacity.AsyncRetrying(
            retry=tenacity.retry_if_exception_type(TransientModelError),
            stop=tenacity.stop_after_attempt(self._max_retries + 1),
            wait=tenacity.wait_random_exponential(multiplier=self._first_wait, max=60),
            sleep=anyio.sleep,
            reraise=True,
        )
        return await attempts(self._embed, batch)

    async def _embed(self, batch: Sequence[str]) -> list[list[float]]:
        silence_warnings()
        litellm = litellm_import.litellm_ready() or await LITELLM_LOOP.call(wait_for_litellm)

        async def call() -> Any:
            mute_background_logging(litellm)
            async with asyncio.timeout(_TIMEOUT):
                return await litellm.aembedding(model=self._model, input=list(batch), max_retries=0, **self._settings)

        try:
            response = await LITELLM_LOOP.call(call)
        except TimeoutError as error:
            raise TransientModelError(f"{self.name} did not answer within {_TIMEOUT:g} s") from error
        except Exception as error:  # foreign code
            raise as_model_error(error, self._provider, self.name) from error
        ordered = sorted(response.data, key=lambda each: each["index"])
        if len(ordered) != len(batch):
            raise TransientModelError(f"{self.name} gave {len(ordered)} vectors for {len(batch)} texts")
        return [[float(number) for number in each["embedding"]] for each in ordered]
