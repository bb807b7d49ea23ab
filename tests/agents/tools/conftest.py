"""Fixtures of the tool tests: servers of our own, started by the Python that runs the tests."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "support"))

from mcp_http_server import HttpServer  # found through the line above

from flowengine.agents.tools.mcp.server_settings import McpServer

SUPPORT = Path(__file__).parents[2] / "support"


@pytest.fixture
def calls(tmp_path: Path) -> Path:
    """The file in which the test server counts."""
    file = tmp_path / "calls.txt"
    file.write_text("")
    return file


@pytest.fixture
def server(calls: Path) -> Callable[..., McpServer]:
    """Settings of the test server in one of its modes."""

    def settings(mode: str = "plain", **more: Any) -> McpServer:
        given = {
            "name": "test",
            "trust_hints": True,
            "command": sys.executable,
            "args": [str(SUPPORT / "mcp_server.py"), mode, str(calls)],
        }
        return McpServer(**{**given, **more})

    return settings


@pytest.fixture
def http_server() -> Iterator[HttpServer]:
    with HttpServer() as running:
        yield running
