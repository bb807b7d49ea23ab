"""An MCP server over streamable HTTP on loopback, in a thread, that misbehaves on demand.

    with HttpServer() as server:
        server.mode = "forgets"      # from now on it knows no session

It answers with plain JSON and keeps the headers of every request.
"""

from __future__ import annotations

import gzip
import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self

__all__ = ["HttpServer"]

TOOL: dict[str, Any] = {"name": "echo", "inputSchema": {"type": "object"}}

REFUSALS: dict[str, tuple[int, str, bool]] = {
    "forgets_404": (404, "Session not found", False),
    "forgets_400": (400, "Bad Request: No valid session ID provided", False),
    "own_400": (400, "no such city", True),
    "own_500": (500, "no such city", True),
    "own_closed": (200, "the town has closed", True),
    "forbidden": (403, "not for you", False),
}
"""Mode → status, text of the JSON-RPC error, and whether it has the id of the call."""


class HttpServer:
    """`mode`: plain, unauthorized, broken, garbage, hangs, forgets (until the next handshake), echoes_headers,
    packed, huge, fails (500 once it was called), drops (no response then), breaks_off (its stream ends), or one of
    `REFUSALS`. Those that begin with `forgets` end with the next handshake."""

    def __init__(self) -> None:
        self.mode = "plain"
        self.reads_only = False
        self.headers: list[dict[str, str]] = []
        self.calls = 0
        self.sessions = 0
        self.released = threading.Event()
        self._http = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._http.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._http.server_port}/mcp"

    def __enter__(self) -> Self:
        threading.Thread(target=self._http.serve_forever, args=(0.02,), daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> None:
        self.released.set()
        self._http.shutdown()
        self._http.server_close()

    def answer(self, message: dict[str, Any], headers: dict[str, str]) -> tuple[int, Any]:
        """Status and body."""
        method = message["method"]
        if self.mode == "unauthorized":
            return 401, {"error": f"bad token {headers.get('Authorization')}"}
        if self.mode == "broken":
            return 500, "oops"
        if self.mode == "garbage":
            return 200, "no json"
        if self.mode == "huge":
            return 200, self._result(message, {"content": [{"type": "text", "text": "a" * 2**25}]})
        if self.mode == "many":
            return 200, self._result(message, {"content": [{"type": "text", "text": ""}] * 100_000})
        if self.mode == "hangs":
            self.released.wait(30)
        if method == "initialize":
            self.mode = "plain" if self.mode.startswith("forgets") else self.mode
            self.sessions += 1
            return 200, self._result(message, initialized(message["params"]))
        if method == "server/discover" or "id" not in message:
            return 404 if "id" in message else 202, None
        if self.mode == "forgets":
            return 404, None
        if method == "tools/list":
            return 200, self._result(message, {"tools": [{**TOOL, "annotations": {"readOnlyHint": self.reads_only}}]})
        if self.mode in REFUSALS:
            status, text, is_own = REFUSALS[self.mode]
            error = {"code": -32000, "message": text}
            return status, {"jsonrpc": "2.0", "id": message["id"] if is_own else None, "error": error}
        self.calls += 1
        if self.mode in ("fails", "drops"):
            return 500 if self.mode == "fails" else 0, "oops"
        text = json.dumps(headers if self.mode == "echoes_headers" else message["params"]["arguments"])
        return 200, self._result(message, {"content": [{"type": "text", "text": text}]})

    def _result(self, message: dict[str, Any], result: dict[str, Any]) -> dict[str, Any]:
        return {"jsonrpc": "2.0", "id": message["id"], "result": result}

    def _handler(server: HttpServer) -> type[BaseHTTPRequestHandler]:  # noqa: N805 - `self` is the handler's
        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                message = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                headers = dict(self.headers.items())
                server.headers.append(headers)
                status, body = server.answer(message, headers)
                if status == 0:
                    self.close_connection = True
                    return
                content = b"" if body is None else body.encode() if isinstance(body, str) else json.dumps(body).encode()
                self.send_response(status)
                if server.mode == "packed":
                    content = gzip.compress(content)
                    self.send_header("Content-Encoding", "gzip")
                breaks = server.mode == "breaks_off" and message["method"] == "tools/call"
                content = b": it begins\n\n" if breaks else content
                self.send_header("Content-Type", "text/event-stream" if breaks else "application/json")
                self.send_header("Content-Length", str(len(content)))
                self.send_header("Mcp-Session-Id", f"session-{server.sessions}")
                self.end_headers()
                self.wfile.write(content)

            def do_GET(self) -> None:
                self.send_error(405)

            def do_DELETE(self) -> None:
                self.send_response(204)
                self.end_headers()

            def log_message(self, format: str, *args: Any) -> None:
                """Nothing: stderr belongs to the tests."""

        return Handler


def initialized(params: dict[str, Any]) -> dict[str, Any]:
    return {
        "protocolVersion": params["protocolVersion"],
        "capabilities": {"tools": {}},
        "serverInfo": {"name": "http", "version": "1"},
    }
