"""Flowtest files: what is wrong with one, and what a case finds."""

from __future__ import annotations

import os
from pathlib import Path
from textwrap import dedent, indent
from typing import Any

import pytest

from flowengine.errors import FlowError
from flowengine.flow import Flow
from flowengine.nodes.function import FunctionNode
from flowengine.testing.cases import find_unmet, run_case
from flowengine.testing.cassette import Cassette
from flowengine.testing.flowtest import ExpectSpec, FlowTestError, load_flowtest
from flowengine.testing.scripted_answers import scripted

ANSWERS = """\
answers:
  ask: Sencha.
  pick: {next_route: green, confidence: 1}
  cool: A cup of sencha.
"""


@pytest.fixture
def file(tmp_path: Path, tea_text: str) -> Path:
    (tmp_path / "tea.yaml").write_text(tea_text, "utf-8")
    (tmp_path / "tests").mkdir()
    return tmp_path / "tests" / "tea.flowtest.yaml"


def written(file: Path, case: str) -> Path:
    """The file with one case, whose keys are given."""
    body = indent(dedent(case), "    ").lstrip()
    file.write_text(f"flow: ../tea.yaml\ncases:\n  - name: it is brewed\n    {body}", "utf-8")
    return file


def findings(file: Path, expect: str, given: str = ANSWERS) -> list[str]:
    """What one case finds, without the file's name."""
    test = load_flowtest(written(file, f"{given}expect:\n{indent(dedent(expect), '  ')}"))
    return [str(each).removeprefix(f"{file}:") for each in run_case(test, 0)]


# --- files that are wrong

WRONG = {
    "flow: ../tea.yaml\ncases: []\n": "2:8: FE403 the value is empty",
    "flow: ../tea.yaml\n": "1:1: FE202 the key 'cases' is missing",
    "flow: ../te.yaml\ncases: [{name: a}]\n": "1:7: FE101 there is no flow file",
    "flow: ../tea.yaml\ncase: [{name: a}]\n": "2:1: FE201 unknown key 'case'; did you mean 'cases'?",
    "flow: ../tea.yaml\ncases: [{nam: a}]\n": "2:10: FE201 unknown key 'nam'; did you mean 'name'?",
    "flow: ../tea.yaml\ncases: [{name: a, expect: {outptus: {}}}]\n": "'outptus'; did you mean 'outputs'?",
    "flow: ../tea.yaml\ncases: [{name: a, expect: {prompts: {asc: x}}}]\n": "2:38: FE305 the flow has no node 'asc'",
    "flow: ../tea.yaml\ncases: [{name: a, expect: {outputs: {cup: {contain: x}}}}]\n": "did you mean 'contains'?",
    "flow: ../tea.yaml\ncases: [{name: a, answers: {asc: x}}]\n": "2:29: FE305 the flow has no agent 'asc'; did",
    "flow: ../tea.yaml\ncases: [{name: a, answers: {ask: }}]\n": "FE408 'ask' has no answer",
    "flow: ../tea.yaml\ncases: [{name: a, answers: {ask: x}, cassette: c}]\n": "2:38: FE209 a case has either",
    "flow: ../tea.yaml\ncases: [{name: a, fakes: {function: {}}}]\n": "'function'; did you mean 'functions'?",
    "flow: ../tea.yaml\ncases: [{name: a, fakes: {functions: {asc: 1}}}]\n": "FE305 the flow has no function 'asc'",
    "flow: ../tea.yaml\ncases: [{name: a, fakes: {tools: {asc: 1}}}]\n": "2:35: FE305 the flow has no tool 'asc'",
    "flow: ../tea.yaml\ncases: [{name: a, fakes: {real: [asc]}}]\n": "FE305 the flow has no function, tool,",
    "flow: ../tea.yaml\ncases: [{name: a, fakes: {tools: {x: {each: 1}}}}]\n": "FE401 expected a list, one value for",
    "flow: ../tea.yaml\ncases: [{name: a, fakes: {tools: {x: {fails: 1}}}}]\n": "FE401 expected the message of an",
    "flow: ../tea.yaml\ncases: [{name: a, fakes: {tools: {x: {each: [1, {fails: 2}]}}}}]\n": "2:57: FE401 expected the",
    "flow: ../tea.yaml\ncases: [{name: a, expect: {path: [ask, pik]}}]\n": "2:40: FE305 the flow has no node 'pik'",
    "flow: ../tea.yaml\ncases: [{name: a, expect: {path: [[ask, pik]]}}]\n": "FE305 the flow has no node 'pik'",
    "flow: ../tea.yaml\ncases: [{name: a, expect: {path: ask}}]\n": "2:34: FE401 expected a list of nodes",
    "flow: ../tea.yaml\ncases: [{name: a, expect: {path: [1]}}]\n": "2:35: FE401 expected a node or a list of nodes",
    "flow: ../tea.yaml\ncases: [{name: a, expect: {route: {pck: x}}}]\n": "2:36: FE305 the flow has no node 'pck'",
    "flow: ../tea.yaml\ncases: [{name: a, expect: {skipped: [ht]}}]\n": "FE305 the flow has no node 'ht'; did you",
    "flow: ../tea.yaml\ncases: [{name: a, expect: {skipped: {hot: why}}}]\n": "2:43: FE402 expected",
    "flow: ../tea.yaml\ncases: [{name: a, expect: {outputs: {cp: x}}}]\n": "FE305 the flow has no output 'cp'; did you",
    "flow: ../tea.yaml\ncases: [{name: a, expect: {outputs: {cup: {matches: '['}}}}]\n": "FE401 expected a regular exp",
    "flow: ../tea.yaml\ncases: [{name: a, expect: {status: good}}]\n": "2:36: FE402 expected",
    "flow: ../tea.yaml\ncases: [{name: a, expect: {model_calls: -1}}]\n": "2:41: FE403 expected at least 0, found -1",
    "flow: ../tea.yaml\ncases: [{name: a}, {name: a}]\n": "2:21: FE212 a case of the name 'a' stands before",
    "flow: ../tea.yaml\n\tcases: []\n": "2:1: FE109 a tab stands here",
    "- flow\n": "1:1: FE115 a flowtest file is a map with the keys flow, cases",
}


@pytest.mark.parametrize("text", WRONG)
def test_what_is_wrong_with_a_file_is_told_with_its_place(file: Path, text: str) -> None:
    file.write_text(text, "utf-8")
    with pytest.raises(FlowTestError) as caught:
        load_flowtest(file)
    (line,) = str(caught.value).splitlines()
    assert line.startswith(f"{file}:")
    assert WRONG[text] in line


def test_a_flow_that_is_wrong_is_told_as_such(file: Path) -> None:
    (file.parent.parent / "tea.yaml").write_text("flowengine: v1\n", "utf-8")
    with pytest.raises(FlowError, match=r"tea\.yaml:1:1: FE202"):
        load_flowtest(written(file, "inputs: {}"))


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="there are no named pipes")
def test_a_pipe_is_no_file_of_a_test(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "a.flowtest.yaml")
    with pytest.raises(FlowTestError, match="FE101 cannot read the file"):
        load_flowtest(tmp_path / "a.flowtest.yaml")


def test_a_file_that_is_not_there_is_told(file: Path) -> None:
    with pytest.raises(FlowTestError, match="FE101 cannot read the file: No such file"):
        load_flowtest(file)


# --- what is claimed and does not hold


def test_nothing_is_found_where_everything_holds(file: Path) -> None:
    assert not findings(
        file,
        """\
        status: succeeded
        path: [ask, pick, cool]
        route: {pick: green}
        outputs: {cup: {contains: [cup, sencha]}}
        prompts: {ask: {contains: [drunk, Ann]}, pick: {matches: Sencha}}
        skipped: {hot: not_selected}
        cost_usd_at_most: 0
        model_calls: 3
        tokens_at_most: 1000
        """,
    )


def test_claims_that_cannot_fail_are_told(file: Path) -> None:
    empty = "{skipped: [], outputs: {cup: {contains: ''}}, prompts: {ask: {matches: '.*'}}, cost_usd_at_most: 0}"
    told = [each.partition(":")[2] for each in load_flowtest(written(file, f"{ANSWERS}expect: {empty}\n")).remarks]
    assert told == [
        "8:37: this claim always holds: anything contains that",
        "8:69: this claim always holds: anything matches that",
        "8:14: 'skipped' names nothing, so it claims nothing",
        "8:92: answers that stand in the file cost nothing: a cassette has what they cost",
    ]
    real = "{outputs: {cup: {contains: cup}}, prompts: {ask: {matches: A.n}, pick: {matches: '^$'}}}"
    assert load_flowtest(written(file, f"{ANSWERS}expect: {real}\n")).remarks == []


@pytest.mark.parametrize(
    ("expect", "found"),
    [
        ("prompts: {ask: {contains: [drunk, Bob]}}", '9:17: the prompt of \'ask\' was to contain "Bob", found "'),
        ("prompts: {pick: {matches: 'pot.*Senchas'}}", "9:17: the prompt of 'pick' was to match /pot.*Senchas/, found"),
        ("prompts: {hot: {contains: x}}", "9:17: 'hot' was to ask a model, and it asked none"),
        ("status: failed", "9:7: the run was to be failed, and it is succeeded"),
        ("path: [ask, pick, hot]", "9:7: the run took another path\nexpected: ask → pick → hot\n     ran: ask → pick"),
        ("route: {pick: black}", "9:15: 'pick' was to choose 'black', and it chose 'green'"),
        ("route: {hot: black}", "9:15: 'hot' was to choose 'black'; it was skipped (not_selected): 'pick' chose"),
        ("skipped: [cool]", "'cool' was to be skipped; it ran"),
        ("skipped: {hot: error}", "9:17: 'hot' was to be skipped (error); it was skipped (not_selected)"),
        ("outputs: {cup: A cup.}", '9:17: output \'cup\' was to be "A cup.", found "A cup of sencha."'),
        ("outputs: {cup: {contains: [cup, pot]}}", 'output \'cup\' was to contain "pot", found "A cup of sencha."'),
        ("outputs: {cup: {matches: ^cup}}", "output 'cup' was to match /^cup/, found \"A cup of sencha.\""),
        ("outputs: {cup: {equals: {matches: x}}}", 'output \'cup\' was to be {"matches": "x"}, found "A cup'),
        ("outputs:\n  cup: |\n    A cup\n    of tea.", "output 'cup' is another text than expected\n--- expected\n"),
        ("model_calls: 4", "9:7: there were to be 4 model calls, and there are 3"),
        ("tokens_at_most: 10", "9:7: at most 10 tokens were expected, and there are "),
    ],
)
def test_what_does_not_hold_is_told_with_the_line_of_the_claim(file: Path, expect: str, found: str) -> None:
    (told,) = findings(file, expect)
    assert found in told


def test_several_claims_are_told_at_once_and_success_is_expected_unless_said_otherwise(file: Path) -> None:
    failing = ANSWERS.replace("A cup of sencha.", "['', '']")
    told = findings(file, "{route: {pick: black}, model_calls: 1}", failing)
    assert [each.partition(": ")[2][:40] for each in told] == [
        "the run was to be succeeded, and it is f",
        "'pick' was to choose 'black', and it cho",
        "there were to be 1 model calls, and ther",
    ]
    assert "in 'cool': agent 'cool': model 'scripted' gave an empty answer" in told[0]


def test_values_keep_their_types(file: Path, tea_text: str) -> None:
    text = tea_text.replace(
        'cup: "{{', 'sure: "{{ nodes.pick.output.confidence }}"\n  list: [1, {a: true}]\n  map: {a: 1}\n  cup: "{{'
    )
    (file.parent.parent / "tea.yaml").write_text(text, "utf-8")
    assert not findings(file, "outputs: {sure: 1, list: [1.0, {a: true}]}")
    assert len(findings(file, "outputs: {sure: true}")) == 1
    assert len(findings(file, "outputs: {list: [1, {a: 1}]}")) == 1
    assert not findings(file, "outputs: {list: {contains: [1]}, sure: {matches: '^1'}}")
    assert len(findings(file, "outputs: {list: {contains: 2}}")) == 1
    assert not findings(file, "outputs: {map: {contains: a}}")
    assert len(findings(file, "outputs: {map: {contains: {a: 1}}}")) == 1


def test_a_call_without_an_answer_is_what_is_told_and_nothing_that_follows_from_it(file: Path) -> None:
    (told,) = findings(file, "path: [ask, pick, cool]", "answers: {ask: x}\n")
    assert told.startswith("4:5: 'pick' asked its model, and there is no answer for it in the script")
    assert "[user]" in told


def test_wrong_inputs_are_told_at_the_inputs(file: Path) -> None:
    (told,) = findings(file, "status: succeeded", "inputs: {who: [1]}\n" + ANSWERS)
    assert told.startswith("4:5: ")
    assert "who" in told


def test_a_cassette_takes_the_place_of_answers(file: Path, tea_text: str, answers: dict[str, Any]) -> None:
    plain = tea_text.replace("    model: openai/gpt-4o-mini\n", "").replace(", model: anthropic/claude-haiku-4-5", "")
    (file.parent.parent / "tea.yaml").write_text(plain, "utf-8")
    cassette = Cassette(file.parent / "tea.cassette.yaml", "once")
    cassette.around(scripted(Flow.from_yaml(file.parent.parent / "tea.yaml"), answers)).run_sync()
    expect = "{path: [ask, pick, cool], cost_usd_at_most: 0.5}"
    assert not findings(file, expect, "cassette: tea.cassette.yaml\n")
    priced = cassette.path.read_text("utf-8").replace("cost_usd: 0.0", "cost_usd: 0.3")
    cassette.path.write_text(priced, "utf-8")
    (told,) = findings(file, expect, "cassette: tea.cassette.yaml\n")
    assert "at most $0.5 was expected, and the calls cost $0.9" in told
    cassette.path.write_text(priced.replace("    cost_usd: 0.3\n", "", 2).replace("0.3", "0.1"), "utf-8")
    (told,) = findings(file, expect, "cassette: tea.cassette.yaml\n")
    assert "of 2 calls the price is not known" in told
    (told,) = findings(file, expect, "inputs: {who: Bob}\ncassette: tea.cassette.yaml\n")
    assert told.startswith("5:5: the cassette")
    assert '+    content: "User input: Bob"' in told


def test_a_damaged_cassette_is_told_with_its_own_place(file: Path) -> None:
    (file.parent / "c.yaml").write_text("cassette: 1\ncalls: 3\n", "utf-8")
    test = load_flowtest(written(file, "cassette: c.yaml\n"))
    (told,) = run_case(test, 0)
    assert str(told) == f"{file.parent / 'c.yaml'}:2:8: FE401 expected a list, found 3"


@pytest.mark.parametrize(("claimed", "held"), [([1], False), ([True], True), ([2.0, "a"], True), ([{"n": 1}], False)])
def test_a_list_contains_what_json_calls_equal(claimed: list[Any], held: bool) -> None:
    run = Flow("listed", {"a": FunctionNode(lambda context: [True, 2, "a", {"n": True}])}).run_sync()
    expect = ExpectSpec.model_validate({"outputs": {"a": {"contains": claimed}}})
    assert (find_unmet(expect, run) == []) is held
