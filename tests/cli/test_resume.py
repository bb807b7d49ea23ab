"""`flowengine resume`: what goes on, with which flow, and what is refused."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio
import pytest

from flowengine import Flow, FunctionNode
from flowengine.core.records import ToolCall
from flowengine.engine.events import NodeRecorded, NodeStarted, RunStarted
from flowengine.journal.stores import open_store

Command = Callable[..., Any]


@pytest.fixture
def failed(flowengine: Command, folder: Path) -> str:
    """A run whose first node is done, whose second failed, and whose cause is mended."""
    assert flowengine("run", "fragile.yaml", "--run-id", "f1").code == 1
    (folder / "mended").touch()
    return "f1"


@pytest.mark.parametrize("reference", ["f1", "@last", "f"])
def test_a_failed_run_goes_on_and_runs_nothing_twice(
    flowengine: Command, folder: Path, failed: str, reference: str
) -> None:
    said = flowengine("resume", reference)
    assert (said.code, said.out) == (0, "mended\n")
    assert (folder / "counted").read_text() == "x"


def test_a_run_that_succeeded_shows_its_outputs_again(flowengine: Command, failed: str) -> None:
    flowengine("resume", failed)
    assert flowengine("resume", failed) == (
        0,
        "mended\n",
        "run f1 has succeeded already; these are its outputs\n",
    )
    assert json.loads(flowengine("resume", failed, "--json").out)["outputs"] == {"state": "mended"}


def test_an_edited_flow_is_refused_unless_allowed(flowengine: Command, folder: Path, failed: str) -> None:
    flow = folder / "fragile.yaml"
    flow.write_text(flow.read_text().replace("text: hi", "text: ho"))
    said = flowengine("resume", failed)
    assert said.code == 5
    assert said.err.startswith("error: the flow was edited since run f1 started; changed nodes: after\n")
    assert "--allow-changed" in said.err
    assert flowengine("resume", failed, "--allow-changed").code == 0


def test_the_stored_text_goes_on_where_the_file_is_gone(flowengine: Command, folder: Path, failed: str) -> None:
    (folder / "fragile.yaml").unlink()
    said = flowengine("resume", failed)
    assert (said.code, said.out) == (0, "mended\n")
    assert said.err.startswith("notice: 'fragile.yaml' is gone")


def test_another_file_can_be_named(flowengine: Command, folder: Path, failed: str) -> None:
    (folder / "fragile.yaml").rename(folder / "moved.yaml")
    assert flowengine("resume", failed, "--flow", "moved.yaml").code == 0
    assert flowengine("resume", failed, "--flow", "nowhere.yaml").code in (0, 2)


def test_the_flow_is_found_from_another_folder(
    flowengine: Command, folder: Path, failed: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "elsewhere").mkdir()
    monkeypatch.chdir(folder / "elsewhere")
    said = flowengine("resume", failed, "--store", str(folder / ".flowengine" / "runs.db"))
    assert "is gone" not in said.err
    # The flow's own code looks for `mended` in the working folder, so it ran and failed again.
    assert said.code == 1


def test_a_run_that_fails_again_says_so_again(flowengine: Command, folder: Path, failed: str) -> None:
    (folder / "mended").unlink()
    said = flowengine("resume", failed)
    assert said.code == 1
    assert said.err.startswith("error: node 'fragile': ValueError")
    assert "to go on: flowengine resume f1" in said.err


@pytest.mark.parametrize("reference", ["nosuch", "@first", "", "\x1b[31m"])
def test_an_unknown_run_is_a_usage_error_that_says_which_there_are(
    flowengine: Command, failed: str, reference: str
) -> None:
    said = flowengine("resume", reference)
    assert said.code == 2
    assert said.err.startswith("error: no run")
    assert "it holds f1" in said.err
    assert "\x1b" not in said.err


def test_without_a_store_there_is_nothing_to_resume_and_none_is_made(flowengine: Command, folder: Path) -> None:
    said = flowengine("resume", "@last")
    assert said.code == 2
    assert not (folder / ".flowengine").exists()


def test_a_flow_built_in_python_is_not_resumed_from_here(flowengine: Command, folder: Path) -> None:
    async def fail() -> None:
        raise ValueError("no")

    flow = Flow("python", {"a": FunctionNode(fail)})
    anyio.run(lambda: flow.run(store="python.db", run_id="p1"))
    said = flowengine("resume", "p1", "--store", "python.db")
    assert said.code == 2
    assert "was started from a flow built in Python: resume it with Flow.resume()" in said.err


def test_what_was_chosen_at_the_start_is_kept(flowengine: Command) -> None:
    assert flowengine("run", "sleep.yaml", "--timeout", "100ms", "--run-id", "s1").code == 4
    assert flowengine("resume", "s1").code == 4
    assert flowengine("resume", "s1", "--timeout", "200ms").err.startswith(
        "error: the run took longer than its limit of 0.2 s"
    )


def test_the_model_of_the_start_is_kept(flowengine: Command, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "later.yaml").write_text(
        "flowengine: v1\nname: later\nnodes:\n"
        '  wait: {type: function, call: "steps:fail_unless_mended"}\n'
        "  say: {model: nosuch-vendor-model, prompt: One sentence., needs: [wait]}\n"
    )
    assert flowengine("run", "later.yaml", "--model", "offline", "--run-id", "m1").code == 1
    (folder / "mended").touch()
    said = flowengine("resume", "m1", "--json")
    assert said.code == 0
    shown = json.loads(flowengine("runs", "show", "m1", "--node", "say", "--json").out)
    assert [record["model"] for record in shown["records"] if record["type"] == "ModelCall"] == ["offline"]


def test_a_run_that_is_being_written_elsewhere_is_left_alone(flowengine: Command, failed: str) -> None:
    from flowengine.journal.stores import open_store

    store = open_store(".flowengine/runs.db")
    journal = store.open(failed)
    said = flowengine("resume", failed)
    assert said.code == 2
    assert "is being written by process" in said.err
    assert "to go on" not in said.err
    anyio.run(journal.close)
    store.close()


@pytest.fixture
def paying(flowengine: Command) -> str:
    """A run that broke off while an external tool of its first node ran."""
    assert flowengine("run", "agents.yaml", "--run-id", "whole").code == 0
    store = open_store("sqlite:///.flowengine/runs.db", "process")
    started, *_ = store.events("whole")
    assert isinstance(started, RunStarted)
    journal = store.create("p1")
    call = ToolCall("pay", {"to": "Ann"}, None, effect="external", key="k", started=True)
    for event in (started._replace(run_id="p1"), NodeStarted("one", 1.0), NodeRecorded("one", 1.0, call)):
        journal.append(event)
    store.close()
    return "p1"


def test_an_interrupted_external_call_waits_for_a_decision(flowengine: Command, paying: str) -> None:
    for _ in range(2):
        said = flowengine("resume", paying)
        assert said.code == 3
        assert "node 'one', tool 'pay', arguments {'to': 'Ann'}" in said.err
        assert "`flowengine resume p1 --retry-effect one`" in said.err
        assert "`flowengine resume p1 --assume-done one`" in said.err


@pytest.mark.parametrize(
    ("option", "told"), [("--retry-effect", "is run again"), ("--assume-done", "is taken as done")]
)
def test_a_decision_lets_the_run_go_on_and_is_kept(flowengine: Command, paying: str, option: str, told: str) -> None:
    assert flowengine("resume", paying, option, "one").code == 0
    shown = flowengine("runs", "show", paying, "--node", "one").out
    assert f"a person decided: the interrupted call of tool pay {told}" in shown


def test_a_decision_about_another_node_is_refused(flowengine: Command, paying: str) -> None:
    said = flowengine("resume", paying, "--assume-done", "two")
    assert said.code == 2
    assert "'two' has no call" in said.err


def test_failed_items_of_a_run_that_succeeded_are_repeated(flowengine: Command, folder: Path) -> None:
    (folder / "items.yaml").write_text(
        "flowengine: v1\nname: items\nnodes:\n"
        "  each:\n    type: map\n    over: '[1]'\n    on_item_error: skip\n"
        '    nodes: {one: {type: function, call: "steps:fail_unless_mended"}}\n'
        'outputs: {found: "{{ nodes.each.output | length }}"}\n'
    )
    said = flowengine("run", "items.yaml", "--run-id", "r1")
    assert said.out == "found: 0\n"
    assert "1 item failed; to repeat: flowengine resume --failed-items r1" in said.err
    (folder / "mended").touch()
    assert flowengine("resume", "r1").out == "found: 0\n"
    repeated = flowengine("resume", "r1", "--failed-items")
    assert (repeated.out, "to repeat" in repeated.err) == ("found: 1\n", False)
    assert flowengine("resume", "r1").out == "found: 1\n"
    assert flowengine("resume", "r1", "--failed-items", "--from", "each").code == 2
