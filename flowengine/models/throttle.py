"""Makes the callers of a model that its vendor refuses (429, overload, an outage) wait together, and lets them go by
degrees.

    open       every call goes out at once
    unsure     from the first refusal on: calls queue up, and the first of them waits until the time has come and is
               made alone. With each answer one more may be under way at once; with each refusal half as many, after a
               wait that is twice as long each time. The brake is open again once very many are under way.

A caller that waits here spends none of its retries, and for some time its refusals cost it none (`patience`). No wait
is longer than `longest`: after that a call goes out whatever the others do. One that fails with a status of 5xx is an
outage if others fail too. It holds for all threads and event loops of a process; it knows no vendor and no request.
"""

from __future__ import annotations

import random
import threading
from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable, Hashable
from contextlib import asynccontextmanager
from math import inf
from time import monotonic
from typing import Final, TypeVar

import anyio

from flowengine.core import Post, post_to_this_loop
from flowengine.errors import ModelError, TransientModelError
from flowengine.models.call_timeline import spent_on

# --- Call slots shared across threads and event loops


class _Waiter:
    def __init__(self) -> None:
        self.post: Post = post_to_this_loop()
        self.ready = anyio.Event()


class CallSlots:
    """`async with slots.take():` holds one of `count` slots, which may become more or fewer (`resize`)."""

    def __init__(self, count: float) -> None:
        if count < 1:
            raise ValueError(f"at least 1 has to be allowed at once, not {count}")
        self._lock = threading.Lock()
        self._count = count
        self._in_use = 0
        self._waiting: deque[_Waiter] = deque()

    @property
    def count(self) -> float:
        return self._count

    def resize(self, count: float) -> None:
        """Have so many slots from now on. Those that are held beyond that stay so until they are given back."""
        with self._lock:
            self._count = count
            self._let_in()

    @asynccontextmanager
    async def take(self) -> AsyncGenerator[None]:
        await self.acquire()
        try:
            yield
        finally:
            self.give_back()

    async def acquire(self) -> None:
        """Take a slot, which is to be given back."""
        with self._lock:
            if self._in_use < self._count and not self._waiting:
                self._in_use += 1
                return
            waiter = _Waiter()
            self._waiting.append(waiter)
        try:
            await waiter.ready.wait()
        except BaseException:
            self._withdraw(waiter)
            raise

    def give_back(self) -> None:
        with self._lock:
            self._in_use -= 1
            self._let_in()

    def _withdraw(self, waiter: _Waiter) -> None:
        """A waiter was cancelled; a slot that was just given to it goes to the next."""
        with self._lock:
            if waiter in self._waiting:
                self._waiting.remove(waiter)
                return
        self.give_back()

    def _let_in(self) -> None:
        """Give the free slots to those who have waited longest."""
        while self._waiting and self._in_use < self._count:
            waiter = self._waiting.popleft()
            try:
                waiter.post(waiter.ready.set)
            except RuntimeError:  # its event loop has ended, and the waiter with it
                continue
            self._in_use += 1


T = TypeVar("T")

LONGEST: Final = 300.0
"""Seconds that a caller waits for its turn, and in which refusals cost it no retry."""
OUTAGE: Final = 60.0
"""The same where a vendor fails for several callers."""
_LONGEST_STEP: Final = 60.0
"""Seconds between two tries, unless the vendor asks for more."""
_MOST_DOUBLINGS: Final = 30
_WIDE: Final = 64.0
"""Calls at once from which on nobody is counted any more."""
_OVERLOADED: Final = 529
"""Anthropic's status for a vendor that is too busy, whoever asks."""


class VendorThrottle:
    """Holds back the calls to one model of a vendor while it refuses them.

    `first_wait`: seconds after the first refusal that names no time of its own.
    """

    def __init__(self, *, first_wait: float = 1.0, longest: float = LONGEST, outage: float = OUTAGE) -> None:
        self._first_wait = first_wait
        self._longest = longest
        self._outage = outage
        self._lock = threading.Lock()
        self._refusals = 0
        """Refusals in a row; those of calls that were under way together count as one."""
        self._closed_at = 0.0
        self._until = 0.0
        self._room = CallSlots(inf)
        """Calls that may be under way at once."""
        self._failing: set[object] = set()
        """Callers whose latest calls failed at the server, since it answered anybody."""

    @property
    def is_open(self) -> bool:
        return not self._refusals

    def patience(self, error: TransientModelError) -> float:
        """Seconds from a caller's first failure on, for which a failure like this one costs it no retry."""
        if error.is_rate_limit:
            return self._longest
        return self._outage if self._is_outage(error) else 0.0

    async def through(self, attempt: Callable[[], Awaitable[T]], caller: object = None) -> T:
        """Makes the attempt when its turn comes. `caller`: the same for all attempts of one call."""
        if self._room.count == inf:
            return await self._make_attempt(attempt, caller)
        has_place = False
        try:
            with spent_on("rate_limit"), anyio.move_on_after(self._longest):
                await self._room.acquire()
                has_place = True
                await self._time_has_come()
            return await self._make_attempt(attempt, caller)
        finally:
            if has_place:
                self._room.give_back()

    async def _time_has_come(self) -> None:
        rest = self._until - monotonic()
        if rest > 0 and not self.is_open:
            await anyio.sleep(rest)
            await self._time_has_come()  # A refusal that came in between may have put it off.

    async def _make_attempt(self, attempt: Callable[[], Awaitable[T]], caller: object) -> T:
        start = monotonic()
        try:
            reply = await attempt()
        except TransientModelError as error:
            self._note_failure(error, start, caller)
            raise
        except ModelError:
            self._open(start)
            raise
        self._open(start)
        return reply

    def _note_failure(self, error: TransientModelError, start: float, caller: object) -> None:
        if error.status is not None and error.status >= 500:
            with self._lock:
                self._failing.add(caller)
        if error.is_rate_limit or self._is_outage(error):
            self._close(start, error.retry_after)
        elif error.status is None or error.status < 500:
            self._open(start)

    def _is_outage(self, error: TransientModelError) -> bool:
        """Tells whether the server fails for all: one request alone may be what it fails at."""
        status = error.status or 0
        return status == _OVERLOADED or (status >= 500 and len(self._failing) > 1)

    def _open(self, start: float) -> None:
        """A call that began then got another answer than a refusal: one more may go at once than before. What began
        before the brake closed says nothing."""
        if self._room.count == inf and not self._failing:
            return
        with self._lock:
            self._failing.clear()
            if self._room.count != inf and start >= self._closed_at:
                self._refusals = 0
                self._room.resize(self._room.count + 1 if self._room.count < _WIDE else inf)

    def _close(self, start: float, pause: float | None) -> None:
        """A call that began then was refused; `pause`: seconds that the vendor wants to be left alone."""
        if pause is not None and pause > self._longest:
            return  # Its caller gives up, and so will the others, each by its own answer.
        with self._lock:
            now = monotonic()
            is_news = not self._refusals or start >= self._closed_at
            if is_news:
                self._refusals += 1
                self._closed_at = now
                self._room.resize(1 if self._room.count == inf else max(1, self._room.count // 2))
            doubled = self._first_wait * 2 ** min(self._refusals - 1, _MOST_DOUBLINGS)
            step = min(doubled, _LONGEST_STEP) * random.uniform(0.75, 1.25)
            if pause is not None:
                self._until = max(self._until, now + pause + random.uniform(0, self._first_wait / 4))
            elif is_news:
                self._until = now + step


_brakes: Final[dict[Hashable, VendorThrottle]] = {}
_brakes_lock: Final = threading.Lock()
_MOST: Final = 1000


def brake_for(*account: Hashable) -> VendorThrottle:
    """The one brake of this process for a model of an account: a vendor, its address, a key, and the model's name."""
    with _brakes_lock:
        if len(_brakes) >= _MOST:
            _brakes.clear()
        return _brakes.setdefault(hash(account), VendorThrottle())
