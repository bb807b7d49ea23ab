"""`flowengine mcp` as a process, asked over stdio by the Python SDK's client and by the npm inspector's CLI."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from mcp.client.client import Client
from mcp.client.stdio import StdioServerParameters, stdio_client

from tests.support.node import node_package

OLDER_NODE = "--experimental-global-customevent --experimental-global-webcrypto"
"""What the inspector needs of Node.js 18, and later ones have anyway."""
FLOW = """
flowengine: v1
name: greet
description: Greets somebody.
inputs:
  name: {type: string}
nodes:
  shout: {type: function, call: "shouting:shout", with: {text: "{{ inputs.name }}"}}
outputs:
  greeting: "Hello, {{ nodes.shout.output }}"
"""
CODE = """
import os, sys

def shout(text):
    print("this goes nowhere near the protocol")
    os.write(1, b"nor does this\\n")
    sys.stdout.flush()
    return text.upper()
"""


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("mcp")
    (folder / "greet.yaml").write_text(FLOW)
    (folder / "shouting.py").write_text(CODE)
    return folder


def arguments(project: Path) -> list[str]:
    return ["-m", "flowengine", "mcp", str(project / "greet.yaml"), "--store", str(project / "runs.db")]


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_the_python_sdk_lists_and_calls_and_stdout_is_the_protocols_alone(project: Path) -> None:
    told = (project / "told.txt").open("w+")
    server = StdioServerParameters(command=sys.executable, args=arguments(project), env=dict(os.environ))
    with told:
        async with Client(stdio_client(server, errlog=told)) as client:
            names = [each.name for each in (await client.list_tools()).tools]
            assert names[0] == "greet"
            result = await client.call_tool("greet", {"name": "Ann"})
            assert result.structured_content is not None
            assert result.structured_content["outputs"] == {"greeting": "Hello, ANN"}
        told.seek(0)
        assert "runs of" in told.read()


@pytest.mark.long
def test_the_inspectors_command_line_lists_and_calls(project: Path) -> None:
    inspector = node_package("@modelcontextprotocol/inspector", "clients/launcher/build/index.js")
    call = ["--method", "tools/call", "--tool-name", "greet", "--tool-arg", "name=Ann", "--connect-timeout", "90000"]
    done = subprocess.run(
        [*inspector, "--cli", sys.executable, *arguments(project), *call],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        cwd=project,
        env={**os.environ, "HOME": str(project), "NODE_OPTIONS": OLDER_NODE},
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["structuredContent"]["outputs"] == {"greeting": "Hello, ANN"}
