"""Long-term memory of agents: alone it is kept at once; of a run, once and only where the run has succeeded."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import anyio
import pytest

from flowengine.agents.agent import Agent
from flowengine.agents.context.kept_memories import keep_for_good
from flowengine.agents.context.long_term_memory import LongTermMemoryProvider
from flowengine.errors import DefinitionError
from flowengine.flow import Flow
from flowengine.journal.memory import MemoryStore
from flowengine.models.model import Request
from flowengine.models.scripted import ScriptedModel
from flowengine.nodes.agent import AgentNode
from flowengine.nodes.function import FunctionNode


def answer(request: Request) -> str:
    return f"Noted: {request.messages[-1].content.rpartition('User input: ')[2]}"


def asked(model: ScriptedModel, question: str) -> str:
    return next(each.messages[-1].content for each in model.requests if each.messages[-1].content.endswith(question))


def says(text: str) -> Any:
    return lambda context: text


async def shown(file: Path, query: str, **settings: Any) -> str:
    """What a later agent would be told."""
    text: Any = LongTermMemoryProvider(file, **settings).get_context(query)
    return await text


async def test_an_agent_that_stands_alone_remembers_in_other_processes_too(tmp_path: Path):
    model = ScriptedModel(answer)
    await Agent("a", "I", model=model, memory=tmp_path / "m.db").run_async("The teapot is green")
    await Agent("b", "I", model=model, memory={"store": str(tmp_path / "m.db")}).run_async("Which teapot?")
    assert "User: The teapot is green\nAssistant: Noted: The teapot is green" in asked(model, "Which teapot?")


async def test_what_a_run_adds_is_seen_by_its_later_nodes_and_kept_at_its_end(tmp_path: Path):
    file, model = tmp_path / "m.db", ScriptedModel(answer)
    agent = Agent("one", "I", model=model, memory=file)
    texts = {"a": "The teapot is green", "b": "The teapot is new", "c": "The teapot is hot", "d": "Which teapot?"}
    after = {"a": [], "b": ["a"], "c": ["a"], "d": ["b", "c"]}
    nodes = {name: AgentNode(agent, prompt=says(text), needs=after[name]) for name, text in texts.items()}
    (await Flow("diamond", nodes).run(run_id="r1", store=MemoryStore())).raise_for_status()
    assert "teapot is green\n" in asked(model, texts["b"])
    assert "teapot is new\n" not in asked(model, texts["c"])
    assert "teapot is hot\n" not in asked(model, texts["b"])
    assert all(f"teapot is {word}\n" in asked(model, texts["d"]) for word in ("green", "new", "hot"))
    kept = await shown(file, "teapot")
    assert [kept.count(f"User: The teapot is {word}") for word in ("green", "new", "hot")] == [1, 1, 1]


async def test_what_a_run_that_failed_adds_is_not_kept_until_it_has_succeeded(tmp_path: Path):
    file, model, is_mended = tmp_path / "m.db", ScriptedModel(answer), [False]

    def fail() -> None:
        if not is_mended[0]:
            raise ValueError("broken")

    agent = Agent("one", "I", model=model, memory=file)
    nodes = {"a": AgentNode(agent, prompt=says("The teapot is green")), "b": FunctionNode(fail, needs=["a"])}
    store = MemoryStore()
    run = await Flow("failing", nodes).run(run_id="r1", store=store)
    assert run.status == "failed"
    assert await shown(file, "teapot") == ""
    is_mended[0] = True
    run = await Flow("failing", nodes).resume("r1", store=store)
    assert run.status == "succeeded"
    assert "The teapot is green" in await shown(file, "teapot")
    assert len(model.requests) == 1


async def test_memories_that_could_not_be_kept_are_on_record_and_kept_by_a_resumption(tmp_path: Path):
    file, model, store = tmp_path / "m.db", ScriptedModel(answer), MemoryStore()
    flow = Flow("f", {"a": AgentNode(Agent("one", "I", model=model, memory=file), prompt=says("The teapot is green"))})
    file.mkdir()  # No database can be opened here.
    run = await flow.run(run_id="r1", store=store)
    assert run.status == "succeeded"
    assert [each.partition(":")[0] for each in run.unkept] == ["memories of 'long_term_memory' cannot be kept"]
    assert (await flow.resume("r1", store=store)).unkept  # It is no better yet.
    file.rmdir()
    again = await flow.resume("r1", store=store)
    assert (again.status, again.unkept, again.outputs) == ("succeeded", (), run.outputs)
    assert (await shown(file, "teapot")).count("User: The teapot is green") == 1
    assert len(model.requests) == 1


async def test_memories_of_two_scopes_do_not_mix(tmp_path: Path):
    file, model = tmp_path / "m.db", ScriptedModel(answer)
    nodes: dict[str, AgentNode] = {}
    for number, scope_id in enumerate(("C1", "C2", "C1")):
        memory = {"store": str(file), "scope": "channel", "scope_id": scope_id}
        agent = Agent(f"agent {number}", "I", model=model, memory=memory)
        needs = [f"n{number - 1}"] if number else []
        nodes[f"n{number}"] = AgentNode(agent, prompt=says(f"The teapot has number {number}"), needs=needs)
    (await Flow("scopes", nodes).run()).raise_for_status()
    assert "Context" not in asked(model, "number 1")
    assert "number 0\n" in asked(model, "number 2")
    assert "number 1\n" not in asked(model, "number 2")
    assert "number 1" not in await shown(file, "teapot", scope="channel", scope_id="C1")


async def test_a_session_keeps_memories_once(tmp_path: Path):
    file, model, store = tmp_path / "m.db", ScriptedModel(answer), MemoryStore()
    agent = Agent("one", "I", model=model, memory=file)
    for text in ("The teapot is green", "The teapot is hot", "Which teapot?"):
        flow = Flow("chat", {"a": AgentNode(agent, prompt=says(text))})
        (await flow.run(store=store, session="s")).raise_for_status()
    assert asked(model, "Which teapot?").count("User: The teapot is green") == 1


async def test_memories_that_cannot_be_kept_are_logged(tmp_path: Path, caplog: pytest.LogCaptureFixture):
    own = LongTermMemoryProvider(tmp_path / "m.db")
    kept = {"memory": [{"provider": "long_term_memory", "settings": own.settings(), "item": {}}]}
    with caplog.at_level(logging.WARNING, "flowengine.agents.context"):
        await keep_for_good(kept, [own])
    assert "memories of 'long_term_memory' cannot be kept: KeyError" in caplog.text


async def test_a_record_does_not_choose_where_memories_are_kept(tmp_path: Path, caplog: pytest.LogCaptureFixture):
    own = LongTermMemoryProvider(tmp_path / "m.db")
    elsewhere = {**own.settings(), "store": str(tmp_path / "elsewhere.yaml")}
    item = {"user_input": "The teapot is green", "result": "Good", "at": "2026-01-01T00:00:00+00:00", "subject": None}
    kept = {"memory": [{"provider": "long_term_memory", "settings": elsewhere, "item": item}]}
    await keep_for_good(kept, [own])
    assert "The teapot is green" in await shown(tmp_path / "m.db", "teapot")
    with caplog.at_level(logging.WARNING, "flowengine.agents.context"):
        await keep_for_good(kept, [])
        await keep_for_good(kept, [own, LongTermMemoryProvider(tmp_path / "n.db")])
    assert caplog.text.count("no agent of the flow has such a memory") == 2
    assert not await anyio.Path(tmp_path / "elsewhere.yaml").exists()


def test_what_cannot_be_a_memory_is_an_error_when_the_agent_is_made():
    with pytest.raises(DefinitionError, match="agent 'a': memory must be a file, the settings of"):
        Agent("a", "I", memory=3)
    with pytest.raises(DefinitionError, match="memory has no setting 'scop'; did you mean 'scope'"):
        Agent("a", "I", memory={"scop": "thread"})
