"""Contents of files behind the viewer: images are shown, everything else is a download in a sandbox."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from flowengine.core.context import Context
from flowengine.core.file_values import FileValue, hash_of
from flowengine.flow import Flow
from flowengine.journal.sqlite.store import SQLiteStore
from flowengine.nodes.function import FunctionNode
from flowengine.web.app import make_app
from tests.support.browser import Browser
from tests.support.plain_http import NO_TLS
from tests.support.small_png import small_png
from tests.support.ui_server import Served, served

PICTURE = small_png()
SVG = b"<svg xmlns='http://www.w3.org/2000/svg' onload='window.owned=1'><script>window.owned=1</script></svg>"
HTML = b"<script>window.owned=1</script>"


def make(context: Context) -> dict[str, Any]:
    return {"picture": PICTURE, "drawing": SVG, "page": HTML, "report": b"%PDF-1.4"}


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Served]:
    monkeypatch.chdir(tmp_path)
    names = {"a.png": PICTURE, '"><img src=x onerror="window.owned=1">.svg': SVG, "請求書;\u00ad.pdf": b"%PDF-1.4"}
    flow = Flow("files", {"make": FunctionNode(make)})
    store = SQLiteStore(tmp_path / "runs.db")
    inputs: dict[str, Any] = {}
    for number, (name, content) in enumerate(names.items()):
        (tmp_path / str(number)).write_bytes(content)
        blob = store.put_blob("r1", content)
        shown = "".join(each for each in name if each != "\u00ad")
        inputs[f"f{number}"] = FileValue(blob, "image/png", shown, len(content))  # Whatever a journal may claim.
    run = flow.run_sync(inputs, store=store, run_id="r1")
    assert run.status == "succeeded", run.error
    flow.run_sync({"other": b"of another run"}, store=store, run_id="r2")
    store.close()
    with served(make_app("sqlite:///runs.db", [], durability="process")) as opened:
        yield opened


def get(server: Served, content: bytes, run: str = "r1") -> httpx.Response:
    return server.client.get(f"/runs/{run}/files/{hash_of(content)}")


def test_an_image_is_shown_and_everything_else_is_a_download(server: Served):
    for content, media_type, how in [
        (PICTURE, "image/png", "inline"),
        (SVG, "application/octet-stream", "attachment"),
        (HTML, "application/octet-stream", "attachment"),
        (b"%PDF-1.4", "application/octet-stream", "attachment"),
    ]:
        answer = get(server, content)
        assert (answer.status_code, answer.content) == (200, content)
        assert answer.headers["content-type"] == media_type
        assert answer.headers["content-disposition"].startswith(f"{how}; filename=")
        assert answer.headers["content-security-policy"] == "default-src 'none'; sandbox"
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["cross-origin-resource-policy"] == "same-origin"
        assert "immutable" in answer.headers["cache-control"]
    assert "sandbox" not in server.client.get("/runs/r1").headers["content-security-policy"]


def test_a_name_is_text_in_headers(server: Served):
    said = get(server, SVG).headers["content-disposition"]
    assert said.isascii()
    assert said.count('"') == 2
    assert "<" not in said
    assert "filename*=UTF-8''%22%3E%3Cimg%20src%3Dx%20onerror%3D" in said
    assert "%E8%AB%8B%E6%B1%82%E6%9B%B8%3B.pdf" in get(server, b"%PDF-1.4").headers["content-disposition"]


def test_a_run_gives_out_its_own_files_only_and_to_nobody_without_the_token(server: Served):
    other = b"of another run"
    assert get(server, other, "r2").status_code == 200
    assert get(server, other, "r1").status_code == 404
    assert server.client.get("/runs/r1/files/../../runs.db").status_code == 404
    assert server.client.get(f"/runs/none/files/{hash_of(PICTURE)}").status_code == 404
    address = f"{server.url}/runs/r1/files/{hash_of(PICTURE)}"
    assert httpx.get(address, trust_env=False, verify=NO_TLS).status_code == 401
    assert httpx.get(address, headers={"Host": "evil.example"}, trust_env=False, verify=NO_TLS).status_code == 421


def test_a_damaged_content_is_told(server: Served, tmp_path: Path):
    import sqlite3

    with sqlite3.connect(tmp_path / "runs.db") as connection:
        connection.execute("UPDATE blob SET body = ? WHERE hash = ?", (b"other", hash_of(PICTURE)))
    connection.close()
    answer = get(server, PICTURE)
    assert answer.status_code >= 400
    assert b"is not what was written" in answer.content


def test_the_page_shows_images_and_runs_nothing(browser: Browser, server: Served):
    with browser.tab() as tab:
        tab.goto(server.at("/runs/r1#node=make"))
        tab.wait("document.querySelector('#panel .files img')?.naturalWidth === 8")
        assert tab.evaluate("document.querySelectorAll('#panel .files img').length") == 1
        assert tab.evaluate("document.querySelectorAll('#panel .files li').length") == 4
        assert tab.evaluate("document.querySelectorAll('#panel .files a[download]').length") == 3
        tab.evaluate("document.querySelector('.run-head details').open = true")
        assert "onerror" in tab.inner_text(".run-head .files")
        assert tab.evaluate("window.owned") is None
        assert not [each for each in tab.trouble if "img-src" in each or "Refused" in each]
