"""`flowengine export`: a run as one HTML file."""

from __future__ import annotations

import os
import re
import sqlite3
import threading
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

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
    assert re.findall(r"url\((?!#)", page) == []  # Only what is in the page itself.


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
    assert "nowhere/x.html cannot be written" in said.err


def test_several_runs_are_one_page_with_a_list_and_what_people_said_of_them(flowengine: Command, folder: Path) -> None:
    flowengine("run", "shout.yaml", "--run-id", "r1", "-i", "text=mail ada@example.jp", "--session", "ann")
    flowengine("run", "fragile.yaml", "--run-id", "r2", "--session", "ann")
    flowengine("run", "shout.yaml", "--run-id", "r3")
    flowengine("runs", "note", "r1", "ask bob@example.jp", "--mark", "golden", "--score", "quality=0.5")
    said = flowengine("runs", "export", "--session", "ann", "-o", "ann.html")
    page = (folder / "ann.html").read_text()
    assert (said.code, said.err) == (0, f"ann.html: 2 runs, {len(page.encode()):,} bytes\n")
    assert page.count("<template data-run=") == 2
    assert 'href="#run=r1"' in page
    assert page.count(">golden</span>") == 3  # In the list, in the run's head, and among what is said.
    assert ("ada@example.jp" in page, "bob@example.jp" in page, "MAIL:" in page) == (False, False, True)
    flowengine("export", "--flow", "shout", "--limit", "1", "-o", "one.html")
    assert "data-run=" not in (folder / "one.html").read_text()
    assert flowengine("runs", "export", "r1", "--format", "html", "--unmasked").out.count("bob@example.jp") > 0
    refused = flowengine("export")
    assert (refused.code, "name a run, or give --flow" in refused.err) == (2, True)
    assert "there is nothing to export" in flowengine("runs", "export", "--flow", "none", "-o", "x.html").err
    with closing(sqlite3.connect(folder / ".flowengine" / "runs.db")) as store, store:
        store.execute("UPDATE event SET body = 'x' WHERE position / 4294967296 = 2")
    for name in ("both.html", "both.jsonl"):
        left = flowengine("runs", "export", "r1", "r2", "-o", name)
        assert (left.code, "left: " in left.err) == (1, True)
    assert "1 more could not be read" in (folder / "both.html").read_text()


def test_several_runs_go_into_one_file_and_into_another_store_with_what_was_said(
    flowengine: Command, folder: Path
) -> None:
    for run_id in ("r1", "r2"):
        flowengine("run", "shout.yaml", "--run-id", run_id)
    flowengine("runs", "note", "r2", "look at this", "--mark", "golden", "--score", "quality=0.5", "--by", "ann")
    said = flowengine("runs", "export", "--limit", "9", "-o", "all.jsonl")
    assert (said.code, said.err) == (0, "wrote all.jsonl: 2 runs, 10 events\n")
    moved = flowengine("runs", "import", "all.jsonl", "--store", "other.db")
    assert (moved.code, moved.err) == (0, "run r2 is in other.db\nrun r1 is in other.db\n")
    told = flowengine("runs", "note", "r2", "--store", "other.db").out
    assert all(" by ann, " in line for line in told.splitlines() if not line.startswith("  "))
    assert ("marked golden" in told, "quality 0.5" in told, "  look at this" in told) == (True, True, True)
    again = flowengine("runs", "import", "all.jsonl", "--store", "other.db")
    assert (again.code, again.err.count("exists already")) == (1, 2)
    named = flowengine("runs", "import", "all.jsonl", "--store", "other.db", "--as", "r9")
    assert (named.code, "holds 2" in named.err) == (2, True)
    hidden = flowengine("runs", "export", "r2", "--masked").out
    assert ("look at this" in hidden, "ann" in hidden.split("\n")[0]) == (True, False)


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("/dev/zero", "/dev/zero is no exported run: `flowengine runs export` makes one"),
        ("folder", "folder is a folder; a file is expected that `flowengine runs export` wrote"),
        ("missing.jsonl", "missing.jsonl cannot be read: No such file or directory"),
        ("empty.jsonl", "empty.jsonl is no exported run"),
        ("latin.jsonl", "latin.jsonl is no exported run: it is not UTF-8 text"),
    ],
)
def test_what_is_no_exported_file_is_told_as_such(flowengine: Command, folder: Path, name: str, told: str) -> None:
    (folder / "folder").mkdir()
    (folder / "empty.jsonl").write_text("\n")
    (folder / "latin.jsonl").write_bytes(b'{"name": "\xe9"}\n')
    said = flowengine("runs", "import", name)
    assert (said.code, said.out) == (2, "")
    assert f"error: {told}" in said.err
    assert "Errno" not in said.err


def test_a_run_is_imported_from_a_pipe(flowengine: Command, folder: Path) -> None:
    flowengine("run", "shout.yaml", "--run-id", "r1")
    flowengine("runs", "export", "r1", "-o", "r1.jsonl")
    os.mkfifo(folder / "pipe")
    text = "\ufeff" + (folder / "r1.jsonl").read_text().replace("\n", "\r\n")
    writer = threading.Thread(target=(folder / "pipe").write_bytes, args=(text.encode(),))
    writer.start()
    said = flowengine("runs", "import", "pipe", "--as", "r2")
    writer.join()
    assert (said.code, said.err.split()[:2]) == (0, ["run", "r2"])
