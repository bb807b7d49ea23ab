"""Keys: told once, kept hashed, with flows, a rate and a day's budget that holds for all servers of a store."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from flowengine.engine.ports import JournalStore
from flowengine.errors import DefinitionError, InputError
from flowengine.journal.stores import open_store
from flowengine.web.gate.api_keys import KeyRing, RequestRates
from flowengine.web.service.day_budgets import DayBudgets, QuotaError
from flowengine.web.service.flow_service import FlowService
from flowengine.web.service.outcomes import FlowCaller
from tests.support.counted_flows import Counted


@pytest.fixture(params=["memory:", "sqlite"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[JournalStore]:
    url = f"sqlite:///{tmp_path / 'runs.db'}" if request.param == "sqlite" else request.param
    with closing(open_store(url)) as opened:
        yield opened


def test_a_key_lets_its_caller_in_until_it_is_removed(store: JournalStore):
    ring = KeyRing(store)
    key = ring.add("ann", flows=["triage"], budget_usd_day=5, requests_per_minute=60)
    other = ring.add("ben")
    ring.refresh()
    assert ring.find(key) == FlowCaller("ann", ("triage",), 5, 60)
    assert ring.find(other) == FlowCaller("ben")
    for wrong in ("", key[:-1], f"{key} ", key.upper(), "fe_", "\udc80"):
        assert ring.find(wrong) is None
    ring.remove("ann")
    ring.refresh()
    assert ring.find(key) is None
    assert [each.caller.name for each in ring.list()] == ["ben"]


def test_no_store_gives_a_key_away(tmp_path: Path):
    with closing(open_store(f"sqlite:///{tmp_path / 'runs.db'}")) as store:
        key = KeyRing(store).add("ann")
    kept = b"".join(each.read_bytes() for each in tmp_path.glob("runs.db*"))
    assert key.encode() not in kept
    assert key.split("_", 2)[2].encode() not in kept  # Its secret part, which may hold a _ too.


def test_names_of_keys_are_checked(store: JournalStore):
    ring = KeyRing(store)
    ring.add("ann")
    with pytest.raises(DefinitionError, match="there is a key 'ann' already"):
        ring.add("ann")
    with pytest.raises(DefinitionError, match="did you mean 'ann'"):
        ring.remove("anne")
    for wrong in ("", "a\nb", "x" * 201):
        with pytest.raises(InputError):
            ring.add(wrong)


def test_a_caller_asks_so_often_in_a_minute_whichever_server_it_asks(store: JournalStore):
    now = [0.5]
    here, there = RequestRates(store, lambda: now[0]), RequestRates(store, lambda: now[0])
    ann = FlowCaller("ann", requests_per_minute=2)
    here.count(ann)
    now[0] = 20.0
    there.count(ann)
    for rates in (here, there):
        with pytest.raises(QuotaError) as refused:
            rates.count(ann)
        assert refused.value.retry_after == 41  # The first second counts until all of it is a minute ago.
    here.count(FlowCaller("ben"))
    now[0] = 61.0
    there.count(ann)
    with pytest.raises(QuotaError):
        here.count(ann)


def test_what_is_kept_of_a_callers_requests_stays_small(store: JournalStore):
    now = [0.0]
    rates, ann = RequestRates(store, lambda: now[0]), FlowCaller("ann", requests_per_minute=10_000)
    for at in range(300):
        now[0] = at / 2
        rates.count(ann)
    kept = store.recall("serve.asked", "ann")
    assert (len(kept), sum(kept.values())) == (61, 122)


def test_a_day_s_budget_is_reserved_and_settled_in_the_store(store: JournalStore):
    now = [1_000_000.0]
    ann = FlowCaller("ann", budget_usd_day=1.0)
    here, there = DayBudgets(store, lambda: now[0]), DayBudgets(store, lambda: now[0])
    assert here.reserve(ann, "a", 0.7)[0] == 0.7
    assert there.reserve(ann, "a", 0.7)[0] == 0.7  # The same run once more: what it holds itself is not in its way.
    amount, day = there.reserve(ann, "b", None)
    assert amount == pytest.approx(0.03)
    assert here.reserve(ann, "c", 0.7)[0] == pytest.approx(0.27)
    with pytest.raises(QuotaError, match="are reserved for runs that go on") as soon:
        there.reserve(ann, "d", None)
    assert soon.value.retry_after == 2
    here.settle("ann", day, "a", 0.25)
    here.settle("ann", day, "a", 0.25)
    assert there.read_spending("ann") == (pytest.approx(0.25), pytest.approx(0.3))
    assert there.reserve(ann, "d", 1.0)[0] == pytest.approx(0.45)
    here.settle("ann", day, "d", 0.745)
    with pytest.raises(QuotaError, match="has spent its 1 US dollars of today") as late:
        there.reserve(ann, "f", None)
    assert late.value.retry_after > 2
    now[0] += 86_400
    assert there.reserve(ann, "e", None)[0] == pytest.approx(0.1)


async def test_a_run_may_cost_what_is_left_and_gives_back_what_it_did_not(store: JournalStore, counted: Counted):
    ann = FlowCaller("ann", budget_usd_day=1.0)
    async with FlowService(store, counted.flows) as service:
        slow = await service.start("slow", {}, caller=ann, run_key="a")
        assert store.events(slow.run_id)[0].settings["cost_usd"] == pytest.approx(0.1)  # type: ignore[union-attr]
        assert service.budgets.read_spending("ann") == (0.0, pytest.approx(0.1))
        assert not (await service.start("slow", {}, caller=ann, run_key="a")).is_new
        with pytest.raises(InputError):
            await service.start("quick", {"wrong": 1}, caller=ann)
        counted.gate.set()
        await service.wait(slow.run_id)
        await service.wait((await service.start("quick", {"text": "x"}, caller=ann)).run_id)
    async with FlowService(store, counted.flows) as service:
        last = await service.start("quick", {"text": "x"}, caller=ann)
        assert service.budgets.open_runs(ann) == [last.run_id]
