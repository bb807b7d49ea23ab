"""Sessions: what one run leaves for the next one of the same name."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from flowengine.core.context import Context, NodeResult
from flowengine.errors import DefinitionError
from flowengine.flow import Flow
from flowengine.journal.memory import MemoryStore
from flowengine.journal.sqlite.store import SQLiteStore
from flowengine.nodes.function import FunctionNode

pytestmark = pytest.mark.anyio


async def talk(context: Context) -> NodeResult:
    said = [*context.runtime.kept.get("conversation", ())]
    kept = {"conversation": [f"turn {len(said) + 1}"], "provider:notes": {"n": len(said)}, "skills": ["one"]}
    return NodeResult(said, kept=kept)


async def stumble(context: Context) -> NodeResult:
    raise ValueError("no")


FLOW = Flow("f", {"talk": FunctionNode(talk)})


async def said(store: Any, session: str | None) -> Any:
    return (await FLOW.run(store=store, session=session)).outputs["talk"]


async def test_the_next_run_of_a_session_finds_what_was_said_before(tmp_path: Path):
    store = SQLiteStore(tmp_path / "runs.db")
    assert await said(store, "ann") == []
    assert await said(store, "ann") == ["turn 1"]
    assert await said(store, "ann") == ["turn 1", "turn 2"]
    store.close()


async def test_a_session_keeps_text_that_is_cut_in_the_middle_of_a_character(tmp_path: Path):
    store = SQLiteStore(tmp_path / "runs.db")
    half = "half \ud83d"
    flow = Flow("f", {"talk": FunctionNode(lambda context: NodeResult(1, kept={"conversation": [half]}))})
    assert (await flow.run(store=store, session="ann")).status == "succeeded"
    assert await said(store, "ann") == [half]
    store.close()


async def test_sessions_and_runs_without_one_know_nothing_of_each_other():
    store = MemoryStore()
    await said(store, "ann")
    assert await said(store, "ben") == []
    assert await said(store, None) == []
    assert await said(store, "ann") == ["turn 1"]


async def test_what_other_providers_keep_goes_on_and_loaded_skills_do_not():
    store = MemoryStore()
    await said(store, "ann")
    run = await FLOW.run(store=store, session="ann")
    began = run.events[0].kept  # type: ignore[union-attr]
    assert dict(began) == {"conversation": ["turn 1"], "provider:notes": {"n": 0}}


async def test_a_run_that_fails_leaves_nothing():
    store = MemoryStore()
    flow = Flow("f", {"talk": FunctionNode(talk), "bad": FunctionNode(stumble, needs=["talk"])})
    assert (await flow.run(store=store, session="ann")).status == "failed"
    assert await said(store, "ann") == []


async def test_a_resumed_run_goes_on_with_the_session_as_it_was_at_its_start_and_adds_what_is_new():
    store = MemoryStore()
    calls: list[int] = []

    async def once(context: Context) -> None:
        calls.append(1)
        if len(calls) == 1:
            raise ValueError("no")

    flow = Flow("f", {"first": FunctionNode(once), "talk": FunctionNode(talk, needs=["first"])})
    await flow.run(store=store, session="ann", run_id="r")
    await said(store, "ann")
    done = await flow.resume("r", store=store)
    assert done.outputs["talk"] == []
    assert await said(store, "ann") == ["turn 1", "turn 1"]


async def test_a_session_needs_a_name():
    for name in (" ", "n" * 201, "half \ud83d", "nul \0"):
        with pytest.raises(DefinitionError, match="1 to 200 characters"):
            await said(MemoryStore(), name)
