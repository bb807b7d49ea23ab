"""kill -9 for real: a process whose agent is improving its draft is killed at twenty moments and resumed.

The model server counts. What it had answered a tenth of a second before the kill is never asked again;
only the call in flight is.
"""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any

import anyio

from flowengine.journal.stores import open_store
from tests.support import improving
from tests.support.model_server import ModelServer, Received

__all__ = ["ARRIVALS", "LENGTHS", "check_moments", "killed_and_resumed", "moments", "rows", "through_the_command_line"]

GRACE = 0.1
"""Seconds from an answer's leaving the server to its being on record."""
LATENCY = 0.04
ARRIVALS = range(1, improving.COMPLETIONS + 1)
"""Kill when the n-th request arrives."""
LENGTHS = (1, 2, 4, 5, 6, 7, 9, 10, 12, 13, 15)
"""Kill when the journal holds so many events."""


class Victim:
    """A process that runs the flow, and the server that it asks."""

    def __init__(self, server: ModelServer, store: Path, command: Sequence[str], **settings: Any) -> None:
        self.server = server
        self.store = store
        self.killed_at = 0.0
        self._arrival = 0
        server.respond_with(self._answer)
        self._process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, **settings)

    def kill_at_arrival(self, number: int) -> list[Received]:
        """Kill it while its n-th request is in flight; the requests until then."""
        self._arrival = number
        return self._end()

    def kill_at_length(self, length: int) -> list[Received]:
        """Kill it when its journal holds so many events."""
        while events_in(self.store) < length and self._process.poll() is None:
            time.sleep(0.001)
        self._kill()
        return self._end()

    def _answer(self, body: Mapping[str, Any]) -> str:
        if len(self.server.requests) == self._arrival:
            self._kill()
        return improving.answer(body)

    def _kill(self) -> None:
        self.killed_at = time.time()
        self._process.send_signal(signal.SIGKILL)

    def _end(self) -> list[Received]:
        _, told = self._process.communicate(timeout=60)
        assert self._process.returncode == -signal.SIGKILL, told.decode()
        self._arrival = 0
        return list(self.server.requests)


def events_in(store: Path) -> int:
    try:
        with closing(sqlite3.connect(f"file:{store}?mode=ro", uri=True)) as connection:
            return connection.execute("SELECT ifnull(max(position) % 4294967296 + 1, 0) FROM event").fetchone()[0]
    except sqlite3.OperationalError:  # it is not there yet
        return 0


def check_paid_once(before: Sequence[Received], after: Sequence[Received], killed_at: float) -> None:
    """Every completion was asked for, and again only the one that was in flight."""
    first = {str(each.body): each for each in before}
    assert len(first) == len(before), "a process asked twice for one completion"
    again = [first[str(each.body)] for each in after if str(each.body) in first]
    assert len(again) <= 1
    for each in again:
        assert each.answered is None or each.answered > killed_at - GRACE
    assert len(before) + len(after) - len(again) == improving.COMPLETIONS


def killed_and_resumed(folder: Path, name: str, kill: Callable[[Victim], list[Received]]) -> int:
    """One moment; how many completions were left."""
    path = folder / f"{name}.db"
    store = f"sqlite:///{path}"
    with ModelServer(latency=LATENCY) as server:
        script = [sys.executable, improving.__file__, server.url, store, "r1"]
        victim = Victim(server, path, script, env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)})
        before = kill(victim)
        flow = improving.improving(improving.HttpModel(server.url))

        async def resume() -> Any:
            return await flow.resume("r1", store=store)

        run = anyio.run(resume)
        after = server.requests[len(before) :]
    assert run.outputs == {"text": improving.OUTPUT}, run.error
    check_paid_once(before, after, victim.killed_at)
    return len(after)


def moments(
    arrivals: Sequence[int], lengths: Sequence[int]
) -> Iterator[tuple[str, Callable[[Victim], list[Received]]]]:
    """Of each moment its name, and what kills at it."""
    for number in arrivals:
        yield f"arrival{number}", lambda victim, number=number: victim.kill_at_arrival(number)
    for length in lengths:
        yield f"length{length}", lambda victim, length=length: victim.kill_at_length(length)


def check_moments(folder: Path, arrivals: Sequence[int], lengths: Sequence[int]) -> list[int]:
    """How many completions were left at each of the moments."""
    with ThreadPoolExecutor(2) as pool:
        left = list(pool.map(lambda moment: killed_and_resumed(folder, *moment), moments(arrivals, lengths)))
    assert left[: len(arrivals)] == [improving.COMPLETIONS - number + 1 for number in arrivals]
    return left


def through_the_command_line(folder: Path) -> None:
    """The same with `flowengine run`, and with the vendor's library between."""
    (folder / "improving.yaml").write_text(improving.FLOW_FILE)
    path = folder / "runs.db"
    python = [sys.executable, "-m", "flowengine"]
    store = ["--store", f"sqlite:///{path}", "--quiet"]
    with ModelServer(latency=LATENCY) as server:
        surroundings = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join(sys.path),
            "OPENAI_API_KEY": "local",
            "OPENAI_BASE_URL": server.url,
            "FLOWENGINE_DEFAULT_MODEL": "openai/gpt-4o-mini",
        }
        command = [*python, "run", "improving.yaml", "--run-id", "r1", *store]
        victim = Victim(server, path, command, env=surroundings, cwd=folder)
        before = victim.kill_at_arrival(6)
        command = [*python, "resume", "r1", *store]
        again = subprocess.run(command, env=surroundings, cwd=folder, capture_output=True, text=True, timeout=120)
        after = server.requests[len(before) :]
    assert (again.returncode, again.stdout) == (0, f"{improving.OUTPUT}\n"), again.stderr
    check_paid_once(before, after, victim.killed_at)
    kept = open_store(f"sqlite:///{path}", "process")
    assert [run.status for run in kept.list()] == ["succeeded"]
    kept.close()


def rows() -> Iterator[tuple[str, Callable[[Path], str]]]:
    """Each row's name, and what tries it in a folder and says what was seen."""
    yield "kill -9 while an agent improves its draft, at twenty moments; the model server counts", at_twenty


def at_twenty(folder: Path) -> str:
    left = check_moments(folder, ARRIVALS, LENGTHS)
    assert set(left) == set(range(1, improving.COMPLETIONS + 1)), "the moments are not spread over the run"
    through_the_command_line(folder)
    return f"{len(left)} moments; completions that were left: {sorted(left)}"
