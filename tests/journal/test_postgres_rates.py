"""Vendors' limits through PostgreSQL: the same decisions as in memory, for several processes."""

from __future__ import annotations

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import anyio
import psycopg
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flowengine.errors import StoreUnavailableError
from flowengine.journal.postgres.rates import PostgresRates
from flowengine.journal.postgres.store import PostgresStore
from flowengine.models.messages import Message
from flowengine.models.model import Reply, Request, TokenUsage
from flowengine.models.scripted import ScriptedModel
from flowengine.models.vendors import RateLimits
from flowengine.models.wrappers.rate import Limiter, RateLimitedModel, _Minute
from tests.support.postgres import Server, empty_database, server

MINUTE = 30.0


@pytest.fixture
def url() -> str:
    made = empty_database()
    store = PostgresStore(made)
    store.list()  # Makes the tables.
    store.close()
    return made


@pytest.fixture
def workers(url: str) -> Iterator[list[PostgresRates]]:
    """Three, as three processes have them."""
    made = [PostgresRates(url, minute=MINUTE) for _ in range(3)]
    yield made
    for each in made:
        each.close()


def limiters(workers: list[PostgresRates], **limits: Any) -> list[Limiter]:
    return [each.limiter("openai", RateLimits(**limits)) for each in workers]


def rows(url: str, query: str = "SELECT tokens FROM flowengine.turn ORDER BY number") -> list[Any]:
    with psycopg.connect(url, autocommit=True) as connection:
        return connection.execute(query.encode()).fetchall()


# --- the decision ---------------------------------------------------------------------------------

QUARTERS = st.integers(0, 200).map(lambda number: number / 4)
CALLS = st.lists(st.tuples(QUARTERS, st.integers(0, 120), st.none() | st.integers(0, 200)), max_size=25)


@pytest.fixture(scope="module")
def connection() -> Iterator[psycopg.Connection[Any]]:
    store = PostgresStore(server().database())
    store.list()
    with psycopg.connect(store.url, autocommit=True) as made:
        yield made
    store.close()


@settings(deadline=None, max_examples=40)
@given(calls=CALLS, requests=st.none() | st.integers(1, 5), tokens=st.none() | st.integers(50, 200))
def test_what_the_server_decides_is_what_is_decided_in_memory(
    connection: psycopg.Connection[Any],
    calls: list[tuple[float, int, int | None]],
    requests: int | None,
    tokens: int | None,
) -> None:
    connection.execute("TRUNCATE flowengine.turn")
    minute, now = _Minute(requests, tokens, 60.0), 1_700_000_000.0
    for pause, size, took in calls:
        now += pause
        entry = minute.reserve(size, now)
        asked = ("openai", requests, tokens, 60.0, size, now)
        query = b"SELECT entry, turn FROM flowengine.turn_at(%s, %s, %s, %s, %s, %s)"
        ((number, turn),) = connection.execute(query, asked).fetchall()
        assert turn == entry.at
        if took is not None:
            entry.took(took)
            connection.execute("UPDATE flowengine.turn SET tokens = %s WHERE number = %s", (took, number))


def test_a_clock_that_was_set_back_keeps_nobody_waiting_for_it(connection: psycopg.Connection[Any]) -> None:
    connection.execute("TRUNCATE flowengine.turn")
    query = b"SELECT turn FROM flowengine.turn_at('openai', 2, NULL, 60, 0, %s)"
    turns = [connection.execute(query, (now,)).fetchall()[0][0] for now in (5000.0, 5001.0, 1001.0, 1002.0)]
    assert turns == [5000.0, 5001.0, 1060.0, 1061.0]


def test_sessions_that_ask_at_once_are_served_one_after_the_other(url: str) -> None:
    times: list[float] = []

    def ask() -> None:
        query = b"SELECT wait FROM flowengine.take_turn('openai', NULL, '{}', 3, NULL, 60, 0)"
        with psycopg.connect(url, autocommit=True) as connection:
            for _ in range(20):
                ((wait,),) = connection.execute(query).fetchall()
                times.append(time.time() + wait)

    with ThreadPoolExecutor(8) as threads:
        for done in [threads.submit(ask) for _ in range(8)]:
            done.result()
    times.sort()
    assert len(times) == 160
    assert min(later - first for first, later in zip(times, times[3:], strict=False)) > 50


def test_a_store_of_an_earlier_version_gets_the_table(url: str) -> None:
    for statement in (
        "DROP FUNCTION flowengine.take_turn, flowengine.turn_at, flowengine.slot_key",
        "DROP TABLE flowengine.turn",
        "ALTER TABLE flowengine.run DROP COLUMN labels, DROP COLUMN session",
        "DROP TABLE flowengine.blob, flowengine.blob_use, flowengine.digest",
        "UPDATE flowengine.version SET number = 1",
    ):
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute(statement.encode())
    store = PostgresStore(url)
    assert list(store.list()) == []
    store.close()
    assert rows(url) == []


# --- limits a minute ------------------------------------------------------------------------------


async def test_workers_share_one_line(workers: list[PostgresRates], url: str) -> None:
    one, other, third = limiters(workers, requests_per_minute=2)
    with anyio.fail_after(20):
        for each in (one, other):
            async with each.turn(5):
                pass
    came = False

    async def wait() -> None:
        nonlocal came
        async with third.turn(5):
            came = True

    with anyio.fail_after(20):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(wait)
            while len(rows(url)) < 3:  # noqa: ASYNC110 - the server's doing
                await anyio.sleep(0.01)
            ((waits,),) = rows(url, "SELECT max(at) - min(at) FROM flowengine.turn")  # A cancelled call waits no more.
            tasks.cancel_scope.cancel()
    assert not came
    assert MINUTE <= waits < MINUTE + 1


async def test_other_vendors_and_other_limits_have_lines_of_their_own(workers: list[PostgresRates]) -> None:
    strict, wide = RateLimits(requests_per_minute=1), RateLimits(requests_per_minute=2)
    with anyio.fail_after(20):
        for provider, limits in (("openai", strict), ("groq", strict), ("openai", wide), ("openai", wide)):
            async with workers[0].limiter(provider, limits).turn(0):
                pass


async def test_a_turn_comes_when_the_minute_is_over(url: str) -> None:
    rates = PostgresRates(url, minute=0.4)
    limiter = rates.limiter("openai", RateLimits(requests_per_minute=1))
    times: list[float] = []
    for _ in range(3):
        async with limiter.turn(0):
            times.append(time.monotonic())
    rates.close()
    # The minute begins by the server's clock, and the first turn may reach us late: two waits together say enough.
    assert times[2] - times[0] > 0.4
    assert len(rows(url)) == 2  # What is over is not kept.


async def test_tokens_are_corrected_for_all_by_what_a_call_took(workers: list[PostgresRates], url: str) -> None:
    reply = Reply("x", usage=TokenUsage(10, 5))
    request = Request("m", (Message("user", "hi"),), max_tokens=900)
    models = [RateLimitedModel(ScriptedModel([reply] * 3), each) for each in limiters(workers, tokens_per_minute=1000)]
    with anyio.fail_after(20):
        for model in models:  # 3 x 900 were expected, 3 x 15 taken
            await model.complete(request)
            while rows(url)[-1][0] != 15:  # noqa: ASYNC110 - the server's doing
                await anyio.sleep(0.01)


# --- calls at once --------------------------------------------------------------------------------


async def test_no_more_than_max_parallel_run_at_once_in_all_workers(workers: list[PostgresRates]) -> None:
    now, most, done = 0, 0, list[int]()

    async def call(worker: int, limiter: Limiter) -> None:
        nonlocal now, most
        async with limiter.turn(0):
            now += 1
            most = max(most, now)
            await anyio.sleep(0.02)
            now -= 1
        done.append(worker)

    with anyio.fail_after(20):
        async with anyio.create_task_group() as group:
            for number, limiter in enumerate(limiters(workers, max_parallel=2)):
                for _ in range(5):
                    group.start_soon(call, number, limiter)
    assert (most, len(done)) == (2, 15)


async def test_a_worker_with_many_calls_does_not_keep_the_slots_to_itself(workers: list[PostgresRates]) -> None:
    one, other, _ = limiters(workers, max_parallel=1)
    served = 0

    async def call() -> None:
        nonlocal served
        async with one.turn(0):
            await anyio.sleep(0.01)
        served += 1

    with anyio.fail_after(30):
        async with anyio.create_task_group() as group:
            for _ in range(100):
                group.start_soon(call)
            await anyio.sleep(0.1)
            async with other.turn(0):
                before = served
            group.cancel_scope.cancel()
    assert before < 60


async def test_a_cancelled_call_gives_its_slot_back(workers: list[PostgresRates]) -> None:
    one, other, _ = limiters(workers, max_parallel=1)
    for pause in (0.0, 0.001, 0.005, 0.1):
        with anyio.move_on_after(pause):
            async with one.turn(0):
                await anyio.sleep_forever()
        with anyio.fail_after(20):
            async with other.turn(0):
                pass


@pytest.mark.long
async def test_calls_that_wait_ask_seldom(workers: list[PostgresRates]) -> None:
    one, other, _ = limiters(workers, max_parallel=1)
    asked = 0
    done = workers[1].do_work

    async def counted(work: Any) -> Any:
        nonlocal asked
        asked += 1
        return await done(work)

    workers[1].do_work = counted
    async with one.turn(0), anyio.create_task_group() as group:
        for _ in range(10):
            group.start_soon(_held_for_ever, other)
        await anyio.sleep(2)
        group.cancel_scope.cancel()
    assert 3 < asked < 60


async def _held_for_ever(limiter: Limiter) -> None:
    async with limiter.turn(0):
        await anyio.sleep_forever()


async def test_a_session_that_was_cut_off_takes_its_slots_again(workers: list[PostgresRates], url: str) -> None:
    one, other, _ = limiters(workers, max_parallel=1)
    timed = workers[0].limiter("groq", RateLimits(requests_per_minute=50))
    async with one.turn(0):
        rows(url, "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'flowengine'")
        async with timed.turn(0):  # Something is asked by the new session.
            pass
        with anyio.move_on_after(0.3) as scope:
            async with other.turn(0):
                pass
        assert scope.cancelled_caught
    with anyio.fail_after(20):
        async with other.turn(0):
            pass


# --- a server that is away ------------------------------------------------------------------------


@pytest.fixture
def own_server() -> Iterator[Server]:
    server()  # Skips where there is none.
    made = Server()
    yield made
    made.stop()


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_no_call_goes_out_while_the_server_is_away_and_the_run_stops_if_it_stays_so(own_server: Server) -> None:
    rates = PostgresRates(own_server.database(), patience=20)
    limiter = rates.limiter("openai", RateLimits(requests_per_minute=100, max_parallel=5))
    async with limiter.turn(0):
        own_server.restart()
    with anyio.fail_after(20):
        async with limiter.turn(0):
            pass
    own_server.stop()
    rates._patience = 0.5
    inner = ScriptedModel(["never"])
    with pytest.raises(StoreUnavailableError, match=r"no model is asked without it: .* cannot be reached"):
        await RateLimitedModel(inner, limiter).complete(Request("m", (Message("user", "hi"),)))
    assert not inner.requests
    rates.close()


# --- what it costs --------------------------------------------------------------------------------


async def test_a_turn_is_one_trip_to_the_server(workers: list[PostgresRates], url: str) -> None:
    limiter = workers[0].limiter("openai", RateLimits(requests_per_minute=1000, tokens_per_minute=100_000))
    asked = 0
    done = workers[0].do_work

    async def counted(work: Any) -> Any:
        nonlocal asked
        asked += 1
        return await done(work)

    workers[0].do_work = counted
    for _ in range(5):
        async with limiter.turn(10) as turn:
            assert turn is not None
            turn.took(20)
    assert asked == 5


async def test_calls_that_are_cancelled_while_they_wait_keep_the_others_for_a_minute_at_most(
    workers: list[PostgresRates], url: str
) -> None:
    limiter, *_ = limiters(workers, requests_per_minute=1)

    async def call() -> None:
        async with limiter.turn(0):
            pass

    await call()
    with anyio.CancelScope() as scope:
        async with anyio.create_task_group() as group:
            for _ in range(3):
                group.start_soon(call)
            await anyio.wait_all_tasks_blocked()
            await workers[0].do_work(lambda _: None)  # Behind their asking: all of them wait for their turns.
            scope.cancel()
    await workers[0].do_work(lambda _: None)  # Behind what was said of the places.
    ((last,),) = rows(url, "SELECT max(at) - extract(epoch FROM clock_timestamp()) FROM flowengine.turn")
    assert last <= 0
