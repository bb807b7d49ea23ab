"""Tools and servers of agents in flow files: what is checked, what is built, and a run that uses both."""

from __future__ import annotations

import json
import os
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from flowengine.agents.agent import Agent
from flowengine.core.records import ToolCall
from flowengine.engine.events import NodeRecorded
from flowengine.errors import FlowError
from flowengine.flow import Flow
from flowengine.flowfile.compile.compiler import load_plan
from flowengine.flowfile.loader import check_file
from flowengine.models.messages import ToolRequest
from flowengine.models.model import Request
from flowengine.models.scripted import ScriptedModel
from flowengine.nodes.agent import AgentNode

FLOWS = Path(__file__).parents[2] / "flows"
HEAD = "flowengine: v1\nname: sample\n"
MODULE = """
from flowengine.agents.tools.function_tool import tool, tool_of
from flowengine.agents.tools.toolset import ToolSet

VERSION = 3

def search(words: str) -> str:
    return words

@tool(name="find")
def look(words: str) -> str:
    return words

def variadic(*words): ...

ANSWER = int("42")
ANY = variadic
AGAIN = search
COUNT = tool_of(search, name="count")
BOTH = ToolSet("both", "", [search, look])
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "web.py").write_text(MODULE)
    return tmp_path


def flow_in(folder: Path, nodes: str) -> Path:
    file = folder / "flow.yaml"
    file.write_text(f"{HEAD}{nodes}\n")
    return file


def allow(folder: Path, *servers: str) -> None:
    (folder / "flowengine.toml").write_text(f"allow_calls = ['web']\nallow_mcp = {json.dumps(servers)}")


def agent_of(folder: Path, nodes: str, name: str = "a") -> Any:
    node = load_plan(flow_in(folder, nodes)).definitions[name]
    assert isinstance(node, AgentNode)
    return node.agent


def tools_of(agent: Any) -> list[str]:
    return [tool.name for each in agent.tooling.sets for tool in each.tools]


def wish(name: str, **arguments: Any) -> ToolRequest:
    return ToolRequest("1", name, json.dumps(arguments))


# --- what is built


def test_functions_tools_and_sets_of_a_module_become_the_agents_tools(folder: Path) -> None:
    agent = agent_of(folder, "nodes: {a: {prompt: x, tools: ['web:look', 'web:COUNT'], max_tool_rounds: 3}}")
    assert tools_of(agent) == ["find", "count"]
    assert (agent.tooling.max_rounds, agent.tooling.max_parallel) == (3, 8)
    assert tools_of(agent_of(folder, "nodes: {a: {prompt: x, tools: ['web:BOTH']}}")) == ["search", "find"]


def test_a_nodes_own_tools_go_before_its_agents(folder: Path) -> None:
    agents = "inputs: {n: {type: string}}\nagents: {w: {tools: ['web:search'], max_tool_rounds: 2}}\n"
    nodes = "nodes: {a: {agent: w}, b: {agent: w, tools: ['web:look']}, c: {agent: w, tools: []}}"
    tools = {name: tools_of(agent_of(folder, agents + nodes, name)) for name in "abc"}
    assert tools == {"a": ["search"], "b": ["find"], "c": []}
    assert agent_of(folder, agents + nodes, "b").tooling.max_rounds == 2


def test_servers_come_with_all_their_settings(folder: Path) -> None:
    nodes = (
        "nodes:\n  a:\n    prompt: x\n    mcp_servers:\n"
        "      - {name: time, command: python, args: [-m, clock], env: {TZ: UTC}, allow: [now], timeout: 5s}\n"
        "      - {name: docs, url: 'https://example.org/mcp', headers_env: {X-Key: DOCS_KEY}, start_timeout: 1m}\n"
    )
    allow(folder, "TZ=UTC python -m clock", "https://example.org")
    time, docs = agent_of(folder, nodes).tooling.servers
    assert (time.name, time.command, time.args, time.env) == ("time", "python", ("-m", "clock"), {"TZ": "UTC"})
    assert (time.allow, time.timeout, time.start_timeout) == (("now",), 5.0, 30.0)
    assert (docs.url, docs.headers_env) == ("https://example.org/mcp", {"X-Key": "DOCS_KEY"})
    assert (docs.allow, docs.start_timeout) == (None, 60.0)


def test_routing_and_evaluation_nodes_take_no_tools_from_their_agent(folder: Path) -> None:
    nodes = (
        "agents: {w: {tools: ['web:search']}}\n"
        "nodes: {a: {agent: w, prompt: x}, e: {type: evaluation, agent: w, needs: [a]}}"
    )
    plan = load_plan(flow_in(folder, nodes))
    assert not hasattr(plan.definitions["e"].judge, "tooling")  # type: ignore[attr-defined] - the one evaluation node


@pytest.mark.parametrize(
    "change",
    [
        "tools: ['web:look']",
        "max_tool_rounds: 3",
        "mcp_servers: [{name: t, command: c}]",
        "mcp_servers: [{name: t, command: c, args: [x]}]",
    ],
)
def test_a_change_of_the_tools_changes_the_node(change: str, folder: Path) -> None:
    allow(folder, "c")

    def fingerprint(settings: str) -> str:
        return load_plan(flow_in(folder, f"nodes: {{a: {{prompt: x{settings}}}}}")).fingerprints["a"]

    assert fingerprint(f", {change}") == fingerprint(f", {change}") != fingerprint("")


def test_a_change_of_a_shared_agents_tools_changes_its_nodes(folder: Path) -> None:
    def fingerprint(name: str) -> str:
        agents = f"agents: {{w: {{tools: ['web:{name}']}}}}\n"
        return load_plan(flow_in(folder, f"{agents}nodes: {{a: {{agent: w, prompt: x}}}}")).fingerprints["a"]

    assert fingerprint("search") != fingerprint("look")


# --- what is checked

ODD = """
import decimal
import flowengine as fe
from typing import Annotated, Literal, Optional
from flowengine import Context
def load_skill(name: str) -> str: ...
def told(word: str, run: Context) -> str: ...
def said(*, here: fe.Context = None) -> str: ...
def other(word: str, run: decimal.Context, kind: Literal["Context"], more: "Annotated[str, 'Context']") -> str: ...
def quoted(word: str, run: "Context | None" = None) -> str: ...
def dotted(word: str, run: Optional["fe.Context"] = None) -> str: ...
def run_skill_script(name: str) -> str: ...
def read_skill_section(name: str) -> str: ...
raise SystemExit('imported')
"""


@pytest.mark.parametrize(
    ("nodes", "expected"),
    [
        ("nodes: {a: {prompt: x, tools: ['web:serch']}}", "3:32: FE506 node 'a': the module 'web' defines no 'serch'"),
        ("nodes: {a: {prompt: x, tools: ['wep:look']}}", "3:32: FE505 node 'a': there is no module 'wep'"),
        ("nodes: {a: {prompt: x, tools: ['os:system']}}", "3:32: FE505 node 'a': there is no module 'os'"),
        ("nodes: {a: {prompt: x, tools: [web.look]}}", "3:32: FE409 node 'a': expected 'module:function'"),
        ("nodes: {a: {prompt: x, tools: 'web:look'}}", "3:31: FE401 node 'a': expected a list"),
        ("agents: {w: {tools: ['web:no']}}\nnodes: {a: {agent: w, prompt: x}}", "3:22: FE506 the module 'web'"),
        ("nodes: {a: {agent: {tools: ['web:no']}, prompt: x}}", "3:29: FE506 node 'a'"),
        ("defaults: {agent: {tools: ['web:no']}}\nnodes: {a: {prompt: x}}", "3:28: FE506 the module 'web'"),
        ("nodes: {a: {prompt: x, tools: ['odd:load_skill', 'web:look']}}", None),
        (
            "nodes: {a: {prompt: x, tools: ['odd:load_skill'], skills: [skills]}}",
            "3:32: FE526 node 'a': `skills` bring a tool named 'load_skill' too; give this one another name",
        ),
        (
            "nodes: {a: {prompt: x, tools: ['odd:told']}}",
            "3:32: FE512 node 'a': the parameter 'run' of 'odd:told' is a Context, which no tool is given; "
            "a node of `type: function` gets one",
        ),
        ("nodes: {a: {prompt: x, tools: ['odd:run_skill_script', 'odd:read_skill_section'], skills: [skills]}}", None),
        (
            "nodes: {a: {prompt: x, tools: ['odd:run_skill_script'], skills: [scripts]}}",
            "3:32: FE526 node 'a': `skills` bring a tool named 'run_skill_script' too; give this one another name",
        ),
        (
            "nodes: {a: {prompt: x, tools: ['odd:read_skill_section'], skills: [scripts]}}",
            "`skills` bring a tool named 'read_skill_section' too",
        ),
        ("nodes: {a: {prompt: x, tools: ['odd:quoted']}}", "'run' of 'odd:quoted' is a Context"),
        ("nodes: {a: {type: tool, tool: 'odd:dotted', with: {word: x}}}", "'run' of 'odd:dotted' is a Context"),
        ("nodes: {a: {type: tool, tool: 'odd:said', with: {}}}", "'here' of 'odd:said' is a Context"),
        ("nodes: {a: {prompt: x, tools: ['odd:other']}}", None),
        ("nodes: {a: {type: function, call: 'odd:told', with: {word: x}}}", "the function needs 'run'"),
        ("nodes: {a: {prompt: x, max_tool_rounds: 0}}", "3:41: FE403 node 'a': expected at least 1, found 0"),
        ("nodes: {a: {prompt: x, tools: }}", "3:24: FE408 node 'a': the key has no value"),
    ],
)
def test_tools_are_checked_where_they_stand_without_running_their_module(
    nodes: str, expected: str | None, folder: Path
) -> None:
    (folder / "web.py").write_text(MODULE + "\nraise SystemExit('imported')\n")
    (folder / "odd.py").write_text(ODD)
    for name in ("skills/greet", "scripts/greet"):
        skill = folder / name
        skill.mkdir(parents=True)
        (skill / "SKILL.md").write_text("---\nname: greet\ndescription: How to greet.\n---\nSay hello.\n")
    (skill / "hello.py").write_text("print('Hello')\n")
    found = check_file(flow_in(folder, nodes))
    assert len(found) == (expected is not None)
    assert all(expected is not None and expected in str(each) for each in found)


def test_a_project_file_says_which_modules_tools_may_come_from(folder: Path) -> None:
    (folder / "flowengine.toml").write_text("allow_calls = ['shop']")
    (found,) = check_file(flow_in(folder, "nodes: {a: {prompt: x, tools: ['web:look']}}"))
    assert "FE504" in str(found)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("ANSWER", "'web:ANSWER' is int, which cannot be called"),
        ("ANY", "tool 'variadic': parameter 'words' is variadic positional"),
        ("search', 'web:COUNT', 'web:AGAIN", "two tools are named 'search'"),
    ],
)
def test_what_only_its_import_shows_to_be_no_tool_is_told_when_the_flow_is_built(
    name: str, expected: str, folder: Path
) -> None:
    with pytest.raises(FlowError, match=f"node 'a': .*{expected}"):
        load_plan(flow_in(folder, f"nodes: {{a: {{prompt: x, tools: ['web:{name}']}}}}"))


def test_a_node_whose_tools_do_deeds_takes_no_retry(folder: Path) -> None:
    code = "from flowengine.agents.tools.function_tool import tool\n@tool(effect='external')\ndef pay(): ..."
    (folder / "shop.py").write_text(code)
    node = "nodes: {{a: {{prompt: x, tools: ['shop:pay'], retry: {{attempts: {}}}}}}}"
    load_plan(flow_in(folder, node.format(1)))
    with pytest.raises(FlowError, match=r"node 'a': the tool 'pay' is external, so a node .* takes no `retry`"):
        load_plan(flow_in(folder, node.format(2)))


# --- what runs


def test_a_server_that_cannot_start_fails_its_node_by_name(folder: Path) -> None:
    nodes = "nodes: {a: {prompt: x, model: offline, mcp_servers: [{name: shop, command: no-such-program}]}}"
    allow(folder, "no-such-program")
    run = Flow.from_yaml(flow_in(folder, nodes)).run_sync()
    assert (run.status, run.failed_node) == ("failed", "a")
    assert run.error is not None
    assert run.error.message.startswith("agent 'a': MCP server 'shop' did not start: ")


async def test_the_sample_flow_calls_its_functions_and_its_server(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")

    def clerk(request: Request) -> Any:
        told = [each.content for each in request.messages if each.role == "tool"]
        offered = [each["function"]["name"] for each in request.tools]
        if offered == ["time_get_current_time"]:
            return "You will be called." if told else wish("time_get_current_time", timezone="UTC")
        if not told:
            return wish("find_order", number="A-17")
        if len(told) == 1:
            order = json.loads(told[0])
            return wish(
                "refund_for",
                euros=order["euros"],
                days_since_delivery=order["days_since_delivery"],
                reason="broken",
            )
        return f"You get back {told[1]} euros."

    model = ScriptedModel(clerk)
    flow = Flow.from_yaml(FLOWS / "tool_agent.yaml")
    for name in ("answer", "callback"):
        node: Any = flow.plan.definitions[name]
        node.agent.settings = replace(node.agent.settings, model=model)
    run = (await flow.run({"with_clock": True})).raise_for_status()
    assert run.outputs == {"answer": "You get back 30.0 euros.", "callback": "You will be called."}
    records = [event.record for event in run.events if isinstance(event, NodeRecorded)]
    ended = [each for each in records if isinstance(each, ToolCall) and not each.started]
    assert [(each.name, each.is_error) for each in ended] == [
        ("find_order", False),
        ("refund_for", False),
        ("time_get_current_time", False),
    ]
    assert '"UTC"' in ended[-1].result


def test_the_tools_of_an_agent_given_in_python_belong_to_its_nodes_definition() -> None:
    def fingerprint(**settings: Any) -> str:
        return Flow("f", {"a": Agent("a", "", **settings)}).plan.fingerprints["a"]

    def look() -> None: ...

    server = {"name": "t", "command": "c"}
    assert len({fingerprint(), fingerprint(tools=[look]), fingerprint(mcp_servers=[server])}) == 3
    assert fingerprint(tools=[look]) == fingerprint(tools=[look])
