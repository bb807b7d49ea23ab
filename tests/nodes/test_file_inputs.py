"""Files as inputs and as results of nodes: never base64 in the journal, read by later nodes, there after a resume."""

from __future__ import annotations

import threading
from base64 import b64encode
from collections.abc import Iterator
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import anyio
import pytest

from flowengine import Context, Flow, FunctionNode, InputField, NodeResult
from flowengine.core.file_keeper import FileKeeper
from flowengine.core.file_values import FileRules, FileValue
from flowengine.engine.ports import JournalStore
from flowengine.errors import InputError
from flowengine.journal.codec import encode
from flowengine.journal.memory import MemoryStore
from flowengine.journal.stores import open_store
from flowengine.nodes import http_sender
from flowengine.nodes.run_inputs import take_files
from tests.support.postgres import empty_database

pytestmark = pytest.mark.anyio
PDF = b"%PDF-1.4 one"
PICTURE = b"\x89PNG\r\n\x1a\n" + bytes(range(256))


@pytest.fixture(params=["memory:", "sqlite", "postgresql"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[JournalStore]:
    urls = {"sqlite": lambda: str(tmp_path / "runs.db"), "postgresql": empty_database, "memory:": lambda: "memory:"}
    made = open_store(urls[request.param]())
    yield made
    made.close()


def draw(context: Context) -> dict[str, Any]:
    return {"chart": context.inputs["photo"].read_bytes() + b"!", "parts": [b"one", b"one"]}


async def test_a_file_may_be_given_as_its_content() -> None:
    run = await flow().run({"photo": f"data:image/png;base64,{b64encode(PICTURE).decode()}"})
    assert run.raise_for_status().outputs["measure"] == len(PICTURE) + 1
    assert b64encode(PICTURE).decode() not in "".join(map(encode, run.events))
    with pytest.raises(InputError, match="input 'photo': not of the form data:TYPE;base64,CONTENT"):
        await flow().run({"photo": "data:image/png;base64,!!"})


fails: list[bool] = []


def measure(context: Context) -> NodeResult:
    if fails:
        raise ValueError("not now")
    drawn = context.nodes["draw"].output
    return NodeResult(len(drawn["chart"].read_bytes()), state={"chart": drawn["chart"], "raw": b"raw"})


def flow() -> Flow:
    nodes = {"draw": FunctionNode(draw), "measure": FunctionNode(measure, needs=["draw"])}
    return Flow("charts", nodes, inputs={"photo": "file"}, shared_state={"chart": None, "raw": None})


async def test_files_go_through_a_run_and_no_content_is_in_the_journal(store: JournalStore, tmp_path: Path):
    (tmp_path / "me.png").write_bytes(PICTURE)
    run = await flow().run({"photo": tmp_path / "me.png"}, store=store, run_id="r1")
    assert run.status == "succeeded", run.error
    assert run.outputs == {"measure": len(PICTURE) + 1}
    drawn = run.nodes["draw"].output
    assert (drawn["chart"].media_type, drawn["chart"].name) == ("image/png", "draw.png")
    assert drawn["parts"][0] == drawn["parts"][1]
    assert isinstance(run.shared_state["raw"], FileValue)
    text = "\n".join(map(encode, store.events("r1")))
    for content in (PICTURE, b"one", b"raw"):
        assert b64encode(content).decode()[:40] not in text
    assert "$bytes" not in text


async def test_a_resumed_run_reads_the_files_it_has(store: JournalStore, tmp_path: Path):
    (tmp_path / "me.png").write_bytes(PICTURE)
    fails.append(True)
    try:
        run = await flow().run({"photo": tmp_path / "me.png"}, store=store, run_id="r1")
        assert run.status == "failed"
    finally:
        fails.clear()
    (tmp_path / "me.png").write_bytes(b"another")  # What the run took in is its own.
    run = await flow().resume("r1", store=store)
    assert run.outputs == {"measure": len(PICTURE) + 1}
    forked = await flow().fork("r1", "measure", store=store)
    store.remove("r1")
    assert forked.outputs == run.outputs
    again = await flow().fork(forked.id, "measure", store=store)
    assert again.nodes["draw"].output["chart"].read_bytes() == PICTURE + b"!"


async def test_results_with_files_are_reused(store: JournalStore):
    first = await flow().run({"photo": PICTURE}, store=store)
    second = await flow().run({"photo": PICTURE}, store=store, reuse=first.id)
    assert sorted(second.reused) == ["draw", "measure"]
    store.remove(first.id)
    assert second.nodes["draw"].output["chart"].read_bytes() == PICTURE + b"!"
    other = await flow().run({"photo": PICTURE + b"?"}, store=store, reuse=second.id)
    assert not other.reused


async def test_a_file_of_a_run_in_another_store_is_taken_over(store: JournalStore):
    first = await flow().run({"photo": PICTURE})
    second = await flow().run({"photo": first.nodes["draw"].output["chart"]}, store=store)
    assert second.inputs["photo"].read_bytes() == PICTURE + b"!"
    loose = await Flow("f", {"a": FunctionNode(lambda context: 1)}).run(
        {"one": second.inputs["photo"], "two": {"three": b"bytes"}}, store=store
    )
    assert loose.inputs["two"]["three"].read_bytes() == b"bytes"


async def test_what_is_no_file_is_told(tmp_path: Path):
    for given, said in [
        (1, r"input 'photo': expected file \(a path, bytes, an address, or data:TYPE;base64,CONTENT\), found int 1"),
        (memoryview(b"x"), r"input 'photo': expected file .* found memoryview"),
        ("/etc/passwd", "input 'photo': the path '/etc/passwd' leaves the project's root"),
        ("none.png", "input 'photo': cannot read 'none.png': No such file or directory"),
        (tmp_path, "input 'photo': cannot read"),
        ("https://example.com/a.png", r"input 'photo': the address 'https://example\.com/a\.png' is not allowed"),
    ]:
        with pytest.raises(InputError, match=said):
            await flow().run({"photo": given})
    with pytest.raises(InputError, match=r"missing input 'photo' \(file\)"):
        await flow().run({})
    optional = Flow("f", {"a": FunctionNode(lambda context: 1)}, inputs={"photo": InputField("file", default=None)})
    assert (await optional.run({})).inputs["photo"] is None


async def test_a_result_that_is_too_large_fails_its_node():
    made = flow()
    object.__setattr__(made.plan, "files", FileRules(max_file=len(PICTURE)))
    run = await made.run({"photo": PICTURE})
    assert run.status == "failed"
    assert run.error is not None
    assert "the result cannot be kept: 'draw' has 265 bytes, and `max_file` of [files] is 264" in run.error.message


def test_a_file_is_read_after_its_store_was_closed(tmp_path: Path):
    for url in (str(tmp_path / "runs.db"), empty_database()):
        run = flow().run_sync({"photo": PICTURE}, store=url)
        assert run.nodes["draw"].output["chart"].read_bytes() == PICTURE + b"!"
        assert run.inputs["photo"].read_bytes() == PICTURE


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


async def take(url: str, **rules: Any) -> FileValue:
    keeper = FileKeeper(MemoryStore(), "r1", FileRules(**rules))
    return (await take_files({"file": InputField("file")}, {"file": url}, keeper))["file"]


async def test_a_file_is_fetched_from_an_address_that_is_listed(address: str):
    rules: Any = {"allow_urls": (address,), "max_file": 1000}
    taken = await take(f"{address}a.pdf", **rules)
    assert (taken.name, taken.media_type, taken.read_bytes()) == ("a.pdf", "application/pdf", PDF)
    for url, said in [
        (f"{address}moved", "answered 302; redirects are not followed"),
        (f"{address}none", "answered 404"),
        (f"{address}big", "has more than 1,000 bytes"),
        (f"{address}short", "cannot be fetched: GET .*/short: "),
        (f"{address}../secret", "is not allowed: list its beginning in `allow_urls`"),
        (f"{address}a.pdf\r\nX: y", "is not allowed"),
        ("https://example.com/a.pdf", "is not allowed"),
    ]:
        with pytest.raises(InputError, match=f"(?s)input 'file': .*({said})"):
            await take(url, **rules)


@pytest.mark.parametrize("part", ["headers", "body"])
async def test_a_server_that_sends_byte_by_byte_holds_nobody_beyond_the_deadline(
    address: str, part: str, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(http_sender, "_SECONDS", 0.3)
    with anyio.fail_after(20), pytest.raises(InputError, match=r"did not come within 0\.3 s"):
        await take(f"{address}drip-{part}", allow_urls=(address,))


async def test_a_name_that_leads_inside_is_refused(address: str, monkeypatch: pytest.MonkeyPatch):
    real = anyio.getaddrinfo

    async def look_up(host: str, port: int, **more: Any) -> Any:
        return await real("127.0.0.1", port, **more)

    url = address.replace("127.0.0.1", "files.example.com")
    monkeypatch.setattr("flowengine.nodes.http_sender.anyio.getaddrinfo", look_up)
    with pytest.raises(InputError, match=r"'files\.example\.com' leads to the private address 127\.0\.0\.1"):
        await take(f"{url}a.pdf", allow_urls=(url,))
