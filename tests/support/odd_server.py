"""An HTTP server on loopback that behaves as tests want it: redirects, slow and huge answers, lost connections."""

from __future__ import annotations

import json
import ssl
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, NamedTuple

__all__ = ["OddServer", "Seen"]


class Seen(NamedTuple):
    """A request that arrived."""

    method: str
    path: str
    headers: dict[str, str]
    body: str


class _Handler(BaseHTTPRequestHandler):
    server: Any
    protocol_version = "HTTP/1.1"

    def serve(self) -> None:
        body = self.rfile.read(int(self.headers.get("content-length", 0))).decode("utf-8", "replace")
        headers = {name.lower(): value for name, value in self.headers.items()}
        self.server.odd.seen.append(Seen(self.command, self.path, headers, body))
        self.server.odd.answer(self)

    def log_message(self, format: str, *args: Any) -> None:
        """Tests look at what arrived themselves."""


for _method in ("GET", "POST", "PUT", "DELETE", "PATCH", "HEAD"):
    setattr(_Handler, f"do_{_method}", _Handler.serve)


class OddServer:
    """`with OddServer() as server: …`; `server.url` ends without a slash. `routes`: path → what answers there."""

    def __init__(self, tls: ssl.SSLContext | None = None) -> None:
        self.seen: list[Seen] = []
        self.routes: dict[str, Callable[[BaseHTTPRequestHandler], None]] = {}
        self.stopped = threading.Event()
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _Handler)
        self._server.daemon_threads = True
        if tls is not None:
            self._server.socket = tls.wrap_socket(self._server.socket, server_side=True)
        self._server.odd = self  # type: ignore[attr-defined] -- for the handlers
        self.port = self._server.server_address[1]
        self.url = f"http://127.0.0.1:{self.port}"
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.01})

    def answer(self, handler: BaseHTTPRequestHandler) -> None:
        self.routes.get(handler.path.partition("?")[0], _echo)(handler)

    def __enter__(self) -> OddServer:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stopped.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def redirect(self, path: str, to: str, status: int = 302) -> None:
        self.routes[path] = lambda handler: say(handler, b"", status=status, location=to)


def say(handler: BaseHTTPRequestHandler, content: bytes, *, status: int = 200, **headers: str) -> None:
    """An answer; underscores in names of headers stand for hyphens."""
    handler.send_response(status)
    for name, value in headers.items():
        handler.send_header(name.replace("_", "-"), value)
    handler.send_header("content-length", str(len(content)))
    handler.end_headers()
    if handler.command != "HEAD":
        handler.wfile.write(content)


def _echo(handler: BaseHTTPRequestHandler) -> None:
    server: Any = handler.server
    last: Seen = server.odd.seen[-1]
    content = json.dumps({"method": last.method, "path": last.path, "body": last.body}).encode()
    say(handler, content, content_type="application/json")
