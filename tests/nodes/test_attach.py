"""Files that agents, judges and routers are shown: in the request, in its key, on record, and again after a resume."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

import pytest

from flowengine.agents.agent import Agent
from flowengine.agents.evaluation import EvaluationAgent
from flowengine.agents.routing import RoutingAgent
from flowengine.agents.tools.tool import Tool, ToolResult
from flowengine.agents.typed_contexts.typed import TypedContext
from flowengine.core.context import Context
from flowengine.core.file_values import FileValue, hash_of
from flowengine.core.records import ModelCall
from flowengine.engine.events import NodeRecorded
from flowengine.errors import ModelConfigError, RunError
from flowengine.flow import Flow
from flowengine.models.messages import Message
from flowengine.models.model import Reply, Request
from flowengine.models.scripted import ScriptedModel
from flowengine.nodes.agent import AgentNode
from flowengine.nodes.evaluation_node import EvaluationNode
from flowengine.nodes.function import FunctionNode
from flowengine.nodes.routing_node import RoutingNode

pytestmark = pytest.mark.anyio
PICTURE, OTHER = b"\x89PNG\r\n\x1a\nabc", b"\x89PNG\r\n\x1a\nxyz"


class Watched:
    """A model that keeps what it was asked."""

    def __init__(self, answers: list[Any], name: str = "scripted", provider: str = "scripted") -> None:
        self._inner, self.name, self.provider = ScriptedModel(answers), name, provider
        self.asked: list[Request] = []

    async def complete(self, request: Request) -> Reply:
        self.asked.append(request)
        return await self._inner.complete(request)

    def stream(self, request: Request) -> AbstractAsyncContextManager[AsyncIterator[str | Reply]]:
        self.asked.append(request)
        return self._inner.stream(request)


def shown(request: Request) -> list[bytes]:
    return [file.read_bytes() for message in request.messages for file in message.attachments]


def photo(context: Context) -> Any:
    return context.inputs["photo"]


def one(model: Any, **more: Any) -> Flow:
    return Flow(
        "one", {"a": AgentNode(Agent("a", "Look", model=model, **more), attach=photo)}, inputs={"photo": "file"}
    )


async def test_all_three_kinds_are_shown_the_file_with_what_they_are_asked():
    model = Watched(
        [
            "a cat",
            {"next_route": "cat", "confidence": 1, "reasoning": "ears"},
            {"score": 1, "criteria_scores": {"fits": 1}, "feedback": "", "suggestions": []},
        ]
    )
    flow = Flow(
        "all",
        {
            "a": AgentNode(Agent("a", "Look", model=model), attach=lambda context: [photo(context), None]),
            "r": RoutingNode(
                RoutingAgent("r", "Which?", {"cat": "", "dog": ""}, model=model),
                {"cat": "e", "dog": None},
                attach=photo,
            ),
            "e": EvaluationNode(EvaluationAgent("e", "Judge", {"fits": "it"}, model=model), attach=photo),
        },
        inputs={"photo": "file"},
    )
    flow = Flow("all", {**flow.plan.definitions, "r": _needing(flow, "r", "a")}, inputs={"photo": "file"})
    run = await flow.run({"photo": PICTURE})
    assert run.status == "succeeded", run.error
    assert [shown(each) for each in model.asked] == [[PICTURE]] * 3
    assert all(each.messages[-1].attachments and each.messages[-1].role == "user" for each in model.asked)
    calls = [e.record for e in run.events if isinstance(e, NodeRecorded) and isinstance(e.record, ModelCall)]
    assert [call.messages[-1]["attachments"][0]["blob"] for call in calls] == [hash_of(PICTURE)] * 3


def _needing(flow: Flow, node: str, other: str) -> Any:
    found = flow.plan.definitions[node]
    found.needs = (other,)
    return found


async def test_a_resumed_run_pays_for_no_answer_twice_and_reads_its_own_files(tmp_path: Path):
    store = str(tmp_path / "runs.db")
    path = tmp_path / "photo.png"
    path.write_bytes(PICTURE)
    model, broken = Watched(["a cat", "a dog"]), [True]

    def fail(context: Context) -> str:
        if broken:
            raise ValueError("not now")
        return "done"

    agent = AgentNode(Agent("a", "Look", model=model), attach=photo)
    later = AgentNode(Agent("b", "Look again", model=model), attach=photo, needs=["fail"])
    flow = Flow("f", {"a": agent, "fail": FunctionNode(fail, needs=["a"]), "b": later}, inputs={"photo": "file"})
    assert (await flow.run({"photo": path}, store=store, run_id="r1")).status == "failed"
    path.write_bytes(OTHER)
    broken.clear()
    run = await flow.resume("r1", store=store)
    assert run.status == "succeeded", run.error
    assert [shown(each) for each in model.asked] == [[PICTURE], [PICTURE]]


async def test_an_answer_is_reused_for_the_same_file_only(tmp_path: Path):
    store, model = str(tmp_path / "runs.db"), Watched(["a cat", "a dog"])
    first = await one(model).run({"photo": PICTURE}, store=store)
    again = await one(model).run({"photo": PICTURE}, store=store, reuse=first.id)
    assert (again.outputs, len(model.asked)) == ({"a": "a cat"}, 1)
    other = await one(model).run({"photo": OTHER}, store=store, reuse=first.id)
    assert (other.outputs, len(model.asked)) == ({"a": "a dog"}, 2)


async def test_the_file_stays_with_the_question_through_rounds_of_tools_and_changing_contexts():
    from flowengine.models.messages import ToolRequest

    async def look(arguments: Any) -> ToolResult:
        return ToolResult("more")

    class Counting(TypedContext):
        def __init__(self) -> None:
            super().__init__("count")
            self.count = 0

        def render(self, query: str) -> str:
            self.count += 1
            return f"count {self.count}"

    tool = Tool("look", "Look", {"type": "object", "properties": {}}, look)
    model = Watched([Reply("", (ToolRequest("1", "look", "{}"),)), "done"])
    run = await one(model, tools=[tool], history_size=1).run({"photo": PICTURE})
    assert run.status == "succeeded", run.error
    assert [shown(each) for each in model.asked] == [[PICTURE], [PICTURE]]
    assert [m.role for m in model.asked[1].messages if m.attachments] == ["user"]


async def test_what_no_model_is_shown_fails_the_node_and_text_is_no_path():
    for given, said in [
        (lambda context: "/etc/passwd", r"`attach` takes files, found str '/etc/passwd'"),
        (lambda context: [1], "`attach` takes files, found int 1"),
    ]:
        model = Watched(["x"])
        flow = Flow("f", {"a": AgentNode(Agent("a", "Look", model=model), attach=given)})
        run = await flow.run({})
        assert run.error is not None
        assert said.replace("\\", "") in run.error.message or said[3:] in run.error.message
        assert not model.asked
    run = await one(Watched(["x"])).run({"photo": b"PK\x03\x04"})
    assert run.error is not None
    assert "is application/zip by its content, which no model is shown" in run.error.message


async def test_an_image_for_a_model_that_takes_none_is_refused_before_it_is_asked():
    model = Watched(["x", "y"], "gpt-3.5-turbo", "openai")
    run = await one(model).run({"photo": PICTURE})
    assert run.error is not None
    assert "model 'openai/gpt-3.5-turbo' takes no images, and 'file.png' is one" in run.error.message
    assert not model.asked
    assert (await one(model).run({"photo": b"a text"})).status == "succeeded"


async def test_agents_that_stand_alone_take_paths_and_bytes(tmp_path: Path):
    (tmp_path / "a.png").write_bytes(PICTURE)
    model = Watched(["a cat"])
    await Agent("a", "Look", model=model).run_async("What?", attach=[tmp_path / "a.png", OTHER])
    assert shown(model.asked[0]) == [PICTURE, OTHER]
    judge = Watched([{"score": 1, "criteria_scores": {"fits": 1}, "feedback": "", "suggestions": []}])
    await EvaluationAgent("e", "Judge", {"fits": "it"}, model=judge).run_async("text", attach=[PICTURE])
    router = Watched([{"next_route": "cat", "confidence": 1, "reasoning": ""}])
    await RoutingAgent("r", "Which?", {"cat": "", "dog": ""}, model=router).run_async("text", attach=[PICTURE])
    assert shown(judge.asked[0]) == shown(router.asked[0]) == [PICTURE]
    with pytest.raises(RunError, match="cannot read"):
        await Agent("a", "Look", model=model).run_async("What?", attach=[tmp_path / "none.png"])
    with pytest.raises(ModelConfigError):
        await Agent("a", "Look", model=Watched(["x"], "gpt-4", "openai")).run_async("What?", attach=[PICTURE])


def test_messages_without_files_are_as_before():
    assert Message("user", "x").attachments == ()
    assert FileValue(hash_of(b""), "text/plain", "x", 0).size == 0
