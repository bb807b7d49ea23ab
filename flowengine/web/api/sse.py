"""Streams the events of a run to a client, from the event after the last one that it has.

Where to begin is said by the browser's `Last-Event-ID`, or by the address.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import aclosing
from typing import Final

import anyio
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from flowengine.engine import RunFinished
from flowengine.web.api.event_lines import EventForm, encode_events
from flowengine.web.gate import ProblemError, get_parts
from flowengine.web.service import ENDED, LibraryRuns

# --- An endless answer

_HEAD: Final[Mapping[str, str]] = {"content-type": "text/event-stream; charset=utf-8", "x-accel-buffering": "no"}
HEARTBEAT: Final = 15.0
"""Seconds after which a comment is sent, so that nothing on the way cuts off a silence."""
_PATIENCE: Final = 20.0
"""Seconds that a client may take for one piece before it is dropped."""


class StreamResponse(Response):
    """Server-sent events."""

    def __init__(
        self,
        pieces: AsyncGenerator[bytes],
        patience: float | None = None,
        *,
        headers: Mapping[str, str] | None = None,
        beat: float | None = None,
        tells_retry: bool = True,
    ) -> None:
        """`beat`: seconds after each of which a comment is sent, so that nothing on the way cuts off a silence.

        `tells_retry`: whether browsers are told when to connect again.
        """
        super().__init__()
        self._pieces = pieces
        self._patience = _PATIENCE if patience is None else patience
        self._more = dict(headers or {})
        self._beat = beat
        self._tells_retry = tells_retry

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers = [(name.encode(), value.encode()) for name, value in {**self._more, **_HEAD}.items()]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        if scope.get("method") == "HEAD":
            # Its answer ends with the head, and the next request of the connection waits for that.
            await self._pieces.aclose()
            await self._send(send, b"", more=False)
            return
        is_whole = False
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(wait_until_gone, receive, tasks.cancel_scope.cancel)
            if self._beat is not None:
                tasks.start_soon(self._send_beats, send, self._beat)
            is_whole = await self._send_pieces(send)
            tasks.cancel_scope.cancel()
        if is_whole:  # No comment comes behind the end.
            await self._send(send, b"", more=False)

    async def _send_pieces(self, send: Send) -> bool:
        """Tells whether the client took all of them."""
        async with aclosing(self._pieces) as pieces:
            if self._tells_retry:
                await self._send(send, b"retry: 1000\n\n")
            async for piece in pieces:
                if not await self._send(send, piece):
                    return False
        return True

    async def _send_beats(self, send: Send, pause: float) -> None:
        while True:
            await anyio.sleep(pause)
            await self._send(send, b":\n\n")

    async def _send(self, send: Send, body: bytes, *, more: bool = True) -> bool:
        """Tells whether the client took it in time."""
        with anyio.move_on_after(self._patience) as scope:
            await send({"type": "http.response.body", "body": body, "more_body": more})
        return not scope.cancelled_caught


async def wait_until_gone(receive: Receive, stop: Callable[[], None]) -> None:
    """Calls `stop` when the client has gone."""
    while (await receive())["type"] != "http.disconnect":
        pass
    stop()


async def stream_events(request: Request, form: EventForm) -> Response:
    """The events of a run as they come; 204 where no more will, so that browsers stop asking."""
    runs, run_id = get_parts(request).acts, request.path_params["run_id"]
    after = read_position(request)
    if runs.driver.is_stopping:
        raise ProblemError(503, "Not running", "the app's lifespan has not begun, or is over")
    events = await runs.events(run_id, max(0, after - 1))
    if after and not events:
        raise ProblemError(404, "No such position", f"run '{run_id}' has fewer than {after} events")
    if len(events) <= 1 and isinstance(events[-1], RunFinished) and events[-1].status in ENDED:
        return Response(status_code=204)
    return StreamResponse(_encode(runs, run_id, after, form), beat=HEARTBEAT)


async def _encode(runs: LibraryRuns, run_id: str, after: int, form: EventForm) -> AsyncGenerator[bytes]:
    async with aclosing(runs.follower.follow(run_id, after, stay=True)) as batches:
        async for each in batches:
            yield encode_events(each, form)


def read_position(request: Request) -> int:
    """Returns the position at which a follower begins; `Last-Event-ID`, of one that comes again, wins over `after`."""
    after, last = request.query_params.get("after", "0"), request.headers.get("last-event-id")
    for text in (after, *([] if last is None else [last])):
        if not (text.isascii() and text.isdecimal()) or len(text) > 9:
            raise ProblemError(400, "No such position", f"a position is a whole number from 0 on, found {text!r:.40}")
    return int(after) if last is None else int(last) + 1
