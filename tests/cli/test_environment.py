"""Which `.env` files a command reads: the working folder's, and that of the flow's project."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.model_answers import Failure
from tests.support.model_server import ModelServer

Command = Callable[..., Any]

FLOW = "flowengine: v1\nname: ask\nnodes: {a: {prompt: x, model: openai/gpt-4o-mini}}\n"


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[ModelServer]:
    for name in ("OPENAI_API_KEY", "OPENAI_BASE_URL", "OPENAI_API_BASE", "FLOWENGINE_ENV"):
        monkeypatch.delenv(name, raising=False)
    with ModelServer() as running:
        yield running


@pytest.fixture
def project(folder: Path) -> Path:
    """A project beside the working folder."""
    project = folder / "elsewhere"
    project.mkdir()
    (project / "ask.yaml").write_text(FLOW)
    return project


def keys_sent(server: ModelServer) -> list[str]:
    return [each.headers["authorization"].removeprefix("Bearer ") for each in server.requests]


@pytest.mark.parametrize(
    ("here", "there", "sent"),
    [("", "there", "there"), ("here", "", "here"), ("here", "there", "here")],
)
def test_the_working_folders_file_goes_before_the_projects(
    flowengine: Command, folder: Path, project: Path, server: ModelServer, here: str, there: str, sent: str
) -> None:
    (project / ".env").write_text(f"OPENAI_BASE_URL={server.url}\n" + (f"OPENAI_API_KEY={there}" if there else ""))
    (folder / ".env").write_text(f"OPENAI_API_KEY={here}" if here else "")
    said = flowengine("run", "elsewhere/ask.yaml")
    assert (said.code, keys_sent(server)) == (0, [sent])


def test_a_run_goes_on_with_the_keys_of_the_files(
    flowengine: Command, folder: Path, project: Path, server: ModelServer
) -> None:
    (project / ".env").write_text(f"OPENAI_BASE_URL={server.url}")
    (folder / ".env").write_text("OPENAI_API_KEY=sk-first")
    server.respond_with([Failure(400), "done"])
    assert flowengine("run", "elsewhere/ask.yaml", "--run-id", "r1").code == 1
    (folder / ".env").write_text("OPENAI_API_KEY=sk-second")
    said = flowengine("resume", "r1")
    assert (said.code, said.out) == (0, "done\n")
    assert keys_sent(server) == ["sk-first", "sk-second"]
    shown = flowengine("runs", "show", "r1", "--json")
    assert "sk-" not in shown.out + shown.err + said.err


def test_the_doctor_lists_what_a_flow_may_start_ask_and_run(
    flowengine: Command, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "flowengine.toml").write_text(
        'allow_calls = ["shop"]\nallow_http = ["https://api.example.com/ TOKEN"]\n'
        '[mcp_servers.crm]\nurl = "https://crm.example.com/mcp?key=abc"\n[mcp_servers.clock]\ncommand = "clock"\n'
    )
    (folder / "shop.py").write_text("def find(): ...\n")
    (folder / "reach.yaml").write_text(
        "flowengine: v1\nname: reach\nnodes:\n"
        "  a: {type: tool, tool: crm.look}\n"
        "  b: {type: tool, tool: clock.now}\n"
        "  c: {type: http, url: https://api.example.com/x, headers_env: {Authorization: TOKEN}}\n"
        "  d: {type: code, code: return 1}\n"
        "  e: {type: function, call: 'shop:find'}\n"
    )
    (folder / "plain.yaml").write_text("flowengine: v1\nname: plain\nnodes: {a: {prompt: Hi}}\n")
    said = flowengine("doctor", "reach.yaml", "plain.yaml")
    told = [" ".join(line.split()) for line in said.out.splitlines() if ".yaml" in line]
    assert told == [
        "ok reach.yaml starts clock (server 'clock')",
        "ok reach.yaml asks https://crm.example.com/mcp (server 'crm')",
        "ok reach.yaml sends to GET https://api.example.com/x with TOKEN",
        "ok reach.yaml calls shop:find",
        "ok reach.yaml runs the code of 'd' in the sandbox",
        "ok plain.yaml starts nothing, and calls only models",
    ]


def test_a_file_that_is_no_text_is_told_without_its_bytes(flowengine: Command, folder: Path) -> None:
    (folder / ".env").write_bytes(b"KEY=secret\xff")
    said = flowengine("run", "shout.yaml")
    assert (said.code, said.err) == (2, f"error: {folder}/.env is not UTF-8\n")


def test_the_doctor_sees_the_project_and_the_working_folder(
    flowengine: Command, folder: Path, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "flowengine.toml").touch()
    (folder / ".env").write_text("MISTRAL_API_KEY=secret")
    (project / ".env").write_text("XAI_API_KEY=secret")
    monkeypatch.chdir(project)
    said = flowengine("doctor")
    assert "MISTRAL_API_KEY is set" in said.out
    assert "XAI_API_KEY is set" in said.out
    assert "secret" not in said.out + said.err
