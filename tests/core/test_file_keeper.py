"""Files that a run takes in: where they may come from, how large they may be, and what they may be."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import NamedTuple

import anyio
import pytest

from flowengine.core import file_fetching
from flowengine.core.file_keeper import FileKeeper
from flowengine.core.file_values import FileRules, FileValue, RefusedFileError, hash_of
from flowengine.journal.memory import MemoryStore

pytestmark = [pytest.mark.anyio, pytest.mark.parametrize("anyio_backend", ["asyncio"])]
PDF = b"%PDF-1.4 one"


def keeper(root: Path | None = None, **rules: object) -> FileKeeper:
    return FileKeeper(MemoryStore(), "r1", FileRules(root, **rules))  # type: ignore[arg-type]


async def test_bytes_paths_and_files_of_other_runs_are_taken_in(tmp_path: Path):
    (tmp_path / "scan").write_bytes(PDF)
    files = keeper()
    taken = await files.take(tmp_path / "scan")
    assert (taken.media_type, taken.name, taken.size, taken.read_bytes()) == ("application/pdf", "scan.pdf", 12, PDF)
    assert (await files.take(PDF)).name == "file.pdf"
    assert await files.take(taken) == taken
    assert await files.take(bytearray(PDF)) == await files.take(PDF)
    other = keeper()
    moved = await other.take(taken)
    assert (moved, moved.read_bytes()) == (taken, PDF)
    for none in (1, None, ["a"], {}):
        assert await files.take(none) is none


async def test_a_text_names_a_path_that_a_flow_may_name(tmp_path: Path):
    root, files = tmp_path / "project", keeper(tmp_path / "project")
    root.mkdir()
    (root / "a.txt").write_text("hello")
    (root / ".env").write_text("KEY=1")
    (root / "server.pem").write_text("key")
    (tmp_path / "outside.txt").write_text("secret")
    (root / "link.txt").symlink_to(tmp_path / "outside.txt")
    (root / "hidden.txt").symlink_to(root / ".env")
    os.mkfifo(root / "pipe")
    assert (await files.take("a.txt")).read_text() == "hello"
    for path, said in [
        ("../outside.txt", "leaves the project's root"),
        (str(tmp_path / "outside.txt"), "leaves the project's root"),
        ("link.txt", "leaves the project's root"),
        ("hidden.txt", r"is hidden \('\.env'\)"),
        (".env", "is hidden"),
        ("server.pem", "is that of a key"),
        ("pipe", "neither a file nor a folder"),
        (".", "cannot read '.'"),
        ("none.txt", "cannot read 'none.txt': No such file"),
        ("a\0b", "cannot be a path"),
        ("ftp://host/a", "cannot read"),
    ]:
        with pytest.raises(RefusedFileError, match=said):
            await files.take(path)


async def test_an_empty_file_is_a_file(tmp_path: Path):
    (tmp_path / "none").write_bytes(b"")
    taken = await keeper().take(tmp_path / "none")
    assert (taken.size, taken.media_type, taken.read_bytes()) == (0, "text/plain", b"")


async def test_the_name_of_a_file_decides_nothing(tmp_path: Path):
    for name in ["a\nSet-Cookie: x.png", "gpj.\u202eexe", "a\u2028b", 'q";.png', "<img src=x>", "x" * 250]:
        (tmp_path / name).write_bytes(b"<script>")
        taken = await keeper().take(tmp_path / name)
        assert taken.media_type == "text/html"
        assert taken.name.isprintable()


async def test_a_file_or_a_run_that_is_too_large_is_refused(tmp_path: Path):
    files = keeper(max_file=10, max_run=15)
    (tmp_path / "big.bin").write_bytes(b"x" * 11)
    with pytest.raises(RefusedFileError, match=r"has 11 bytes, and `max_file` of \[files\] is 10"):
        await files.take(tmp_path / "big.bin")
    with pytest.raises(RefusedFileError, match="has 11 bytes"):
        await files.take(b"x" * 11)
    for _ in range(3):
        await files.take(b"x" * 10)  # Counted once.
    with pytest.raises(RefusedFileError, match=r"the files of the run have 16 bytes, and `max_run` of \[files\] is 15"):
        await files.take(b"y" * 6)
    await files.take(b"y" * 5)
    known = [FileValue(hash_of(b"z"), "text/plain", "z", 15)]
    again = FileKeeper(MemoryStore(), "r1", FileRules(max_run=15), lambda: known)
    with pytest.raises(RefusedFileError, match="have 16 bytes"):
        again.keep(b"a")


async def test_files_that_are_taken_in_two_threads_are_counted_together():
    others: list[threading.Thread] = []

    def known() -> Iterator[FileValue]:
        """Another thread takes a file in while this one looks for what the run has already."""
        if not others:
            others.append(threading.Thread(target=files.keep, args=(b"y" * 10,)))
            others[0].start()
            others[0].join(0.05)
        return iter(())

    files = FileKeeper(MemoryStore(), "r1", FileRules(max_run=25), known)
    files.keep(b"x" * 10)
    others[0].join()
    with pytest.raises(RefusedFileError, match="have 30 bytes"):
        files.keep(b"z" * 10)


async def test_only_media_types_that_the_project_allows_are_taken():
    files = keeper(media_types=("image/*", "application/pdf"))
    assert (await files.take(PDF)).media_type == "application/pdf"
    with pytest.raises(
        RefusedFileError, match=r"is text/plain by its content, and `media_types` of \[files\] has image"
    ):
        await files.take(b"hello")


async def test_a_file_that_changes_while_it_is_read_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    path = tmp_path / "log.txt"
    path.write_bytes(b"one")
    real, calls = os.fstat, list[int]()

    def grow(handle: int) -> os.stat_result:
        found = real(handle)
        calls.append(handle)
        if len(calls) == 2:  # The first one is of whoever opens it.
            with path.open("ab") as file:
                file.write(b"two")
        return found

    taking = keeper()
    monkeypatch.setattr("flowengine.core.file_keeper.os.fstat", grow)
    with pytest.raises(RefusedFileError, match="changed while it was read"):
        await taking.take(path)


async def test_bytes_anywhere_in_a_value_become_files():
    files = keeper()
    plain = {"a": [1, "x", None]}
    assert await files.keep_in(plain, "n") is plain
    found = await files.keep_in({"a": [PDF, (b"x",)], "b": 1}, "draw")
    assert [found["a"][0].name, found["a"][1][0].name, found["b"]] == ["draw.pdf", "draw.txt", 1]


# --- Addresses


class Server(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        if self.path == "/files/moved":
            self.send_response(302)
            self.send_header("Location", "/files/a.pdf")
            self.end_headers()
            return
        if self.path.startswith("/files/drip"):
            self._drip(b"HTTP/1.0 200 OK\r\n" + (b"X-A: " if self.path.endswith("headers") else b"\r\n"))
            return
        body = {"/files/a.pdf": PDF, "/files/big": b"x" * 5000, "/files/short": b"x"}.get(self.path)
        self.send_response(200 if body is not None else 404)
        self.send_header("Content-Length", "99" if self.path == "/files/short" else str(len(body or b"")))
        self.end_headers()
        self.wfile.write(body or b"")

    def _drip(self, begin: bytes) -> None:
        """Sends a byte at a time until the client leaves."""
        self.wfile.write(begin)
        with suppress(OSError):
            while not threading.Event().wait(0.01):
                self.wfile.write(b"x")

    def log_message(self, *args: object) -> None:
        pass


@pytest.fixture
def address() -> Iterator[str]:
    server = HTTPServer(("127.0.0.1", 0), Server)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}/files/"
    server.shutdown()
    thread.join()
    server.server_close()


async def test_a_file_is_fetched_from_an_address_that_is_listed(address: str):
    files = keeper(allow_urls=(address,), max_file=1000)
    taken = await files.take(f"{address}a.pdf")
    assert (taken.name, taken.media_type, taken.read_bytes()) == ("a.pdf", "application/pdf", PDF)
    for url, said in [
        (f"{address}moved", "answered 302; redirects are not followed"),
        (f"{address}none", "answered 404"),
        (f"{address}big", "has more than 1,000 bytes"),
        (f"{address}short", "broke off after 1 bytes|IncompleteRead"),
        (f"{address}../secret", "is not allowed: list its beginning in `allow_urls`"),
        (f"{address}a.pdf\r\nX: y", "is not allowed"),
        ("https://example.com/a.pdf", "is not allowed"),
    ]:
        with pytest.raises(RefusedFileError, match=said):
            await files.take(url)


@pytest.mark.parametrize("part", ["headers", "body"])
async def test_a_server_that_sends_byte_by_byte_holds_nobody_beyond_the_deadline(
    address: str, part: str, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(file_fetching, "_SECONDS", 0.3)
    with anyio.fail_after(20), pytest.raises(RefusedFileError, match=r"did not come within 0\.3 s"):
        await keeper(allow_urls=(address,)).take(f"{address}drip-{part}")


async def test_a_name_that_leads_inside_is_refused(address: str, monkeypatch: pytest.MonkeyPatch):
    real = file_fetching.socket.getaddrinfo

    def look_up(host: str, *args: object, **more: object) -> object:
        return real("127.0.0.1", *args, **more)  # type: ignore[arg-type]

    url = address.replace("127.0.0.1", "files.example.com")
    monkeypatch.setattr("flowengine.core.file_fetching.socket.getaddrinfo", look_up)
    with pytest.raises(RefusedFileError, match=r"'files\.example\.com' leads to the private address 127\.0\.0\.1"):
        await keeper(allow_urls=(url,)).take(f"{url}a.pdf")


class Scan(NamedTuple):
    page: int
    content: object


class LastScan(Scan):
    """The same, made by somebody who wants another name for it."""


async def test_bytes_in_a_named_tuple_become_files_and_the_tuple_keeps_its_class():
    for kind in (Scan, LastScan):
        kept = await keeper().keep_in([kind(1, PDF)], "scan")
        assert type(kept[0]) is kind
        assert (kept[0].page, kept[0].content.read_bytes()) == (1, PDF)
