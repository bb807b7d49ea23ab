"""A test, or a row of data, is made of a recorded run: on the command line, and in the viewer."""

from __future__ import annotations

import html
import json
import re
import shlex
import sys
from collections.abc import Generator
from pathlib import Path

import pytest

from flowengine.cli.main import main
from flowengine.testing.cases import run_case
from flowengine.testing.flowtest import load_flowtest
from flowengine.web.app import make_app
from tests.support.ui_server import Served, served

STEPS = """
from flowengine import tool

def send(text):
    return {"sent": text}

def shout(text):
    return text.upper()
"""
FLOW = """flowengine: v1
name: letters
inputs: {topic: {type: string}, ok: {type: boolean, default: true}}
nodes:
  draft: {model: offline, prompt: "Write of {{ inputs.topic }}"}
  each:
    type: map
    over: "[1, 2]"
    nodes:
      sum: {model: offline, prompt: "Sum {{ item }} of {{ inputs.topic }}"}
  send: {type: function, call: "steps:send", with: {text: "{{ nodes.draft.output }}"}, effect: external}
  ask: {type: approval, message: "Archive?", routes: {"yes": archive, "no": {}}, needs: [send]}
  archive: {type: function, call: "steps:shout", with: {text: "{{ inputs.topic }}"}, when: "inputs.ok"}
outputs: {sent: "{{ nodes.send.output.sent }}", sums: "{{ nodes.each.output }}"}
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Generator[Path]:
    """A project with one recorded run of a flow that asks models and a person, and has an effect."""
    made = tmp_path_factory.mktemp("cases")
    (made / "flowengine.toml").write_text('allow_calls = ["steps"]\n')
    (made / "steps.py").write_text(STEPS)
    (made / "letters.yaml").write_text(FLOW)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(made)
        patch.delitem(sys.modules, "steps", raising=False)
        words = ["-i", "topic=ada@example.jp writes", "--store", "runs.db", "-q"]
        assert main(["run", "letters.yaml", *words]) == 3
        assert main(["approve", "@last", "ask", "--choice", "yes", "--store", "runs.db"]) == 0
        yield made
    sys.modules.pop("steps", None)


def test_what_a_run_answered_is_a_test_that_passes(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    store = ["--store", "runs.db"]
    assert main(["runs", "to-test", "@last", "-o", "letters.flowtest.yaml", "--name", "letters are sent", *store]) == 0
    test = load_flowtest(folder / "letters.flowtest.yaml")
    [case] = test.cases
    assert (case.name, case.inputs["topic"]) == ("letters are sent", "ada@example.jp writes")
    assert case.fakes.functions["send"].value == {"sent": case.answers["draft"]}
    assert len(case.answers["each.sum"]) == 2
    assert case.approvals["ask"].choice == "yes"
    assert run_case(test, 0) == []
    (folder / "letters.yaml").write_text(FLOW.replace("output.sent }}", "output.sent }}!"))
    try:
        assert "output 'sent' " in str(run_case(load_flowtest(test.path), 0)[0])
    finally:
        (folder / "letters.yaml").write_text(FLOW)
    capsys.readouterr()
    assert main(["runs", "to-test", "@last", "-o", "letters.flowtest.yaml", *store]) == 2
    assert main(["runs", "to-test", "@last", "-o", "letters.yaml", *store]) == 2
    said = capsys.readouterr().err
    assert "--force writes over it" in said
    assert "ends with .flowtest.yaml" in said


def test_masked_it_says_nothing_of_people_and_passes(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    store = ["--store", "runs.db", "--mask"]
    assert main(["runs", "to-test", "@last", "-o", "masked.flowtest.yaml", *store]) == 0
    assert "ada@example.jp" not in (folder / "masked.flowtest.yaml").read_text()
    assert run_case(load_flowtest(folder / "masked.flowtest.yaml"), 0) == []
    for _ in range(2):
        assert main(["runs", "to-test", "@last", "--row", "-o", "rows.jsonl", *store]) == 0
    file = folder / "rows.jsonl"
    file.write_text(file.read_text().rstrip("\n"))  # As an editor may leave it.
    assert main(["runs", "to-test", "@last", "--row", "-o", "rows.jsonl", *store]) == 0
    rows = [json.loads(line) for line in file.read_text().splitlines()]
    assert len(rows) == 3
    assert "MAIL:" in rows[0]["topic"]
    assert "ada@example.jp" not in str(rows)
    assert rows[0]["expected"].keys() == {"sent", "sums"}


def test_a_run_that_has_not_ended_makes_none(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "letters.yaml", "-i", "topic=b", "--store", "other.db", "-q"]) == 3
    assert main(["runs", "to-test", "@last", "--store", "other.db"]) == 2
    assert "is waiting: a test is made of one that succeeded or failed" in capsys.readouterr().err


UNCLEAR = """
from flowengine import tool

@tool(effect="external")
def check(number: int):
    \"\"\"Checks.\"\"\"
    return {"fails": f"{number} of 3"}

def look():
    return {"each": ["a"]}

def read(text):
    return {"returns": text}

def send():
    raise OSError("no mail")

def sign(text):
    if text == "b":
        raise OSError("no pen")
    return text
"""
LOOKS_LIKE_FAKES = """flowengine: v1
name: unclear
nodes:
  tell:
    model: offline
    prompt: Tell.
    output: {type: object, properties: {tool: {type: string}}, required: [tool]}
  check: {type: tool, tool: "unclear:check", with: {number: 1}}
  look: {type: function, call: "unclear:look", effect: external}
  read:
    type: map
    over: "['a', 'b']"
    nodes:
      one: {type: function, call: "unclear:read", with: {text: "{{ item }}"}, effect: external}
outputs: {told: "{{ nodes.tell.output }}", check: "{{ nodes.check.output.fails }}", each: "{{ nodes.read.output }}"}
"""
FAILING = """flowengine: v1
name: failing
nodes:
  send: {type: function, call: "unclear:send", effect: external}
outputs: {sent: "{{ nodes.send.output }}"}
"""
SOME_FAIL = """flowengine: v1
name: failing
nodes:
  each:
    type: map
    over: "['a', 'b', 'c']"
    concurrency: 1
    on_item_error: collect
    nodes:
      sign: {type: function, call: "unclear:sign", with: {text: "{{ item }}"}, effect: external}
outputs: {signed: "{{ nodes.each.output[2] }}"}
"""


RETRIED = SOME_FAIL.replace("effect: external", "effect: idempotent, retry: {attempts: 2, initial: 1ms}")


@pytest.mark.parametrize(("flow", "code"), [(SOME_FAIL, 0), (RETRIED, 0), (LOOKS_LIKE_FAKES, 0), (FAILING, 1)])
def test_values_that_look_like_fakes_and_effects_that_failed_are_told_apart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, flow: str, code: int
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delitem(sys.modules, "unclear", raising=False)
    Path("flowengine.toml").write_text('allow_calls = ["unclear"]\n')
    Path("unclear.py").write_text(UNCLEAR)
    Path("flow.yaml").write_text(flow)
    assert main(["run", "flow.yaml", "-q"]) == code
    assert main(["runs", "to-test", "@last", "-o", "flow.flowtest.yaml"]) == 0
    test = load_flowtest("flow.flowtest.yaml")
    fakes = test.cases[0].fakes
    if code:
        assert fakes.functions["send"] == ("fails", "OSError: no mail")
    elif flow in (SOME_FAIL, RETRIED):
        failed = [("fails", "OSError: no pen")] * (2 if flow == RETRIED else 1)  # Each attempt is a call.
        assert fakes.functions["each.sign"].value == ["a", *failed, "c"]
    else:
        assert fakes.tools["check"] == ("returns", {"fails": "1 of 3"})
        assert fakes.functions["read.one"].value == [{"returns": "a"}, {"returns": "b"}]
    assert run_case(test, 0) == []


@pytest.fixture(scope="module")
def server(folder: Path) -> Generator[Served]:
    app = make_app("sqlite:///runs.db", ["."], durability="process", options=["--store", "runs.db"], read_only=True)
    with served(app) as found:
        yield found


def test_the_page_of_a_run_leads_to_its_test(server: Served, folder: Path) -> None:
    """Also where nothing may be done: it only shows what is recorded."""
    [run] = server.get("/api/runs")["runs"]
    run_id = run["run_id"]
    assert "Make a test of it" in server.client.get(f"/runs/{run_id}").text
    address = f"/runs/{run_id}/act/test"
    shown = server.client.get(address).text
    assert "ada@example.jp" not in shown
    command = html.unescape(re.findall(r'<pre class="command"[^>]*>(.*?)</pre>', shown, re.DOTALL)[-1])
    words = shlex.split(command)
    assert words[:4] == ["flowengine", "runs", "to-test", run_id]
    assert main([*words[1:], "--force"]) == 0  # What the page says is a command.
    saved = server.client.get(f"{address}?as=test&mask=0&save=1")
    assert "attachment" in saved.headers["content-disposition"]
    (folder / "saved.flowtest.yaml").write_text(saved.text)
    assert run_case(load_flowtest(folder / "saved.flowtest.yaml"), 0) == []
    assert json.loads(server.client.get(f"{address}?as=row&mask=0&save=1").text)["topic"] == "ada@example.jp writes"
    assert server.client.get("/runs/none/act/test").status_code == 404


def test_of_a_fork_and_of_a_re_used_run_a_test_and_a_cassette_have_all_that_led_to_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "flowengine.toml").write_text('allow_calls = ["steps"]\n')
    (tmp_path / "steps.py").write_text(STEPS)
    (tmp_path / "letters.yaml").write_text(FLOW)
    monkeypatch.chdir(tmp_path)
    monkeypatch.delitem(sys.modules, "steps", raising=False)
    assert main(["run", "letters.yaml", "-i", "topic=tea", "--run-id", "a", "-q"]) == 3
    assert main(["approve", "a", "ask", "--choice", "yes"]) == 0
    assert main(["resume", "a", "--from", "archive", "-q"]) == 0
    assert main(["run", "letters.yaml", "-i", "topic=tea", "--reuse", "a", "--run-id", "b", "-q"]) == 0
    capsys.readouterr()
    assert main(["record", "a"]) == 0
    whole = capsys.readouterr().out
    for name, run in (("fork", "@2"), ("reuse", "b")):
        run_id = json.loads(_said(capsys, "runs", "list", "--json"))[1]["run_id"] if run == "@2" else run
        assert main(["record", run_id]) == 0
        assert capsys.readouterr().out == whole
        assert main(["runs", "to-test", run_id, "-o", f"{name}.flowtest.yaml"]) == 0
        test = load_flowtest(tmp_path / f"{name}.flowtest.yaml")
        assert run_case(test, 0) == []
        capsys.readouterr()
    assert main(["runs", "rm", "a"]) == 0
    capsys.readouterr()
    assert main(["runs", "to-test", "b"]) == 0
    assert "was in run a" in capsys.readouterr().err


def _said(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    assert main([*words]) == 0
    return capsys.readouterr().out


def test_of_a_fork_that_was_given_state_or_inputs_no_test_is_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    text = """flowengine: v1
name: steps
inputs: {n: {type: integer, default: 1}}
shared_state: {x: {type: number, default: 20}}
nodes:
  a: {prompt: "a {{ inputs.n }}", model: offline}
  b: {prompt: "b {{ shared_state.x }}", model: offline, needs: [a]}
"""
    (tmp_path / "steps.yaml").write_text(text)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("FLOWENGINE_STORE", f"sqlite:///{tmp_path}/runs.db")
    assert main(["run", "steps.yaml", "--run-id", "p", "-q"]) == 0
    assert main(["resume", "p", "--from", "b", "--set", "x=abc"]) == 2
    assert "x" in capsys.readouterr().err
    assert len(json.loads(_said(capsys, "runs", "list", "--json"))) == 1
    assert main(["resume", "p", "--from", "b", "--set", "x=99"]) == 0
    assert main(["runs", "to-test", "@last"]) == 2
    assert "b: x=99" in capsys.readouterr().err
    shown = _said(capsys, "runs", "show", "@last")
    assert "b finds x=99" in shown
    [said] = [json.loads(_said(capsys, "runs", "show", "@last", "--json"))]
    assert said["forked"] == {"run": "p", "from": "b", "set": {"b": {"x": 99}}, "taken_as_it_was": []}
    assert "Shared state as b finds it" in _said(capsys, "diff", "p", "@last")
    capsys.readouterr()
    assert main(["resume", "p", "--from", "b", "-i", "n=5"]) == 0
    assert "taken as in run p: a" in capsys.readouterr().err
    assert main(["runs", "to-test", "@last", "--row"]) == 2
    (tmp_path / "steps.yaml").write_text(text.replace('"a {{', '"aa {{'))
    assert main(["resume", "p", "--from", "b"]) == 0
    assert "taken as in run p: a (edited since)" in capsys.readouterr().err
