"""`flowengine runs rm`: only what has ended goes, unless a run is named by force."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import anyio
import pytest

from flowengine.cli.main import main
from flowengine.journal.postgres.store import PostgresStore
from flowengine.journal.stores import open_store
from flowengine.runtime.queue.run_queue import submit
from tests.support.postgres import empty_database
from tests.support.queue_runs import KINDS, drain, flow

Told = Callable[..., tuple[int, list[str]]]


@pytest.fixture
def told(capfd: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Told:
    """Runs a command; its exit code, and what it said."""
    monkeypatch.chdir(tmp_path)
    flow(tmp_path, KINDS)

    def run(*words: str) -> tuple[int, list[str]]:
        code = main(words)
        return code, capfd.readouterr().err.splitlines()

    return run


def ids(store: str) -> set[str]:
    kept = open_store(store)
    found = {run.run_id for run in kept.list()}
    kept.close()
    return found


@pytest.fixture
def store(told: Told, monkeypatch: pytest.MonkeyPatch) -> str:
    """A file with a run that has succeeded, one that failed, and one that waits."""
    monkeypatch.setenv("FLOWENGINE_STORE", "runs.db")
    for kind in ("works", "fails", "asks"):
        told("run", "flow.yaml", "-i", f"kind={kind}", "--run-id", kind)
    return "runs.db"


def test_a_run_that_waits_is_left_unless_it_is_named_by_force(told: Told, store: str) -> None:
    assert told("runs", "rm", "works", "fails", "asks") == (
        1,
        ["removed works", "removed fails", "left: run 'asks' has not ended, it is waiting"],
    )
    assert told("runs", "rm", "asks", "--force", "--dry-run") == (0, ["would remove asks"])
    assert ids(store) == {"asks"}
    assert told("runs", "rm", "asks", "--force") == (0, ["removed asks"])
    assert ids(store) == set()


def test_of_old_runs_only_those_go_that_have_ended(told: Told, store: str) -> None:
    assert told("runs", "rm", "--older-than", "1ms") == (
        0,
        ["left: run 'asks' has not ended, it is waiting", "removed fails", "removed works"],
    )
    assert ids(store) == {"asks"}
    assert told("runs", "rm", "--older-than", "1ms", "--force")[0] == 2
    assert ids(store) == {"asks"}


def test_what_is_queued_scheduled_or_waiting_in_a_queue_is_left(
    told: Told, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = empty_database()
    monkeypatch.setenv("FLOWENGINE_STORE", url)
    store = PostgresStore(url, "full")
    plan = flow(tmp_path, KINDS).plan

    async def fill() -> None:
        await submit(store, plan, {"kind": "asks"}, run_id="asks")
        await submit(store, plan, {"kind": "fails"}, run_id="fails")
        await submit(store, plan, {"kind": "works"}, run_id="works")
        await drain(store)

    anyio.run(fill)
    store.close()
    assert told("submit", "flow.yaml", "-i", "kind=works", "--run-id", "queued")[0] == 0
    assert told("submit", "flow.yaml", "-i", "kind=works", "--run-id", "later", "--at", "8h")[0] == 0
    assert told("submit", "--resume", "fails", "--queue", "other")[0] == 0
    code, lines = told("runs", "rm", "--older-than", "1ms")
    assert (code, sorted(lines)) == (
        0,
        [
            "left: run 'asks' has not ended, it is waiting",
            "left: run 'fails' has not ended, it is queued",
            "left: run 'later' has not ended, it is queued",
            "left: run 'queued' has not ended, it is queued",
            "removed works",
        ],
    )
    assert told("runs", "rm", "queued", "--force") == (0, ["removed queued"])
    [said] = told("worker", "--until-idle")[1][1:]
    assert " run queued: no run 'queued'" in said
