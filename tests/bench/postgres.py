"""The row of the journal on PostgreSQL: 50 runs at once, against inserts of the same bytes written by hand."""

from __future__ import annotations

import anyio
import psycopg

from flowengine.core.context import NodeResult
from flowengine.engine.events import Event, NodeFinished, NodeStarted, RunStarted
from flowengine.engine.ports import JournalStore
from flowengine.journal.codec import encode
from flowengine.journal.stores import open_store
from tests.bench.measure import Row, ratio
from tests.support.postgres import server, why_missing

__all__ = ["ROWS"]

RUNS, NODES = 50, 40
TEXT = "What a model says of something, at some length. " * 10


def _node(number: int) -> list[Event]:
    name = f"n{number}"
    return [NodeStarted(name, 1.0), NodeFinished(name, 2.0, NodeResult(TEXT))]


async def _run(store: JournalStore, run_id: str) -> None:
    journal = store.create(run_id)
    journal.append(RunStarted(run_id, "flow", 1.0, {}, {}, {}))
    for number in range(NODES):
        for event in _node(number):
            journal.append(event)
        waiting = journal.commit(True)
        assert waiting is not None
        await waiting
    await journal.close()


async def append() -> Row:
    """Wall time, for most of it is the server's. By hand: what all runs have at a time in one transaction."""
    name = f"append on PostgreSQL, {RUNS} runs at once"
    reason = why_missing()
    if reason is not None:
        print(f"- {name}: skipped, {reason}")
        return Row(f"{name} (skipped)", 0, 1.5)
    url = server(durable=True).database()
    store = open_store(url, "full")
    rounds = 0

    async def ours() -> None:
        nonlocal rounds
        rounds += 1
        async with anyio.create_task_group() as group:
            for run in range(RUNS):
                group.start_soon(_run, store, f"r{rounds}-{run}")

    async with await psycopg.AsyncConnection.connect(url) as connection:
        await connection.execute("CREATE TABLE mine (id BIGSERIAL PRIMARY KEY, run TEXT NOT NULL, body TEXT NOT NULL)")
        await connection.commit()

        async def by_hand() -> None:
            async with connection.cursor() as cursor:
                for number in range(NODES):
                    rows = [(f"r{run}", encode(event)) for run in range(RUNS) for event in _node(number)]
                    await cursor.executemany("INSERT INTO mine (run, body) VALUES (%s, %s)", rows)
                    await connection.commit()

        try:
            return await ratio(name, 1.5, ours, by_hand, wall=True)
        finally:
            store.close()


ROWS = (append,)
