"""`KeyboardInterrupt` out of a node's code ends neither the worker nor the other runs that it has in hand."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import anyio
import pytest

from flowengine.engine.events import NodeFailed
from flowengine.journal.postgres.store import PostgresStore
from flowengine.runners.queue.run_queue import submit
from tests.support.postgres import empty_database
from tests.support.queue_runs import drain, flow, of, status

pytestmark = pytest.mark.anyio

FLOW = """
flowengine: v1
name: interrupts
nodes:
  alone: {{type: function, call: "naps:interrupt"{timeout}}}
  inside:
    type: loop
    max_iterations: 1
    nodes: {{bad: {{type: function, call: "naps:interrupt"}}}}
    carry: {{}}
  well: {{type: function, call: "naps:one"}}
"""
CODE = """
import anyio
async def interrupt():
    await anyio.lowlevel.checkpoint()
    raise KeyboardInterrupt
async def one():
    return 1
"""


@pytest.fixture
def anyio_backend() -> str:
    """The library of the queue knows no other."""
    return "asyncio"


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[PostgresStore]:
    monkeypatch.chdir(tmp_path)
    made = PostgresStore(empty_database(), "full")
    yield made
    made.close()


@pytest.mark.parametrize("timeout", ["", ", timeout: 1h"])
async def test_a_node_that_raises_it_on_a_worker_fails(store: PostgresStore, tmp_path: Path, timeout: str) -> None:
    plan = flow(tmp_path, FLOW.format(timeout=timeout), CODE).plan
    for run_id in ("one", "two"):
        await submit(store, plan, {}, run_id=run_id)
    with anyio.fail_after(60):
        told = await drain(store)
    for run_id in ("one", "two"):
        assert status(store, run_id) == "failed"
        assert sum(line.startswith(f"run {run_id} failed") for line in told) == 1
        failed = {each.node: each.error.message for each in of(NodeFailed, store.events(run_id))}
        assert all("KeyboardInterrupt" in each for each in failed.values())
        assert {"alone", "inside"} <= failed.keys()
