"""The rows of the queue on PostgreSQL: how fast workers drain it, and what runs cost that wait for people.

Workers are processes of their own, started beforehand; the clock runs from the word "go" until the last one finds
nothing to begin. The bare jobs are of the same library, on the same server, with as many workers and slots: each does
five inserts, one after another, and nothing else.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import tempfile
from functools import partial
from pathlib import Path
from time import perf_counter, sleep

import anyio
import psycopg

from flowengine.flow import Flow
from flowengine.journal.postgres.store import PostgresStore
from tests.bench.measure import Row
from tests.support.postgres import server, why_missing

__all__ = ["ROWS"]

RUNS, WORKERS, SLOTS, ROUNDS = 1000, 2, 20, 3
FLOW = """\
flowengine: v1
name: five
nodes:
  a: {type: function, call: "steps:step", with: {text: one}}
  b: {type: function, call: "steps:step", with: {text: "{{ nodes.a.output }} two"}}
  c: {type: function, call: "steps:step", with: {text: "{{ nodes.b.output }} three"}}
  d: {type: function, call: "steps:step", with: {text: "{{ nodes.c.output }} four"}}
  e: {type: function, call: "steps:step", with: {text: "{{ nodes.d.output }} five"}}
outputs:
  said: "{{ nodes.e.output }}"
"""
ASKS = """\
flowengine: v1
name: asks
nodes:
  ok: {type: approval, message: Go on?, expires: 168h, on_expire: "no", routes: {"yes": a, "no": b}}
  a: {prompt: Yes., model: offline}
  b: {prompt: No., model: offline}
"""
STEPS = "async def step(text):\n    return text\n"

OURS = """
import sys, anyio
from flowengine.journal.postgres.store import PostgresStore
from flowengine.runtime.queue.worker import work
async def main():
    store = PostgresStore(sys.argv[1], "full")
    store.list()
    print("ready", flush=True)
    sys.stdin.readline()
    await work(store, concurrency=int(sys.argv[2]), wait=False)
    store.close()
anyio.run(main)
"""
BARE = """
import sys, anyio, procrastinate
connector = procrastinate.PsycopgConnector(conninfo=sys.argv[1], min_size=1, max_size=int(sys.argv[2]))
app = procrastinate.App(connector=connector, import_paths=[])
@app.task(name="five")
async def five(run):
    for number in range(5):
        await connector.execute_query_async(
            "INSERT INTO bare (run, body) VALUES (%(run)s, %(body)s)", run=run, body=f"step {number} of {run}"
        )
async def main():
    async with app.open_async():
        print("ready", flush=True)
        sys.stdin.readline()
        await app.run_worker_async(concurrency=int(sys.argv[2]), wait=False, delete_jobs="successful")
anyio.run(main)
"""


def drained(program: str, url: str, folder: str) -> float:
    """Seconds in which the workers empty the queue."""
    started = [
        subprocess.Popen(
            [sys.executable, "-c", program, url, str(SLOTS)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=folder,
        )
        for _ in range(WORKERS)
    ]
    for each in started:
        assert each.stdout is not None
        assert each.stdout.readline() == "ready\n"
    begun = perf_counter()
    for each in started:
        assert each.stdin is not None
        each.stdin.write("go\n")
        each.stdin.flush()
    for each in started:
        assert each.wait(300) == 0
    took = perf_counter() - begun
    for each in started:
        each.communicate()
    return took


def bare(url: str, folder: str) -> float:
    """The same on a database of its own."""
    import procrastinate
    from procrastinate.schema import SchemaManager

    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("DROP SCHEMA public CASCADE")
        connection.execute("CREATE SCHEMA public")
        connection.execute(SchemaManager.get_schema())
        connection.execute("CREATE TABLE bare (id BIGSERIAL PRIMARY KEY, run TEXT NOT NULL, body TEXT NOT NULL)")

    async def defer() -> None:
        async with procrastinate.App(connector=procrastinate.PsycopgConnector(conninfo=url)).open_async() as app:
            task = app.configure_task("five", allow_unknown=True)
            await task.batch_defer_async(*({"run": f"r{number}"} for number in range(RUNS)))

    anyio.run(defer)
    took = drained(BARE, url, folder)
    with psycopg.connect(url) as connection:
        assert connection.execute("SELECT count(*) FROM bare").fetchall() == [(5 * RUNS,)]
    return took


def ours(url: str, folder: str) -> float:
    from flowengine.runtime.queue.run_queue import submit_many

    store = PostgresStore(url, "full")
    try:
        for run in store.list():
            store.remove(run.run_id)
        plan = Flow.from_yaml(Path(folder) / "five.yaml").plan
        anyio.run(partial(submit_many, store, plan, {f"r{each}": {} for each in range(RUNS)}))
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute("VACUUM ANALYZE")
        took = drained(OURS, url, folder)
        left = {run.run_id: run.status for run in store.list() if run.status != "succeeded"}
        assert not left, left
        return took
    finally:
        store.close()


def drain() -> Row:
    """Our seconds for the bare ones': 0.8 of their pace is 1.25 of their time."""
    name = f"draining {RUNS} runs, {WORKERS} workers, to bare jobs"
    reason = why_missing()
    if reason is not None:
        print(f"- {name}: skipped, {reason}")
        return Row(f"{name} (skipped)", 0, 1.25)
    one, other = server(durable=True).database(), server(durable=True).database()
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "five.yaml").write_text(FLOW)
        Path(folder, "steps.py").write_text(STEPS)
        ratios: list[float] = []
        for _ in range(ROUNDS):
            floor = bare(other, folder)
            took = ours(one, folder)
            print(f"- bare {RUNS / floor:.0f} jobs a second, ours {RUNS / took:.0f} runs a second")
            ratios.append(took / floor)
    return Row(name, statistics.median(ratios), 1.25, "×", (min(ratios), max(ratios)))


def _seconds_until(store: PostgresStore, ids: list[str], status: str) -> float:
    """Seconds until all of the runs have that status."""
    begun, wanted = perf_counter(), set(ids)
    while not wanted <= {run.run_id for run in store.list() if run.status == status}:
        assert perf_counter() - begun < 300
        sleep(0.02)
    return perf_counter() - begun


def _memory_of(process: subprocess.Popen[str]) -> float:
    """Megabytes that are the process's own."""
    rows = Path(f"/proc/{process.pid}/smaps_rollup").read_text().splitlines()
    return sum(int(row.split()[1]) for row in rows if row.startswith("Private_")) / 1024


def waiting() -> Row:
    """What a worker of one slot grows by while 1,000 runs come to wait for people, each with a question that expires.

    Then a further run is begun and ended at once, or it is no result.
    """
    name = f"{RUNS} runs that wait for people: memory of a worker"
    reason = why_missing()
    if reason is not None:
        print(f"- {name}: skipped, {reason}")
        return Row(f"{name} (skipped)", 0, 8.0, "MB")
    store = PostgresStore(server(durable=True).database(), "full")
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "asks.yaml").write_text(ASKS)
        Path(folder, "five.yaml").write_text(FLOW)
        Path(folder, "steps.py").write_text(STEPS)
        program = OURS.replace("wait=False", "wait=True")
        worker = subprocess.Popen(
            [sys.executable, "-c", program, store.url, "1"], stdin=subprocess.PIPE, text=True, cwd=folder
        )
        try:
            assert worker.stdin is not None
            worker.stdin.write("go\n")
            worker.stdin.flush()
            grown = _grown(store, worker, Path(folder))
        finally:
            worker.terminate()
            worker.wait(60)
            store.close()
    return Row(name, grown, 8.0, "MB")


def _grown(store: PostgresStore, worker: subprocess.Popen[str], folder: Path) -> float:
    from flowengine.runtime.queue.run_queue import submit, submit_many

    asks, five = (Flow.from_yaml(folder / name).plan for name in ("asks.yaml", "five.yaml"))
    first, ids = [f"w{each}" for each in range(100)], [f"r{each}" for each in range(RUNS)]
    anyio.run(submit_many, store, asks, {each: {} for each in first})
    _seconds_until(store, first, "waiting")
    before = _memory_of(worker)
    anyio.run(submit_many, store, asks, {each: {} for each in ids})
    _seconds_until(store, ids, "waiting")
    grown = _memory_of(worker) - before
    took = _seconds_until(store, [anyio.run(submit, store, five, {})], "succeeded")
    print(f"- beside them a run of five nodes took {took:.2f} s")
    assert took < 5
    return grown


ROWS = (drain, waiting)
