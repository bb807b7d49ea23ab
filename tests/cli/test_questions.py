"""Questions at the terminal: what is asked is shown, answered line by line, and the run goes on at once."""

from __future__ import annotations

import io
import json
import os
import pty
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Command = Callable[..., Any]

SHOP = """
from flowengine import tool

@tool(effect="external", approve=True)
def refund(order: str, euros: float) -> str:
    with open("deeds", "a") as file:
        file.write(f"{order} {euros}\\n")
    return f"paid {euros}"
"""
FLOW = """
flowengine: v1
name: shop
inputs: {order: {type: string, default: A-1}}
nodes:
  pay:
    type: tool
    tool: shop:refund
    with: {order: "{{ inputs.order }}", euros: 50}
  sign_off:
    type: approval
    needs: [pay]
    message: Close the case?
    routes: {close: {}, keep: {}}
outputs:
  paid: "{{ nodes.pay.output }}"
  then: "{{ nodes.sign_off.output.choice }}: {{ nodes.sign_off.output.comment }}"
"""


class Keyboard(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture
def shop(folder: Path) -> Path:
    (folder / "shop.py").write_text(SHOP)
    (folder / "shop.yaml").write_text(FLOW)
    return folder


@pytest.fixture
def typing(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    monkeypatch.setattr("flowengine.cli.questions.has_live_stderr", lambda: True)
    return lambda lines: monkeypatch.setattr(sys, "stdin", Keyboard(lines))


def test_a_call_is_accepted_and_the_next_question_is_asked_at_once(
    flowengine: Command, shop: Path, typing: Callable[[str], None]
) -> None:
    typing("accept\nclose\nall well\n")
    said = flowengine("run", "shop.yaml", "--run-id", "r1")
    assert (said.code, said.out) == (0, "paid: paid 50.0\nthen: close: all well\n")
    assert "'pay:refund' asks: Call the tool 'refund' with" in said.err
    assert "accept / change / refuse / later" in said.err
    assert (shop / "deeds").read_text() == "A-1 50.0\n"


def test_arguments_are_changed_one_by_one_and_what_does_not_fit_is_asked_again(
    flowengine: Command, shop: Path, typing: Callable[[str], None]
) -> None:
    typing("x\nch\n\nmuch\nchange\n\n7.5\nlater\n")
    said = flowengine("run", "shop.yaml", "--run-id", "r1")
    assert said.code == 3
    assert "choose one of: accept, change, refuse, later" in said.err
    assert "'euros': 'much' is not of type 'number'" in said.err
    assert (shop / "deeds").read_text() == "A-1 7.5\n"


def test_what_nobody_answers_waits_on(flowengine: Command, shop: Path, typing: Callable[[str], None]) -> None:
    typing("")
    said = flowengine("run", "shop.yaml", "--run-id", "r1")
    assert said.code == 3
    assert "approve r1 pay:refund --choice accept|refuse [--form OTHER_ARGUMENTS] [--comment WHY]" in said.err
    assert not (shop / "deeds").exists()
    typing("refuse\ntoo much\n")
    said = flowengine("approve", "r1")
    assert said.code == 1
    assert "Their word: too much" in said.err


def test_a_mail_address_answers_however_it_is_written(
    flowengine: Command, folder: Path, typing: Callable[[str], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "ask.yaml").write_text(
        "flowengine: v1\nname: ask\nnodes:\n"
        '  ask: {type: approval, message: May it?, routes: {"yes": {}, "no": {}}, approvers: [cfo@example.com]}\n'
    )
    monkeypatch.setattr("flowengine.cli.questions.find_account", lambda: "CFO@example.com")
    typing("yes\n\n")
    said = flowengine("run", "ask.yaml")
    assert said.code == 0, said.err


def test_without_a_terminal_the_command_says_what_to_add(flowengine: Command, shop: Path) -> None:
    assert flowengine("run", "shop.yaml", "--run-id", "r1").code == 3
    said = flowengine("approve", "r1")
    assert said.code == 2
    assert "'pay:refund' asks: Call the tool 'refund' with" in said.err
    assert "euros: 50" in said.err
    shown = flowengine("runs", "show", "r1").out
    assert "pay:refund asks for one of: accept, refuse\n  Call the tool 'refund'" in shown
    (shop / "other.json").write_text(json.dumps({"order": "B-2", "euros": 1}))
    said = flowengine("approve", "r1", "pay:refund", "--choice", "accept", "--form", "other.json")
    assert said.code == 3
    assert (shop / "deeds").read_text() == "B-2 1.0\n"
    assert flowengine("approve", "r1", "pay:refnd", "--choice", "accept").code == 2


def test_a_terminal_is_not_ruled_by_arguments(shop: Path) -> None:
    main_end, its_end = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "flowengine", "run", "shop.yaml", "-i", "order=a\x1b]0;owned\x07"],
        stdin=its_end, stdout=its_end, stderr=its_end, env={**os.environ, "TERM": "xterm", "COLUMNS": "100"},
    )  # fmt: skip
    os.close(its_end)
    sent = b""
    while b"later" not in sent:
        sent += os.read(main_end, 65536)
    os.write(main_end, b"change\n")
    while b"order [" not in sent:
        sent += os.read(main_end, 65536)
    os.write(main_end, b"\x04")
    try:
        while more := os.read(main_end, 65536):
            sent += more
    except OSError:  # The other end is closed.
        pass
    assert process.wait(60) == 3
    assert b"\x1b]0;" not in sent
    assert rb"a\x1b]0;owned" in sent or rb"a\u001b]0;owned" in sent


@pytest.mark.parametrize(("said", "code"), [("later", 0), ("change", 0), ("", 3), ("(later)", 3)])
def test_choices_may_be_the_words_of_the_terminal_itself(
    flowengine: Command, shop: Path, typing: Callable[[str], None], said: str, code: int
) -> None:
    typing(f"{said}\n\n")
    flow = (
        "flowengine: v1\nname: ask\nnodes:\n  ask: {type: approval, message: When?, routes: {later: {}, change: {}}}\n"
    )
    (shop / "ask.yaml").write_text(flow + 'outputs: {then: "{{ nodes.ask.output.choice }}"}\n')
    found = flowengine("run", "ask.yaml")
    assert (found.code, found.out.strip()) == (code, said if code == 0 else "")
    assert "later / change / (later)" in found.err
