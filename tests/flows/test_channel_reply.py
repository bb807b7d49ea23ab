"""The sample flow of a bot in a chat, over a real store: what one run leaves, the next one knows."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import anyio
import pytest

from flowengine.agents.memory.database import MemoryDatabase
from flowengine.agents.memory.scopes.memories import MemoryScope, MemoryType, thread_scope_id
from flowengine.agents.memory.scopes.sql_stores import SQLConversationStore, SQLMemoryRepository
from flowengine.core.records import ModelCall
from flowengine.engine.events import NodeRecorded
from flowengine.flow import Flow
from flowengine.runtime.run import Run
from flowengine.testing.scripted_answers import scripted

FLOW = Path(__file__).parents[2] / "flows" / "channel_reply.yaml"
YES = {"should_reply": True, "confidence": 0.9, "reason": "It is asked."}
NO = {"should_reply": False, "confidence": 0.9, "reason": "It is not."}


@pytest.fixture(autouse=True)
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "memory.db"
    monkeypatch.setenv("CHANNEL_MEMORY", str(path))
    return path


def run_of(text: str, *, decision: Any = YES, minute: int = 0, thread: str = "", **answers: str) -> Run:
    said = {"judge": decision, "reply": "On Friday.", "recent": "- A question.", "history": "A history.", **answers}
    inputs = {"text": text, "thread": thread, "at": f"2025-03-01T09:{minute:02}:00+00:00"}
    return scripted(Flow.from_yaml(FLOW), said).run_sync(inputs).raise_for_status()


def system_of(run: Run, node: str) -> str:
    records = [(event.node, event.record) for event in run.events if isinstance(event, NodeRecorded)]
    (call,) = [record for path, record in records if path == node and isinstance(record, ModelCall)]
    return str(call.messages[0]["content"])


def user_of(run: Run, node: str) -> str:
    records = [(event.node, event.record) for event in run.events if isinstance(event, NodeRecorded)]
    (call,) = [record for path, record in records if path == node and isinstance(record, ModelCall)]
    return str(call.messages[-1]["content"])


def test_the_second_run_knows_what_the_first_one_left():
    first = run_of("Bot, when is the release?", recent="- Mika asked when.", history="Releases are on Fridays.")
    assert "## Memory" not in system_of(first, "judge")
    assert "## Channels" not in system_of(first, "judge"), "nothing is remembered yet"
    second = run_of("And who tests it?", minute=5)
    prompt = system_of(second, "reply")
    assert (
        "### #general\n\n#### History\n\nReleases are on Fridays.\n\n#### Recent events\n\n- Mika asked when." in prompt
    )
    assert "**2025-03-01 09:00:01** bot:\nOn Friday.\n\n**2025-03-01 09:05:00** Mika:\nAnd who tests it?" in prompt
    assert "## History so far\n\nReleases are on Fridays." in user_of(second, "history")


def test_judge_and_reply_are_asked_with_the_same_bytes_up_to_the_task():
    run_of("Bot, when is the release?")
    run = run_of("And who tests it?", minute=5)
    judge, reply = system_of(run, "judge"), system_of(run, "reply")
    shared = judge.partition("\n\n---\n\n")[0] + "\n\n---\n\n"
    assert len(shared) > 300
    assert judge == shared + "Decide, based on the information above, whether you should reply to this conversation."
    assert reply == shared + "Reply to the current conversation, based on the information above."
    assert user_of(run, "judge") == user_of(run, "reply")


def test_what_is_not_answered_is_heard_and_remembered_all_the_same():
    run = run_of("Lunch was great.", decision=NO, recent="- Lunch was great.")
    assert run.outputs["reply"] == "(no reply)"
    later = run_of("Bot, how was lunch?", minute=5)
    assert "Lunch was great." in system_of(later, "judge")
    assert "** bot:" not in system_of(later, "judge")


def test_memories_are_kept_in_their_scopes_and_closed_by_the_next_ones(store: Path):
    run_of("Bot?", history="One.")
    run_of("Bot!", minute=1, history="Two.")
    run_of("In here, bot?", minute=2, thread="77", recent="- A thread.")

    async def kept() -> tuple[list[str], list[str], list[str]]:
        database = MemoryDatabase(store)
        repository, conversations = SQLMemoryRepository(database), SQLConversationStore(database)
        history = await repository.history(MemoryScope.CHANNEL, "general", MemoryType.LONG_TERM)
        thread = await repository.history(MemoryScope.THREAD, thread_scope_id("general", "77"), MemoryType.SHORT_TERM)
        said = await conversations.messages("general")
        database.close()
        return [each.text for each in history], [each.text for each in thread], [each.user for each in said.messages]

    assert anyio.run(kept) == (["Two.", "One."], ["- A thread."], ["Mika", "bot"] * 3)


def test_a_memory_that_is_too_long_is_shortened():
    run_of("Bot?", history="Fridays are for releases. " * 200)
    prompt = system_of(run_of("Bot!", minute=1), "judge")
    assert "releases.\n(The rest was left out because the limit of its length was reached.)" in prompt


def test_offline_it_answers_who_speaks_to_it_and_leaves_small_talk_alone():
    def replied(text: str) -> Any:
        return Flow.from_yaml(FLOW, model="offline").run_sync({"text": text}).outputs["replied"]

    assert replied("Bot, when is the release?") is True
    assert replied("Lunch was great.") is False
