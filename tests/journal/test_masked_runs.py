"""Runs without personal data and secrets, for what leaves the machine."""

from __future__ import annotations

import pytest

from flowengine.agents.agent import Agent
from flowengine.core.context import Context, NodeResult
from flowengine.core.records import ModelCall
from flowengine.engine.events import NodeRecorded
from flowengine.engine.merging import StateKey
from flowengine.flow import Flow
from flowengine.journal.codec import encode
from flowengine.journal.memory import MemoryStore
from flowengine.journal.run_export import mask_events, store_run
from flowengine.models.scripted import ScriptedModel
from flowengine.nodes.function import FunctionNode

pytestmark = pytest.mark.anyio

SECRETS = ("ada@example.jp", "sk-proj-abcdefghijklmnop1234567890ABCDEF")


def flow() -> Flow:
    async def keep(context: Context) -> NodeResult:
        return NodeResult({"to": [SECRETS[0]]}, {"note": SECRETS[1]})

    async def fail(context: Context) -> None:
        raise ValueError(f"refused for {SECRETS[0]}")

    agent = Agent("ask", f"Write to {SECRETS[0]}.", model=ScriptedModel([f"Use {SECRETS[1]}"]))
    nodes = {"ask": agent, "keep": FunctionNode(keep), "bad": FunctionNode(fail, on_error="skip")}
    return Flow("f", nodes, shared_state={"note": StateKey("")})


async def test_nothing_that_was_said_is_left_and_the_shape_of_the_run_is():
    run = await flow().run({"mail": SECRETS[0]})
    hidden = list(mask_events(run.events))
    text = "\n".join(map(encode, hidden))
    assert not [secret for secret in SECRETS if secret in text]
    assert "<MAIL:" in text
    assert "<KEY:" in text
    assert [type(event) for event in hidden] == [type(event) for event in run.events]
    assert [getattr(event, "node", None) for event in hidden] == [getattr(event, "node", None) for event in run.events]
    assert len({part[:8] for part in text.split("<MAIL:")[1:]}) == 1


async def test_a_masked_run_is_a_run():
    run = await flow().run()
    store = MemoryStore()
    await store_run(store, list(mask_events(run.events)))
    assert [info.status for info in store.list()] == [run.status]


def test_a_vector_says_too_much_of_its_text() -> None:
    call = ModelCall("m", "p", "embedding", [{"role": "user", "content": SECRETS[0]}], "", vectors=["AACAPwAAAD8="])
    (hidden,) = mask_events([NodeRecorded("ask", 1.0, call)])
    assert isinstance(hidden, NodeRecorded)
    assert hidden.record.vectors == ()
    assert "AACAPwAAAD8=" in encode(NodeRecorded("ask", 1.0, call))
