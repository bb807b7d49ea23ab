"""The engine's rows: shapes of flows against the floor of the same shape."""

from __future__ import annotations

import asyncio
import os
import sqlite3
import statistics
import tempfile
from collections.abc import Awaitable, Callable, Sequence
from contextlib import closing
from time import process_time
from typing import Any

import anyio

from flowengine import ConditionNode, Context, Flow, FunctionNode, NodeResult
from flowengine.engine.events import Event, RunFinished, RunResumed
from flowengine.engine.merging import StateKey
from flowengine.journal.stores import open_store
from tests.bench.floor import Shape, chain, fan, layers, run_floor
from tests.bench.measure import Row, ratio, seconds

__all__ = ["ROWS"]


async def add(context: Context) -> NodeResult:
    return NodeResult(output=1, state={"counter": context.shared_state["counter"] + 1})


async def value(context: Context) -> int:
    return 1


async def contribute(context: Context) -> NodeResult:
    return NodeResult(state={"log": [1]})


async def rest(context: Context) -> int:
    await anyio.sleep(0.005)
    return 1


async def branch(context: Context) -> int:
    await anyio.sleep(0.02)
    return 1


def flow_of(shape: Shape, function: Callable[[Context], Awaitable[Any]], **state: Any) -> Flow:
    nodes = {
        f"n{node}": FunctionNode(function, needs=[f"n{each}" for each in parents]) for node, parents in enumerate(shape)
    }
    return Flow("bench", nodes, shared_state=state)


async def done(flow: Flow, **options: Any) -> None:
    run = await flow.run(**options)
    assert run.status == "succeeded", run.error


async def nothing(node: int) -> None: ...


async def chain_of_1000() -> Row:
    flow = flow_of(chain(1000), add, counter=0)
    state = {"counter": 0}

    async def floor_add(node: int) -> None:
        state["counter"] += 1

    async def ours() -> None:
        run = await flow.run()
        assert run.shared_state["counter"] == 1000

    return await ratio("chain of 1,000 that count", 0.5, ours, lambda: run_floor(chain(1000), floor_add))


async def conditions_in_code() -> Row:
    nodes = {f"c{i}": ConditionNode(lambda context: True, f"c{i + 1}" if i < 99 else None) for i in range(100)}
    flow = Flow("bench", nodes)
    floor: Callable[[], Awaitable[None]] = lambda: run_floor(chain(100), nothing)  # noqa: E731
    return await ratio("100 conditions, callables", 0.45, lambda: done(flow), floor, rounds=15)


async def conditions_in_yaml() -> Row:
    lines = ["flowengine: v1", "name: bench", "shared_state: {counter: {type: integer, default: 3}}", "nodes:"]
    for i in range(100):
        then = f", then: c{i + 1}" if i < 99 else ""
        lines.append(f"  c{i}: {{type: condition, if: shared_state.counter < {i + 5}{then}}}")
    flow = Flow.from_text("\n".join(lines), "bench.yaml")
    floor: Callable[[], Awaitable[None]] = lambda: run_floor(chain(100), nothing)  # noqa: E731
    return await ratio("100 conditions, YAML expressions", 0.65, lambda: done(flow), floor, rounds=15)


async def fan_out() -> Row:
    flow = flow_of(fan(1000), value)
    return await ratio("fan-out 1,000 and join", 0.35, lambda: done(flow), lambda: run_floor(fan(1000), nothing))


async def layered() -> Row:
    flow, shape = flow_of(layers(10, 100), value), layers(10, 100)
    return await ratio("10 layers of 100, three parents", 0.55, lambda: done(flow), lambda: run_floor(shape, nothing))


async def appending() -> Row:
    flow = flow_of(layers(10, 100), contribute, log=StateKey([], "append"))

    async def ours() -> None:
        run = await flow.run()
        assert len(run.shared_state["log"]) == 1000

    return await ratio("1,000 in 10 layers that append", 1.5, ours, lambda: run_floor(layers(10, 100), nothing))


async def many_runs() -> Row:
    flow = flow_of(chain(5), rest)

    async def floor_rest(node: int) -> None:
        await anyio.sleep(0.005)

    async def at_once(one: Callable[[], Awaitable[None]]) -> None:
        async with anyio.create_task_group() as tasks:
            for _ in range(500):
                tasks.start_soon(one)

    return await ratio(
        "500 runs at once of 5 that sleep 5 ms",
        1.1,
        lambda: at_once(lambda: done(flow)),
        lambda: at_once(lambda: run_floor(chain(5), floor_rest)),
    )


async def _branches(name: str, *, wall: bool) -> Row:
    branching = {f"n{i}": FunctionNode(branch) for i in range(100)}
    flow = Flow("bench", {**branching, "join": FunctionNode(value, needs=list(branching))})

    async def floor_branch(node: int) -> None:
        if node < 100:
            await anyio.sleep(0.02)

    floor: Callable[[], Awaitable[None]] = lambda: run_floor(fan(100), floor_branch)  # noqa: E731
    return await ratio(name, 1.2, lambda: done(flow), floor, wall=wall, rounds=9)


async def branches() -> Row:
    return await _branches("100 branches of 20 ms, wall", wall=True)


async def branches_cpu() -> Row:
    return await _branches("100 branches of 20 ms, CPU", wall=False)


async def fan_out_that_waits() -> Row:
    """As `fan_out`, but each node gives way to the others once, as nodes that ask something do."""

    async def wait(context: Context) -> int:
        await anyio.lowlevel.checkpoint()
        return 1

    async def floor_wait(node: int) -> None:
        await anyio.lowlevel.checkpoint()

    flow = flow_of(fan(1000), wait)
    floor: Callable[[], Awaitable[None]] = lambda: run_floor(fan(1000), floor_wait)  # noqa: E731
    return await ratio("fan-out 1,000 that await once", 1.3, lambda: done(flow), floor, rounds=9)


async def sqlite_process() -> Row:
    flow, state = flow_of(chain(100), add, counter=0), {"counter": 0}

    async def floor_add(node: int) -> None:
        state["counter"] += 1

    with tempfile.TemporaryDirectory() as folder:
        store = open_store(f"sqlite:///{folder}/runs.db", "process")
        row = await ratio(
            "chain of 100, SQLite process",
            1.9,
            lambda: done(flow, store=store),
            lambda: run_floor(chain(100), floor_add),
            rounds=15,
        )
        store.close()
    return row


async def sqlite_by_url() -> Row:
    """As `sqlite_process`, but each run opens the store, and closes it with its log written back."""
    flow, state = flow_of(chain(100), add, counter=0), {"counter": 0}

    async def floor_add(node: int) -> None:
        state["counter"] += 1

    with tempfile.TemporaryDirectory() as folder:
        url = f"sqlite:///{folder}/runs.db"
        ours: Callable[[], Awaitable[None]] = lambda: done(flow, store=url, durability="process")  # noqa: E731
        floor: Callable[[], Awaitable[None]] = lambda: run_floor(chain(100), floor_add)  # noqa: E731
        return await ratio("chain of 100, SQLite process, by its URL", 2.4, ours, floor, rounds=25)


async def sqlite_full() -> Row:
    """Against a loop that commits the same bytes, one commit a node, with synchronous=FULL."""
    flow = flow_of(chain(100), add, counter=0)
    with tempfile.TemporaryDirectory(dir=os.getcwd()) as folder:
        store = open_store(f"sqlite:///{folder}/runs.db", "full")
        await done(flow, store=store)
        written = _payloads(f"{folder}/runs.db")
        loop = sqlite3.connect(f"{folder}/loop.db", isolation_level=None)
        loop.executescript("PRAGMA journal_mode=WAL; PRAGMA synchronous=FULL; CREATE TABLE e(n INTEGER PRIMARY KEY, b)")

        async def by_hand() -> None:
            for payload in written:
                loop.execute("INSERT INTO e(b) VALUES (?)", (payload,))

        row = await ratio(
            "chain of 100, SQLite full, against a loop", 1.5, lambda: done(flow, store=store), by_hand, rounds=15
        )
        store.close()
        loop.close()
    return row


def _payloads(path: str) -> Sequence[bytes | str]:
    """The bytes of each commit of the only run: one a node, which is one row, one for its start and one for its end."""
    connection = sqlite3.connect(path)
    table, column = EVENTS_TABLE
    rows = [row[0] for row in connection.execute(f"SELECT {column} FROM {table}")]
    connection.close()
    return rows


EVENTS_TABLE = ("event", "body")
"""Where the SQLite journal keeps its events: table and column."""


async def per_node(name: str, target: float, shape_of: Callable[[int], Shape]) -> Row:
    """µs per node at 100,000 nodes against 100."""
    small, large = flow_of(shape_of(100), value), flow_of(shape_of(100_000), value)
    await done(small)
    await done(large)
    ratios: list[float] = []
    for _ in range(3):
        little = statistics.median([await seconds(lambda: done(small)) for _ in range(50)]) / 100
        ratios.append(await seconds(lambda: done(large)) / 100_000 / little)
    return Row(name, statistics.median(ratios), target, "×", (min(ratios), max(ratios)))


async def per_node_layered() -> Row:
    return await per_node("µs a node, 100,000 against 100, layered", 1.3, lambda size: layers(size // 10, 10))


async def per_node_chain() -> Row:
    return await per_node("µs a node, 100,000 against 100, chain", 1.6, chain)


def _keep(events: Sequence[Event], url: str) -> None:
    """Write the events as a process that died left them: nothing says that the run has ended."""
    with closing(open_store(url, "process")) as store:
        journal = store.create("long")
        for event in events:
            journal.append(event)
        journal.commit()


async def resuming() -> Row:
    """A run of 10,000 events (5,000 nodes) that was cut before the end of its last node."""
    flow = flow_of(chain(4999), add, counter=0)
    whole = await flow.run(run_id="long")
    left = [event for event in whole.events if not isinstance(event, RunFinished)][:-1]
    assert len(left) >= 9_997
    with tempfile.TemporaryDirectory() as folder:
        times: list[float] = []
        for number in range(3):
            url = f"sqlite:///{folder}/runs{number}.db"
            _keep(left, url)
            begun = process_time()
            again = await flow.resume("long", store=url)
            times.append(process_time() - begun)
            assert again.shared_state["counter"] == 4999
            assert any(isinstance(event, RunResumed) for event in again.events)
    return Row("open and resume 10,000 events", statistics.median(times), 0.5, "s CPU", (min(times), max(times)))


ROWS = (
    chain_of_1000,
    conditions_in_code,
    conditions_in_yaml,
    fan_out,
    fan_out_that_waits,
    layered,
    many_runs,
    sqlite_process,
    sqlite_by_url,
    sqlite_full,
    branches,
    branches_cpu,
    per_node_layered,
    per_node_chain,
    appending,
    resuming,
)


def run(row: Callable[[], Awaitable[Row]]) -> Row:
    return asyncio.run(row())  # type: ignore[arg-type]
