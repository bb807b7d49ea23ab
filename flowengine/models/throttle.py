"""Makes the callers of a vendor that answers 429 wait together, while one of them tries first.

    open       every call goes out at once
    unsure     from the first 429 on: calls queue up, the first of them waits until the time has come and is made
               alone. If it is answered, the brake is open again, and the others follow, spread out; if it is refused,
               the next wait is twice as long and the next caller's turn has come.

A caller that waits here spends none of its retries. No wait is longer than `longest`: after that a call goes out
whatever the others do. It holds for all threads and event loops of a process; it knows no vendor and no request.
"""

from __future__ import annotations

import random
import threading
from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable, Hashable
from contextlib import AsyncExitStack, asynccontextmanager
from time import monotonic
from typing import Final, TypeVar

import anyio

from flowengine.core.threads import Post, post_to_this_loop
from flowengine.errors import ModelError, TransientModelError
from flowengine.models.call_timeline import spent_on

__all__ = ["CallSlots", "VendorThrottle", "brake_for"]

# --- Call slots shared across threads and event loops


class _Waiter:
    def __init__(self) -> None:
        self.post: Post = post_to_this_loop()
        self.ready = anyio.Event()


class CallSlots:
    """`async with slots.take():` holds one of `count` slots."""

    def __init__(self, count: int) -> None:
        if count < 1:
            raise ValueError(f"at least 1 has to be allowed at once, not {count}")
        self._lock = threading.Lock()
        self._free = count
        self._waiting: deque[_Waiter] = deque()

    @asynccontextmanager
    async def take(self) -> AsyncGenerator[None]:
        await self._take()
        try:
            yield
        finally:
            self._give_back()

    async def _take(self) -> None:
        with self._lock:
            if self._free:
                self._free -= 1
                return
            waiter = _Waiter()
            self._waiting.append(waiter)
        try:
            await waiter.ready.wait()
        except BaseException:
            self._withdraw(waiter)
            raise

    def _withdraw(self, waiter: _Waiter) -> None:
        """A waiter was cancelled; a slot that was just given to it goes to the next."""
        with self._lock:
            if waiter in self._waiting:
                self._waiting.remove(waiter)
                return
        self._give_back()

    def _give_back(self) -> None:
        with self._lock:
            while self._waiting:
                waiter = self._waiting.popleft()
                try:
                    waiter.post(waiter.ready.set)
                except RuntimeError:  # its event loop has ended, and the waiter with it
                    continue
                return
            self._free += 1


T = TypeVar("T")

LONGEST: Final = 300.0
"""Seconds."""
_LONGEST_STEP: Final = 60.0
"""Seconds between two tries, unless the vendor asks for more."""
_MOST_DOUBLINGS: Final = 30


class VendorThrottle:
    """Holds back the calls to one vendor while it refuses them.

    `first_wait`: seconds after the first refusal that names no time of its own.
    """

    def __init__(self, *, first_wait: float = 1.0, longest: float = LONGEST) -> None:
        self._first_wait = first_wait
        self._longest = longest
        self._lock = threading.Lock()
        self._turn = CallSlots(1)
        self._refusals = 0
        """In a row; those of calls that were under way together count as one."""
        self._closed_at = 0.0
        self._until = 0.0

    @property
    def is_open(self) -> bool:
        return not self._refusals

    async def through(self, attempt: Callable[[], Awaitable[T]]) -> T:
        """Makes the attempt when its turn comes."""
        if self.is_open:
            return await self._make_attempt(attempt)
        async with AsyncExitStack() as turn:
            with spent_on("rate_limit"), anyio.move_on_after(self._longest):
                await turn.enter_async_context(self._turn.take())
                await self._time_has_come()
            if not self.is_open:
                return await self._make_attempt(attempt)
        with spent_on("rate_limit"):
            await anyio.sleep(random.uniform(0, self._first_wait))
        return await self._make_attempt(attempt)

    async def _time_has_come(self) -> None:
        left = self._until - monotonic()
        if left > 0 and not self.is_open:
            await anyio.sleep(left)
            await self._time_has_come()  # A refusal that came in between may have put it off.

    async def _make_attempt(self, attempt: Callable[[], Awaitable[T]]) -> T:
        begun = monotonic()
        try:
            given = await attempt()
        except TransientModelError as error:
            if error.is_rate_limit:
                self._close(begun, error.retry_after)
            else:
                self._open(begun)
            raise
        except ModelError:
            self._open(begun)
            raise
        self._open(begun)
        return given

    def _open(self, begun: float) -> None:
        """A call that began then got another answer than 429; what began before the brake closed says nothing."""
        if self._refusals:
            with self._lock:
                if begun >= self._closed_at:
                    self._refusals = 0

    def _close(self, begun: float, asked: float | None) -> None:
        """A call that began then was refused; `asked`: seconds that the vendor wants to be left alone."""
        if asked is not None and asked > self._longest:
            return  # Its caller gives up, and so will the others, each by its own answer.
        with self._lock:
            now = monotonic()
            is_news = not self._refusals or begun >= self._closed_at
            if is_news:
                self._refusals += 1
                self._closed_at = now
            doubled = self._first_wait * 2 ** min(self._refusals - 1, _MOST_DOUBLINGS)
            step = min(doubled, _LONGEST_STEP) * random.uniform(0.75, 1.25)
            if asked is not None:
                self._until = max(self._until, now + asked + random.uniform(0, self._first_wait / 4))
            elif is_news:
                self._until = now + step


_brakes: Final[dict[Hashable, VendorThrottle]] = {}
_brakes_lock: Final = threading.Lock()
_MOST: Final = 1000


def brake_for(*account: Hashable) -> VendorThrottle:
    """The one brake of this process for an account: a vendor, its address, and a key."""
    with _brakes_lock:
        if len(_brakes) >= _MOST:
            _brakes.clear()
        return _brakes.setdefault(hash(account), VendorThrottle())
