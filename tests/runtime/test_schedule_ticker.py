"""Runs of schedules begin when they are due, once, however many processes look after them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import anyio
import pytest

from flowengine.core.schedule import Schedule, ScheduleState
from flowengine.engine.ports import JournalStore
from flowengine.errors import InputError, JournalError, StoreUnavailableError
from flowengine.journal.memory import MemoryStore
from flowengine.journal.stores import open_store
from flowengine.runtime.schedules.schedule_ticker import ScheduleTicker, recall_state

pytestmark = pytest.mark.anyio

T = 1_777_593_600.0
"""2026-05-01, midnight in UTC."""


class Host:
    """Begins runs that go on until they are `ended`; of all processes together."""

    def __init__(self) -> None:
        self.begun: list[str] = []
        self.cancelled: list[str] = []
        self.going: set[str] = set()
        self.failure: Exception | None = None

    async def begin(self, schedule: Schedule, run_id: str, /) -> None:
        if self.failure is not None:
            raise self.failure
        if run_id not in self.begun:
            self.begun.append(run_id)
            self.going.add(run_id)

    async def cancel(self, run_id: str, /) -> None:
        self.cancelled.append(run_id)
        if run_id not in self.going:
            raise JournalError("it has ended")
        self.going.discard(run_id)

    async def goes_on(self, run_id: str, /) -> bool:
        return run_id in self.going


class Clock:
    def __init__(self, now: float = T - 1) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now


@pytest.fixture(params=["memory", "sqlite"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[JournalStore]:
    made = MemoryStore() if request.param == "memory" else open_store(str(tmp_path / "runs.db"))
    yield made
    made.close()


def hourly(**said: object) -> Schedule:
    return Schedule("h", "h.yaml", "0 * * * *", **said)  # type: ignore[arg-type]


async def test_two_processes_begin_a_tick_once_and_both_know_of_it(store: JournalStore):
    host, clock, schedule, told = Host(), Clock(), hourly(), list[str]()
    one, two = (ScheduleTicker(store, [schedule], host, lambda text, run: told.append(text), clock=clock) for _ in "ab")
    for _ in range(3):
        await one.look(schedule)
        await two.look(schedule)
    assert host.begun == []
    clock.now = T + 1
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(one.look, schedule)
        tasks.start_soon(two.look, schedule)
    await one.look(schedule)
    assert host.begun == ["h@20260501T0000Z"]
    assert recall_state(store, "h") == ScheduleState(T + 1, (), "h@20260501T0000Z", "")
    assert told[0] == "run h@20260501T0000Z begins: schedule 'h'"


async def test_a_process_that_dies_before_it_kept_what_it_did_is_followed_by_one_that_changes_nothing(
    store: JournalStore,
):
    host, clock, schedule = Host(), Clock(), hourly()
    ticker = ScheduleTicker(store, [schedule], host, clock=clock)
    await ticker.look(schedule)
    before = store.recall("schedule", "h")
    clock.now = T + 1
    await ticker.look(schedule)
    store.revise("schedule", "h", lambda known: before)
    clock.now = T + 2
    await ticker.look(schedule)
    assert host.begun == ["h@20260501T0000Z"]


@pytest.mark.parametrize(
    ("overlap", "begun", "cancelled", "told"),
    [
        ("skip", 2, 0, "h@20260501T0100Z was skipped: the run before it went on"),
        ("queue", 3, 0, ""),
        ("cancel", 3, 1, ""),
    ],
)
async def test_a_run_that_takes_longer_than_an_hour(overlap: str, begun: int, cancelled: int, told: str):
    store, host, clock, schedule = MemoryStore(), Host(), Clock(), hourly(overlap=overlap)
    ticker = ScheduleTicker(store, [schedule], host, clock=clock)
    for now in (T - 1, T, T + 3600, T + 3700):
        clock.now = now
        await ticker.look(schedule)
    host.going.discard("h@20260501T0000Z")
    clock.now = T + 3800
    await ticker.look(schedule)
    host.going.clear()
    clock.now = T + 7200
    state = await ticker.look(schedule)
    assert (len(host.begun), len(host.cancelled), state.told, state.pending) == (begun, cancelled, told, ())


async def test_what_cannot_begin_for_a_while_begins_later_and_what_cannot_begin_at_all_is_told():
    store, host, clock, schedule, told = MemoryStore(), Host(), Clock(), hourly(), list[str]()
    ticker = ScheduleTicker(store, [schedule], host, lambda text, run: told.append(text), clock=clock)
    await ticker.look(schedule)
    host.failure = StoreUnavailableError("too many runs")
    clock.now = T + 1
    assert (await ticker.look(schedule)).pending == (T,)
    await ticker.look(schedule)
    assert told == ["schedule 'h': h@20260501T0000Z could not begin yet: too many runs"]
    host.failure = None
    clock.now = T + 600
    await ticker.look(schedule)
    assert host.begun == ["h@20260501T0000Z"]
    host.going.clear()
    host.failure = InputError("missing input 'region'")
    clock.now = T + 3600
    state = await ticker.look(schedule)
    assert (state.pending, state.told) == ((), "h@20260501T0100Z could not begin: missing input 'region'")


async def test_the_clock_is_looked_at_again_and_again_whatever_it_says():
    """It is set forward by a year and back again; each hour that comes runs once."""
    store, host, clock, schedule = MemoryStore(), Host(), Clock(), hourly()
    times = iter([T + 0.5, T + 365 * 86_400, T + 3590, T + 3601, T + 3590, T + 3602])
    slept: list[float] = []

    async def sleep(seconds: float) -> None:
        slept.append(seconds)
        host.going.clear()
        clock.now = next(times, 0.0)
        if not clock.now:
            scope.cancel()
            await anyio.lowlevel.checkpoint()

    with anyio.CancelScope() as scope:
        await ScheduleTicker(store, [schedule], host, clock=clock, sleep=sleep).run()
    assert host.begun == ["h@20260501T0000Z", "h@20270501T0000Z", "h@20260501T0100Z"]
    assert max(slept) <= 20.0
    assert slept[0] == 1.0


async def test_a_schedule_that_breaks_does_not_stop_the_others():
    store, host, clock, told = MemoryStore(), Host(), Clock(), list[str]()
    broken, sound = Schedule("b", "b.yaml", "0 * * * *"), hourly()
    store.revise("schedule", "b", lambda known: {"decided": "never"})
    steps = iter([T + 1])

    async def sleep(seconds: float) -> None:
        clock.now = next(steps, 0.0)
        if not clock.now:
            scope.cancel()
            await anyio.lowlevel.checkpoint()

    with anyio.CancelScope() as scope:
        ticker = ScheduleTicker(
            store, [broken, sound], host, lambda text, run: told.append(text), clock=clock, sleep=sleep
        )
        await ticker.run()
    assert host.begun == ["h@20260501T0000Z"]
    assert told[0].startswith("schedule 'b' cannot be looked at: KeyError")
