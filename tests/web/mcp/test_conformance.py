"""MCP's own conformance suite asks the flows in `conformance/`, which have the names that it asks for, over HTTP, and
is asked by a flow with a tool."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Collection
from pathlib import Path

import pytest

from flowengine.web.serving_app import make_serving_app
from tests.support.node import node_package
from tests.support.ui_server import served

FLOWS = Path(__file__).parent / "conformance"
EXPECTED = FLOWS / "expected_failures.yaml"
CLIENT = """
import sys
from pathlib import Path
from flowengine import Flow

tool, given, url = sys.argv[1:]
Path("flowengine.toml").write_text(f'allow_mcp = ["{url}"]')
Path("call.yaml").write_text(f'''
flowengine: v1
name: call
mcp_servers: [{{name: suite, url: "{url}"}}]
nodes:
  call: {{type: tool, tool: suite.{tool}, with: {given}}}
''')
Flow.from_yaml("call.yaml").run_sync()
"""

pytestmark = pytest.mark.long


def run_suite(folder: Path, *arguments: str | Path) -> subprocess.CompletedProcess[str]:
    node = node_package("node", "bin/node")[1]  # The suite needs a newer one than distributions have.
    suite = node_package("@modelcontextprotocol/conformance", "dist/index.js")[1]
    command = [node, suite, *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False, cwd=folder)


def test_all_scenarios_pass_but_those_that_are_named_with_a_reason(tmp_path: Path) -> None:
    app = make_serving_app(f"sqlite:///{tmp_path / 'runs.db'}", [FLOWS], needs_key=False, grace=0)
    with served(app, token="none", end=app.state.serving.service.drain) as server:
        address, expected = ("--url", f"{server.url}/mcp"), ("--expected-failures", EXPECTED)
        done = run_suite(tmp_path, "server", *address, "--suite", "all", *expected)
    assert done.returncode == 0, f"{done.stdout[-6_000:]}\n{done.stderr}"
    assert "✓ tools-call-mixed-content: 1 passed, 0 failed" in done.stdout


@pytest.mark.parametrize(
    ("scenario", "tool", "given", "checks"),
    [
        ("initialize", "none", "{}", {"mcp-client-initialization"}),
        ("tools_call", "add_numbers", "{a: 2, b: 3}", {"tool-add-numbers"}),
        ("sse-retry", "test_reconnection", "{}", {"client-sse-graceful-reconnect", "client-sse-last-event-id"}),
    ],
)
def test_a_flow_calls_tools_as_the_suite_wants_it(
    scenario: str, tool: str, given: str, checks: Collection[str], tmp_path: Path
) -> None:
    (tmp_path / "client.py").write_text(CLIENT)
    command = f"{sys.executable} client.py {tool} '{given}'"
    done = run_suite(
        tmp_path, "client", "--command", command, "--scenario", scenario, "--timeout", "90000", "-o", "out"
    )
    [found] = tmp_path.glob("out/*/checks.json")
    passed = {each["id"] for each in json.loads(found.read_text()) if each["status"] == "SUCCESS"}
    assert passed >= set(checks), f"{done.stdout[-6_000:]}\n{done.stderr}"
