"""What is disturbed: a PostgreSQL, a model server that counts, and workers in processes of their own.

Each worker is `flowengine worker` as a user starts it, and asks the model server at an address of its own, so
that every request says whose it is.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any, Self

import anyio
import psycopg

from flowengine.core.records import ModelCall
from flowengine.engine.events import NodeRecorded
from flowengine.flow import Flow
from flowengine.journal.postgres.store import PostgresStore
from flowengine.runtime.queue.run_queue import submit_many
from tests.faults import story
from tests.faults.account import Record, Recorded, owner_of, recorded_answers
from tests.support.model_answers import Responder
from tests.support.model_server import ModelServer, Received
from tests.support.postgres import Server

__all__ = ["Worker", "World", "until"]


class Worker:
    """A process that works on the queue."""

    def __init__(self, number: int, process: subprocess.Popen[bytes], log: Path) -> None:
        self.number = number
        self.process = process
        self.log = log
        self.ended_at: float | None = None
        """When it was killed."""

    @property
    def is_alive(self) -> bool:
        return self.process.poll() is None

    @property
    def said(self) -> str:
        return self.log.read_text(errors="replace")

    def kill(self) -> None:
        self.ended_at = time.time()
        self.process.kill()
        self.process.wait(30)

    def send(self, how: signal.Signals) -> None:
        self.process.send_signal(how)

    def memory(self) -> int:
        """Bytes that are its own, resident."""
        return int(Path(f"/proc/{self.process.pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")

    def descriptors(self, port: int) -> int:
        """Open files and sockets, but for calls to a model server at a port: of these are as many as it has runs."""
        open_ones: list[str] = []
        for each in Path(f"/proc/{self.process.pid}/fd").iterdir():
            with suppress(OSError):  # Closed meanwhile.
                open_ones.append(os.readlink(each))
        rows = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
        calls = {f"socket:[{row[9]}]" for row in rows if row[2].endswith(f":{port:04X}")}
        return sum(each not in calls for each in open_ones)


class World:
    """Made and taken down by `with`."""

    def __init__(
        self,
        *,
        latency: float = 0.1,
        concurrency: int = 8,
        responder: Responder = story.answer,
        flow: str | None = None,
        options: Sequence[str] = (),
        disk: int | None = None,
    ) -> None:
        """`flow`: its text, else that of the shipped one. `disk`: MB that the tables have at most."""
        self.workers: list[Worker] = []
        self.concurrency = concurrency
        self.options = options
        self._disk = disk
        self.models = ModelServer(responder, latency=latency)
        self._text = flow or story.FLOW.read_text()
        self._stack = ExitStack()
        self.submitted = 0
        """Runs."""
        self._others = 1_000

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            self.folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="flowengine-faults-")))
            self.server = Server(disk=self._disk, times=True)
            stack.callback(self.server.stop)
            self.url = self.server.database()
            stack.enter_context(self.models)
            stack.callback(self._end_workers)
            flow = self.folder / "flow.yaml"
            flow.write_text(self._text)
            self.plan = Flow.from_yaml(flow, environ=self.environ()).plan
            self.store = PostgresStore(self.url, "process", patience=60)
            stack.callback(self.store.close)
            self._stack = stack.pop_all()
        return self

    def __exit__(self, kind: type[BaseException] | None, *exc: object) -> None:
        try:
            if kind is not None:
                print(self.described(), file=sys.stderr)
        finally:
            self._stack.close()

    def described(self) -> str:
        """How things stand, for who has to find out why something did not hold."""
        lines = [f"model server: {len(self.models.requests)} requests"]
        for worker in self.workers:
            state = "alive" if worker.is_alive else f"ended with {worker.process.returncode}"
            lines += [f"worker {worker.number}: {state}", *(f"    {line}" for line in worker.said.splitlines()[-8:])]
        try:
            lines += [f"runs: {sorted(Counter(self.statuses().values()).items())}", f"jobs: {self.jobs()[:20]}"]
        except Exception as error:
            lines.append(f"PostgreSQL: {error}")
        return "\n".join(lines)

    def ready(self) -> None:
        """Wait until all workers are at work."""
        until(lambda: all("working on" in worker.said for worker in self.alive()), 120, "workers start")

    def alive(self) -> list[Worker]:
        return [worker for worker in self.workers if worker.is_alive]

    def at_work(self) -> list[Worker]:
        """Workers that wait for an answer."""
        asking = {owner_of(each) for each in self.requests() if each.answered is None and not each.abandoned}
        return [worker for worker in self.alive() if worker.number in asking]

    def await_work(self, first: int = 1) -> list[Worker]:
        """As `at_work`, once there is one; workers have numbers, and those before `first` do not count."""
        end = time.monotonic() + 120
        while not (found := [worker for worker in self.at_work() if worker.number >= first]):
            assert time.monotonic() < end, "no worker waits for an answer"
            time.sleep(0.05)
        return found

    def start(self, count: int = 1) -> list[Worker]:
        """New workers."""
        return [self._start() for _ in range(count)]

    def submit(self, count: int, **options: Any) -> list[str]:
        """New runs, each with a topic of its own; their ids."""
        first, self.submitted = self.submitted, self.submitted + count
        names = [f"r{number:05}" for number in range(first, first + count)]
        anyio.run(self._submit, names, options)
        return names

    def statuses(self) -> dict[str, str]:
        return {run.run_id: run.status for run in self.store.list()}

    def unfinished(self) -> list[str]:
        return [run_id for run_id, status in self.statuses().items() if status != "succeeded"]

    def running(self) -> list[str]:
        return [run_id for run_id, status in self.statuses().items() if status == "running"]

    def requests(self) -> list[Received]:
        return list(self.models.requests)

    def recorded(self) -> list[Recorded]:
        """The answers that are on record."""
        times = self.ask(
            "SELECT run_id, position, extract(epoch FROM pg_xact_commit_timestamp(event.xmin))::float8 "
            "FROM flowengine.event JOIN flowengine.run USING (number) ORDER BY run_id, position"
        )
        at = {(run_id, position): time for run_id, position, time in times}
        records = [
            Record(story.prompt_of(event.record.messages), at[run_id, position])
            for run_id in self.statuses()
            for position, event in enumerate(self.store.events(run_id))
            if isinstance(event, NodeRecorded) and isinstance(event.record, ModelCall) and not event.record.error
        ]
        return recorded_answers(self.requests(), records)

    def ask(self, statement: str) -> list[tuple[Any, ...]]:
        with psycopg.connect(self.url, autocommit=True) as connection:
            return connection.execute(statement.encode()).fetchall()

    def jobs(self) -> list[tuple[Any, ...]]:
        """What is in the queue, or was not done with success."""
        return self.ask(
            "SELECT id, status::text, lock, attempts, worker_id FROM flowengine_queue.procrastinate_jobs "
            "WHERE task_name = 'flowengine.run' ORDER BY id"
        )

    async def _submit(self, names: Sequence[str], options: dict[str, Any]) -> None:
        await submit_many(self.store, self.plan, {name: {"topic": f"story-{name}"} for name in names}, **options)

    def environ(self, number: int | None = None) -> dict[str, str]:
        """The surroundings of a process that asks the models at an address of its own."""
        if number is None:
            number = self._others = self._others + 1
        return {
            **os.environ,
            "PYTHONPATH": os.pathsep.join(sys.path),
            "FLOWENGINE_STORE": getattr(self, "url", ""),
            "OPENAI_API_KEY": "local",
            "OPENAI_BASE_URL": f"http://{self.models.host}:{self.models.port}/w{number}/v1",
            "FLOWENGINE_DEFAULT_MODEL": "openai/gpt-4o-mini",
        }

    def _start(self) -> Worker:
        number = len(self.workers) + 1
        log = self.folder / f"worker{number}.log"
        command = [sys.executable, "-m", "flowengine", "worker", "--concurrency", str(self.concurrency), *self.options]
        with open(log, "wb") as file:
            process = subprocess.Popen(command, cwd=self.folder, env=self.environ(number), stdout=file, stderr=file)
        worker = Worker(number, process, log)
        self.workers.append(worker)
        return worker

    def _end_workers(self) -> None:
        for worker in self.workers:
            if worker.is_alive:
                worker.process.kill()
            worker.process.wait(30)


def until(holds: Callable[[], bool], seconds: float, what: str = "") -> float:
    """Wait for something; how long it took. `AssertionError` where it does not come."""
    begun = time.monotonic()
    while not holds():
        if time.monotonic() - begun > seconds:
            raise AssertionError(f"not within {seconds:g} s: {what or holds}")
        time.sleep(0.05)
    return time.monotonic() - begun
