"""The ledger: what is let through, what waits, what is refused; alone and under a storm of calls."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, NamedTuple

import anyio
import anyio.lowlevel
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flowengine.core.budget import Budget, Ledger, Reservation, Spending
from flowengine.errors import LimitError

pytestmark = pytest.mark.anyio


def used(ledger: Ledger) -> tuple[Spending, Spending]:
    return ledger.spent, ledger.reserved


async def test_a_reservation_is_held_in_every_ledger_up_to_the_run_and_settled_there() -> None:
    run = Ledger(Budget(cost_usd=1.0))
    loop = Ledger(Budget(tokens=1000), above=run)
    node = Ledger(Budget(model_calls=2), above=loop)
    reservation = await node.reserve(tokens=300, cost_usd=0.25)
    assert [used(each) for each in (run, loop, node)] == [(Spending(), Spending(1, 300, 0.25))] * 3
    reservation.settle(Spending(1, 120, 0.1))
    assert [used(each) for each in (run, loop, node)] == [(Spending(1, 120, 0.1), Spending())] * 3


async def test_settling_and_releasing_count_once() -> None:
    ledger = Ledger(Budget(tokens=100))
    settled, released = await ledger.reserve(tokens=10, cost_usd=0), await ledger.reserve(tokens=10, cost_usd=0)
    settled.settle(Spending(1, 5))
    settled.release()
    settled.settle(Spending(1, 5))
    released.release()
    released.settle(Spending(1, 5))
    assert used(ledger) == (Spending(1, 5), Spending())


async def test_a_call_whose_end_nobody_saw_may_count_in_full() -> None:
    ledger = Ledger(Budget(tokens=100))
    (await ledger.reserve(tokens=60, cost_usd=None)).settle_in_full()
    assert used(ledger) == (Spending(1, 60, 0.0, 1), Spending())


async def test_a_widened_reservation_stays_one_call_and_is_given_back_whole() -> None:
    run = Ledger(Budget(tokens=100, model_calls=1))
    node = Ledger(Budget(cost_usd=1.0), above=run)
    reservation = await node.reserve(tokens=40, cost_usd=0.5)
    for _ in range(2):  # In all, so that saying it again asks for nothing.
        reservation.widen(tokens=70, cost_usd=0.4)
        assert node.reserved == run.reserved == Spending(1, 70, 0.5)
    reservation.settle(Spending(1, 65, 0.1))
    reservation.widen(tokens=90, cost_usd=0.4)
    assert used(node) == used(run) == (Spending(1, 65, 0.1), Spending())


async def test_what_does_not_fit_beside_others_is_no_part_of_a_widened_reservation_and_does_not_wait() -> None:
    run = Ledger(Budget(tokens=100))
    node = Ledger(Budget(model_calls=1), above=run)
    reservation, other = await node.reserve(tokens=40, cost_usd=0), await run.reserve(tokens=40, cost_usd=0)
    with pytest.raises(
        LimitError, match="100 tokens: 0 tokens spent, and the next call could take 30 tokens"
    ) as caught:
        reservation.widen(tokens=70, cost_usd=0)
    assert caught.value.ledger is run
    assert (node.reserved.tokens, run.reserved.tokens) == (40, 80)
    other.release()
    reservation.widen(tokens=100, cost_usd=0)
    reservation.settle_in_full()
    assert used(run) == (Spending(1, 100), Spending())


async def test_what_does_not_fit_beside_what_was_spent_is_refused_with_all_there_is_to_know() -> None:
    ledger = Ledger(Budget(cost_usd=0.5), of="node 'review'", part="review", on_limit="partial")
    (await ledger.reserve(tokens=1, cost_usd=0.4)).settle(Spending(1, 1, 0.4))
    with pytest.raises(LimitError) as caught:
        await ledger.reserve(tokens=1, cost_usd=0.2)
    assert str(caught.value) == (
        "node 'review' has a limit of 0.5 USD: 0.4 USD spent, and the next call could take 0.2 USD"
    )
    error = caught.value
    assert (error.of, error.part, error.limit, error.on_limit) == ("node 'review'", "review", "cost_usd", "partial")
    assert error.ledger is ledger


@pytest.mark.parametrize(
    ("bounds", "limit", "told"),
    [
        (Budget(tokens=1500), "tokens", "1,500 tokens: 1,200 tokens spent, and the next call could take 1,200 tokens"),
        (Budget(model_calls=1), "model_calls", "1 model call: 1 model call made, and there is one more to make"),
    ],
)
async def test_every_limit_is_told_in_its_own_unit(bounds: Budget, limit: str, told: str) -> None:
    ledger = Ledger(bounds)
    (await ledger.reserve(tokens=1200, cost_usd=0)).settle(Spending(1, 1200))
    with pytest.raises(LimitError, match=told) as caught:
        await ledger.reserve(tokens=1200, cost_usd=0)
    assert caught.value.limit == limit


async def test_the_nearest_part_that_refuses_is_named() -> None:
    run = Ledger(Budget(tokens=10))
    node = Ledger(Budget(tokens=5), of="the node", above=run)
    with pytest.raises(LimitError) as caught:
        await node.reserve(tokens=20, cost_usd=0)
    assert caught.value.ledger is node
    with pytest.raises(LimitError) as caught:
        await Ledger(Budget(tokens=50), above=run).reserve(tokens=20, cost_usd=0)
    assert caught.value.ledger is run


async def test_nothing_is_held_below_where_a_call_is_refused_above() -> None:
    run = Ledger(Budget(tokens=10))
    node = Ledger(Budget(tokens=50), above=run)
    with pytest.raises(LimitError):
        await node.reserve(tokens=20, cost_usd=0)
    assert used(node) == used(run) == (Spending(), Spending())


async def test_the_last_cent_may_be_spent() -> None:
    ledger = Ledger(Budget(cost_usd=0.3, tokens=30, model_calls=3))
    for _ in range(3):  # 0.1 + 0.1 + 0.1 > 0.3 in floating point.
        (await ledger.reserve(tokens=10, cost_usd=0.1)).settle(Spending(1, 10, 0.1))
    assert ledger.spent == Spending(3, 30, 0.3)


async def test_a_call_of_unknown_price_is_kept_by_its_tokens_alone() -> None:
    ledger = Ledger(Budget(cost_usd=0.01, tokens=100))
    (await ledger.reserve(tokens=60, cost_usd=None)).settle(Spending(1, 60, 0.0, 1))
    with pytest.raises(LimitError, match="tokens"):
        await ledger.reserve(tokens=60, cost_usd=None)
    assert ledger.spent == Spending(1, 60, 0.0, 1)


async def test_what_was_paid_before_counts_even_beyond_the_bound() -> None:
    run = Ledger(Budget(tokens=100))
    node = Ledger(Budget(model_calls=9), above=run)
    node.charge(Spending(3, 140, 0.5, 1))
    assert run.spent == node.spent == Spending(3, 140, 0.5, 1)
    with pytest.raises(LimitError):
        await node.reserve(tokens=0, cost_usd=0)


@pytest.mark.parametrize("bounds", [Budget(cost_usd=-1.0), Budget(cost_usd=float("nan"))])
def test_an_amount_of_money_is_a_number(bounds: Budget) -> None:
    with pytest.raises(ValueError, match="amount of money"):
        Ledger(bounds)


def test_whether_a_call_can_ever_fit_is_asked_of_the_whole_line() -> None:
    run = Ledger(Budget(tokens=100))
    node = Ledger(Budget(cost_usd=1.0), above=run)
    node.charge(Spending(1, 40, 0.6))
    assert node.can_ever_fit(tokens=60, cost_usd=0.4)
    assert not node.can_ever_fit(tokens=61, cost_usd=0.4)
    assert not node.can_ever_fit(tokens=60, cost_usd=0.5)
    assert run.can_ever_fit(tokens=60, cost_usd=0.5)
    assert node.can_ever_fit(tokens=60, cost_usd=None)


def test_a_ledger_says_what_is_bounded_here_or_above() -> None:
    node = Ledger(Budget(model_calls=3), above=Ledger(Budget(cost_usd=1.0)))
    assert node.bounds_any("cost_usd", "tokens")
    assert node.bounds_any("model_calls")
    assert not node.bounds_any("tokens")


# --- waiting --------------------------------------------------------------------------------------


class Queue:
    """Calls that ask one after the other, and what became of each."""

    def __init__(self, tasks: Any) -> None:
        self._tasks = tasks
        self.passed: list[str] = []
        self.held: dict[str, Reservation] = {}
        self.refused: list[str] = []
        self.scopes: dict[str, anyio.CancelScope] = {}

    async def ask(self, name: str, ledger: Ledger, tokens: int) -> None:
        async def call() -> None:
            with anyio.CancelScope() as self.scopes[name]:
                try:
                    self.held[name] = await ledger.reserve(tokens=tokens, cost_usd=0)
                    self.passed.append(name)
                except LimitError:
                    self.refused.append(name)

        self._tasks.start_soon(call)
        await anyio.wait_all_tasks_blocked()

    async def settle(self, name: str, tokens: int) -> None:
        self.held.pop(name).settle(Spending(1, tokens))
        await anyio.wait_all_tasks_blocked()


async def test_a_call_waits_while_others_may_settle_for_less() -> None:
    ledger = Ledger(Budget(tokens=100))
    async with anyio.create_task_group() as tasks:
        queue = Queue(tasks)
        await queue.ask("a", ledger, 80)
        await queue.ask("b", ledger, 80)
        assert queue.passed == ["a"]
        await queue.settle("a", 20)
        assert queue.passed == ["a", "b"]


async def test_it_is_refused_once_they_have_not() -> None:
    ledger = Ledger(Budget(tokens=100))
    async with anyio.create_task_group() as tasks:
        queue = Queue(tasks)
        await queue.ask("a", ledger, 80)
        await queue.ask("b", ledger, 80)
        await queue.settle("a", 30)
        assert (queue.passed, queue.refused) == (["a"], ["b"])


async def test_nobody_is_overtaken_on_one_ledger() -> None:
    ledger = Ledger(Budget(tokens=100))
    async with anyio.create_task_group() as tasks:
        queue = Queue(tasks)
        await queue.ask("first", ledger, 60)
        await queue.ask("big", ledger, 90)
        await queue.ask("small", ledger, 20)
        assert queue.passed == ["first"]
        await queue.settle("first", 0)
        assert queue.passed == ["first", "big"]
        await queue.settle("big", 0)
        assert queue.passed == ["first", "big", "small"]


async def test_who_waits_in_one_part_holds_up_no_other_part() -> None:
    run = Ledger(Budget(tokens=1000))
    one, other = Ledger(Budget(tokens=50), above=run), Ledger(Budget(tokens=50), above=run)
    async with anyio.create_task_group() as tasks:
        queue = Queue(tasks)
        await queue.ask("one", one, 40)
        await queue.ask("waits", one, 40)
        await queue.ask("other", other, 40)
        assert queue.passed == ["one", "other"]
        await queue.settle("one", 0)
        assert queue.passed == ["one", "other", "waits"]


async def test_a_part_that_moves_on_to_the_runs_queue_keeps_its_place() -> None:
    run = Ledger(Budget(tokens=100))
    part = Ledger(Budget(tokens=60), above=run)
    async with anyio.create_task_group() as tasks:
        queue = Queue(tasks)
        await queue.ask("part", part, 60)
        await queue.ask("run", run, 40)
        await queue.ask("earlier", part, 50)  # Held up by its part; the run is full as well.
        await queue.ask("later", run, 50)
        await queue.settle("part", 0)
        assert queue.passed == ["part", "run", "earlier"]  # 40 + 50 are reserved: `later` has to wait.
        await queue.settle("run", 0)
        assert queue.passed == ["part", "run", "earlier", "later"]


async def test_after_a_refusal_nobody_waits_any_more() -> None:
    ledger = Ledger(Budget(tokens=100))
    async with anyio.create_task_group() as tasks:
        queue = Queue(tasks)
        await queue.ask("first", ledger, 60)
        await queue.ask("waits", ledger, 60)
        await queue.ask("huge", ledger, 101)
        assert queue.refused == ["huge", "waits"]
        await queue.ask("fits", ledger, 40)
        await queue.ask("does not", ledger, 1)
        assert queue.passed == ["first", "fits"]
        assert queue.refused == ["huge", "waits", "does not"]


async def test_one_that_leaves_its_place_lets_those_behind_it_pass() -> None:
    ledger = Ledger(Budget(tokens=100))
    async with anyio.create_task_group() as tasks:
        queue = Queue(tasks)
        await queue.ask("first", ledger, 60)
        await queue.ask("big", ledger, 90)
        await queue.ask("small", ledger, 10)
        queue.scopes["big"].cancel()
        await anyio.wait_all_tasks_blocked()
        assert queue.passed == ["first", "small"]
        assert ledger.reserved.tokens == 70


def test_one_that_is_cancelled_when_its_turn_has_just_come_gives_it_back() -> None:
    ledger = Ledger(Budget(tokens=100))

    async def scenario() -> None:
        first = await ledger.reserve(tokens=60, cost_usd=0)
        second = asyncio.create_task(ledger.reserve(tokens=60, cost_usd=0))
        await asyncio.sleep(0)
        first.release()
        assert ledger.reserved.tokens == 60
        second.cancel()
        with pytest.raises(asyncio.CancelledError):
            await second

    asyncio.run(scenario())
    assert ledger.reserved == Spending()


async def test_what_is_charged_meanwhile_ends_a_wait_that_became_hopeless() -> None:
    ledger = Ledger(Budget(tokens=100))
    async with anyio.create_task_group() as tasks:
        queue = Queue(tasks)
        await queue.ask("first", ledger, 60)
        await queue.ask("second", ledger, 60)
        ledger.charge(Spending(1, 50))
        await anyio.wait_all_tasks_blocked()
        assert queue.refused == ["second"]


# --- a storm --------------------------------------------------------------------------------------


class Call(NamedTuple):
    """One call of a storm: which ledger, what it reserves, what share of it is paid, and how it ends."""

    place: int
    tokens: int
    picos: int | None
    share: float
    pauses: int
    end: str


calls = st.builds(
    Call,
    place=st.integers(0, 4),
    tokens=st.integers(0, 60),
    picos=st.none() | st.integers(0, 10**10),
    share=st.floats(0, 1),
    pauses=st.integers(0, 4),
    end=st.sampled_from(["settle", "settle", "settle", "release", "full", "cancel"]),
)
bound = st.none() | st.integers(0, 200)
bounds = st.builds(
    lambda cost, tokens, number: Budget(None if cost is None else cost / 5000, tokens, number), bound, bound, bound
)


BELOW = ({0, 1, 2, 3, 4}, {1, 3, 4}, {2}, {3}, {4})
"""For each ledger of the storm, those whose calls it sees."""


class Storm:
    """Five ledgers in three levels, and the calls made at once."""

    def __init__(self, tree: Sequence[Budget]) -> None:
        run = Ledger(tree[0])
        left, right = Ledger(tree[1], above=run), Ledger(tree[2], above=run)
        self.ledgers = [run, left, right, Ledger(tree[3], above=left), Ledger(tree[4], above=left)]
        self.paid: list[tuple[int, int]] = []
        """(ledger, tokens) of the calls that were settled."""

    def check(self) -> None:
        for each in self.ledgers:
            (calls, tokens, cost, _), (more_calls, more_tokens, more_cost, _) = used(each)
            assert each.bounds.cost_usd is None or cost + more_cost <= each.bounds.cost_usd + 1e-13
            assert each.bounds.tokens is None or tokens + more_tokens <= each.bounds.tokens
            assert each.bounds.model_calls is None or calls + more_calls <= each.bounds.model_calls

    async def make(self, call: Call) -> None:
        cost = None if call.picos is None else call.picos / 1e12
        with anyio.CancelScope() as scope:
            if call.end == "cancel":
                scope.deadline = anyio.current_time() + call.share / 1000
            try:
                reservation = await self.ledgers[call.place].reserve(tokens=call.tokens, cost_usd=cost)
            except LimitError:
                return
            self.check()
            try:
                for _ in range(call.pauses):
                    await anyio.lowlevel.checkpoint()
                if call.end == "cancel":
                    await anyio.sleep_forever()
            finally:
                self.end(call, reservation)
                self.check()

    def end(self, call: Call, reservation: Reservation) -> None:
        if call.end == "full":
            reservation.settle_in_full()
            self.paid.append((call.place, call.tokens))
        elif call.end == "settle":
            tokens = int(call.tokens * call.share)
            reservation.settle(Spending(1, tokens, (call.picos or 0) / 1e12 * call.share))
            self.paid.append((call.place, tokens))
        else:
            reservation.release()


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
@settings(max_examples=60, deadline=None)
@given(tree=st.lists(bounds, min_size=5, max_size=5), calls=st.lists(calls, max_size=40))
def test_in_a_storm_no_bound_is_exceeded_and_everybody_is_answered(
    backend: str, tree: list[Budget], calls: list[Call]
) -> None:
    storm = Storm(tree)

    async def scenario() -> None:
        with anyio.fail_after(60):
            async with anyio.create_task_group() as tasks:
                for call in calls:
                    tasks.start_soon(storm.make, call)

    anyio.run(scenario, backend=backend)
    assert [each.reserved for each in storm.ledgers] == [Spending()] * 5
    for ledger, below in zip(storm.ledgers, BELOW, strict=True):
        assert ledger.spent.tokens == sum(tokens for place, tokens in storm.paid if place in below)


@settings(max_examples=30, deadline=None)
@given(sizes=st.lists(st.integers(1, 50), min_size=1, max_size=40), most=st.integers(0, 300))
def test_calls_that_take_what_they_reserve_use_a_bound_up_as_far_as_they_fit(sizes: list[int], most: int) -> None:
    ledger = Ledger(Budget(tokens=most))
    refused: list[int] = []

    async def call(size: int) -> None:
        try:
            reservation = await ledger.reserve(tokens=size, cost_usd=0)
        except LimitError:
            refused.append(size)
            return
        await anyio.lowlevel.checkpoint()
        reservation.settle(Spending(1, size))

    async def scenario() -> None:
        async with anyio.create_task_group() as tasks:
            for size in sizes:
                tasks.start_soon(call, size)

    anyio.run(scenario)
    assert ledger.spent.tokens <= most
    assert all(ledger.spent.tokens + size > most for size in refused) or ledger.spent.tokens == sum(sizes)


async def test_a_refusal_tells_the_bound_that_would_do_with_what_others_have_reserved() -> None:
    ledger = Ledger(Budget(tokens=100))
    (await ledger.reserve(tokens=30, cost_usd=0)).settle(Spending(1, 30))
    await ledger.reserve(tokens=20, cost_usd=0)
    with pytest.raises(LimitError) as caught:
        await ledger.reserve(tokens=90, cost_usd=0)
    assert caught.value.needed == 140
