"""Fetches a file from an address that the project allows: bounded, without redirects, and never from inside a network.

What is allowed is the rule of `address_rules`, which nodes of the type `http` follow as well. Proxies are not used.
It blocks: to be called in a thread.
"""

from __future__ import annotations

import http.client
import socket
import ssl
import time
from typing import Final
from urllib.parse import unquote, urlsplit

from flowengine.core.address_rules import AddressRule, RefusedAddressError, allowed_url, check_addresses
from flowengine.core.file_values import FileRules, RefusedFileError

__all__ = ["fetch_file"]

_SECONDS: Final = 30.0
"""For each wait for the server, and for the whole content."""
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
        connection = _connect(split.scheme, host, port, allowed)
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


def _connect(scheme: str, host: str, port: int, rule: AddressRule) -> http.client.HTTPConnection:
    address = _address_of(host, port, rule)
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


def _address_of(host: str, port: int, rule: AddressRule) -> str:
    """The address of a host, if it is one that the rule allows."""
    found = [str(each[4][0]) for each in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)]
    try:
        return check_addresses(host, found, rule)
    except RefusedAddressError as error:
        raise RefusedFileError(str(error)) from None


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
