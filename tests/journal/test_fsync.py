"""What a durability promises of the disk, seen from outside: the system calls of a process that runs a flow."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.require import missing, require

NODES = 5
RUN = f"""
import sys
from flowengine import Flow, FunctionNode
nodes = {{f"n{{i}}": FunctionNode(lambda context: 1, needs=[f"n{{i - 1}}"] if i else []) for i in range({NODES})}}
run = Flow("chain", nodes).run_sync(store="sqlite:///runs.db", durability=sys.argv[1])
assert run.status == "succeeded"
"""


def synced(folder: Path, durability: str) -> int:
    """How often a process that runs the chain syncs the log of its store."""
    record = folder / "calls"
    traced = [require("strace", "apt-get install strace"), "-f", "-y", "-e", "trace=fsync,fdatasync", "-o", str(record)]
    command = [*traced, sys.executable, "-c", RUN, durability]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    if "ptrace" in done.stderr:
        missing(f"strace may not trace here: {done.stderr.strip():.200}")
    assert done.returncode == 0, done.stderr
    return record.read_text().count("/runs.db-wal>)")


@pytest.mark.parametrize("left_by", [None, "process", "full"], ids=["new store", "short log", "grown log"])
def test_with_full_durability_every_node_is_synced_before_the_next_begins(tmp_path: Path, left_by: str | None) -> None:
    if left_by is not None:
        leave_a_log(tmp_path, left_by)
    assert synced(tmp_path, "full") >= NODES


def test_with_process_durability_a_node_waits_for_no_disk(tmp_path: Path) -> None:
    leave_a_log(tmp_path, "process")
    assert synced(tmp_path, "process") < NODES


def leave_a_log(folder: Path, durability: str) -> None:
    """The store as a process leaves it that is killed in its last node: its log is not yet copied into the database."""
    kill = "__import__('os').kill(__import__('os').getpid(), 9)"
    code = RUN.replace("lambda context: 1", f"lambda context, last=i == {NODES - 1}: {kill} if last else 1")
    subprocess.run([sys.executable, "-c", code, durability], cwd=folder, check=False)
    assert (folder / "runs.db-wal").stat().st_size > 0
