"""Where a flow finds its keys: the environment it is given, and under it the `.env` file of its project's root."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from flowengine.errors import ModelConfigError
from flowengine.flow import Flow
from flowengine.journal.stores import open_store
from tests.support.model_server import ModelServer

FLOW = """flowengine: v1
name: sample
nodes:
  draft: {prompt: "Greet {{ env.WHOM }}.", model: openai/gpt-4o-mini, evaluate: {}}
  pick: {type: routing, needs: [draft], model: openai/gpt-4o-mini, instruction: i, routes: {x: {}}}
"""


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project whose flow is in a folder below its root."""
    for name in ("OPENAI_API_KEY", "OPENAI_BASE_URL", "OPENAI_API_BASE", "FLOWENGINE_DEFAULT_MODEL", "FLOWENGINE_ENV"):
        monkeypatch.delenv(name, raising=False)
    (tmp_path / "flows").mkdir()
    (tmp_path / "flows" / "flow.yaml").write_text(FLOW)
    (tmp_path / "flowengine.toml").write_text("allow_env = ['WHOM']")
    return tmp_path


@pytest.fixture
def server() -> Iterator[ModelServer]:
    with ModelServer() as running:
        yield running


def keys_sent(server: ModelServer) -> set[str]:
    return {each.headers["authorization"] for each in server.requests}


def test_keys_addresses_and_allowed_values_come_from_the_roots_file(root: Path, server: ModelServer) -> None:
    (root / ".env").write_text(f"OPENAI_API_KEY=sk-secret\nOPENAI_BASE_URL={server.url}\nWHOM=Ada\nOTHER=x")
    before = dict(os.environ)
    run = Flow.from_yaml(root / "flows" / "flow.yaml").run_sync().raise_for_status()
    assert keys_sent(server) == {"Bearer sk-secret"}
    assert len(server.requests) == 3, "an agent, its judge, a router"
    assert "Greet Ada." in run.outputs["pick"].content
    assert {name: value for name, value in os.environ.items() if before.get(name) != value}.keys() <= {
        *("LITELLM_LOCAL_MODEL_COST_MAP", "LITELLM_MODE", "TIKTOKEN_CACHE_DIR", "CUSTOM_TIKTOKEN_CACHE_DIR"),
    }


def test_the_real_environment_wins(root: Path, server: ModelServer, monkeypatch: pytest.MonkeyPatch) -> None:
    (root / ".env").write_text(f"OPENAI_API_KEY=sk-file\nOPENAI_BASE_URL={server.url}\nWHOM=Ada")
    flow = Flow.from_yaml(root / "flows" / "flow.yaml")
    monkeypatch.setenv("OPENAI_API_KEY", "sk-real")
    flow.run_sync().raise_for_status()
    assert keys_sent(server) == {"Bearer sk-real"}


def test_a_namespace_names_the_file(root: Path, server: ModelServer, monkeypatch: pytest.MonkeyPatch) -> None:
    (root / ".env").write_text(f"OPENAI_API_KEY=sk-file\nOPENAI_BASE_URL={server.url}\nWHOM=Ada")
    (root / ".env.staging").write_text(f"OPENAI_API_KEY=sk-staging\nOPENAI_BASE_URL={server.url}\nWHOM=Bob")
    monkeypatch.setenv("FLOWENGINE_ENV", "staging")
    Flow.from_yaml(root / "flows" / "flow.yaml").run_sync().raise_for_status()
    assert keys_sent(server) == {"Bearer sk-staging"}


def test_the_default_model_may_be_chosen_there(root: Path) -> None:
    (root / ".env").write_text("FLOWENGINE_DEFAULT_MODEL=openai/gpt-4o-mini")
    flow = Flow.from_text("{flowengine: v1, name: a, nodes: {a: {prompt: x}}}", root / "flows" / "flow.yaml")
    with pytest.raises(ModelConfigError, match="OPENAI_API_KEY"):
        flow.run_sync()


def test_an_environment_of_ones_own_stands_alone(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-real")
    with pytest.raises(ModelConfigError, match="set OPENAI_API_KEY"):
        Flow.from_yaml(root / "flows" / "flow.yaml", environ={}).run_sync()


def test_keys_are_in_no_journal(root: Path, server: ModelServer) -> None:
    (root / ".env").write_text(f"OPENAI_API_KEY=sk-secret\nOPENAI_BASE_URL={server.url}\nWHOM=Ada\nOTHER=untold")
    store = f"sqlite:///{root}/runs.db"
    flow = Flow.from_yaml(root / "flows" / "flow.yaml")
    flow.run_sync(store=store).raise_for_status()
    opened = open_store(store)
    told = repr(opened.events(opened.find("@last"))) + repr(flow.plan)
    opened.close()
    assert "Greet Ada." in told
    assert "sk-secret" not in told
    assert "untold" not in told
    files = b"".join(each.read_bytes() for each in root.glob("runs.db*") if each.is_file())
    assert b"sk-secret" not in files
