"""A model that tries again what may work later: rate limits, timeouts, connections, 5xx.

When and how long is decided here; the failures themselves are told apart by the model inside.
"""

from __future__ import annotations

import random
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from typing import Final, TypeVar

import anyio

from flowengine.errors import TransientModelError
from flowengine.llm.model import Model, Reply, Request
from flowengine.llm.schema_support import supports_schema
from flowengine.llm.streaming import open_stream

__all__ = ["RetryingModel"]

T = TypeVar("T")

LONGEST_WAIT: Final = 300.0
"""Seconds. A server that asks for more has its wish granted by giving up at once."""


class RetryingModel:
    """Wraps a model: up to `max_retries` further attempts, with exponential backoff and full jitter.

    The n-th wait is random between 0 and `first_wait * 2 ** (n - 1)` seconds, and at least what
    the server asked for. A stream is opened anew only until its first piece has come.
    """

    def __init__(self, model: Model, max_retries: int = 3, *, first_wait: float = 1.0, longest_wait: float = 60.0):
        self._model = model
        self._max_retries = max_retries
        self._first_wait = first_wait
        self._longest_wait = longest_wait

    @property
    def name(self) -> str:
        return self._model.name

    @property
    def provider(self) -> str:
        return self._model.provider

    async def supports_schema(self) -> bool:
        return await supports_schema(self._model)

    def around(self, change: Callable[[Model], Model]) -> RetryingModel:
        """The same policy round another model, made from the one inside."""
        return RetryingModel(
            change(self._model), self._max_retries, first_wait=self._first_wait, longest_wait=self._longest_wait
        )

    async def complete(self, request: Request) -> Reply:
        reply, failed = await self._attempts(partial(self._model.complete, request))
        return reply._replace(attempts=reply.attempts + failed) if failed else reply

    @asynccontextmanager
    async def stream(self, request: Request) -> AsyncGenerator[AsyncIterator[str | Reply]]:
        def counted(reply: Reply) -> Reply:
            return reply._replace(attempts=reply.attempts + failed)

        async def ask() -> AsyncIterator[str | Reply]:
            return await open_stream(stack, self._model, request, counted)

        async with AsyncExitStack() as stack:
            pieces, failed = await self._attempts(ask)
            yield pieces

    async def _attempts(self, attempt: Callable[[], Awaitable[T]]) -> tuple[T, int]:
        """What the first attempt that works returns, and how many failed before it."""
        failed = 0
        while True:
            try:
                return await attempt(), failed
            except TransientModelError as error:
                failed += 1
                pause = self._pause(error, failed)
            await anyio.sleep(pause)

    def _pause(self, error: TransientModelError, failed: int) -> float:
        """Seconds until the next attempt; where none is left, the error that ends it is raised."""
        asked = error.retry_after or 0.0
        if failed <= self._max_retries and asked <= LONGEST_WAIT:
            highest = min(self._longest_wait, self._first_wait * 2 ** min(failed - 1, 64))
            return max(random.uniform(0, highest), asked)
        if failed == 1:
            raise error
        raise TransientModelError(f"{error} (gave up after {failed} attempts)", error.retry_after) from error
