"""`flowengine runs`: the list, one run, one node."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from flowengine.core.context import NodeResult
from flowengine.core.records import ModelCall
from flowengine.engine.events import NodeFinished, NodeRecorded, NodeStarted, RunFinished, RunStarted
from flowengine.journal.stores import open_store

Command = Callable[..., Any]


@pytest.fixture
def runs(flowengine: Command) -> None:
    flowengine("run", "agents.yaml", "--run-id", "a1")
    flowengine("run", "fragile.yaml", "--run-id", "b2")
    flowengine("run", "hostile.yaml", "--run-id", "c3")


def test_runs_are_listed_newest_first(flowengine: Command, runs: None) -> None:
    said = flowengine("runs", "list")
    rows = [line.split() for line in said.out.splitlines()]
    assert said.code == 0
    assert rows[0][:5] == ["RUN", "FLOW", "STATUS", "STARTED", "TOOK"]
    assert rows[0][-1] == "ERROR"
    assert [row[:3] for row in rows[1:]] == [
        ["c3", "hostile", "succeeded"],
        ["b2", "fragile", "failed"],
        ["a1", "agents", "succeeded"],
    ]


def test_a_run_says_where_its_time_went(flowengine: Command, runs: None) -> None:
    said = flowengine("runs", "show", "a1", "--time").out.splitlines()
    assert [line.split()[0] for line in said[:3]] == ["took", "of", "critical"]
    found = json.loads(flowengine("runs", "show", "a1", "--time", "--json").out)
    (node, *_) = found["critical_path"]
    one = json.loads(flowengine("runs", "show", "a1", "--time", "--json", "--node", node).out)
    assert one == found["nodes"][node]
    begun, ended = one["bars"][0]["spans"][0]["start"], one["bars"][-1]["spans"][-1]["end"]
    assert sum(one["parts"].values()) == pytest.approx(ended - begun)
    assert flowengine("runs", "show", "a1", "--time", "--node", node).out.splitlines()[-1].split()[0].startswith("+")
    assert "exclude each other" in flowengine("runs", "show", "a1", "--time", "--why").err


def test_the_critical_path_is_told_in_the_order_of_the_work(flowengine: Command, folder: Path) -> None:
    (folder / "letters.yaml").write_text(
        "flowengine: v1\nname: letters\nnodes:\n  each:\n    type: map\n    over: range(11)\n    concurrency: 1\n"
        "    nodes: {write: {model: offline, prompt: 'Letter {{ item }}'}}\n"
        "outputs: {n: '{{ nodes.each.output | length }}'}\n"
    )
    assert flowengine("run", "letters.yaml").code == 0
    (told,) = [each for each in flowengine("runs", "show", "@last", "--time").out.splitlines() if "critical" in each]
    steps = [each.removeprefix("critical path").split() for each in told.split("→")]
    assert [each[0] for each in steps] == [f"each[{index}].write" for index in range(11)]
    unit = {"ms": 1, "s": 1000}
    took = sum(float(each[1]) * unit[each[2]] for each in steps)
    parts = json.loads(flowengine("runs", "show", "@last", "--time", "--json").out)["parts"]
    assert took <= sum(parts.values()) * 1000 + len(steps)


def test_the_list_as_json_has_every_field(flowengine: Command, runs: None) -> None:
    found = json.loads(flowengine("runs", "list", "--json").out)
    assert [each["run_id"] for each in found] == ["c3", "b2", "a1"]
    row = {"run_id", "flow", "status", "started", "finished", "events", "path", "labels", "standing"}
    digest = {"cost_usd", "tokens", "model_calls", "model", "session", "first_input", "error", "found"}
    assert set(found[0]) == row | digest | {"notes", "marks", "scores"}


def test_runs_are_listed_by_label_flow_and_status(flowengine: Command) -> None:
    flowengine("run", "shout.yaml", "--run-id", "a1", "--label", "team=billing", "--label", "env=prod")
    flowengine("run", "fragile.yaml", "--run-id", "b2", "--label", "team=billing")
    flowengine("run", "shout.yaml", "--run-id", "c3")

    def ids(*options: str) -> list[str]:
        return [each["run_id"] for each in json.loads(flowengine("runs", "list", "--json", *options).out)]

    assert ids("--label", "team=billing") == ["b2", "a1"]
    assert ids("--label", "team=billing", "--label", "env=prod") == ["a1"]
    assert ids("--flow", "shout") == ["c3", "a1"]
    assert ids("--status", "failed") == ["b2"]
    lines = flowengine("runs", "list").out.splitlines()
    assert lines[-1][lines[0].index("LABELS") :].split()[:2] == ["team=billing", "env=prod"]
    assert "such runs" in flowengine("runs", "list", "--label", "team=other").err
    assert ["labels", "team=billing", "env=prod"] in [
        line.split() for line in flowengine("runs", "show", "a1").out.splitlines()
    ]


@pytest.mark.parametrize("command", [("run", "shout.yaml"), ("runs", "list")])
def test_what_is_no_label_is_a_usage_error(flowengine: Command, command: tuple[str, ...]) -> None:
    for wrong in ("team", "a b=c", "=x"):
        said = flowengine(*command, "--label", wrong)
        assert said.code == 2
        assert "label" in said.err


def test_an_empty_store_is_no_error_and_is_not_made(flowengine: Command, folder: Path) -> None:
    said = flowengine("runs", "list")
    assert (said.code, said.out) == (0, "")
    assert "there are no runs" in said.err
    assert json.loads(flowengine("runs", "list", "--json").out) == []
    assert not (folder / ".flowengine").exists()


def test_a_run_is_shown_node_by_node(flowengine: Command, runs: None) -> None:
    lines = flowengine("runs", "show", "b2").out.splitlines()
    assert lines[0].split() == ["run", "b2"]
    assert [line.split()[:3] for line in lines if "function" in line] == [
        ["count", "function", "succeeded"],
        ["fragile", "function", "failed"],
        ["after", "function", "skipped"],
    ]
    assert any("upstream failed" in line for line in lines)
    assert "fragile: ValueError" in lines


def test_a_node_is_shown_with_its_prompts_and_answers(flowengine: Command, runs: None) -> None:
    said = flowengine("runs", "show", "a1", "--node", "one")
    assert said.code == 0
    assert "model call for generation: offline" in said.out
    assert "Say one thing." in said.out
    assert "First words." in said.out
    assert "Second words." not in said.out


def test_a_node_is_shown_with_what_entered_its_prompt_and_what_did_not(flowengine: Command) -> None:
    flowengine("run", "context.yaml", "--run-id", "d4")
    lines = flowengine("runs", "show", "d4", "--node", "one").out.splitlines()
    at = lines.index("context receipt, of at most 60 tokens")
    state, count, _, source, label, *why = lines[at + 1].split()
    assert (state, source, label, " ".join(why[:2])) == ("shortened", "fixed_file", "long.txt", "of 350:")
    assert int(count) < 60
    assert lines[at + 2].split() == ["kept", "3", "tokens", "user", "input"]


def test_a_failed_node_is_shown_with_its_traceback(flowengine: Command, runs: None) -> None:
    said = flowengine("runs", "show", "b2", "--node", "fragile")
    assert "error: ValueError" in said.out
    assert "in fail_unless_mended" in said.out


def test_a_node_as_json_and_as_events(flowengine: Command, runs: None) -> None:
    found = json.loads(flowengine("runs", "show", "a1", "--node", "one", "--json").out)
    assert found["id"] == "one"
    assert found["model_calls"] == 1
    assert "ModelCall" in [record["type"] for record in found["records"]]
    events = [
        json.loads(line) for line in flowengine("runs", "show", "a1", "--node", "one", "--events").out.splitlines()
    ]
    assert {event["node"] for event in events} == {"one"}
    assert [events[0]["type"], events[-1]["type"]] == ["NodeStarted", "NodeFinished"]


def test_a_failed_nodes_events_do_not_hold_the_runs_end(flowengine: Command, runs: None) -> None:
    lines = flowengine("runs", "show", "b2", "--node", "fragile", "--events").out.splitlines()
    assert [json.loads(line)["type"] for line in lines] == ["NodeStarted", "NodeFailed"]


def test_a_run_as_json_is_what_run_printed(flowengine: Command) -> None:
    ran = json.loads(flowengine("run", "fragile.yaml", "--json", "--run-id", "r1").out)
    shown = json.loads(flowengine("runs", "show", "r1", "--json").out)
    about = {name: shown.pop(name) for name in ("inputs", "session", "notes", "marks", "scores", "led_to")}
    assert about == {"inputs": {}, "session": "", "notes": [], "marks": [], "scores": [], "led_to": []}
    assert shown | {"outputs": {}} == ran


def test_a_run_as_events_is_its_whole_record(flowengine: Command, runs: None) -> None:
    events = [json.loads(line) for line in flowengine("runs", "show", "a1", "--events").out.splitlines()]
    assert [events[0]["type"], events[-1]["type"]] == ["RunStarted", "RunFinished"]


def test_a_node_that_ran_again_shows_how_it_had_failed(flowengine: Command, folder: Path) -> None:
    flowengine("run", "fragile.yaml", "--run-id", "b2")
    (folder / "mended").touch()
    assert flowengine("resume", "b2").code == 0
    shown = flowengine("runs", "show", "b2").out
    assert "(resumed after ValueError)" in shown
    assert "at work" in shown
    assert "failed before the run was resumed: ValueError" in flowengine("runs", "show", "b2", "--node", "fragile").out
    told = json.loads(flowengine("runs", "show", "b2", "--json").out)
    assert [each["type"] for each in told["nodes"]["fragile"]["earlier_errors"]] == ["ValueError"]
    assert told["nodes"]["count"]["earlier_errors"] == []
    assert 0 < told["idle_seconds"] <= told["seconds"]


def test_a_mistyped_node_is_a_usage_error_that_names_the_nearest(flowengine: Command, runs: None) -> None:
    said = flowengine("runs", "show", "b2", "--node", "fragil")
    assert said.code == 2
    assert said.err == "error: the run has no node 'fragil'; did you mean 'fragile'?\n"
    assert "; it has count, fragile, after" in flowengine("runs", "show", "b2", "--node", "zzz").err


def test_long_texts_are_cut_and_json_has_them_all(flowengine: Command) -> None:
    flowengine("run", "shout.yaml", "-i", "text=" + "x" * 5000, "--run-id", "r1")
    shown = flowengine("runs", "show", "r1").out
    assert "X" * 2001 not in shown
    assert "(5,000 characters; --json has them all)" in shown
    assert "X" * 5000 in flowengine("runs", "show", "r1", "--json").out


@pytest.mark.parametrize(
    "command", [("runs", "list"), ("runs", "show", "@last"), ("resume", "@last"), ("graph", "@last")]
)
def test_a_store_that_is_none_is_told_in_one_line(flowengine: Command, command: tuple[str, ...]) -> None:
    said = flowengine(*command, "--store", "shout.yaml")
    assert said.code == 2
    assert len(said.err.splitlines()) == 1
    assert said.err.startswith("error: ")


def test_why_tells_of_each_node_or_of_one_what_was_decided(flowengine: Command, runs: None) -> None:
    said = flowengine("runs", "show", "b2", "--why")
    assert said.code == 0
    assert said.out.splitlines()[1] == "  It runs first in the flow"
    told = json.loads(flowengine("runs", "show", "b2", "--why", "--json").out)
    assert [set(each) for each in told] == [{"node", "status", "why", "ways", "decided"}] * len(told)
    one = flowengine("runs", "show", "b2", "--why", "--node", told[0]["node"])
    assert one.out.splitlines()[0] == f"{told[0]['node']}: {told[0]['status']}"
    assert flowengine("runs", "show", "b2", "--why", "--events").code == 2


ROUNDS = """
flowengine: v1
name: rounds
inputs: {word: {type: string, default: tea}}
shared_state:
  said: {type: array, default: [], merge: append}
nodes:
  talk:
    type: loop
    max_iterations: 2
    initial: {n: 1}
    carry: {n: 2}
    until: round.n >= 2
    nodes:
      say: {prompt: "Say {{ inputs.word }}.", set: {said: ["{{ round.n }}"]}}
"""


def test_the_terminal_shows_what_the_page_does_of_calls_state_input_and_moments(
    flowengine: Command, folder: Path
) -> None:
    (folder / "rounds.yaml").write_text(ROUNDS)
    assert flowengine("run", "rounds.yaml", "--run-id", "r1").code == 0

    def show(*options: str) -> str:
        said = flowengine("runs", "show", "r1", *options)
        assert said.code == 0, said.err
        return said.out

    rows = [line.split() for line in show("--calls").splitlines()]
    assert [row[1:3] for row in rows] == [["NODE", "FOR"], *[[f"talk.round[{n}].say", "generation"] for n in (0, 1)]]
    assert [each["node"] for each in json.loads(show("--calls", "--json", "--node", "talk.round[1].say"))] == [
        rows[2][1]
    ]
    one = show("--call", rows[2][0])
    assert one.startswith(f"node talk.round[1].say, event {rows[2][0]}\nmodel call for generation: ")
    assert "    Say tea." in one
    assert json.loads(show("--call", rows[2][0], "--json"))["purpose"] == "generation"
    assert json.loads(show("--state", "--json")) == {"said": [1, 2]}
    assert json.loads(show("--state", "--json", "--at", rows[2][0])) == {"said": [1]}
    assert show("--state") == "said\n  [1, 2]\n"
    second = show("--node", "talk.round[1].say")
    assert 'shared state that it saw\n  {"said": [1]}' in second
    assert "wrote said (append)\n  [1{+, 2+}]" in second
    given = json.loads(show("--node", "talk.round[1].say", "--json"))
    assert given["given"][-1] == {"what": "Shared state that it saw", "value": {"said": [1]}}
    assert given["wrote"] == [{"key": "said", "had": True, "before": [1], "after": [1, 2], "rule": "append"}]
    assert [row.split()[1] for row in show("--at", "0").splitlines() if row.startswith("status")] == ["running"]
    assert len(show("--at", "2", "--events").splitlines()) == 3
    for options, told in {
        ("--at", "999"): "events, the last one is",
        ("--call", "0"): "event 0 is no call of a model or a tool",
        ("--calls", "--state"): "exclude each other",
        ("--state", "--node", "talk"): "exclude each other",
        ("--calls", "--events"): "goes with --node and --json only",
        ("--at", "1", "--watch"): "--watch goes with --events only",
    }.items():
        refused = flowengine("runs", "show", "r1", *options)
        assert (refused.code, told in refused.err) == (2, True), refused.err


def test_of_a_run_that_nobody_works_on_one_node_is_shown(flowengine: Command, folder: Path) -> None:
    flowengine("run", "shout.yaml", "--run-id", "r1")
    with closing(sqlite3.connect(folder / ".flowengine" / "runs.db")) as store, store:
        store.execute("DELETE FROM event WHERE position = (SELECT max(position) FROM event)")
        store.execute("UPDATE run SET status = 'running', finished = NULL, ended = NULL")
    assert flowengine("runs", "show", "r1", "--node", "shout").out.startswith("node     shout\n")
    assert "interrupted" in flowengine("runs", "show", "r1").out


def test_of_a_call_for_many_vectors_a_few_texts_are_printed(flowengine: Command, folder: Path) -> None:
    messages = [{"role": "user", "content": f"text {number}"} for number in range(50)]
    call = ModelCall("m", "openai", "embedding", messages, "", vectors=["AAAA"] * 50)
    with closing(open_store(".flowengine/runs.db")) as store:
        journal = store.create("r1")
        at = 1.0
        journal.append(RunStarted("r1", "f", at, {}, {}, {}, graph={"nodes": [["a", "agent"]], "edges": []}))
        journal.append(NodeStarted("a", at))
        journal.append(NodeRecorded("a", at, call))
        journal.append(NodeFinished("a", at, NodeResult("done")))
        journal.append(RunFinished(at, "succeeded", {}))
        journal.flush()
    said = flowengine("runs", "show", "r1", "--node", "a").out
    assert [said.count(f"text {number}\n") for number in (0, 2, 3, 49)] == [1, 1, 0, 0]
    assert "and 47 more texts; --json has them all" in said
    assert "text 49" in flowengine("runs", "show", "r1", "--node", "a", "--json").out
