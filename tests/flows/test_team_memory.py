"""The sample flow of a bot that remembers for a whole workspace: what was said in one channel is known in another."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from flowengine.core.records import ModelCall
from flowengine.engine.events import NodeRecorded
from flowengine.flow import Flow
from flowengine.runtime.run import Run
from tests.support.model_answers import Failure
from tests.support.model_server import ModelServer

FLOW = Path(__file__).parents[2] / "flows" / "team_memory.yaml"
YES = {"should_reply": True, "confidence": 0.9, "reason": "It is asked."}
NO = {"should_reply": False, "confidence": 0.9, "reason": "They talk among themselves."}
MEMORIES = ("- A question.", "Releases.", "- Asked in #general.", "Releases are on Fridays.")
MODEL = "openai/gpt-4o-mini"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("OPENAI_API_KEY", "test")
    monkeypatch.setenv("TEAM_MEMORY", str(tmp_path / "memory.db"))
    return tmp_path


def start(folder: Path, monkeypatch: pytest.MonkeyPatch, *answers: Any, **inputs: str) -> tuple[Run, list[str]]:
    """A run with a server that answers in this order, and what the server was sent."""
    given = {"keeper": MODEL, "at": "2025-03-01T09:00:00+00:00", **inputs}
    with ModelServer(list(answers)) as server:
        monkeypatch.setenv("OPENAI_API_BASE", server.url)
        run = Flow.from_yaml(FLOW, model=MODEL).run_sync(given, store=f"sqlite:///{folder}/runs.db")
        return run, [str(each.body) for each in server.requests]


def purposes(run: Run) -> list[tuple[str, str]]:
    found = [(event.node, event.record) for event in run.events if isinstance(event, NodeRecorded)]
    return [(node, record.purpose) for node, record in found if isinstance(record, ModelCall)]


def test_what_one_channel_said_is_known_in_another(folder: Path, monkeypatch: pytest.MonkeyPatch):
    first, _ = start(folder, monkeypatch, YES, "On Friday.", *MEMORIES)
    assert first.raise_for_status().outputs == {
        "reply": "On Friday.", "reason": "It is asked.", "workspace": "Releases are on Fridays.",
    }  # fmt: skip
    second, sent = start(
        *(folder, monkeypatch, NO, "- Lunch.", "Lunches.", "- Lunch in #random.", "Fridays and lunches."),
        channel="random", text="Lunch was great.", at="2025-03-01T10:00:00+00:00",
    )  # fmt: skip
    assert second.raise_for_status().outputs["reply"] == "(no reply)"
    assert second.nodes["reply"].status == "skipped"
    assert "Releases are on Fridays." in sent[0]
    assert "Releases are on Fridays." in sent[-1], "the history is merged with what is new"
    assert second.outputs["workspace"] == "Fridays and lunches."


def test_every_call_of_the_functions_is_on_record(folder: Path, monkeypatch: pytest.MonkeyPatch):
    run, sent = start(folder, monkeypatch, YES, "On Friday.", *MEMORIES)
    memory = [*[("remember_channel", "memory")] * 2, *[("remember_workspace", "memory")] * 2]
    assert purposes(run) == [("listen", "judge"), ("reply", "generation"), *memory]
    assert len(sent) == 6


def test_a_memory_that_was_paid_for_is_not_written_again_when_the_run_goes_on(
    folder: Path, monkeypatch: pytest.MonkeyPatch
):
    run, _ = start(folder, monkeypatch, YES, "On Friday.", *MEMORIES[:3], Failure(400))
    assert run.status == "failed"
    with ModelServer([MEMORIES[3]]) as server:
        monkeypatch.setenv("OPENAI_API_BASE", server.url)
        resumed = Flow.from_yaml(FLOW, model=MODEL).resume_sync(run.id, store=f"sqlite:///{folder}/runs.db")
        assert resumed.raise_for_status().outputs["workspace"] == "Releases are on Fridays."
        assert len(server.requests) == 1
