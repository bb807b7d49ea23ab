"""Workers that die, hang, or are told to stop, while they improve texts."""

from __future__ import annotations

import random
import signal
import time
from collections.abc import Sequence
from functools import partial

from flowengine.engine.events import Event, NodeFinished, RunFinished
from tests.faults import story
from tests.faults.account import Cut, repeats, seconds, takeovers, unexcused
from tests.faults.world import Worker, World, until
from tests.support.pace import measured_pace

__all__ = ["crashing", "killed", "orphans", "stopped", "terminated"]

TAKEN_OVER = 10.0
"""Seconds of a quiet machine within which another worker goes on with the runs of one that was killed."""


def killed(times: int, seed: int, runs: int = 60, workers: int = 3) -> str:
    """kill -9 of one of three workers at a random moment of so many runs, again and again; another takes its place.

    Each fourth time it may be one that still starts; else it has runs, of which at least one is taken over.
    """
    chance = random.Random(seed)
    took: list[float] = []
    cuts: list[Cut] = []
    with World() as world, measured_pace() as pace:
        world.start(workers)
        for number in range(times):
            ids = disturbed(world, chance, runs)
            victim = chance.choice(world.alive() if number % 4 == 3 else world.await_work())
            victim.kill()
            cuts.append(Cut(victim.ended_at or 0.0, worker=victim.number))
            world.start()
            until(lambda: not world.unfinished(), 120, "all runs finish")
            events = whole(world, ids)
            found = takeovers(world.requests(), events, cuts[-1])
            took += [inf_if_none(each) for each in found.values()]
            assert found or number % 4 == 3, f"worker {victim.number} was killed, and none of its runs was taken over"
            late = max(took, default=0.0) > TAKEN_OVER
            assert not late or max(took) <= TAKEN_OVER * pace.factor(), f"takeover in {seconds(took)}"
        return f"{times} kills, {world.submitted} runs finished; taken over in {seconds(took)}; {paid(world, cuts)}"


def crashing(times: int, seed: int, runs: int = 60, workers: int = 3, every: float = 3.0) -> str:
    """kill -9 of a worker every three seconds, also of one that starts: no run is blamed, and all finish."""
    chance = random.Random(seed)
    cuts: list[Cut] = []
    with World() as world:
        world.start(workers)
        ids = world.submit(runs)
        for _ in range(times):
            time.sleep(every)
            victim = chance.choice(world.alive())
            victim.kill()
            cuts.append(Cut(victim.ended_at or 0.0, worker=victim.number))
            world.start()
        until(lambda: not world.running(), 240, "all runs end")
        whole(world, ids)
        return f"{times} kills, {world.submitted} runs finished, 0 given up; {paid(world, cuts)}"


def stopped(times: int, seed: int, runs: int = 24) -> str:
    """SIGSTOP of a worker until its runs are taken over and finished, then SIGCONT; it goes on with other runs."""
    chance = random.Random(seed)
    took: list[float] = []
    cuts: list[Cut] = []
    with World() as world:
        world.start(3)
        world.ready()
        for _ in range(times):
            ids = disturbed(world, chance, runs)
            victim = chance.choice(world.workers)
            at = time.time()
            victim.send(signal.SIGSTOP)
            until(lambda: not world.unfinished(), 120, "all runs finish while a worker is stopped")
            took += [
                inf_if_none(each)
                for each in takeovers(world.requests(), whole(world, ids), Cut(at, worker=victim.number)).values()
            ]
            victim.send(signal.SIGCONT)
            cuts.append(Cut(at, time.time(), victim.number))
            busy(world, victim)
            whole(world, ids)
        assert all(worker.is_alive for worker in world.workers), "a worker ended"
        return f"{times} stops, {world.submitted} runs finished; taken over in {seconds(took)}; {paid(world, cuts)}"


def terminated(times: int, seed: int, runs: int = 24, grace: float = 4.0) -> str:
    """SIGTERM of a worker mid-run: it hands back within its grace, another goes on, and nothing is paid for twice."""
    chance = random.Random(seed)
    took: list[float] = []
    with World(latency=0.4, options=["--grace", f"{grace:g}s"]) as world:
        world.start(2)
        world.ready()
        for _ in range(times):
            ids = disturbed(world, chance, runs)
            victim = chance.choice(world.alive())
            world.start()
            victim.send(signal.SIGTERM)
            took.append(until(partial(has_nothing, victim), grace + 1, "all is handed back"))
            assert victim.process.wait(60) == 0, victim.said
            until(lambda: not world.unfinished(), 120, "all runs finish")
            whole(world, ids)
        found = repeats(world.requests())
        assert not found, f"paid twice: {found[0]}"
        assert not orphans(world), f"{orphans(world)} runs had lost their job"
        return f"{times} signals, {world.submitted} runs finished; handed back in {seconds(took)}; nothing paid twice"


def has_nothing(worker: Worker) -> bool:
    """Whether every run that it told of has ended there."""
    said = worker.said
    begun = said.count(" begins: ") + said.count(" goes on: ")
    return said.count(" succeeded\n") + said.count(" is put back\n") == begun


def disturbed(world: World, chance: random.Random, runs: int) -> list[str]:
    """New runs, at a random moment of theirs."""
    begun = len(world.models.requests)
    ids = world.submit(runs)
    moment = begun + chance.randrange(runs, runs * (story.COMPLETIONS - 2))
    until(lambda: len(world.models.requests) >= moment, 180, "the runs move")
    return ids


def busy(world: World, worker: Worker) -> None:
    """Runs come until the worker has begun one."""
    known = worker.said.count(" begins:")
    end = time.monotonic() + 60
    while worker.said.count(" begins:") == known:
        assert time.monotonic() < end, f"the worker takes no more runs: {worker.said[-2000:]}"
        world.submit(24)
        until(lambda: not world.unfinished(), 120, "all runs finish")


def whole(world: World, ids: Sequence[str]) -> dict[str, Sequence[Event]]:
    """The events of the runs, each of which came to its one end."""
    events = {run_id: world.store.events(run_id) for run_id in ids}
    for run_id, each in events.items():
        last = each[-1]
        assert isinstance(last, RunFinished), f"{run_id}: {last}"
        assert last.status == "succeeded", f"{run_id}: {last}"
        assert last.outputs is not None, run_id
        assert last.outputs["text"] == story.text_of(run_id, 4), f"{run_id}: {last.outputs}"
        nodes = [event.node for event in each if isinstance(event, NodeFinished)]
        assert len(set(nodes)) == len(nodes), f"{run_id}: a node finished twice"
        assert not any(isinstance(event, RunFinished) and event.status == "failed" for event in each), run_id
    return events


def paid(world: World, cuts: Sequence[Cut]) -> str:
    """What was paid for, none of it twice but what was in flight."""
    requests = world.requests()
    found = repeats(requests)
    wrong = unexcused(found, cuts, world.recorded())
    assert not wrong, f"{len(wrong)} paid twice without need: {'; '.join(map(str, wrong[:5]))}"
    assert len(requests) - len(found) == world.submitted * story.COMPLETIONS
    assert not orphans(world), f"{orphans(world)} runs had lost their job"
    return f"{len(requests)} completions, {len(found)} paid twice, each of them in flight"


def orphans(world: World) -> int:
    """How many runs had lost their job, as workers told."""
    return sum(worker.said.count(" had no job, ") for worker in world.workers)


def inf_if_none(value: float | None) -> float:
    return float("inf") if value is None else value
