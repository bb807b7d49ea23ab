"""Bounds the time of a model that is an object of the program's own: vendors' clients keep their deadlines themselves.

The time is that of the request. A stream has it anew for each piece: one that is talking is not cut.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Awaitable
from contextlib import aclosing, asynccontextmanager
from typing import TypeVar

import anyio

from flowengine.errors import TransientModelError
from flowengine.models.model import PassThroughModel, Reply, Request

T = TypeVar("T")


class TimedModel(PassThroughModel):
    """Raises `TransientModelError` where the model inside takes longer than the request allows."""

    async def complete(self, request: Request) -> Reply:
        return await self._within(self._model.complete(request), request)

    @asynccontextmanager
    async def stream(self, request: Request) -> AsyncGenerator[AsyncIterator[str | Reply]]:
        async def pieces() -> AsyncGenerator[str | Reply]:
            while True:
                try:
                    yield await self._within(anext(stream), request)
                except StopAsyncIteration:
                    return

        async with self._model.stream(request) as stream, aclosing(pieces()) as timed:
            yield timed

    async def _within(self, answer: Awaitable[T], request: Request) -> T:
        with anyio.move_on_after(request.seconds()):
            return await answer
        late = TransientModelError(f"model '{self.name}' did not answer within {request.seconds():g} s")
        late.is_timeout, late.unanswered = True, 1
        raise late
