"""Sends the requests of nodes, and fetches files, where the project allows it: bounded, and to addresses that were
looked at.

Each redirect is judged as the first address was. A host is resolved here, its addresses are judged, and the connection
goes to one of them, whatever the name leads to a moment later; the certificate is still that of the name. Where the
project says so, requests go through the environment's proxy, and it is the proxy that resolves names: then what can be
resolved here is judged all the same, and the rest is the proxy's to judge. Values of the environment go to the first
origin only, and only where the project's entry names their variables.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final, NamedTuple, Protocol
from urllib.parse import unquote, urljoin, urlsplit

import anyio

from flowengine.core import (
    AddressRule,
    FileRules,
    RefusedAddressError,
    RefusedFileError,
    Secrets,
    allowed_url,
    check_addresses,
    leads_elsewhere,
    origin_of,
    refused_address,
)
from flowengine.errors import DefinitionError, RunError, UnknownEffectError, did_you_mean
from flowengine.models.http import (
    BrokenExchangeError,
    HttpAnswer,
    HttpConnection,
    NoConnectionError,
    Origin,
    ResponseHead,
    connect,
    make_request,
    open_stream,
    proxy_for,
    proxy_headers,
)
from flowengine.nodes.http_request import Answer, HttpRequest, describe_url
from flowengine.version import __version__

MAX_ANSWER: Final = 20 * 2**20
"""Bytes of an answer and of a request's body, where nothing else is said."""
_SECONDS: Final = 30.0
"""For a request whose node has no timeout: from its beginning to the answer's last byte."""
_REDIRECTS: Final = frozenset((301, 302, 303, 307, 308))
_OF_ORIGIN: Final = frozenset(("authorization", "cookie"))
"""Headers that are for the first origin only, wherever their values come from."""

Resolver = Callable[[str, int], Awaitable[Sequence[str]]]
"""Host and port → its addresses."""


class SentAnswer(NamedTuple):
    """The answer to a request, and where it came from."""

    answer: Answer
    url: str
    secrets: Secrets
    """What went out in headers and must not come back in outputs."""


class Sender(Protocol):
    """Sends a request; `UnknownEffectError` where it may have arrived although no answer came."""

    async def send(self, request: HttpRequest, seconds: float | None, /) -> SentAnswer: ...


async def look_up(host: str, port: int) -> Sequence[str]:
    """The addresses that the system has for a host."""
    entries = await anyio.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return [str(each[4][0]) for each in entries]


def _describe_unset(header: str, variable: str) -> str:
    return f"the header '{header}' comes from the environment variable {variable}, which is not set"


@dataclass(frozen=True)
class HttpSender:
    """Sends to where a project allows it."""

    allowed: Sequence[str] = ()
    """`allow_http` of the project."""
    environ: Mapping[str, str] = field(default_factory=lambda: os.environ, repr=False)
    resolve: Resolver = look_up
    max_bytes: int = MAX_ANSWER
    """Of an answer, and of a request's body."""
    uses_proxy: bool | None = False
    """Whether requests go through the proxy that the environment names (HTTPS_PROXY, HTTP_PROXY, NO_PROXY); None: not
    even where the project says so."""

    async def send(self, request: HttpRequest, seconds: float | None, /) -> SentAnswer:
        """`seconds`: the bound of the caller's time."""
        if len(request.content) > self.max_bytes:
            raise RunError(
                f"the request's body has {len(request.content):,} bytes, and {self.max_bytes:,} are the most"
            )
        with anyio.move_on_after(_SECONDS if seconds is None else None):
            return await self._follow(request)
        target = f"{request.method} {describe_url(request.url)}"
        raise UnknownEffectError(f"{target} had no whole answer within {_SECONDS:g} s; `timeout` gives it more")

    async def _follow(self, request: HttpRequest) -> SentAnswer:
        url, first, hops = request.url, origin_of(request.url), request.follow
        gone_out: dict[str, str] = {}
        while True:
            rule = self._rule_for(url)
            is_first = origin_of(url) == first
            secret = self._secret_values(request, rule) if is_first else {}
            gone_out |= secret
            own = {name: each for name, each in request.headers.items() if is_first or name not in _OF_ORIGIN}
            answer = await self._ask(request, url, rule, {**own, **secret})
            location = answer.headers.get("location")
            if answer.status not in _REDIRECTS or location is None or request.method not in ("GET", "HEAD"):
                break
            if hops == 0:
                break
            hops -= 1
            try:
                url = urljoin(url, location).partition("#")[0]
            except ValueError:
                beginning = f"{request.method} {describe_url(url)} answered with a redirect to {location!r:.200}"
                raise RunError(f"{beginning}, which is no address") from None
        return SentAnswer(answer, url, Secrets(list(gone_out.values())))

    def _rule_for(self, url: str) -> AddressRule:
        rule = allowed_url(url, self.allowed)
        if rule is None:
            hint = _hint_for(url, [each.split()[0] for each in self.allowed if each.strip()])
            raise RunError(f"the address '{describe_url(url)}' is not allowed{hint}")
        return rule

    def check_variables(self, secret_headers: Mapping[str, str]) -> None:
        """`DefinitionError` for a variable that a header comes from and that is not set here."""
        for name, variable in secret_headers.items():
            if not self.environ.get(variable, "").strip():
                raise DefinitionError(_describe_unset(name, variable))

    def _secret_values(self, request: HttpRequest, rule: AddressRule) -> dict[str, str]:
        values: dict[str, str] = {}
        for name, variable in request.secret_headers.items():
            if variable not in rule.variables:
                raise RunError(
                    f"the value of {variable} may not be sent to '{rule.beginning}': name the variable behind that "
                    f"entry of `allow_http`"
                )
            value = self.environ.get(variable, "").strip()
            if not value:
                raise RunError(_describe_unset(name, variable))
            if not (value.isascii() and value.isprintable()):
                raise RunError(f"the environment variable {variable} holds characters that no header can carry")
            values[name] = value
        return values

    async def _ask(self, request: HttpRequest, url: str, rule: AddressRule, headers: Mapping[str, str]) -> Answer:
        label = f"{request.method} {describe_url(url)}"
        split, (scheme, host, port) = urlsplit(url), origin_of(url) or ("", "", 0)
        request_headers = {"accept": "*/*", "user-agent": f"flowengine/{__version__}", **headers}
        request_headers |= {"host": split.netloc, "accept-encoding": "identity", "connection": "close"}
        if request.content or request.method not in ("GET", "HEAD", "DELETE"):
            request_headers["content-length"] = str(len(request.content))
        try:
            proxy = proxy_for(scheme, host, port) if self.uses_proxy else None
        except NoConnectionError as error:
            raise RunError(f"{label}: {error}") from None
        origin = Origin(scheme, host, port, proxy)
        target = f"{split.path or '/'}{split.query and '?'}{split.query}"
        if proxy is not None and origin.is_forwarded:
            target = f"{scheme}://{split.netloc}{target}"
            request_headers |= dict(proxy_headers(proxy))
        try:
            head_bytes = make_request(request.method, target, list(request_headers.items()))
        except BrokenExchangeError as error:
            raise RunError(f"{label}: {error}") from None
        connection = await self._connect(origin, rule, label)
        try:
            head = await connection.request(head_bytes, request.content)
            content = await self._read(connection, head, label)
        except BrokenExchangeError as error:
            raise UnknownEffectError(f"{label}: {error}") from error
        finally:
            await connection.abort()
        plain_headers = {name: value for name, value in head.headers.items() if name != "set-cookie"}
        return Answer(head.status, plain_headers, content)

    async def _connect(self, origin: Origin, rule: AddressRule, label: str) -> HttpConnection:
        """A connection to the first of a host's addresses that takes one, or through the proxy."""
        scheme, host, port, proxy = origin
        addresses: Sequence[str] = ()
        try:
            addresses = await self.resolve(host, port)
            check_addresses(host, addresses, rule)
        except RefusedAddressError as error:
            raise RunError(f"{label}: {error}") from None
        except OSError as error:
            if proxy is None:
                raise RunError(f"{label}: '{host}' is not known: {error!s:.200}") from error
        if proxy is not None:
            try:
                return await connect(origin)
            except NoConnectionError as error:
                raise RunError(f"{label}: no connection to {host} through its proxy: {error}") from None
        message = ""
        for address in addresses:
            try:
                return HttpConnection(await open_stream(scheme, host, port, address))
            except NoConnectionError as error:
                message = f"{label}: no connection to {host}: {error}"
        with suppress(NoConnectionError):  # What it names is no address.
            if self.uses_proxy is False and proxy_for(scheme, host, port) is not None:
                message += "; the environment names a proxy: `http_proxy = true` in the project file uses it"
        raise RunError(message)

    async def _read(self, connection: HttpConnection, head: ResponseHead, label: str) -> bytes:
        """The body, unpacked: some servers keep files packed, even where the request did not accept that."""
        answer = HttpAnswer(connection, head)
        answer.largest = self.max_bytes
        try:
            return await answer.read()
        except BrokenExchangeError as error:
            if not error.is_final:
                raise
            message = f"{label}: the answer has more than {self.max_bytes:,} bytes (`max_file` of [files])"
            raise UnknownEffectError(message) from None


async def fetch_file(url: str, rules: FileRules) -> tuple[str, bytes]:
    """Name and content of the file at an address; `RefusedFileError` where it is not allowed or does not come.

    Without redirects and proxies.
    """
    if allowed_url(url, rules.allow_urls) is None:
        raise refused_address(url)
    label, exchange = url[:200], None
    sender = HttpSender(rules.allow_urls, max_bytes=rules.max_file, uses_proxy=None)
    with anyio.move_on_after(_SECONDS):
        try:
            exchange = await sender.send(HttpRequest("GET", url.partition("#")[0]), _SECONDS)
        except RunError as error:
            raise RefusedFileError(f"'{label}' cannot be fetched: {error!s:.500}") from error
    if exchange is None:
        raise RefusedFileError(f"'{label}' did not come within {_SECONDS:g} s")
    if exchange.answer.status != 200:
        also = "; redirects are not followed" if 300 <= exchange.answer.status < 400 else ""
        raise RefusedFileError(f"'{label}' answered {exchange.answer.status}{also}")
    return unquote(urlsplit(url).path), exchange.answer.content


def _hint_for(url: str, beginnings: Sequence[str]) -> str:
    """Suggests how to allow an address."""
    if leads_elsewhere(url):
        return ": a part `..` of it, or a backslash, would lead somewhere else"
    if any(url.startswith(each.rstrip("/")) for each in beginnings):
        return (
            ": it has a user's name, a blank, or letters that no address has, or goes on right behind what is allowed"
        )
    return did_you_mean(url, beginnings) or "; list its beginning in `allow_http` of the project file"
