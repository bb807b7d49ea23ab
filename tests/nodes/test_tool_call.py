"""Tools as nodes: of servers that really run, and of functions; effects, retries, resume, reuse, cache."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import anyio
import pytest

from flowengine import Flow
from flowengine.agents.tools.function_tool import tool
from flowengine.agents.tools.mcp.server_clients import ServerTool
from flowengine.agents.tools.mcp.server_settings import McpServer
from flowengine.core.records import EffectDecided, ToolCall
from flowengine.engine.events import Event, NodeRecorded
from flowengine.errors import DefinitionError, EffectPendingError, UnknownEffectError
from flowengine.journal.codec import decode, encode
from flowengine.journal.memory import MemoryStore
from flowengine.nodes.node import RetryPolicy
from flowengine.nodes.tool_call import ToolNode

pytestmark = pytest.mark.anyio

SERVER = Path(__file__).parents[1] / "support" / "mcp_server.py"


@pytest.fixture
def calls(tmp_path: Path) -> Path:
    """The file in which the test server counts the calls of `count`."""
    file = tmp_path / "calls.txt"
    file.write_text("")
    return file


def node(calls: Path, name: str, *, known: dict[str, Any] | None = None, **settings: Any) -> ToolNode:
    server = McpServer(name="test", command=sys.executable, args=[str(SERVER), "plain", str(calls)], trust_hints=True)
    arguments = {key: (lambda _, value=value: value) for key, value in (known or {}).items()}
    return ToolNode(ServerTool(server, name), arguments=arguments, known=known, **settings)


def counted(calls: Path) -> str:
    return calls.read_text()


def tool_calls(events: Sequence[Event]) -> list[ToolCall]:
    return [each.record for each in events if isinstance(each, NodeRecorded) and isinstance(each.record, ToolCall)]


def cut(events: Sequence[Event], at: int) -> MemoryStore:
    """A store with the run as a process left it that died after so many events."""
    store = MemoryStore()
    journal = store.create("r1")
    for event in events[:at]:
        journal.append(decode(encode(event)))
    store.close()
    return store


async def test_the_output_of_a_servers_tool_is_its_structured_value_else_its_text(calls: Path):
    flow = Flow("f", {"a": node(calls, "structured"), "b": node(calls, "echo", known={"value": "x"})})
    run = (await flow.run()).raise_for_status()
    assert run.outputs == {"a": {"degrees": 3}, "b": '{"value": "x"}'}
    recorded = {(each.name, each.effect, each.started) for each in tool_calls(run.events)}
    assert recorded == {("test_structured", "none", False), ("test_echo", "none", False)}


async def test_a_call_that_goes_wrong_fails_the_node_with_the_servers_words(calls: Path):
    run = await Flow("f", {"a": node(calls, "error")}).run()
    assert run.status == "failed"
    assert run.error is not None
    assert "no such city" in run.error.message


@pytest.mark.parametrize(
    ("name", "known", "said"),
    [
        ("ehco", {}, "MCP server 'test' has no tool 'ehco'; did you mean 'echo'?"),
        ("echo", {"value": 7}, "node 'b': wrong arguments for tool 'test_echo':\n- 'value': 7 is not of type 'string'"),
    ],
)
async def test_what_the_server_refuses_is_known_before_the_first_node(
    calls: Path, name: str, known: dict[str, Any], said: str
):
    flow = Flow("f", {"a": node(calls, "count"), "b": node(calls, name, known=known, needs=["a"])})
    run = await flow.run()
    assert run.status == "failed"
    assert run.error is not None
    assert said in run.error.message
    assert counted(calls) == ""


@pytest.mark.parametrize("attempts", [1, 2])
async def test_a_server_that_hangs_at_its_start_is_waited_for_once_an_attempt(calls: Path, attempts: int):
    """The look at the tools before the first node is the first attempt's wait, too."""
    says = ["-c", f"echo begun >> {calls}; while read line; do :; done"]
    server = McpServer(name="slow", command="sh", args=says, start_timeout=0.5)
    asking = ToolNode(ServerTool(server, "echo"), effect="none", retry=RetryPolicy(attempts, initial=0.0))
    run = await Flow("f", {"a": asking}).run()
    assert run.error is not None
    assert "it did not answer within 0.5 s" in run.error.message
    assert len(counted(calls).splitlines()) <= attempts


async def test_a_server_that_no_node_needs_in_the_end_is_not_started(calls: Path):
    server = McpServer(name="gone", command="no-such-program")
    skipped = ToolNode(ServerTool(server, "echo"), when=lambda _: False)
    assert (await Flow("f", {"a": skipped}).run()).nodes["a"].status == "skipped"


async def test_a_call_under_way_at_a_kill_is_asked_about_and_not_made_twice(calls: Path):
    flow = Flow("f", {"a": node(calls, "count")})
    run = (await flow.run(run_id="r1", store=MemoryStore())).raise_for_status()
    begun, ended = tool_calls(run.events)
    assert (begun.started, begun.effect, ended.started) == (True, "external", False)
    assert counted(calls) == "called\n"
    for at in range(1, len(run.events)):
        store, before = cut(run.events, at), counted(calls)
        recorded = tool_calls(run.events[:at])
        if len(recorded) == 1:
            with pytest.raises(EffectPendingError, match="node 'a', tool 'test_count'"):
                await flow.resume("r1", store=store)
            assert counted(calls) == before
            again = await flow.resume("r1", store=store, assume_done=["a"])
            assert (again.status, again.outputs, counted(calls)) == ("succeeded", {"a": None}, before)
            decided = [each.record for each in again.events if isinstance(each, NodeRecorded)]
            assert any(isinstance(each, EffectDecided) for each in decided)
        else:
            again = (await flow.resume("r1", store=store)).raise_for_status()
            assert counted(calls) == (before if recorded else f"{before}called\n")


async def test_a_failed_call_is_made_again_by_the_nodes_retry_also_after_a_resume():
    tries = 0

    @tool(effect="idempotent")
    async def shaky() -> int:
        nonlocal tries
        tries += 1
        if tries < 3:
            raise OSError("away")
        return tries

    flow = Flow("f", {"a": ToolNode(shaky, retry=RetryPolicy(attempts=3, initial=0))})
    store = MemoryStore()
    run = (await flow.run(run_id="r1", store=store)).raise_for_status()
    assert run.outputs == {"a": 3}
    failed = next(
        at for at, each in enumerate(run.events, 1) if type(getattr(each, "record", None)).__name__ == "Retry"
    )
    tries = 2
    assert (await flow.resume("r1", store=cut(run.events, failed))).outputs == {"a": 3}


async def test_what_is_external_takes_neither_retry_nor_cache(calls: Path):
    with pytest.raises(DefinitionError, match="`retry`"):
        node(calls, "count", retry=RetryPolicy(attempts=2))
    with pytest.raises(DefinitionError, match="`cache`"):
        node(calls, "count", cache=True)
    assert node(calls, "count", cache=True, effect="idempotent").effect == "idempotent"


async def test_the_cache_and_a_reuse_take_the_place_of_the_call(calls: Path):
    store = MemoryStore()
    flow = Flow("f", {"a": node(calls, "count", effect="none", known={"value": "x"})})
    first = (await flow.run(store=store)).raise_for_status()
    assert (await flow.run(store=store, reuse=first.id)).outputs == first.outputs
    cached = Flow("f", {"a": node(calls, "count", effect="none", known={"value": "x"}, cache=True)})
    assert (await cached.run(store=store)).outputs == (await cached.run(store=store)).outputs
    assert counted(calls) == "called\n" * 2


async def test_the_nodes_own_timeout_goes_before_the_tools():
    @tool(timeout=0.01)
    async def slow() -> str:
        await anyio.sleep(0.05)
        return "done"

    assert (await Flow("f", {"a": ToolNode(slow)}).run()).status == "failed"
    assert (await Flow("f", {"a": ToolNode(slow, timeout=30)}).run()).outputs == {"a": "done"}


# --- calls whose end is unknown ---------------------------------------------------------------------


class Bank:
    """Pays, and then something is wrong with how it says so."""

    def __init__(self, how: str) -> None:
        self.how = how
        self.paid = 0

    async def pay(self) -> Any:
        self.paid += 1
        if self.how == "late":
            with anyio.CancelScope(shield=True):
                await anyio.sleep(0.2)
        if self.how == "slow":
            await anyio.sleep_forever()
        if self.how == "broken":
            try:
                raise ConnectionResetError("by peer")
            except OSError as error:
                raise RuntimeError("the bank did not answer") from error
        if self.how == "said":
            raise UnknownEffectError("the bank is not sure")
        return self if self.how == "odd" else "paid"

    def flow(self, effect: Any = "external") -> Flow:
        async def pay() -> Any:
            return await self.pay()

        return Flow("f", {"pay": ToolNode(tool(effect=effect, timeout=0.1)(pay))})


DOUBTS = {
    "slow": "did not answer within 0.1 s and was given up; whether it took effect is unknown",
    "late": "did not answer within 0.1 s and was given up; whether it took effect is unknown",
    "broken": "the bank did not answer; whether it took effect is unknown",
    "said": "the bank is not sure; whether it took effect is unknown",
    "odd": "tool 'pay' was called, and what it gave cannot be kept: ",
}


@pytest.mark.parametrize(("how", "said"), DOUBTS.items())
async def test_an_external_call_whose_end_is_unknown_is_asked_about_before_it_is_made_again(
    how: str, said: str, tmp_path: Path
):
    bank, store = Bank(how), f"sqlite:///{tmp_path}/runs.db"
    failed = await bank.flow().run(run_id="r", store=store)
    assert failed.status == "failed"
    assert failed.error is not None
    assert said in failed.error.message
    bank.how = "fine"
    with pytest.raises(EffectPendingError):
        await bank.flow().resume("r", store=store)
    assert bank.paid == 1
    done = await bank.flow().resume("r", store=store, retry_effects=["pay"])
    assert (done.outputs, bank.paid) == ({"pay": "paid"}, 2)


@pytest.mark.parametrize("how", DOUBTS)
async def test_one_that_may_be_made_twice_is_made_again_and_nobody_is_asked(how: str, tmp_path: Path):
    bank, store = Bank(how), f"sqlite:///{tmp_path}/runs.db"
    assert (await bank.flow("idempotent").run(run_id="r", store=store)).status == "failed"
    bank.how = "fine"
    done = await bank.flow("idempotent").resume("r", store=store)
    assert (done.outputs, bank.paid) == ({"pay": "paid"}, 2)


async def test_an_external_call_that_its_server_died_in_is_asked_about(calls: Path):
    flow, store = Flow("f", {"a": node(calls, "crash")}), MemoryStore()
    failed = await flow.run(run_id="r", store=store)
    assert failed.error is not None
    assert "Whether the call took effect is unknown" in failed.error.message
    with pytest.raises(EffectPendingError, match="node 'a', tool 'test_crash'"):
        await flow.resume("r", store=store)
    assert counted(calls) == "called\n"
    done = await flow.resume("r", store=store, assume_done=["a"])
    assert (done.status, done.outputs) == ("succeeded", {"a": None})


def test_a_variable_of_a_servers_headers_that_is_not_set_is_told_before_anything_runs(tmp_path: Path) -> None:
    settings = 'url = "https://desk.example/mcp"\nheaders_env = {Authorization = "DESK_TOKEN"}\n'
    project = f'allow_mcp = ["https://desk.example/mcp"]\n[mcp_servers.desk]\n{settings}'
    (tmp_path / "flowengine.toml").write_text(project)
    server = "{name: desk, url: https://desk.example/mcp, headers_env: {Authorization: DESK_TOKEN}}"
    kinds = {
        "agent": f"{{model: offline, prompt: x, mcp_servers: [{server}]}}",
        "tool": "{type: tool, tool: desk.find}",
    }
    for name, kind in kinds.items():
        file = tmp_path / f"{name}.yaml"
        file.write_text(f"flowengine: v1\nname: {name}\nnodes: {{a: {kind}}}\n")
        with pytest.raises(DefinitionError, match="environment variable DESK_TOKEN, which is not set"):
            Flow.from_yaml(file, environ={}).plan.prepare()
        Flow.from_yaml(file, environ={"DESK_TOKEN": "x"}).plan.prepare()
