"""Fetches a file from an address that the project allows: bounded, without redirects, and never from inside a network.

A name that leads to a private address is refused, unless the project lists that very address (`http://127.0.0.1:8000/`).
The connection goes to the address that was looked at. Proxies are not used. It blocks: to be called in a thread.
"""

from __future__ import annotations

import http.client
import socket
import ssl
import time
from ipaddress import IPv6Address, ip_address
from typing import Final
from urllib.parse import unquote, urlsplit

from flowengine.core.file_rules import FileRules, RefusedFileError, allowed_url

__all__ = ["fetch_file"]

_SECONDS: Final = 30.0
"""For all of it."""
_PIECE: Final = 65_536


def fetch_file(url: str, rules: FileRules) -> tuple[str, bytes]:
    """Name and content of the file at an address; `RefusedFileError` where it is not allowed or does not come."""
    shown = url[:200]
    allowed = allowed_url(url, rules.allow_urls)
    if allowed is None:
        raise RefusedFileError(f"the address '{shown}' is not allowed: list its beginning in `allow_urls` of [files]")
    split = urlsplit(url)
    host, port = split.hostname or "", split.port or (443 if split.scheme == "https" else 80)
    try:
        connection = _connect(split.scheme, host, port)
        try:
            path = f"{split.path or '/'}{f'?{split.query}' if split.query else ''}"
            connection.request("GET", path, headers={"Accept-Encoding": "identity", "User-Agent": "flowengine"})
            with connection.getresponse() as response:
                content = _read(response, shown, rules.max_file)
        finally:
            connection.close()
    except (OSError, http.client.HTTPException) as error:
        raise RefusedFileError(f"'{shown}' cannot be fetched: {type(error).__name__}: {error!s:.200}") from error
    return unquote(split.path), content


def _connect(scheme: str, host: str, port: int) -> http.client.HTTPConnection:
    address = _address_of(host, port)
    connection = http.client.HTTPConnection(host, port, timeout=_SECONDS)
    opened = socket.create_connection((address, port), timeout=_SECONDS)
    try:
        if scheme == "https":
            opened = ssl.create_default_context().wrap_socket(opened, server_hostname=host)
    except BaseException:
        opened.close()
        raise
    connection.sock = opened
    return connection


def _address_of(host: str, port: int) -> str:
    """The address of a host; a private one is refused, unless the host is named by it."""
    found = [str(each[4][0]) for each in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)]
    if host == "localhost" or _is_address(host):
        return found[0]
    for each in found:
        if not _is_public(each):
            raise RefusedFileError(
                f"'{host}' leads to the private address {each}, from which no file is fetched: list the address itself"
            )
    return found[0]


def _is_address(host: str) -> bool:
    try:
        ip_address(host)
    except ValueError:
        return False
    return True


def _is_public(text: str) -> bool:
    """
    >>> [_is_public(each) for each in ("93.184.216.34", "10.1.2.3", "::1", "::ffff:127.0.0.1", "169.254.169.254")]
    [True, False, False, False, False]
    """
    address = ip_address(text.partition("%")[0])
    if isinstance(address, IPv6Address) and address.ipv4_mapped is not None:
        address = address.ipv4_mapped
    return address.is_global and not address.is_multicast


def _read(response: http.client.HTTPResponse, shown: str, most: int) -> bytes:
    if response.status != 200:
        also = "; redirects are not followed" if 300 <= response.status < 400 else ""
        raise RefusedFileError(f"'{shown}' answered {response.status}{also}")
    end, pieces, size = time.monotonic() + _SECONDS, list[bytes](), 0
    while piece := response.read1(_PIECE):
        pieces.append(piece)
        size += len(piece)
        if size > most:
            raise RefusedFileError(f"'{shown}' has more than {most:,} bytes (`max_file` of [files])")
        if time.monotonic() > end:
            raise RefusedFileError(f"'{shown}' did not come within {_SECONDS:g} s")
    if response.length:  # What the server promised and did not send.
        raise RefusedFileError(f"'{shown}' broke off after {size:,} bytes")
    return b"".join(pieces)
