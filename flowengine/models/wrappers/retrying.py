"""Tries again what may work later (rate limits, timeouts, connections, 5xx), and falls back to other models.

How often and how long to wait is said here and carried out by tenacity; the failures themselves are
told apart by the model inside. The first attempt is made without tenacity, which costs more than this
whole column does: only what has failed once pays for it.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Generator, Iterable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
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

BEFORE_NEXT: Final[ContextVar[Callable[[Sequence[ModelError]], None] | None]] = ContextVar("BEFORE_NEXT", default=None)
"""Called with the failures so far, before another attempt is made in place of one that was, or may be, paid; what it
raises ends the call."""


def _allow_next(failed: Sequence[ModelError]) -> None:
    allow, latest = BEFORE_NEXT.get(), failed[-1]
    if allow is not None and (latest.reply is not None or latest.unanswered):
        allow(failed)


@contextmanager
def _after(earlier: Sequence[ModelError]) -> Generator[None]:
    """Within it, the failures of the models before count too where another attempt is allowed."""
    allow = BEFORE_NEXT.get()
    token = BEFORE_NEXT.set(None if allow is None else lambda failed: allow((*earlier, *failed)))
    try:
        yield
    finally:
        BEFORE_NEXT.reset(token)


def add_up_failures(failed: Sequence[ModelError]) -> tuple[Reply | None, int]:
    """Adds up what the failures took, and how many attempts may be billed of which no answer came."""
    *before, last = sorted(failed, key=lambda each: each.reply is not None)
    return last.reply and _add_failed(last.reply, before), sum(each.unanswered for each in failed)


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
        *others, last = models
        hurried = (each.in_hurry() if isinstance(each, RetryingModel) else each for each in others)
        self._models = (*hurried, last)

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
                model_request = replace(request, model=model.name)
                return await open_stream(stack, model, model_request, lambda reply: _finish_reply(reply, model, failed))

            yield await self._first(ask)

    async def _first(self, ask: Callable[[Model, Sequence[ModelError]], Awaitable[T]]) -> T:
        errors: list[ModelError] = []
        for model in self._models:
            if errors:
                _allow_next(errors)
            try:
                with _after(tuple(errors)):
                    return await ask(model, errors)
            except ModelError as error:
                errors.append(error)
        raise self._summary(errors) from errors[-1]

    def _summary(self, errors: Sequence[ModelError]) -> ModelError:
        if len(errors) == 1:
            return errors[0]
        message = "; ".join(_name_failure(each, str(error)) for each, error in zip(self._models, errors, strict=True))
        transient = any(isinstance(each, TransientModelError) for each in errors)
        error = (TransientModelError if transient else PermanentModelError)(
            f"all {len(errors)} models failed: {message}"
        )
        return _with_failed(error, errors)


def _name_failure(model: Model, failure: str) -> str:
    """A failure after the model's name, which most of them begin with."""
    name = f"{model.provider}/{model.name}: "
    return failure if failure.startswith(name) else f"{name}{failure}"


def _finish_reply(reply: Reply, model: Model, failed: Sequence[ModelError]) -> Reply:
    reply = reply._replace(model=reply.model or model.name, provider=reply.provider or model.provider)
    return _add_failed(reply, failed)._replace(attempts=reply.attempts + len(failed))


def _with_failed(error: ModelError, failed: Sequence[ModelError]) -> ModelError:
    """The error with what all of those took, or may have taken."""
    error.reply, error.unanswered = add_up_failures(failed)
    return error


def _add_failed(reply: Reply, failed: Iterable[ModelError]) -> Reply:
    """The reply with the tokens and the cost of those that were no answer, and the number of those that may be billed;
    a cost that is unknown makes the sum so."""
    failed = tuple(failed)
    unanswered = reply.unanswered.calls + sum(each.unanswered for each in failed)
    if unanswered:
        reply = reply._replace(unanswered=reply.unanswered._replace(calls=unanswered))
    refused = [cast(Reply, each.reply) for each in failed if each.reply is not None]
    if not refused:
        return reply
    costs = [each.cost_usd for each in (reply, *refused) if each.cost_usd is not None]
    usage = TokenUsage(*map(_add_known, zip(reply.usage, *(each.usage for each in refused), strict=True)))
    return reply._replace(usage=usage, cost_usd=sum(costs) if len(costs) > len(refused) else None)


def _add_known(counts: Iterable[int | None]) -> int | None:
    addends = [each for each in counts if each is not None]
    return sum(addends) if addends else None


class _Failures:
    """The failures of one call so far, and which of them count."""

    def __init__(self, patience: Callable[[TransientModelError], float]) -> None:
        """`patience`: seconds from the first failure on, for which one like this counts for nothing."""
        self._patience = patience
        self._since = perf_counter()
        self.all: list[TransientModelError] = []
        self.counted = 0
        self.late = 0

    def add(self, error: TransientModelError) -> None:
        self.all.append(error)
        self.counted += perf_counter() - self._since >= self._patience(error)
        self.late += error.is_timeout


_MOST_LATE: Final = 2
"""Attempts that came too late, the first one included: each may be billed, and another is likely to be late too."""


class RetryingModel(PassThroughModel):
    """Wraps a model: up to `max_retries` further attempts, with exponential backoff and full jitter.

    The n-th wait is random between 0 and `first_wait * 2 ** (n - 1)` seconds, after what the server asked for: of
    many callers that it sends away with the same word, not all come back in the same moment. A stream is opened
    anew only until its first piece has come. What did not answer in time is asked once more, whatever `max_retries` is.

    `brake`: where those who ask the same model wait together while its vendor refuses them; such a wait replaces this
    policy's own, and for some time such a refusal is none of the `max_retries`, unless another model can be asked.
    """

    def __init__(
        self,
        model: Model,
        max_retries: int = 3,
        *,
        first_wait: float = 1.0,
        longest_wait: float = 60.0,
        brake: VendorThrottle | None = None,
        is_patient: bool = True,
    ) -> None:
        super().__init__(model)
        self._brake = brake
        self._max_retries = max_retries
        self._first_wait = first_wait
        self._longest_wait = longest_wait
        self._is_patient = is_patient

    def around(self, change: Callable[[Model], Model]) -> RetryingModel:
        """The same policy round another model, made from the one inside."""
        return self._again(change(self._model), is_patient=self._is_patient)

    def in_hurry(self) -> RetryingModel:
        """The same, where another model can be asked: each refusal counts."""
        return self._again(self._model, is_patient=False)

    def _again(self, model: Model, *, is_patient: bool) -> RetryingModel:
        return RetryingModel(
            model,
            self._max_retries,
            first_wait=self._first_wait,
            longest_wait=self._longest_wait,
            brake=self._brake,
            is_patient=is_patient,
        )

    async def complete(self, request: Request) -> Reply:
        attempt = partial(self._model.complete, request)
        caller = object()
        try:
            return await self._attempt(attempt, caller)
        except TransientModelError as error:
            first = error
        reply, failed = await self._retry(attempt, first, caller)
        return _add_failed(reply, failed)._replace(attempts=reply.attempts + len(failed))

    @asynccontextmanager
    async def stream(self, request: Request) -> AsyncGenerator[AsyncIterator[str | Reply]]:
        def counted(reply: Reply) -> Reply:
            return _add_failed(reply, failed)._replace(attempts=reply.attempts + len(failed))

        async def ask() -> AsyncIterator[str | Reply]:
            return await open_stream(stack, self._model, request, counted)

        async with AsyncExitStack() as stack:
            failed: Sequence[ModelError] = ()
            caller = object()
            try:
                pieces = await self._attempt(ask, caller)
            except TransientModelError as error:
                pieces, failed = await self._retry(ask, error, caller)
            yield pieces

    async def _attempt(self, attempt: Callable[[], Awaitable[T]], caller: object) -> T:
        return (
            await _tell_attempt(attempt)
            if self._brake is None
            else await self._brake.through(partial(_tell_attempt, attempt), caller)
        )

    def _patience(self, error: TransientModelError) -> float:
        return 0.0 if self._brake is None or not self._is_patient else self._brake.patience(error)

    def _waits_at_brake(self, state: RetryCallState) -> bool:
        return self._brake is not None and self._brake.patience(_failure_of(state)) > 0

    async def _retry(
        self, attempt: Callable[[], Awaitable[T]], first: TransientModelError, caller: object
    ) -> tuple[T, Sequence[ModelError]]:
        """Repeats attempts after the failure `first`; returns the first success, and the failures before it."""
        import tenacity

        failures = _Failures(self._patience)
        failures.add(first)

        def choose_wait(state: RetryCallState) -> float:
            return 0 if self._waits_at_brake(state) else _seconds_asked(state) + jitter(state)

        def is_over(state: RetryCallState) -> bool:
            too_often = failures.counted > self._max_retries or failures.late >= _MOST_LATE
            return too_often or _seconds_asked(state) > LONGEST_WAIT

        async def sleep(seconds: float) -> None:
            if not seconds:
                return  # The brake has the wait, and tells of it.
            latest = failures.all[-1]
            with spent_on("rate_limit" if latest.is_rate_limit else "backoff", str(latest)):
                await anyio.sleep(seconds)

        jitter = tenacity.wait_random_exponential(multiplier=self._first_wait, max=self._longest_wait)
        attempts = tenacity.AsyncRetrying(
            retry=tenacity.retry_if_exception_type(TransientModelError),
            stop=is_over,
            wait=choose_wait,
            sleep=sleep,
            retry_error_callback=partial(_give_up, failures.all),
        )
        async for each in attempts:
            with each:
                if each.retry_state.attempt_number == 1:
                    raise first  # It was made before tenacity came, and counts.
                before = tuple(failures.all)
                _allow_next(before)
                try:
                    return await self._attempt(attempt, caller), before
                except TransientModelError as error:
                    failures.add(error)
                    raise
                except ModelError as error:
                    raise _with_failed(error, (*before, error)) from error.__cause__
        raise AssertionError("attempts end with an answer or a failure")


async def _tell_attempt(attempt: Callable[[], Awaitable[T]]) -> T:
    """Makes the attempt; a failed one becomes a step of its call."""
    start = perf_counter()
    try:
        return await attempt()
    except TransientModelError as error:
        add_step("attempt", start, str(error))
        raise


def _failure_of(state: RetryCallState) -> TransientModelError:
    """Returns why the latest attempt failed; tenacity asks only after repeatable ones."""
    failure = state.outcome and state.outcome.exception()
    assert isinstance(failure, TransientModelError)
    return failure


def _seconds_asked(state: RetryCallState) -> float:
    """Seconds that the server wants to be left alone."""
    return _failure_of(state).retry_after or 0.0


def _give_up(failed: Sequence[TransientModelError], state: RetryCallState) -> NoReturn:
    failure = _failure_of(state)
    pause = _seconds_asked(state)
    notes = [f"the server asks to wait {pause:,.0f} s, which is too long"] if pause > LONGEST_WAIT else []
    notes += [f"gave up after {len(failed)} attempts"] if len(failed) > 1 else []
    if not notes:
        raise failure
    error = TransientModelError(
        f"{failure} ({', '.join(notes)})", failure.retry_after, is_rate_limit=failure.is_rate_limit
    )
    error.status, error.is_timeout = failure.status, failure.is_timeout
    raise _with_failed(error, failed) from failure
