"""Passes the pieces of a model's answers to a listener while they are written; retries and fallbacks stay as they are.

It knows streams and wrappers, and nothing of the listener.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing, asynccontextmanager

from flowengine.core.context import Tell
from flowengine.errors import TransientModelError
from flowengine.models.model import Model, PassThroughModel, Reply, Request
from flowengine.models.wrappers.retrying import FallbackModel, RetryingModel

__all__ = ["tap_model"]


def tap_model(model: Model, tell: Tell, *, is_read: bool = True) -> Model:
    """The model, with `complete` telling that it is asked, and each piece of its answer unless it is not `is_read`.
    Retries and fallbacks stay outside of that: an attempt that breaks off is followed by one that begins anew.

    >>> import anyio
    >>> from flowengine.models.scripted import ScriptedModel
    >>> tell = lambda text, begins=False, model="": print([text, begins, model])
    >>> model = tap_model(ScriptedModel(["Green tea."]), tell)
    >>> anyio.run(model.complete, Request("scripted", ())).content
    ['', True, 'scripted']
    ['Green ', True, '']
    ['tea.', False, '']
    'Green tea.'
    """
    if isinstance(model, RetryingModel | FallbackModel):
        return model.around(lambda each: tap_model(each, tell, is_read=is_read))
    return _StreamingTap(model, tell) if is_read else _AskingTap(model, tell)


class _AskingTap(PassThroughModel):
    """Tell of an answer that is read only when it is whole that it was asked for, and no more."""

    def __init__(self, model: Model, tell: Tell) -> None:
        super().__init__(model)
        self._tell = tell

    async def complete(self, request: Request) -> Reply:
        self._tell("", True, self.name)
        return await self._model.complete(request)

    @asynccontextmanager
    async def stream(self, request: Request) -> AsyncGenerator[AsyncIterator[str | Reply]]:
        self._tell("", True, self.name)
        async with self._model.stream(request) as pieces:
            yield pieces


class _StreamingTap(PassThroughModel):
    def __init__(self, model: Model, tell: Tell) -> None:
        super().__init__(model)
        self._tell = tell

    async def complete(self, request: Request) -> Reply:
        reply = None
        async with self.stream(request) as pieces:
            async for piece in pieces:
                if isinstance(piece, Reply):
                    reply = piece
        if reply is None:
            raise TransientModelError(f"the stream of {self.provider}/{self.name} ended before its answer did")
        return reply

    @asynccontextmanager
    async def stream(self, request: Request) -> AsyncGenerator[AsyncIterator[str | Reply]]:
        async def pass_pieces() -> AsyncGenerator[str | Reply]:
            begins = True
            async for piece in pieces:
                if not isinstance(piece, Reply):
                    self._tell(piece, begins)
                    begins = False
                yield piece

        self._tell("", True, self.name)
        async with self._model.stream(request) as pieces, aclosing(pass_pieces()) as heard_pieces:
            yield heard_pieces
