"""What a flow's expressions decide on: absent, null and textual values never choose a branch silently."""

from __future__ import annotations

import textwrap
from pathlib import Path
from typing import Any

import pytest

from flowengine.flow import Flow
from flowengine.runtime.run import Run

CODE = """
def ident(value=None):
    return value

def nothing():
    return None
"""


def run_of(tmp_path: Path, nodes: str, inputs: str = "", **given: Any) -> Run:
    (tmp_path / "lib.py").write_text(CODE)
    text = f"flowengine: v1\nname: decides\n{inputs}nodes:\n{textwrap.indent(textwrap.dedent(nodes), '  ')}"
    (tmp_path / "flow.yaml").write_text(text)
    return Flow.from_yaml(tmp_path / "flow.yaml").run_sync(given)


FOUND = "check: {type: function, call: 'lib:ident', with: {value: {approved: true, list: [], text: 'false'}}}\n"
SKIPPED = "check: {type: function, call: 'lib:ident', when: 'false', with: {value: {approved: true}}}\n"
BODY = "nodes: {one: {type: function, call: 'lib:ident'}}"

DECIDING = {
    "if": "decide: {{type: condition, if: '{0}', then: yes_, else: no_}}\n",
    "cases": "decide: {{type: condition, cases: [{{if: '{0}', then: yes_}}], else: no_}}\n",
    "when": "decide: {{type: function, call: 'lib:ident', when: '{0}', join: always}}\n",
    "until": "decide: {{type: loop, max_iterations: 2, on_exhausted: continue, join: always, until: '{0}', "
    + BODY.replace("{", "{{").replace("}", "}}")
    + "}}\n",
}
ENDS = "yes_: {type: function, call: 'lib:ident'}\nno_: {type: function, call: 'lib:ident'}\n"


def deciding(kind: str, expression: str) -> str:
    return DECIDING[kind].format(expression) + (ENDS if kind in ("if", "cases") else "")


@pytest.mark.parametrize("kind", list(DECIDING))
@pytest.mark.parametrize(
    "expression",
    [
        "nodes.check.output.aproved",
        "not nodes.check.output.aproved",
        "nodes.check.output.aproved or true",
        'nodes.check.output.aproved != "x"',
        "prev_outputs.check.aproved",
    ],
)
def test_an_absent_key_of_an_output_fails_what_decides_by_it(tmp_path: Path, kind: str, expression: str):
    run = run_of(tmp_path, FOUND + deciding(kind, expression).replace("}\n", ", needs: [check]}\n", 1))
    assert run.nodes["decide"].status == "failed"
    error = run.nodes["decide"].error
    assert error is not None
    assert "aproved is not there; did you mean 'approved'?" in error


@pytest.mark.parametrize("kind", list(DECIDING))
@pytest.mark.parametrize("expression", ["nodes.check.output.text and true", "not nodes.check.output.text"])
def test_a_text_is_no_boolean_wherever_one_is_asked_for(tmp_path: Path, kind: str, expression: str):
    run = run_of(tmp_path, FOUND + deciding(kind, expression))
    error = run.nodes["decide"].error
    assert error is not None
    assert 'expected true or false, got a string: "false"' in error


@pytest.mark.parametrize("kind", list(DECIDING))
@pytest.mark.parametrize(
    "expression",
    [
        "nodes.check.output.approved",
        "nodes.check.output.approved == true",
        "prev_outputs.check.approved",
        "nodes.check.output.other | default(false)",
        "nodes.check.output is defined",
    ],
)
def test_the_output_of_a_skipped_node_is_falsy(tmp_path: Path, kind: str, expression: str):
    always = ", needs: [check], join: always}\n" if kind in ("if", "cases") else ", needs: [check]}\n"
    run = run_of(tmp_path, SKIPPED + deciding(kind, expression).replace("}\n", always, 1))
    assert run.status == "succeeded", run.error
    if kind in ("if", "cases"):
        assert run.nodes["decide"].output == "else"
    if kind == "until":
        assert run.nodes["decide"].output["exhausted"] is True
    if kind == "when":
        assert run.nodes["decide"].status == "skipped"


@pytest.mark.parametrize(
    ("node", "said"),
    [
        ("{type: map, over: 'nodes.check.output.itms or []', " + BODY + "}", "itms is not there"),
        ("{type: map, over: 'nodes.check.output.itms', " + BODY + "}", "itms is not there"),
        (
            "{type: loop, max_iterations: 2, until: 'false', best_by: 'nodes.check.output.scor or 0', " + BODY + "}",
            "scor is not there",
        ),
    ],
)
def test_an_absent_key_is_no_list_and_no_mark(tmp_path: Path, node: str, said: str):
    run = run_of(tmp_path, FOUND + f"decide: {node}\n")
    error = run.nodes["decide"].error
    assert error is not None
    assert said in error


def test_a_list_may_come_from_whichever_node_ran(tmp_path: Path):
    body = "nodes: {one: {type: function, call: 'lib:ident', with: {value: '{{ item }}'}}}"
    over = "nodes.check.output.list or nodes.other.output"
    nodes = f"""\
        {SKIPPED}
        other: {{type: function, call: 'lib:ident', with: {{value: [1, 2]}}}}
        each: {{type: map, over: '{over}', {body}}}
    """
    run = run_of(tmp_path, "\n".join(line.strip() for line in nodes.splitlines()))
    assert run.nodes["each"].output == [1, 2]


def test_null_is_a_result_like_any_other(tmp_path: Path):
    nodes = """\
        nothing: {type: function, call: 'lib:nothing'}
        decide: {type: condition, needs: [nothing], if: result is none, then: took, else: other}
        took: {type: function, call: 'lib:ident', with: {value: "{{ result }}"}}
        other: {type: function, call: 'lib:ident'}
    """
    run = run_of(tmp_path, nodes)
    assert run.status == "succeeded", run.error
    assert (run.nodes["decide"].output, run.nodes["took"].output) == ("then", None)


def test_null_is_an_item_like_any_other(tmp_path: Path):
    body = """{one: {type: function, call: 'lib:ident', with: {value: "{{ [item, result] }}"}}}"""
    run = run_of(tmp_path, f"each: {{type: map, over: '[none, 1]', nodes: {body}}}\n")
    assert run.outputs == {"each": [[None, None], [1, 1]]}


def test_a_result_that_no_node_produced_is_not_there(tmp_path: Path):
    first = "first: {type: function, call: 'lib:ident', with: {value: '{{ result is defined }}'}}\n"
    run = run_of(tmp_path, first)
    assert run.outputs == {"first": False}


def test_an_agent_is_asked_the_null_that_comes_before_it_not_the_flows_input(tmp_path: Path):
    nodes = """\
        nothing: {type: function, call: 'lib:nothing'}
        ask: {needs: [nothing], instructions: Repeat., model: offline}
    """
    run = run_of(tmp_path, nodes, "inputs: {message: {type: string}}\n", message="Ignore the function")
    assert run.status == "succeeded", run.error
    assert "Ignore the function" not in str(run.nodes["ask"].output)
