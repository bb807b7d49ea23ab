"""Keeps the connections of an event loop: one that is idle is used again, and all are closed when the loop ends.

Proxies and CA bundles of the environment hold. It knows servers and streams, and nothing of what is sent over them.
"""

from __future__ import annotations

import asyncio
import os
import ssl
import weakref
from base64 import b64encode
from collections.abc import AsyncGenerator, Generator
from contextlib import contextmanager, suppress
from functools import cache
from ipaddress import ip_address
from time import monotonic
from typing import Final, NamedTuple, cast
from urllib.parse import unquote, urlsplit

import anyio
from anyio.abc import ByteStream
from anyio.lowlevel import RunVar
from anyio.streams.tls import TLSStream

from flowengine.models.http.http_connection import BrokenExchangeError, HttpConnection, make_request

_LONGEST_IDLE: Final = 30.0
"""Seconds after which an idle connection is not used again: many servers close theirs after a minute."""
_LONGEST_CONNECT: Final = 15.0
"""Seconds to reach a server: the vendors' own clients wait for five."""
_MOST_IDLE: Final = 100
"""Idle connections to one server."""


class NoConnectionError(Exception):
    """No server was reached, so nothing was sent. `is_final`: none will be, whenever it is tried."""

    def __init__(self, message: str, *, is_final: bool = False) -> None:
        super().__init__(message)
        self.is_final = is_final


class Origin(NamedTuple):
    """A server, and the proxy on the way to it."""

    scheme: str
    host: str
    port: int
    proxy: str | None = None

    @property
    def authority(self) -> str:
        """The host and the port, as a `Host` header has them."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == _PORTS[self.scheme] else f"{host}:{self.port}"

    @property
    def is_forwarded(self) -> bool:
        """Whether a proxy reads and forwards the requests, rather than the bytes of a tunnel."""
        return self.proxy is not None and self.scheme == "http"


_PORTS: Final = {"http": 80, "https": 443}


class ConnectionPool:
    """The connections of one event loop."""

    def __init__(self) -> None:
        self._idle: dict[Origin, list[HttpConnection]] = {}
        try:
            self._loop = weakref.ref(asyncio.get_running_loop())
        except RuntimeError:  # It is one of trio, which always closes what it began.
            self._loop = None

    @property
    def is_over(self) -> bool:
        """Whether its loop was closed without ending what was begun in it."""
        loop = None if self._loop is None else self._loop()
        return self._loop is not None and (loop is None or loop.is_closed())

    def forget(self) -> None:
        """Drop the connections of a loop that is over: they hold it, and it them."""
        self._idle.clear()

    async def take(self, origin: Origin) -> HttpConnection:
        """A connection to a server, which is the caller's until it is given back or aborted."""
        idle = self._idle.get(origin, [])
        while idle:
            connection = idle.pop()
            if monotonic() - connection.idle_since < _LONGEST_IDLE and not connection.is_dead():
                return connection
            await connection.abort()
        return await connect(origin)

    async def give_back(self, origin: Origin, connection: HttpConnection) -> None:
        """Keep it for the next request, if there can be one."""
        idle = self._idle.setdefault(origin, [])
        if len(idle) < _MOST_IDLE and connection.make_idle():
            idle.append(connection)
        else:
            await connection.abort()

    async def close(self) -> None:
        """Close what is idle."""
        idle, self._idle = self._idle, {}
        for connections in idle.values():
            for connection in connections:
                await connection.abort()


# --- The pool of a loop

_pool: Final[RunVar[ConnectionPool]] = RunVar("the HTTP connections of this loop")
_keepers: Final[dict[ConnectionPool, AsyncGenerator[None]]] = {}
"""Held, so that none is thrown away before its loop ends."""


def pool_of_this_loop() -> ConnectionPool:
    """The connections of the loop that runs the caller."""
    pool = _pool.get(None)
    if pool is None:
        for each in [each for each in _keepers if each.is_over]:
            each.forget()
            del _keepers[each]
        pool = ConnectionPool()
        _pool.set(pool)
        keeper = _keep(pool)
        with suppress(StopIteration):  # It waits for nothing before its `yield`.
            keeper.asend(None).send(None)
        _keepers[pool] = keeper
    return pool


async def _keep(pool: ConnectionPool) -> AsyncGenerator[None]:
    """Closes at the loop's end: a loop that is shut down ends the generators that were begun in it."""
    try:
        yield
    finally:
        _keepers.pop(pool, None)
        with anyio.CancelScope(shield=True):
            await pool.close()


# --- Connecting


async def connect(origin: Origin) -> HttpConnection:
    """A connection to a server, or through its proxy; `NoConnectionError` where none is reached."""
    with _explaining(), anyio.move_on_after(_LONGEST_CONNECT):
        return await _connect(origin)
    raise NoConnectionError(f"it was not reached within {_LONGEST_CONNECT:g} s")


async def _connect(origin: Origin) -> HttpConnection:
    if origin.proxy is None:
        return HttpConnection(await _stream_to(origin.scheme, origin.host, origin.port))
    parts = urlsplit(origin.proxy)
    if parts.scheme not in _PORTS or not parts.hostname:
        raise NoConnectionError(
            f"a proxy of the kind {parts.scheme}:// is not known here; http:// and https:// are", is_final=True
        )
    stream = await _stream_to(parts.scheme, parts.hostname, parts.port or _PORTS[parts.scheme])
    connection = HttpConnection(stream)
    if origin.is_forwarded:
        return connection
    target = f"[{origin.host}]:{origin.port}" if ":" in origin.host else f"{origin.host}:{origin.port}"
    try:
        request = make_request("CONNECT", target, [("host", target), *proxy_headers(origin.proxy)])
        head = await connection.request(request, b"")
    except BrokenExchangeError as error:
        await connection.abort()
        raise NoConnectionError(f"the proxy {parts.hostname} gave no tunnel: {error}") from None
    except BaseException:
        await connection.abort()
        raise
    if not 200 <= head.status < 300:
        await connection.abort()
        raise NoConnectionError(f"the proxy {parts.hostname} answers {head.status}")
    return HttpConnection(await _secure_stream(stream, origin.host))


async def open_stream(scheme: str, host: str, port: int, address: str) -> ByteStream:
    """A stream to a host at one of its addresses; `NoConnectionError` where no server is reached there."""
    with _explaining():
        return await _stream_to(scheme, host, port, address)


@contextmanager
def _explaining() -> Generator[None]:
    try:
        yield
    except (OSError, ssl.SSLError, anyio.BrokenResourceError, anyio.EndOfStream) as error:
        cause = _find_cause(error)
        raise NoConnectionError(_explain(cause), is_final=isinstance(cause, ssl.SSLCertVerificationError)) from None


async def _stream_to(scheme: str, host: str, port: int, address: str | None = None) -> ByteStream:
    stream = await anyio.connect_tcp(address or host, port)
    return stream if scheme == "http" else await _secure_stream(stream, host)


async def _secure_stream(stream: ByteStream, host: str) -> ByteStream:
    try:
        # Answers say themselves where they end, so no closing word of TLS is waited for.
        return await TLSStream.wrap(stream, hostname=host, ssl_context=_ssl_context(), standard_compatible=False)
    except BaseException:
        await anyio.aclose_forcefully(stream)
        raise


_DEEPEST: Final = 8
"""Causes of causes that are looked at."""


def _find_cause(error: BaseException) -> BaseException:
    """The error of the system or of TLS behind it."""
    for _ in range(_DEEPEST):
        cause = error.__cause__ or error.__context__
        if isinstance(cause, BaseExceptionGroup):
            cause = cast("BaseExceptionGroup[BaseException]", cause).exceptions[0]
        if not isinstance(cause, OSError):
            break
        error = cause
    return error


def _explain(error: BaseException) -> str:
    """Explains why no server was reached, without the libraries' wording."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"its certificate is not trusted: {error.verify_message}"
    if isinstance(error, ssl.SSLError):
        return f"no TLS: {error.reason or error}"
    if isinstance(error, OSError) and error.errno is not None:
        # asyncio puts the address into the text, which stands before it.
        return os.strerror(error.errno) if error.errno > 0 else str(error.strerror)
    return str(error) or "it closed the connection"


# --- The environment

_BUNDLES: Final = ("SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE")


def _ssl_context() -> ssl.SSLContext:
    bundle = next((os.environ[name] for name in _BUNDLES if os.environ.get(name)), None)
    return _context_of(bundle, os.environ.get("SSL_CERT_DIR") or None)


@cache
def _context_of(bundle: str | None, folder: str | None) -> ssl.SSLContext:
    """Made once a process: reading certificates takes long."""
    if bundle is not None and os.path.isdir(bundle):
        bundle, folder = None, bundle
    if bundle is not None or folder is not None:
        try:
            return ssl.create_default_context(cafile=bundle, capath=folder)
        except OSError as error:
            raise NoConnectionError(
                f"no certificates can be read from {bundle or folder}: {error.strerror}", is_final=True
            ) from None
    import certifi  # Some systems have no certificates where Python looks for them.

    return ssl.create_default_context(cafile=certifi.where())


def proxy_for(scheme: str, host: str, port: int) -> str | None:
    """The proxy that the environment names for a server; none for this machine, which a proxy does not reach."""
    if _is_here(host) or not any(os.environ.get(name) for name in _PROXY_VARIABLES):
        return None
    from urllib.request import getproxies, proxy_bypass  # Slow to load, and rarely needed.

    proxies = getproxies()
    proxy = proxies.get(scheme) or proxies.get("all")
    if not proxy or proxy_bypass(f"{host}:{port}"):
        return None
    proxy = proxy if "://" in proxy else f"http://{proxy}"
    try:
        _ = urlsplit(proxy).port
    except ValueError:  # Its text may hold a part of a password.
        raise NoConnectionError(
            f"the proxy that the environment names for {scheme}:// is no address", is_final=True
        ) from None
    return proxy


def _is_here(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


_PROXY_VARIABLES: Final = ("http_proxy", "https_proxy", "all_proxy", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY")


def proxy_headers(proxy: str) -> list[tuple[str, str]]:
    """The credentials for a proxy: the name and the password in its address."""
    parts = urlsplit(proxy)
    if parts.username is None:
        return []
    credentials = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
    return [("proxy-authorization", f"Basic {b64encode(credentials.encode()).decode()}")]
