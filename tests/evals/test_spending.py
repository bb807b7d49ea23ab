"""What runs have spent, by what they are summed up by."""

from __future__ import annotations

import pytest

from flowengine import Agent, Flow
from flowengine.engine.restoring import History
from flowengine.errors import InputError, JournalError, TransientModelError
from flowengine.evals.spending import parse_dimensions, spending_of
from flowengine.journal.memory import MemoryStore
from flowengine.models.model import Reply, Request, TokenUsage
from flowengine.models.pricing import Price
from flowengine.models.scripted import ScriptedModel
from flowengine.models.wrappers.priced import PricedModel
from flowengine.models.wrappers.retrying import RetryingModel
from flowengine.nodes.agent import AgentNode
from flowengine.nodes.map import MapNode


def answer(request: Request) -> Reply:
    if "free" in request.messages[-1].content:
        return Reply("x", usage=TokenUsage(10, 5))
    return Reply("x", usage=TokenUsage(100, 20, 60), cost_usd=0.01)


def refuse(run_id: str, error: JournalError) -> None:
    raise error


def flow(name: str) -> Flow:
    agent = Agent("writer", "Answer.", model=ScriptedModel(answer))
    each = MapNode({"ask": AgentNode(agent, prompt=lambda context: "paid")}, over=lambda context: [1, 2])
    return Flow(name, {"free": AgentNode(agent, prompt=lambda context: "free"), "each": each})


@pytest.fixture
async def store() -> MemoryStore:
    kept = MemoryStore()
    await flow("one").run(store=kept, run_id="a", labels={"team": "x", "row": "1"})
    await flow("one").run(store=kept, run_id="b", labels={"team": "y", "row": "2"})
    await flow("other").run(store=kept, run_id="c", reuse=None)
    await flow("one").run(store=kept, run_id="d", reuse="a", labels={"team": "x"})
    return kept


async def test_items_of_a_map_are_one_node_and_results_of_other_runs_cost_nothing(store: MemoryStore) -> None:
    rows, whole = spending_of(store, store.list(), ["flow", "node"], refuse)
    found = {tuple(row.group): row for row in rows}
    each = found["one", "each.ask"]
    assert (each.calls, each.runs, round(each.cost_usd, 9)) == (4, {"a", "b"}, 0.04)
    assert (each.tokens_in, each.tokens_cached, each.tokens_out) == (160, 240, 80)
    assert found["one", "free"].unpriced == 2
    assert next(tuple(row.group) for row in rows) == ("one", "each.ask")  # The dearest first.
    assert (whole.calls, len(whole.runs)) == (9, 3)


async def test_labels_of_single_rows_do_not_tell_groups_apart(store: MemoryStore) -> None:
    rows, _ = spending_of(store, store.list(), ["label"], refuse)
    assert sorted(row.group[0] for row in rows) == ["", "team=x", "team=y"]
    rows, _ = spending_of(store, store.list(), ["label:team"], refuse)
    assert sorted(row.group[0] for row in rows) == ["", "x", "y"]


async def test_a_run_whose_clock_was_never_right_has_no_day(store: MemoryStore) -> None:
    runs = [each._replace(started=1e20) for each in store.list()]
    rows, _ = spending_of(store, runs, ["day"], refuse)
    assert [row.group[0] for row in rows] == [""]


async def test_a_run_that_was_removed_meanwhile_is_left_out(store: MemoryStore) -> None:
    runs = store.list()
    store.remove("a")
    _, whole = spending_of(store, runs, ["flow"], refuse)
    assert whole.runs == {"b", "c"}


@pytest.mark.parametrize("text", ["", "flow,flow", "colour"])
def test_a_dimension_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(InputError):
        parse_dimensions(text)


async def test_what_may_be_billed_is_apart_from_the_cost_and_counts_for_the_limits_of_what_goes_on() -> None:
    def answer(request: Request) -> Reply | Exception:
        late = TransientModelError("too late")
        late.is_timeout, late.unanswered = True, 1
        return late if len(scripted.requests) == 1 else Reply("x", usage=TokenUsage(100, 20))

    scripted = ScriptedModel(answer)
    model = RetryingModel(PricedModel(scripted, Price(10.0, 50.0)), first_wait=0.0)
    kept = MemoryStore()
    await Flow("late", {"ask": AgentNode(Agent("a", "Answer.", model=model, max_tokens=50))}).run(
        store=kept, run_id="r"
    )
    ((row,), _) = spending_of(kept, kept.list(), ["flow"], refuse)
    assert (row.calls, row.unanswered, row.cost_usd) == (1, 1, 0.002)
    assert row.may_be_billed_usd > 50 * 50.0 / 1e6
    spent = History(kept.events("r")).sum_spending()
    assert spent.model_calls == 2
    assert spent.cost_usd == pytest.approx(row.cost_usd + row.may_be_billed_usd)
