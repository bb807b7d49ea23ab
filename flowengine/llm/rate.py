"""Limits that a vendor sets: requests and tokens a minute, calls at once.

One `RateLimiter` a vendor is shared by all nodes of a process (`limiter_for`). Every call reserves
its place when it asks, so the order is the order of asking, and sleeps just once, until its turn.
A minute is any 60 seconds. A limit is kept per process, not between machines.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from typing import Final

import anyio

from flowengine.llm.model import Model, Reply, Request
from flowengine.llm.provider import RateLimits
from flowengine.llm.schema_support import supports_schema
from flowengine.llm.slots import Slots
from flowengine.llm.tokens import estimate_tokens

__all__ = ["RateLimitedModel", "RateLimiter", "limiter_for"]


@dataclass(slots=True)
class _Entry:
    """One call on record: when its turn is, and the tokens it takes."""

    at: float
    tokens: int


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
        while entries and entries[0].at <= at - self._seconds:
            entries.popleft()
        count, total = len(entries), sum(each.tokens for each in entries) if self._tokens is not None else 0
        for oldest in entries:
            if (self._requests is None or count < self._requests) and (
                self._tokens is None or total + tokens <= self._tokens
            ):
                break
            at = max(at, oldest.at + self._seconds)
            count, total = count - 1, total - oldest.tokens
        entry = _Entry(at, tokens)
        entries.append(entry)
        return entry


class RateLimiter:
    """Lets calls through at the pace that `limits` allow, from any thread and event loop."""

    def __init__(self, limits: RateLimits, *, minute: float = 60.0) -> None:
        self.limits = limits
        self._lock = threading.Lock()
        self._minute = _Minute(limits.requests_per_minute, limits.tokens_per_minute, minute)
        self._slots = None if limits.max_parallel is None else Slots(limits.max_parallel)
        self._is_timed = limits.requests_per_minute is not None or limits.tokens_per_minute is not None

    @asynccontextmanager
    async def turn(self, tokens: int) -> AsyncGenerator[_Entry | None]:
        """Hold a turn for a call of about so many tokens; correct the entry once they are known."""
        async with AsyncExitStack() as stack:
            if self._slots is not None:
                await stack.enter_async_context(self._slots.taken())
            if not self._is_timed:
                yield None
                return
            with self._lock:
                now = time.monotonic()
                entry = self._minute.reserve(tokens, now)
            if entry.at > now:
                await anyio.sleep(entry.at - now)
            yield entry


_limiters: dict[tuple[str, RateLimits], RateLimiter] = {}
_limiters_lock: Final = threading.Lock()


def limiter_for(provider: str, limits: RateLimits) -> RateLimiter:
    """The one limiter of this process for a vendor and its limits."""
    with _limiters_lock:
        return _limiters.setdefault((provider, limits), RateLimiter(limits))


class RateLimitedModel:
    """Wraps a model so that its calls wait for their turn. Goes inside of retries: each attempt counts."""

    def __init__(self, model: Model, limiter: RateLimiter) -> None:
        self._model = model
        self._limiter = limiter

    @property
    def name(self) -> str:
        return self._model.name

    @property
    def provider(self) -> str:
        return self._model.provider

    def inside(self) -> Sequence[Model]:
        """The model that waits for its turn."""
        return (self._model,)

    async def supports_schema(self) -> bool:
        return await supports_schema(self._model)

    async def complete(self, request: Request) -> Reply:
        async with self._limiter.turn(_expected_tokens(request)) as entry:
            reply = await self._model.complete(request)
            _correct(entry, reply)
            return reply

    @asynccontextmanager
    async def stream(self, request: Request) -> AsyncGenerator[AsyncIterator[str | Reply]]:
        async def pieces() -> AsyncGenerator[str | Reply]:
            async for piece in stream:
                if isinstance(piece, Reply):
                    _correct(entry, piece)
                yield piece

        async with self._limiter.turn(_expected_tokens(request)) as entry, self._model.stream(request) as stream:
            yield pieces()


def _expected_tokens(request: Request) -> int:
    """The prompt, estimated, and the answer's limit where there is one."""
    return sum(estimate_tokens(each.content) for each in request.messages) + (request.max_tokens or 0)


def _correct(entry: _Entry | None, reply: Reply) -> None:
    prompt, completion, _ = reply.usage
    if entry is not None and prompt is not None:
        entry.tokens = prompt + (completion or 0)
