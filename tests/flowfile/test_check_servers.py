"""Which MCP servers a project lets its flows use."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from flowengine.cli.main import main
from flowengine.errors import FlowError
from flowengine.flow import Flow
from flowengine.flowfile.checks.permissions import is_allowed
from flowengine.flowfile.loader import check_file
from flowengine.flowfile.schema.agent_settings import McpServerSpec

FLOW = "flowengine: v1\nname: sample\n"
ONE = FLOW + (
    "nodes:\n  a:\n    prompt: x\n    mcp_servers: [{name: t, command: touch, args: [ran]}]\n"
    "    trust: {mcp_servers: It is ours.}\n"
)


def server(**settings: Any) -> McpServerSpec:
    return McpServerSpec(name="t", **settings)


@pytest.mark.parametrize(
    ("entry", "allowed"),
    [
        ("uvx", True),
        ("uvx mcp-server-time", True),
        ("uvx mcp-server-time --zone 'Etc/GMT +1'", True),
        ("uvx mcp-server-time --zone Etc/GMT", False),
        ("uvx mcp-server-time --zone 'Etc/GMT +1' --more", False),
        ("uvx mcp-server", False),
        ("uv", False),
        ("UVX", False),
        ("/usr/bin/uvx", False),
        ("mcp-server-time", False),
        ("uvx 'mcp", False),
        ("", False),
        ("*", False),
        ("TZ=UTC uvx", True),
        ("https://uvx", False),
    ],
)
def test_a_command_line_begins_with_what_is_allowed(entry: str, allowed: bool) -> None:
    found = server(command="uvx", args=("mcp-server-time", "--zone", "Etc/GMT +1"))
    assert is_allowed(found, ["other", entry]) is allowed


@pytest.mark.parametrize(
    ("entry", "allowed"),
    [
        ("node server.js", False),
        ("NODE_OPTIONS=--import=x node server.js", False),
        ("TZ=UTC node server.js", False),
        ("TZ=UTC NODE_OPTIONS=--import=y node server.js", False),
        ("TZ=UTC NODE_OPTIONS=--import=x node server.js", True),
        ("NODE_OPTIONS=* TZ=* node server.js", True),
        ("*=* node server.js", False),
        ("TZ=* NODE_OPTIONS=*", False),
    ],
)
def test_the_environment_of_a_command_is_allowed_by_name(entry: str, allowed: bool) -> None:
    """NODE_OPTIONS, PYTHONPATH, PATH and others make a program that is allowed run what is not."""
    found = server(command="node", args=("server.js",), env={"TZ": "UTC", "NODE_OPTIONS": "--import=x"})
    assert is_allowed(found, [entry]) is allowed


@pytest.mark.parametrize(
    ("url", "allowed"),
    [
        ("https://example.org/mcp", True),
        ("https://example.org/mcp/", True),
        ("https://example.org/mcp/tools?key=abc", True),
        ("https://user:pass@example.org/mcp", True),
        ("https://example.org/mcp2", False),
        ("https://example.org/", False),
        ("http://example.org/mcp", False),
        ("https://example.org:8443/mcp", False),
        ("https://example.org.evil.net/mcp", False),
        ("https://example.org@evil.net/mcp", False),
        ("https://evil.net/https://example.org/mcp", False),
        ("https://evil.net#@example.org/mcp", False),
        ("https://example.org\\@evil.net/mcp", False),
        ("https://example.org/mcp/../admin", False),
        ("https://example.org/mcp/%2e%2E/admin", False),
        ("https://[bad/mcp", False),
    ],
)
def test_a_url_lies_below_what_is_allowed(url: str, allowed: bool) -> None:
    assert is_allowed(server(url=url), ["https://example.org/mcp"]) is allowed


@pytest.mark.parametrize("entry", ["https://example.org", "https://example.org/", "https://example.org/?v=1"])
def test_a_host_stands_for_all_of_it_and_for_no_other(entry: str) -> None:
    assert is_allowed(server(url="https://example.org/mcp"), [entry])
    assert not is_allowed(server(url="https://example.organic/mcp"), [entry])


@pytest.mark.parametrize("entry", ["https://", "https", "http", "", "/", "*", "example.org"])
def test_what_is_no_address_allows_no_url(entry: str) -> None:
    assert not is_allowed(server(url="https://example.org/mcp"), [entry])


@pytest.mark.parametrize("text", [None, "", "allow_mcp = []", "allow_mcp = ['touch other']", "allow_calls = ['touch']"])
def test_without_permission_nothing_is_started(text: str | None, tmp_path: Path) -> None:
    if text is not None:
        (tmp_path / "flowengine.toml").write_text(text)
    (tmp_path / "flow.yaml").write_text(ONE)
    expected = (
        f"{tmp_path}/flow.yaml:6:38: FE509 node 'a': the MCP server 't' is not allowed; "
        f'add "touch ran" to `allow_mcp` in {tmp_path}/flowengine.toml'
    )
    assert [str(each) for each in check_file(tmp_path / "flow.yaml")] == [expected]
    with pytest.raises(FlowError, match="FE509"):
        Flow.from_yaml(tmp_path / "flow.yaml")
    assert main(["validate", str(tmp_path / "flow.yaml")]) == 2


def test_what_the_message_says_to_add_is_what_allows_the_server(tmp_path: Path) -> None:
    servers = (
        "{name: one, command: my tool, args: ['it''s', --n=1], env: {KEY: s3cret-value, TZ: UTC}}",
        "{name: two, url: 'https://ada:s3cret@example.org/mcp/v1?key=s3cret'}",
    )
    trusted = "trust: {mcp_servers: They are ours.}"
    nodes = f"nodes: {{a: {{prompt: x, {trusted}, mcp_servers: [{', '.join(servers)}]}}}}"
    (tmp_path / "flow.yaml").write_text(FLOW + nodes)
    found = [str(each) for each in check_file(tmp_path / "flow.yaml")]
    assert len(found) == 2
    assert "s3cret" not in "".join(found)
    entries = [each.partition("; add ")[2].partition(" to `allow_mcp`")[0] for each in found]
    (tmp_path / "flowengine.toml").write_text(f"allow_mcp = [{', '.join(entries)}]")
    assert check_file(tmp_path / "flow.yaml") == []


@pytest.mark.parametrize(
    "nodes",
    [
        "agents: {w: {mcp_servers: [{name: t, command: c}]}}\nnodes: {a: {agent: w, prompt: x}}",
        "defaults: {agent: {mcp_servers: [{name: t, command: c}]}}\nnodes: {a: {prompt: x}}",
        "nodes: {a: {agent: {mcp_servers: [{name: t, command: c}]}, prompt: x}}",
    ],
)
def test_servers_are_found_wherever_agents_are(nodes: str, tmp_path: Path) -> None:
    (tmp_path / "flow.yaml").write_text(FLOW + nodes)
    assert [each.code for each in check_file(tmp_path / "flow.yaml")] == ["FE509"]


def test_a_library_that_is_not_there_is_a_warning(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "flowengine.toml").write_text('allow_mcp = ["touch"]\n')
    (tmp_path / "a.yaml").write_text(ONE)
    assert check_file(tmp_path / "a.yaml") == []
    monkeypatch.setattr("flowengine.version.find_spec", lambda name: None)
    [found] = check_file(tmp_path / "a.yaml")
    assert (found.code, found.severity, found.node) == ("FE908", "warning", "a")
    assert "pip install 'flowengine-dag[mcp]'" in str(found)
