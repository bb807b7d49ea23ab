"""Attempts to get at keys: by what a server sends back, by where a flow wants a request sent, by reading files."""

from __future__ import annotations

import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from flowengine.cli.main import main
from flowengine.errors import ModelConfigError
from flowengine.flow import Flow
from flowengine.journal.stores import open_store
from flowengine.llm.detect import detect, get_llm
from flowengine.llm.litellm_errors import as_model_error, tellable
from flowengine.memory.database import MemoryDatabase
from flowengine.nodes.function import FunctionNode
from flowengine.retrieval.fts import FtsRetriever
from tests.support.model_server import Failure, ModelServer

KEY = "sk-attempt-0123456789abcdef"
FLOW = """flowengine: v1
name: leaky
nodes:
  ask: {prompt: Hello, model: openai/gpt-4o-mini, on_error: skip}
  again: {prompt: Hello, model: openai/gpt-4o-mini, needs: [ask], join: always}
"""


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("OPENAI_API_KEY", "OPENAI_BASE_URL", "OPENAI_API_BASE", "FLOWENGINE_DEFAULT_MODEL", "FLOWENGINE_ENV"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.delenv("FLOWENGINE_STORE", raising=False)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "flow.yaml").write_text(FLOW)
    return tmp_path


@pytest.fixture
def server() -> Iterator[ModelServer]:
    """A server, or somebody between it and us, that sends the key back."""
    echo = Failure(400, f"your header was 'Authorization: Bearer {KEY}', url https://vendor.example/?key={KEY}")
    with ModelServer(responder=lambda body: echo) as running:
        yield running


def test_a_key_that_a_server_sends_back_is_told_nowhere(
    root: Path, server: ModelServer, capfd: pytest.CaptureFixture[str]
) -> None:
    (root / ".env").write_text(f"OPENAI_API_KEY={KEY}\nOPENAI_BASE_URL={server.url}\n")
    assert main(["run", "flow.yaml", "--store", "runs.db"]) == 1
    for words in (
        ["runs", "show", "@last", "--node", "again"],
        ["runs", "export", "@last", "-o", "run.jsonl"],
        ["export", "@last", "--unmasked", "-o", "run.html"],
        ["telemetry", "@last", "--content", "-o", "trace.jsonl"],
        ["graph", "@last", "--format", "json", "-o", "graph.json"],
        ["runs", "list", "--json"],
    ):
        assert main([*words, "--store", "runs.db"]) == 0, words
    assert server.requests[0].headers["authorization"] == f"Bearer {KEY}"
    told = "".join(capfd.readouterr())
    assert "[hidden]" in told
    assert KEY not in told
    written = {each.name: each.read_bytes() for each in root.iterdir() if each.is_file() and each.name != ".env"}
    assert {"run.jsonl", "run.html", "trace.jsonl", "graph.json", "runs.db"} <= written.keys()
    assert [name for name, content in written.items() if KEY.encode() in content] == []
    assert KEY not in repr(Flow.from_yaml("flow.yaml").plan)


def test_an_error_holds_no_key_in_its_text_nor_as_its_cause() -> None:
    said = RuntimeError(f"Error code: 401 - {KEY} is wrong. Original exception: {KEY}")
    assert KEY not in str(as_model_error(said, "openai", "m", KEY))
    assert tellable(said, KEY) is None
    other = RuntimeError("down")
    assert tellable(other, KEY) is other


@pytest.mark.parametrize(
    "name",
    [
        "huggingface/https://evil.example",
        "huggingface/http://127.0.0.1:1",
        "https://evil.example/v1",
        "oobabooga/https://evil.example",
        "gemini/../../v1/files",
        "azure/x?api-version=1",
        "gemini/x#/..",
        "openai/gpt\r\nX-Header: 1",
        "bedrock/arn:aws:bedrock:evil.example\\:x",
    ],
)
def test_a_models_name_is_no_address_to_which_a_key_is_sent(name: str) -> None:
    with pytest.raises(ModelConfigError, match="no model's name"):
        detect(name, environ={"HF_TOKEN": KEY})
    with pytest.raises(ModelConfigError):
        get_llm(name, environ={"HF_TOKEN": KEY, "GEMINI_API_KEY": KEY})


@pytest.mark.parametrize(
    "name",
    [
        "openrouter/meta-llama/llama-3:free",
        "ft:gpt-4o-mini:org::id",
        "vertex_ai/claude-3-5-sonnet@20240620",
        "ollama/hf.co/org/model:Q4_K_M",
        "bedrock/arn:aws:bedrock:us-east-1:123:inference-profile/eu.x.y-v1:0",
    ],
)
def test_names_of_real_models_are_names(name: str) -> None:
    assert detect(name, environ={})[1]


@pytest.mark.anyio
async def test_what_was_said_is_in_files_that_only_their_owner_reads(tmp_path: Path) -> None:
    kept = tmp_path / "kept"
    store = open_store(f"sqlite:///{kept}/runs.db")
    await Flow("said", {"one": FunctionNode(lambda context: "secret")}).run(store=store)
    await MemoryDatabase(kept / "memory.db").read(lambda connection: None)
    await FtsRetriever(kept / "index.db").add([])
    modes = {each.name: stat.S_IMODE(each.stat().st_mode) for each in kept.iterdir() if each.is_file()}
    store.close()
    assert {"runs.db", "runs.db-wal", "memory.db", "index.db"} <= modes.keys()
    assert {name for name, mode in modes.items() if mode & 0o077} == set()
    assert stat.S_IMODE(kept.stat().st_mode) == 0o700


def test_a_store_that_its_owner_has_opened_to_others_stays_so(tmp_path: Path) -> None:
    path = tmp_path / "runs.db"
    path.touch()
    path.chmod(0o664)
    Flow("said", {"one": FunctionNode(lambda context: "secret")}).run_sync(store=f"sqlite:///{path}")
    assert stat.S_IMODE(path.stat().st_mode) == 0o664
