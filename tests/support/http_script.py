"""Answers HTTP requests with bytes that were written down before: what no server of good manners sends."""

from __future__ import annotations

import socket
import threading
from collections.abc import Sequence
from contextlib import suppress

__all__ = ["ScriptedHttp"]


class ScriptedHttp:
    """Serves in a thread while its `with` block lasts, one answer a request; the last one again and again.

    An answer that does not begin with `HTTP/` is a JSON body. After an answer that ends in `CLOSE` the connection is
    closed. `requests` holds what came, as bytes.
    """

    CLOSE = b"\0close"

    def __init__(self, *answers: bytes | Sequence[bytes]) -> None:
        self._answers = [[each] if isinstance(each, bytes) else list(each) for each in answers]
        self.requests: list[bytes] = []
        self.connections = 0
        self.closed = threading.Event()
        """Set once a connection was closed."""
        self.sent = threading.Event()
        """Set once an answer is in the client's hands, or its machine's."""
        self.parts = 0
        """So many parts of answers were taken by the client's machine."""

    def __enter__(self) -> str:
        return self.start()

    def __exit__(self, *exc: object) -> None:
        self.stop()

    def start(self) -> str:
        """Begin; the address."""
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._open: list[socket.socket] = []
        threading.Thread(target=self._accept, daemon=True).start()
        return f"http://127.0.0.1:{self._listener.getsockname()[1]}"

    def stop(self) -> None:
        self._listener.close()
        for each in self._open:
            each.close()

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            self.connections += 1
            self._open.append(connection)
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        with connection, suppress(OSError):
            self._answer(connection)
        self.closed.set()

    def _answer(self, connection: socket.socket) -> None:
        while (request := _read_request(connection)) is not None:
            self.requests.append(request)
            at = min(len(self.requests), len(self._answers)) - 1
            for part in self._answers[at]:
                connection.sendall(_response(part.removesuffix(self.CLOSE)))
                self.parts += 1
                self.sent.set()
                if part.endswith(self.CLOSE):
                    return


def _response(answer: bytes) -> bytes:
    if answer.startswith((b"HTTP/", b"+")):
        return answer.removeprefix(b"+")
    head = f"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {len(answer)}\r\n\r\n"
    return head.encode() + answer


def _read_request(connection: socket.socket) -> bytes | None:
    data = b""
    while b"\r\n\r\n" not in data:
        piece = connection.recv(65536)
        if not piece:
            return None
        data += piece
    head, _, body = data.partition(b"\r\n\r\n")
    lengths = [line.split(b":")[1] for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:")]
    length = int(lengths[0]) if lengths else 0
    while len(body) < length:
        piece = connection.recv(65536)
        if not piece:
            return None
        body += piece
    return head + b"\r\n\r\n" + body
