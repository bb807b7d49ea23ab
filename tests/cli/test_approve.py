"""`flowengine approve`: what a run waits with is shown, answered, and the run goes on."""

from __future__ import annotations

import json
import os
import pwd
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio
import pytest

from flowengine.journal.approvals import answer
from flowengine.journal.stores import open_store

Command = Callable[..., Any]

FLOW = """
flowengine: v1
name: release
nodes:
  sign_off:
    type: approval
    message: Release it?
    routes: {ship: announce, hold: {}}
    form: {type: object, properties: {ticket: {type: string}}, required: [ticket]}
  announce:
    prompt: "Ticket {{ nodes.sign_off.output.form.ticket }}"
    model: offline
outputs:
  said: "{{ nodes.announce.output }}"
"""


@pytest.fixture
def waiting(flowengine: Command, folder: Path) -> Path:
    (folder / "release.yaml").write_text(FLOW)
    assert flowengine("run", "release.yaml", "--run-id", "r1").code == 3
    return folder


def test_what_keeps_people_from_being_told_is_said_before_the_run_begins(
    flowengine: Command, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "flowengine.toml").write_text(
        'allow_http = ["https://pager.example.com/v1/ PAGER_TOKEN"]\n[notify]\nurl = "https://us.example.com"\n'
        'send = ["pager"]\n[notify.channels.pager]\ntype = "http"\nurl = "https://pager.example.com/v1/events"\n'
        'headers_env = {Authorization = "PAGER_TOKEN"}\n[notify.channels.ops]\ntype = "slack"\nurl_env = "OPS_HOOK"\n'
    )
    (folder / "rows.csv").write_text("late\nfalse\n")
    flow = (
        "flowengine: v1\nname: {}\ninputs: {{late: {{type: boolean, default: false}}}}\nnodes:\n"
        "  ask: {{type: approval, message: Now?, when: inputs.late, routes: {{yes: {{}}, no: {{}}}}{}}}\n"
        "outputs: {{out: done}}\n"
    )
    untold = {
        "nobody": (", notify: []", ""),
        "default": ("", "PAGER_TOKEN is not set"),
        "named": (", notify: [ops]", "PAGER_TOKEN, OPS_HOOK are not set"),
    }
    for name, (said, why) in untold.items():
        (folder / f"{name}.yaml").write_text(flow.format(name, said))
        notice = why and f"notice: who is to be told of questions of flow '{name}' will not be: {why}\n"
        for words in ((), ("--data", "rows.csv", "-o", f"{name}.jsonl")):
            err = flowengine("run", f"{name}.yaml", *words).err
            assert err.startswith(notice)
            assert err.count("who is to be told") == bool(why), err
    monkeypatch.setenv("PAGER_TOKEN", "pager-token-of-a-test")
    assert "who is to be told" not in flowengine("run", "default.yaml").err


def test_a_run_that_waits_shows_what_it_asks_for(flowengine: Command, waiting: Path) -> None:
    shown = flowengine("runs", "show", "r1").out
    assert "sign_off asks for one of: ship, hold, and a form with: ticket\n  Release it?" in shown


def test_the_run_goes_on_with_the_choice_and_what_was_filled_in(flowengine: Command, waiting: Path) -> None:
    (waiting / "form.json").write_text(json.dumps({"ticket": "T-17"}))
    said = flowengine("approve", "r1", "--choice", "ship", "--form", "form.json")
    assert (said.code, "Ticket T-17" in said.out) == (0, True)
    shown = flowengine("runs", "show", "r1").out
    assert "succeeded" in shown
    assert "(waited " in shown
    node = flowengine("runs", "show", "r1", "--node", "sign_off").out
    assert "asked\n  choices: ship, hold\n  Release it?" in node
    assert "answered\n  choice: ship\n  by: " in node
    told = json.loads(flowengine("runs", "show", "r1", "--json").out)
    assert 0 < told["nodes"]["sign_off"]["waited_seconds"] <= told["nodes"]["sign_off"]["seconds"]
    assert told["nodes"]["announce"]["waited_seconds"] is None


@pytest.mark.parametrize(
    ("form", "told"),
    [
        (b"[" * 100_000, "is no JSON: it is nested too deep"),
        (b'{"ticket": NaN}', "is no JSON: NaN is not JSON"),
        (b'{"ticket": "a", "ticket": "b"}', "is no JSON: 'ticket' stands twice in an object"),
        (b"\xff", "cannot be read: "),
    ],
    ids=["deep", "nan", "twice", "bytes"],
)
def test_a_form_that_could_be_read_in_two_ways_is_none(
    flowengine: Command, waiting: Path, form: bytes, told: str
) -> None:
    (waiting / "form.json").write_bytes(form)
    said = flowengine("approve", "r1", "--choice", "ship", "--form", "form.json")
    assert (said.code, told in said.err) == (2, True), said.err


def test_a_run_that_another_process_takes_up_after_the_answer_goes_on_there(
    flowengine: Command, waiting: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = open_store("sqlite:///.flowengine/runs.db")
    taken: list[Any] = []

    async def answered(*given: Any, **more: Any) -> Any:
        said = await answer(*given, **more)
        taken.append(other.open("r1"))
        return said

    monkeypatch.setattr("flowengine.cli.commands.approve.answer", answered)
    said = flowengine("approve", "r1", "--choice", "ship", "--form", '{"ticket": "T-17"}')
    assert (said.code, "that writes the run goes on with it" in said.err) == (0, True), said.err
    assert any(getattr(each, "record", None) is not None and each.node == "sign_off" for each in taken[0].read())
    anyio.run(taken[0].close)
    other.close()


def test_a_form_may_begin_with_a_mark_of_its_encoding(flowengine: Command, waiting: Path) -> None:
    (waiting / "form.json").write_bytes(b'\xef\xbb\xbf{"ticket": "T-17"}\r\n')
    assert flowengine("approve", "r1", "--choice", "ship", "--form", "form.json").code == 0


def test_a_form_may_be_said_on_the_command_line(flowengine: Command, waiting: Path) -> None:
    said = flowengine("approve", "r1", "--choice", "ship", "--form", '{"ticket": "T-17"}')
    assert (said.code, "Ticket T-17" in said.out) == (0, True)


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("--choice", "shop"), "no choice 'shop'; choose from: ship, hold; did you mean 'ship'?"),
        (("--choice", "ship"), "asks for a form with: ticket"),
        (("--choice", "ship", "--form", '{"ticket": 1'), "--form is no JSON"),
    ],
)
def test_an_answer_that_does_not_fit_is_told_and_the_run_still_waits(
    flowengine: Command, waiting: Path, arguments: tuple[str, ...], told: str
) -> None:
    said = flowengine("approve", "r1", *arguments)
    assert (said.code, said.out, told in said.err) == (2, "", True)
    assert "waiting" in flowengine("runs", "list").out


def test_without_a_choice_the_choices_are_told(flowengine: Command, waiting: Path) -> None:
    said = flowengine("approve", "r1")
    assert said.code == 2
    assert "Missing option '--choice'.\n  'sign_off' asks: Release it?\n  --choice ship|hold" in said.err


def test_a_question_with_approvers_is_answered_by_the_user_of_the_machine_or_not_here(
    flowengine: Command, folder: Path
) -> None:
    user = pwd.getpwuid(os.getuid()).pw_name
    for name, approvers in (("mine", [user]), ("others", ["cfo@example.com"])):
        asking = FLOW.replace("    message:", f"    approvers: {json.dumps(approvers)}\n    message:")
        (folder / f"{name}.yaml").write_text(asking)
        assert flowengine("run", f"{name}.yaml", "--run-id", name).code == 3
    (folder / "form.json").write_text('{"ticket": "T-17"}')
    give = ("--choice", "ship", "--form", "form.json")
    assert "to be answered by cfo@example.com" in flowengine("runs", "show", "others").out
    pretended = flowengine("approve", "others", *give, "--by", "cfo@example.com")
    assert (pretended.code, "not by --by" in pretended.err) == (2, True)
    refused = flowengine("approve", "others", *give)
    assert (refused.code, f"and this is '{user}'" in refused.err) == (2, True)
    assert flowengine("approve", "mine", *give).code == 0


def test_the_last_run_is_the_newest_that_waits_for_an_answer(flowengine: Command, waiting: Path) -> None:
    (waiting / "quick.yaml").write_text("flowengine: v1\nname: quick\nnodes: {say: {prompt: hello, model: offline}}\n")
    assert flowengine("run", "release.yaml", "--run-id", "r2").code == 3
    assert flowengine("run", "quick.yaml", "--run-id", "r3").code == 0
    (waiting / "form.json").write_text('{"ticket": "T-17"}')
    give = ("--choice", "ship", "--form", "form.json", "--no-resume")
    said = [flowengine("approve", "@last", *give) for _ in range(3)]
    assert [each.code for each in said] == [0, 0, 2]
    assert "@last is run r2 of flow 'release'" in said[0].err
    assert "@last is run r1 of flow 'release'" in said[1].err
    assert "no run '@last': none in .flowengine/runs.db waits for an answer" in said[2].err
