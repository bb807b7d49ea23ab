"""The stream of a run's events, as they are journaled, for whoever follows the run while it goes on."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import AbstractContextManager, asynccontextmanager
from dataclasses import replace
from functools import partial
from typing import TypeAlias

import anyio
from anyio.streams.memory import MemoryObjectSendStream

from flowengine.core import is_failure, is_interrupt
from flowengine.engine import Event, JournalStore, TokenStreamed
from flowengine.errors import RunError
from flowengine.journal import tell_events
from flowengine.runtime.run import Run, RunOptions

Streamed: TypeAlias = Event | TokenStreamed
"""What a stream yields."""


class EventStream(AsyncIterator[Streamed]):
    """The events of a run that goes on, and what is told beside them; `run` is there once they have ended."""

    def __init__(self, receive: AsyncIterator[Streamed]) -> None:
        self._receive = receive
        self.run: Run | None = None
        self.failure: BaseException | None = None

    def __aiter__(self) -> EventStream:
        return self

    async def __anext__(self) -> Streamed:
        try:
            return await anext(self._receive)
        except StopAsyncIteration:
            self.raise_failure()
            raise
        except anyio.ClosedResourceError as error:
            raise RunError("the block of this stream was left: its events are read inside of it") from error

    def raise_failure(self) -> None:
        """Raise what ended the run before it could be told in events (wrong inputs, a broken journal)."""
        if self.failure is not None:
            failure, self.failure = self.failure, None
            raise failure


@asynccontextmanager
async def open_stream(
    opening: AbstractContextManager[JournalStore],
    begin: Callable[[RunOptions, JournalStore], Awaitable[Run]],
    options: RunOptions,
    *,
    tokens: bool,
) -> AsyncGenerator[EventStream]:
    """Begin a run with the store of `opening` and yield its events; leaving the block cancels it.

    `tokens`: also the pieces of what agents write. A failure that no event tells is raised once the block is left.
    """
    send, receive = anyio.create_memory_object_stream[Streamed](float("inf"))
    stream = EventStream(receive)
    if tokens:
        options = replace(options, live=partial(_send_text, send.send_nowait))
    with opening as journals:
        try:
            async with anyio.create_task_group() as tasks:
                teed = tell_events(journals, send.send_nowait)
                tasks.start_soon(_run_into, stream, send, partial(begin, options, teed))
                try:
                    yield stream
                except BaseException as error:
                    if not is_failure(error) and not is_interrupt(error):
                        raise
                    stream.failure = error  # Raised once the group is closed, so that it comes out alone.
                tasks.cancel_scope.cancel()
        finally:
            receive.close()
            send.close()
    stream.raise_failure()


def _send_text(send: Callable[[TokenStreamed], None], piece: TokenStreamed) -> None:
    if piece.text:
        send(piece)


async def _run_into(stream: EventStream, send: MemoryObjectSendStream[Streamed], start: Callable[[], Awaitable[Run]]):
    """Run, and close the stream at the end; a failure is kept, to be raised once the tasks are closed."""
    with send:
        try:
            stream.run = await start()
        except Exception as error:
            stream.failure = error
