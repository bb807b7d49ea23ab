"""Fetches a file from an address that the project allows: bounded, without redirects, and never from inside a network.

What is allowed is the rule of `address_rules`, which nodes of the type `http` follow as well. Proxies are not used.
It blocks: to be called in a thread.
"""

from __future__ import annotations

import http.client
import socket
import ssl
import threading
import time
from contextlib import closing, suppress
from typing import Final
from urllib.parse import unquote, urlsplit

from flowengine.core.address_rules import AddressRule, RefusedAddressError, allowed_url, check_addresses
from flowengine.core.file_values import FileRules, RefusedFileError

__all__ = ["fetch_file"]

_SECONDS: Final = 30.0
"""For the whole fetch, from the connection to the last byte: a server may send what it likes, byte by byte."""
_PIECE: Final = 65_536


def fetch_file(url: str, rules: FileRules) -> tuple[str, bytes]:
    """Name and content of the file at an address; `RefusedFileError` where it is not allowed or does not come."""
    shown = url[:200]
    allowed = allowed_url(url, rules.allow_urls)
    if allowed is None:
        raise RefusedFileError(f"the address '{shown}' is not allowed: list its beginning in `allow_urls` of [files]")
    split = urlsplit(url)
    host, port = split.hostname or "", split.port or (443 if split.scheme == "https" else 80)
    begun = time.monotonic()
    try:
        opened = socket.create_connection((_address_of(host, port, allowed), port), timeout=_SECONDS)
    except OSError as error:
        raise RefusedFileError(f"'{shown}' cannot be fetched: {type(error).__name__}: {error!s:.200}") from error
    end = _Deadline(opened, _SECONDS - (time.monotonic() - begun))
    try:
        with end, closing(_connect(opened, split.scheme, host, port)) as connection:
            path = f"{split.path or '/'}{f'?{split.query}' if split.query else ''}"
            connection.request("GET", path, headers={"Accept-Encoding": "identity", "User-Agent": "flowengine"})
            with connection.getresponse() as response:
                content = _read(response, shown, rules.max_file)
            if end.has_passed:  # Then it may only look as if the server had ended it.
                raise TimeoutError
    except (OSError, http.client.HTTPException, RefusedFileError) as error:
        if end.has_passed:
            raise RefusedFileError(f"'{shown}' did not come within {_SECONDS:g} s") from error
        if isinstance(error, RefusedFileError):
            raise
        raise RefusedFileError(f"'{shown}' cannot be fetched: {type(error).__name__}: {error!s:.200}") from error
    return unquote(split.path), content


class _Deadline:
    """Ends a connection after so many seconds, in whichever wait it then is."""

    def __init__(self, connection: socket.socket, seconds: float) -> None:
        self._own = connection.dup()  # TLS takes the other away.
        self._timer = threading.Timer(seconds, self._pass)
        self._timer.daemon = True
        self.has_passed = False

    def _pass(self) -> None:
        self.has_passed = True
        with suppress(OSError):  # It has ended already.
            self._own.shutdown(socket.SHUT_RDWR)

    def __enter__(self) -> None:
        self._timer.start()

    def __exit__(self, *error: object) -> None:
        self._timer.cancel()
        self._own.close()


def _connect(opened: socket.socket, scheme: str, host: str, port: int) -> http.client.HTTPConnection:
    connection = http.client.HTTPConnection(host, port, timeout=_SECONDS)
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
    pieces, size = list[bytes](), 0
    while piece := response.read1(_PIECE):
        pieces.append(piece)
        size += len(piece)
        if size > most:
            raise RefusedFileError(f"'{shown}' has more than {most:,} bytes (`max_file` of [files])")
    if response.length:  # What the server promised and did not send.
        raise RefusedFileError(f"'{shown}' broke off after {size:,} bytes")
    return b"".join(pieces)
