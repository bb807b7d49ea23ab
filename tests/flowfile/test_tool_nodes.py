"""`type: tool` in flow files: which tool is meant, what it is given, and what a project allows."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from flowengine import Flow, FlowBuilder
from flowengine.errors import FlowError
from flowengine.flowfile.loader import check_file
from flowengine.testing.cases import run_case
from flowengine.testing.flowtest import FlowTestError, load_flowtest

SERVER = Path(__file__).parents[1] / "support" / "mcp_server.py"
CODE = """
from typing import Literal
from flowengine import Tool, ToolResult, tool

@tool(effect="external")
def refund(euros: float, reason: Literal["broken", "unwanted"] = "broken") -> float:
    return euros * 2

def find(number: str) -> str:
    return f"order {number}"

async def answer(arguments):
    return ToolResult(str(arguments), arguments)

made = Tool("made", "", {"type": "object", "required": ["a"]}, answer)
"""
HEAD = "flowengine: v1\nname: tools\n"
SERVERS = (
    f"mcp_servers:\n  - {{name: crm, command: {sys.executable}, args: [{SERVER}, plain], allow: [echo, structured]}}\n"
)


def write(folder: Path, text: str, project: str = "") -> Path:
    (folder / "shop.py").write_text(CODE)
    allowed = json.dumps([str(sys.executable)])
    (folder / "flowengine.toml").write_text(f'allow_calls = ["shop"]\nallow_mcp = {allowed}\n{project}')
    file = folder / "flow.yaml"
    file.write_text(HEAD + text)
    return file


def told(folder: Path, node: str, *, head: str = "", project: str = "") -> list[str]:
    file = write(folder, f"{head}nodes:\n  a: {{type: tool, {node}}}\n", project)
    return [str(each).replace(f"{folder}/", "") for each in check_file(file)]


@pytest.mark.parametrize(
    ("node", "expected"),
    [
        (
            "tool: crn.echo",
            "FE521 node 'a': there is no MCP server 'crn' in the file or its project; did you mean 'crm'?",
        ),
        (
            "tool: crm.ehco",
            "FE521 node 'a': the MCP server 'crm' does not offer 'ehco': its `allow` has echo, structured; "
            "did you mean 'echo'?",
        ),
        ("tool: 'shop:refnd'", "FE506 node 'a': the module 'shop' defines no 'refnd'; did you mean 'refund'?"),
        ("tool: 'os:system'", "FE504 node 'a': the module 'os' is not allowed"),
        ("tool: 'shop:refund'", "FE512 node 'a': the function needs 'euros': give it in 'with'"),
        ("tool: 'shop:find', with: {numbr: 1}", "FE512 node 'a': the function takes no argument 'numbr'"),
        ("tool: nothing", "node 'a': "),
        ("tool: crm.echo, retry: {attempts: 2}", "FE209 node 'a': 'retry' goes with `effect: none`"),
        ("tool: crm.echo, cache: true", "FE209 node 'a': 'cache' goes with `effect: none`"),
        ("tool: crm.echo, effect: external, retry: {attempts: 2}", "FE209 node 'a': what has an external effect"),
        ("tol: crm.echo", "FE201 node 'a': unknown key 'tol'; did you mean 'tool'?"),
    ],
)
def test_mistakes_are_told_with_their_place(tmp_path: Path, node: str, expected: str):
    found = told(tmp_path, node, head=SERVERS)
    assert len(found) == 1, found
    assert found[0].startswith("flow.yaml:6:")
    assert expected in found[0]


def test_a_server_of_the_file_needs_the_projects_leave_and_one_of_the_project_has_it(tmp_path: Path):
    foreign = "mcp_servers: [{name: crm, command: evil}]\n"
    [found] = told(tmp_path, "tool: crm.echo", head=foreign)
    assert "FE509" in found
    assert "flow.yaml:3:36" in found
    assert told(tmp_path, "tool: crm.echo", project='[mcp_servers.crm]\ncommand = "mine"\n') == []
    [wrong] = told(tmp_path, "tool: crm.echo", project='[mcp_servers.crm]\ncomand = "mine"\n', head=SERVERS)
    assert "`mcp_servers.crm`: an MCP server has no setting 'comand'; did you mean 'command'?" in wrong


def test_servers_of_agents_can_be_named_unless_two_differ(tmp_path: Path):
    def head(more: str) -> str:
        first = f"{{mcp_servers: [{{name: crm, command: {sys.executable}, allow: [x]}}]}}"
        return f"agents: {{one: {first}}}\ndefaults: {{agent: {first.replace('allow: [x]', more)}}}\n"

    found = told(tmp_path, "tool: crm.y", head=head("allow: [y]"))
    assert [each for each in found if "FE9" not in each] == []
    found = told(tmp_path, "tool: crm.y", head=head("args: [z]"))
    assert any("FE411 node 'a': the file has different MCP servers named 'crm'" in each for each in found)


def test_wrong_arguments_of_a_function_are_told_where_they_stand(tmp_path: Path):
    file = write(tmp_path, "nodes:\n  a:\n    type: tool\n    tool: shop:refund\n    with: {euros: 3, reason: lost}\n")
    with pytest.raises(FlowError) as caught:
        Flow.from_yaml(file)
    [found] = caught.value.diagnostics
    assert (found.line, found.column) == (7, 30)
    assert "wrong arguments for the tool: 'reason': 'lost' is not one of ['broken', 'unwanted']" in found.message


def test_tools_of_servers_and_of_the_project_run_in_one_flow(tmp_path: Path):
    body = """
inputs: {number: {type: string}}
nodes:
  find: {type: tool, tool: "shop:find", with: {number: "{{ inputs.number }}"}}
  echo: {type: tool, tool: crm.echo, with: {value: "{{ nodes.find.output }}"}}
  weather: {type: tool, tool: crm.structured, set: {degrees: "{{ output.degrees }}"}}
  made: {type: tool, tool: "shop:made", with: {a: [1, "{{ nodes.weather.output.degrees }}"]}}
shared_state: {degrees: {type: integer}}
outputs: {echo: "{{ nodes.echo.output }}", degrees: "{{ shared_state.degrees }}", made: "{{ nodes.made.output }}"}
"""
    run = Flow.from_yaml(write(tmp_path, SERVERS + body)).run_sync({"number": "A-1"}).raise_for_status()
    assert run.outputs == {"echo": '{"value": "order A-1"}', "degrees": 3, "made": {"a": [1, 3]}}


def test_a_flow_is_written_in_python_with_the_same_words(tmp_path: Path):
    write(tmp_path, "nodes: {a: {prompt: x}}\n")
    flow = FlowBuilder(
        "tools", mcp_servers=[{"name": "crm", "command": sys.executable, "args": [str(SERVER), "plain"]}]
    )
    flow.tool("a", "crm.structured", effect="none", retry={"attempts": 2})
    assert flow.build(root=tmp_path).run_sync().outputs == {"a": {"degrees": 3}}


def case(folder: Path, fakes: str) -> list[str]:
    flow = (
        SERVERS
        + "nodes:\n  a: {type: tool, tool: crm.echo}\n  b: {type: tool, tool: 'shop:refund', with: {euros: 1}}\n"
    )
    write(folder, flow)
    test = folder / "t.flowtest.yaml"
    test.write_text(
        f"flow: flow.yaml\ncases:\n  - name: c\n    fakes: {fakes}\n    expect: {{outputs: {{a: x, b: 7}}}}\n"
    )
    return [str(each) for each in run_case(load_flowtest(test), 0)]


def test_flow_tests_fake_tools_and_start_no_server(tmp_path: Path):
    assert case(tmp_path, "{tools: {crm_echo: x, refund: 7}}") == []
    missed = "\n".join(case(tmp_path, "{tools: {refund: 7}}"))
    assert (
        "the tool 'crm_echo' is one of an MCP server and is not faked; write `fakes: {tools: {crm_echo: …}}`" in missed
    )
    missed = "\n".join(case(tmp_path, "{tools: {crm_echo: x}}"))
    assert "the tool 'refund' has an effect (external) and is not faked" in missed
    assert 'output \'a\' was to be "x", found "{}"' in "\n".join(case(tmp_path, "{tools: {refund: 7}, real: [crm]}"))
    with pytest.raises(FlowTestError, match="the flow has no tool 'crm_ehco'; did you mean 'crm_echo'"):
        case(tmp_path, "{tools: {crm_ehco: x}}")
