"""Limits of submitted runs: raised for a run that paused, by whoever puts it back, and kept from then on."""

from __future__ import annotations

from pathlib import Path

import anyio
import pytest

from flowengine.cli.main import main
from flowengine.core.records import ModelCall
from flowengine.errors import JournalError
from flowengine.journal.approvals import answer
from flowengine.journal.postgres.store import PostgresStore
from flowengine.runtime.queue.run_queue import requeue, submit
from tests.support.queue_runs import drain, flow, status

pytestmark = pytest.mark.anyio

FLOW = """
flowengine: v1
name: calls
limits: {model_calls: 1, on_limit: pause}
nodes:
  one: {model: offline, instructions: Say one thing., prompt: First words.}
  ok: {type: approval, message: Go on?, routes: {"yes": two}, needs: [one]}
  two: {model: offline, instructions: Say one thing., prompt: Second words.}
  three: {model: offline, instructions: Say one thing., prompt: Third words., needs: [two]}
"""


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker runs the code of the project that it was started in."""
    monkeypatch.chdir(tmp_path)


def calls(store: PostgresStore, run_id: str) -> int:
    return sum(type(getattr(event, "record", None)) is ModelCall for event in store.events(run_id))


async def test_a_limit_that_is_raised_for_a_submitted_run_stays_raised(store: PostgresStore, tmp_path: Path) -> None:
    run_id = await submit(store, flow(tmp_path, FLOW).plan, {})
    await drain(store)
    await answer(store, run_id, None, "yes")
    await requeue(store, run_id)
    await drain(store)
    assert (status(store, run_id), calls(store, run_id)) == ("paused", 1)
    await requeue(store, run_id, settings={"model_calls": 2})
    with pytest.raises(JournalError, match="in a queue already"):
        await requeue(store, run_id, settings={"model_calls": 9})
    await drain(store)
    assert (status(store, run_id), calls(store, run_id)) == ("paused", 2)
    await requeue(store, run_id)
    await drain(store)
    assert (status(store, run_id), calls(store, run_id)) == ("paused", 2)
    await requeue(store, run_id, settings={"model_calls": 3})
    await drain(store)
    assert (status(store, run_id), calls(store, run_id)) == ("succeeded", 3)


def test_the_commands_choose_limits_for_workers(
    store: PostgresStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "calls.yaml").write_text(FLOW)
    monkeypatch.setenv("FLOWENGINE_STORE", store.url)
    assert main(["submit", "calls.yaml", "--run-id", "r1", "--max-calls", "2"]) == 0
    anyio.run(drain, store)
    assert main(["approve", "r1", "--choice", "yes"]) == 0
    anyio.run(drain, store)
    assert (status(store, "r1"), calls(store, "r1")) == ("paused", 2)  # That of the start, not the flow's.
    assert main(["submit", "--resume", "r1", "--max-calls", "3", "--max-cost", "1"]) == 0
    anyio.run(drain, store)
    assert (status(store, "r1"), calls(store, "r1")) == ("succeeded", 3)


def test_an_answer_may_raise_a_limit_for_the_worker(
    store: PostgresStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "calls.yaml").write_text(FLOW)
    monkeypatch.setenv("FLOWENGINE_STORE", store.url)
    assert main(["submit", "calls.yaml", "--run-id", "r1"]) == 0
    anyio.run(drain, store)
    assert main(["approve", "r1", "--choice", "yes", "--max-calls", "9"]) == 0
    anyio.run(drain, store)
    assert (status(store, "r1"), calls(store, "r1")) == ("succeeded", 3)
