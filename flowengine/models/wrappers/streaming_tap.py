"""Passes the pieces of a model's answers to a listener while they are written; retries and fallbacks stay as they are.

It knows streams and wrappers, and nothing of the listener.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing, asynccontextmanager

from flowengine.core import Tell
from flowengine.errors import TransientModelError
from flowengine.models.model import Finish, Model, PassThroughModel, Reply, Request
from flowengine.models.wrappers.retrying import FallbackModel, RetryingModel


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
    return _Tap(model, tell, is_read)


class _Tap(PassThroughModel):
    """Tells that an answer was asked for; and its pieces, unless it is read only when it is whole."""

    def __init__(self, model: Model, tell: Tell, is_read: bool) -> None:
        super().__init__(model)
        self._tell = tell
        self._is_read = is_read

    @asynccontextmanager
    async def _around(self, request: Request) -> AsyncGenerator[tuple[Request, Finish]]:
        self._tell("", True, self.name)
        yield request, lambda reply: reply

    async def complete(self, request: Request) -> Reply:
        if not self._is_read:
            return await super().complete(request)
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
                if self._is_read and not isinstance(piece, Reply):
                    self._tell(piece, begins)
                    begins = False
                yield piece

        async with super().stream(request) as pieces, aclosing(pass_pieces()) as heard_pieces:
            yield heard_pieces
