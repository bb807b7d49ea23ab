"""kill -9 of a process whose rows wait for vendors' batches: started again, nothing is lost and nothing posted twice.

The vendor is a server in the process that looks on. It is killed while the vendor takes a file or a batch, is asked
how it stands or hands answers over, and right after an event of some row is appended or committed.
"""

from __future__ import annotations

import os
import random
import shutil
import signal
from collections.abc import Callable, Iterator
from contextlib import aclosing, suppress
from pathlib import Path
from typing import Any, Final

import anyio

from flowengine import Flow
from flowengine.core.records import ModelCall
from flowengine.engine.events import NodeRecorded
from flowengine.evals.batch_collector import BatchCollector, BatchPace
from flowengine.journal.sqlite.store import SQLiteStore
from flowengine.runtime.local.row_runs import DataRow, RowRuns, open_row_set
from tests.faults.process_killed import MOMENTS, die
from tests.faults.process_nursery import Child, Nursery
from tests.support.batch_server import BatchServer, asked_of

__all__ = ["MODELS", "POINTS", "check_kill", "load_flow", "rows"]

ROWS: Final = 5
MODELS: Final = {"openai": "openai/gpt-4o-mini", "anthropic": "anthropic/claude-haiku-4-5"}
POINTS: Final = [
    *[("file", n) for n in (1, 2)],
    *[("taken", n) for n in (1, 2)],
    *[("look", n) for n in (1, 2, 3, 5, 7)],
    *[("answers", n) for n in (1, 2, 3)],
    *[(moment, at) for moment in MOMENTS for at in range(3, 90, 12)],
]
"""Where a process is killed: at the n-th event of the server, or of the journal."""
FLOW: Final = """flowengine: v1
name: three
inputs: {n: {type: integer}}
nodes:
  one: {model: MODEL, max_retries: 0, prompt: "first {{ inputs.n }}"}
  beside: {model: MODEL, max_retries: 0, prompt: "beside {{ inputs.n }}"}
  two: {model: MODEL, max_retries: 0, needs: [one, beside], prompt: "second {{ nodes.one.output }}"}
outputs: {said: "{{ nodes.two.output }}"}
"""


def load_flow() -> None:
    """What the processes have before they begin."""
    Flow.from_text(FLOW.replace("MODEL", "offline"), "three.yaml").run_sync({"n": 1})


def go_on(url: str, vendor: str, moment: str = "", at: int = 0) -> list[Any]:
    """Begin the rows in this folder, or go on with them, to their end."""
    os.environ |= {"OPENAI_BASE_URL": f"{url}/v1", "OPENAI_API_KEY": "sk-test"}
    os.environ |= {"ANTHROPIC_BASE_URL": url, "ANTHROPIC_API_KEY": "sk-ant-test"}
    if moment:
        die(moment, at)
    store = SQLiteStore("runs.db")
    try:
        return anyio.run(_to_the_end, store, vendor)
    finally:
        store.close()


async def _to_the_end(store: SQLiteStore, vendor: str) -> list[Any]:
    flow = Flow.from_text(FLOW.replace("MODEL", MODELS[vendor]), "three.yaml")
    runs = RowRuns(plan=flow.plan, store=store, rows=open_row_set(flow.plan, store, "rows", vendor), concurrency=3)
    data = [DataRow(n, {"n": n}) for n in range(ROWS)]
    pace = BatchPace(linger=0.03, first_look=0.01, longest_pause=0.02)
    async with BatchCollector(store, runs.rows.id, pace), aclosing(runs.results(data)) as results:
        return [each.outputs.get("said") async for each in results]


def check_kill(nursery: Nursery, folder: Path, vendor: str, event: str, count: int) -> bool:
    """Kill the process at one point and start it again; whether it came as far as that point."""
    folder.mkdir()
    seen, child = 0, list[Child]()

    def hear(told: str) -> None:
        nonlocal seen
        seen += told == event
        if told == event and seen == count:
            with suppress(ProcessLookupError):
                os.kill(child[0].pid, signal.SIGKILL)

    with BatchServer(lambda body: f"<{asked_of(body)}>", looks=1) as server:
        server.heard = hear
        inside = {"moment": event, "at": count} if event in MOMENTS else {}
        child.append(nursery.start(go_on, folder, url=server.anthropic, vendor=vendor, **inside))
        killed = child[0].ended()
        assert killed.status in (-signal.SIGKILL, 0), killed
        server.heard = lambda told: None
        ended = nursery.run(go_on, folder, url=server.anthropic, vendor=vendor)
        place = f"{vendor}, killed at {event} {count}"
        assert ended.value == [f"<second <first {n}>>" for n in range(ROWS)], f"{place}: {ended}"
        assert server.live == 0, place
        assert set(server.posted.values()) == {1}, f"{place}: {server.posted}"
        assert len(server.posted) == 3 * ROWS, place
    assert paid_calls(folder) == [3] * ROWS, place
    shutil.rmtree(folder)
    return killed.status != 0


def paid_calls(folder: Path) -> list[int]:
    """How many model calls each run has on record."""
    store = SQLiteStore(folder / "runs.db")
    try:
        runs = [store.events(each.run_id) for each in store.list()]
        return [sum(isinstance(e, NodeRecorded) and isinstance(e.record, ModelCall) for e in run) for run in runs]
    finally:
        store.close()


def rows() -> Iterator[tuple[str, Callable[[Path], str]]]:
    """Each row's name, and what tries it in a folder and says what was seen."""
    yield "kill -9 of rows that wait for batches, at the vendor's door and at events of their journals", every_point


def every_point(folder: Path) -> str:
    draw, killed = random.Random(1), 0
    with Nursery(load_flow) as nursery:
        for vendor in MODELS:
            points = [*POINTS, *[(draw.choice(MOMENTS), draw.randint(1, 120)) for _ in range(10)]]
            for at, (event, count) in enumerate(points):
                killed += check_kill(nursery, folder / f"{vendor}{at}", vendor, event, count)
    return f"{killed} processes killed"
