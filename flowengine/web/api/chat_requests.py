"""Gives the handlers of chats what they share: who asks, by which key, and who is still listening."""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from typing import Final, TypeVar
from urllib.parse import unquote

import anyio
from starlette.requests import Request
from starlette.responses import Response

from flowengine.errors import FlowEngineError, InputError
from flowengine.runtime import StoppingError
from flowengine.web.api.sse import HEARTBEAT, StreamResponse, wait_until_gone
from flowengine.web.service import FlowCaller, FlowService

T = TypeVar("T")


def caller_of(request: Request) -> FlowCaller | None:
    """Returns the owner of the request's key."""
    caller: FlowCaller | None = request.state.caller
    return caller


def run_key_of(request: Request) -> str | None:
    """Returns the idempotency key of a call; raises `InputError` if there are two."""
    keys = request.headers.getlist("idempotency-key")
    if len(keys) > 1:
        raise InputError(f"a call has one Idempotency-Key, found {len(keys)}")
    return read_header_text(keys[0].strip().removeprefix('"').removesuffix('"')) if keys else None


def session_name_of(request: Request) -> str | None:
    """Returns the session that a call continues, where its header names one."""
    name = request.headers.get("flowengine-session")
    return None if name is None else read_header_text(name)


def read_header_text(value: str) -> str:
    """Returns the text of a header's value: in the form of RFC 8187, or as it stands there, also as UTF-8.

    >>> read_header_text("UTF-8''%E5%B1%B1"), read_header_text("å±±"), read_header_text("50%25")
    ('山', '山', '50%25')
    """
    quoted = _QUOTED.fullmatch(value)
    try:
        return value.encode("latin-1").decode() if quoted is None else unquote(quoted[1], errors="strict")
    except UnicodeError:
        if quoted is not None:
            raise InputError(f"a header's text is no UTF-8: {value!r:.80}") from None
        return value


_QUOTED: Final = re.compile(r"utf-8'[a-z0-9-]*'(.*)", re.IGNORECASE | re.DOTALL)


def event_stream(pieces: AsyncGenerator[bytes], headers: Mapping[str, str], *, tells_retry: bool = False) -> Response:
    """Server-sent events; the generator is closed when the client goes. Clients of chats know no `retry`."""
    return StreamResponse(pieces, headers=headers, beat=HEARTBEAT, tells_retry=tells_retry)


async def answer_while_heard(request: Request, work: Callable[[], Awaitable[T]]) -> T | None:
    """Awaits the work; cancels it and returns None if the client disconnects first."""
    result: T | None = None
    failure: Exception | None = None
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(wait_until_gone, request.receive, tasks.cancel_scope.cancel)
        try:
            result = await work()
        except Exception as error:
            failure = error  # Raised once the group is closed, so that it comes out alone.
        tasks.cancel_scope.cancel()
    if failure is not None:
        raise failure
    return result


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
