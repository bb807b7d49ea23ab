"""A password in the store's URL is in nothing that is printed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from flowengine.cli.main import main
from tests.support.postgres import PASSWORD, empty_database

ASKS = """
flowengine: v1
name: asks
nodes:
  ok: {type: approval, message: Go on?, routes: {"yes": a, "no": b}}
  a: {prompt: Hello., model: offline}
  b: {prompt: Hello., model: offline}
"""
SAYS = "flowengine: v1\nname: says\nnodes: {a: {prompt: Hello., model: offline}}\n"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    for name in ("FLOWENGINE_STORE", "FLOWENGINE_DEFAULT_MODEL"):
        monkeypatch.delenv(name, raising=False)
    Path("asks.yaml").write_text(ASKS)
    Path("says.yaml").write_text(SAYS)
    return tmp_path


def told(capfd: pytest.CaptureFixture[str], *words: str) -> str:
    main(words)
    said = capfd.readouterr()
    return said.out + said.err


def test_commands_and_their_hints_hold_no_password(folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    url = empty_database()
    place = ("--store", url)
    said = [told(capfd, "runs", "list", *place), told(capfd, "doctor", *place)]
    asked = told(capfd, "run", "asks.yaml", *place)
    assert "to answer: flowengine approve" in asked
    assert f"--store {url.replace(f':{PASSWORD}', '')}" in asked
    said += [
        asked,
        told(capfd, "runs", "show", "@last", *place),
        told(capfd, "approve", "@last", "--choice", "yes", "--no-resume", *place),
        told(capfd, "submit", "says.yaml", *place),
        told(capfd, "worker", "--until-idle", *place),
        told(capfd, "runs", "list", *place),
        told(capfd, "cancel", "@last", *place),
        told(capfd, "runs", "show", "nothing", *place),
    ]
    told(capfd, "run", "says.yaml", "--run-id", "says", *place)
    [call] = json.loads(told(capfd, "runs", "show", "says", "--calls", "--json", *place))
    said.append(told(capfd, "ask", "says", "--call", str(call["call"]), "--set", "temperature=0.5", *place))
    assert "to keep it: flowengine whatif" in said[-1]
    said.append(told(capfd, "whatif", "--node", "a", "--runs", "run=says", "--prompt", "Bye.", *place))
    assert f"to look at one: flowengine diff says {said[-1].partition('diff says ')[2].split()[0]} --store" in said[-1]
    assert [each for each in said if PASSWORD in each] == []


@pytest.mark.parametrize(
    "url",
    [
        f"postgresql://flow:{PASSWORD}@127.0.0.1:1/runs?connect_timeout=1",
        f"postgresql://flow@127.0.0.1:1/runs?password={PASSWORD}&connect_timeout=1",
        f"postgresql://flow:{PASSWORD}@@127.0.0.1:1/runs",
        f"postgresql://flow:{PASSWORD}@127.0.0.1:port/runs",
        f"postgres-ql://flow:{PASSWORD}@127.0.0.1/runs",
    ],
)
@pytest.mark.parametrize("words", ["runs list", "submit says.yaml", "worker", "doctor"])
def test_errors_of_a_store_that_cannot_be_reached_hold_no_password(
    url: str, words: str, folder: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FLOWENGINE_DEBUG", "1")
    said = told(capfd, *words.split(), "--store", url)
    assert said
    assert PASSWORD not in said
