"""A flow as it was at a revision: the files of its repository, and nothing that lies elsewhere."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from flowengine.evals.git_version import revision_of, tree_at
from tests.support.require import require


def git(folder: Path, *words: str) -> None:
    who = ("-c", "user.name=us", "-c", "user.email=us@example.com", "-c", "commit.gpgsign=false")
    subprocess.run(["git", *who, *words], cwd=folder, check=True, capture_output=True)


def test_links_that_lead_out_of_the_repository_are_left_out(tmp_path: Path) -> None:
    require("git", "apt-get install git")
    flow = tmp_path / os.fsdecode(b" reposi\xfftory ") / "a.yaml"
    flow.parent.mkdir()
    flow.write_text("name: then")
    (flow.parent / "data").symlink_to("/usr/share")
    (flow.parent / "beside").symlink_to("../elsewhere")
    (flow.parent / "same.yaml").symlink_to("a.yaml")
    git(flow.parent, "init", "-q", "-b", "main")
    git(flow.parent, "add", ".")
    git(flow.parent, "commit", "-q", "-m", "as it was")
    flow.write_text("name: now")
    with tree_at(flow, revision_of(flow, "HEAD")) as there:
        assert there.read_text() == "name: then"
        assert {each.name for each in there.parent.iterdir()} == {"a.yaml", "same.yaml"}
