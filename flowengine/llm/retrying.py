"""A model that tries again what may work later: rate limits, timeouts, connections, 5xx.

How often and how long to wait is said here and carried out by tenacity; the failures themselves are
told apart by the model inside. The first attempt is made without tenacity, which costs more than this
whole column does: only what has failed once pays for it.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING, Final, NoReturn, TypeVar

import anyio

from flowengine.errors import TransientModelError
from flowengine.llm.brake import Brake
from flowengine.llm.model import Model, Reply, Request
from flowengine.llm.schema_support import supports_schema
from flowengine.llm.streaming import open_stream

if TYPE_CHECKING:
    from tenacity import RetryCallState

__all__ = ["RetryingModel"]

T = TypeVar("T")

LONGEST_WAIT: Final = 300.0
"""Seconds. A server that asks for more has its wish granted by giving up at once."""


class RetryingModel:
    """Wraps a model: up to `max_retries` further attempts, with exponential backoff and full jitter.

    The n-th wait is random between 0 and `first_wait * 2 ** (n - 1)` seconds, after what the server asked for: of
    many callers that it sends away with the same word, not all come back in the same moment. A stream is opened
    anew only until its first piece has come.

    `brake`: where those who ask the same vendor wait together after a 429; such a wait replaces this policy's own.
    """

    def __init__(
        self,
        model: Model,
        max_retries: int = 3,
        *,
        first_wait: float = 1.0,
        longest_wait: float = 60.0,
        brake: Brake | None = None,
    ) -> None:
        self._model = model
        self._brake = brake
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

    def inside(self) -> Sequence[Model]:
        """The model that is asked, once or more often."""
        return (self._model,)

    def around(self, change: Callable[[Model], Model]) -> RetryingModel:
        """The same policy round another model, made from the one inside."""
        return RetryingModel(
            change(self._model),
            self._max_retries,
            first_wait=self._first_wait,
            longest_wait=self._longest_wait,
            brake=self._brake,
        )

    async def complete(self, request: Request) -> Reply:
        attempt = partial(self._model.complete, request)
        try:
            return await self._attempted(attempt)
        except TransientModelError as error:
            first = error
        reply, failed = await self._further(attempt, first)
        return reply._replace(attempts=reply.attempts + failed)

    @asynccontextmanager
    async def stream(self, request: Request) -> AsyncGenerator[AsyncIterator[str | Reply]]:
        def counted(reply: Reply) -> Reply:
            return reply._replace(attempts=reply.attempts + failed)

        async def ask() -> AsyncIterator[str | Reply]:
            return await open_stream(stack, self._model, request, counted)

        async with AsyncExitStack() as stack:
            failed = 0
            try:
                pieces = await self._attempted(ask)
            except TransientModelError as error:
                pieces, failed = await self._further(ask, error)
            yield pieces

    async def _attempted(self, attempt: Callable[[], Awaitable[T]]) -> T:
        return await attempt() if self._brake is None else await self._brake.through(attempt)

    def _waits_at_brake(self, state: RetryCallState) -> bool:
        return self._brake is not None and _failure(state).is_rate_limit

    async def _further(self, attempt: Callable[[], Awaitable[T]], first: TransientModelError) -> tuple[T, int]:
        """What the first attempt that works returns, after `first` was the failure of one, and how many failed."""
        import tenacity

        jitter = tenacity.wait_random_exponential(multiplier=self._first_wait, max=self._longest_wait)
        attempts = tenacity.AsyncRetrying(
            retry=tenacity.retry_if_exception_type(TransientModelError),
            stop=lambda state: state.attempt_number > self._max_retries or _asked(state) > LONGEST_WAIT,
            wait=lambda state: 0 if self._waits_at_brake(state) else _asked(state) + jitter(state),
            sleep=anyio.sleep,
            retry_error_callback=_give_up,
        )
        async for each in attempts:
            failed = each.retry_state.attempt_number - 1
            with each:
                if not failed:
                    raise first  # It was made before tenacity came, and counts.
                return await self._attempted(attempt), failed
        raise AssertionError("attempts end with an answer or a failure")


def _failure(state: RetryCallState) -> TransientModelError:
    """Why the latest attempt failed; tenacity asks after attempts that may be repeated only."""
    failure = state.outcome and state.outcome.exception()
    assert isinstance(failure, TransientModelError)
    return failure


def _asked(state: RetryCallState) -> float:
    """Seconds that the server wants to be left alone."""
    return _failure(state).retry_after or 0.0


def _give_up(state: RetryCallState) -> NoReturn:
    failure, failed = _failure(state), state.attempt_number
    if failed == 1:
        raise failure
    raise TransientModelError(
        f"{failure} (gave up after {failed} attempts)", failure.retry_after, is_rate_limit=failure.is_rate_limit
    ) from failure
