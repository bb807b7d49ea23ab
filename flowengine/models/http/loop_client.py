"""Sends requests over HTTP: one client for an event loop, whose connections are kept until the loop ends.

On asyncio and on trio alike, in the caller's own task. Proxies and CA bundles of the environment hold. Redirects to
another host are refused, bodies have a bound. It knows no vendor.
"""

from __future__ import annotations

import ssl
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import aclosing, asynccontextmanager, suppress
from typing import Final
from urllib.parse import urljoin, urlsplit

import anyio
import httpx
from anyio.lowlevel import RunVar

__all__ = ["BrokenExchangeError", "HttpAnswer", "HttpPost", "NoConnectionError", "send_post"]

_MOST_REDIRECTS: Final = 3
_LARGEST: Final = 64 * 1024 * 1024
"""Bytes of a body."""


class NoConnectionError(Exception):
    """Nobody was reached, so nothing was sent."""


class BrokenExchangeError(Exception):
    """The exchange failed after it had begun. `is_final`: the same request will fail again."""

    def __init__(self, message: str, *, is_final: bool = False) -> None:
        super().__init__(message)
        self.is_final = is_final


class HttpPost:
    """What is sent."""

    __slots__ = ("body", "headers", "url")

    def __init__(self, url: str, headers: Mapping[str, str], body: bytes) -> None:
        self.url = url
        self.headers = headers
        self.body = body


class HttpAnswer:
    """A response whose head has come."""

    def __init__(self, response: httpx.Response) -> None:
        self._response = response
        self.status = response.status_code
        self.headers: Mapping[str, str] = response.headers

    async def chunks(self) -> AsyncGenerator[bytes]:
        """The body as it comes, unpacked."""
        size, parts = 0, self._response.aiter_bytes()
        try:
            async for chunk in parts:
                size += len(chunk)
                if size > _LARGEST:
                    raise BrokenExchangeError(f"the server's answer has more than {_LARGEST:,} bytes", is_final=True)
                yield chunk
        except (httpx.HTTPError, httpx.StreamError) as error:
            raise _broken(error) from None
        finally:
            with anyio.CancelScope(shield=True):
                await self._end(parts)

    async def read(self) -> bytes:
        """The whole body."""
        async with aclosing(self.chunks()) as chunks:
            return b"".join([chunk async for chunk in chunks])

    async def _end(self, parts: AsyncIterator[bytes]) -> None:
        """Close the response. httpx's generators stand in each other and end only by being read: on a closed
        connection they fail at once."""
        await self._response.aclose()
        with suppress(Exception):
            async for _ in parts:
                pass


@asynccontextmanager
async def send_post(post: HttpPost) -> AsyncGenerator[HttpAnswer]:
    """Send it; the head of the answer. Leaving the block closes what was not read to its end."""
    client, url = _client_of_this_loop(), post.url
    for _ in range(_MOST_REDIRECTS + 1):
        request = client.build_request("POST", url, headers=dict(post.headers), content=post.body)
        try:
            response = await client.send(request, stream=True)
        except (httpx.ConnectError, httpx.ConnectTimeout, httpx.ProxyError) as error:
            raise NoConnectionError(_reason(error)) from None
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            raise _broken(error) from None
        try:
            if response.status_code in (301, 302, 303, 307, 308):
                url = _redirected(url, response)
                continue
            yield HttpAnswer(response)
            return
        finally:
            await response.aclose()
    raise BrokenExchangeError("the server redirects in a circle", is_final=True)


def _redirected(url: str, response: httpx.Response) -> str:
    """Where the same request goes next: another place of the same server, or nowhere."""
    target = urljoin(url, response.headers.get("location", ""))
    asked, told = urlsplit(url), urlsplit(target)
    if response.status_code not in (307, 308) or (asked.scheme, asked.netloc) != (told.scheme, told.netloc):
        where = f"{told.scheme}://{told.netloc.rpartition('@')[2]}"
        raise BrokenExchangeError(
            f"the server answers {response.status_code} and redirects to {where}, where neither the request nor its "
            f"key is sent: write the address that is meant into `base_url`",
            is_final=True,
        )
    return target


def _broken(error: Exception) -> BrokenExchangeError:
    if isinstance(error, httpx.RemoteProtocolError | httpx.ReadError | httpx.StreamError):
        return BrokenExchangeError("the connection broke off before the answer's end")
    if isinstance(error, httpx.DecodingError):
        return BrokenExchangeError("the server's answer cannot be unpacked")
    final = isinstance(error, httpx.UnsupportedProtocol | httpx.InvalidURL)
    return BrokenExchangeError(_reason(error), is_final=final)


def _reason(error: Exception) -> str:
    return " ".join(str(error).split()) or type(error).__name__


# --- The client of a loop

_kept: Final[RunVar[httpx.AsyncClient | None]] = RunVar("the HTTP client of this loop")


def _client_of_this_loop() -> httpx.AsyncClient:
    client = _kept.get(None)
    if client is None:
        limits = httpx.Limits(max_connections=None, max_keepalive_connections=100, keepalive_expiry=30.0)
        client = httpx.AsyncClient(timeout=None, limits=limits, verify=_ssl_context())
        _kept.set(client)
        keeper = _keeper(client)
        with suppress(StopIteration):  # it waits for nothing before its `yield`
            keeper.asend(None).send(None)
        _keepers.add(keeper)
    return client


_keepers: Final[set[AsyncGenerator[None]]] = set()
"""Held, so that none is thrown away before its loop ends."""


async def _keeper(client: httpx.AsyncClient) -> AsyncGenerator[None]:
    """Closes at the loop's end: a loop that is shut down ends the generators that were begun in it."""
    try:
        yield
    finally:
        _kept.set(None)
        with suppress(Exception):  # whoever ends the loop has nothing to do with it
            await client.aclose()


def _ssl_context() -> ssl.SSLContext:
    return httpx.create_ssl_context()
