"""Many runs at once: resumed, cancelled and removed by name and by what they have in common."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import anyio
import pytest

from flowengine.cli.main import main
from flowengine.journal.postgres.store import PostgresStore
from flowengine.runtime.queue.run_queue import submit
from tests.support.postgres import empty_database
from tests.support.queue_runs import KINDS, drain, flow

Told = Callable[..., tuple[int, list[str]]]


@pytest.fixture
def told(capfd: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Told:
    """Runs a command on a store with runs of every kind; its exit code, and what it said, in the order of ids."""
    monkeypatch.chdir(tmp_path)
    url = empty_database()
    monkeypatch.setenv("FLOWENGINE_STORE", url)
    store = PostgresStore(url, "full")
    plan = flow(tmp_path, KINDS).plan

    async def fill() -> None:
        for number, kind in enumerate(("works", "fails", "fails", "asks")):
            labels = {"team": "a" if number < 2 else "b"}
            await submit(store, plan, {"kind": kind}, run_id=f"{kind}{number}", labels=labels)
        await drain(store)
        for number in range(2):
            await submit(store, plan, {"kind": "works"}, run_id=f"queued{number}", labels={"team": "ab"[number]})

    anyio.run(fill)
    store.close()

    def run(*words: str) -> tuple[int, list[str]]:
        code = main(words)
        said = capfd.readouterr()
        return code, sorted([*said.out.splitlines(), *said.err.splitlines()])

    return run


def words(told: Told) -> dict[str, str]:
    return {line.split()[0]: line.split()[2] for line in told("runs", "list")[1] if not line.startswith("RUN ")}


def test_failed_runs_go_back_into_their_queue_by_their_label(told: Told) -> None:
    dry = told("runs", "resume", "--status", "failed", "--label", "team=b", "--dry-run")
    assert dry == (0, ["run fails2 would be put back into its queue"])
    assert words(told)["fails2"] == "failed"
    assert told("runs", "resume", "--label", "team=b") == (0, ["run fails2 is put back into its queue"])
    found = words(told)
    assert {name: found[name] for name in ("fails1", "fails2", "asks3", "queued1")} == {
        "fails1": "failed",
        "fails2": "queued",
        "asks3": "waiting",
        "queued1": "queued",
    }
    assert told("runs", "resume", "--label", "team=b") == (0, ["there is nothing to resume"])


def test_a_run_that_is_named_and_has_nothing_to_go_on_with_is_left(told: Told) -> None:
    assert told("runs", "resume", "works0", "fails1", "queued0") == (
        1,
        ["left: run queued0 is queued", "left: run works0 is succeeded", "run fails1 is put back into its queue"],
    )


def test_queued_and_waiting_runs_are_cancelled_by_status_and_taken_up_again(told: Told) -> None:
    assert told("runs", "cancel", "--status", "queued", "--dry-run") == (
        0,
        ["run queued0 would be cancelled", "run queued1 would be cancelled"],
    )
    assert told("runs", "cancel", "--status", "queued", "--label", "team=a") == (0, ["run queued0 is cancelled"])
    assert told("runs", "cancel", "--flow", "t") == (0, ["run asks3 is cancelled", "run queued1 is cancelled"])
    assert told("runs", "cancel", "--flow", "t") == (0, ["there is nothing to cancel"])
    assert told("runs", "cancel", "works0") == (1, ["left: run works0 is succeeded"])
    assert told("runs", "resume", "--flow", "t", "--dry-run")[1] == [
        f"run {run_id} would be put back into its queue" for run_id in ("fails1", "fails2")
    ]
    assert told("runs", "resume", "--status", "cancelled")[1] == [
        f"run {run_id} is put back into its queue" for run_id in ("asks3", "queued0", "queued1")
    ]


def test_runs_of_no_queue_are_left_unless_one_is_named(told: Told) -> None:
    assert told("run", "flow.yaml", "-q", "-i", "kind=fails", "--run-id", "local")[0] == 1
    said = "left: run local is of no queue: `flowengine resume local`, or --queue"
    assert told("runs", "resume", "local") == (1, [said])
    assert told("runs", "resume", "local", "--queue", "gpu") == (0, ["run local is put back into its queue"])
    assert told("runs", "cancel", "local") == (0, ["run local is cancelled"])


def test_filters_remove_only_what_has_ended(told: Told) -> None:
    assert told("runs", "rm", "--status", "failed", "--label", "team=a") == (0, ["removed fails1"])
    assert told("runs", "rm", "--label", "team=b") == (
        0,
        [
            "left: run 'asks3' has not ended, it is waiting",
            "left: run 'queued1' has not ended, it is queued",
            "removed fails2",
        ],
    )
    assert told("runs", "rm", "--flow", "another") == (0, ["there is nothing to remove"])
    assert told("runs", "rm", "works0", "--older-than", "1d") == (0, ["removed works0"])


def test_the_list_shows_runs_that_began_earlier(told: Told) -> None:
    assert told("runs", "list", "--older-than", "1d")[1][0].startswith("there are no such runs")
    assert len(told("runs", "list", "--older-than", "1ms", "--status", "failed")[1]) == 3


@pytest.mark.parametrize("verb", ["resume", "cancel", "rm"])
def test_a_command_that_says_nothing_of_which_runs_is_refused(told: Told, verb: str) -> None:
    code, lines = told("runs", verb)
    assert code == 2
    assert any("name a run, or give --flow, --status, --label, --since" in line for line in lines)
