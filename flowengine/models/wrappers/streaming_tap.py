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

__all__ = ["heard"]


def heard(model: Model, tell: Tell) -> Model:
    """The model, with `complete` telling each piece of its answer. Retries and fallbacks stay outside of that:
    an attempt that breaks off is followed by one that begins anew.

    >>> import anyio
    >>> from flowengine.models.scripted import ScriptedModel
    >>> model = heard(ScriptedModel(["Green tea."]), lambda text, begins=False: print([text, begins]))
    >>> anyio.run(model.complete, Request("scripted", ())).content
    ['Green ', True]
    ['tea.', False]
    'Green tea.'
    """
    if isinstance(model, RetryingModel | FallbackModel):
        return model.around(lambda each: heard(each, tell))
    return _StreamingTap(model, tell)


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
        async def told() -> AsyncGenerator[str | Reply]:
            begins = True
            async for piece in pieces:
                if not isinstance(piece, Reply):
                    self._tell(piece, begins)
                    begins = False
                yield piece

        async with self._model.stream(request) as pieces, aclosing(told()) as heard_pieces:
            yield heard_pieces
