"""Gives the handlers of chats what they share: who asks, by which key, and who is still listening."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from typing import Final, TypeVar

import anyio
from starlette.requests import Request
from starlette.responses import Response

from flowengine.errors import FlowEngineError, InputError
from flowengine.runners.run_driver import StoppingError
from flowengine.server.sse import StreamResponse, wait_until_gone
from flowengine.serving.flow_service import FlowService
from flowengine.serving.outcomes import FlowCaller

__all__ = ["answer_while_heard", "caller_of", "event_stream", "run_key_of", "stopping_unheard"]

T = TypeVar("T")

_BEAT: Final = 15.0
"""Seconds after which a comment is sent, so that nothing on the way cuts off a silence."""


def caller_of(request: Request) -> FlowCaller | None:
    """Returns the owner of the request's key."""
    caller: FlowCaller | None = request.state.caller
    return caller


def run_key_of(request: Request) -> str | None:
    """Returns the idempotency key of a call; raises `InputError` if there are two."""
    keys = request.headers.getlist("idempotency-key")
    if len(keys) > 1:
        raise InputError(f"a call has one Idempotency-Key, found {len(keys)}")
    return keys[0].strip().removeprefix('"').removesuffix('"') if keys else None


def event_stream(pieces: AsyncGenerator[bytes], headers: Mapping[str, str], *, tells_retry: bool = False) -> Response:
    """Server-sent events; the generator is closed when the client goes. Clients of chats know no `retry`."""
    return StreamResponse(pieces, headers=headers, beat=_BEAT, tells_retry=tells_retry)


async def answer_while_heard(request: Request, work: Callable[[], Awaitable[T]]) -> T | None:
    """Awaits the work; cancels it and returns None if the client disconnects first."""
    found: T | None = None
    failure: Exception | None = None
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(wait_until_gone, request.receive, tasks.cancel_scope.cancel)
        try:
            found = await work()
        except Exception as error:
            failure = error  # Raised once the group is closed, so that it comes out alone.
        tasks.cancel_scope.cancel()
    if failure is not None:
        raise failure
    return found


@asynccontextmanager
async def stopping_unheard(
    service: FlowService, run_id: str, caller: FlowCaller | None, *, is_kept: bool
) -> AsyncGenerator[None]:
    """Cancel the run where its last listener leaves; `is_kept`: it is found again by its key, and goes on."""
    try:
        yield
    except BaseException as error:
        if is_kept:
            raise
        with anyio.CancelScope(shield=True), suppress(FlowEngineError):  # It may have ended by itself.
            await service.cancel(run_id, caller)
        if isinstance(error, StoppingError):
            raise StoppingError(f"the server stops, and run '{run_id}' with it: ask again in some seconds") from None
        raise
