"""Requests that arrive slowly or never: each ends in bounded time, and keeps no other out. Over real sockets."""

from __future__ import annotations

import socket
from collections.abc import Generator, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import pytest

from flowengine.engine.events import RunFinished, RunStarted
from flowengine.journal.sqlite.store import SQLiteStore
from flowengine.web.app import make_app
from flowengine.web.serving import ConnectionLimits
from tests.support.ui_server import Served, served

SHORT = ConnectionLimits(seconds=1.0, waiting=200)


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def server(here: None) -> Iterator[Served]:
    with served(make_app("sqlite:///runs.db"), limits=SHORT) as found:
        yield found


@contextmanager
def connected(server: Served) -> Generator[socket.socket]:
    with socket.create_connection(("127.0.0.1", server.port), timeout=60) as found:
        yield found


def read_all(connection: socket.socket) -> bytes:
    """What is answered until the server closes the connection; a test fails where it never does."""
    parts: list[bytes] = []
    with suppress(ConnectionResetError):  # Where the server closes with bytes unread.
        while part := connection.recv(65_536):
            parts.append(part)
    return b"".join(parts)


def head_of(server: Served, method: str, path: str, *more: str) -> bytes:
    lines = [f"{method} {path} HTTP/1.1", f"Host: 127.0.0.1:{server.port}", f"Authorization: Bearer {server.token}"]
    return "\r\n".join([*lines, *more, "", ""]).encode()


def test_a_connection_that_says_nothing_is_closed(server: Served) -> None:
    with connected(server) as connection:
        assert read_all(connection) == b""


def test_half_a_head_is_answered_with_408(server: Served) -> None:
    with connected(server) as connection:
        connection.sendall(head_of(server, "GET", "/api/runs")[:-2])
        assert read_all(connection).startswith(b"HTTP/1.1 408 Request Timeout\r\n")


@pytest.mark.parametrize(
    ("size", "status"), [(65_537, b"431 Request Header Fields Too Large"), (99, b"400 Bad Request")]
)
def test_a_head_that_is_too_long_or_none_is_told_as_that(size: int, status: bytes, server: Served) -> None:
    """Of the longest there is not a byte more than the server reads: what it leaves unread could cut the answer off."""
    with connected(server) as connection:
        begin = b"GET / HTTP/1.1\r\nX: " if size > 99 else b"GET \xff\r\n\r\n"
        connection.sendall(begin.ljust(size, b"a"))
        assert read_all(connection).startswith(b"HTTP/1.1 " + status)


@pytest.mark.parametrize("sent", [b"", b'{"flow": '])
def test_half_a_body_is_answered_with_408(sent: bytes, server: Served) -> None:
    with connected(server) as connection:
        connection.sendall(head_of(server, "POST", "/api/runs", "Content-Type: application/json", "Content-Length: 99"))
        connection.sendall(sent)
        assert read_all(connection).startswith(b"HTTP/1.1 408 Request Timeout\r\n")


@pytest.mark.parametrize("part", ["head", "body"])
def test_bytes_that_come_steadily_win_no_time(part: str, server: Served) -> None:
    """A byte is sent whenever the server has not answered for a fifth of the limit."""
    begin = b"GET / HTTP/1.1\r\nX: "
    if part == "body":
        begin = head_of(server, "POST", "/api/runs", "Content-Type: application/json", "Content-Length: 9999")
    with connected(server) as connection:
        connection.sendall(begin)
        connection.settimeout(SHORT.seconds / 5)
        for _ in range(100):
            try:
                answer = connection.recv(65_536)
            except TimeoutError:
                connection.sendall(b"a")
                continue
            break
        else:
            pytest.fail("it was never answered")
        assert answer.startswith(b"HTTP/1.1 408")


def test_a_body_that_goes_on_after_the_answer_is_cut_off(server: Served) -> None:
    with connected(server) as connection:
        connection.sendall(
            f"POST /api/runs HTTP/1.1\r\nHost: 127.0.0.1:{server.port}\r\nContent-Length: 99\r\n\r\n".encode()
        )
        assert read_all(connection).startswith(b"HTTP/1.1 401")


def test_the_second_request_of_a_connection_has_the_same_time(server: Served) -> None:
    with connected(server) as connection:
        connection.sendall(head_of(server, "GET", "/api/runs"))
        assert connection.recv(65_536).startswith(b"HTTP/1.1 200")
        connection.sendall(b"GET /")
        assert b"HTTP/1.1 408" in read_all(connection)


def test_an_answer_without_an_end_has_no_limit() -> None:
    store = SQLiteStore("runs.db")
    journal = store.create("r1")
    journal.append(RunStarted("r1", "flow", 1.0, {}, {}, {}))
    with (
        served(make_app(store), limits=SHORT) as server,
        server.client.stream("GET", "/api/runs/r1/events") as stream,
        connected(server) as idle,
    ):
        lines = stream.iter_lines()
        assert any("RunStarted" in line for line in lines)
        assert read_all(idle) == b""  # The limit has passed.
        journal.append(RunFinished(2.0, "succeeded"))
        journal.commit()
        assert any("RunFinished" in line for line in lines)
    store.close()


@pytest.mark.parametrize("count", [150, 300])
def test_many_that_say_nothing_keep_nobody_out(count: int) -> None:
    """150 are fewer than may wait; of 300 the oldest are closed at once, though their time has not come."""
    with served(make_app("sqlite:///runs.db"), limits=SHORT._replace(seconds=600)) as server, ExitStack() as opened:
        idle = [opened.enter_context(connected(server)) for _ in range(count)]
        for each in idle[::2]:
            each.sendall(b"GET / HTTP/1.1\r\nHo")
        assert server.get("/api/runs") is not None
        if count > SHORT.waiting:
            read_all(idle[0])
            assert server.get("/api/runs") is not None
