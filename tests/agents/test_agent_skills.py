"""Skills in an agent: their list in the system message, what is loaded by tools, and what a run keeps of that."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from flowengine.agents.agent import Agent
from flowengine.agents.skills.sandbox.sandbox import Sandbox
from flowengine.agents.skills.skill_store import SkillStore
from flowengine.core.records import Receipt, SkillLoad
from flowengine.errors import DefinitionError
from flowengine.flow import Flow
from flowengine.journal.memory import MemoryStore
from flowengine.models.messages import ToolRequest
from flowengine.models.model import Reply, Request
from flowengine.models.scripted import ScriptedModel
from flowengine.nodes.agent import AgentNode


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Two skills."""
    for name, text in {"refunds": "Refund at once.", "invoices": "Send it again."}.items():
        (tmp_path / name).mkdir()
        head = f"---\nname: {name}\ndescription: What to do about {name}.\n---\n"
        (tmp_path / name / "SKILL.md").write_text(f"{head}# Steps\n\n{text}\n")
    return tmp_path


def load(name: str) -> Reply:
    return Reply("", (ToolRequest("1", "load_skill", json.dumps({"name": name})),))


async def test_the_list_of_skills_stands_in_the_system_message_behind_the_instructions(folder: Path, recorder: Any):
    model = ScriptedModel(["Fine."])
    await Agent("a", "Help.", model=model, skills=folder).run_async("Hi", gateway=recorder)
    system, question = model.requests[0].messages
    assert system.content.startswith("Help.\n\n")
    assert "- refunds: What to do about refunds." in system.content
    assert "Refund at once." not in system.content
    assert question.content == "User input: Hi"
    (receipt,) = recorder.of(Receipt)
    rows = [row for row in receipt.fragments if row["source"] == "skills"]
    assert [(row["label"], row["state"], row["pinned"]) for row in rows] == [("list", "kept", True)]
    assert [(each.skill, each.level) for each in recorder.of(SkillLoad)] == [("*", 1)]


async def test_a_body_enters_once_the_model_asks_for_it(folder: Path, recorder: Any):
    model = ScriptedModel([load("refunds"), "Done."])
    await Agent("a", "Help.", model=model, skills=SkillStore(folder)).run_async("Hi", gateway=recorder)
    assert "load_skill" in [each["function"]["name"] for each in model.requests[0].tools]
    assert "Refund at once." in model.requests[1].messages[-1].content
    assert ("refunds", 2) in [(each.skill, each.level) for each in recorder.of(SkillLoad)]


async def test_a_later_agent_of_a_run_has_the_bodies_that_earlier_ones_loaded(folder: Path):
    def answer(request: Request) -> Any:
        asked = request.messages[1].content
        return load("refunds") if asked.endswith("a") and request.messages[-1].role != "tool" else "Done."

    model = ScriptedModel(answer)
    agent = Agent("one", "Help.", model=model, skills=folder)
    nodes = {
        "a": AgentNode(agent, prompt=lambda context: "a"),
        "b": AgentNode(agent, prompt=lambda context: "b", needs=["a"]),
        "c": AgentNode(agent, prompt=lambda context: "c"),
    }
    run = (await Flow("flow", nodes).run(run_id="r1", store=MemoryStore())).raise_for_status()
    asked = {each.messages[1].content[-1]: each.messages[1].content for each in model.requests}
    assert "Refund at once." in asked["b"]
    assert "Refund at once." not in asked["c"]
    assert run.status == "succeeded"


async def test_what_was_loaded_is_kept_also_where_the_call_was_answered_from_the_record(folder: Path):
    model = ScriptedModel([load("refunds"), load("nothing"), "Done."])
    response = await Agent("a", "Help.", model=model, skills=folder).respond("Hi", kept={"skills": ["invoices"]})
    assert response.kept == {"skills": ["refunds"]}
    assert "Send it again." in model.requests[0].messages[1].content


async def test_a_known_body_gives_way_where_there_is_no_room_for_it(folder: Path, recorder: Any):
    (folder / "refunds" / "SKILL.md").write_text("---\nname: refunds\ndescription: R.\n---\n" + "Long. " * 900)
    agent = Agent("a", "Help.", model=ScriptedModel(["Done."]), skills=folder, context_budget=400)
    await agent.respond("Hi", kept={"skills": ["refunds"]}, gateway=recorder)
    (receipt,) = recorder.of(Receipt)
    assert {row["label"]: row["state"] for row in receipt.fragments if row["source"] == "skills"} == {
        "list": "kept",
        "refunds": "shortened",
    }


async def test_folders_without_skills_are_as_if_there_were_none(tmp_path: Path):
    model = ScriptedModel(["Done."])
    await Agent("a", "Help.", model=model, skills=[tmp_path]).run_async("Hi")
    assert model.requests[0].messages[0].content == "Help."
    assert model.requests[0].tools == ()


def test_a_folder_that_is_not_there_and_a_sandbox_for_nothing_are_errors(tmp_path: Path):
    with pytest.raises(DefinitionError, match="agent 'a': skills: there is no folder"):
        Agent("a", "Help.", skills=tmp_path / "none")
    with pytest.raises(DefinitionError, match="skill_sandbox is where scripts of skills run: give skills as well"):
        Agent("a", "Help.", skill_sandbox=Sandbox())
