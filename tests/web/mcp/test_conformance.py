"""MCP's own conformance suite asks `serve` at `/mcp`: the flows in `conformance/` have the names that it asks for."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from flowengine.web.serving_app import make_serving_app
from tests.support.node import node_package
from tests.support.ui_server import served

FLOWS = Path(__file__).parent / "conformance"
EXPECTED = FLOWS / "expected_failures.yaml"


@pytest.mark.long
def test_all_scenarios_pass_but_those_that_are_named_with_a_reason(tmp_path: Path) -> None:
    node = node_package("node", "bin/node")[1]  # The suite needs a newer one than distributions have.
    suite = node_package("@modelcontextprotocol/conformance", "dist/index.js")[1]
    app = make_serving_app(f"sqlite:///{tmp_path / 'runs.db'}", [FLOWS], needs_key=False, grace=0)
    with served(app, token="none", end=app.state.serving.service.drain) as server:
        done = subprocess.run(
            [node, suite, "server", "--url", f"{server.url}/mcp", "--suite", "all", "--expected-failures", EXPECTED],
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
            cwd=tmp_path,
        )
    assert done.returncode == 0, f"{done.stdout[-6_000:]}\n{done.stderr}"
    assert "✓ tools-call-mixed-content: 1 passed, 0 failed" in done.stdout
