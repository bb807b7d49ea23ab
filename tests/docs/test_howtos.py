"""The pages on jobs, and those that explain, run as they stand: each in a folder of its own, in this process."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.doc_blocks import DOCS, forget_models, run_blocks

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
