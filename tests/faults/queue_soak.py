"""Hundreds of runs at once for a long time, and all faults at random: none is lost, none is stuck, nothing grows.

Nothing is paid twice but calls that were in flight at a fault. The model server is slow, so that the runs mostly wait.
One worker is never killed and never stopped: its memory and its open files are measured.

Faults begin when all workers are at work and the measured one has ended its first runs: how long that takes depends
on what else the machine does. Each fault is made once before one is made again, and measures begin when each was made:
by then everything was used for the first time. Each worker that is killed has runs, which are taken over.
"""

from __future__ import annotations

import random
import signal
import sys
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from statistics import mean, median
from typing import Any, NamedTuple

from tests.faults import story
from tests.faults.account import Cut, repeats, seconds, takeovers, unexcused
from tests.faults.queue_killed import inf_if_none, orphans
from tests.faults.world import Worker, World, until
from tests.support.model_answers import Answer, Completion, Failure

__all__ = ["soak"]

CONCURRENT = 200
WORKERS = 4
SLOTS = 60
"""Of each worker: so few that all have runs, and the measured one always as many."""
AT_ONCE = 10
"""New runs in a second, at most."""
LATENCY = (2.5, 7.5)
EVERY = (8.0, 15.0)
"""Seconds between two faults."""
LATE = 1.0
"""Seconds from its leaving the server within which one half of the answers are on record."""
GROWTH = 0.05
"""Of the memory, from the first third to the last."""
WARM = SLOTS
"""Runs that the measured worker ends before the first fault."""
LEAST = 30
"""Samples, one a second, without which nothing is said of growth."""


class Sample(NamedTuple):
    memory: int
    descriptors: int


@dataclass
class Weather:
    """What the model server answers, and what it refused."""

    chance: random.Random
    kind: str = "fair"
    refused: set[int] = field(default_factory=set[int])
    world: World | None = None

    def answer(self, body: Mapping[str, Any]) -> Answer:
        whole = story.answer(body)
        if self.kind != "fair" and self.chance.random() < 0.5:
            if self.kind == "refusing":
                self._refuse()
                return Failure(self.chance.choice([429, 503]))
            if "response_format" in body:
                self._refuse()
                return Completion(whole[: len(whole) // 2], latency=1.0)
        return Completion(whole, latency=self.chance.uniform(*LATENCY))

    def _refuse(self) -> None:
        assert self.world is not None
        self.refused.add(id(self.world.models.requests[-1]))


class Soak:
    """One world, its faults, and what was measured of it."""

    def __init__(self, world: World, weather: Weather, chance: random.Random) -> None:
        self.world, self.weather, self.chance = world, weather, chance
        self.cuts: list[Cut] = []
        self.samples: list[Sample] = []
        self.done: Counter[str] = Counter()
        self._every = [self.kill, self.stop, self.crash, self.refuse, self.garble]
        self._faults: list[Callable[[], None]] = []
        self._later: list[tuple[float, Callable[[], None]]] = []

    def warm_up(self) -> None:
        """Keep the runs up until everything is at work."""
        until(self._is_warm, 900, "all workers are at work, and the first has ended runs")

    def _is_warm(self) -> bool:
        self.top_up()
        time.sleep(1.0)
        is_used = self.world.workers[0].said.count(" succeeded\n") >= WARM
        return is_used and len(self.world.at_work()) == len(self.world.workers)

    def last(self, lasting: float) -> None:
        """Keep the runs up, and make faults, for so many seconds."""
        end = time.monotonic() + lasting
        next_fault = time.monotonic()
        while time.monotonic() < end:
            self.top_up()
            if len(self.done) == len(self._every):
                self.measure()
            for each in [each for each in self._later if each[0] < time.monotonic()]:
                self._later.remove(each)
                each[1]()
            if time.monotonic() > next_fault:
                fault = self.next_fault()
                self.done[fault.__name__] += 1
                fault()
                next_fault = time.monotonic() + self.chance.uniform(*EVERY)
            time.sleep(1.0)
        for _, undo in self._later:
            undo()

    def next_fault(self) -> Callable[[], None]:
        """Each once, in any order, before one comes again."""
        if not self._faults:
            self._faults = self.chance.sample(self._every, len(self._every))
        return self._faults.pop()

    def top_up(self) -> None:
        missing = CONCURRENT - len(self.world.running())
        if missing > 0:
            self.world.submit(min(missing, AT_ONCE))

    def measure(self) -> None:
        measured = self.world.workers[0]
        assert measured.is_alive, f"the worker that nobody disturbed has ended: {measured.said[-2000:]}"
        self.samples.append(Sample(measured.memory(), measured.descriptors(self.world.models.port)))

    # --- faults -----------------------------------------------------------------------------------

    def kill(self) -> None:
        victim = self.victim()
        victim.kill()
        self.cuts.append(Cut(victim.ended_at or 0.0, worker=victim.number))
        self.world.start()

    def stop(self) -> None:
        victim, at = self.victim(), time.time()
        victim.send(signal.SIGSTOP)

        def go_on() -> None:
            if victim.is_alive:
                victim.send(signal.SIGCONT)
            self.cuts.append(Cut(at, time.time(), victim.number))

        self._later.append((time.monotonic() + self.chance.uniform(1.0, 25.0), go_on))

    def crash(self) -> None:
        at = time.time()
        self.world.server.crash()
        time.sleep(self.chance.uniform(0.0, 5.0))
        self.world.server.start_again()
        self.cuts.append(Cut(at, time.time()))

    def refuse(self) -> None:
        self._weather("refusing")

    def garble(self) -> None:
        self._weather("garbled")

    def _weather(self, kind: str) -> None:
        self.weather.kind = kind

        def clear() -> None:
            self.weather.kind = "fair"

        self._later.append((time.monotonic() + 5.0, clear))

    def victim(self) -> Worker:
        """One that has runs, and is not the one that is measured."""
        return self.chance.choice(self.world.await_work(first=2))

    # --- what held ----------------------------------------------------------------------------------

    def told(self) -> str:
        world = self.world
        ended = Counter(world.statuses().values())
        assert set(ended) == {"succeeded"}, f"not all runs succeeded: {ended}"
        assert ended.total() == world.submitted, f"{world.submitted - ended.total()} runs are lost"
        until(lambda: not world.jobs(), 30, f"the queue is empty: {world.jobs()[:5]}")
        paid = [each for each in world.requests() if id(each) not in self.weather.refused]
        found = repeats(paid)
        recorded = world.recorded()
        wrong = unexcused(found, self.cuts, recorded)
        assert not wrong, f"{len(wrong)} paid twice without need: {'; '.join(map(str, wrong[:5]))}"
        assert not orphans(world), f"{orphans(world)} runs had lost their job"
        late = [each.seconds for each in recorded]
        taken = self.taken_over()
        lines = [
            f"{world.submitted} runs, 0 lost, 0 stuck, 0 given up, 0 orphans",
            f"faults: {dict(sorted(self.done.items()))}",
            f"{len(paid)} completions, {len(found)} paid twice, all of them in flight at a fault",
            f"on record after {seconds(late)}",
            f"taken over in {' and '.join(map(seconds, taken))}",
            f"memory of the undisturbed worker: {self.flat('memory', 2**20, 'MiB')}",
            f"its open files, but for calls in flight: {self.flat('descriptors', 1, '')}",
        ]
        print("\n    ".join(["", *lines]), flush=True)
        assert len(self.samples) >= LEAST, f"only {len(self.samples)} samples: it has to last longer"
        assert taken, "no worker was killed"
        assert all(taken), "a worker was killed, and none of its runs was taken over"
        assert median(late) <= LATE, f"one half of the answers was not on record within {LATE} s"
        first, last = self.thirds("memory")
        assert last <= first * (1 + GROWTH), f"memory grows: {first:.0f} to {last:.0f}"
        first, last = self.thirds("descriptors")
        assert last <= first * (1 + GROWTH) + 5, f"open files grow: {first:.0f} to {last:.0f}"
        return "; ".join(lines)

    def taken_over(self) -> list[list[float]]:
        """For each worker that was killed, the seconds after which each of its runs went on; others may be stopped at
        the time, or PostgreSQL away."""
        events = {run_id: self.world.store.events(run_id) for run_id in self.world.statuses()}
        kills = [cut for cut in self.cuts if cut.worker is not None and cut.until == float("inf")]
        return [[inf_if_none(each) for each in takeovers(self.world.requests(), events, cut).values()] for cut in kills]

    def thirds(self, what: str) -> tuple[float, float]:
        """The mean of the first third and of the last."""
        third = len(self.samples) // 3
        values = [getattr(each, what) for each in self.samples]
        return mean(values[:third]), mean(values[-third:])

    def flat(self, what: str, unit: int, name: str) -> str:
        first, last = self.thirds(what)
        return f"{first / unit:.1f} to {last / unit:.1f} {name} ({last / first - 1:+.1%})"


def soak(minutes: float, seed: int) -> str:
    """Two hundred runs at once, kept up over four workers, with faults at random: none lost, none stuck, all flat."""
    chance = random.Random(seed)
    weather = Weather(random.Random(seed + 1))
    with World(responder=weather.answer, concurrency=SLOTS, flow=patient_flow()) as world:
        weather.world = world
        world.start(WORKERS)
        world.ready()
        soaked = Soak(world, weather, chance)
        soaked.warm_up()
        soaked.last(60 * minutes)
        print(f"    {len(world.statuses())} runs begun, faults: {dict(soaked.done)}", file=sys.stderr, flush=True)
        until(lambda: not world.running(), 300, "all runs end")
        return soaked.told()


def patient_flow() -> str:
    """The flow, with nodes that outlive a storm."""
    return story.FLOW.read_text().replace("\nnodes:", "\ndefaults: {retry: {attempts: 10, max: 5s}}\nnodes:", 1)
