"""The gateway of a node's agent: which listeners get which records, and what is served without a record."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import anyio
import pytest

from flowengine.agents.agent import Agent
from flowengine.agents.standalone import DirectGateway
from flowengine.core.budget import Budget, Ledger, Spending
from flowengine.core.context import Context, GivenRuntime
from flowengine.core.records import ModelCall, Notice, ToolCall, usage_of
from flowengine.core.run_scope import RunScope
from flowengine.engine.events import NodeRecorded
from flowengine.errors import LimitError, PermanentModelError
from flowengine.flow import Flow
from flowengine.journal.recorded_gateway import RecordedGateway
from flowengine.journal.sqlite.store import SQLiteStore
from flowengine.models.messages import Message, ToolRequest
from flowengine.models.model import Reply, Request
from flowengine.models.model import TokenUsage as Counted
from flowengine.models.pricing import Price
from flowengine.models.scripted import ScriptedModel
from flowengine.models.wrappers.priced import PricedModel
from flowengine.models.wrappers.retrying import FallbackModel
from flowengine.nodes.agent import AgentNode
from flowengine.nodes.gateway import gateway_of, telling_gateway_of

ASKED = Request("scripted", (Message("user", "Why?"),))


class Run:
    """What the contexts of one node share: its records and what it told."""

    def __init__(self) -> None:
        self.records: list[Any] = []
        self.told: list[str] = []

    def context(self, **more: Any) -> Context:
        parts = {"note": self._note, "tell": self._tell, "recorded": list(self.records), **more}
        return Context(runtime=GivenRuntime(**parts))

    async def _note(self, record: Any) -> None:
        self.records.append(record)

    def _tell(self, text: str, begins: bool = False, model: str = "", /) -> None:
        if not model:  # Who is asked is none of the text.
            self.told.append(f"|{text}" if begins else text)


@pytest.fixture
def run() -> Run:
    return Run()


async def test_where_nobody_listens_the_gateway_is_the_plain_one(run: Run) -> None:
    silent = run.context(tell=None)
    assert type(telling_gateway_of(silent)) is type(gateway_of(silent)) is DirectGateway
    recorded = run.context(tell=None, recorded=[ModelCall("m", "p", "generation", [], "x")])
    assert type(telling_gateway_of(recorded)) is RecordedGateway


async def test_free_text_is_told_and_a_shape_is_not(run: Run) -> None:
    gateway, model = telling_gateway_of(run.context()), ScriptedModel(["one two", '{"n": 1}'])
    await gateway.complete(model, ASKED, purpose="generation")
    shaped = Request("scripted", ASKED.messages, response_schema={"type": "object"})
    await gateway.complete(model, shaped, purpose="evaluation")
    assert run.told == ["|one ", "two"]
    assert [record.content for record in run.records] == ["one two", '{"n": 1}']


async def test_what_was_recorded_is_served_in_silence(run: Run) -> None:
    def look() -> str:
        return "sencha"

    agent = Agent("a", "", model=ScriptedModel([ToolRequest("1", "look", "{}"), "It is sencha."]), tools=[look])
    await agent.respond("x", gateway=telling_gateway_of(run.context()))
    assert run.told == ["|It ", "is ", "sencha."]
    before = list(run.records)
    assert [type(each) for each in before] == [ModelCall, ToolCall, ModelCall]
    again = Agent("a", "", model=ScriptedModel([]), tools=[look])
    response = await again.respond("x", gateway=telling_gateway_of(run.context()))
    assert str(response.result) == "It is sencha."
    assert run.told == ["|It ", "is ", "sencha."]
    assert run.records == before


# --- under a ledger -------------------------------------------------------------------------------

REPLY = Reply("Because.", usage=Counted(50, 20), cost_usd=0.1)


async def test_a_run_without_limits_has_no_ledger_to_pass(run: Run) -> None:
    assert type(gateway_of(run.context())) is DirectGateway


async def test_a_call_is_settled_and_recorded_as_it_was_asked(run: Run) -> None:
    ledger = Ledger(Budget(cost_usd=1.0))
    await gateway_of(run.context(ledger=ledger)).complete(ScriptedModel([REPLY]), ASKED, purpose="generation")
    (record,) = (each for each in run.records if type(each) is ModelCall)
    assert record.key == ASKED.key()
    assert record.request == {"model": "scripted"}
    assert ledger.spent == Spending(1, 70, 0.1)


async def test_a_call_beyond_the_limit_is_neither_made_nor_recorded(run: Run) -> None:
    model = ScriptedModel([REPLY])
    gateway = gateway_of(run.context(ledger=Ledger(Budget(tokens=10))))
    with pytest.raises(LimitError):
        await gateway.complete(model, ASKED, purpose="generation")
    assert (model.requests, run.records) == ([], [])


async def test_what_a_refusal_took_is_settled_and_on_record(run: Run) -> None:
    refusal = PermanentModelError("refused")
    refusal.reply = REPLY
    ledger = Ledger(Budget(tokens=10_000))
    with pytest.raises(PermanentModelError):
        await gateway_of(run.context(ledger=ledger)).complete(ScriptedModel([refusal]), ASKED, purpose="generation")
    (record,) = run.records
    assert (record.error, record.content, record.prompt_tokens, record.cost_usd) == ("refused", "", 50, 0.1)
    assert ledger.spent == usage_of(record) == Spending(1, 70, 0.1)


async def test_what_refusals_took_is_on_record_where_a_limit_ends_their_call(run: Run) -> None:
    refusal = PermanentModelError("refused")
    refusal.reply = REPLY
    ledger, last = Ledger(Budget(tokens=4200)), ScriptedModel([REPLY])
    model = FallbackModel([ScriptedModel([refusal]), last])
    with pytest.raises(LimitError):
        await gateway_of(run.context(ledger=ledger)).complete(model, ASKED, purpose="generation")
    (record,) = run.records
    assert "has a limit of" in record.error
    assert ledger.spent == usage_of(record) == Spending(1, 70, 0.1)
    assert last.requests == []


@pytest.mark.parametrize("cost_usd", [-1.0, float("nan"), float("inf")])
async def test_a_cost_that_is_none_is_unknown_on_record_too(run: Run, cost_usd: float) -> None:
    ledger = Ledger(Budget(tokens=10_000))
    model = ScriptedModel([REPLY._replace(cost_usd=cost_usd)])
    await gateway_of(run.context(ledger=ledger)).complete(model, ASKED, purpose="generation")
    (record,) = run.records
    assert record.cost_usd is None
    assert ledger.spent == usage_of(record) == Spending(1, 70, unpriced_calls=1)


async def test_what_was_recorded_is_neither_reserved_nor_charged_again(run: Run) -> None:
    first = Ledger(Budget(tokens=10_000, cost_usd=1.0))
    await gateway_of(run.context(ledger=first)).complete(ScriptedModel([REPLY]), ASKED, purpose="generation")
    second = Ledger(Budget(tokens=10_000, cost_usd=1.0))
    gateway = gateway_of(run.context(ledger=second))
    served = await gateway.complete(ScriptedModel([]), ASKED, purpose="generation")
    assert (served.content, second.spent) == ("Because.", Spending())
    await gateway.complete(ScriptedModel([REPLY]), ASKED, purpose="generation")  # Asked once more than before.
    assert second.spent == Spending(1, 70, 0.1)
    assert [each.occurrence for each in run.records if type(each) is ModelCall] == [0, 1]


async def test_under_limits_too_an_answer_is_told_while_it_is_written(run: Run) -> None:
    ledger = Ledger(Budget(model_calls=1))
    gateway = telling_gateway_of(run.context(ledger=ledger))
    await gateway.complete(ScriptedModel(["one two"]), ASKED, purpose="generation")
    assert run.told == ["|one ", "two"]
    assert ledger.spent.model_calls == 1


async def test_tools_and_notes_pass_a_ledger_by(run: Run) -> None:
    def look() -> str:
        return "sencha"

    ledger = Ledger(Budget(model_calls=2))
    agent = Agent("a", "", model=ScriptedModel([ToolRequest("1", "look", "{}"), "It is sencha."]), tools=[look])
    await agent.respond("x", gateway=gateway_of(run.context(ledger=ledger)))
    assert [type(each) for each in run.records] == [ModelCall, ToolCall, ModelCall]
    assert ledger.spent.model_calls == 2


async def test_an_unknown_price_is_said_once_in_a_run(run: Run) -> None:
    async with RunScope() as scope:
        ledger = Ledger(Budget(cost_usd=1.0))
        for name in ("one", "two", "two"):
            model = ScriptedModel([REPLY, REPLY], name=name)
            gateway = gateway_of(run.context(ledger=ledger, scope=scope, recorded=()))
            await gateway.complete(model, ASKED, purpose="generation")
            await gateway.complete(model, ASKED, purpose="generation")
    notices = [each.text for each in run.records if type(each) is Notice]
    assert ["scripted/one" in notices[0], "scripted/two" in notices[1], len(notices)] == [True, True, 2]


@pytest.mark.parametrize("bounds", [Budget(cost_usd=0.05), Budget(tokens=20_000), Budget(model_calls=50)])
async def test_two_hundred_branches_at_once_do_not_overshoot(run: Run, bounds: Budget) -> None:
    """Each may take up to its `max_tokens`, and takes anything up to that."""
    price, chance = Price(input=1.0, output=10.0), random.Random(7)
    billed: list[Spending] = []

    def answer(request: Request) -> Reply:
        assert request.max_tokens is not None
        counted = Counted(20, chance.choice([10, 40, request.max_tokens]))
        billed.append(Spending(1, sum(each or 0 for each in counted), price.of(20, counted.completion_tokens or 0)))
        return Reply("x", usage=counted)

    model = PricedModel(ScriptedModel(answer, latency=0.001), price)
    ledger = Ledger(bounds)
    refused: list[LimitError] = []

    async def branch(number: int) -> None:
        context = run.context(ledger=Ledger(Budget(model_calls=3), above=ledger), recorded=())
        asked = Request("scripted", (Message("user", f"Question {number}?"),), max_tokens=200)
        try:
            await gateway_of(context).complete(model, asked, purpose="generation")
        except LimitError as error:
            refused.append(error)

    async with anyio.create_task_group() as tasks:
        for number in range(200):
            tasks.start_soon(branch, number)

    calls, tokens, cost = (sum(amounts) for amounts in list(zip(*billed, strict=True))[:3])
    assert calls + len(refused) == 200
    assert refused
    assert bounds.cost_usd is None or 0.9 * bounds.cost_usd < cost <= bounds.cost_usd
    assert bounds.tokens is None or 0.9 * bounds.tokens < tokens <= bounds.tokens
    assert bounds.model_calls is None or calls == bounds.model_calls
    assert (ledger.spent.tokens, ledger.reserved) == (tokens, Spending())


async def test_an_answer_is_kept_with_the_end_of_its_node_unless_something_may_come_between(tmp_path: Path) -> None:
    seen: list[list[str]] = []

    def look(*_: Any) -> bool:
        """What another process reads."""
        other = SQLiteStore(tmp_path / "runs.db")
        seen.append([type(each.record).__name__ for each in other.events("r") if isinstance(each, NodeRecorded)])
        other.close()
        return True

    class Watched(ScriptedModel):
        async def complete(self, request: Request) -> Reply:
            look()
            return await super().complete(request)

    def shout(text: str) -> str:
        look()
        return text.upper()

    def agent(answers: list[Any], **more: Any) -> AgentNode:
        return AgentNode(Agent("a", "Say it.", model=Watched(answers), **more))

    scores = {"accuracy": 1.0, "relevance": 1.0, "completeness": 1.0}
    verdict = json.dumps({"score": 1.0, "feedback": "", "passed": True, "criteria_scores": scores})
    asks = Reply("", tool_calls=(ToolRequest("1", "shout", '{"text": "tea"}'),))
    cases = [
        (agent(["Tea."]), [[]]),
        (agent(["Tea."], output_guardrails=[look]), [[], ["ModelCall"]]),
        (agent([asks, "Tea."], tools=[shout]), [[], ["ModelCall"], ["ModelCall", "ToolCall"]]),
        (agent(["no JSON", '{"a": 1}'], output_model={"type": "object"}), [[], ["ModelCall"]]),
        (agent(["Tea.", verdict], evaluation_instructions="Judge."), [[], ["ModelCall"]]),
    ]
    for node, expected in cases:
        store = SQLiteStore(tmp_path / "runs.db", "full")
        run = await Flow("f", {"n": node}).run(store=store, run_id="r")
        assert run.status == "succeeded", run.error
        assert seen == expected
        store.remove("r")
        store.close()
        seen.clear()
