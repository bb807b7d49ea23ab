"""Reserves each call of a model in a ledger before it is made, and settles it after.

It knows when a call counts as paid, and nothing of who set the bounds. Retries inside of it are one call
with one reservation: vendors charge nothing for an attempt that they refused. So are fallbacks; where a model was paid
for a refusal, the reservation is widened by that before the next one is asked. An attempt that was sent and neither
answered nor refused may be on the bill: it counts as a call of its own that took the most that it could.
"""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Generator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from typing import Final, TypeAlias

import anyio

from flowengine.core import CALL, AwaitsAnswer, CallPlace, Ledger, Reservation, Spending, explain_unpriced
from flowengine.errors import DefinitionError, LimitError, ModelConfigError, ModelError
from flowengine.models.messages import as_dict
from flowengine.models.model import Model, PassThroughModel, Reply, Request, Unanswered, read_cost
from flowengine.models.tokens import count_tokens
from flowengine.models.worst_case import WorstCase, most_of, worst_cases
from flowengine.models.wrappers.retrying import BEFORE_NEXT, add_up_failures

# --- Spending of a reply

SENT_IN_VAIN: Final = Spending(model_calls=1)
"""A call that was refused for good: vendors charge nothing for these."""


def usage_of_reply(request: Request, reply: Reply) -> Spending:
    """Returns a call's usage.

    >>> from flowengine.models.model import TokenUsage as Counted
    >>> usage_of_reply(Request("m", ()), Reply("Green.", usage=Counted(40, 2), cost_usd=0.01))
    Spending(model_calls=1, tokens=42, cost_usd=0.01, unpriced_calls=0)
    """
    tokens, cost_usd = sum(tokens_of_reply(request, reply)), read_cost(reply.cost_usd)
    return _add_unanswered(Spending(1, tokens, cost_usd or 0.0, int(cost_usd is None)), reply.unanswered)


def _usage_of_failure(request: Request, error: ModelError | LimitError, unanswered: Unanswered) -> Spending:
    """Returns the usage of a call that failed, with what may be billed of it."""
    if error.reply is not None:
        return usage_of_reply(request, error.reply._replace(unanswered=unanswered))
    return _add_unanswered(Spending(), unanswered) if unanswered.calls else SENT_IN_VAIN


def _add_unanswered(usage: Spending, unanswered: Unanswered) -> Spending:
    if not unanswered.calls:
        return usage
    calls, tokens, cost_usd = unanswered
    unpriced = usage.unpriced_calls + (calls if cost_usd is None else 0)
    return Spending(usage.model_calls + calls, usage.tokens + tokens, usage.cost_usd + (cost_usd or 0.0), unpriced)


def tokens_of_reply(request: Request, reply: Reply) -> tuple[int, int]:
    """Tokens of the question and of the answer."""
    prompt, answer = reply.usage[:2]
    if prompt is not None:
        return prompt, answer or 0
    model = reply.model or request.model
    prompt_texts = [json.dumps(as_dict(message), ensure_ascii=False) for message in request.messages]
    answer_texts = [reply.content, *(each.arguments for each in reply.tool_calls)]
    return sum(count_tokens(each, model) for each in prompt_texts), sum(
        count_tokens(each, model) for each in answer_texts
    )


def _add_cost(reply: Reply, worst: WorstCase) -> Reply:
    if reply.cost_usd is not None or worst.price is None:
        return reply
    return reply._replace(cost_usd=worst.price.of(*tokens_of_reply(worst.request, reply)))


@contextmanager
def _widening(reservation: Reservation, worst: WorstCase) -> Generator[None]:
    """Within it, a model that is asked after others were paid has room beside what these took; else a `LimitError`,
    with what they took as its reply."""

    def widen(failed: Sequence[ModelError]) -> None:
        paid, unanswered = add_up_failures(failed)
        most = most_of(worst, unanswered)
        usage = _add_unanswered(Spending(), most)
        if paid is not None:
            usage = usage_of_reply(worst.request, _add_cost(paid, worst)._replace(unanswered=most))
        cost_usd = None if worst.cost_usd is None else worst.cost_usd + usage.cost_usd
        try:
            reservation.widen(tokens=worst.tokens + usage.tokens, cost_usd=cost_usd, model_calls=1 + unanswered)
        except LimitError as error:
            error.reply, error.unanswered = paid, unanswered
            raise

    token = BEFORE_NEXT.set(widen)
    try:
        yield
    finally:
        BEFORE_NEXT.reset(token)


Tell: TypeAlias = Callable[[str], Awaitable[None]]
"""Takes a remark for the readers of the trace; the same one may come again."""


class BoundedModel(PassThroughModel):
    """Wraps a model: a call that a limit does not allow is a `LimitError`, and is not made.

    Where tokens or cost are bounded, a request without `max_tokens` is sent with the bound that was
    reserved, so that no answer can take more.
    """

    def __init__(self, model: Model, ledger: Ledger, tell: Tell) -> None:
        super().__init__(model)
        self._ledger = ledger
        self._tell = tell

    async def complete(self, request: Request) -> Reply:
        if not self._ledger.is_bounded:
            return await self._count(request)
        worst = self._bound_call(request)
        async with self._reserve(worst) as reservation:
            with _widening(reservation, worst):
                reply = await self._model.complete(worst.request)
            return await self._settle(reservation, worst, reply)

    async def _count(self, request: Request) -> Reply:
        """The reply, where nothing is bounded and all is counted: there is nothing to wait for."""
        try:
            reply = await self._model.complete(request)
        except ModelError as error:
            self._ledger.charge(self._note_failure(WorstCase(request, 0), error))
            raise
        reply = self._note_unanswered(WorstCase(request, 0), reply)
        self._ledger.charge(usage_of_reply(request, reply))
        return reply

    def _note_failure(self, worst: WorstCase, error: ModelError | LimitError) -> Spending:
        """Returns the usage of a call that failed; what may be billed of it is told with the error."""
        unanswered = most_of(self._worst_again(worst, error.unanswered), error.unanswered)
        usage = _usage_of_failure(worst.request, error, unanswered)
        if unanswered.calls:
            error.reply = (error.reply or Reply(""))._replace(unanswered=unanswered)
        return usage

    def _note_unanswered(self, worst: WorstCase, reply: Reply) -> Reply:
        """The reply, with the most that may be billed beside it."""
        calls = reply.unanswered.calls
        return reply._replace(unanswered=most_of(self._worst_again(worst, calls), calls)) if calls else reply

    def _worst_again(self, worst: WorstCase, unanswered: int) -> WorstCase:
        """The worst case, reckoned now where it was not before: where nothing is bounded, only few calls need it."""
        return next(worst_cases(self._model, worst.request)) if unanswered and not worst.tokens else worst

    @asynccontextmanager
    async def stream(self, request: Request) -> AsyncGenerator[AsyncIterator[str | Reply]]:
        async def pieces() -> AsyncGenerator[str | Reply]:
            async for piece in stream:
                yield await self._settle(reservation, worst, piece) if isinstance(piece, Reply) else piece

        worst = self._bound_call(request)
        async with self._reserve(worst) as reservation, AsyncExitStack() as stack:
            with _widening(reservation, worst):
                stream = await stack.enter_async_context(self._model.stream(worst.request))
            yield pieces()

    def _bound_call(self, request: Request) -> WorstCase:
        """The most that the call can take; with a modest bound on its answer where only that can ever fit."""
        worst = WorstCase(request, 0, 0.0)  # Where calls are counted and nothing else.
        if not self._ledger.bounds_any("cost_usd", "tokens"):
            return worst
        for worst in worst_cases(self._model, request):
            if self._ledger.can_ever_fit(tokens=worst.tokens, cost_usd=worst.cost_usd):
                break
        return worst

    @asynccontextmanager
    async def _reserve(self, worst: WorstCase) -> AsyncGenerator[Reservation]:
        for name in worst.unpriced if self._ledger.bounds_any("cost_usd") else ():
            if self._ledger.needs_prices:
                raise ModelConfigError(_UNPRICED_REFUSED.format(name=name))
            self._ledger.note_unpriced(name)
            await self._tell(explain_unpriced(name))
        place = CALL.get()
        try:
            if place is None:
                reservation = await self._ledger.reserve(tokens=worst.tokens, cost_usd=worst.cost_usd)
            else:
                reservation = self._reserve_aside(place, worst)
        except LimitError as error:
            if worst.cap is not None and error.limit != "model_calls":  # Which shorter answers leave as it is.
                allowed = f"{worst.cap:,} tokens for its answer: set `max_tokens` to make that less"
                error.args = (f"{error} ({allowed})",)
            raise
        try:
            yield reservation
        except AwaitsAnswer:
            assert place is not None  # Only such a call is put aside.
            place.batcher.hold(place, reservation)
            reservation = None
            raise
        except (ModelError, LimitError) as error:
            error.reply = error.reply and _add_cost(error.reply, worst)
            reservation.settle(self._note_failure(worst, error))
            raise
        except DefinitionError:
            reservation.release()  # It was not sent.
            raise
        finally:
            # Cancelled, or failed in a way of its own: it may be on the bill, with an unknown amount.
            if reservation is not None:
                reservation.settle_in_full()

    def _reserve_aside(self, place: CallPlace, worst: WorstCase) -> Reservation:
        """Room for a call that may be put aside: what it holds since it was, else what is free now."""
        aside = place.batcher.find_reservation(place)
        if aside is not None:
            return aside.pay_from(self._ledger)
        reservation = None
        if place.batcher.may_reserve(place):
            reservation = self._ledger.reserve_now(tokens=worst.tokens, cost_usd=worst.cost_usd)
        return reservation if reservation is not None else place.batcher.wait_for_room(place)

    async def _settle(self, reservation: Reservation, worst: WorstCase, reply: Reply) -> Reply:
        """The reply, with its cost where the model gave none and the price is known."""
        reply = self._note_unanswered(worst, _add_cost(reply, worst))
        reservation.settle(usage_of_reply(worst.request, reply))
        if reply.finish_reason == "length" and worst.cap is not None:
            with anyio.CancelScope(shield=True):  # The reply is not on record yet.
                await self._tell(_CUT.format(cap=worst.cap))
        return reply


_UNPRICED_REFUSED: Final = (
    "the price of {name} is not known, so the budget of who started the run would not hold for it: "
    'say it in the project file: [tool.flowengine.prices."{name}"] with input and output, in USD per million tokens'
)
_CUT: Final = (
    "an answer was cut off after {cap:,} tokens: a limit needs a bound on what an answer may take, "
    "and the agent has no `max_tokens`"
)
