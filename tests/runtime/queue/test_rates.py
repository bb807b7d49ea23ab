"""A worker keeps the limits of providers where all workers of its store keep them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import anyio
import psycopg
import pytest

from flowengine.core.records import ModelCall
from flowengine.engine.events import NodeRecorded, RunFinished
from flowengine.errors import StoreUnavailableError
from flowengine.flow import Flow
from flowengine.journal.postgres import rates as postgres_rates
from flowengine.journal.postgres.store import PostgresStore
from flowengine.runtime.queue.run_queue import submit
from flowengine.runtime.queue.worker import Pace, work
from tests.support.model_server import ModelServer

pytestmark = pytest.mark.anyio

FLOW = """
flowengine: v1
name: greet
nodes:
  greet:
    instructions: Greet the user.
    prompt: Hello
    model: openai/gpt-4o-mini
    retry: {attempts: 3, initial: 60s}
  inner: {type: subflow, flow: inner.yaml, needs: [greet]}
"""
INNER = """
flowengine: v1
name: inner
nodes:
  part: {instructions: Say goodbye., prompt: Bye, model: openai/gpt-4o-mini}
"""
PROJECT = """
[providers.openai]
base_url = "{url}"
requests_per_minute = 100
tokens_per_minute = 100000
"""
QUICK = Pace(grace=0.3, heartbeat=0.3, stalled=1.5, orphans=0.5, poll=0.2, busy=1)


@pytest.fixture
def store(store: PostgresStore, monkeypatch: pytest.MonkeyPatch) -> PostgresStore:
    """What is submitted and worked on in one folder, with one key."""
    monkeypatch.setenv("OPENAI_API_KEY", "sk-1")
    return store


def flow(folder: Path, server: ModelServer) -> Flow:
    (folder / "flowengine.toml").write_text(PROJECT.format(url=server.url))
    (folder / "inner.yaml").write_text(INNER)
    path = folder / "flow.yaml"
    path.write_text(FLOW)
    return Flow.from_yaml(path)


async def drain(store: PostgresStore) -> None:
    with anyio.fail_after(60):
        await work(store, wait=False, pace=QUICK)


async def test_the_calls_of_a_worker_are_entered_with_what_they_took(store: PostgresStore, tmp_path: Path) -> None:
    with ModelServer() as server:
        run_id = await submit(store, flow(tmp_path, server).plan, {})
        await drain(store)
    events = store.events(run_id)
    assert isinstance(events[-1], RunFinished)
    assert events[-1].status == "succeeded"
    calls = [each.record for each in events if isinstance(each, NodeRecorded) and isinstance(each.record, ModelCall)]
    with psycopg.connect(store.url) as connection:
        entered = connection.execute("SELECT limiter, tokens FROM flowengine.turn ORDER BY number").fetchall()
    took = [(each.prompt_tokens or 0) + (each.completion_tokens or 0) for each in calls]
    assert entered == [("openai 100 100000 -", each) for each in took]
    assert len(entered) == 2


async def test_a_run_whose_limits_cannot_be_kept_is_put_back_and_asks_nothing(
    store: PostgresStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def away(*given: Any, **named: Any) -> Any:
        raise StoreUnavailableError("the server is away")

    with ModelServer() as server:
        run_id = await submit(store, flow(tmp_path, server).plan, {})
        with monkeypatch.context() as patched:
            patched.setitem(postgres_rates.PostgresRates.__init__.__kwdefaults__, "patience", 0.0)
            patched.setattr(postgres_rates, "Database", away)
            await drain(store)
        assert not server.requests
        assert next(each for each in store.list() if each.run_id == run_id).status == "running"
        with psycopg.connect(store.url) as connection:
            jobs = connection.execute("SELECT status FROM flowengine_queue.procrastinate_jobs").fetchall()
        assert ("todo",) in jobs
