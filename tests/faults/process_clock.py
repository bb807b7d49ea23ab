"""A clock that jumps a day forward and two back while a run is at work, in a process of its own.

Durations, timeouts and the waits of retries are what passed; the times of the events only go forward.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Final

from flowengine.journal.sqlite.store import SQLiteStore
from tests.faults.process_nursery import ROOT, without_vendors

__all__ = ["check_clock", "rows"]

STORE: Final = ("--store", "runs.db")

LAUNCH: Final = """
import os, sys, time

real = time.time

def jumping():
    try:
        with open("clock") as file:
            return real() + float(file.read() or 0)
    except FileNotFoundError:
        return real()

time.time = jumping  # before anything else has taken it
from flowengine.cli.main import main
sys.argv = ["flowengine", *sys.argv[1:]]
sys.exit(main())
"""

JUMPS: Final = """
flowengine: v1
name: jumps
limits: {timeout: 30s}
nodes:
  a: {type: function, call: "steps:jump", with: {days: 1}, timeout: 20s}
  b: {type: function, call: "steps:jump", with: {days: -2}, needs: [a], timeout: 20s}
  c:
    type: function
    call: steps:jump
    with: {days: 0}
    needs: [b]
    timeout: 20s
    retry: {attempts: 2}
outputs: {end: "{{ nodes.c.output }}"}
"""

JUMP_STEPS: Final = """
import os, time

def jump(days):
    with open("new clock", "w") as file:
        file.write(str(days * 86400))
    os.replace("new clock", "clock")
    if days == 0 and not os.path.exists("failed"):
        open("failed", "w").close()
        raise ConnectionError("once")
    time.sleep(0.05)
    return days
"""


def check_clock(folder: Path) -> None:
    """A day forward and two back while a run is at work, and again before it is looked at."""
    folder.joinpath("jumps.yaml").write_text(JUMPS)
    folder.joinpath("steps.py").write_text(JUMP_STEPS)
    begun = time.monotonic()
    ended = launched(folder, "run", "jumps.yaml", "--run-id", "r1", "--json", *STORE)
    took = time.monotonic() - begun
    assert ended.returncode == 0, ended.stderr
    told = json.loads(ended.stdout)
    assert told["outputs"] == {"end": 0}
    assert 0.15 <= told["seconds"] <= took
    assert all(0.04 < node["seconds"] < took for node in told["nodes"].values()), told["nodes"]
    with closing(SQLiteStore(folder / "runs.db")) as store:
        at = [event.at for event in store.events("r1")]
    assert at == sorted(at), "times went back"


def launched(folder: Path, *argv: str) -> subprocess.CompletedProcess[str]:
    surroundings = {**without_vendors(), "PYTHONPATH": os.pathsep.join([str(ROOT), *sys.path])}
    words = [sys.executable, "-c", LAUNCH, *argv]
    return subprocess.run(words, cwd=folder, env=surroundings, capture_output=True, text=True, timeout=120, check=False)


def rows() -> Iterator[tuple[str, Callable[[Path], str]]]:
    """Each row's name, and what tries it in a folder and says what was seen."""
    yield "a clock that jumps a day forward and two back while a run is at work", clocks


def clocks(folder: Path) -> str:
    check_clock(folder)
    return "durations as they were, times in order"
