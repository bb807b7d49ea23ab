"""Fakes of functions and tools in flow tests: what is put in, and what is refused that would really happen."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from textwrap import indent

import pytest

from flowengine import Agent, Flow, FunctionNode, MapNode
from flowengine.agents.tools.function_tool import tool
from flowengine.cli.main import main
from flowengine.core.context import Context
from flowengine.core.records import Retry
from flowengine.engine.events import NodeRecorded
from flowengine.errors import DefinitionError
from flowengine.models.messages import ToolRequest
from flowengine.nodes.node import RetryPolicy
from flowengine.testing.cases import run_case
from flowengine.testing.fakes import Fake, FakeError, faked
from flowengine.testing.flowtest import load_flowtest
from flowengine.testing.scripted_answers import scripted

MODULE = """
from pathlib import Path

from flowengine.agents.tools.function_tool import tool

def really(what):
    Path("really").write_text(what)
    return what

def send(to, text):
    return really("sent")

def count(text):
    return len(text)

@tool(effect="external")
def refund(euros: float) -> str:
    "Pay money back."
    return really("refunded")

def find_order(number: str) -> dict:
    "Look an order up."
    return {"number": number, "found": True}
"""

FLOW = """
flowengine: v1
name: shop
inputs:
  names: {type: array, default: [Ann, Bo]}
nodes:
  count: {type: function, call: "shop:count", with: {text: "three"}}
  answer:
    needs: [count]
    prompt: Answer it.
    model: openai/gpt-4o-mini
    tools: [shop:refund, shop:find_order]
    mcp_servers:
      - {name: clock, command: no-such-command-anywhere}
  send:
    type: function
    effect: external
    call: "shop:send"
    with: {to: "{{ inputs.names[0] }}", text: "{{ nodes.answer.output }}"}
  each:
    type: map
    needs: [send]
    over: inputs.names
    nodes:
      post: {type: function, effect: idempotent, call: "shop:send", with: {to: "{{ item }}", text: x}}
outputs:
  sent: "{{ nodes.send.output }}"
  posted: "{{ nodes.each.output }}"
"""

CASE = """\
answers:
  answer:
    - {tool: find_order, arguments: {number: A-1}}
    - {tool: refund, arguments: {euros: 3.0}}
    - {tool: clock_now}
    - Done.
"""
FAKES = """\
fakes:
  functions: {send: sent to nobody}
  tools: {refund: paid, find_order: {returns: {number: none}}, clock_now: "12:00"}
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "flowengine.toml").write_text('allow_calls = ["shop"]\nallow_mcp = ["no-such-command-anywhere"]\n')
    (tmp_path / "shop.py").write_text(MODULE)
    (tmp_path / "shop.yaml").write_text(FLOW.lstrip())
    monkeypatch.chdir(tmp_path)
    return tmp_path


def write_case(folder: Path, *parts: str) -> Path:
    file = folder / "shop.flowtest.yaml"
    body = indent("".join(parts), "    ").lstrip()
    file.write_text(f"flow: shop.yaml\ncases:\n  - name: it is sent\n    {body}")
    return file


def findings(folder: Path, *parts: str) -> list[str]:
    test = load_flowtest(write_case(folder, *parts))
    return [str(each) for each in run_case(test, 0)]


def test_fakes_stand_in_for_functions_tools_and_servers(folder: Path):
    expect = "expect: {outputs: {sent: sent to nobody, posted: [sent to nobody, sent to nobody]}, model_calls: 4}\n"
    assert findings(folder, CASE, FAKES, expect) == []
    assert not Path("really").exists()


@pytest.mark.parametrize(
    ("without", "instead", "said"),
    [
        ("{send: sent to nobody}", "{each.post: x}", "node 'send' has an effect (external) and is not faked"),
        ("{send: sent to nobody}", "{}", "node 'send' has an effect (external) and is not faked"),
        ("refund: paid, ", "", "the tool 'refund' has an effect (external) and is not faked"),
    ],
)
def test_an_effect_that_is_not_faked_is_an_error_of_the_case(folder: Path, without: str, instead: str, said: str):
    [found] = findings(folder, CASE, FAKES.replace(without, instead))
    assert said in found
    assert found.startswith(f"{folder / 'shop.flowtest.yaml'}:10:")
    assert not Path("really").exists()


def test_an_effect_that_is_not_reached_need_not_be_faked(folder: Path):
    fails = "fakes: {functions: {count: {fails: no count}}}\n"
    assert findings(folder, CASE, fails, "expect: {status: failed, skipped: {send: upstream_failed}}\n") == []


def test_a_fake_is_given_by_the_path_of_its_node_before_its_functions_name(folder: Path):
    fakes = FAKES.replace("{send: sent to nobody}", "{send: one, each.post: two}")
    assert findings(folder, CASE, fakes, "expect: {outputs: {sent: one, posted: [two, two]}}\n") == []


def test_a_fake_answers_each_call_in_turn_and_not_once_more(folder: Path):
    fakes = FAKES.replace("{send: sent to nobody}", "{send: x, each.post: {each: [one]}}")
    [found] = findings(folder, CASE, fakes)
    assert "the fake of 'each.post' has answers for 1 calls" in found


def test_one_call_of_several_fails_and_one_returns_what_looks_like_a_failure(folder: Path):
    fakes = FAKES.replace(
        "{send: sent to nobody}", "{send: x, each.post: {each: [{returns: {fails: one}}, {fails: full}]}}"
    )
    assert findings(folder, CASE, fakes, "expect: {status: failed}\n") == []
    flow = Flow("post", {"first": FunctionNode(deed), "then": FunctionNode(deed, needs=["first"])})
    run = faked(flow, functions={"deed": Fake("each", ["a", Fake("fails", "no mail")])}).run_sync()
    assert (run.nodes["first"].output, run.error and run.error.message) == ("a", "no mail")


def test_each_attempt_of_a_node_is_a_call_of_its_fake():
    node = FunctionNode(deed, retry=RetryPolicy(attempts=3, initial=0))
    busy = Fake("fails", "busy")
    run = faked(Flow("post", {"send": node}), functions={"send": Fake("each", [busy, busy, "sent"])}).run_sync()
    assert run.outputs == {"send": "sent"}
    again = faked(Flow("post", {"send": node}), functions={"send": busy}).run_sync()
    retries = [each.record for each in again.events if isinstance(each, NodeRecorded)]
    assert (again.status, [type(each) for each in retries]) == ("failed", [Retry, Retry])


@pytest.mark.parametrize("claim", ["skipped: [each.post]", "route: {each.post: there}"])
def test_a_claim_of_a_node_inside_another_names_one_of_its_paths(folder: Path, claim: str):
    fakes = FAKES.replace("{send: sent to nobody}", "{send: sent}")
    [found] = findings(folder, CASE, fakes, f"expect: {{{claim}}}\n")
    assert "it is inside of another node, and came as each[0].post, each[1].post: name one" in found
    assert (
        findings(folder, CASE, fakes, "expect: {path: [count, answer, send, 'each[0].post', 'each[1].post', each]}\n")
        == []
    )


def test_what_is_named_as_real_really_runs(folder: Path):
    fakes = FAKES.replace("functions: {send: sent to nobody}", "functions: {each.post: x}\n  real: [send]")
    assert findings(folder, CASE, fakes) == []
    assert Path("really").read_text() == "sent"


@pytest.mark.parametrize("wrong", ["find_ordr", "clock_then"])
def test_a_scripted_call_of_a_tool_that_does_not_exist_fails_the_case(folder: Path, wrong: str):
    case = CASE.replace("tool: find_order", f"tool: {wrong}")
    [found] = findings(folder, case, FAKES, "expect: {status: failed}\n")
    assert f"the script calls the tool '{wrong}', which the agent does not have; did you mean" in found
    assert ":4:" in found


def test_the_command_line_and_pytest_say_the_same(folder: Path, capfd: pytest.CaptureFixture[str]):
    write_case(folder, CASE, FAKES.replace("refund: paid, ", ""))
    assert main(["test", "."]) == 1
    assert "the tool 'refund' has an effect" in capfd.readouterr().out
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--noconftest", "--rootdir=."]
    told = subprocess.run([*command, "shop.flowtest.yaml"], capture_output=True, text=True, check=False)
    assert told.returncode == 1
    assert "the tool 'refund' has an effect" in told.stdout
    write_case(folder, CASE, FAKES)
    assert main(["test", "."]) == 0
    assert not Path("really").exists()


# --- in Python


def deed(context: Context) -> str:
    raise AssertionError("the real function was called")


@tool(effect="external")
def pay(euros: int) -> str:
    """Pay money back."""
    raise AssertionError("the real tool was called")


def test_functions_of_a_flow_built_in_python_are_faked():
    flow = Flow("post", {"send": FunctionNode(deed, effect="external")})
    assert faked(flow, functions={"send": {"ok": True}}).run_sync().outputs == {"send": {"ok": True}}
    assert faked(flow, functions={"deed": lambda context: context.current_node}).run_sync().outputs == {"send": "send"}
    run = faked(flow, functions={"send": Fake("fails", "no mail")}).run_sync()
    assert run.error is not None
    assert (run.error.type, run.error.message) == (FakeError.__name__, "no mail")
    refused = faked(flow).run_sync()
    assert refused.error is not None
    assert "is not faked" in refused.error.message


def test_functions_inside_containers_are_faked_with_their_items():
    body = {"send": FunctionNode(deed, effect="external")}
    flow = Flow("post", {"each": MapNode(body, over=lambda context: [1, 2])})
    run = faked(flow, functions={"each.send": Fake("each", ["a", "b"])}).run_sync()
    assert sorted(run.outputs["each"]) == ["a", "b"]


def test_tools_of_an_agent_are_faked_in_python():
    flow = Flow("pay", {"ask": Agent("ask", "Pay.", model="openai/gpt-4o-mini", tools=[pay])})
    paid: list[int] = []

    def note(euros: int) -> str:
        paid.append(euros)
        return "noted"

    answers = {"ask": [ToolRequest("1", "pay", '{"euros": 3}'), "Paid."]}
    assert scripted(faked(flow, tools={"pay": note}), answers).run_sync().outputs == {"ask": "Paid."}
    assert paid == [3]


@pytest.mark.parametrize(
    "wrong",
    [
        lambda flow: faked(flow, functions={"snd": 1}),
        lambda flow: faked(flow, tools={"snd": 1}),
        lambda flow: faked(flow, real=["snd"]),
    ],
)
def test_a_fake_that_stands_for_nothing_is_told(wrong: Callable[[Flow], Flow]):
    with pytest.raises(DefinitionError, match="'snd'"):
        wrong(Flow("post", {"send": FunctionNode(deed)}))


def test_a_condition_is_faked_whether_a_function_or_an_expression_decides_it() -> None:
    text = """
        flowengine: v1
        name: climate
        inputs: {degrees: {type: integer}}
        nodes:
          is_hot: {type: condition, if: inputs.degrees > 30, then: cool, else: heat}
          cool: {type: code, code: return "cool"}
          heat: {type: code, code: return "heat"}
    """
    flow = faked(Flow.from_text(text, "climate.yaml"), functions={"is_hot": True, "cool": "cooled", "heat": "heated"})
    assert flow.run_sync({"degrees": 10}).outputs == {"cool": "cooled"}


@pytest.mark.parametrize("fake", ['{status: "404"}', "{status: null}", "{status: true}", "{headers: [1]}"])
def test_the_answer_of_a_request_that_is_none_is_told_in_words(tmp_path: Path, fake: str) -> None:
    (tmp_path / "flowengine.toml").write_text('allow_http = ["https://api.example.com"]\n')
    (tmp_path / "get.yaml").write_text(
        'flowengine: v1\nname: get\nnodes: {ask: {type: http, url: "https://api.example.com/x", method: GET}}\n'
    )
    case = f"flow: get.yaml\ncases: [{{name: it answers, fakes: {{http: {{ask: {fake}}}}}}}]\n"
    (tmp_path / "get.flowtest.yaml").write_text(case)
    [found] = run_case(load_flowtest(tmp_path / "get.flowtest.yaml"), 0)
    assert found.message.endswith("the fake of 'ask' has a whole number as `status`, and a map as `headers`")
