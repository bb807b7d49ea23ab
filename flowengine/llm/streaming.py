"""Streams that are known to work: opened, with the first piece already here.

A wrapper that has a second chance (a retry, another model) may take it only until a reader has
seen something. That moment is decided here, once for all wrappers.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import AsyncExitStack

from flowengine.llm.model import Model, Reply, Request

__all__ = ["open_stream"]


async def open_stream(
    stack: AsyncExitStack, model: Model, request: Request, finish: Callable[[Reply], Reply] = lambda reply: reply
) -> AsyncIterator[str | Reply]:
    """The model's stream, entered into `stack` once its first piece has come.

    Failures before that leave the stack as it was. `finish` has the last word on the reply.
    """
    async with AsyncExitStack() as opening:
        pieces = await opening.enter_async_context(model.stream(request))
        first = await anext(pieces)
        rest = _from(first, pieces, finish)
        opening.push_async_callback(rest.aclose)
        stack.push_async_exit(opening.pop_all())
    return rest


async def _from(
    first: str | Reply, pieces: AsyncIterator[str | Reply], finish: Callable[[Reply], Reply]
) -> AsyncGenerator[str | Reply]:
    yield finish(first) if isinstance(first, Reply) else first
    async for piece in pieces:
        yield finish(piece) if isinstance(piece, Reply) else piece
