"""Keeps what a run, or a part of it, spends within its budget: reserved before a call, settled after it.

The rules:

1. A call reserves the most that it can cost, in the ledger of its part and in all those above, up to the
   run's: in all of them, or in none. So what is spent and what is reserved never exceed a bound together.
2. Where that does not fit beside what others have reserved, it waits, since they may settle for less. On
   each ledger the first to ask is served first.
3. What was spent never falls. So a call that does not fit beside what was spent is refused at once.
4. A ledger that has refused a call lets no other call wait any more: what does not fit now is refused as well.
5. A call under way that turns out to take more (a model was paid and gave no answer, and another is asked) reserves
   that at once or is refused. It stays one call, and never waits: others may be waiting for what it holds.

Only numbers are known here; what a call can cost, and what it did cost, is for others to say. Money is
counted in whole 10⁻¹² dollars, so that sums are exact. One event loop, no task and no clock.
"""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal
from heapq import heappop, heappush
from itertools import count
from math import inf, isfinite
from typing import Final, Literal, NamedTuple, TypeAlias, get_args

import anyio

from flowengine.errors import LimitError

Limit: TypeAlias = Literal["cost_usd", "tokens", "model_calls"]

OnLimit: TypeAlias = Literal["fail", "pause", "partial"]
"""The fate of the part whose limit is reached; a ledger only hands it on."""


class Budget(NamedTuple):
    """The most that may be spent; None means no bound."""

    cost_usd: float | None = None
    tokens: int | None = None
    model_calls: int | None = None


class Spending(NamedTuple):
    """The usage of calls."""

    model_calls: int = 0
    tokens: int = 0
    """Tokens of prompts and answers together."""
    cost_usd: float = 0.0
    unpriced_calls: int = 0
    """Those of `model_calls` whose price is unknown; they are not in `cost_usd`."""


class Ledger:
    """The limits, spending and reservations of one part of a run.

    >>> run = Ledger(Budget(tokens=1000))
    >>> node = Ledger(Budget(model_calls=5), of="node 'review'", above=run)
    >>> async def call():
    ...     reservation = await node.reserve(tokens=400, cost_usd=None)
    ...     print(run.reserved.tokens)
    ...     reservation.settle(Spending(model_calls=1, tokens=150))
    >>> anyio.run(call)
    400
    >>> run.spent.tokens, run.reserved.tokens
    (150, 0)
    """

    def __init__(
        self,
        bounds: Budget,
        *,
        of: str = "the run",
        part: str = "",
        on_limit: OnLimit = "fail",
        above: Ledger | None = None,
        spent: Spending = Spending(),  # noqa: B008 - frozen
        deadline: float | None = None,
        needs_prices: bool = False,
    ) -> None:
        """`spent`: what this part has spent before, which the ledgers above count already. `needs_prices`: no model
        is asked whose price is not known."""
        self.bounds = bounds
        self.of = of
        """The part, as messages name it."""
        self.part = part
        """Its path; the run's is empty."""
        self.on_limit: OnLimit = on_limit
        self.above = above
        """The ledger of the part round this one."""
        self.needs_prices: bool = needs_prices or (above is not None and above.needs_prices)
        """Whether no model is asked whose price is not known, here or above."""
        self.deadline = deadline
        """When the part's time is up, by the event loop's clock; the runner of the part keeps it."""
        self._line: tuple[Ledger, ...] = (self,) if above is None else (self, *above._line)
        here: frozenset[Limit] = frozenset(limit for limit in _LIMITS if getattr(bounds, limit) is not None)
        self._bounded: frozenset[Limit] = here if above is None else here | above._bounded
        self._tickets: count[int] = count() if above is None else above._tickets
        self._most = _limits_of(bounds)
        self._spent = _amount_of(spent)
        self._reserved = _NOTHING
        self._unrecorded = 0
        self._waiting: list[tuple[int, _Waiter]] = []
        """A heap, the first to ask on top. A call waits in one of its ledgers: the first that holds it up."""
        self._has_refused = False
        self.unpriced_models: dict[str, bool] = {}
        """Models for whose calls the bound of money is not kept → whether that was told to a person."""

    @property
    def spent(self) -> Spending:
        """The settled and charged amount."""
        return _spending_of(self._spent)

    @property
    def reserved(self) -> Spending:
        """The most that the calls under way can take."""
        return _spending_of(self._reserved)

    @property
    def unrecorded_usd(self) -> float:
        """The part of `spent` for calls whose answers never came, each at the most that it could cost."""
        return self._unrecorded / _PICOS

    @property
    def has_refused(self) -> bool:
        """Whether a call was refused here, so that what is left to do may wait for a higher bound."""
        return self._has_refused

    @property
    def is_bounded(self) -> bool:
        """Whether anything is bounded, here or above."""
        return bool(self._bounded)

    def bounds_any(self, *limits: Limit) -> bool:
        """Tells whether one of these limits is bounded, here or above."""
        return not self._bounded.isdisjoint(limits)

    def note_unpriced(self, name: str) -> None:
        """A model is asked whose price is not known; told to every part whose money is bounded."""
        for ledger in self._line:
            if ledger.bounds.cost_usd is not None:
                ledger.unpriced_models.setdefault(name, False)

    def can_ever_fit(self, *, tokens: int, cost_usd: float | None) -> bool:
        """Tells whether a call that takes so much fits beside what was spent, here and above."""
        amount = _amount_of_call(tokens, cost_usd)
        return not any(_find_exceeded(ledger._most, ledger._spent, amount) for ledger in self._line)

    def charge(self, usage: Spending) -> None:
        """Charges an amount that was spent without a reservation (by earlier runs of this part), here and above."""
        self._enter(_NOTHING, _amount_of(usage))

    async def reserve(self, *, tokens: int, cost_usd: float | None) -> Reservation:
        """Reserve for one model call that takes at most so much; None is an unknown price, for which `cost_usd` is
        not kept. Waits while what others have reserved is in the way.

        `LimitError` where a bound does not allow the call.
        """
        waiter = _Waiter(next(self._tickets), self, _amount_of_call(tokens, cost_usd))
        self._decide(waiter)
        if waiter.answer is None:
            await self._wait(waiter)
        if isinstance(waiter.answer, Reservation):
            return waiter.answer
        assert waiter.answer is not None  # No waiter is woken without one.
        raise waiter.answer

    def reserve_now(self, *, tokens: int, cost_usd: float | None) -> Reservation | None:
        """Reserves as `reserve` does, but returns None where the call would have to wait."""
        waiter = _Waiter(next(self._tickets), self, _amount_of_call(tokens, cost_usd))
        self._decide(waiter)
        if isinstance(waiter.answer, LimitError):
            raise waiter.answer
        waiter.has_left = True
        return waiter.answer

    async def _wait(self, waiter: _Waiter) -> None:
        waiter.woken = anyio.Event()
        try:
            await waiter.woken.wait()
        except BaseException:
            if isinstance(waiter.answer, Reservation):
                waiter.answer.release()
            waiter.has_left = True
            for ledger in self._line:
                ledger._serve()  # The next ones may fit.
            raise

    def _decide(self, waiter: _Waiter) -> None:
        """Refuse, or put in a queue, or reserve in the whole line."""
        amount = waiter.amount
        for ledger in self._line:
            if (limit := ledger._refuses(amount)) is not None:
                waiter.tell(ledger._refusal(amount, limit))
                return
        for ledger in self._line:
            if ledger._holds_up(waiter):
                heappush(ledger._waiting, (waiter.ticket, waiter))
                return
        for ledger in self._line:
            ledger._reserved = _add(ledger._reserved, amount)
        waiter.tell(Reservation(self, amount))

    def _widen(self, more: _Amount) -> None:
        """Reserve for a call under way in the whole line, or refuse."""
        for ledger in self._line:
            limit = _find_exceeded(ledger._most, _add(ledger._spent, ledger._reserved), more)
            if limit is not None:
                raise ledger._refusal(more, limit)
        for ledger in self._line:
            ledger._reserved = _add(ledger._reserved, more)

    def _refuses(self, amount: _Amount) -> Limit | None:
        """The bound for which a call is refused here; None where it fits, or may fit later."""
        used = _add(self._spent, self._reserved) if self._has_refused else self._spent
        return _find_exceeded(self._most, used, amount)

    def _holds_up(self, waiter: _Waiter) -> bool:
        """Tells whether a call has to wait here: it does not fit yet, or somebody else asked before."""
        while self._waiting and self._waiting[0][1].has_left:
            heappop(self._waiting)
        if self._waiting and self._waiting[0][0] < waiter.ticket:
            return True
        return _find_exceeded(self._most, _add(self._spent, self._reserved), waiter.amount) is not None

    def _refusal(self, amount: _Amount, limit: Limit) -> LimitError:
        if not self._has_refused:
            self._has_refused = True
            self._serve()
        spent = _format_amount(limit, getattr(self.spent, limit))
        message = f"{self.of} has a limit of {_format_amount(limit, getattr(self.bounds, limit))}: "
        if limit == "model_calls":
            message += f"{spent} made, and there is one more to make"
        else:
            could_take = _format_amount(limit, getattr(_spending_of(amount), limit))
            message += f"{spent} spent, and the next call could take {could_take}"
        needed = getattr(_spending_of(_add(_add(self._spent, self._reserved), amount)), limit)
        return LimitError(
            message, part=self.part, on_limit=self.on_limit, of=self.of, limit=limit, needed=needed, ledger=self
        )

    def _enter(self, reserved: _Amount, paid: _Amount) -> None:
        """Take off what was reserved, add what was paid, and serve the calls that waited for that."""
        for ledger in self._line:  # For every call of a model, most of which have nothing reserved.
            if reserved is not _NOTHING:
                ledger._reserved = _subtract(ledger._reserved, reserved)
            if paid is not _NOTHING:
                ledger._spent = _add(ledger._spent, paid)
        for ledger in self._line:
            if ledger._waiting:
                ledger._serve()

    def _note_unrecorded(self, paid: _Amount) -> None:
        for ledger in self._line:
            ledger._unrecorded += paid.picos

    def _serve(self) -> None:
        """Decide anew about those who wait here, in their order, until one has to go on waiting here."""
        while self._waiting:
            ticket, waiter = heappop(self._waiting)
            if not waiter.has_left:
                waiter.ledger._decide(waiter)
                if self._waiting and self._waiting[0][0] == ticket:
                    return


class Reservation:
    """Room for one call: settled or released once; whatever comes after that changes nothing."""

    __slots__ = ("_amount", "_is_open", "_ledger", "_payer")

    def __init__(self, ledger: Ledger, amount: _Amount) -> None:
        self._ledger = ledger
        self._amount = amount
        self._is_open = True
        self._payer: Ledger | None = None

    def pay_from(self, ledger: Ledger) -> Reservation:
        """Have another ledger, and those above it, pay: the part that reserved was put aside, and has a new one."""
        self._payer = ledger
        return self

    def widen(self, *, tokens: int, cost_usd: float | None, model_calls: int = 1) -> None:
        """Reserve so much in all for the call, of which it holds a part; `LimitError` where the rest does not fit."""
        whole = _amount_of_call(tokens, cost_usd)._replace(calls=model_calls)
        more = _Amount(*(max(0, total - part) for total, part in zip(whole, self._amount, strict=True)))
        if self._is_open and more != _NOTHING:
            self._ledger._widen(more)  # pyright: ignore[reportPrivateUsage]
            self._amount = _add(self._amount, more)

    def settle(self, usage: Spending) -> None:
        """The call is over, and this is what it took."""
        self._end(_amount_of(usage))

    def settle_in_full(self) -> None:
        """The call was sent, and what it took will not be known: it counts as the most that it could."""
        if self._is_open:
            payer = self._ledger if self._payer is None else self._payer
            payer._note_unrecorded(self._amount)  # pyright: ignore[reportPrivateUsage]
        self._end(self._amount)

    def release(self) -> None:
        """The call was never paid."""
        self._end(_NOTHING)

    def _end(self, paid: _Amount) -> None:
        if not self._is_open:
            return
        self._is_open = False
        if self._payer is not None:  # First, so that what is freed is not given away in between.
            self._payer._enter(_NOTHING, paid)  # pyright: ignore[reportPrivateUsage]
            paid = _NOTHING
        self._ledger._enter(self._amount, paid)  # pyright: ignore[reportPrivateUsage]


def explain_unpriced(name: str) -> str:
    """Says what it means that the price of a model is not known, and where it is said."""
    table = f'[tool.flowengine.prices."{name}"]'
    return (
        f"the price of {name} is not known, so `cost_usd` is not kept for its calls; "
        f"say it in the project file: {table} with input and output, in USD per million tokens"
    )


# --- Amounts as whole numbers


class _Amount(NamedTuple):
    """A `Spending` in whole numbers, the bounded ones first in the order of `_LIMITS`."""

    picos: int
    tokens: int
    calls: int
    unpriced: int


_LIMITS: Final[tuple[Limit, ...]] = get_args(Limit)
_PICOS: Final = 1_000_000_000_000
"""In a dollar."""
_EXACT: Final = 2.0**53
"""Dollars from which on each number is a whole one."""
_NOTHING: Final = _Amount(0, 0, 0, 0)


@dataclass(slots=True)
class _Waiter:
    """A call that asks."""

    ticket: int
    ledger: Ledger
    amount: _Amount
    answer: Reservation | LimitError | None = None
    has_left: bool = False
    """Nothing is to be decided any more."""
    woken: anyio.Event | None = None

    def tell(self, answer: Reservation | LimitError) -> None:
        self.answer = answer
        self.has_left = True
        if self.woken is not None:
            self.woken.set()


def _to_picos(dollars: float) -> int:
    if not (isfinite(dollars) and dollars >= 0):
        raise ValueError(f"an amount of money is a number of at least 0, not {dollars!r}")
    return round(dollars * _PICOS) if dollars < _EXACT else int(dollars) * _PICOS


def _limits_of(bounds: Budget) -> tuple[int | None, ...]:
    """In the order of `_LIMITS`; no sum of money reaches an infinite one."""
    cost = None if bounds.cost_usd in (None, inf) else _to_picos(bounds.cost_usd)
    return cost, bounds.tokens, bounds.model_calls


def _amount_of_call(tokens: int, cost_usd: float | None) -> _Amount:
    return _amount_of(Spending(1, tokens, cost_usd or 0.0, int(cost_usd is None)))


def _amount_of(usage: Spending) -> _Amount:
    return _Amount(_to_picos(usage.cost_usd), usage.tokens, usage.model_calls, usage.unpriced_calls)


def _spending_of(amount: _Amount) -> Spending:
    return Spending(amount.calls, amount.tokens, amount.picos / _PICOS, amount.unpriced)


def _add(one: _Amount, other: _Amount) -> _Amount:
    return _Amount(one[0] + other[0], one[1] + other[1], one[2] + other[2], one[3] + other[3])


def _subtract(one: _Amount, other: _Amount) -> _Amount:
    return _Amount(one[0] - other[0], one[1] - other[1], one[2] - other[2], one[3] - other[3])


def _find_exceeded(most: tuple[int | None, ...], used: _Amount, amount: _Amount) -> Limit | None:
    """The first bound beyond which a call would lead; of one without a price it is unknown whether that is money's."""
    for limit, bound, before, more in zip(_LIMITS, most, used, amount, strict=False):
        if bound is not None and before + more > bound and not (amount.unpriced and limit == "cost_usd"):
            return limit
    return None


def _format_amount(limit: Limit, value: float) -> str:
    """An amount as messages have it.

    >>> _format_amount("cost_usd", 0.25), _format_amount("tokens", 12000), _format_amount("model_calls", 1)
    ('0.25 USD', '12,000 tokens', '1 model call')
    >>> _format_amount("cost_usd", 4.065e-05)
    '0.00004065 USD'
    """
    if limit == "cost_usd":
        return f"{Decimal(f'{value:.6g}'):f} USD"
    unit = limit.replace("_", " ")
    return f"{value:,} {unit.removesuffix('s') if value == 1 else unit}"
