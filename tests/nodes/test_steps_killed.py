"""A flow of tools, requests, code, a call that a person consents to and a map that has enough, killed at every event:
no effect happens twice unless a person says so, no completion is paid twice, and nothing is asked twice."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from flowengine import Flow
from flowengine.agents.skills.sandbox.sandbox import verdict
from flowengine.core.records import ApprovalRequested, ModelCall, ToolCall
from flowengine.engine.events import Event, NodeFinished, NodeRecorded, RunFinished
from flowengine.errors import EffectPendingError
from flowengine.journal.codec import decode, encode
from flowengine.journal.memory import MemoryStore
from flowengine.models.messages import ToolRequest
from flowengine.models.scripted import ScriptedModel
from flowengine.runtime.run import Run
from flowengine.testing.model_overrides import with_models
from tests.support.odd_server import OddServer
from tests.support.require import missing

pytestmark = pytest.mark.anyio

SERVER = Path(__file__).parents[1] / "support" / "mcp_server.py"
FLOW = """
flowengine: v1
name: steps
nodes:
  look: {{type: http, url: "{url}/look"}}
  total:
    type: code
    with: {{path: "{{{{ nodes.look.output.body.path }}}}"}}
    code: return len(path)
  deed: {{type: tool, tool: crm.count, needs: [total]}}
  post: {{type: http, method: POST, url: "{url}/post", json: {{total: "{{{{ nodes.total.output }}}}"}}, needs: [deed]}}
  put: {{type: http, method: PUT, url: "{url}/put", body: "{{{{ nodes.deed.output }}}}", needs: [post]}}
  help:
    needs: [put]
    prompt: Count once more.
    mcp_servers: [{{name: crm, command: {python}, args: {args}, allow: [count]}}]
    approve: [crm.count]
  tries:
    type: map
    needs: [help]
    over: "[1, 2, 3]"
    as: way
    concurrency: 2
    until: results | length >= 1
    nodes:
      try: {{type: code, with: {{way: "{{{{ way }}}}"}}, code: return way}}
outputs: {{total: "{{{{ nodes.total.output }}}}", help: "{{{{ nodes.help.output }}}}"}}
"""


@pytest.fixture
def server() -> Iterator[OddServer]:
    with OddServer() as running:
        yield running


@pytest.fixture
def model() -> ScriptedModel:
    """Wants its tool once, and answers then."""
    wish = ToolRequest("c1", "crm_count", "{}")
    return ScriptedModel(lambda request: "Counted." if request.messages[-1].role == "tool" else wish)


async def to_the_end(flow: Flow, store: MemoryStore, **how: Any) -> Run:
    """A person answers what is asked; nothing is asked twice."""
    has_begun = bool(store.list())
    run = await (flow.resume("r1", store=store, **how) if has_begun else flow.run(run_id="r1", store=store))
    if run.status == "waiting":
        run = await flow.approve("r1", "help:crm_count", "accept", store=store)
    asked = [each for each in run.events if isinstance(each, NodeRecorded) and type(each.record) is ApprovalRequested]
    assert len(asked) == 1
    return run


@pytest.fixture
def flow(tmp_path: Path, server: OddServer, model: ScriptedModel) -> Flow:
    if not verdict(tmp_path).holds:
        missing(f"there is no sandbox: {verdict(tmp_path).reason}")
    (tmp_path / "calls.txt").touch()
    args = json.dumps([str(SERVER), "plain", str(tmp_path / "calls.txt")])
    (tmp_path / "flowengine.toml").write_text(
        f'allow_http = ["{server.url}/"]\nallow_mcp = ["{sys.executable}"]\n'
        f'[mcp_servers.crm]\ncommand = "{sys.executable}"\nargs = {args}\n'
    )
    (tmp_path / "flow.yaml").write_text(FLOW.format(url=server.url, python=sys.executable, args=args))
    return with_models(Flow.from_yaml(tmp_path / "flow.yaml"), lambda seat, settings: model)


def cut(events: Sequence[Event], at: int) -> MemoryStore:
    """A store with the run as a process left it that died after so many events."""
    store = MemoryStore()
    journal = store.create("r1")
    for event in events[:at]:
        journal.append(decode(encode(event)))
    store.close()
    return store


@pytest.mark.long
async def test_no_effect_happens_twice_wherever_a_run_is_killed(
    flow: Flow, server: OddServer, model: ScriptedModel, tmp_path: Path, anyio_backend_name: str
):
    def deeds() -> tuple[int, int]:
        posts = sum(each.method == "POST" for each in server.seen)
        return len((tmp_path / "calls.txt").read_text().splitlines()), posts

    run = (await to_the_end(flow, MemoryStore())).raise_for_status()
    assert (run.outputs, deeds()) == ({"total": len("/look"), "help": "Counted."}, (2, 1))
    assert len(model.requests) == 2
    asked: set[str] = set()
    every = 1 if anyio_backend_name == "asyncio" else 5
    for at in range(1, len(run.events), every):
        if isinstance(run.events[at - 1], RunFinished):
            continue
        before, store, known = deeds(), cut(run.events, at), run.events[:at]
        ended = {each.node for each in known if isinstance(each, NodeFinished)}
        records = [(each.node, each.record) for each in known if isinstance(each, NodeRecorded)]
        begun = {node for node, record in records if type(record) is ToolCall and record.effect == "external"}
        paid = sum(type(record) is ModelCall for _, record in records)
        model.requests.clear()
        try:
            again = await to_the_end(flow, store)
        except EffectPendingError as error:
            assert deeds() == before
            [pending] = {name for name in ("deed", "post", "help") if f"'{name}'" in str(error)}
            asked.add(pending)
            again = await to_the_end(flow, store, assume_done=[pending])
        assert again.status == "succeeded"
        assert again.outputs == run.outputs
        counted, posted = (after - one for after, one in zip(deeds(), before, strict=True))
        left = {name for name in ("deed", "post", "help") if name not in ended | begun}
        assert (counted, posted) == (len(left & {"deed", "help"}), len(left & {"post"}))
        assert len(model.requests) == 2 - paid
    assert asked == {"deed", "post", "help"} or every > 1
