"""Runs in a queue, for tests: flows with their code in a folder, workers in this process and in others."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import anyio
import psycopg

from flowengine.core.context import RunStatus
from flowengine.engine.events import Event, NodeStarted
from flowengine.flow import Flow
from flowengine.journal.postgres.store import PostgresStore
from flowengine.runtime.queue.worker import Pace, work

__all__ = [
    "KINDS",
    "NAPS",
    "QUICK",
    "SLEEP",
    "UNTIL_TOLD",
    "await_node",
    "command",
    "drain",
    "end_workers",
    "execute",
    "flow",
    "jobs",
    "of",
    "status",
    "stop",
    "until",
    "worker",
]

SLEEP = """
flowengine: v1
name: sleep
inputs:
  seconds: {type: number, default: 0}
nodes:
  first: {type: function, call: "naps:sleep", with: {delay: 0, result: one}}
  sleep: {type: function, call: "naps:sleep", with: {delay: "{{ inputs.seconds }}", result: two}, needs: [first]}
outputs:
  said: "{{ nodes.first.output }} {{ nodes.sleep.output }}"
"""
KINDS = """
flowengine: v1
name: t
inputs: {kind: {type: string}}
nodes:
  kind: {type: condition, cases: [{if: "inputs.kind == 'asks'", then: ok}, {if: "inputs.kind == 'fails'", then: bad}], else: good}
  ok: {type: approval, message: Go on?, routes: {"yes": good}}
  bad: {type: function, call: "naps:sleep", with: {delay: not a number, result: one}}
  good: {type: function, call: "naps:sleep", with: {delay: 0, result: one}, join: some}
"""  # noqa: E501
"""A run that works, fails or asks, as its input says."""
NAPS = """
import anyio
async def sleep(delay, result):
    await anyio.sleep(delay)
    return result
"""
UNTIL_TOLD = """
import os
import anyio
async def sleep(delay, result):
    while delay and not os.path.exists("go"):
        await anyio.sleep(0.05)
    return result
"""
"""As `NAPS`, but what takes time takes until there is a file `go`."""
QUICK = Pace(grace=0.3, heartbeat=0.3, stalled=1.5, orphans=0.5, poll=0.2, busy=1)
_WORKER = """
import sys
from dataclasses import replace
import anyio
from flowengine.journal.postgres.store import PostgresStore
from flowengine.runtime.queue.worker import work
from tests.support.queue_runs import QUICK
async def main():
    store = PostgresStore(sys.argv[1], "full")
    options = {"takeovers": int(sys.argv[2]), "concurrency": int(sys.argv[3])}
    pace = replace(QUICK, grace=float(sys.argv[4]), hanging=float(sys.argv[5]))
    await work(store, pace=pace, **options, tell=lambda line: print(line, flush=True))
    store.close()
anyio.run(main)
"""
_AT_LAST = 120
"""Seconds after which what is waited for does not come; a worker's start takes a minute on a machine that is busy."""
_ROOT = Path(__file__).parents[2]
_started: list[subprocess.Popen[str]] = []


def flow(folder: Path, text: str = SLEEP, code: str = NAPS) -> Flow:
    (folder / "naps.py").write_text(code)
    path = folder / "flow.yaml"
    path.write_text(text)
    return Flow.from_yaml(path)


def status(store: PostgresStore, run_id: str) -> RunStatus:
    return next(run.status for run in store.list() if run.run_id == run_id)


def of(kind: type[Event], events: Any) -> list[Any]:
    return [event for event in events if isinstance(event, kind)]


async def drain(store: PostgresStore, **options: Any) -> list[str]:
    """A worker that ends when there is nothing to begin; what it told."""
    told: list[str] = []
    with anyio.fail_after(_AT_LAST):
        await work(store, wait=False, pace=QUICK, tell=told.append, **options)
    return told


async def until(store: PostgresStore, run_id: str, wanted: RunStatus) -> None:
    with anyio.fail_after(_AT_LAST):
        while status(store, run_id) != wanted:  # noqa: ASYNC110 - another process's doing
            await anyio.sleep(0.05)


def worker(
    store: PostgresStore,
    folder: Path,
    takeovers: int = 5,
    package: Path | None = None,
    concurrency: int = 1,
    grace: float = QUICK.grace,
    hanging: float = QUICK.hanging,
) -> subprocess.Popen[str]:
    """One in a process of its own, which works in a folder; `package`: where another FlowEngine is imported from."""
    process = subprocess.Popen(
        [sys.executable, "-c", _WORKER, store.url, str(takeovers), str(concurrency), str(grace), str(hanging)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=folder,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([*([str(package)] if package else []), str(_ROOT)])},
    )
    _started.append(process)
    return process


def end_workers() -> None:
    """Kill the workers of a test that it has left, as one does that fails: they would take the next one's runs."""
    for process in _started:
        with process:
            process.kill()
    _started.clear()


def await_node(store: PostgresStore, run_id: str, node: str) -> None:
    end = time.monotonic() + _AT_LAST
    while not any(event.node == node for event in of(NodeStarted, store.events(run_id))):
        assert time.monotonic() < end
        time.sleep(0.05)


def stop(process: subprocess.Popen[str], how: signal.Signals) -> tuple[str, str]:
    process.send_signal(how)
    return process.communicate(timeout=_AT_LAST)


def command(
    folder: Path, url: str, *words: str, environ: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """A command line, in a folder, on a store."""
    return subprocess.run(
        [sys.executable, "-m", "flowengine.cli.main", *words],
        cwd=folder,
        env={**os.environ, "FLOWENGINE_STORE": url, **(environ or {})},
        capture_output=True,
        text=True,
        timeout=_AT_LAST,
        check=False,
    )


def execute(store: PostgresStore, statement: str) -> list[Any]:
    """The rows that a statement gives in the schema of the queue."""
    with psycopg.connect(store.url, autocommit=True, options="-c search_path=flowengine_queue") as connection:
        cursor = connection.execute(statement.encode())
        return cursor.fetchall() if cursor.description else []


def jobs(store: PostgresStore) -> list[Any]:
    """Run and status of each job of the queue, in their order."""
    return execute(store, "SELECT lock, status::text FROM procrastinate_jobs ORDER BY id")
