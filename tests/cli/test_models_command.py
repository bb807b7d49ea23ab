"""`flowengine models`: what it lists, as a table and as data, and what it never shows."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.support.model_server import ModelServer

Command = Callable[..., Any]

SECRET = "sk-of-the-project-0123456789"
PROJECT = """\
[models.fast]
model = "openai/gpt-4o-mini"
base_url = "https://ann:word@models.example/v1"
key_env = "FAST_KEY"
options = { seed = 7 }
price = { input = 1, output = 2 }
window = 2000
longest_answer = 100
images = false
[models.slow]
model = "anthropic/claude-haiku-4-5"
key_command = KEY_COMMAND
[models.local]
model = "hosted_vllm/qwen"
base_url = "http://gpu:8000/v1"
structured_output = "json_schema"
[models.cloud]
model = "bedrock/anthropic.claude-haiku-4-5-20251001-v1:0"
[models.nobody]
model = "offline"
"""


@pytest.fixture
def ran(folder: Path) -> Path:
    """A file that is there once the command for the key has run."""
    ran = folder / "ran"
    command = json.dumps([sys.executable, "-c", f"open({str(ran)!r}, 'w'); print({SECRET!r})"])
    (folder / "flowengine.toml").write_text(PROJECT.replace("KEY_COMMAND", command))
    return ran


def test_the_table_says_what_is_known_of_each_name(
    flowengine: Command, ran: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAST_KEY", SECRET)
    said = flowengine("models")
    assert (said.code, said.err) == (0, "")
    rows = {line.split()[0]: line for line in said.out.splitlines()}
    assert rows["NAME"].split()[:4] == ["NAME", "MODEL", "SERVED", "BY"]
    assert "fast: seed 7" in said.out
    assert "fast: at https://models.example/v1\n" in said.out
    assert "FAST_KEY is set" in said.out
    assert f"command '{Path(sys.executable).name}'" in rows["slow"]
    assert "200,000" in rows["slow"]
    assert "none needed" in rows["local"]
    assert "litellm" in rows["cloud"]
    assert "nobody" in rows["nobody"]
    assert SECRET not in said.out
    assert "word" not in said.out
    assert not ran.exists()


def test_the_data_are_for_scripts(flowengine: Command, ran: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAST_KEY", SECRET)
    said = flowengine("models", "--json")
    assert said.code == 0
    fast, slow, local, cloud, nobody = json.loads(said.out)
    assert fast == {
        "name": "fast",
        "provider": "openai",
        "model": "gpt-4o-mini",
        "because": "the project names openai/gpt-4o-mini so",
        "served_by": "native",
        "base_url": "https://models.example/v1",
        "window": 2000,
        "longest_answer": 100,
        "price": {"input": 1.0, "output": 2.0, "per_call": 0.0},
        "structured_output": "json_schema",
        "images": False,
        "capabilities": {
            "api": None,
            "thinks": False,
            "efforts": [],
            "usual_effort": "",
            "sampling": "always",
            "tools": True,
            "streams": True,
        },
        "options": {"seed": 7},
        "key": {"from": "variable", "name": "FAST_KEY", "is_set": True},
        "place": "flowengine.toml:1:2",
    }
    assert (slow["key"]["from"], slow["images"], slow["price"]["input"]) == ("command", True, 1.0)
    assert (local["structured_output"], local["window"], local["price"]) == ("json_schema", None, None)
    assert (cloud["served_by"], cloud["key"]["from"]) == ("litellm", "elsewhere")
    assert (nobody["served_by"], nobody["key"]["from"]) == ("nobody", "none")
    assert not ran.exists()


def test_a_key_that_is_not_set_and_a_name_that_goes_nowhere_are_told(flowengine: Command, ran: Path) -> None:
    said = flowengine("models", "fast")
    assert said.code == 1
    assert "FAST_KEY is not set" in said.out
    said = flowengine("models", "fsat")
    assert said.code == 1
    assert "no model 'fsat' is in `models` of the project file; did you mean 'fast'?" in said.out
    said = flowengine("models", "openai/gpt-4o", "--json")
    assert json.loads(said.out)[0]["window"] == 128000


def test_what_decides_what_a_call_may_say_is_told(flowengine: Command, ran: Path) -> None:
    said = flowengine("models", "openai/gpt-5-pro").out
    assert (
        "openai/gpt-5-pro: asked at OpenAI's Responses API alone; takes `reasoning_effort` high; takes no temperature"
    ) in said


def test_a_project_without_names_is_told_how_to_give_one(flowengine: Command, folder: Path) -> None:
    said = flowengine("models")
    assert (said.code, said.out) == (0, "")
    assert "[models.NAME] in flowengine.toml" in said.err


def test_doctor_says_where_each_name_goes(flowengine: Command, ran: Path) -> None:
    said = flowengine("doctor").out
    assert "openai/gpt-4o-mini; its key is in FAST_KEY, which is not set" in said
    assert f"anthropic/claude-haiku-4-5; its key comes from the command '{Path(sys.executable).name}'" in said
    assert not ran.exists()


def test_the_default_model_may_be_a_name_of_the_project(
    flowengine: Command, ran: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FLOWENGINE_DEFAULT_MODEL", "local")
    assert "local (goes to hosted_vllm, since the project names hosted_vllm/qwen so)" in flowengine("doctor").out


def test_doctor_asks_a_name_at_its_address_with_its_key(
    flowengine: Command, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("OPENAI_API_KEY", "ANTHROPIC_API_KEY", "OLLAMA_HOST"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("FLOWENGINE_DEFAULT_MODEL", "fast")
    command = json.dumps([sys.executable, "-c", f"print({SECRET!r})"])
    with ModelServer() as server:
        (folder / "flowengine.toml").write_text(
            f"[models.fast]\nmodel = 'openai/gpt-4o-mini'\nbase_url = '{server.url}'\nkey_command = {command}\n"
        )
        said = flowengine("doctor", "--probe").out
        assert [each.headers["authorization"] for each in server.requests] == [f"Bearer {SECRET}"]
    (line,) = [line for line in said.splitlines() if "probe fast" in line]
    assert line.startswith("ok")
    assert "openai answered within" in line
    assert SECRET not in said
