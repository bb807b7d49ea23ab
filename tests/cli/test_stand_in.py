"""The stand-in for models is loud where nobody chose it, in every command, and answers no caller unasked."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest

from flowengine.evals.eval_run import fingerprints_of
from flowengine.flow import Flow
from tests.cli.conftest import Command

ASKS = "flowengine: v1\nname: asks\ninputs: {text: {type: string}}\nnodes:\n  say: {prompt: 'Say {{ inputs.text }}'}\n"
NOTICE = "'say' of flow 'asks': no model is chosen and no vendor's key is set: the offline stand-in answers"
EVAL = "flow: ../asks.yaml\ndata: ../rows.jsonl\nscorers:\n  said: {outputs: {say: {contains: ants}}}\n"


@pytest.fixture
def asking(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A flow whose node names no model, and rows for it, where no vendor's key is set."""
    for name in ("FLOWENGINE_DEFAULT_MODEL", "OPENAI_API_KEY", "ANTHROPIC_API_KEY"):
        monkeypatch.delenv(name, raising=False)
    (folder / "asks.yaml").write_text(ASKS)
    (folder / "rows.jsonl").write_text('{"text": "ants"}\n')
    (folder / "evals").mkdir()
    (folder / "evals" / "asks.floweval.yaml").write_text(EVAL)
    return folder


@pytest.mark.parametrize(
    "words",
    [
        ("run", "asks.yaml", "--data", "rows.jsonl"),
        ("run", "asks.yaml", "--data", "rows.jsonl", "-o", "out.csv", "--json"),
        pytest.param(("eval", "evals/asks.floweval.yaml"), marks=pytest.mark.needs("scipy", "eval")),
    ],
)
def test_commands_over_rows_say_before_the_first_that_no_model_answers(
    flowengine: Command, asking: Path, words: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    said = flowengine(*words)
    assert (said.code, said.err.startswith(f"notice: {NOTICE}")) == (0, True), said.err
    monkeypatch.setenv("FLOWENGINE_DEFAULT_MODEL", "offline")  # Then it is meant.
    assert "stand-in" not in flowengine(*words, "--fresh").err


@pytest.mark.needs("scipy", "eval")
def test_reports_of_evals_say_that_no_model_answered(flowengine: Command, asking: Path) -> None:
    words = ("eval", "evals/asks.floweval.yaml", "--html", "report.html", "--format")
    assert NOTICE in flowengine(*words, "text").out
    assert NOTICE in json.loads(flowengine(*words, "json").out)["stand_in"]
    assert "**No language model answered**" in flowengine(*words, "github").out
    assert "No language model answered" in (asking / "report.html").read_text()


def test_a_server_does_not_start_where_the_stand_in_would_answer_unasked(
    flowengine: Command, asking: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for command in (("serve", "asks.yaml", "--port", "0"), ("mcp", "asks.yaml")):
        said = flowengine(*command)
        assert (said.code, NOTICE in said.err) == (2, True), said.err
        assert "FLOWENGINE_DEFAULT_MODEL=offline" in said.err
    (asking / "asks.yaml").write_text(ASKS.replace("{prompt", "{model: openai/gpt-4o-mini, prompt"))
    said = flowengine("serve", "asks.yaml", "--port", "0")
    assert (said.code, "needs a key: set OPENAI_API_KEY" in said.err) == (2, True), said.err


def test_each_row_of_results_says_that_the_stand_in_answered_it(flowengine: Command, asking: Path) -> None:
    for ending in ("csv", "csv", "jsonl"):  # The second time they are read from their records.
        flowengine("run", "asks.yaml", "--data", "rows.jsonl", "-o", f"out.{ending}")
    head, row = csv.reader((asking / "out.csv").read_text().splitlines())
    assert (head[-1], row[-1]) == ("stand_in", "yes")
    assert json.loads((asking / "out.jsonl").read_text())["stand_in"] is True
    flowengine("run", "shout.yaml", "--data", "rows.jsonl", "-o", "none.csv")
    assert [each[-1] for each in csv.reader((asking / "none.csv").read_text().splitlines())] == ["stand_in", ""]


def test_rows_of_the_stand_in_are_no_answers_of_a_model_that_is_chosen_later(
    flowengine: Command, asking: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = ("run", "asks.yaml", "--data", "rows.jsonl")
    assert flowengine(*words).code == 0
    monkeypatch.setenv("OPENAI_API_KEY", "sk-test")
    said = flowengine(*words)
    assert said.code == 5
    assert "that name no model asked offline when its runs over 'rows.jsonl' began" in said.err
    assert "would ask openai/gpt-4o-mini now" in said.err
    assert "--fresh runs all rows anew" in said.err
    assert "1 were done before" in flowengine(*words, "--allow-changed").err
    monkeypatch.delenv("OPENAI_API_KEY")
    assert flowengine(*words).code == 5  # The model of the last go is that of the set.


def test_an_eval_knows_the_model_of_nodes_that_name_none(asking: Path) -> None:
    def known(environ: dict[str, str], text: str = ASKS) -> str:
        (asking / "asks.yaml").write_text(text)
        return fingerprints_of(Flow.from_yaml("asks.yaml", environ=environ).plan)["say"]

    assert known({}) != known({"OPENAI_API_KEY": "k"}) == known({"OPENAI_API_KEY": "other"})
    named = ASKS.replace("{prompt", "{model: offline, prompt")
    assert known({}, named) == known({"OPENAI_API_KEY": "k"}, named)
