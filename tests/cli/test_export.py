"""`flowengine export`: a run as one HTML file."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

Command = Callable[..., Any]


def test_a_run_is_written_into_one_file(flowengine: Command, folder: Path) -> None:
    flowengine("run", "fragile.yaml", "--run-id", "r1")
    said = flowengine("export", "@last", "-o", "run.html")
    assert (said.code, said.out) == (0, "")
    page = (folder / "run.html").read_text()
    assert said.err == f"run.html: {len(page.encode()):,} bytes\n"
    assert page.startswith("<!doctype html>")
    assert "Content-Security-Policy" in page
    assert "broken" in page
    assert 'src="' not in page
    assert "url(" not in page.replace("url(#graph-arrow)", "")


def test_without_a_file_the_page_goes_to_stdout(flowengine: Command) -> None:
    flowengine("run", "shout.yaml", "--run-id", "r1")
    said = flowengine("export", "r1")
    assert (said.code, said.err) == (0, "")
    assert said.out.endswith("</html>\n")
    assert "HELLO" in said.out


def test_an_unfinished_run_is_exported_as_far_as_it_came(flowengine: Command, folder: Path) -> None:
    flowengine("run", "shout.yaml", "--run-id", "r1")
    store = sqlite3.connect(folder / ".flowengine" / "runs.db")
    with store:
        store.execute("DELETE FROM event WHERE position = (SELECT max(position) FROM event)")
        store.execute("UPDATE run SET status = 'running', finished = NULL, ended = NULL")
    store.close()
    said = flowengine("export", "r1")
    assert said.code == 0
    assert "running" in said.out


def test_a_run_that_is_missing_or_damaged_is_told_in_words(flowengine: Command, folder: Path) -> None:
    flowengine("run", "shout.yaml", "--run-id", "r1")
    missing = flowengine("export", "r2", "-o", "x.html")
    assert missing.code == 2
    assert missing.err.startswith("error: no run 'r2'")
    (folder / ".flowengine" / "runs.db").write_bytes(b"no store at all" * 100)
    damaged = flowengine("export", "r1", "-o", "x.html")
    assert damaged.code != 0
    assert "Traceback" not in damaged.err
    assert not (folder / "x.html").exists()


def test_a_file_that_cannot_be_written_is_a_usage_error(flowengine: Command) -> None:
    flowengine("run", "shout.yaml", "--run-id", "r1")
    said = flowengine("export", "r1", "-o", "nowhere/x.html")
    assert said.code == 2
    assert "cannot write 'nowhere/x.html'" in said.err
