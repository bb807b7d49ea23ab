"""What a run tells its followers while it goes on: bounded, and nothing lost for a slow one."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from typing import Any

import anyio
import pytest

from flowengine.engine.events import Event, NodeStarted, RunFinished, RunStarted, TokenStreamed
from flowengine.journal.memory import MemoryStore
from flowengine.runtime import run_feed
from flowengine.runtime.driven_run import DrivenRun
from flowengine.runtime.run_feed import Followed, RunFeed
from flowengine.web.service.run_follower import RunFollower

pytestmark = pytest.mark.anyio


@pytest.fixture(autouse=True)
def short_list(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_feed, "_MOST", 8)


def begun() -> DrivenRun:
    driven = DrivenRun("r", "flow", MemoryStore(), lambda: True)
    journal = driven.journal = driven.store.create("r")
    journal.append(RunStarted("r", "flow", 1.0, {}, {}, {}))
    return driven


async def follow(follower: RunFollower) -> AsyncGenerator[Followed]:
    async with aclosing(follower.follow("r", 0, stay=False)) as batches:
        async for batch in batches:
            for each in batch:
                yield each


def start_nodes(driven: DrivenRun, count: int) -> None:
    assert driven.journal is not None
    for at in range(count):
        driven.journal.append(NodeStarted(f"n{at}", 1.0))


async def test_a_slow_follower_gets_every_event_once_and_the_list_stays_short():
    driven, found = begun(), list[Followed]()
    follower = RunFollower(driven.store, lambda run_id: driven.feed, lambda run_id: True)
    async with aclosing(follow(follower)) as told:
        found.append(await anext(told))
        for _ in range(5):
            start_nodes(driven, 7)
            found.append(await anext(told))
            assert len(driven.feed._items) <= 8  # pyright: ignore[reportPrivateUsage]
        assert driven.journal is not None
        driven.journal.append(RunFinished(2.0, "succeeded"))
        driven.feed.end()
        found += [await anext(told) for _ in range(31)]
    events = driven.store.events("r")
    assert len(events) == 37
    assert found == list(enumerate(events))


async def test_what_is_dropped_while_a_follower_reads_the_store_is_not_lost():
    driven, count = begun(), 0
    driven.feed.is_kept = True

    class Store(MemoryStore):
        def events(self, run_id: str, after: int = 0, /) -> Sequence[Event]:
            nonlocal count
            count += 1
            found = driven.store.events(run_id, after)
            if count == 1:
                start_nodes(driven, 30)
            return found

    start_nodes(driven, 20)
    follower = RunFollower(Store(), lambda run_id: driven.feed, lambda run_id: True)
    async with aclosing(follow(follower)) as told:
        found = [await anext(told) for _ in range(51)]
    assert found == list(enumerate(driven.store.events("r")))


async def test_of_a_text_whose_middle_is_missed_no_more_is_told():
    feed, told = RunFeed(), list[Any]()
    feed.is_kept = True
    feed.hear_token(TokenStreamed("a", 1.0, "Bees ", begins=True))
    with feed.follow() as place:
        async with aclosing(feed.read(0, place)) as batches:
            told += await anext(batches)
            for each in range(10):
                feed.hear_token(TokenStreamed("a", 1.0, f"{each} "))
            told += [piece async for batch in batches for piece in batch]
        feed.hear_token(TokenStreamed("a", 1.0, "again", begins=True))
        feed.hear_token(TokenStreamed("a", 1.0, "!"))
        feed.end()
        told += [piece async for batch in feed.read(0, place, has_missed=True) for piece in batch]
    assert [piece.text for _, piece in told] == ["Bees ", "again", "!"]


async def test_a_follower_that_waits_is_told():
    feed, found = RunFeed(), list[Followed]()

    async def follow() -> None:
        with feed.follow() as place:
            found.extend([each async for batch in feed.read(0, place) for each in batch])

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(follow)
        await anyio.wait_all_tasks_blocked()
        feed.hear(NodeStarted("a", 1.0))
        await anyio.wait_all_tasks_blocked()
        feed.end()
    assert found == [(0, NodeStarted("a", 1.0))]
