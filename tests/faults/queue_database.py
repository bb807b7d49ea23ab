"""A PostgreSQL that is stopped at once, or is full, while workers improve texts; and runs that two want to own."""

from __future__ import annotations

import random
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

import psycopg

from tests.faults import story
from tests.faults.account import Cut, owner_of
from tests.faults.queue_killed import disturbed, paid, whole
from tests.faults.world import World, until

__all__ = ["away", "full", "two_owners"]

RUNS = 40


def away(times: int, seed: int, seconds: float = 10.0, runs: int = RUNS, workers: int = 3) -> str:
    """PostgreSQL is stopped at once for ten seconds, and started again: workers survive, all runs finish."""
    chance = random.Random(seed)
    cuts: list[Cut] = []
    with World() as world:
        world.start(workers)
        world.ready()
        for _ in range(times):
            ids = disturbed(world, chance, runs)
            at = time.time()
            world.server.crash()
            time.sleep(seconds)
            world.server.start_again()
            cuts.append(Cut(at, time.time()))
            until(lambda: not world.unfinished(), 120, "all runs finish")
            whole(world, ids)
            assert all(worker.is_alive for worker in world.workers), "a worker ended"
        resumed = sum(worker.said.count(" goes on: ") for worker in world.workers)
        return f"{times} times, {world.submitted} runs finished, {resumed} had to be resumed; {paid(world, cuts)}"


def full(times: int, seed: int, seconds: float = 8.0) -> str:
    """The disk of PostgreSQL is full for a while: workers survive, all runs finish, nothing is paid for twice."""
    chance = random.Random(seed)
    with World(disk=100) as world:
        world.start(2)
        world.ready()
        for _ in range(times):
            ids = disturbed(world, chance, RUNS)
            with filled(world):
                time.sleep(seconds)
                seen = len(world.models.requests)
                assert world.unfinished(), "the disk was not full"
                until(
                    lambda seen=seen: len(world.models.requests) - seen < 20, 5, "no more is asked than was on its way"
                )
            until(lambda: not world.unfinished(), 120, "all runs finish")
            whole(world, ids)
            assert all(worker.is_alive for worker in world.workers), "a worker ended"
        return f"{times} times, {world.submitted} runs finished; {paid(world, [])}"


@contextmanager
def filled(world: World) -> Iterator[None]:
    """No room for another page of any table."""
    with psycopg.connect(world.url, autocommit=True) as connection:
        connection.execute("CREATE TABLE ballast (page TEXT)")
        connection.execute("ALTER TABLE ballast ALTER page SET STORAGE PLAIN")
        for rows in (256, 16, 1):  # of 8 kB each
            full = False
            while not full:
                try:
                    connection.execute(
                        "INSERT INTO ballast SELECT repeat('x', 8000) FROM generate_series(1, %s)", (rows,)
                    )
                except psycopg.errors.DiskFull:
                    full = True
        try:
            yield
        finally:
            connection.execute("DROP TABLE ballast")


def two_owners(times: int, seed: int) -> str:
    """Two processes resume one run at once, with a worker beside them: each run has one owner at a time."""
    chance = random.Random(seed)
    refused = 0
    cuts: list[Cut] = []
    with World(latency=0.3, concurrency=4) as world:
        for _ in range(times):
            (victim,) = world.start()
            world.ready()
            (run_id,) = world.submit(1)
            moment = len(world.models.requests) + chance.randrange(1, story.COMPLETIONS - 1)
            until(lambda moment=moment: len(world.models.requests) >= moment, 60, "the run moves")
            victim.kill()
            cuts.append(Cut(victim.ended_at or 0.0, worker=victim.number))
            both = [resuming(world, run_id) for _ in range(2)]
            (beside,) = world.start()
            told = [process.communicate(timeout=120) for process in both]
            until(lambda: not world.unfinished(), 60, "the run finishes")
            whole(world, [run_id])
            codes = sorted(process.returncode for process in both)
            assert codes[0] == 0 or "was taken over" in str(told) or "succeeded" in beside.said, told
            refused += sum("is being written by" in err for _, err in told)
            assert not any("Traceback" in err for _, err in told), told
            beside.kill()
            owners(world, run_id)
        return f"{times} runs, {refused} processes were refused; {paid(world, cuts)}"


def resuming(world: World, run_id: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "flowengine", "resume", run_id, "--quiet"]
    return subprocess.Popen(
        command,
        cwd=world.folder,
        env=world.environ(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def owners(world: World, run_id: str) -> None:
    """Nobody asks for a run after somebody else has begun to."""
    asked = [owner_of(each) for each in world.requests() if story.run_of(each.body) == run_id]
    changes = [owner for number, owner in enumerate(asked) if number == 0 or asked[number - 1] != owner]
    assert len(changes) == len(set(changes)), f"owners of {run_id} took turns: {changes}"
