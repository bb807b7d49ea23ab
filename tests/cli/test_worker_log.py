"""The lines that a worker writes while it works: with times, as text and as JSON."""

from __future__ import annotations

import json
import logging
import re
from pathlib import Path
from typing import Any

import pytest

from flowengine.cli.commands.worker import log_notice, worker_log
from flowengine.cli.main import main
from flowengine.runtime.queue.heartbeat import WorkerNotice
from tests.support.postgres import empty_database
from tests.support.queue_runs import command, flow

TIME = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z"


@pytest.fixture
def url(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> str:
    flow(tmp_path)
    found = empty_database()
    monkeypatch.chdir(tmp_path)
    assert main(["submit", "flow.yaml", "--run-id", "a1", "--store", found]) == 0
    capsys.readouterr()
    return found


def test_each_line_has_its_time(url: str, tmp_path: Path) -> None:
    lines = command(tmp_path, url, "worker", "--until-idle").stderr.splitlines()
    assert [re.sub(TIME, "TIME", line) for line in lines] == [
        "TIME working on queue 'default', 1 at once",
        "TIME run a1 begins: sleep",
        "TIME run a1 succeeded",
    ]


@pytest.mark.long
def test_lines_are_objects_where_that_is_asked_for(url: str, tmp_path: Path) -> None:
    said = command(tmp_path, url, "worker", "--until-idle", "--log-format", "json", "--health-port", "0")
    found: list[dict[str, Any]] = [json.loads(line) for line in said.stderr.splitlines()]
    assert [(each["event"], each.get("run")) for each in found] == [
        ("started", None),
        ("listening", None),
        ("begins", "a1"),
        ("succeeded", "a1"),
    ]
    assert (
        found[2].items() >= {"level": "info", "message": "run a1 begins: sleep", "logger": "flowengine.worker"}.items()
    )
    assert re.fullmatch(TIME, found[0]["time"])
    assert found[1]["message"].startswith("health and metrics on http://127.0.0.1:")


def test_the_error_that_ends_a_worker_is_an_object_too(url: str, tmp_path: Path) -> None:
    import psycopg

    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("UPDATE flowengine.version SET number = number + 1")
    said = command(tmp_path, url, "worker", "--log-format", "json")
    last = json.loads(said.stderr.splitlines()[-1])
    assert (said.returncode, last["level"], last["event"]) == (2, "error", "error")
    assert "upgrade FlowEngine" in last["message"]


def test_a_quiet_worker_says_nothing(url: str, tmp_path: Path) -> None:
    assert command(tmp_path, url, "worker", "--until-idle", "-q").stderr == ""


def test_what_libraries_log_has_the_same_form_and_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    with worker_log("text", quiet=False):
        log_notice(WorkerNotice("one\ntwo\x1b", "left", "a1"))
        logging.getLogger("a.library").warning("careful: %s", 7)
        logging.getLogger("a.library").info("not that")
    with worker_log("json", quiet=True):
        log_notice(WorkerNotice("nothing", "begins", "a1"))
        try:
            raise ValueError("wrong")
        except ValueError:
            logging.getLogger("a.library").exception("broken")
    logging.getLogger("a.library").setLevel(logging.NOTSET)
    first, second, third = capsys.readouterr().err.splitlines()
    assert re.sub(TIME, "TIME", first) == "TIME one\\ntwo\\x1b"
    assert re.sub(TIME, "TIME", second) == "TIME careful: 7"
    found = json.loads(third)
    assert (found["level"], found["logger"], found["message"].splitlines()[-1]) == (
        "error",
        "a.library",
        "ValueError: wrong",
    )


def test_a_worker_does_not_start_where_flows_could_read_a_whole_machine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    home = tmp_path / "home"
    home.mkdir()
    monkeypatch.setenv("HOME", str(home))
    for folder in (Path("/"), home):
        monkeypatch.chdir(folder)
        assert main(["worker", "--until-idle", "--store", "postgresql://localhost:1/none"]) == 2
        assert "would let submitted flows read the files below it" in capsys.readouterr().err
