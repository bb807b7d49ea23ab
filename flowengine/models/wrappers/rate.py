"""Limits calls as a vendor asks: requests and tokens a minute, calls at once.

Every call reserves its place when it asks, so the order is the order of asking, and sleeps just once, until its
turn. A minute is any 60 seconds. Who gives out turns is a `Limiter`: here one that is shared by all nodes of a
process (`limiter_for`); those who share limits with other processes hand in their own (`Limiters`).
"""

from __future__ import annotations

import threading
import time
from bisect import bisect_right
from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass
from itertools import islice
from typing import Any, Final, Protocol, TypeAlias

import anyio

from flowengine.errors import JournalError
from flowengine.models.attachments import attachment_kind
from flowengine.models.call_timeline import spent_on
from flowengine.models.messages import Message
from flowengine.models.model import Finish, Model, PassThroughModel, Reply, Request, estimate_tokens
from flowengine.models.throttle import CallSlots
from flowengine.models.vendors import RateLimits


class RateTurn(Protocol):
    """A call's turn, which has come."""

    def took(self, tokens: int) -> None:
        """The call is over, and took so many tokens."""
        ...


class Limiter(Protocol):
    """Lets calls to one vendor through at the pace of its limits."""

    def turn(self, tokens: int) -> AbstractAsyncContextManager[RateTurn | None]:
        """Hold a turn for a call of about so many tokens; None where these are not counted."""
        ...


Limiters: TypeAlias = Callable[[str, RateLimits], Limiter]
"""The limiter of a vendor with such limits: the same one for all who ask."""


@dataclass(slots=True, eq=False)
class _Entry:
    """One call on record: when its turn is, and the tokens it takes."""

    at: float
    tokens: int

    def took(self, tokens: int) -> None:
        self.tokens = tokens


class _Minute:
    """The calls of the last 60 seconds and those whose turn is still to come. Decides, never waits."""

    def __init__(self, requests: int | None, tokens: int | None, seconds: float) -> None:
        self._requests = requests
        self._tokens = tokens
        self._seconds = seconds
        self._entries: deque[_Entry] = deque()

    def reserve(self, tokens: int, now: float) -> _Entry:
        """A place at the earliest time that keeps both limits and comes after all earlier places.

        A call larger than the whole limit gets a minute of its own.
        """
        entries = self._entries
        at = max(now, entries[-1].at) if entries else now
        while entries and entries[0].at <= now - self._seconds:
            entries.popleft()
        first = bisect_right(entries, at - self._seconds, key=lambda each: each.at)
        count = len(entries) - first
        nearest = [*islice(reversed(entries), count)][::-1] if first else entries
        total = sum(each.tokens for each in nearest) if self._tokens is not None else 0
        for oldest in nearest:
            if (self._requests is None or count < self._requests) and (
                self._tokens is None or total + tokens <= self._tokens
            ):
                break
            at = max(at, oldest.at + self._seconds)
            count, total = count - 1, total - oldest.tokens
        entry = _Entry(at, tokens)
        entries.append(entry)
        return entry

    def withdraw(self, entry: _Entry) -> None:
        """Free the place of a call that will not be made."""
        with suppress(ValueError):
            self._entries.remove(entry)


class RateLimiter:
    """Lets calls through at the pace that `limits` allow, from any thread and event loop."""

    def __init__(self, limits: RateLimits, *, minute: float = 60.0) -> None:
        self.limits = limits
        self._lock = threading.Lock()
        self._minute = _Minute(limits.requests_per_minute, limits.tokens_per_minute, minute)
        self._slots = None if limits.max_parallel is None else CallSlots(limits.max_parallel)
        self._is_timed = limits.requests_per_minute is not None or limits.tokens_per_minute is not None

    @asynccontextmanager
    async def turn(self, tokens: int) -> AsyncGenerator[RateTurn | None]:
        async with AsyncExitStack() as stack:
            if self._slots is not None:
                await stack.enter_async_context(self._slots.take())
            if not self._is_timed:
                yield None
                return
            with self._lock:
                now = time.monotonic()
                entry = self._minute.reserve(tokens, now)
            if entry.at > now:
                try:
                    await anyio.sleep(entry.at - now)
                except BaseException:
                    with self._lock:
                        self._minute.withdraw(entry)
                    raise
            yield entry


_limiters: dict[tuple[str, RateLimits], RateLimiter] = {}
_limiters_lock: Final = threading.Lock()


def limiter_for(provider: str, limits: RateLimits) -> RateLimiter:
    """The one limiter of this process for a vendor and its limits."""
    with _limiters_lock:
        return _limiters.setdefault((provider, limits), RateLimiter(limits))


class RateLimitedModel(PassThroughModel):
    """Wraps a model so that its calls wait for their turn. Goes inside of retries: each attempt counts.

    A turn that has come is used at once: a model that has something to load (`ready`) loads it before it asks.
    """

    def __init__(self, model: Model, limiter: Limiter) -> None:
        super().__init__(model)
        self._limiter = limiter
        self._ready: Callable[[], Awaitable[Any]] | None = getattr(model, "ready", None)

    @asynccontextmanager
    async def _around(self, request: Request) -> AsyncGenerator[tuple[Request, Finish]]:
        if self._ready is not None:
            with spent_on("loading"):
                await self._ready()
        async with AsyncExitStack() as stack:
            with spent_on("queued"):
                try:
                    turn = await stack.enter_async_context(self._limiter.turn(_expected_tokens(request)))
                except JournalError as error:  # Of those that workers share.
                    error.ends_run = True
                    raise
            yield request, lambda reply: _correct(turn, reply)


def _expected_tokens(request: Request) -> int:
    """The prompt, estimated, and the answer's limit where there is one."""
    return sum(_estimate_message(each) for each in request.messages) + (request.max_tokens or 0)


def _correct(turn: RateTurn | None, reply: Reply) -> Reply:
    prompt, completion = reply.usage[:2]
    if turn is not None and prompt is not None:
        turn.took(prompt + (completion or 0))
    return reply


def _estimate_message(message: Message) -> int:
    """About as many tokens as it has; what an image takes hardly depends on its size."""
    kinds = [(attachment_kind(each.media_type), each.size) for each in message.attachments]
    return estimate_tokens(message.content) + sum(size // 4 if kind == "text" else 1_000 for kind, size in kinds)
