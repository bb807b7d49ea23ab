"""A flow of tools, requests, code and a call that waits for a person, worked on by a worker of its own process."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from flowengine.agents.skills.sandbox.sandbox import verdict
from flowengine.journal.approvals import answer, open_questions
from flowengine.journal.postgres.store import PostgresStore
from flowengine.runtime.queue.run_queue import requeue, submit
from tests.support.odd_server import OddServer
from tests.support.queue_runs import end_workers, flow, until, worker
from tests.support.require import missing

pytestmark = [pytest.mark.anyio, pytest.mark.parametrize("anyio_backend", ["asyncio"])]

SERVER = Path(__file__).parents[2] / "support" / "mcp_server.py"
FLOW = """
flowengine: v1
name: steps
inputs: {{order: {{type: string}}}}
nodes:
  look: {{type: http, url: "{url}/look"}}
  total:
    type: code
    with: {{path: "{{{{ nodes.look.output.body.path }}}}"}}
    code: return len(path)
  count: {{type: tool, tool: crm.count, needs: [total]}}
  pay: {{type: tool, tool: "naps:refund", with: {{order: "{{{{ inputs.order }}}}"}}, needs: [count]}}
outputs: {{total: "{{{{ nodes.total.output }}}}", paid: "{{{{ nodes.pay.output }}}}"}}
"""
CODE = """
from flowengine import tool

@tool(effect="external", approve=True)
def refund(order: str) -> str:
    with open("paid", "a") as file:
        file.write(order)
    return f"paid {order}"
"""


@pytest.mark.long
async def test_a_worker_does_the_steps_and_waits_for_a_person(store: PostgresStore, tmp_path: Path) -> None:
    if not verdict(tmp_path).holds:
        missing(f"there is no sandbox: {verdict(tmp_path).reason}")
    args = json.dumps([str(SERVER), "plain", str(tmp_path / "calls.txt")])
    with OddServer() as server:
        (tmp_path / "flowengine.toml").write_text(
            f'allow_calls = ["naps"]\nallow_http = ["{server.url}/"]\n'
            f'[mcp_servers.crm]\ncommand = "{sys.executable}"\nargs = {args}\n'
        )
        plan = flow(tmp_path, FLOW.format(url=server.url), CODE).plan
        await submit(store, plan, {"order": "A-1"}, run_id="r1")
        try:
            worker(store, tmp_path)
            await until(store, "r1", "waiting")
            assert list(open_questions(store.events("r1"))) == ["pay:refund"]
            assert not (tmp_path / "paid").exists()
            await answer(store, "r1", "pay:refund", "accept", form={"order": "B-2"}, by="ann")
            await requeue(store, "r1")
            await until(store, "r1", "succeeded")
        finally:
            end_workers()
        assert getattr(store.events("r1")[-1], "outputs", None) == {"total": len("/look"), "paid": "paid B-2"}
        assert (tmp_path / "paid").read_text() == "B-2"
        assert len((tmp_path / "calls.txt").read_text().splitlines()) == 1
        assert [each.path for each in server.seen] == ["/look"]
