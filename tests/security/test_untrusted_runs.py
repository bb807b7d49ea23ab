"""Attempts by runs that strangers submit to a queue, or hand over as files, against a worker's files and code."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import psycopg
import pytest

from flowengine.cli.main import main
from flowengine.engine.events import RunStarted
from flowengine.flow import Flow
from flowengine.journal.codec import encode
from flowengine.journal.postgres.store import PostgresStore
from flowengine.runs import Runs
from flowengine.runtime.queue.run_queue import submit
from tests.support.model_server import ModelServer
from tests.support.postgres import empty_database
from tests.support.queue_runs import drain, status

ON_ASYNCIO = pytest.mark.parametrize("anyio_backend", ["asyncio"])
"""The library of the queue knows no other."""

HEAD = "flowengine: v1\nname: stranger\n"
PLAIN = HEAD + "nodes: {a: {prompt: x, model: offline}}\n"
KEY = "sk-of-the-worker-0123456789"
DEED = "def own():\n    open('owned', 'w').close()\n"
OWN = HEAD + "nodes: {a: {type: function, call: 'deed:own'}}\n"
BELIEVED = b"SQLite format 3\0\1\2\nflowengine: v1\nname: x\n"
"""What a memory's store would hold in which a stranger has kept such lines."""


@pytest.fixture
def store() -> Iterator[PostgresStore]:
    made = PostgresStore(empty_database(), "process")
    yield made
    made.close()


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of a worker, who has no project file, and a virtual environment with code in it."""
    monkeypatch.delenv("FLOWENGINE_STORE", raising=False)
    here = tmp_path / "worker"
    for folder in (here, tmp_path / "stranger"):
        (folder / ".venv" / "lib").mkdir(parents=True)
        (folder / ".venv" / "lib" / "deed.py").write_text(DEED)
    (here / ".env").write_text(f"OPENAI_API_KEY={KEY}\n")
    (here / ".env").chmod(0o600)
    (here / "notes.md").write_text("Tea is served at five.\n")
    monkeypatch.chdir(here)
    return here


def everything_in(store: PostgresStore) -> str:
    with psycopg.connect(store.url) as connection:
        names = connection.execute(
            "SELECT format('%I.%I', table_schema, table_name) FROM information_schema.tables"
            " WHERE table_schema LIKE 'flowengine%' AND table_type = 'BASE TABLE'"
        ).fetchall()
        rows: list[Any] = [connection.execute(f"SELECT t::text FROM {name} t").fetchall() for (name,) in names]  # type: ignore[arg-type]
    return str(rows)


@pytest.mark.anyio
@ON_ASYNCIO
@pytest.mark.parametrize(
    "node",
    [
        "{prompt: x, model: offline, context: [fixed_file: {file_path: .env}]}",
        "{prompt: OPENAI, model: offline, context: [retrieval: {documents: .env}]}",
        "{prompt: own, model: offline, context: [source_code: {codebase_path: .venv/lib}]}",
        "{prompt: x, model: offline, memory: {store: x.yaml, scope: channel, scope_id: C1}}",
        "{prompt: x, model: offline, memory: {store: flowengine.toml}}",
        "{prompt: x, model: offline, skills: [.venv]}",
    ],
)
async def test_a_submitted_flow_reaches_no_file_that_is_kept_from_flows(
    node: str, here: Path, store: PostgresStore
) -> None:
    plan = Flow.from_text(PLAIN, here / "flow.yaml").plan
    run_id = await submit(store, replace(plan, source=f"{HEAD}nodes: {{a: {node}}}\n"), {})
    (told,) = [line for line in await drain(store) if run_id in line and "left to others" in line][:1]
    assert "FE503" in told
    assert KEY not in everything_in(store)
    assert set(os.listdir(here)) == {".env", ".venv", "notes.md"}


@pytest.mark.anyio
@ON_ASYNCIO
async def test_a_submitted_flow_reads_the_documents_of_a_project(here: Path, store: PostgresStore) -> None:
    text = PLAIN.replace("prompt: x", "prompt: x, context: [fixed_file: {file_path: notes.md}]")
    run_id = await submit(store, Flow.from_text(text, here / "flow.yaml").plan, {})
    await drain(store)
    assert status(store, run_id) == "succeeded"
    assert "Tea is served at five." in everything_in(store)


@pytest.mark.anyio
@ON_ASYNCIO
@pytest.mark.parametrize("chosen", [None, "fast"])
async def test_a_name_of_a_model_means_what_the_workers_project_says(
    chosen: str | None, here: Path, store: PostgresStore, tmp_path: Path
) -> None:
    stranger = tmp_path / "stranger"
    elsewhere = "base_url = 'http://127.0.0.1:9/stranger'\nkey_env = 'OPENAI_API_KEY'\n"
    (stranger / "flowengine.toml").write_text(f"[models.fast]\nmodel = 'openai/gpt-4o'\n{elsewhere}")
    text = HEAD + f"nodes: {{a: {{prompt: x, model: {'fast' if chosen is None else 'openai/gpt-4o'}}}}}\n"
    theirs = {"OPENAI_API_KEY": "sk-of-the-stranger-9876543"}
    plan = Flow.from_text(text, stranger / "flow.yaml", model=chosen, environ=theirs).plan
    with ModelServer() as server:
        own = f"[models.fast]\nmodel = 'openai/gpt-4o-mini'\nbase_url = '{server.url}'\n"
        own += (
            f"key_command = {[sys.executable, '-c', f'print({KEY!r})']!r}\n" if chosen else "key_env = 'WORKER_KEY'\n"
        )
        (here / "flowengine.toml").write_text(own)
        (here / ".env").write_text(f"WORKER_KEY={KEY}\n")
        run_id = await submit(store, plan, {}, settings={} if chosen is None else {"model": chosen})
        told = await drain(store)
        assert status(store, run_id) == "succeeded", told
        assert [each.body["model"] for each in server.requests] == ["gpt-4o-mini"]
        assert server.requests[0].headers["authorization"] == f"Bearer {KEY}"
    assert KEY not in everything_in(store)


@pytest.mark.anyio
@ON_ASYNCIO
@pytest.mark.parametrize("beside", [BELIEVED, OWN.encode()], ids=["a store", "a flow"])
async def test_without_a_project_file_a_submitted_run_calls_no_code_but_of_the_workers_folder(
    beside: bytes, here: Path, store: PostgresStore, tmp_path: Path
) -> None:
    (here / ".venv" / "lib" / "x.yaml").write_bytes(beside)
    plan = Flow.from_text(OWN, tmp_path / "stranger" / ".venv" / "lib" / "x.yaml").plan
    for path, folder in ((".venv/lib/x.yaml", str(here)), ("x.yaml", str(here / ".venv" / "lib"))):
        for pack in (plan.pack, dict[str, Any]):
            run_id = await submit(store, replace(plan, path=path, pack=pack), {}, settings={"folder": folder})
            told = [line for line in await drain(store) if run_id in line]
            assert "FE505" in told[0], told
    assert "owned" not in os.listdir(here)


@pytest.mark.parametrize("path", [".venv/lib/x.yaml", ".venv/lib/gone.yaml", "x.yaml"])
def test_a_run_that_is_imported_and_resumed_calls_no_code_but_of_the_working_folder(path: str, here: Path) -> None:
    for folder in (here, here / ".venv" / "lib"):
        (folder / "x.yaml").write_bytes(BELIEVED)
    started = RunStarted("r1", "stranger", 1.0, {}, {}, {}, path=path, source=OWN)
    head = json.dumps({"flowengine_run": 1, "run_id": "r1", "events": 1})
    Path("run.jsonl").write_text("\n".join([head, encode(started), ""]))
    assert main(["runs", "import", "run.jsonl", "--store", "runs.db"]) == 0
    assert main(["resume", "r1", "--store", "runs.db"]) == 2
    assert not list(here.rglob("owned"))


def test_a_run_that_is_imported_and_resumed_chooses_no_place_for_memories(here: Path, tmp_path: Path) -> None:
    text = PLAIN.replace("prompt: x", "prompt: x, memory: {store: own.db}")
    target = tmp_path / "elsewhere.yaml"
    Path("flow.yaml").write_text(text)
    assert main(["run", "flow.yaml", "--store", "runs.db"]) == 0
    assert main(["runs", "export", "@last", "--store", "runs.db", "-o", "run.jsonl"]) == 0
    lines = Path("run.jsonl").read_text().replace(str(here / "own.db"), str(target)).splitlines()
    lines = [line for line in lines if '"RunFinished"' not in line]
    head: dict[str, Any] = json.loads(lines[0])
    lines[0] = json.dumps({**head, "events": len(lines) - 1})
    Path("run.jsonl").write_text("\n".join([*lines, ""]))
    Path("own.db").unlink()
    assert main(["runs", "import", "run.jsonl", "--as", "r2", "--store", "runs.db"]) == 0
    assert main(["resume", "r2", "--store", "runs.db"]) == 0
    assert not target.exists()
    assert Path("own.db").exists()


def test_a_run_that_is_imported_is_no_callers_own(here: Path) -> None:
    labels = {"caller": "ann", "team": "tea"}
    started = RunStarted("r1", "f", 1.0, {}, {}, {}, settings={"labels": labels, "served": {"caller": "ann"}})
    head = json.dumps({"flowengine_run": 1, "run_id": "r1", "events": 1})
    Path("run.jsonl").write_text("\n".join([head, encode(started), ""]))
    assert main(["runs", "import", "run.jsonl", "--store", "runs.db"]) == 0
    with Runs("runs.db") as runs:
        assert runs.list(labels={"caller": "ann"}) == []
        assert [each.labels for each in runs.list()] == [{"team": "tea"}]
