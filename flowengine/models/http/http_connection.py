"""Holds one HTTP/1.1 connection: sends a request and gives its answer's bytes as they come.

It reads and writes an anyio stream with h11 between, so it runs on asyncio and on trio alike. What has arrived when the
reader is cancelled is still read (`cancellation`). Which connection is used for what is the pool's matter.
"""

from __future__ import annotations

import select
from collections.abc import Mapping, Sequence
from contextlib import suppress
from time import monotonic
from typing import Final, NamedTuple

import anyio
import h11
from anyio.abc import ByteStream, SocketAttribute

_CHUNK: Final = 65536
_TRIES: Final = 3
"""How often a cancelled reader looks for further bytes that are there already."""
_TRY: Final = 0.001
"""Seconds of such a look."""
_MOST_LATE: Final = 8 * 1024 * 1024
"""Bytes that are read after a cancellation, more than a socket holds: what goes on for longer has not arrived."""


class BrokenExchangeError(Exception):
    """The exchange failed after it had begun. `is_final`: the same request will fail again; `is_unread`: the server had
    closed the connection before, so that it has not read the request."""

    def __init__(self, message: str, *, is_final: bool = False, is_unread: bool = False) -> None:
        super().__init__(message)
        self.is_final = is_final
        self.is_unread = is_unread


class ResponseHead(NamedTuple):
    """The part of an answer before its body."""

    status: int
    headers: Mapping[str, str]
    """The names in small letters."""


def make_request(method: str, target: str, headers: Sequence[tuple[str, str]]) -> h11.Request:
    """A request's head; `BrokenExchangeError` where it cannot be sent."""
    try:
        return h11.Request(method=method, target=target, headers=list(headers))
    except (h11.LocalProtocolError, UnicodeError):
        # The reason would repeat the header, which may be a key.
        raise BrokenExchangeError(
            "the request cannot be sent: its address, or a header such as the key, has letters that HTTP does not "
            "allow",
            is_final=True,
        ) from None


class HttpConnection:
    """Round a stream that is connected."""

    def __init__(self, stream: ByteStream) -> None:
        self._stream = stream
        self._state = h11.Connection(h11.CLIENT)
        self._late_bytes = 0
        self.cancellation: BaseException | None = None
        """The one that was put off, since its answer may have arrived."""
        self.idle_since = 0.0

    async def request(self, request: h11.Request, body: bytes) -> ResponseHead:
        """Send a request, and wait for the head of its answer."""
        state = self._state
        data = b"".join(state.send(event) for event in (request, h11.Data(data=body), h11.EndOfMessage()))
        with suppress(anyio.BrokenResourceError, anyio.ClosedResourceError, OSError):
            await self._stream.send(data)  # Some servers say why before they close, and do not read to the end.
        while True:
            event = await self._next_event()
            if isinstance(event, h11.Response):
                headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in event.headers}
                return ResponseHead(event.status_code, headers)
            if isinstance(event, h11.ConnectionClosed | h11.EndOfMessage):
                raise self._no_answer()

    async def receive(self) -> bytes:
        """The next bytes of the body; none: that was all of it."""
        while True:
            event = await self._next_event()
            if isinstance(event, h11.Data):
                if event.data:
                    return bytes(event.data)
            elif isinstance(event, h11.EndOfMessage | h11.ConnectionClosed):
                return b""

    def make_idle(self) -> bool:
        """Prepare for another request; False where there can be none."""
        if self._state.our_state is not h11.DONE or self._state.their_state is not h11.DONE:
            return False
        self._state.start_next_cycle()
        self.cancellation, self._late_bytes, self.idle_since = None, 0, monotonic()
        return True

    def is_dead(self) -> bool:
        """Tells whether the server has closed it, or sent something unasked, since it is idle."""
        try:
            raw = self._stream.extra(SocketAttribute.raw_socket)
            poll = select.poll()
            poll.register(raw.fileno(), select.POLLIN)
            return bool(poll.poll(0))
        except (anyio.TypedAttributeLookupError, OSError, ValueError):
            return True

    async def abort(self) -> None:
        """Close it at once."""
        errors_of_closed = suppress(OSError, anyio.BrokenResourceError, anyio.ClosedResourceError)
        with anyio.CancelScope(shield=True), errors_of_closed:
            await anyio.aclose_forcefully(self._stream)

    # --- Reading

    async def _next_event(self) -> object:
        while True:
            try:
                event = self._state.next_event()
            except h11.RemoteProtocolError as error:
                if "without sending complete message body" in str(error) or "peer unexpectedly closed" in str(error):
                    raise BrokenExchangeError("the connection broke off before the answer's end") from None
                raise BrokenExchangeError(f"the server's answer is no HTTP: {error}") from None
            if event is not h11.NEED_DATA:
                return event
            data = await self._read()
            if not data and self._state.their_state is h11.SEND_RESPONSE:
                raise self._no_answer()
            self._state.receive_data(data)

    async def _read(self) -> bytes:
        """The next bytes that came; none: there will be no more."""
        try:
            if self.cancellation is None:
                try:
                    return await self._stream.receive(_CHUNK)
                except anyio.get_cancelled_exc_class() as error:
                    self.cancellation = error
            return await self._read_late()
        except anyio.EndOfStream:
            return b""
        except (anyio.BrokenResourceError, anyio.ClosedResourceError, OSError):
            if self._state.their_state is h11.SEND_RESPONSE:
                raise self._no_answer("the connection broke off before the answer's end") from None
            raise BrokenExchangeError("the connection broke off before the answer's end") from None

    def _no_answer(self, message: str = "the server closed the connection without an answer") -> BrokenExchangeError:
        # Of a connection that was used before, it is the end of an idle one that was on its way to us.
        return BrokenExchangeError(message, is_unread=self.idle_since > 0)

    async def _read_late(self) -> bytes:
        """Reads a complete answer although the reader is cancelled, because it is paid for."""
        for _ in range(_TRIES if self._late_bytes <= _MOST_LATE else 0):
            with anyio.move_on_after(_TRY, shield=True):
                data = await self._stream.receive(_CHUNK)
                self._late_bytes += len(data)
                return data
        cancellation, self.cancellation = self.cancellation, None  # Passed on: a deadline's own scope ends it there.
        assert cancellation is not None
        raise cancellation
