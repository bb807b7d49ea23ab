"""Vendors' limits for real processes: what a model server on loopback sees of three of them."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager

import pytest

from flowengine.journal.postgres.store import PostgresStore
from tests.support.model_server import ModelServer, Received
from tests.support.pace import measured_pace
from tests.support.postgres import empty_database

CALLER = """
import sys
import urllib.request
import anyio
import anyio.to_thread
from flowengine.journal.postgres.rates import PostgresRates
from flowengine.models.messages import Message
from flowengine.models.model import Reply, Request
from flowengine.models.vendors import RateLimits
from flowengine.models.wrappers.rate import RateLimitedModel

class Asking:
    name, provider = "m", "openai"

    async def complete(self, request):
        await anyio.to_thread.run_sync(self.post)
        return Reply("said")

    def post(self):
        body = b'{"model": "m", "messages": [{"role": "user", "content": "hi"}]}'
        urllib.request.urlopen(f"{sys.argv[2]}/chat/completions", body).read()

async def main():
    rates = PostgresRates(sys.argv[1], minute=float(sys.argv[3]))
    model = RateLimitedModel(Asking(), rates.limiter("openai", eval(sys.argv[5])))
    print("ready", flush=True)
    sys.stdin.readline()
    async with anyio.create_task_group() as calls:
        for _ in range(int(sys.argv[4])):
            calls.start_soon(model.complete, Request("m", (Message("user", "hi"),)))
    rates.close()
anyio.run(main)
"""

Start = Callable[[int, int, str], list[subprocess.Popen[str]]]


@pytest.fixture
def url() -> str:
    made = empty_database()
    store = PostgresStore(made)
    store.list()  # Makes the tables.
    store.close()
    return made


@contextmanager
def callers(url: str, server: ModelServer, minute: float) -> Generator[Start]:
    """Processes that all begin to call at the same time."""
    begun: list[subprocess.Popen[str]] = []

    def start(count: int, calls: int, limits: str) -> list[subprocess.Popen[str]]:
        arguments = [sys.executable, "-c", CALLER, url, server.url, str(minute), str(calls), limits]
        new = [
            subprocess.Popen(arguments, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) for _ in range(count)
        ]
        begun.extend(new)
        for each in new:
            assert each.stdout is not None
            assert each.stdout.readline() == "ready\n"
        for each in new:
            assert each.stdin is not None
            each.stdin.write("go\n")
            each.stdin.flush()
        return new

    try:
        yield start
    finally:
        for each in begun:
            each.kill()
            each.communicate()


def most_at_once(requests: Sequence[Received]) -> int:
    """Calls under way at the same time, at most; one that was given up ended when nobody knows, so it is left out."""
    ends = [(each.answered, -1) for each in requests if each.answered is not None]
    begins = [(each.arrived, 1) for each in requests if each.answered is not None]
    now = most = 0
    for _, step in sorted([*ends, *begins]):
        now += step
        most = max(most, now)
    return most


def until(true: Callable[[], object], seconds: float = 30) -> None:
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end
        time.sleep(0.02)


@pytest.mark.long
def test_three_processes_keep_one_limit_in_every_window(url: str) -> None:
    minute, limit = 2.0, 6
    with ModelServer() as server, callers(url, server, minute) as start, measured_pace() as pace:
        for each in start(3, 6, f"RateLimits(requests_per_minute={limit})"):
            assert each.wait(60) == 0
        times = [each.arrived for each in server.requests]
    assert len(times) == 18
    # The way to the server is not of the same length for all, above all where others work on the machine.
    spans = [later - first for first, later in zip(times, times[limit:], strict=False)]
    assert min(spans) > 0.5 * minute
    assert times[-1] - times[0] < 4 * minute * pace.factor()  # What is allowed is used: 18 calls at 6 a minute.


@pytest.mark.long
def test_three_processes_have_no_more_calls_under_way_than_one_may(url: str) -> None:
    with ModelServer(latency=0.1) as server, callers(url, server, 60) as start:
        for each in start(3, 5, "RateLimits(max_parallel=2)"):
            assert each.wait(60) == 0
        assert len(server.requests) == 15
        assert most_at_once(server.requests) == 2


@pytest.mark.long
def test_a_process_that_is_killed_has_no_slots_any_more(url: str) -> None:
    limits = "RateLimits(max_parallel=2)"
    with ModelServer(latency=60) as server, callers(url, server, 60) as start:
        (victim,) = start(1, 2, limits)
        until(lambda: len(server.requests) == 2)
        server.latency = 0.05
        (other,) = start(1, 4, limits)
        time.sleep(0.5)
        assert len(server.requests) == 2  # It waits.
        victim.send_signal(signal.SIGKILL)
        assert other.wait(60) == 0
        assert len(server.requests) == 6
