"""Attempts to get at keys: by what a server sends back, by where a flow wants a request sent, by reading files."""

from __future__ import annotations

import re
import stat
from base64 import b64encode, urlsafe_b64encode
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

import pytest

from flowengine.agents.memory.database import MemoryDatabase
from flowengine.agents.retrieval.fts import FtsRetriever
from flowengine.cli.main import main
from flowengine.core.secret_values import HiddenStream, Secrets
from flowengine.errors import ModelConfigError
from flowengine.flow import Flow
from flowengine.journal.stores import open_store
from flowengine.models.litellm.reply import as_model_error, tellable
from flowengine.models.open import get_llm
from flowengine.nodes.function import FunctionNode
from tests.support.model_answers import Failure
from tests.support.model_server import ModelServer
from tests.support.vendor_names import detect

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
    secrets = Secrets([KEY])
    assert KEY not in str(as_model_error(said, "openai", "m", secrets))
    assert tellable(said, secrets) is None
    other = RuntimeError("down")
    assert tellable(other, secrets) is other


FORMS = {
    "as it is": KEY,
    "upper case": KEY.upper(),
    "backwards": KEY[::-1],
    "spaced": " ".join(KEY),
    "over lines": KEY[:12] + "\n" + KEY[12:],
    "zero-width": "\u200b".join(KEY),
    "soft hyphens": "\u00ad".join(KEY),
    "in a URL": quote(KEY, safe=""),
    "all escaped for a URL": "".join(f"%{ord(each):02x}" for each in KEY),
    "escaped for JSON": "".join(f"\\u{ord(each):04x}" for each in KEY),
    "escaped for JSON in JSON": "".join(f"\\\\u{ord(each):04x}" for each in KEY),
    "escaped for Python": "".join(f"\\x{ord(each):02X}" for each in KEY),
    "entities": "".join(f"&#{ord(each)};" for each in KEY),
    "hexadecimal entities": "".join(f"&#x{ord(each):x};" for each in KEY),
    "hexadecimal": KEY.encode().hex(),
    "hexadecimal bytes": KEY.encode().hex(" ").upper(),
    "base64": b64encode(KEY.encode()).decode(),
    "base64 of a header": b64encode(f"user:{KEY}".encode()).decode(),
    "base64 of a header, another offset": b64encode(f"me:{KEY}".encode()).decode(),
    "base64 for URLs": urlsafe_b64encode(f"a:{KEY}".encode()).decode().rstrip("="),
}


def without(text: str) -> str:
    """What of a form is left that says something of the key."""
    return re.sub(r"[^A-Za-z0-9]", "", text.replace("[hidden]", ""))


@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
def test_a_key_is_hidden_in_each_form_that_a_header_an_address_or_a_trick_gives_it(form: str) -> None:
    secrets = Secrets([KEY])
    said = secrets.hide(f"The key is {form}, said the server.")
    assert said.startswith("The key is ")
    assert said.endswith(", said the server.")
    left = said.removeprefix("The key is ").removesuffix(", said the server.")
    assert "[hidden]" in left
    assert len(without(left)) <= 14, left  # The `user:` of a header, or a letter that stands for half of one.
    assert not secrets.holds(said)


@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
@pytest.mark.parametrize("size", [1, 2, 3, 7, 30])
def test_pieces_of_an_answer_show_no_more_of_a_key_than_the_whole(form: str, size: int) -> None:
    secrets, text = Secrets([KEY]), f"a sk-att {form} b {form}{form} sk-attempt-0123"
    stream = HiddenStream(secrets)
    pieces = [stream.feed(text[at : at + size]) for at in range(0, len(text), size)]
    assert "".join([*pieces, stream.close()]) == secrets.hide(text)


@pytest.mark.parametrize(
    "text",
    [
        "risk-attempt-01234 of the sky",
        "a sentence of many words, 100 % sure, with \\ and & in it",
        "0123456789abcdef",
        "ollama runs not-needed models",
    ],
)
def test_what_is_no_key_stays(text: str) -> None:
    assert Secrets([KEY]).hide(text) == text
    stream = HiddenStream(Secrets([KEY]))
    assert stream.feed(text) + stream.close() == text


def test_a_placeholder_that_a_server_takes_as_a_key_stays_in_answers(
    root: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (root / "one.yaml").write_text(ANSWERED)
    with ModelServer(responder=lambda body: "ollama is not-needed") as server:
        (root / ".env").write_text(f"OPENAI_API_KEY=not-needed\nOPENAI_BASE_URL={server.url}\n")
        assert main(["run", "one.yaml", "--store", "runs.db"]) == 0
    assert "ollama is not-needed" in capfd.readouterr().out


ANSWERED = """flowengine: v1
name: answered
nodes:
  ask: {prompt: Hello, model: openai/gpt-4o-mini}
"""


@pytest.mark.parametrize("form", ["as it is", "base64", "escaped for a URL"])
def test_a_key_in_an_answer_is_printed_and_recorded_nowhere(
    form: str, root: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    said = FORMS.get(form) or "".join(f"%{ord(each):02x}" for each in KEY)
    (root / "one.yaml").write_text(ANSWERED)
    with ModelServer(responder=lambda body: f"You sent {said} to me.") as server:
        (root / ".env").write_text(f"OPENAI_API_KEY={KEY}\nOPENAI_BASE_URL={server.url}\n")
        assert main(["run", "one.yaml", "--store", "runs.db"]) == 0
    assert main(["runs", "export", "@last", "-o", "run.jsonl", "--store", "runs.db"]) == 0
    told = "".join(capfd.readouterr())
    assert "You sent [hidden] to me." in told
    written = [each.read_bytes() for each in root.iterdir() if each.is_file() and each.name != ".env"]
    assert not [each for each in [told.encode(), *written] if said.encode() in each]


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


def test_a_store_that_a_link_leads_to_is_made_for_its_owner_alone(tmp_path: Path) -> None:
    link, kept = tmp_path / "link.db", tmp_path / "elsewhere/runs.db"
    link.symlink_to(kept)
    Flow("said", {"one": FunctionNode(lambda context: "secret")}).run_sync(store=f"sqlite:///{link}")
    made = {each.name: stat.S_IMODE(each.stat().st_mode) for each in kept.parent.iterdir()}
    assert {"runs.db", "runs.db.locks"} <= made.keys()
    assert {name for name, mode in made.items() if mode & 0o077} == set()


def test_a_store_that_its_owner_has_opened_to_others_stays_so(tmp_path: Path) -> None:
    path = tmp_path / "runs.db"
    path.touch()
    path.chmod(0o664)
    Flow("said", {"one": FunctionNode(lambda context: "secret")}).run_sync(store=f"sqlite:///{path}")
    assert stat.S_IMODE(path.stat().st_mode) == 0o664


KEPT = f"""OPENAI_API_KEY={KEY}
STRIPE=rk_0a1b2c3d4e5f6g7h
DATABASE=postgresql://flow:pw-0123456789@db.example/flow
OPENAI_MODEL=gpt-4o-mini-2024-07-18
AWS_REGION=ap-northeast-1
DEBUG=true
"""
COPIED = """flowengine: v1
name: copied
nodes:
  ask:
    prompt: What does it say?
    model: offline
    context:
      - SOURCE
"""


@pytest.mark.parametrize(
    "source",
    [
        "fixed_file: {file_path: docs/settings.md}",
        "retrieval: {documents: docs}",
        "source_code: {codebase_path: docs}",
    ],
)
def test_no_value_of_the_env_file_enters_a_prompt_from_a_copy_under_another_name(source: str, root: Path) -> None:
    (root / ".env").write_text(KEPT)
    (root / "docs").mkdir()
    for name in ("settings.md", "settings.py"):
        (root / "docs" / name).write_text(
            f"# What does it say\n{KEPT}# What does it say: {b64encode(KEY.encode()).decode()}\n"
        )
    (root / "copied.yaml").write_text(COPIED.replace("SOURCE", source))
    assert main(["run", "copied.yaml", "--store", "runs.db"]) == 0
    assert main(["runs", "export", "@last", "-o", "run.jsonl", "--store", "runs.db"]) == 0
    said = (root / "run.jsonl").read_text()
    assert "[hidden]" in said
    for value in (KEY, b64encode(KEY.encode()).decode(), "rk_0a1b2c3d4e5f6g7h", "pw-0123456789"):
        assert value not in said
    for value in ("gpt-4o-mini-2024-07-18", "ap-northeast-1", "DEBUG=true", "db.example"):
        assert value in said
