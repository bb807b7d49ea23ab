"""A flow run over rows: results in the rows' order, and a set that goes on where it was."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import aclosing
from typing import Any

import anyio
import anyio.lowlevel
import pytest

from flowengine import Agent, Flow, FunctionNode, RowResult
from flowengine.core.budget import Budget
from flowengine.core.context import Context
from flowengine.errors import FlowChangedError, InputError, JournalError
from flowengine.journal.memory import MemoryJournal, MemoryStore
from flowengine.models.model import Reply, TokenUsage
from flowengine.models.pricing import Price
from flowengine.models.scripted import ScriptedModel
from flowengine.models.wrappers.priced import PricedModel
from flowengine.runtime.local.row_runs import RowSet, open_row_set

calls: list[int] = []


@pytest.fixture(autouse=True)
def _no_calls() -> None:
    calls.clear()


async def work(context: Context) -> int:
    n: int = context.inputs["n"]
    calls.append(n)
    for _ in range(7 - n % 7):  # The first one of seven is the last one to end.
        await anyio.lowlevel.checkpoint()
    if n in broken:
        raise ValueError("broken")
    return n * n


broken: set[int] = set()
FLOW = Flow("square", {"work": FunctionNode(work)}, inputs={"n": "integer"})
OTHER = Flow("square", {"work": FunctionNode(lambda context: 0)}, inputs={"n": "integer"})


def rows(count: int) -> list[Mapping[str, Any]]:
    return [{"n": n} for n in range(count)]


async def collect(results: AsyncIterator[RowResult]) -> list[RowResult]:
    return [each async for each in results]


async def test_results_come_in_the_order_of_the_rows() -> None:
    found = await collect(FLOW.run_many(rows(50), concurrency=8))
    assert [each.outputs["work"] for each in found] == [n * n for n in range(50)]
    assert [each.row.number for each in found] == list(range(1, 51))


async def test_rows_may_come_one_by_one_and_runs_have_labels() -> None:
    async def later() -> AsyncIterator[Mapping[str, Any]]:
        for row in rows(3):
            await anyio.lowlevel.checkpoint()
            yield row

    store = MemoryStore()
    await collect(FLOW.run_many(later(), store=store, name="march", labels={"team": "a"}))
    labels = sorted((each.labels["data"], each.labels["row"], each.labels["team"]) for each in store.list())
    assert labels == [("march", "1", "a"), ("march", "2", "a"), ("march", "3", "a")]


async def test_a_set_goes_on_where_it_was() -> None:
    store = MemoryStore()
    async with aclosing(FLOW.run_many(rows(20), store=store, name="set", concurrency=2)) as results:
        async for result in results:
            if result.row.number == 5:
                break
    before = len(calls)
    assert before < 20
    found = await collect(FLOW.run_many(rows(20), store=store, name="set", concurrency=2))
    assert [each.outputs["work"] for each in found] == [n * n for n in range(20)]
    assert [each.was_there for each in found[:5]] == [True] * 5
    finished = {each.run_id for each in found if each.was_there}
    assert len(calls) - before == 20 - len(finished)
    assert len(store.list()) == 20


async def test_equal_rows_are_runs_of_their_own_and_find_themselves_again() -> None:
    store = MemoryStore()
    first = await collect(FLOW.run_many([{"n": 3}, {"n": 3}], store=store, name="set"))
    again = await collect(FLOW.run_many([{"n": 4}, {"n": 3}, {"n": 3}], store=store, name="set"))
    assert first[0].run_id != first[1].run_id
    assert [each.run_id for each in again[1:]] == [each.run_id for each in first]
    assert calls == [3, 3, 4]


async def test_failures_stay_in_their_place_until_they_are_asked_for_again() -> None:
    store = MemoryStore()
    broken.update({1, 2})
    try:
        found = await collect(FLOW.run_many([*rows(3), {"n": "x"}, {}], store=store, name="set"))
    finally:
        broken.clear()
    assert [each.status for each in found] == ["succeeded", "failed", "failed", "refused", "refused"]
    assert [each.node for each in found[1:3]] == ["work", "work"]
    errors = [each.error.message for each in found if each.error is not None]
    assert errors[2] == "input 'n': expected integer, found str 'x'"
    again = await collect(FLOW.run_many(rows(3), store=store, name="set"))
    assert [each.status for each in again] == ["succeeded", "failed", "failed"]
    assert len(calls) == 3
    mended = await collect(FLOW.run_many(rows(3), store=store, name="set", retry_failed=True))
    assert [each.outputs["work"] for each in mended] == [0, 1, 4]
    assert sorted(calls[3:]) == [1, 2]


async def test_an_edited_flow_does_not_go_on_with_a_set_unless_it_begins_anew() -> None:
    store = MemoryStore()
    await collect(FLOW.run_many(rows(2), store=store, name="set"))
    with pytest.raises(FlowChangedError, match="was edited since its runs over 'set' began"):
        await collect(OTHER.run_many(rows(2), store=store, name="set"))
    fresh = await collect(OTHER.run_many(rows(2), store=store, name="set", fresh=True))
    assert not any(each.was_there for each in fresh)


async def test_a_budget_of_all_rows_pauses_those_in_flight_and_begins_no_other() -> None:
    model = PricedModel(
        ScriptedModel(lambda request: Reply("x", usage=TokenUsage(100, 100)), latency=0.001), Price(1000.0, 1000.0)
    )
    flow = Flow("ask", {"ask": Agent("writer", "Answer.", model=model, max_tokens=200)})
    store, budget = MemoryStore(), Budget(cost_usd=1.0)
    found = await collect(flow.run_many([{"n": n} for n in range(30)], store=store, name="set", budget=budget))
    statuses = [each.status for each in found]
    assert set(statuses) == {"succeeded", "paused"}
    assert len(found) < 30
    spent = sum(each.spent.cost_usd for each in found)
    assert 0.5 < spent <= 1.0
    rest = await collect(flow.run_many([{"n": n} for n in range(30)], store=store, name="set"))
    assert [each.status for each in rest] == ["succeeded"] * 30
    assert sum(each.spent.model_calls for each in rest) == 30
    assert sum(not each.was_there for each in rest) == 30 - statuses.count("succeeded")


class Full(MemoryStore):
    def create(self, run_id: str, /) -> MemoryJournal:
        raise JournalError("the disk is full")


async def test_a_store_that_takes_nothing_ends_it_with_one_error() -> None:
    with pytest.raises(JournalError, match="the disk is full"):
        await collect(FLOW.run_many(rows(5), store=Full()))


async def test_a_set_without_a_store_keeps_no_run_that_was_given_out() -> None:
    def forever() -> Iterator[Mapping[str, Any]]:
        n = 0
        while True:
            yield {"n": (n := n + 1)}

    seen: list[RowResult] = []
    async with aclosing(FLOW.run_many(forever(), concurrency=3)) as results:
        async for result in results:
            assert result.run is not None
            assert len(result.run.events) > 2
            seen.append(result)
            if len(seen) == 5:
                break
    with pytest.raises(JournalError):
        _ = seen[0].run and seen[0].run.events


async def test_of_two_that_begin_a_set_at_once_one_goes_on_with_the_others() -> None:
    begun: list[RowSet] = []

    class Crowded(MemoryStore):
        """Somebody else is a moment faster."""

        def revise(self, kind: str, key: str, change: Any, /) -> None:
            if not begun:
                begun.append(RowSet("", ""))
                begun[0] = open_row_set(FLOW.plan, self, "data.csv", "all of it")
            super().revise(kind, key, change)

    assert open_row_set(FLOW.plan, Crowded(), "data.csv", "all of it").id == begun[0].id


async def test_no_row_at_once_is_refused() -> None:
    with pytest.raises(InputError, match="at least one row"):
        await collect(FLOW.run_many(rows(1), concurrency=0))


@pytest.mark.anyio
@pytest.mark.filterwarnings("ignore:Async generator")  # Trio says so of every one that is left.
@pytest.mark.parametrize("leaves", ["by a break", "by an error"])
async def test_a_reader_that_leaves_early_without_closing_goes_on_itself_and_the_rows_end(leaves: str):
    ended = anyio.Event()

    async def work(context: Context) -> int:
        if context.inputs["n"]:
            try:
                await anyio.sleep_forever()
            finally:
                ended.set()
        return 0

    async def read() -> None:
        async for _ in Flow("f", {"a": FunctionNode(work)}, inputs={"n": "integer"}).run_many(
            {"n": n} for n in range(3)
        ):
            if leaves == "by an error":
                raise ValueError("the reader's")
            break

    with contextlib.suppress(ValueError):
        await read()
    with anyio.fail_after(60):
        await ended.wait()
    await anyio.sleep(0.01)  # The reader's own task is not cancelled.
