"""Runs that are queued, taken, left: what `runs list`, `runs show` and `runs show --watch` say of them."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from flowengine.cli.main import main
from flowengine.engine.events import RunStarted
from flowengine.journal.stores import open_store
from tests.support.postgres import empty_database
from tests.support.queue_runs import NAPS, SLEEP

Words = Callable[..., str]


@pytest.fixture
def told(capfd: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Words:
    """Runs a command and gives what it printed, its exit code last."""
    monkeypatch.chdir(tmp_path)
    Path("naps.py").write_text(NAPS)
    Path("flow.yaml").write_text(SLEEP)

    def run(*words: str) -> str:
        code = main(words)
        said = capfd.readouterr()
        return f"{said.out}{said.err}exit code {code}"

    return run


@pytest.fixture
def queue(told: Words, monkeypatch: pytest.MonkeyPatch) -> Words:
    """The same, with a store that has a queue."""
    monkeypatch.setenv("FLOWENGINE_STORE", empty_database())
    return told


def submitted(queue: Words, *words: str) -> str:
    return queue("submit", "flow.yaml", *words).split()[0]


def test_a_run_that_waits_for_a_worker_is_listed_as_queued_with_its_place(queue: Words) -> None:
    first, second = submitted(queue), submitted(queue)
    later = submitted(queue, "--at", "1h", "--queue", "night")
    listed = queue("runs", "list")
    assert listed.count("queued") == 3
    assert "queued in 'default', none before it" in queue("runs", "show", first)
    assert "queued in 'default', 1 before it" in queue("runs", "show", second)
    assert "queued in 'night' for later, not before 20" in queue("runs", "show", later)
    queue("resume", second)
    assert queue("runs", "list").count("queued") == 2
    assert "queued" not in queue("runs", "show", second)
    queue("worker", "--until-idle")
    assert queue("runs", "list").count("succeeded") == 2
    assert "queued" not in queue("runs", "show", first)


def test_what_its_workers_lack_is_told(queue: Words) -> None:
    run_id = submitted(queue)
    Path("naps.py").unlink()
    queue("worker", "--until-idle")
    shown = queue("runs", "show", run_id)
    assert "queued in 'default', but 1 of its workers cannot run it" in shown
    assert "lacks" in shown
    assert "there is no module 'naps'" in shown


@pytest.mark.long
@pytest.mark.parametrize(("seconds", "code"), [("0.5", 0), ("nothing", 1)])
def test_a_queued_run_is_followed_to_its_end_with_its_exit_code(
    queue: Words, seconds: str, code: int, tmp_path: Path
) -> None:
    Path("flow.yaml").write_text(SLEEP.replace('"{{ inputs.seconds }}"', seconds))
    run_id = submitted(queue)
    worker = threading.Timer(1.5, main, [["worker", "--until-idle", "-q"]])
    worker.start()
    followed = queue("runs", "show", run_id, "--watch")
    worker.join()
    assert f"run {run_id}: queued in 'default', none before it" in followed
    assert followed.endswith(f"exit code {code}")


def test_a_run_that_waits_for_a_person_ends_the_watching(queue: Words) -> None:
    asks = "flowengine: v1\nname: a\nnodes: {ok: {type: approval, message: M, expires: 1h, on_expire: 'no', routes: "
    Path("flow.yaml").write_text(f"{asks}{{'yes': b, 'no': c}}}}, b: {{prompt: x}}, c: {{prompt: x}}}}\n")
    run_id = submitted(queue)
    queue("worker", "--until-idle")
    assert queue("runs", "show", run_id, "--watch").endswith("exit code 3")
    assert "waits for an answer until 20" in queue("runs", "show", run_id)
    assert "waiting" in queue("runs", "list")


@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
def test_a_run_whose_writer_is_gone_is_listed_as_interrupted(
    told: Words, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = "runs.db" if kind == "sqlite" else empty_database()
    monkeypatch.setenv("FLOWENGINE_STORE", url)
    writing = open_store(url)
    journal = writing.create("r1")
    journal.append(RunStarted("r1", "f", 1.0, {}, {}, {}))
    journal.flush()
    list(writing.list())
    [listed] = json.loads(told("runs", "list", "--json").rpartition("exit")[0])
    assert (listed["status"], listed["standing"]) == ("running", "running")
    writing.close()
    assert "interrupted" in told("runs", "list")
    shown = told("runs", "show", "r1")
    assert "interrupted: no process works on it any more\n  to go on: flowengine resume r1" in shown
    assert re.search(r"^status +interrupted$", shown, re.MULTILINE)
    assert "running" not in shown.split("\n\n")[0], "one status, not two"
