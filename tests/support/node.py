"""Packages of npm that tests ask our servers with; they are installed under the folder in FLOWENGINE_TEST_NODE."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.support.require import missing, require

__all__ = ["node_package", "run_node_script"]

VERSIONS: Mapping[str, str] = {
    "@ag-ui/client": "1.0.0",
    "@ai-sdk/openai-compatible": "3.0.92",
    "@modelcontextprotocol/conformance": "0.1.16",
    "@modelcontextprotocol/inspector": "2.12.0",
    "ai": "7.0.173",
    "axe-core": "4.14.1",
    "node": "22.23.3",
    "openai": "7.57.0",
}
"""As `.ci/node_packages` installs them."""


def node_package(name: str, script: str = "") -> list[str]:
    """The command that runs a script of a package; the test is skipped where it is not there."""
    node = require("node", "apt-get install nodejs")
    found = _modules() / name / script
    if not found.exists():
        version = VERSIONS[name]
        missing(f"{name}@{version} is not installed under FLOWENGINE_TEST_NODE (npm install {name}@{version})")
    return [node, str(found)]


def run_node_script(script: str, packages: list[str], environment: Mapping[str, str], folder: Path) -> Any:
    """What a module prints as JSON on its last line; it may import the packages."""
    for name in packages:
        node_package(name, "package.json")
    path = folder / "script.mjs"
    path.write_text(script)
    link = folder / "node_modules"
    if not link.exists():
        link.symlink_to(_modules())
    done = subprocess.run(
        [require("node"), str(path)],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        env={"PATH": os.environ["PATH"], "HOME": str(folder), **environment},
    )
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    return json.loads(done.stdout.splitlines()[-1])


def _modules() -> Path:
    return Path(os.environ.get("FLOWENGINE_TEST_NODE") or "/nonexistent", "node_modules").absolute()
