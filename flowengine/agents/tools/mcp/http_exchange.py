"""Says what became of a call over HTTP: by status, ids and how its stream ended, never by the words of a library.

The `mcp` library makes one error of all that can go wrong. What really came is seen by the client under it: each
request notes its response in the `HttpExchange` of the call that it was made for. Bodies are bounded here too.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import AsyncGenerator, Mapping
from contextvars import ContextVar
from typing import Any, Final, Literal, TypeAlias, cast

import httpx2

from flowengine.core import MAX_VALUES, ValueCounter

_MAX_BODY: Final = 32 * 1024 * 1024
"""Bytes of an answer over HTTP, where it is no stream, whose events have a bound of the library's."""
_EVENT_END: Final = re.compile(rb"(?:\r\n|\r|\n){2}")
_SESSION: Final = "mcp-session-id"

Fate: TypeAlias = Literal["answered", "refused", "forgotten", "unsent", "lost", "unclear"]
"""The server answered, with an error of its own; it looked at nothing of the call; it does not know the session, and
looked at nothing; the call never went out; the connection ended before an answer; what came is no answer."""


class HttpExchange:
    """The request of one call, and what came of it."""

    def __init__(self) -> None:
        self.is_unsent = False
        self.response: httpx2.Response | None = None
        self.broke_off = False
        """Whether the response's stream ended before its reader had what it wanted."""

    @property
    def fate(self) -> Fate:
        """The meaning of an error of the call."""
        response = self.response
        if response is None:
            return "unsent" if self.is_unsent else "lost"
        if _is_stream(response):
            return "lost" if self.broke_off else "answered"
        if self._answers(response):
            return "answered"
        if response.status_code in (400, 404) and _SESSION in response.request.headers:
            return "forgotten"
        return "refused" if 300 <= response.status_code < 500 and response.status_code != 408 else "unclear"

    @property
    def summary(self) -> str:
        """The response's status and, where it has one, the text of its error; of bounded length."""
        response = self.response
        if response is None:
            return "no response"
        error = _read_body(response).get("error")
        text = str(cast("Mapping[str, Any]", error).get("message", "")) if isinstance(error, Mapping) else ""
        return f"HTTP {response.status_code}{text and ': '}{text:.500}"

    def _answers(self, response: httpx2.Response) -> bool:
        """Tells whether the body is an answer to this very request."""
        body = _read_body(response)
        try:
            request = json.loads(response.request.content)
        except ValueError:
            return False
        return "id" in body and body["id"] == request.get("id") and ("error" in body or "result" in body)


EXCHANGE: Final[ContextVar[HttpExchange | None]] = ContextVar("flowengine_mcp_exchange", default=None)
"""The exchange of the call that is being made; the library's tasks inherit it from the caller."""


class NotingClient(httpx2.AsyncClient):
    """The client of one server: it notes what becomes of each request, and bounds what comes."""

    async def send(self, request: httpx2.Request, **options: Any) -> httpx2.Response:
        exchange = EXCHANGE.get()
        try:
            response = await super().send(request, **options)
        except (httpx2.ConnectError, httpx2.ConnectTimeout, httpx2.PoolTimeout):
            if exchange is not None:
                exchange.is_unsent = exchange.response is None
            raise
        response.stream = _BoundedBody(response, exchange)
        if exchange is not None:
            exchange.response = response
        return response


def _is_stream(response: httpx2.Response) -> bool:
    return response.headers.get("content-type", "").lower().startswith("text/event-stream")


def _read_body(response: httpx2.Response) -> Mapping[str, Any]:
    """The body as an object; an empty one where it is none, or was not read."""
    try:
        body: Any = json.loads(response.content)
    except (httpx2.ResponseNotRead, ValueError, RecursionError):
        return {}
    return cast("Mapping[str, Any]", body) if isinstance(body, dict) else {}


class _BoundedBody(httpx2.AsyncByteStream):
    """The body of an answer; one that is too long is refused, and so is a packed one, which could become any length."""

    def __init__(self, response: httpx2.Response, exchange: HttpExchange | None) -> None:
        self._stream = cast("httpx2.AsyncByteStream", response.stream)
        self._exchange = exchange or HttpExchange()
        self._declared = int(response.headers.get("content-length", "0"))
        self._packing = response.headers.get("content-encoding", "").strip().lower()
        self._most = math.inf if _is_stream(response) else _MAX_BODY
        self._counter = ValueCounter()

    async def __aiter__(self) -> AsyncGenerator[bytes]:
        try:
            async for chunk in self._chunks():
                yield chunk
        except GeneratorExit:  # The reader has what it wanted.
            raise
        except BaseException:
            self._exchange.broke_off = True
            raise
        self._exchange.broke_off = True

    async def _chunks(self) -> AsyncGenerator[bytes]:
        if self._packing not in ("", "identity"):
            raise httpx2.StreamError(f"it is packed as '{self._packing:.20}', which was not asked for")
        size = self._declared
        if size <= self._most:
            size = 0
            async for chunk in self._stream:
                size += len(chunk)
                if size > self._most:
                    break
                if not self._has_too_many_values(chunk):
                    yield chunk
                elif self._most == math.inf:
                    break
        if size > self._most:
            raise httpx2.StreamError(f"it has more than {_MAX_BODY:,} bytes")
        if self._counter.count > MAX_VALUES:
            raise httpx2.StreamError(f"it has more than {MAX_VALUES:,} values")

    def _has_too_many_values(self, chunk: bytes) -> bool:
        """Tells whether the body, or an event of a stream, has had very many values; the rest of a body is read out."""
        for number, part in enumerate(_EVENT_END.split(chunk)):
            if self._counter.count <= MAX_VALUES:
                self._counter = ValueCounter() if number else self._counter
                self._counter.feed(part)
        return self._counter.count > MAX_VALUES

    async def aclose(self) -> None:
        await self._stream.aclose()
