"""`flowengine serve` and `flowengine keys` as they are typed."""

from __future__ import annotations

import json
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from flowengine.cli.commands.serve import _announce_budgets, read_origin  # pyright: ignore[reportPrivateUsage]
from flowengine.cli.terminal import complain
from flowengine.flow import Flow
from flowengine.flowfile.project.project import find_project
from flowengine.journal.stores import open_store
from flowengine.web.gate.api_keys import KeyRing

Command = Callable[..., Any]


def test_a_key_is_told_once_as_the_last_word(folder: Path, flowengine: Command):
    said = flowengine(
        "keys", "add", "shop", "--flows", "shout,ask", "--budget-usd-day", "5", "--requests-per-minute", "60"
    )
    assert said.code == 0
    assert re.fullmatch(r"fe_[0-9a-f]{8}_\S{43}", said.out.split()[-1])
    listed = flowengine("keys", "list")
    assert re.search(r"shop .* shout,ask +0 of 5 USD today +60/min", listed.out)
    assert listed.out.split("\n")[0].split() == ["NAME", "ID", "ADDED", "FLOWS", "BUDGET", "RATE"]
    [told] = json.loads(flowengine("keys", "list", "--json").out)
    assert (told["name"], told["flows"], told["spent_usd_today"]) == ("shop", ["shout", "ask"], 0.0)
    assert said.out.split()[-1] not in listed.out + listed.err
    again = flowengine("keys", "add", "shop")
    assert (again.code, "there is a key 'shop' already" in again.err) == (2, True)
    assert "did you mean 'shop'" in flowengine("keys", "remove", "shp").err
    assert flowengine("keys", "remove", "shop").code == 0
    assert "no keys" in flowengine("keys", "list").err


def test_keys_with_a_budget_are_told_of_models_without_a_price(folder: Path, capsys: pytest.CaptureFixture[str]):
    text = "flowengine: v1\nname: f\nnodes:\n  a: {prompt: x, model: MODEL}\n"
    Path("known.yaml").write_text(text.replace("MODEL", "openai/gpt-4o-mini"))
    Path("new.yaml").write_text(text.replace("MODEL", "openai/made-up-model"))
    flows = {name: Flow.from_yaml(f"{name}.yaml") for name in ("known", "new")}
    with closing(open_store("memory:")) as store:
        ring = KeyRing(store)
        ring.add("free")
        _announce_budgets(store, flows, find_project("new.yaml"), complain)
        assert capsys.readouterr().err == ""
        ring.add("shop", budget_usd_day=5.0)
        _announce_budgets(store, {"known": flows["known"]}, find_project("new.yaml"), complain)
        assert capsys.readouterr().err == ""
        _announce_budgets(store, flows, find_project("new.yaml"), complain)
    assert "notice: shop may not ask openai/made-up-model: the price is not known" in capsys.readouterr().err


def test_what_makes_no_sense_for_a_key_is_refused(folder: Path, flowengine: Command):
    for arguments in (
        ["a b"],
        ["x", "--flows", " , "],
        ["x", "--budget-usd-day", "0"],
        ["x", "--requests-per-minute", "0"],
        ["x", "--store", "memory:"],
    ):
        assert flowengine("keys", "add", *arguments).code == 2, arguments


def test_what_cannot_be_served_is_told_before_it_listens(folder: Path, flowengine: Command):
    (folder / "same.yaml").write_text((folder / "shout.yaml").read_text())
    twice = flowengine("serve", "shout.yaml", "same.yaml")
    assert (twice.code, "two flows are named 'shout'" in twice.err) == (2, True)
    (folder / "wrong.yaml").write_text("flowengine: v1\nname: wrong\nnodes: {a: {type: functio}}\n")
    wrong = flowengine("serve", "wrong.yaml")
    assert (wrong.code, "wrong.yaml:3" in wrong.err, "did you mean" in wrong.err) == (2, True, True)
    open_to_all = flowengine("serve", "shout.yaml", "--no-keys", "--host", "0.0.0.0")
    assert (open_to_all.code, "--no-keys" in open_to_all.err) == (2, True)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        busy = flowengine("serve", "shout.yaml", "--port", str(port))
        assert (busy.code != 0, f"port {port} of 127.0.0.1 is taken" in busy.err) == (True, True)


def test_every_line_of_a_log_in_json_is_an_object(folder: Path, flowengine: Command):
    command = [sys.executable, "-m", "flowengine", "serve", "shout.yaml", "--no-keys", "--port", "0"]
    command += ["--store", "memory:", "--log-format", "json"]
    with subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        assert server.stdout.readline().startswith("http://127.0.0.1:")
        server.send_signal(signal.SIGTERM)
        _, told = server.communicate()
    lines = [json.loads(line) for line in told.splitlines()]
    assert {each["level"] for each in lines} == {"info"}
    assert lines[0]["message"].startswith("serves shout; runs are kept in ")
    assert lines[-1]["message"] == "stopped"
    (folder / "wrong.yaml").write_text("flowengine: v1\nname: wrong\nnodes: {a: {type: functio}}\n")
    said = flowengine("serve", "wrong.yaml", "--log-format", "json")
    [error] = [json.loads(line) for line in said.err.splitlines()]
    assert (said.code, error["level"], "did you mean" in error["message"]) == (2, "error", True)


@pytest.mark.parametrize(
    ("option", "says"),
    [
        (("--allow-origin", "app.example.com"), "write it as https://app.example.com"),
        (("--allow-origin", "https://app.example.com/page"), "write it as https://app.example.com"),
        (("--allow-origin", "*"), "write it as https://app.example.com"),
        (("--allow-host", "https://api.example.com"), "write a name alone"),
        (("--allow-host", "api.example.com:443"), "leave the port out"),
    ],
)
def test_a_name_that_no_request_could_have_is_refused(
    option: Sequence[str], says: str, folder: Path, flowengine: Command
):
    said = flowengine("serve", "shout.yaml", *option)
    assert (said.code, says in said.err) == (2, True)


def test_a_site_is_known_as_browsers_name_it():
    assert read_origin("https://App.example.com/") == "https://app.example.com"
