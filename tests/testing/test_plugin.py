"""The plugin in pytest runs of its own: what is collected, what fails and how that reads, and what is refused."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest_plugins = ["pytester"]

FLOW = "{flowengine: v1, name: hello, nodes: {greet: {prompt: Hello.}}}"

CASES = """\
flow: hello.yaml
cases:
  - name: it greets
    answers: {greet: Hi!}
    expect: {outputs: {greet: Hi!}}
  - name: it is polite
    answers: {greet: Hi!}
    expect:
      outputs: {greet: {contains: Good morning}}
"""

ASKS = """
import pytest
from flowengine.agents.agent import Agent
from flowengine.models.litellm.model import LiteLLMModel
from flowengine.models.outbound import check_outbound

def ask():
    model = LiteLLMModel("m", "openai", settings={"api_key": "x", "api_base": "https://models.example"})
    Agent("a", "Answer.", model=model, max_retries=0).run("hi")
"""


@pytest.fixture
def project(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> pytest.Pytester:
    """An empty project; what the outer run has set is forgotten."""
    monkeypatch.delenv("FLOWENGINE_ALLOW_MODEL_REQUESTS", raising=False)
    pytester.path.joinpath("hello.yaml").write_text(FLOW, "utf-8")
    return pytester


def test_flowtest_files_are_collected_and_failures_show_their_line(project: pytest.Pytester) -> None:
    project.path.joinpath("hello.flowtest.yaml").write_text(CASES, "utf-8")
    result = project.runpytest("-v")
    result.assert_outcomes(passed=1, failed=1)
    result.stdout.fnmatch_lines(
        [
            "hello.flowtest.yaml::it greets PASSED*",
            "hello.flowtest.yaml::it is polite FAILED*",
            'hello.flowtest.yaml:9:17: output \'greet\' was to contain "Good morning", found "Hi!"',
        ]
    )
    result.stdout.no_fnmatch_line("*Traceback*")


def test_one_case_can_be_chosen(project: pytest.Pytester) -> None:
    project.path.joinpath("hello.flowtest.yaml").write_text(CASES, "utf-8")
    project.runpytest("-k", "polite").assert_outcomes(failed=1, deselected=1)
    project.runpytest("hello.flowtest.yaml::it greets").assert_outcomes(passed=1)


def test_a_file_that_is_wrong_is_an_error_of_collection_with_its_line(project: pytest.Pytester) -> None:
    project.path.joinpath("hello.flowtest.yaml").write_text(CASES.replace("expect: {", "expct: {"), "utf-8")
    result = project.runpytest()
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines(["hello.flowtest.yaml:5:5: FE201 unknown key 'expct'; did you mean 'expect'?"])
    result.stdout.no_fnmatch_line("*Traceback*")


def test_other_yaml_is_left_alone(project: pytest.Pytester) -> None:
    project.path.joinpath("flowtest.yaml").write_text("- 1", "utf-8")
    assert project.runpytest().ret == pytest.ExitCode.NO_TESTS_COLLECTED


@pytest.mark.long
def test_a_model_is_not_reached_by_accident(project: pytest.Pytester) -> None:
    project.makepyfile(ASKS + "def test_it():\n    ask()\n")
    result = project.runpytest()
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*ModelConfigError: *requests to models are forbidden here*openai/m was not asked*"])


def test_a_mark_lets_one_test_through_and_no_other(project: pytest.Pytester) -> None:
    look = "    check_outbound('m', {})\n"
    project.makepyfile(
        ASKS
        + f"def test_before():\n{look}"
        + f"@pytest.mark.real_model\ndef test_marked():\n{look}"
        + f"def test_after():\n{look}"
    )
    result = project.runpytest("-v", "--strict-markers")
    result.assert_outcomes(passed=1, failed=2)
    result.stdout.fnmatch_lines(["*::test_marked PASSED*"])


@pytest.mark.parametrize(("value", "passed"), [("1", 1), ("0", 0)])
def test_the_variable_decides_for_all_tests(
    project: pytest.Pytester, monkeypatch: pytest.MonkeyPatch, value: str, passed: int
) -> None:
    monkeypatch.setenv("FLOWENGINE_ALLOW_MODEL_REQUESTS", value)
    project.makepyfile(ASKS + "def test_it():\n    check_outbound('m', {})\n")
    project.runpytest().assert_outcomes(passed=passed, failed=1 - passed)


def test_the_guard_ends_with_the_run(project: pytest.Pytester) -> None:
    project.makepyfile("import os\ndef test_it():\n    assert os.environ['FLOWENGINE_ALLOW_MODEL_REQUESTS'] == '0'\n")
    project.runpytest_inprocess().assert_outcomes(passed=1)
    assert "FLOWENGINE_ALLOW_MODEL_REQUESTS" not in os.environ


CASSETTE_TEST = """
import pytest
from flowengine.flow import Flow
from flowengine.testing.scripted_answers import scripted

@pytest.mark.parametrize("word", ["{word}"])
def test_greeting(cassette, word):
    flow = Flow.from_yaml("hello.yaml")
    if cassette.records:
        flow = scripted(flow, {{"greet": word}})
    run = cassette.around(flow).run_sync()
    {check}
"""


def test_a_cassette_lies_beside_its_test_and_is_played_back(
    project: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("CI", raising=False)
    test = project.makepyfile(test_it=CASSETTE_TEST.format(word="a/b", check="assert run.outputs['greet'] == 'a/b'"))
    project.runpytest().assert_outcomes(passed=1)
    file = project.path / "cassettes" / "test_it.test_greeting-a-b.yaml"
    assert "content: a/b" in file.read_text("utf-8")
    monkeypatch.setenv("CI", "true")
    project.runpytest().assert_outcomes(passed=1)
    file.write_text(file.read_text("utf-8").replace("a/b", "other"), "utf-8")
    result = project.runpytest()
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*'other' == 'a/b'*"])
    project.runpytest("--cassettes=all").assert_outcomes(passed=1)
    assert test.exists()


def test_a_call_that_a_cassette_refuses_fails_the_test_even_if_nobody_looks(project: pytest.Pytester) -> None:
    project.makepyfile(test_it=CASSETTE_TEST.format(word="x", check="assert run"))
    result = project.runpytest("--cassettes=none")
    result.assert_outcomes(passed=1, errors=1)
    result.stdout.fnmatch_lines(
        ["the cassette */cassettes/test_it.test_greeting-x.yaml does not exist, and mode 'none'*"]
    )


def test_a_damaged_cassette_is_an_error_with_its_line(project: pytest.Pytester) -> None:
    folder = project.mkdir("cassettes")
    folder.joinpath("test_it.test_greeting-x.yaml").write_text("cassette: 1\ncalls: {}\n", "utf-8")
    project.makepyfile(test_it=CASSETTE_TEST.format(word="x", check="assert run"))
    result = project.runpytest()
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines(["*test_it.test_greeting-x.yaml:2:8: FE401 expected a list, found a map"])


def test_scripted_model_is_a_fixture(project: pytest.Pytester) -> None:
    project.makepyfile(
        """
        from flowengine.agents.agent import Agent

        def test_it(scripted_model):
            model = scripted_model(["Hello!"])
            assert Agent("a", "Greet.", model=model).run("hi").result.content == "Hello!"
            assert model.requests[0].messages[-1].content == "User input: hi"
        """
    )
    project.runpytest().assert_outcomes(passed=1)


def test_the_plugin_costs_a_project_without_flows_next_to_nothing(project: pytest.Pytester) -> None:
    project.makepyfile(
        """
        import sys

        def test_it():
            heavy = {"pydantic", "litellm", "networkx", "yaml", "jinja2", "tenacity", "anyio.to_thread"}
            mine = {name for name in sys.modules if name.startswith("flowengine.")}
            assert mine == {
                "flowengine.core", "flowengine.core.lazy_face", "flowengine.core.moved_modules",
                "flowengine.errors", "flowengine.models", "flowengine.models.outbound",
                "flowengine.testing", "flowengine.testing.modes", "flowengine.testing.plugin",
            }
            assert not heavy & set(sys.modules) - {"yaml"}
        """
    )
    project.runpytest_subprocess("-p", "no:anyio", "-p", "no:hypothesispytest").assert_outcomes(passed=1)


def test_it_is_found_through_its_entry_point(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "--help"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    assert "--cassettes={none,once,new,all}" in done.stdout
