"""Runs whose owner was cut off and replaced: what it still begins, and what becomes of what it has paid for."""

from __future__ import annotations

import anyio
import psycopg
import pytest

from flowengine.agents.agent import Agent
from flowengine.core.context import Context
from flowengine.core.records import ModelCall
from flowengine.engine.events import NodeStarted
from flowengine.errors import SupersededError
from flowengine.flow import Flow
from flowengine.journal.postgres import writer
from flowengine.journal.postgres.store import PostgresStore
from flowengine.journal.replay import Replay
from flowengine.models.model import Request
from flowengine.models.scripted import ScriptedModel
from flowengine.nodes.function import FunctionNode
from flowengine.nodes.gateway import gateway_of
from flowengine.runtime.local import local
from flowengine.runtime.run import RunOptions


def take_away(store: PostgresStore) -> None:
    """What another process does that finds the owner cut off."""
    with psycopg.connect(store.url, autocommit=True) as connection:
        connection.execute("UPDATE flowengine.run SET epoch = epoch + 1, owner = NULL")


def losing(store: PostgresStore, answers: dict[str, str]) -> ScriptedModel:
    """A model during whose first answer the run is taken away."""

    def answer(request: Request) -> str:
        if len(model.requests) == 1:
            take_away(store)
        return next(reply for word, reply in answers.items() if word in str(request.messages))

    model = ScriptedModel(answer)
    return model


async def test_a_superseded_owner_starts_no_further_node(store: PostgresStore) -> None:
    begun: list[str] = []

    async def lose(context: Context) -> None:
        take_away(store)

    async def work(context: Context) -> None:
        begun.append("b")

    flow = Flow("f", {"a": FunctionNode(lose), "b": FunctionNode(work, needs=["a"])})
    with pytest.raises(SupersededError, match=r"run 'r1' in .* was taken over by another writer meanwhile"):
        await flow.run(store=store, run_id="r1")
    assert begun == []
    assert not any(isinstance(event, NodeStarted) and event.node == "b" for event in store.events("r1"))


async def test_nodes_that_were_on_their_way_end_undisturbed(store: PostgresStore) -> None:
    ended: list[str] = []
    begun, lost = anyio.Event(), anyio.Event()

    async def lose(context: Context) -> None:
        await begun.wait()
        take_away(store)
        lost.set()

    async def slow(context: Context) -> None:
        begun.set()
        await lost.wait()
        await anyio.sleep(0.1)
        ended.append("slow")

    flow = Flow("f", {"a": FunctionNode(lose), "b": FunctionNode(slow)})
    with pytest.raises(SupersededError):
        await flow.run(store=store, run_id="r1")
    assert ended == ["slow"]


def flow_with(model: ScriptedModel, *questions: str) -> Flow:
    """One node that asks one question after the other."""

    async def ask(context: Context) -> str:
        gateway, agent = gateway_of(context), Agent("a", "", model=model)
        return " ".join([(await agent.respond(each, gateway=gateway)).result.content for each in questions])

    return Flow("f", {"n": FunctionNode(ask)})


def asked(model: ScriptedModel) -> list[str]:
    return [str(request.messages[-1].content).split()[-1] for request in model.requests]


async def test_what_was_answered_to_a_superseded_owner_is_not_paid_twice(store: PostgresStore) -> None:
    answers = {"first": "one", "second": "two"}
    losing_model, other = losing(store, answers), ScriptedModel(answers)
    with pytest.raises(SupersededError):
        await flow_with(losing_model, "first", "second").run(store=store, run_id="r1")
    assert asked(losing_model) == ["first"]
    another = RunOptions(allow_changed=True)  # The function holds another model than before.
    run = await local.resume(flow_with(other, "first", "second").plan, "r1", store, another)
    assert run.nodes["n"].output == "one two"
    assert asked(other) == ["second"]


async def test_a_superseded_owner_asks_no_model(store: PostgresStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writer, "_FRESH", 0.0)  # As if the node had begun a while ago.
    model = ScriptedModel({"": "answer"})

    async def ask(context: Context) -> None:
        take_away(store)
        await Agent("a", "", model=model).respond("first", gateway=gateway_of(context))

    with pytest.raises(SupersededError):
        await Flow("f", {"n": FunctionNode(ask)}).run(store=store, run_id="r1")
    assert asked(model) == []


def test_the_answer_that_is_on_record_first_is_the_one_that_counts() -> None:
    calls = [ModelCall("m", "p", "generation", (), text, key="k") for text in ("first", "late")]
    reply = Replay(calls).take_reply("k", 0)
    assert reply is not None
    assert reply.content == "first"


async def test_a_run_that_can_be_nobody_elses_asks_nobody(store: PostgresStore) -> None:
    async def look(context: Context) -> bool:
        return context.runtime.scope is not None and context.runtime.scope.fence is not None

    flow = Flow("f", {"a": FunctionNode(look)})
    assert (await flow.run()).nodes["a"].output is False
    assert (await flow.run(store=store)).nodes["a"].output is True
