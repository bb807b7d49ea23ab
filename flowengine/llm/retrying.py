"""A model that tries again what may work later: rate limits, timeouts, connections, 5xx.

When and how long is decided here; the failures themselves are told apart by the model inside.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Callable, Coroutine
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any, Final, TypeVar

import anyio
from tenacity import AsyncRetrying, RetryCallState, retry_if_exception, stop_after_attempt, wait_random_exponential

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
        self._backoff = wait_random_exponential(multiplier=first_wait, max=longest_wait)

    @property
    def name(self) -> str:
        return self._model.name

    @property
    def provider(self) -> str:
        return self._model.provider

    async def supports_schema(self) -> bool:
        return await supports_schema(self._model)

    async def complete(self, request: Request) -> Reply:
        async def ask() -> Reply:
            return await self._model.complete(request)

        reply, failed = await self._attempts(ask)
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

    async def _attempts(self, attempt: Callable[[], Coroutine[Any, Any, T]]) -> tuple[T, int]:
        """What the first attempt that works returns, and how many failed before it.

        tenacity tells by the function itself whether to await it: it has to be an `async def`.
        """
        retrying = AsyncRetrying(
            sleep=anyio.sleep,
            stop=stop_after_attempt(self._max_retries + 1),
            wait=self._wait,
            retry=retry_if_exception(_may_work_later),
            reraise=True,
        )
        try:
            result: T = await retrying(attempt)
        except TransientModelError as error:
            attempts = retrying.statistics["attempt_number"]
            if attempts == 1:
                raise
            raise TransientModelError(f"{error} (gave up after {attempts} attempts)", error.retry_after) from error
        return result, retrying.statistics["attempt_number"] - 1

    def _wait(self, state: RetryCallState) -> float:
        error = state.outcome.exception() if state.outcome is not None else None
        asked = error.retry_after if isinstance(error, TransientModelError) else None
        return max(self._backoff(state), asked or 0.0)


def _may_work_later(error: BaseException) -> bool:
    return isinstance(error, TransientModelError) and (error.retry_after or 0.0) <= LONGEST_WAIT
