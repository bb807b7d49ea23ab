"""What workers ask of the server: commits while they are idle, commits of a run, and connections."""

from __future__ import annotations

import time
from collections.abc import Iterator
from math import inf
from pathlib import Path
from typing import Any

import anyio
import psycopg
import pytest

from flowengine import Agent, AgentNode, Flow
from flowengine.journal.postgres import store as postgres_store
from flowengine.journal.postgres import writer
from flowengine.journal.postgres.connection import Database
from flowengine.journal.postgres.store import PostgresStore
from flowengine.models.scripted import ScriptedModel
from flowengine.runtime.queue.run_queue import submit, submit_many
from flowengine.runtime.queue.worker import Pace, work
from tests.support.pace import measured_pace
from tests.support.queue_runs import drain, flow

pytestmark = pytest.mark.anyio

FIVE = "flowengine: v1\nname: five\nnodes:\n" + "".join(
    f'  n{number}: {{type: function, call: "naps:sleep", with: {{delay: 0, result: one}}'
    f"{f', needs: [n{number - 1}]' if number else ''}}}\n"
    for number in range(5)
)


class Server:
    """What the server counts, asked over a connection to another database."""

    def __init__(self, url: str) -> None:
        self._name = url.rpartition("/")[2]
        self._connection = psycopg.connect(f"{url.rpartition('/')[0]}/postgres", autocommit=True)

    def commits(self) -> int:
        query = "SELECT pg_stat_clear_snapshot(), xact_commit + xact_rollback FROM pg_stat_database WHERE datname = %s"
        return self._connection.execute(query, (self._name,)).fetchall()[0][1]

    def connections(self) -> int:
        query = "SELECT count(*) FROM pg_stat_activity WHERE datname = %s"
        return self._connection.execute(query, (self._name,)).fetchall()[0][0]

    def close(self) -> None:
        self._connection.close()


@pytest.fixture
def server(store: PostgresStore) -> Iterator[Server]:
    made = Server(store.url)
    yield made
    made.close()


@pytest.mark.long
async def test_an_idle_worker_holds_three_connections_and_commits_a_few_times_a_second(
    store: PostgresStore, server: Server
) -> None:
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(lambda: work(store, pace=Pace()))
        await _settled(server)
        rates: list[float] = []
        with measured_pace() as pace:
            while len(rates) < 3 and min(rates, default=inf) > 3.0:
                rates.append(await _commits_a_second(server, 4.0))
        connections = server.connections()
        tasks.cancel_scope.cancel()
    assert connections <= 3
    # The least of them: the server counts late, and what it does by itself in a database only adds.
    assert min(rates) <= 3.0 * pace.factor(), rates


async def _commits_a_second(server: Server, seconds: float) -> float:
    before, begun = server.commits(), time.monotonic()
    await anyio.sleep(seconds)
    return (server.commits() - before) / (time.monotonic() - begun)


async def _settled(server: Server) -> None:
    """Wait until what a worker does at first is over, and counted: the server's counts are late."""
    await anyio.sleep(4)
    for _ in range(20):
        before = server.commits()
        await anyio.sleep(2)
        if server.commits() - before <= 6:
            return


@pytest.mark.long
async def test_a_run_of_five_nodes_takes_few_commits(store: PostgresStore, server: Server, tmp_path: Path) -> None:
    plan, runs = flow(tmp_path, FIVE).plan, 10
    await submit(store, plan, {})
    await drain(store)
    await submit_many(store, plan, {f"r{number}": {} for number in range(runs)})
    await anyio.sleep(1.2)  # The server's counts are late.
    before = server.commits()
    rarely = Pace(heartbeat=30.0, stalled=60.0, orphans=60.0, poll=30.0)  # What the worker asks by the clock adds up.
    with measured_pace() as pace:
        await work(store, wait=False, pace=rarely)
    await anyio.sleep(1.2)
    # What the worker itself asks at its beginning is among them; events of a slow run ride together less often.
    assert (server.commits() - before) / runs <= 7.0 * pace.factor()


async def test_a_node_of_one_call_costs_one_commit_and_the_call_none_of_its_own(
    store: PostgresStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[object] = []
    run = Database.run

    def counting(database: Database, work: Any) -> Any:
        asked.append(work)
        return run(database, work)

    monkeypatch.setattr(Database, "run", counting)
    monkeypatch.setattr(writer, "_FRESH", 60.0)  # However slow the machine is.
    monkeypatch.setattr(postgres_store, "_SHOWN_AFTER", 60.0)
    agent = Agent("a", "Say it.", model=ScriptedModel(["Tea."] * 5))
    needs = {"a": [], "b": ["a"], "c": ["a"], "d": ["b", "c"], "e": ["d"]}
    nodes = {name: AgentNode(agent, prompt=lambda _: "Now.", needs=before) for name, before in needs.items()}
    flow = Flow("five", nodes)
    made = await flow.run(store=store, run_id="r", live=True)
    assert made.status == "succeeded", made.error
    # Its id, its beginning and its end, five nodes, of which two may share one, and a question for one of these two.
    assert len(asked) <= 9
