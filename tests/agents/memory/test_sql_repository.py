"""Memories in SQLite and PostgreSQL: one holds, none is deleted, and scopes do not mix."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flowengine.agents.memory.database import MemoryDatabase, SQLDatabase
from flowengine.agents.memory.scopes.memories import Memory, MemoryScope, MemoryType, thread_scope_id
from flowengine.agents.memory.scopes.sql_stores import SQLMemoryRepository
from flowengine.errors import DefinitionError

START = datetime(2025, 3, 1, tzinfo=UTC)
LONG, SHORT = MemoryType.LONG_TERM, MemoryType.SHORT_TERM
CHANNEL, THREAD, WORKSPACE = MemoryScope.CHANNEL, MemoryScope.THREAD, MemoryScope.WORKSPACE


def day(number: float) -> datetime:
    return START + timedelta(days=number)


def memory(text: str, at: float, scope: MemoryScope = CHANNEL, id: str = "C1", type: MemoryType = SHORT) -> Memory:
    return Memory(scope, id, type, text, day(at))


@pytest.fixture
def repository(any_database: SQLDatabase) -> SQLMemoryRepository:
    return SQLMemoryRepository(any_database)


async def test_a_new_memory_closes_the_old_one_and_nothing_is_deleted(repository: SQLMemoryRepository):
    await repository.save(memory("first", 0))
    await repository.save(memory("second", 1))
    found = await repository.find_by_scope_and_type(CHANNEL, "C1", SHORT)
    assert found == memory("second", 1)
    history = await repository.history(CHANNEL, "C1", SHORT)
    assert [(each.text, each.valid_from, each.valid_to) for each in history] == [
        ("second", day(1), None),
        ("first", day(0), day(1)),
    ]


async def test_what_held_at_a_time_is_found(repository: SQLMemoryRepository):
    for number in range(3):
        await repository.save(memory(str(number), number))
    at = [await repository.find_by_scope_and_type(CHANNEL, "C1", SHORT, at=day(each)) for each in (-1, 0, 0.5, 1, 9)]
    assert [each and each.text for each in at] == [None, "0", "0", "1", "2"]


async def test_a_memory_that_comes_late_enters_the_history_and_what_holds_stays(repository: SQLMemoryRepository):
    for at in (0, 4, 2):
        await repository.save(memory(f"day {at}", at))
    found = await repository.find_by_scope_and_type(CHANNEL, "C1", SHORT)
    assert found is not None
    assert found.text == "day 4"
    history = await repository.history(CHANNEL, "C1", SHORT)
    assert [(each.valid_from, each.valid_to) for each in history] == [
        (day(4), None),
        (day(2), day(4)),
        (day(0), day(2)),
    ]


async def test_scopes_and_types_do_not_mix(repository: SQLMemoryRepository):
    saved = [
        memory("workspace", 0, WORKSPACE, "C1"),
        memory("channel", 0, CHANNEL, "C1"),
        memory("long", 0, CHANNEL, "C1", LONG),
        memory("other", 0, CHANNEL, "C2"),
        memory("thread", 0, THREAD, thread_scope_id("C1", "1")),
    ]
    for each in saved:
        await repository.save(each)
    for each in saved:
        assert await repository.find_by_scope_and_type(each.scope, each.scope_id, each.type) == each
    assert await repository.find_by_scope_and_type(WORKSPACE, "C2", SHORT) is None


async def test_recent_memories_of_a_channels_threads_are_found_the_newest_first(repository: SQLMemoryRepository):
    for channel, ts, at in [
        ("C1", "1", 0),
        ("C1", "2", 5),
        ("C1", "3", 4),
        ("C10", "9", 5),
        ("C", "8", 5),
        ("C:1", "7", 5),
    ]:
        await repository.save(memory(f"{channel} {ts}", at, THREAD, thread_scope_id(channel, ts)))
    await repository.save(memory("C1 2 again", 6, THREAD, thread_scope_id("C1", "2")))
    found = await repository.find_recent_thread_memories("C1", 3, now=day(7))
    assert [each.text for each in found] == ["C1 2 again", "C1 3"]
    assert [each.text for each in await repository.find_recent_thread_memories("C:1", 3, now=day(7))] == ["C:1 7"]
    assert await repository.find_recent_thread_memories("C1", 3) == [], "they are long gone"


async def test_scopes_and_types_may_be_given_by_their_names(repository: SQLMemoryRepository):
    kept = memory("x", 0, type=LONG)
    named: Any = ("channel", "C1", "long_term")
    wrong: Any = ("channle", "C1", "long_term")
    await repository.save(kept)
    assert await repository.find_by_scope_and_type(*named) == kept
    assert await repository.history(*named) == [kept]
    with pytest.raises(DefinitionError, match=r"did you mean 'channel'\?"):
        await repository.find_by_scope_and_type(*wrong)


@pytest.mark.parametrize("days", ["7", -7, float("nan"), 1e12])
async def test_days_are_a_number_that_a_calendar_has(repository: SQLMemoryRepository, days: Any):
    with pytest.raises(DefinitionError, match="'days' is a number of days above 0, at most 36500, not"):
        await repository.find_recent_thread_memories("C1", days)


async def test_a_memory_is_saved_open(repository: SQLMemoryRepository):
    closed = Memory(CHANNEL, "C1", SHORT, "x", day(0), day(1))
    with pytest.raises(DefinitionError, match="what closes it is the next one"):
        await repository.save(closed)


async def test_memories_outlive_the_connection(repository: SQLMemoryRepository, any_database: Any):
    await repository.save(memory("kept", 0))
    any_database.close()
    assert await repository.find_by_scope_and_type(CHANNEL, "C1", SHORT) == memory("kept", 0)


@given(st.lists(st.integers(0, 6), min_size=1, max_size=8))
@settings(deadline=None, max_examples=30)
async def test_whatever_the_order_of_saving_exactly_one_memory_holds_at_each_time(days: list[int]):
    database = MemoryDatabase(":memory:")
    repository = SQLMemoryRepository(database)
    for number, at in enumerate(days):
        await repository.save(memory(f"{number} of day {at}", at))
    history = await repository.history(CHANNEL, "C1", SHORT)
    assert len(history) == len(days)
    lasting = [each for each in history if each.valid_to != each.valid_from]
    assert [each.valid_from for each in lasting] == sorted({day(each) for each in days}, reverse=True)
    assert lasting[0].valid_to is None
    assert all(later.valid_from == earlier.valid_to for later, earlier in pairwise(lasting))
    newest = max(range(len(days)), key=lambda number: (days[number], number))
    assert lasting[0].text == f"{newest} of day {days[newest]}"
    database.close()
