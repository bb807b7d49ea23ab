"""Sends requests over HTTP in the caller's own task, on asyncio and on trio alike.

Connections are kept by the event loop's pool. Redirects to another host are refused, bodies are unpacked and have a
bound. It knows no vendor.
"""

from __future__ import annotations

import zlib
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from math import inf
from typing import Final, Protocol
from urllib.parse import quote, urljoin, urlsplit

import anyio

from flowengine.core import postpone_cancellation
from flowengine.models.http.connection_pool import (
    ConnectionPool,
    Origin,
    pool_of_this_loop,
    proxy_for,
    proxy_headers,
)
from flowengine.models.http.http_connection import BrokenExchangeError, HttpConnection, ResponseHead, make_request
from flowengine.version import __version__

_MOST_REDIRECTS: Final = 3
_LARGEST: Final = 64 * 1024 * 1024
"""Bytes of a body, unpacked."""
_REST: Final = 0.05
"""Seconds to wait for the formal end of an answer that is there: only then its connection can be used again."""


class _Unpacker(Protocol):
    @property
    def eof(self) -> bool: ...

    @property
    def unused_data(self) -> bytes: ...

    def decompress(self, data: bytes, max_length: int = 0, /) -> bytes: ...


class HttpCall:
    """An HTTP request."""

    __slots__ = ("body", "headers", "is_sent", "method", "url")

    def __init__(
        self, url: str, headers: Mapping[str, str] | Sequence[tuple[str, str]], body: bytes, method: str = "POST"
    ) -> None:
        """`headers` as pairs: a name may stand there more than once."""
        self.url = url
        self.headers = list(headers.items()) if isinstance(headers, Mapping) else list(headers)
        self.body = body
        self.method = method
        self.is_sent = False
        """Whether a server may have read it."""

    def __repr__(self) -> str:
        return f"<{self.method.lower()} of {len(self.body)} bytes>"  # Headers hold keys.


class HttpAnswer:
    """An answer whose head has come."""

    def __init__(self, connection: HttpConnection, head: ResponseHead) -> None:
        self._connection = connection
        self.status = head.status
        self.headers: Mapping[str, str] = head.headers
        self.is_read = False
        """Whether the body was read to its end."""
        self.largest = _LARGEST
        """Bytes of the body, unpacked, that are read at most."""
        self.postponed: BaseException | None = None
        self._size = 0
        self._is_packed = _is_packed(self.headers.get("content-encoding", ""))
        self._packed: _Unpacker | None = None

    @property
    def is_fine(self) -> bool:
        """Whether the server has done what it was asked to do."""
        return 200 <= self.status < 300

    @property
    def is_late(self) -> bool:
        """Whether the reader is cancelled, and reads on only what has arrived."""
        return self._connection.cancellation is not None

    async def receive(self) -> bytes:
        """The next bytes of the body, unpacked; none: that was all of it."""
        while not self.is_read:
            chunk = await self._connection.receive()
            self.is_read = not chunk
            if self._is_packed:
                chunk = self._unpack(chunk)
            self._size += len(chunk)
            if self._size > self.largest:
                raise BrokenExchangeError(f"the server's answer has more than {self.largest:,} bytes", is_final=True)
            if chunk:
                return chunk
        return b""

    async def read(self) -> bytes:
        """The whole body."""
        chunks: list[bytes] = []
        while chunk := await self.receive():
            chunks.append(chunk)
        return b"".join(chunks)

    async def finish(self) -> None:
        """Read what comes after the part that mattered, if it comes at once; what goes wrong there loses nothing."""
        if not self.is_read and not self.is_late:
            with anyio.move_on_after(_REST), suppress(BrokenExchangeError):
                await self.read()

    def keep_arrived(self) -> None:
        """Say that the answer is whole: a cancellation that it came in time for is put off to the next wait."""
        if self._connection.cancellation is not None and anyio.current_effective_deadline() > -inf:
            self.postponed = self._connection.cancellation  # Scopes cancel again by themselves, tasks are told once.

    def _unpack(self, chunk: bytes) -> bytes:
        """Unpacks a piece of a packed body; several streams may follow each other in one."""
        data = b""
        try:
            while chunk and (room := self.largest + 1 - self._size - len(data)) > 0:
                if self._packed is None or self._packed.eof:
                    self._packed = zlib.decompressobj(_ANY_FORMAT)
                data += self._packed.decompress(chunk, room)
                rest = self._packed.unused_data
                chunk = rest if rest.startswith(_GZIP) else b""
        except zlib.error:
            raise BrokenExchangeError("the server's answer cannot be unpacked") from None
        if self.is_read and self._packed is not None and not self._packed.eof:
            raise BrokenExchangeError("the server's packed answer breaks off")
        return data


_ANY_FORMAT: Final = 47
"""Tells gzip and zlib apart by itself."""
_GZIP: Final = b"\x1f\x8b"


def _is_packed(encoding: str) -> bool:
    encoding = encoding.strip().lower()
    if encoding in ("", "identity", "gzip", "x-gzip", "deflate"):
        return encoding not in ("", "identity")
    message = f"the server packs its answer as '{encoding:.20}', which was not asked for"
    raise BrokenExchangeError(message, is_final=True)


@asynccontextmanager
async def send_call(call: HttpCall) -> AsyncGenerator[HttpAnswer]:
    """Send it; the head of the answer. Leaving the block before the answer was read closes its connection."""
    pool, url = pool_of_this_loop(), call.url
    for _ in range(_MOST_REDIRECTS + 1):
        origin, target = _split(url)
        request = make_request(call.method, target, _headers(origin, call))
        connection = await pool.take(origin)
        answer: HttpAnswer | None = None
        try:
            call.is_sent = True
            head = await connection.request(request, call.body)
            answer = HttpAnswer(connection, head)
            if head.status in (301, 302, 303, 307, 308):
                url = _follow_redirect(url, head)
                await answer.finish()
                continue
            yield answer
            return
        finally:
            await _release(pool, origin, connection, answer)
    raise BrokenExchangeError("the server redirects in a circle", is_final=True, is_unread=True)


async def _release(pool: ConnectionPool, origin: Origin, connection: HttpConnection, answer: HttpAnswer | None) -> None:
    if answer is not None and answer.is_read:
        await pool.give_back(origin, connection)
    else:
        await connection.abort()
    if answer is not None and answer.postponed is not None:
        postpone_cancellation(answer.postponed)


def _split(url: str) -> tuple[Origin, str]:
    """The server of an address, and what is asked of it there."""
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError:
        host, port, parts = None, None, urlsplit("")
    if parts.scheme not in ("http", "https") or not host:
        raise BrokenExchangeError("its address is none that begins with http:// or https://", is_final=True)
    port = port or (443 if parts.scheme == "https" else 80)
    origin = Origin(parts.scheme, host, port, proxy_for(parts.scheme, host, port))
    path = quote(parts.path or "/", safe="/%:@!$&'()*+,;=~") + (f"?{parts.query}" if parts.query else "")
    return origin, f"{parts.scheme}://{origin.authority}{path}" if origin.is_forwarded else path


def _headers(origin: Origin, call: HttpCall) -> list[tuple[str, str]]:
    headers = [
        ("host", origin.authority),
        ("user-agent", f"flowengine/{__version__}"),
        ("accept-encoding", "gzip, deflate"),
        ("content-length", str(len(call.body))),
        *call.headers,
    ]
    return [*headers, *proxy_headers(origin.proxy)] if origin.is_forwarded and origin.proxy else headers


def _follow_redirect(url: str, head: ResponseHead) -> str:
    """Returns the address of a redirect that stays on the same server; raises for any other."""
    try:
        target = urljoin(url, head.headers.get("location", ""))
        source, destination = urlsplit(url), urlsplit(target)
    except ValueError:
        raise BrokenExchangeError("the server redirects to what is no address", is_final=True, is_unread=True) from None
    if head.status not in (307, 308) or (source.scheme, source.netloc) != (destination.scheme, destination.netloc):
        where = f"{destination.scheme}://{destination.netloc.rpartition('@')[2]}{destination.path}"
        raise BrokenExchangeError(
            f"the server answers {head.status} and redirects to {where:.200}, where neither the request nor its key is "
            f"sent: write the address that is meant into `base_url`",
            is_final=True,
            is_unread=True,
        )
    return target
