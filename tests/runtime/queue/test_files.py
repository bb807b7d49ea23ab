"""Files of runs in a queue: whoever submits reads them, and the worker has them from the store."""

from __future__ import annotations

from pathlib import Path

import pytest

from flowengine.journal.postgres.store import PostgresStore
from flowengine.runtime.queue.run_queue import submit
from tests.support.queue_runs import drain, flow, status

pytestmark = [pytest.mark.anyio, pytest.mark.parametrize("anyio_backend", ["asyncio"])]

FLOW = """
flowengine: v1
name: reading
inputs: {doc: {type: file}}
nodes:
  read: {type: function, call: "naps:read", with: {doc: "{{ inputs.doc }}"}}
outputs: {text: "{{ nodes.read.output.name }} {{ nodes.read.output.size }}"}
"""
CODE = "def read(doc):\n    return doc.read_bytes() + b' read'\n"


async def test_a_worker_reads_what_was_submitted(
    store: PostgresStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    plan = flow(tmp_path, FLOW, CODE).plan
    document = tmp_path / "scan.pdf"
    document.write_bytes(b"%PDF-1.4 one")
    await submit(store, plan, {"doc": document}, run_id="r1")
    await submit(store, plan, {"doc": document}, run_id="r1")  # The same run once more.
    document.unlink()
    await drain(store)
    last = store.events("r1")[-1]
    assert status(store, "r1") == "succeeded", last
    assert getattr(last, "outputs", None) == {"text": "read.pdf 17"}
