"""Tries again what may work later (rate limits, timeouts, connections, 5xx), and falls back to other models.

How often and how long to wait is said here and carried out by tenacity; the failures themselves are
told apart by the model inside. The first attempt is made without tenacity, which costs more than this
whole column does: only what has failed once pays for it.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from contextvars import ContextVar
from dataclasses import replace
from functools import partial
from time import perf_counter
from typing import TYPE_CHECKING, Final, NoReturn, TypeVar, cast

import anyio

from flowengine.errors import LONGEST_WAIT, ModelError, PermanentModelError, TransientModelError
from flowengine.models.call_timeline import add_step, spent_on
from flowengine.models.model import Model, PassThroughModel, Reply, Request, TokenUsage, supports_schema
from flowengine.models.throttle import VendorThrottle

if TYPE_CHECKING:
    from tenacity import RetryCallState

__all__ = ["BEFORE_NEXT", "FallbackModel", "RetryingModel"]

# --- Streams whose first piece has come


async def open_stream(
    stack: AsyncExitStack, model: Model, request: Request, finish: Callable[[Reply], Reply] = lambda reply: reply
) -> AsyncIterator[str | Reply]:
    """The model's stream, entered into `stack` once its first piece has come.

    Failures before that leave the stack as it was. `finish` has the last word on the reply.
    """
    async with AsyncExitStack() as opening:
        pieces = await opening.enter_async_context(model.stream(request))
        first = await anext(pieces)
        rest = _continue_stream(first, pieces, finish)
        opening.push_async_callback(rest.aclose)
        stack.push_async_exit(opening.pop_all())
    return rest


async def _continue_stream(
    first: str | Reply, pieces: AsyncIterator[str | Reply], finish: Callable[[Reply], Reply]
) -> AsyncGenerator[str | Reply]:
    yield finish(first) if isinstance(first, Reply) else first
    async for piece in pieces:
        yield finish(piece) if isinstance(piece, Reply) else piece


# --- Fallbacks

T = TypeVar("T")

BEFORE_NEXT: Final[ContextVar[Callable[[Reply], None] | None]] = ContextVar("BEFORE_NEXT", default=None)
"""Called with what the models before took, together, before another is asked in place of one that was paid; what it
raises ends the call."""


class FallbackModel:
    """Asks the next model when one fails for good, its own retries included.

    It has the name of the first; `Reply.model` and `Reply.provider` say which one answered, and
    `Reply.attempts` counts the models that failed before it as one attempt each. If all fail, the
    error tells of each; it is transient if any of theirs was. Refusals are on the bill: the reply, or the error, holds
    the tokens and the cost of those before it too.
    """

    def __init__(self, models: Sequence[Model]) -> None:
        if not models:
            raise ValueError("a FallbackModel needs at least one model")
        self._models = tuple(models)

    @property
    def name(self) -> str:
        return self._models[0].name

    @property
    def provider(self) -> str:
        return self._models[0].provider

    async def supports_schema(self) -> bool:
        """Tells whether all of them do."""
        for model in self._models:
            if not await supports_schema(model):
                return False
        return True

    def inside(self) -> Sequence[Model]:
        """Those that may answer, the first one first."""
        return self._models

    def around(self, change: Callable[[Model], Model]) -> FallbackModel:
        """Other models in the same order, each made from the one in its place."""
        return FallbackModel([change(each) for each in self._models])

    async def complete(self, request: Request) -> Reply:
        async def ask(model: Model, failed: Sequence[ModelError]) -> Reply:
            return _finish_reply(await model.complete(replace(request, model=model.name)), model, failed)

        return await self._first(ask)

    @asynccontextmanager
    async def stream(self, request: Request) -> AsyncGenerator[AsyncIterator[str | Reply]]:
        async with AsyncExitStack() as stack:

            async def ask(model: Model, failed: Sequence[ModelError]) -> AsyncIterator[str | Reply]:
                asked = replace(request, model=model.name)
                return await open_stream(stack, model, asked, lambda reply: _finish_reply(reply, model, failed))

            yield await self._first(ask)

    async def _first(self, ask: Callable[[Model, Sequence[ModelError]], Awaitable[T]]) -> T:
        errors: list[ModelError] = []
        for model in self._models:
            allow = BEFORE_NEXT.get()
            if allow is not None and errors and errors[-1].reply is not None:
                allow(_add_refused(errors[-1].reply, errors[:-1]))
            try:
                return await ask(model, errors)
            except ModelError as error:
                errors.append(error)
        raise self._summary(errors) from errors[-1]

    def _summary(self, errors: Sequence[ModelError]) -> ModelError:
        if len(errors) == 1:
            return errors[0]
        told = "; ".join(_name_failure(each, str(error)) for each, error in zip(self._models, errors, strict=True))
        transient = any(isinstance(each, TransientModelError) for each in errors)
        error = (TransientModelError if transient else PermanentModelError)(f"all {len(errors)} models failed: {told}")
        *before, last = sorted(errors, key=lambda each: each.reply is not None)
        error.reply = last.reply and _add_refused(last.reply, before)
        return error


def _name_failure(model: Model, failure: str) -> str:
    """A failure after the model's name, which most of them begin with."""
    name = f"{model.provider}/{model.name}: "
    return failure if failure.startswith(name) else f"{name}{failure}"


def _finish_reply(reply: Reply, model: Model, failed: Sequence[ModelError]) -> Reply:
    reply = reply._replace(model=reply.model or model.name, provider=reply.provider or model.provider)
    return _add_refused(reply, failed)._replace(attempts=reply.attempts + len(failed))


def _add_refused(reply: Reply, failed: Iterable[ModelError]) -> Reply:
    """The reply with the tokens and the cost of those that were no answer; a cost that is unknown makes the sum so."""
    refused = [cast(Reply, each.reply) for each in failed if each.reply is not None]
    if not refused:
        return reply
    costs = [each.cost_usd for each in (reply, *refused) if each.cost_usd is not None]
    usage = TokenUsage(*map(_add_known, zip(reply.usage, *(each.usage for each in refused), strict=True)))
    return reply._replace(usage=usage, cost_usd=sum(costs) if len(costs) > len(refused) else None)


def _add_known(counts: Iterable[int | None]) -> int | None:
    known = [each for each in counts if each is not None]
    return sum(known) if known else None


class RetryingModel(PassThroughModel):
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
        brake: VendorThrottle | None = None,
    ) -> None:
        super().__init__(model)
        self._brake = brake
        self._max_retries = max_retries
        self._first_wait = first_wait
        self._longest_wait = longest_wait

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
            return await self._attempt(attempt)
        except TransientModelError as error:
            first = error
        reply, failed = await self._retry(attempt, first)
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
                pieces = await self._attempt(ask)
            except TransientModelError as error:
                pieces, failed = await self._retry(ask, error)
            yield pieces

    async def _attempt(self, attempt: Callable[[], Awaitable[T]]) -> T:
        return (
            await _tell_attempt(attempt)
            if self._brake is None
            else await self._brake.through(partial(_tell_attempt, attempt))
        )

    def _waits_at_brake(self, state: RetryCallState) -> bool:
        return self._brake is not None and _failure_of(state).is_rate_limit

    async def _retry(self, attempt: Callable[[], Awaitable[T]], first: TransientModelError) -> tuple[T, int]:
        """Repeats attempts after the failure `first`; returns the first success, and the number of failures."""
        import tenacity

        latest = first

        def choose_wait(state: RetryCallState) -> float:
            nonlocal latest
            latest = _failure_of(state)
            return 0 if self._waits_at_brake(state) else _seconds_asked(state) + jitter(state)

        async def sleep(seconds: float) -> None:
            if not seconds:
                return  # The brake has the wait, and tells of it.
            with spent_on("rate_limit" if latest.is_rate_limit else "backoff", str(latest)):
                await anyio.sleep(seconds)

        jitter = tenacity.wait_random_exponential(multiplier=self._first_wait, max=self._longest_wait)
        attempts = tenacity.AsyncRetrying(
            retry=tenacity.retry_if_exception_type(TransientModelError),
            stop=lambda state: state.attempt_number > self._max_retries or _seconds_asked(state) > LONGEST_WAIT,
            wait=choose_wait,
            sleep=sleep,
            retry_error_callback=_give_up,
        )
        async for each in attempts:
            failed = each.retry_state.attempt_number - 1
            with each:
                if not failed:
                    raise first  # It was made before tenacity came, and counts.
                return await self._attempt(attempt), failed
        raise AssertionError("attempts end with an answer or a failure")


async def _tell_attempt(attempt: Callable[[], Awaitable[T]]) -> T:
    """Makes the attempt; a failed one becomes a step of its call."""
    begun = perf_counter()
    try:
        return await attempt()
    except TransientModelError as error:
        add_step("attempt", begun, str(error))
        raise


def _failure_of(state: RetryCallState) -> TransientModelError:
    """Returns why the latest attempt failed; tenacity asks only after repeatable ones."""
    failure = state.outcome and state.outcome.exception()
    assert isinstance(failure, TransientModelError)
    return failure


def _seconds_asked(state: RetryCallState) -> float:
    """Seconds that the server wants to be left alone."""
    return _failure_of(state).retry_after or 0.0


def _give_up(state: RetryCallState) -> NoReturn:
    failure, failed = _failure_of(state), state.attempt_number
    asked = _seconds_asked(state)
    told = [f"the server asks to wait {asked:,.0f} s, which is too long"] if asked > LONGEST_WAIT else []
    told += [f"gave up after {failed} attempts"] if failed > 1 else []
    if not told:
        raise failure
    raise TransientModelError(
        f"{failure} ({', '.join(told)})", failure.retry_after, is_rate_limit=failure.is_rate_limit
    ) from failure
