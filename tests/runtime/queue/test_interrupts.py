"""`KeyboardInterrupt` out of a node's code ends neither the worker nor the other runs that it has in hand."""

from __future__ import annotations

from pathlib import Path

import anyio
import pytest

from flowengine.engine.events import NodeFailed
from flowengine.journal.postgres.store import PostgresStore
from flowengine.runtime.queue.run_queue import submit
from tests.support.queue_runs import drain, flow, of, status

pytestmark = pytest.mark.anyio

CALL = '{type: function, call: "naps:interrupt"'
NODES = {
    "alone": f"{CALL}}}",
    "with a timeout": f"{CALL}, timeout: 1h}}",
    "in a loop": f"{{type: loop, max_iterations: 1, carry: {{}}, nodes: {{inner: {CALL}}}}}}}",
}
CODE = """
import anyio
async def interrupt():
    await anyio.lowlevel.checkpoint()
    raise KeyboardInterrupt
async def one():
    return 1
"""


@pytest.mark.parametrize("node", NODES)
async def test_a_node_that_raises_it_on_a_worker_fails(store: PostgresStore, tmp_path: Path, node: str) -> None:
    text = f'flowengine: v1\nname: t\nnodes:\n  bad: {NODES[node]}\n  well: {{type: function, call: "naps:one"}}\n'
    plan = flow(tmp_path, text, CODE).plan
    for run_id in ("one", "two"):
        await submit(store, plan, {}, run_id=run_id)
    with anyio.fail_after(60):
        told = await drain(store)
    for run_id in ("one", "two"):
        assert status(store, run_id) == "failed"
        assert sum(line.startswith(f"run {run_id} failed") for line in told) == 1
        failed = {each.node: each.error.message for each in of(NodeFailed, store.events(run_id))}
        assert "KeyboardInterrupt" in failed["bad"]
