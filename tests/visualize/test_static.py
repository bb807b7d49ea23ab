"""The viewer's scripts that decide without a page, by node's own test runner."""

from __future__ import annotations

import subprocess
from pathlib import Path

from tests.support.require import require

SCRIPTS = Path(__file__).parent / "scripts"


def test_the_scripts_do_as_their_own_tests_say():
    node = require("node")
    files = sorted(str(each) for each in SCRIPTS.glob("*.test.mjs"))
    # In one process: a process for each file would take longer than all tests.
    load_all = "for (const file of process.argv.slice(1)) await import(file)"
    run = [node, "--input-type=module", "--eval", load_all, *files]
    ended = subprocess.run(run, capture_output=True, text=True, timeout=120, check=False)
    assert ended.returncode == 0, ended.stdout[-4000:]
    assert files
