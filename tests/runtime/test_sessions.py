"""Sessions: what one run leaves for the next one of the same name."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import anyio
import pytest
from pydantic import BaseModel

from flowengine.agents.agent import Agent
from flowengine.agents.context.conversation import ConversationHistoryProvider
from flowengine.agents.tools.toolset import ToolSet
from flowengine.agents.typed_contexts.typed import TypedContext
from flowengine.core.context import Context, NodeResult
from flowengine.engine.events import start_of
from flowengine.errors import DefinitionError
from flowengine.flow import Flow
from flowengine.journal.memory import MemoryStore
from flowengine.journal.sqlite.store import SQLiteStore
from flowengine.journal.stores import commit_events
from flowengine.models.messages import ToolRequest
from flowengine.models.model import Reply, Request
from flowengine.models.scripted import ScriptedModel
from flowengine.nodes.agent import AgentNode
from flowengine.nodes.function import FunctionNode
from flowengine.runtime.local.local import beginning
from flowengine.runtime.run import RunOptions

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


# --- Runs of one session that overlap


class Cart(BaseModel):
    items: list[str] = []
    owner: str = ""


class CartContext(TypedContext[Cart]):
    id = "cart"
    description = "Cart"
    data_schema = Cart

    def tool_set(self) -> ToolSet:
        return ToolSet("cart", "", [self.add, self.own])

    def add(self, item: str) -> None:
        "Add an item."
        self.update_data(items=[*self.get_data().items, item])

    def own(self, name: str) -> None:
        "Say whose it is."
        self.update_data(owner=name)


def answer(request: Request) -> Any:
    """`add tea` calls the tool; anything else is answered."""
    asked = next(each.content for each in request.messages if each.role == "user").rpartition("User input: ")[2]
    name, _, given = asked.partition(" ")
    if given and request.messages[-1].role != "tool":
        return Reply("", (ToolRequest("1", name, json.dumps({"item" if name == "add" else "name": given})),))
    return "done"


def shop(said: str, gate: anyio.Event | None = None) -> Flow:
    async def wait(context: Context) -> None:
        if gate is not None:
            await gate.wait()

    agent = Agent("shop", "I", model=ScriptedModel(answer), contexts=[CartContext()])
    return Flow("f", {"gate": FunctionNode(wait), "shop": AgentNode(agent, prompt=lambda _: said, needs=["gate"])})


def cart(store: Any) -> Any:
    return store.recall("session", "s")["context:cart"]


async def run_beside(store: Any, slow: str, *quick: str) -> None:
    """A run that begins before the others, and ends after them."""
    gate = anyio.Event()

    async def first() -> None:
        (await shop(slow, gate).run(store=store, session="s")).raise_for_status()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(first)
        await anyio.wait_all_tasks_blocked()
        for each in quick:
            (await shop(each).run(store=store, session="s")).raise_for_status()
        gate.set()


async def test_a_run_that_changed_nothing_leaves_what_others_have_changed_meanwhile(tmp_path: Path):
    store = MemoryStore()
    await shop("add i0").run(store=store, session="s")
    await run_beside(store, "hello", "add i1", "add i2")
    assert cart(store) == {"items": ["i0", "i1", "i2"], "owner": ""}


async def test_runs_that_overlap_each_add_what_they_changed_also_where_the_session_is_new():
    store = MemoryStore()
    await run_beside(store, "add i0", "add i1", "own Ann")
    await run_beside(store, "add i2", "add i3")
    assert cart(store) == {"items": ["i1", "i0", "i3", "i2"], "owner": "Ann"}


async def test_of_two_runs_that_set_one_thing_the_later_one_counts_and_it_is_told(caplog: pytest.LogCaptureFixture):
    store = MemoryStore()
    await run_beside(store, "own Ann", "own Ben")
    assert cart(store)["owner"] == "Ann"
    assert "session 's': two runs at once changed 'context:cart'" in caplog.text


async def test_a_run_that_was_put_into_a_queue_has_the_session_as_it_is_when_it_begins():
    store = MemoryStore()
    options = RunOptions(session="ann")
    for name in ("r1", "r2"):
        journal = store.create(name)
        await commit_events(journal, beginning(FLOW.plan, {}, store, name, options, begins_later=True))
        await journal.close()
    assert (await FLOW.resume("r1", store=store)).outputs["talk"] == []
    done = await FLOW.resume("r2", store=store)
    assert done.outputs["talk"] == ["turn 1"]
    assert await said(store, "ann") == ["turn 1", "turn 2"]
    started = start_of(done.events)
    assert started is not None
    assert started.kept["conversation"] == ["turn 1"]


async def test_a_queued_run_that_was_interrupted_keeps_the_session_that_it_began_with():
    store = MemoryStore()
    calls: list[int] = []

    async def once(context: Context) -> None:
        calls.append(1)
        if len(calls) == 1:
            raise ValueError("no")

    flow = Flow("f", {"first": FunctionNode(once), "talk": FunctionNode(talk, needs=["first"])})
    journal = store.create("r")
    await commit_events(journal, beginning(flow.plan, {}, store, "r", RunOptions(session="ann"), begins_later=True))
    await journal.close()
    assert (await flow.resume("r", store=store)).status == "failed"
    await said(store, "ann")
    assert (await flow.resume("r", store=store)).outputs["talk"] == []
    assert await said(store, "ann") == ["turn 1", "turn 1"]


async def test_a_run_that_shares_the_past_of_another_adds_only_what_is_its_own():
    store, model = MemoryStore(), ScriptedModel(answer)
    agent = Agent("shop", "I", model=model, contexts=[CartContext()], context_providers=[ConversationHistoryProvider()])
    texts = {"a": "add tea", "b": "add milk"}
    nodes = {
        name: AgentNode(agent, prompt=lambda _, text=text: text, needs=needs)
        for (name, text), needs in zip(texts.items(), ([], ["a"]), strict=True)
    }
    flow = Flow("f", nodes)
    await flow.run(store=store, session="s", run_id="r")
    assert cart(store)["items"] == ["tea", "milk"]
    await flow.fork("r", "b", store=store)
    stored = store.recall("session", "s")
    assert stored is not None
    assert [each["user_input"] for each in stored["conversation"]] == ["add tea", "add milk", "add milk"]
    assert cart(store)["items"] == ["tea", "milk", "milk"]  # The fork's own "milk" was added as well.


async def test_a_run_keeps_of_a_long_session_what_its_agents_can_show():
    store = MemoryStore()
    turns = [{"user_input": str(n), "result": "ok", "timestamp": ""} for n in range(50)]
    store.revise("session", "s", lambda before: {"conversation": turns})
    agent = Agent("a", "I", model=ScriptedModel(["ok"]), context_providers=[ConversationHistoryProvider(3)])
    run = await Flow("f", {"a": AgentNode(agent, prompt=lambda _: "50")}).run(store=store, session="s")
    assert [each["user_input"] for each in run.events[0].kept["conversation"]] == ["47", "48", "49"]  # type: ignore[union-attr]
    stored = store.recall("session", "s")
    assert stored is not None
    assert [each["user_input"] for each in stored["conversation"]] == [str(n) for n in range(51)]


async def test_a_session_that_was_removed_while_a_run_went_on_stays_removed(caplog: pytest.LogCaptureFixture):
    store, gate = MemoryStore(), anyio.Event()
    await shop("add i0").run(store=store, session="s")

    async def run() -> None:
        (await shop("add i1", gate).run(store=store, session="s")).raise_for_status()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(run)
        await anyio.wait_all_tasks_blocked()
        store.revise("session", "s", lambda before: None)
        gate.set()
    assert store.recall("session", "s") is None
    assert "session 's' was removed while run" in caplog.text


async def test_a_session_of_a_flow_that_keeps_no_talk_says_so_before_anything_runs(caplog: pytest.LogCaptureFixture):
    told: list[str] = []

    def answer(request: Request) -> str:
        told.append(caplog.text)
        return "ok"

    def flow(**sources: Any) -> Flow:
        agent = Agent("a", "I", model=ScriptedModel(answer), **sources)
        return Flow("quiet", {"a": AgentNode(agent, prompt=lambda _: "Hi")})

    await flow(context_providers=[ConversationHistoryProvider()]).run(store=MemoryStore(), session="s")
    await flow(contexts=[CartContext()]).run(store=MemoryStore(), session="s")
    assert not caplog.text
    await flow().run(store=MemoryStore(), session="s")
    assert "session 's' keeps nothing of flow 'quiet': none of its agents has a conversation" in told[-1]
