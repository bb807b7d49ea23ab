"""Where models go, as commands say it: before a run, and without asking anybody."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from tests.support.http_script import ScriptedHttp
from tests.support.model_server import ModelServer
from tests.support.quiet_ports import quiet_port

Command = Callable[..., Any]

VARIABLES = (
    "OPENAI_API_KEY", "OPENAI_BASE_URL", "OPENAI_API_BASE", "ANTHROPIC_API_KEY", "GROQ_API_KEY", "OPENROUTER_API_KEY",
    "OLLAMA_HOST", "OLLAMA_BASE_URL", "OLLAMA_API_BASE", "FLOWENGINE_DEFAULT_MODEL",
)  # fmt: skip


@pytest.fixture(autouse=True)
def bare(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def flow(folder: Path) -> str:
    nodes = "  a: {prompt: x, model: gtp-4o-mini}\n  b: {prompt: x, model: gpt-4o, needs: [a]}\n"
    text = f"flowengine: v1\nname: m\nnodes:\n{nodes}"
    (folder / "m.yaml").write_text(text)
    return "m.yaml"


@pytest.mark.parametrize("command", [["validate"], ["run"], ["plan"]])
def test_a_name_that_nobody_has_is_an_error_with_its_place(flowengine: Command, flow: str, command: list[str]) -> None:
    said = flowengine(*command, flow)
    assert said.code == 2
    told = said.out + said.err
    assert "m.yaml:4:" in told
    assert "node 'a': " in told
    assert "no vendor is known to have a model 'gtp-4o-mini'" in told
    assert "did you mean 'gpt-4o-mini'?" in told


def test_a_default_vendor_of_the_project_takes_it(flowengine: Command, flow: str, folder: Path) -> None:
    (folder / "flowengine.toml").write_text('default_provider = "ollama"\n')
    said = flowengine("validate", "-v", flow)
    assert said.code == 0
    assert "m.yaml: model 'gtp-4o-mini' goes to ollama, since the project file's `default_provider` says so" in said.out
    assert "m.yaml: model 'gpt-4o' goes to openai, since that is whose name it is" in said.out
    (folder / "flowengine.toml").write_text('default_provider = "olama"\n')
    assert "unknown provider 'olama' in `default_provider`; did you mean 'ollama'?" in flowengine("validate", flow).err


def test_plan_and_doctor_say_where_models_go(flowengine: Command, flow: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "other models" in flowengine("doctor").out
    monkeypatch.setenv("OLLAMA_HOST", "gpu")
    assert "model 'gtp-4o-mini' goes to ollama, since OLLAMA_HOST is set" in flowengine("plan", flow).out
    told = json.loads(flowengine("plan", flow, "--json").out)["models"]
    assert told["gtp-4o-mini"] == {"provider": "ollama", "because": "OLLAMA_HOST is set"}
    monkeypatch.setenv("FLOWENGINE_DEFAULT_MODEL", "qwen3")
    said = flowengine("doctor").out
    assert "qwen3 (goes to ollama, since OLLAMA_HOST is set)" in said
    monkeypatch.delenv("OLLAMA_HOST")
    assert "no vendor is known to have a model 'qwen3'" in flowengine("doctor").out


def test_a_vendor_of_ones_own_without_an_address_is_an_error_before_the_run(
    flowengine: Command, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-not-to-be-sent")
    (folder / "v.yaml").write_text("flowengine: v1\nname: v\nnodes:\n  a: {prompt: x, model: hosted_vllm/foo}\n")
    said = flowengine("run", "v.yaml", "--store", "memory:")
    assert said.code == 2
    assert "v.yaml:4:3: node 'a': model 'foo' of hosted_vllm needs an address: set HOSTED_VLLM_API_BASE" in said.err


def test_a_provider_of_ones_own_is_told_which_names_there_are(flowengine: Command, flow: str, folder: Path) -> None:
    (folder / "flowengine.toml").write_text("[providers.mine]\nbase_url = 'http://mine'\n")
    said = flowengine("validate", flow)
    assert "gemini'?" not in said.err
    assert "unknown provider 'mine' in `providers`; it names a vendor, one of openai, anthropic, google" in said.err
    assert "A server of your own that speaks as OpenAI does is hosted_vllm, with its address as `base_url`" in said.err


def test_plan_says_where_two_layers_of_retries_multiply(flowengine: Command, folder: Path) -> None:
    (folder / "r.yaml").write_text(
        "flowengine: v1\nname: r\nnodes:\n  a: {prompt: x, model: gpt-4o, max_retries: 0, retry: {attempts: 3}}\n"
        "  pick: {type: routing, needs: [a], model: gpt-4o, instruction: i, routes: {x: b}, retry: {attempts: 3}}\n"
        "  b: {prompt: x, model: gpt-4o}\n"
    )
    said = flowengine("plan", "r.yaml").out
    assert "note: retries of 'pick' multiply: `retry` runs it up to 3 times, and in each run a call is repeated" in said
    assert "retries of 'a'" not in said
    assert "retries of 'b'" not in said


def test_doctor_asks_those_in_use_and_says_what_came_back(
    flowengine: Command, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with ModelServer(responder=["Hi"]) as server:
        monkeypatch.setenv("FLOWENGINE_ALLOW_MODEL_REQUESTS", "1")
        monkeypatch.setenv("OPENAI_API_KEY", "sk-not-shown")
        monkeypatch.setenv("OPENAI_BASE_URL", server.url)
        dead = f"http://127.0.0.1:{quiet_port()}"
        monkeypatch.setenv("HOSTED_VLLM_API_BASE", dead)
        said = flowengine("doctor", "--probe")
    assert said.code == 1
    lines = {line.split("  ")[1].strip(): line for line in said.out.splitlines() if "  probe " in line}
    assert "openai answered within" in said.out
    assert "probe hosted_vllm" in lines
    assert lines["probe hosted_vllm"].startswith("FAILED")
    assert f"no connection to {dead}" in said.out
    assert "sk-not-shown" not in said.out + said.err
    assert len(server.requests) == 1
    assert server.requests[0].body["max_tokens"] == 1


def test_a_server_of_ones_own_is_asked_for_its_list(flowengine: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    class Lists(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            if self.path == "/v1/models":
                body, status = b'{"data": [{"id": "one"}, {"id": "two"}]}', 200
            else:
                body, status = b"", 302
            self.send_response(status)
            self.send_header("Location", "http://127.0.0.1:9/elsewhere")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: Any) -> None:
            """Nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Lists) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        base = f"http://127.0.0.1:{server.server_port}"
        monkeypatch.setenv("HOSTED_VLLM_API_BASE", f"{base}/v1")
        assert f"{base}/v1 has 2 model(s): one, two" in flowengine("doctor", "--probe").out
        monkeypatch.setenv("HOSTED_VLLM_API_BASE", f"{base}/moved")
        assert f"{base}/moved: the server answers 302 and redirects to" in flowengine("doctor", "--probe").out
        server.shutdown()
    with ScriptedHttp(b"+nonsense" + ScriptedHttp.CLOSE) as odd:
        monkeypatch.setenv("HOSTED_VLLM_API_BASE", odd.replace("http://", "http://me:not-shown-1@"))
        said = flowengine("doctor", "--probe").out
        assert "FAILED" in said
        assert "not-shown-1" not in said
        monkeypatch.setenv("HOSTED_VLLM_API_BASE", odd)
        assert f"{odd}: " in flowengine("doctor", "--probe").out
    monkeypatch.setenv("HOSTED_VLLM_API_BASE", "http://me:not/shown-1@127.0.0.1:9/v1")
    said = flowengine("doctor", "--probe").out
    assert "its address is none" in said
    assert "shown-1" not in said


def test_doctor_says_which_extras_are_missing(flowengine: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "extra mcp" in flowengine("doctor").out
    monkeypatch.setattr("flowengine.version.find_spec", lambda name: None)
    said = flowengine("doctor").out
    assert "not installed (psycopg, procrastinate): pip install 'flowengine-dag[queue]', or in a clone" in said


def test_nodes_without_a_model_are_named_where_others_have_one(
    flowengine: Command, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    inner = "flowengine: v1\nname: inner\nnodes:\n  c: {prompt: x}\n"
    nodes = "  a: {prompt: x, model: gpt-4o}\n  b: {prompt: x, needs: [a]}\n  s: {type: subflow, flow: inner.yaml}\n"
    (folder / "inner.yaml").write_text(inner)
    (folder / "mixed.yaml").write_text(f"flowengine: v1\nname: mixed\nnodes:\n{nodes}")
    told = "no model is named for 'b', 'c' of inner, so they ask the offline stand-in, which is no language model"
    assert f"mixed.yaml: {told}" in flowengine("validate", "-v", "mixed.yaml").out
    assert told in flowengine("plan", "mixed.yaml").out
    assert "no model is named" not in flowengine("plan", "mixed.yaml", "--model", "offline").out
    assert "no model is named" not in flowengine("validate", "-v", "inner.yaml").out
    monkeypatch.setenv("FLOWENGINE_DEFAULT_MODEL", "anthropic/claude-haiku-4-5")
    assert "so they ask anthropic/claude-haiku-4-5" in flowengine("validate", "-v", "mixed.yaml").out
