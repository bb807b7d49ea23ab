"""The pages on jobs, and those that explain, run as they stand: each in a folder of its own, in this process."""

from __future__ import annotations

import gc
import json
from contextlib import suppress
from pathlib import Path
from typing import Any

import anyio
import pytest
from starlette.requests import ClientDisconnect
from starlette.testclient import TestClient

from flowengine.runs import Runs
from tests.support.doc_blocks import BLOCK, DOCS, forget_models, run_blocks

PAGES = sorted(
    str(page.relative_to(DOCS))
    for page in (DOCS / "index.md", *(DOCS / "howto").glob("*.md"), *(DOCS / "explanation").glob("*.md"))
)


@pytest.mark.parametrize("page", PAGES)
def test_a_page_on_a_job_runs_as_it_stands(
    page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
):
    forget_models(monkeypatch)
    monkeypatch.chdir(tmp_path)
    assert run_blocks(page, monkeypatch, capfd) >= 1


def open_app(folder: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    forget_models(monkeypatch)
    monkeypatch.chdir(folder)
    blocks = [text for _, text in BLOCK.findall((DOCS / "howto/stream-from-an-app.md").read_text("utf-8"))]
    Path("story.yaml").write_text(blocks[0])
    names: dict[str, Any] = {}
    exec(blocks[1], names)
    return names


def test_the_app_that_streams_tells_a_page_of_nodes_and_text(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    client = TestClient(open_app(tmp_path, monkeypatch)["app"])
    said = [json.loads(line[6:]) for line in client.post("/stories/a?topic=tea").text.splitlines() if line]
    assert [each for each in said if "state" in each] == [
        {"node": node, "state": state} for node in ("facts", "write") for state in ("running", "succeeded")
    ]
    assert {each["node"] for each in said if each.get("begins")} == {"facts", "write"}
    assert said[-1] == client.post("/stories/a/resume").json()
    assert said[-1]["status"] == "succeeded"


@pytest.mark.parametrize("version", ["2.3", "2.4"])  # Of servers that tell of a client that left, or refuse to send.
async def test_a_client_that_leaves_the_app_that_streams_cancels_its_run(
    version: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    app, left, sent = open_app(tmp_path, monkeypatch)["app"], anyio.Event(), 0

    async def receive() -> dict[str, Any]:
        await left.wait()
        return {"type": "http.disconnect"}

    async def send(message: Any) -> None:
        nonlocal sent
        sent += 1
        if sent == 3 and version == "2.4":
            raise OSError("the client left")
        if sent == 3:
            left.set()
            await anyio.sleep_forever()

    scope = {"type": "http", "asgi": {"spec_version": version}, "method": "POST", "path": "/stories/a",
             "query_string": b"topic=tea", "headers": []}  # fmt: skip
    with suppress(ClientDisconnect):
        await app(scope, receive, send)
    gc.collect()  # A generator that nobody closed would be closed now, in a task of its own.
    await anyio.lowlevel.checkpoint()
    assert sent == 3
    with Runs("sqlite:///runs.db") as runs:
        assert [each.status for each in runs.list()] == ["cancelled"]
