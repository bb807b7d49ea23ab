"""The pages on jobs, and those that explain, run as they stand: each in a folder of its own, in this process."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

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


def test_the_app_that_streams_tells_a_page_of_nodes_and_text(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    forget_models(monkeypatch)
    monkeypatch.chdir(tmp_path)
    blocks = [text for _, text in BLOCK.findall((DOCS / "howto/stream-from-an-app.md").read_text("utf-8"))]
    Path("story.yaml").write_text(blocks[0])
    names: dict[str, Any] = {}
    exec(blocks[1], names)
    client = TestClient(names["app"])
    said = [json.loads(line[6:]) for line in client.post("/stories/a?topic=tea").text.splitlines() if line]
    assert [each for each in said if "state" in each] == [
        {"node": node, "state": state} for node in ("facts", "write") for state in ("running", "succeeded")
    ]
    assert {each["node"] for each in said if each.get("begins")} == {"facts", "write"}
    assert said[-1] == client.post("/stories/a/resume").json()
    assert said[-1]["status"] == "succeeded"
