"""MCP servers of a flow's agents: one process for a run, whoever asks for it first, and gone with the run."""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio
import pytest

from flowengine import Agent, Flow, FunctionNode, MapNode
from flowengine.core.context import Context, NodeResult
from flowengine.models.messages import ToolRequest
from flowengine.models.model import Request
from flowengine.models.scripted import ScriptedModel
from flowengine.nodes.agent import AgentNode
from flowengine.nodes.node import RetryPolicy
from tests.support.require import missing, require

SERVER = Path(__file__).parents[1] / "support" / "mcp_server.py"
GROWING = Path(__file__).parents[1] / "support" / "mcp_growing_server.py"
PID = ToolRequest("p", "test_pid", "{}")
"""Asks the server for its process id."""

Settings = Callable[..., dict[str, Any]]


@pytest.fixture
def starts(tmp_path: Path) -> Path:
    """The file to which the test server adds a line at each start."""
    file = tmp_path / "starts.txt"
    file.write_text("")
    return file


@pytest.fixture
def server(starts: Path) -> Settings:
    """The test server, as a flow file would have it."""

    def settings(mode: str = "counted", **more: Any) -> dict[str, Any]:
        return {
            "name": "test",
            "trust_hints": True,
            "command": sys.executable,
            "args": [str(SERVER), mode, str(starts)],
            **more,
        }

    return settings


def started(starts: Path) -> int:
    return len(starts.read_text().splitlines())


def is_running(pid: str) -> bool:
    """Whether a process is there; one that has ended and is not yet reaped is not."""
    try:
        return "\nState:\tZ" not in Path(f"/proc/{pid}/status").read_text()
    except FileNotFoundError:
        return False


def told(request: Request) -> list[str]:
    return [each.content for each in request.messages if each.role == "tool"]


def asking(wish: ToolRequest = PID) -> ScriptedModel:
    """Calls a tool, and answers with what it said."""
    return ScriptedModel(lambda request: told(request)[0] if told(request) else wish)


def node(server: dict[str, Any], model: ScriptedModel | None = None, name: str = "a", **settings: Any) -> AgentNode:
    return AgentNode(Agent(name, "", model=model or asking(), mcp_servers=[server]), prompt=lambda _: "x", **settings)


@pytest.mark.parametrize("needs", [[], ["a"]])
async def test_two_agents_of_a_run_have_one_process(server: Settings, starts: Path, needs: list[str]) -> None:
    run = await Flow("f", {"a": node(server()), "b": node(server(), needs=needs)}).run()
    outputs = {each.output for each in run.nodes.values()}
    assert run.status == "succeeded"
    assert len(outputs) == started(starts) == 1
    assert not is_running(outputs.pop())


async def test_many_that_ask_at_once_wait_for_one_start(server: Settings, starts: Path) -> None:
    run = await Flow("f", {f"n{number}": node(server()) for number in range(20)}).run()
    assert run.status == "succeeded"
    assert started(starts) == 1


async def test_two_runs_have_two(server: Settings, starts: Path) -> None:
    flow = Flow("f", {"a": node(server()), "b": node(server())})
    async with anyio.create_task_group() as tasks:
        for _ in range(2):
            tasks.start_soon(flow.run)
    assert started(starts) == 2


async def test_no_server_starts_before_an_agent_needs_it(server: Settings, starts: Path) -> None:
    seen: list[int] = []

    async def look(context: Context) -> NodeResult:
        seen.append(started(starts))
        return NodeResult()

    await Flow("f", {"first": FunctionNode(look), "a": node(server(), needs=["first"])}).run()
    assert seen == [0]
    assert started(starts) == 1


async def test_servers_that_differ_are_not_shared(server: Settings, starts: Path) -> None:
    servers = [server(), server(env={"MODE": "fast"}), server(name="other"), server(start_timeout=20.0)]
    wishes = [PID, PID, ToolRequest("p", "other_pid", "{}"), PID]
    nodes = {
        f"n{number}": node(each, asking(wish)) for number, (each, wish) in enumerate(zip(servers, wishes, strict=True))
    }
    run = await Flow("f", nodes).run()
    assert len({each.output for each in run.nodes.values()}) == started(starts) == 4


@pytest.mark.usefixtures("impatient")
async def test_each_agent_keeps_its_own_allow_list_and_time_limit(server: Settings, starts: Path) -> None:
    models = asking(ToolRequest("1", "test_echo", "{}")), asking(ToolRequest("1", "test_hang", "{}"))
    nodes = {
        "a": node(server(allow=["echo"]), models[0]),
        "b": node(server(allow=["hang", "echo"], timeout=0.3), models[1], needs=["a"]),
    }
    run = await Flow("f", nodes).run()
    offered = [[tool["function"]["name"] for tool in model.requests[0].tools] for model in models]
    assert offered == [["test_echo"], ["test_echo", "test_hang"]]
    assert run.nodes["b"].output == "tool 'test_hang' did not answer within 0.3 s and was given up"
    assert started(starts) == 1


async def test_the_process_is_gone_when_the_run_fails(server: Settings, starts: Path) -> None:
    pids: list[str] = []

    async def fail(context: Context) -> NodeResult:
        pids.append(context.prev_outputs["a"])
        raise ValueError("no")

    run = await Flow("f", {"a": node(server()), "b": FunctionNode(fail, needs=["a"])}).run()
    assert run.status == "failed"
    assert started(starts) == 1
    assert not is_running(pids[0])


async def test_the_process_is_gone_when_the_run_is_cancelled(server: Settings, starts: Path) -> None:
    pids: list[str] = []

    async def wait(context: Context) -> None:
        pids.append(context.prev_outputs["a"])
        outer.cancel()
        await anyio.sleep_forever()

    with anyio.move_on_after(60) as outer:
        await Flow("f", {"a": node(server()), "b": FunctionNode(wait, needs=["a"])}).run()
    assert outer.cancelled_caught
    assert not is_running(pids[0])


@pytest.mark.usefixtures("impatient")
async def test_a_run_cancelled_while_a_server_starts_leaves_nothing(server: Settings, tmp_path: Path) -> None:
    with anyio.move_on_after(1):
        await Flow("f", {"a": node(server("hang_at_start")), "b": node(server("hang_at_start"))}).run()
    assert running(str(tmp_path)) == []


def running(text: str) -> list[str]:
    """Ids of the processes that this one has started and whose command line holds a text."""

    def holds(process: Path) -> bool:
        try:
            parent = int((process / "stat").read_text().rpartition(")")[2].split()[1])
            return parent == os.getpid() and text.encode() in (process / "cmdline").read_bytes()
        except OSError:
            return False

    return [each.name for each in Path("/proc").iterdir() if each.name.isdigit() and holds(each)]


async def test_an_agent_that_is_given_up_leaves_the_start_to_the_others(server: Settings, starts: Path) -> None:
    nodes = {"a": node(server("slow_start"), timeout=0.2, on_error="skip"), "b": node(server("slow_start"))}
    run = await Flow("f", nodes).run()
    assert (run.nodes["a"].status, run.nodes["b"].status) == ("skipped", "succeeded")
    assert started(starts) == 1


@pytest.mark.usefixtures("impatient")
async def test_a_server_that_died_between_two_nodes_is_started_again(server: Settings, starts: Path) -> None:
    async def kill(context: Context) -> NodeResult:
        os.kill(int(context.prev_outputs["a"]), signal.SIGKILL)
        return NodeResult()

    nodes = {"a": node(server()), "kill": FunctionNode(kill, needs=["a"]), "b": node(server(), needs=["kill"])}
    run = await Flow("f", nodes).run()
    assert run.status == "succeeded"
    assert run.nodes["a"].output != run.nodes["b"].output
    assert started(starts) == 2


async def test_a_server_that_did_not_start_is_started_anew_for_the_next_attempt(server: Settings, starts: Path) -> None:
    retry = RetryPolicy(attempts=2, backoff="fixed", initial=0.01)
    allowed = server("second_start", allow=["pid"])
    run = await Flow("f", {"a": node(allowed, retry=retry)}).run()
    assert run.status == "succeeded"
    assert started(starts) == 2


async def test_a_function_that_runs_an_agent_shares_the_servers_of_its_run(server: Settings, starts: Path) -> None:
    agent = Agent("inner", "", model=asking(), mcp_servers=[server()])

    async def ask(context: Context) -> NodeResult:
        return NodeResult(output=str((await agent.run_async("x", context)).result))

    run = await Flow("f", {"a": node(server()), "b": FunctionNode(ask, needs=["a"])}).run()
    assert run.nodes["a"].output == run.nodes["b"].output
    assert started(starts) == 1


async def test_an_agent_that_a_function_runs_on_another_loop_has_servers_of_its_own(
    server: Settings, starts: Path
) -> None:
    agent = Agent("inner", "", model=asking(), mcp_servers=[server()])

    def ask(context: Context) -> NodeResult:
        return NodeResult(output=str(agent.run("x", context).result))

    run = await Flow("f", {"a": node(server()), "b": FunctionNode(ask, needs=["a"])}).run()
    assert run.status == "succeeded", run.error
    assert started(starts) == 2


def time_server() -> list[str]:
    return [sys.executable, "-m", "mcp_server_time", "--local-timezone", "UTC"]


def everything_server() -> list[str]:
    """@modelcontextprotocol/server-everything, under the prefix in FLOWENGINE_TEST_NODE."""
    require("node", "Node.js runs the published MCP test server")
    prefix = os.environ.get("FLOWENGINE_TEST_NODE", "")
    command = Path(prefix, "node_modules/.bin/mcp-server-everything")
    if not prefix or not command.exists():
        missing("@modelcontextprotocol/server-everything is not installed under FLOWENGINE_TEST_NODE")
    return [str(command), "stdio"]


@pytest.mark.parametrize(  # Servers of our own are shared on both event loops.
    ("command", "wish", "said", "anyio_backend"),
    [
        (time_server, ToolRequest("1", "real_get_current_time", '{"timezone": "Asia/Tokyo"}'), "Asia/Tokyo", "trio"),
        (everything_server, ToolRequest("1", "real_echo", '{"message": "hello"}'), "Echo: hello", "asyncio"),
    ],
)
async def test_two_agents_of_a_run_share_a_published_server(
    command: Callable[[], list[str]], wish: ToolRequest, said: str
) -> None:
    program, *args = command()
    found: list[list[str]] = []

    async def look(context: Context) -> NodeResult:
        found.append(running(args[-1]))
        return NodeResult()

    server = {"name": "real", "command": program, "args": args}
    nodes = {
        "a": node(server, asking(wish)),
        "b": node(server, asking(wish)),
        "look": FunctionNode(look, needs=["a", "b"]),
    }
    run = await Flow("f", nodes).run()
    assert said in run.nodes["a"].output
    assert said in run.nodes["b"].output
    assert [len(each) for each in found] == [1]
    assert running(args[-1]) == []


# --- rule 18: what is external is not repeated ---------------------------------------------------------


RETRY = RetryPolicy(attempts=3, initial=0.01)


@pytest.mark.parametrize("allow", [None, ["count", "echo"]])
async def test_a_servers_external_tool_in_a_node_with_retry_is_refused_before_the_model_is_asked(
    server: Settings, allow: list[str] | None
) -> None:
    model = asking()
    first = AgentNode(Agent("first", "", model=model), prompt=lambda _: "x")
    write = node(server(allow=allow), model, retry=RETRY, needs=["first"])
    run = await Flow("f", {"first": first, "write": write}).run()
    assert (run.status, run.failed_node) == ("failed", "write")
    assert run.error is not None
    assert run.error.message == (
        "agent 'a': the tool 'test_count' is external, so node 'write', which may call it, must not be run again: "
        "give the node `retry: {attempts: 1}` (without one it has that of `defaults`), or leave the tool out, one of a "
        "server with its `allow`; what a server says of its tools counts with `trust_hints: true`"
    )
    assert model.requests == []


async def test_the_advice_of_a_refusal_helps(server: Settings) -> None:
    once = RetryPolicy(attempts=1)
    run = await Flow("f", {"write": node(server(), asking(ToolRequest("1", "test_count", "{}")), retry=once)}).run()
    assert run.status == "succeeded"
    without = node(server(allow=["pid"]), retry=RETRY)
    assert (await Flow("f", {"write": without}).run()).status == "succeeded"


async def test_a_refusal_inside_a_container_comes_before_the_first_model_call_too(server: Settings) -> None:
    model = asking()
    each = MapNode({"write": node(server(), model, retry=RETRY)}, over=lambda context: [1], needs=["first"])
    first = AgentNode(Agent("first", "", model=model), prompt=lambda _: "x")
    run = await Flow("f", {"first": first, "each": each}).run()
    assert (run.status, run.failed_node, model.requests) == ("failed", "each.write", [])


async def test_a_server_that_does_not_start_is_told_by_its_node_and_only_if_that_runs() -> None:
    broken = {"name": "test", "command": "no-such-command-anywhere"}

    def refuse(context: Context) -> bool:
        return False

    never = node(broken, retry=RETRY, when=refuse)
    assert (await Flow("f", {"never": never}).run()).status == "succeeded"
    run = await Flow("f", {"write": node(broken, retry=RETRY)}).run()
    assert (run.status, run.failed_node) == ("failed", "write")


async def test_such_a_refusal_is_not_tried_again(server: Settings, starts: Path) -> None:
    run = await Flow("f", {"write": node(server(), retry=RetryPolicy(attempts=3, initial=30.0))}).run()
    assert run.status == "failed"
    assert started(starts) == 1


async def test_an_external_tool_that_comes_later_is_refused_before_the_model_is_asked_again() -> None:
    program = {
        "name": "test",
        "trust_hints": True,
        "command": sys.executable,
        "args": [str(GROWING), "stdio", "external"],
    }
    model = ScriptedModel(lambda request: ToolRequest("1", "test_grow", "{}"), latency=0.05)
    run = await Flow("f", {"a": node(program, model, retry=RETRY)}).run()
    assert run.error is not None
    assert "the tool 'test_grown' is external" in run.error.message
    assert 1 <= len(model.requests) < 10


async def test_other_tools_of_a_server_go_with_retry(server: Settings) -> None:
    run = await Flow("f", {"a": node(server(allow=["pid", "crash_once_idempotent"]), retry=RETRY)}).run()
    assert run.status == "succeeded"


async def test_external_tools_without_retry_are_called(server: Settings) -> None:
    model = asking(ToolRequest("1", "test_count", "{}"))
    run = await Flow("f", {"a": node(server(), model)}).run()
    assert json.loads(run.nodes["a"].output) >= 1
