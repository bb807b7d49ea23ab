"""The smallest server that shows a run's pages over loopback, for tests of what happens in a browser."""

from __future__ import annotations

import threading
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

from flowengine.engine.events import Event, TokenStreamed
from visualize.plain import compact
from visualize.viewer.feed import feed_line
from visualize.viewer.forms import Acting
from visualize.viewer.page import CSP, asset
from visualize.viewer.panel import node_panel
from visualize.viewer.reading import Reading
from visualize.viewer.run import run_page

__all__ = ["PageServer", "page_server"]


class PageServer:
    """Shows one run; what is told to it later goes to the browsers that listen."""

    def __init__(self, events: Sequence[Event]) -> None:
        self.events = list(events)
        self.pages: dict[str, str] = {}
        """Other pages, by their paths."""
        self.posted: list[tuple[str, dict[str, list[str]]]] = []
        self.url = ""
        self.is_open = True
        self._listeners = 0
        self._told: list[str] = []
        """What goes to listeners, in order: whole messages of the stream."""
        self._news = threading.Condition()

    def tell(self, *events: Event | TokenStreamed) -> None:
        with self._news:
            for event in events:
                if isinstance(event, TokenStreamed):
                    self._told.append(f"data: {feed_line(event)}\n\n")
                    continue
                seq = len(self.events)
                self.events.append(event)
                self._told.append(f"id: {seq}\ndata: {feed_line(event, seq)}\n\n")
            self._news.notify_all()

    def wait_for_listener(self) -> None:
        """Until a browser has asked for the stream: texts that are told before that are heard by nobody."""
        with self._news:
            assert self._news.wait_for(lambda: self._listeners > 0, 60)

    def close(self) -> None:
        with self._news:
            self.is_open = False
            self._news.notify_all()

    def stream(self, after: int) -> Generator[bytes]:
        """The events from a position on, then what is told, until the server closes."""
        with self._news:
            begin = [f"id: {seq}\ndata: {feed_line(event, seq)}\n\n" for seq, event in enumerate(self.events)][after:]
            sent = len(self._told)
            self._listeners += 1
            self._news.notify_all()
        yield "".join(begin).encode()
        while True:
            with self._news:
                self._news.wait_for(lambda: len(self._told) > sent or not self.is_open)  # noqa: B023 - asked at once
                if not self.is_open:
                    return
                news, sent = self._told[sent:], len(self._told)
            yield "".join(news).encode()

    def page(self, path: str) -> tuple[bytes, str] | None:
        """What is at a path, and its media type."""
        if path in self.pages:
            return self.pages[path].encode(), "text/html; charset=utf-8"
        if path.startswith("/static/"):
            return asset(path.removeprefix("/static/"))
        run = Reading(self.events)
        if path == f"/runs/{run.run_id}":
            return run_page(run).encode(), "text/html; charset=utf-8"
        if path == f"/runs/{run.run_id}/times":
            return compact(run.where_time_went.to_plain()).encode(), "application/json"
        begin = f"/runs/{run.run_id}/nodes/"
        if path.startswith(begin):
            panel = node_panel(run, unquote(path.removeprefix(begin)), Acting("secret-token"))
            return panel.encode(), "text/html; charset=utf-8"
        return None


@contextmanager
def page_server(events: Sequence[Event]) -> Generator[PageServer]:
    """Serve on a free port of loopback for as long as the block lasts."""
    pages = PageServer(events)

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            split = urlsplit(self.path)
            if split.path.endswith("/events"):
                self._stream(split.query)
                return
            found = pages.page(split.path)
            body, kind = found or (b"not found", "text/plain")
            self.send_response(200 if found else 404)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body)))
            self.send_header("Content-Security-Policy", CSP)
            self.end_headers()
            self.wfile.write(body)

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"])).decode()
            pages.posted.append((self.path, parse_qs(body, keep_blank_values=True)))
            self.send_response(303)
            self.send_header("Location", self.headers["Referer"])
            self.end_headers()

        def _stream(self, query: str) -> None:
            last = self.headers.get("Last-Event-ID")
            after = int(parse_qs(query).get("after", ["0"])[0]) if last is None else int(last) + 1
            self.send_response(200)
            self.send_header("Content-Type", "text/event-stream")
            self.end_headers()
            try:
                for part in pages.stream(after):
                    self.wfile.write(part)
                    self.wfile.flush()
            except OSError:
                pass  # The browser has gone.

        def log_message(self, format: str, *args: Any) -> None:
            """Nothing: the tests look at what comes out."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    pages.url = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, args=(0.05,))
    thread.start()
    try:
        yield pages
    finally:
        pages.close()
        server.shutdown()
        thread.join()
        server.server_close()
