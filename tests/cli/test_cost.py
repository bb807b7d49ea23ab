"""`flowengine cost`."""

from __future__ import annotations

import csv
import json
import sqlite3
from pathlib import Path

import pytest

from flowengine.models.model import TokenUsage
from flowengine.models.wrappers.priced import cost_of
from tests.cli.conftest import Command
from tests.support.model_answers import Completion, Hang
from tests.support.model_server import ModelServer


def test_the_cost_of_runs_is_summed_up(flowengine: Command) -> None:
    for _ in range(2):
        flowengine("run", "agents.yaml", "--label", "team=a")
    said = flowengine("cost", "--since", "1d", "--by", "flow,node,model,label:team")
    head, first, second, whole = said.out.splitlines()
    assert head.split() == ["FLOW", "NODE", "MODEL", "LABEL:TEAM", "RUNS", "CALLS", "IN", "CACHED", "OUT", "COST"]
    assert first.split()[:6] == ["agents", "one", "offline", "a", "2", "2"]
    assert second.split()[1] == "two"
    assert whole.split()[:6] == ["all", "-", "-", "-", "2", "4"]
    table = list(csv.DictReader(flowengine("cost", "--by", "node", "--format", "csv").out.splitlines()))
    assert [(row["node"], row["calls"]) for row in table] == [("one", "2"), ("two", "2")]
    data = json.loads(flowengine("cost", "--format", "json").out)
    assert data["all"]["calls"] == 4


def test_what_may_be_billed_stands_apart(flowengine: Command, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "late.yaml").write_text(
        "flowengine: v1\nname: late\n"
        "agents: {writer: {model: openai/gpt-4o-mini, timeout: 300ms, max_tokens: 100}}\n"
        "nodes: {ask: {agent: writer, prompt: hi}}\n"
    )
    with ModelServer([Hang(), "there"]) as server:
        monkeypatch.setenv("OPENAI_API_KEY", "k")
        monkeypatch.setenv("OPENAI_BASE_URL", server.url)
        assert flowengine("run", "late.yaml").code == 0
    head, row = flowengine("cost", "--by", "flow").out.splitlines()
    assert head.endswith("MAY BE BILLED")
    assert row.split()[-1].startswith("$")
    whole = json.loads(flowengine("cost", "--format", "json").out)["all"]
    assert (whole["calls"], whole["unanswered_calls"]) == (1, 1)
    assert whole["may_be_billed_usd"] > 100 * 0.6e-6


def test_answers_that_come_too_late_are_within_what_plan_says_and_cost_tells(
    flowengine: Command, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The vendor finishes each answer, and bills it, after the client has gone."""
    (folder / "late.yaml").write_text(
        "flowengine: v1\nname: late\n"
        "agents: {writer: {model: openai/gpt-4o-mini, timeout: 200ms, max_tokens: 100}}\n"
        "nodes: {ask: {agent: writer, prompt: hi}}\n"
    )
    usage = {"prompt_tokens": 10, "completion_tokens": 100, "total_tokens": 110}
    late = Completion("long", usage=usage, finish_reason="length", latency=0.5)
    with ModelServer(lambda _: late) as server:
        monkeypatch.setenv("OPENAI_API_KEY", "k")
        monkeypatch.setenv("OPENAI_BASE_URL", server.url)
        assert flowengine("run", "late.yaml").code == 1
        asked = len(server.requests)
    billed = asked * (cost_of("openai", "gpt-4o-mini", TokenUsage(10, 100)) or 0)
    said = json.loads(flowengine("cost", "--format", "json").out)["all"]
    plan = json.loads(flowengine("plan", "late.yaml", "--json").out)["most_if_unanswered"]
    assert said["unanswered_calls"] == asked == 2
    assert 0 < billed <= said["may_be_billed_usd"] <= plan["cost_usd"]
    assert asked <= plan["model_calls"]


def test_no_label_is_a_formula_in_a_table(flowengine: Command) -> None:
    flowengine("run", "agents.yaml", "--label", "team==1+1")
    said = flowengine("cost", "--by", "label:team", "--format", "csv")
    assert [row["label:team"] for row in csv.DictReader(said.out.splitlines())] == ["'=1+1"]


def test_nothing_is_told_of_runs_that_are_not_meant(flowengine: Command) -> None:
    flowengine("run", "agents.yaml")
    said = flowengine("cost", "--flow", "other")
    assert (said.code, said.out) == (0, "")
    assert "no model was called by such runs" in said.err
    assert "did you mean 'node'" in flowengine("cost", "--by", "nodes").err
    assert "nothing is called 'label:'" in flowengine("cost", "--by", "label:").err


def test_a_damaged_run_is_named_and_the_others_are_summed_up(flowengine: Command, folder: Path) -> None:
    for run_id in ("r1", "r2"):
        flowengine("run", "agents.yaml", "--run-id", run_id)
    store = sqlite3.connect(folder / ".flowengine" / "runs.db")
    with store:
        store.execute("DELETE FROM event WHERE position = (SELECT min(position) FROM event)")  # Of the first run.
    store.close()
    said = flowengine("cost", "--by", "flow", "--format", "json")
    assert said.code == 1
    assert said.err.startswith("error: run r1 is left out: ")
    assert "`flowengine runs repair" in said.err
    assert json.loads(said.out)["all"]["calls"] == 2
    alone = flowengine("cost", "--label", "row=1")
    assert (alone.code, "left out" in alone.err) == (0, False)
