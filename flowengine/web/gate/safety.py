"""Decides who may ask what, from the head of a request alone, before any handler sees it. Pure.

At every door (`refuse_head`):

    length   said once: a proxy may have taken another part of what was sent for the body than we do (RFC 9112, 6.3)
    host     only names that the server is known by, so that no foreign name can be bound to its address
    origin   a page that asks is one of ours, or of a site that was named

At the viewer's (`TokenRule`):

    token    everything but the style sheet and the script needs it: as `Authorization: Bearer`, or as the cookie
             that a browser is given when it is opened with `?token=…`; a cookie changes nothing in the API. Pages of
             signed links (`ANSWERS`) need none: the link is the key

Pages' forms carry a second secret beside the cookie (`AccessKeys.form`); the reader of the form checks it.
"""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
from collections.abc import Collection
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address, ip_address
from typing import Final, NamedTuple
from urllib.parse import urlsplit

LOOPBACK: Final = ("localhost", "127.0.0.1", "::1")
ANSWERS: Final = "/answer/"
"""Path of the pages of signed links: a link says itself who answers what."""

_HOST: Final = re.compile(r"(?:\[(?P<address>[0-9A-Fa-f:.]+)\]|(?P<name>[^\s:@/\\?#\[\]]+))(?::[0-9]{0,5})?")
_SAFE_METHODS: Final = frozenset({"GET", "HEAD", "OPTIONS"})


def make_token() -> str:
    return secrets.token_urlsafe(24)


def is_loopback(host: str) -> bool:
    """Tells whether a name or an address is this machine's own.

    >>> is_loopback("127.0.0.2"), is_loopback("::1"), is_loopback("0.0.0.0")
    (True, True, False)
    """
    address = _address_of(host)
    return host == "localhost" or (address is not None and address.is_loopback)


@dataclass(frozen=True)
class AccessKeys:
    """The token, and what is derived from it: each is good for one thing only."""

    token: str

    @property
    def cookie(self) -> str:
        return self._derive_key("cookie")

    @property
    def form(self) -> str:
        return self._derive_key("form")

    def _derive_key(self, use: str) -> str:
        return hmac.new(self.token.encode(), use.encode(), hashlib.sha256).hexdigest()


@dataclass(frozen=True)
class Hosts:
    """The names that a server is known by, without ports."""

    names: Collection[str] = LOOPBACK
    any_address: bool = False
    """Also every IP address: no foreign name can be bound to one."""

    def knows(self, host: str) -> bool:
        """Tells whether the `Host` of a request is one of them.

        >>> Hosts().knows("localhost:8700"), Hosts().knows("[::1]:8700"), Hosts().knows("evil.example:8700")
        (True, True, False)
        """
        name = _name_of(host)
        if name is None:
            return False
        return name in self.names or (self.any_address and _address_of(name) is not None)


class RequestHead(NamedTuple):
    """The head of a request."""

    method: str
    path: str
    host: str
    origin: str | None = None
    fetch_site: str | None = None
    """`Sec-Fetch-Site`, which browsers send."""
    authorization: str | None = None
    cookie: str | None = None
    """The value of our cookie."""
    has_two_lengths: bool = False
    """Whether both `Content-Length` and `Transfer-Encoding` say where the body ends."""

    @property
    def changes(self) -> bool:
        """Whether it may change something."""
        return self.method not in _SAFE_METHODS


class Refusal(NamedTuple):
    status: int
    title: str
    detail: str


def refuse_head(head: RequestHead, hosts: Hosts | None, origins: Collection[str] = ()) -> Refusal | None:
    """Explains why a request is refused, whoever sends it; None if it is not.

    `hosts`: None: every name is known. `origins`: pages of other sites that may ask.
    """
    if head.has_two_lengths:
        return _TWO_LENGTHS
    if hosts is not None and not hosts.knows(head.host):
        return _UNKNOWN_NAME
    if head.origin is not None and head.origin not in origins and not is_same_origin(head.origin, head.host):
        return _FOREIGN
    return None


@dataclass(frozen=True)
class TokenRule:
    """The rule of a server with one token, which people use in browsers."""

    keys: AccessKeys
    read_only: bool = False
    """Whether nothing may be changed, by whomever."""

    def refusal(self, head: RequestHead) -> Refusal | None:
        """Explains why the request is refused; None if it is not."""
        if head.changes and self.read_only:
            return _READ_ONLY
        if (head.path.startswith("/static/") and not head.changes) or head.path.startswith(ANSWERS):
            return None
        if self._has_token(head):
            return None
        if head.cookie is None or not hmac.compare_digest(head.cookie.encode(), self.keys.cookie.encode()):
            return _NO_TOKEN
        return self._of_cookie(head) if head.changes else None

    def is_token(self, text: str) -> bool:
        return hmac.compare_digest(text.encode("utf-8", "replace"), self.keys.token.encode())

    def _has_token(self, head: RequestHead) -> bool:
        scheme, _, token = (head.authorization or "").partition(" ")
        return scheme.lower() == "bearer" and self.is_token(token.strip())

    def _of_cookie(self, head: RequestHead) -> Refusal | None:
        """A browser sends its cookie by itself: what it changes must come from one of our forms."""
        if head.path.startswith("/api/"):
            return _BEARER
        if head.origin is None and head.fetch_site != "same-origin":
            return _FOREIGN
        return None


_TWO_LENGTHS: Final = Refusal(400, "Not one length", "found both Transfer-Encoding and Content-Length")
_UNKNOWN_NAME: Final = Refusal(
    421, "Not known by this name", "ask by an address that the server told when it started; more names: --allow-host"
)
_FOREIGN: Final = Refusal(
    403, "Another site's request", "this server's own pages may ask; those of other sites with `serve --allow-origin`"
)
_READ_ONLY: Final = Refusal(403, "Only to look at", "this server was started with `--read-only`: use the command line")
_NO_TOKEN: Final = Refusal(
    401,
    "A token is needed",
    "open the address with the token that `flowengine ui` printed, or send `Authorization: Bearer TOKEN`",
)
_BEARER: Final = Refusal(403, "A cookie is not enough", "what changes something needs `Authorization: Bearer TOKEN`")


def cookie_name(host: str) -> str:
    """Cookies are shared by all ports of a host; servers on several ports must not take each other's away.

    >>> cookie_name("127.0.0.1:8700")
    'flowengine-8700'
    """
    port = host.rpartition(":")[2]
    return f"flowengine-{port if port.isdecimal() else 'web'}"


def _name_of(host: str) -> str | None:
    match = _HOST.fullmatch(host)
    return None if match is None else (match["address"] or match["name"]).lower().rstrip(".")


def _address_of(name: str) -> IPv4Address | IPv6Address | None:
    try:
        return ip_address(name)
    except ValueError:
        return None


def is_same_origin(origin: str, host: str) -> bool:
    """Tells whether a page of this host sent it. A TLS proxy before us changes the scheme, so that is not compared."""
    try:
        return urlsplit(origin).netloc.lower() == host.lower()
    except ValueError:
        return False
