"""A flow of tools, requests and code, killed at every event: no effect happens twice unless a person says so."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from flowengine import Flow
from flowengine.engine.events import Event, NodeFinished, NodeRecorded, RunFinished
from flowengine.errors import EffectPendingError
from flowengine.journal.codec import decode, encode
from flowengine.journal.memory import MemoryStore
from flowengine.skills.sandbox.sandbox import verdict
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
outputs: {{total: "{{{{ nodes.total.output }}}}"}}
"""


@pytest.fixture
def server() -> Iterator[OddServer]:
    with OddServer() as running:
        yield running


@pytest.fixture
def flow(tmp_path: Path, server: OddServer) -> Flow:
    if not verdict(tmp_path).holds:
        missing(f"there is no sandbox: {verdict(tmp_path).reason}")
    (tmp_path / "calls.txt").touch()
    args = json.dumps([str(SERVER), "plain", str(tmp_path / "calls.txt")])
    (tmp_path / "flowengine.toml").write_text(
        f'allow_http = ["{server.url}/"]\n[mcp_servers.crm]\ncommand = "{sys.executable}"\nargs = {args}\n'
    )
    (tmp_path / "flow.yaml").write_text(FLOW.format(url=server.url))
    return Flow.from_yaml(tmp_path / "flow.yaml")


def cut(events: Sequence[Event], at: int) -> MemoryStore:
    """A store with the run as a process left it that died after so many events."""
    store = MemoryStore()
    journal = store.create("r1")
    for event in events[:at]:
        journal.append(decode(encode(event)))
    store.close()
    return store


async def test_no_effect_happens_twice_wherever_a_run_is_killed(flow: Flow, server: OddServer, tmp_path: Path):
    def deeds() -> tuple[int, int]:
        posts = sum(each.method == "POST" for each in server.seen)
        return len((tmp_path / "calls.txt").read_text().splitlines()), posts

    run = (await flow.run(run_id="r1", store=MemoryStore())).raise_for_status()
    assert (run.outputs, deeds()) == ({"total": len("/look")}, (1, 1))
    asked: set[str] = set()
    for at in range(1, len(run.events)):
        if isinstance(run.events[at - 1], RunFinished):
            continue
        before, store, known = deeds(), cut(run.events, at), run.events[:at]
        ended = {each.node for each in known if isinstance(each, NodeFinished)}
        begun = {each.node for each in known if isinstance(each, NodeRecorded) and getattr(each.record, "started", 0)}
        try:
            again = await flow.resume("r1", store=store)
        except EffectPendingError as error:
            assert deeds() == before
            [pending] = {name for name in ("deed", "post") if f"'{name}'" in str(error)}
            asked.add(pending)
            again = await flow.resume("r1", store=store, assume_done=[pending])
        assert again.status == "succeeded"
        assert again.outputs == run.outputs
        added = tuple(after - one for after, one in zip(deeds(), before, strict=True))
        assert added == tuple(int(name not in ended | begun) for name in ("deed", "post"))
    assert asked == {"deed", "post"}
