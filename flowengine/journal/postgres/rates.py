"""Limits calls to vendors for all that share a store on PostgreSQL: one line of calls, however many workers.

When a call's turn is, is decided on the server, by its clock; what comes back is how long to wait.
A slot of `max_parallel` is an advisory lock of this process's session: the server takes it back when the session
ends, however it ends. Where the server is away no call's turn comes: that is tried again for a while, and then the
run stops with an error that says so.

One thread owns the connection and all that is known of it. What need not be waited for (a slot given back, tokens
corrected) is said behind the caller's back, in the same order.
"""

from __future__ import annotations

import random
from collections.abc import AsyncGenerator, Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from threading import Lock
from time import monotonic
from typing import Any, Final, TypeVar

import anyio

from flowengine.core import event_of_this_loop
from flowengine.errors import JournalError, StoreUnavailableError
from flowengine.journal.postgres.connection import Connection, Database
from flowengine.journal.postgres.migrations import migrate
from flowengine.models import CallSlots, RateLimits
from flowengine.models.wrappers import Limiter, RateTurn

T = TypeVar("T")

_TAKE: Final = b"SELECT slot, entry, wait FROM flowengine.take_turn(%s, %s, %s, %s, %s, %s, %s)"
_CORRECT: Final = b"UPDATE flowengine.turn SET tokens = %s WHERE limiter = %s AND number = %s"
_WITHDRAW: Final = b"""
    UPDATE flowengine.turn SET at = least(at, extract(epoch FROM clock_timestamp())) WHERE limiter = %s AND number = %s
"""
"""Counts as a call that was made now: those that were made before may be forgotten for its sake."""
_GIVE_BACK: Final = b"SELECT pg_advisory_unlock(flowengine.slot_key(%s, %s))"
_HOLD_AGAIN: Final = b"SELECT pg_try_advisory_lock(flowengine.slot_key(%s, %s))"

_MINUTE: Final = 61.0
"""Seconds; one of them is for requests that take longer than others on their way to the vendor, who counts there."""
_FIRST_PAUSE, _LONGEST_PAUSE = 0.1, 2.0
"""Seconds between two tries while the server is away."""
_SOONEST, _LATEST = 0.02, 0.25
"""Seconds until it is seen again whether a slot is free; between these, a tenth of the time waited so far."""


class PostgresRates:
    """The limiters of one process. `limiter` is what a plan is built with (`flowengine.models.wrappers.rate.Limiters`).

    `patience`: seconds for which a server that is away is tried again. It connects when a limit is first met.
    """

    def __init__(self, url: str, *, minute: float = _MINUTE, patience: float = 20.0) -> None:
        self._url = url
        self._minute = minute
        self._patience = patience
        self._lock = Lock()
        self._limiters: dict[tuple[str, RateLimits], _SharedLimiter] = {}
        self._thread = ThreadPoolExecutor(1, "flowengine-rates")
        self._database: Database | None = None
        """The thread's, as are the slots that the limiters hold."""

    def limiter(self, provider: str, limits: RateLimits) -> Limiter:
        """The one limiter of a vendor and its limits."""
        with self._lock:
            limiter = self._limiters.get((provider, limits))
            if limiter is None:
                limiter = self._limiters[provider, limits] = _SharedLimiter(self, provider, limits, self._minute)
            return limiter

    def close(self) -> None:
        """Let go of the server, and with it of all slots."""
        self._thread.submit(self._let_go)
        self._thread.shutdown()

    async def do_work(self, work: Callable[[Connection], T]) -> T:
        """Runs work in the thread, and repeats it while the server is away."""
        end, pause = monotonic() + self._patience, _FIRST_PAUSE
        while True:
            try:
                return await self._once(work)
            except StoreUnavailableError as error:
                if monotonic() > end:
                    message = f"limits of models are kept in the store, so no model is asked without it: {error}"
                    raise StoreUnavailableError(message) from error
            await anyio.sleep(pause * random.uniform(0.5, 1.5))
            pause = min(2 * pause, _LONGEST_PAUSE)

    def soon(self, work: Callable[[Connection], object]) -> None:
        """Have it done behind what was asked for before; if the server is away by then, it is not."""
        with suppress(RuntimeError):  # Closed: the session has taken everything with it.
            self._thread.submit(self._run_quietly, work)

    async def _once(self, work: Callable[[Connection], T]) -> T:
        post, ended = event_of_this_loop()

        def tell(_: Future[T]) -> None:
            with suppress(RuntimeError):  # The waiting task was cancelled, and the loop has ended.
                post(ended.set)

        future = self._thread.submit(self._run, work)
        future.add_done_callback(tell)
        await ended.wait()
        return future.result()

    # --- in the thread

    def _run(self, work: Callable[[Connection], T]) -> T:
        if self._database is None:
            self._database = Database(self._url, "process", self._prepare, patience=0)
        try:
            return self._database.run(work)
        except BaseException:
            self._let_go()  # What the session holds by now is not known.
            raise

    def _run_quietly(self, work: Callable[[Connection], object]) -> None:
        with suppress(JournalError):
            self._run(work)

    def _let_go(self) -> None:
        database, self._database = self._database, None
        if database is not None:
            database.close()

    def _prepare(self, connection: Connection, name: str) -> None:
        """A new session takes the slots of the calls that are under way, unless others were faster."""
        migrate(connection, name)
        for limiter in list(self._limiters.values()):
            for slot in limiter.slots:
                connection.execute(_HOLD_AGAIN, (limiter.name, slot))


@dataclass(slots=True)
class _Place:
    """A call's place in the line; `took` when it is over."""

    limiter: _SharedLimiter
    tokens: int
    slot: int | None = None
    entry: int | None = None
    wait: float = 0.0

    def took(self, tokens: int) -> None:
        if self.limiter.limits.tokens_per_minute is not None and tokens != self.tokens:
            self.limiter.correct(self, tokens)


@dataclass(slots=True)
class _SharedLimiter:
    rates: PostgresRates
    provider: str
    limits: RateLimits
    minute: float
    name: str = field(init=False)
    """Under which all processes know it."""
    slots: set[int] = field(init=False, default_factory=set[int])
    """Slots of this process; the thread's."""
    _turnstile: CallSlots = field(init=False, default_factory=partial(CallSlots, 1))
    """One call of a process waits for a free slot, the others in their order behind it."""

    def __post_init__(self) -> None:
        requests, tokens, parallel = _values_of(self.limits)
        self.name = f"{self.provider} {requests or '-'} {tokens or '-'} {parallel or '-'}"

    @asynccontextmanager
    async def turn(self, tokens: int) -> AsyncGenerator[RateTurn | None]:
        place = _Place(self, tokens)
        try:
            try:
                await self._take_place(place)
                if place.wait > 0:
                    await anyio.sleep(place.wait)
            except BaseException:
                self.rates.soon(partial(self._withdraw, place))  # Behind the taking, if that is still under way.
                raise
            yield place
        finally:
            if self.limits.max_parallel is not None:
                self.rates.soon(partial(self._give_back, place))  # Behind the taking, if that is still under way.

    def correct(self, place: _Place, tokens: int) -> None:
        self.rates.soon(lambda connection: connection.execute(_CORRECT, (tokens, self.name, place.entry)))

    async def _take_place(self, place: _Place) -> None:
        take = partial(self._take, place)
        if self.limits.max_parallel is None:
            await self.rates.do_work(take)
            return
        since = monotonic()
        async with self._turnstile.take():
            while not await self.rates.do_work(take):
                pause = min(max(_SOONEST, (monotonic() - since) / 10), _LATEST)
                await anyio.sleep(pause * random.uniform(0.5, 1.5))

    # --- in the thread of the rates

    def _take(self, place: _Place, connection: Connection) -> bool:
        """Tells whether there was a free slot, where one is needed; then the place is reserved."""
        requests, tokens, parallel = _values_of(self.limits)
        values = (self.name, parallel, list(self.slots), requests, tokens, self.minute, place.tokens)
        ((slot, entry, wait),) = connection.execute(_TAKE, values).fetchall()
        if slot is None and parallel is not None:
            return False
        place.slot, place.entry, place.wait = slot, entry, wait or 0.0
        if slot is not None:
            self.slots.add(slot)
        return True

    def _withdraw(self, place: _Place, connection: Connection) -> None:
        if place.entry is not None:
            connection.execute(_WITHDRAW, (self.name, place.entry))

    def _give_back(self, place: _Place, connection: Connection) -> None:
        if place.slot is not None:
            self.slots.discard(place.slot)
            connection.execute(_GIVE_BACK, (self.name, place.slot))


def _values_of(limits: RateLimits) -> tuple[Any, Any, Any]:
    return limits.requests_per_minute, limits.tokens_per_minute, limits.max_parallel
