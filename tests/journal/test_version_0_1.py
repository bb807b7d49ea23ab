"""What version 0.1.0 left is used by this one: its flow files, its store, a run that waits, a run that stopped."""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from flowengine.core.records import ModelCall
from flowengine.engine.events import Event, NodeFinished, NodeRecorded, RunStarted
from flowengine.engine.ports import JournalStore
from flowengine.flow import Flow
from flowengine.flowfile.loader import check_file
from flowengine.journal.approvals import answer
from flowengine.journal.stores import open_store
from visualize.progress import fold_events

BEFORE = Path(__file__).with_name("version_0_1")
FLOWS = sorted(path.stem for path in (BEFORE / "flows").glob("*.yaml"))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    shutil.copytree(BEFORE / "flows", tmp_path / "flows")
    with closing(sqlite3.connect(tmp_path / "runs.db")) as connection:
        connection.executescript((BEFORE / "runs.sql").read_text("utf-8"))
    return tmp_path


@pytest.fixture
def store(folder: Path) -> Iterator[JournalStore]:
    made = open_store(str(folder / "runs.db"))
    yield made
    made.close()


def calls(events: list[Event]) -> int:
    return sum(isinstance(each, NodeRecorded) and isinstance(each.record, ModelCall) for each in events)


@pytest.mark.parametrize("name", FLOWS)
def test_its_flow_files_are_flow_files(name: str, folder: Path) -> None:
    assert [each for each in check_file(folder / "flows" / f"{name}.yaml") if each.severity == "error"] == []


def test_its_store_is_opened_listed_and_read(store: JournalStore) -> None:
    assert {run.run_id: run.status for run in store.list()} == {
        "triage": "succeeded",
        "release": "waiting",
        "draft": "succeeded",
    }
    for run in store.list():
        events = list(store.events(run.run_id))
        assert isinstance(events[0], RunStarted)
        assert events[0].engine == "0.1.0"
        assert fold_events(events).status == run.status


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_its_waiting_run_is_answered_and_goes_on(folder: Path, store: JournalStore) -> None:
    events = list(store.events("release"))
    filled_in = {"ticket": "REL-7", "when": "tonight"}
    await answer(store, "release", "sign_off", "ship", form=filled_in, now=max(event.at for event in events) + 60)
    run = await Flow.from_yaml(folder / "flows" / "release_approval.yaml").resume("release", store=store)
    assert run.status == "succeeded", run.error
    finished = [event.node for event in store.events("release") if isinstance(event, NodeFinished)]
    assert len(finished) == len(set(finished)), "a node that had ended ran again"


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_its_stopped_run_goes_on_and_pays_only_the_rest(folder: Path) -> None:
    """The last events of a run are cut off, as by a kill after a few of its calls."""
    with closing(sqlite3.connect(folder / "runs.db")) as connection, connection:
        (number,) = connection.execute("SELECT number FROM run WHERE run_id = 'draft'").fetchone()
        first, last = number << 32, (number + 1) << 32
        rows = connection.execute(
            "SELECT position, body FROM event WHERE position BETWEEN ? AND ? ORDER BY position", (first, last)
        ).fetchall()
        asked = [position for position, body in rows if '"$ModelCall"' in body]
        connection.execute("DELETE FROM event WHERE position > ? AND position < ?", (asked[2], last))
        connection.execute("UPDATE run SET status = 'running', finished = NULL WHERE number = ?", (number,))
    store = open_store(str(folder / "runs.db"))
    try:
        kept = calls(list(store.events("draft")))
        run = await Flow.from_yaml(folder / "flows" / "draft_evaluate_improve.yaml").resume("draft", store=store)
        assert run.status == "succeeded", run.error
        events = list(store.events("draft"))
        assert (kept, calls(events)) == (3, len(asked))
    finally:
        store.close()
