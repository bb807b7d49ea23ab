"""kill -9 for real between the last node of a run and its end on record: what the run leaves is kept once."""

from __future__ import annotations

import os
import runpy
import signal
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

import anyio
import pytest

from flowengine.engine.events import RunFinished
from flowengine.journal.stores import open_store

TALK = """
import os, signal, sys
from flowengine.agents.agent import Agent
from flowengine.flow import Flow
from flowengine.models.scripted import ScriptedModel
from flowengine.agents.context.conversation import ConversationHistoryProvider
from flowengine.runtime import sessions
from flowengine.runtime.local import local_execution

def flow(folder):
    agent = Agent(
        "talk", "Talk.", model=ScriptedModel(lambda request: "It is green."), memory=f"{folder}/memory.db",
        context_providers=[ConversationHistoryProvider()],
    )
    return Flow("talk", {"talk": agent}, inputs={"x": "string"})

def die(*given):
    os.kill(os.getpid(), signal.SIGKILL)

if __name__ == "__main__":
    folder, moment = sys.argv[1:]
    if moment == "before the session is kept":
        sessions._save = die
    else:
        committed = local_execution.commit_events
        async def dying(journal, *events):
            if not events:  # The journal has taken the end.
                die()
            await committed(journal, *events)
        local_execution.commit_events = dying
    flow(folder).run_sync({"x": "Which tea?"}, store=f"sqlite:///{folder}/runs.db", run_id="r1", session="ann")
"""


def killed(folder: Path, moment: str) -> None:
    script = folder / "talk.py"
    script.write_text(TALK)
    ended = subprocess.run([sys.executable, script, folder, moment], capture_output=True, text=True, check=False)
    assert ended.returncode == -signal.SIGKILL, ended.stderr


def memories(folder: Path) -> int:
    with closing(sqlite3.connect(folder / "memory.db")) as connection:
        return connection.execute("SELECT count(*) FROM item").fetchone()[0]


@pytest.mark.parametrize("moment", ["before the session is kept", "before the end is on record"])
def test_a_run_that_is_killed_while_it_leaves_something_leaves_it_once(tmp_path: Path, moment: str) -> None:
    killed(tmp_path, moment)
    store = f"sqlite:///{tmp_path}/runs.db"
    flow: Any = runpy.run_path(os.fspath(tmp_path / "talk.py"))["flow"](tmp_path)

    async def go_on() -> Any:
        opened = open_store(store, "full")
        assert not isinstance(opened.events("r1")[-1], RunFinished)
        opened.close()
        resumed = await flow.resume("r1", store=store)
        later = await flow.run({"x": "And then?"}, store=store, session="ann")
        return resumed, later

    resumed, later = anyio.run(go_on)
    assert resumed.status == "succeeded", resumed.error
    assert memories(tmp_path) == 2  # One of each run.
    began_with = later.events[0].kept
    assert len(began_with["conversation"]) == 1
    assert "=runs" not in began_with
