"""`runs show --watch`: a run of another process, followed to its end."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path

FLOW = """
flowengine: v1
name: slow
nodes:
  a: {type: function, call: slow_work:work}
  b: {type: function, call: slow_work:work, needs: [a]}
"""
CODE = """
import pathlib, time
def work(context):
    pathlib.Path("begun").touch()
    time.sleep(0.4)
    return "done"
"""


def test_a_run_of_another_process_is_followed_until_it_ends(tmp_path: Path):
    (tmp_path / "slow.yaml").write_text(FLOW)
    (tmp_path / "slow_work.py").write_text(CODE)
    ours = [sys.executable, "-m", "flowengine"]
    run = subprocess.Popen(
        [*ours, "run", "slow.yaml", "--run-id", "r", "--store", "r.db", "-q"], cwd=tmp_path, stdout=subprocess.PIPE
    )
    try:
        while not (tmp_path / "begun").exists():
            assert run.poll() is None
            time.sleep(0.01)
        followed = subprocess.run(
            [*ours, "runs", "show", "r", "--watch", "--events", "--store", "r.db"],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=60,
            check=True,
        )
    finally:
        run.communicate(timeout=60)
    kinds = [json.loads(line)["type"] for line in followed.stdout.splitlines()]
    assert kinds[0] == "RunStarted"
    assert kinds[-1] == "RunFinished"
    assert kinds.count("NodeFinished") == 2


def test_a_run_that_has_ended_is_shown_as_it_is(tmp_path: Path):
    (tmp_path / "slow.yaml").write_text(FLOW)
    (tmp_path / "slow_work.py").write_text(CODE.replace("0.4", "0"))
    ours = [sys.executable, "-m", "flowengine"]
    subprocess.run([*ours, "run", "slow.yaml", "--store", "r.db", "-q"], cwd=tmp_path, check=True, capture_output=True)
    shown = subprocess.run(
        [*ours, "runs", "show", "@last", "--watch", "--store", "r.db"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert "succeeded" in shown.stdout
