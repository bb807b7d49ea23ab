"""Hundreds of runs at once for a long time, and all faults at random: none is lost, none is stuck, nothing grows.

What is paid twice is counted and not judged here: workers that begin fifty runs at once are late with their records.
The rows of single faults judge it.

The model server is slow, so that the runs mostly wait. One worker is never killed and never stopped: its memory and
its open files are measured.
"""

from __future__ import annotations

import random
import signal
import sys
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import mean
from typing import Any, NamedTuple

from tests.faults import story
from tests.faults.account import RECORDED, Cut, repeats, seconds, takeovers, unexcused
from tests.faults.queue_killed import inf_if_none
from tests.faults.world import Worker, World, until
from tests.support.model_server import Answer, Completion, Failure

__all__ = ["soak"]

CONCURRENT = 200
WORKERS = 4
SLOTS = 128
"""Of each worker: enough where half of them are away."""
AT_ONCE = 10
"""New runs in a second, at most."""
LATENCY = (5.0, 15.0)
EVERY = (8.0, 15.0)
"""Seconds between two faults."""
GROWTH = 0.05
"""Of the memory, from the first third to the last."""
WARM_UP = 0.25
"""Of the time, in which everything is used for the first time."""
WARM = 80.0
"""Seconds, at least, until it was: a worker that takes one run after another grows for its first few hundred."""


class Sample(NamedTuple):
    at: float
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
        self.faults: Sequence[Callable[[], None]] = (self.kill, self.stop, self.crash, self.refuse, self.garble)
        self._later: list[tuple[float, Callable[[], None]]] = []

    def last(self, lasting: float) -> None:
        """Keep the runs up, and make faults, for so many seconds."""
        end = time.monotonic() + lasting
        next_fault = time.monotonic() + lasting * WARM_UP
        while time.monotonic() < end:
            self.top_up()
            self.measure()
            for each in [each for each in self._later if each[0] < time.monotonic()]:
                self._later.remove(each)
                each[1]()
            if time.monotonic() > next_fault:
                fault = self.chance.choice(self.faults)
                self.done[fault.__name__] += 1
                fault()
                next_fault = time.monotonic() + self.chance.uniform(*EVERY)
            time.sleep(1.0)
        for _, undo in self._later:
            undo()

    def top_up(self) -> None:
        missing = CONCURRENT - len(self.world.running())
        if missing > 0:
            self.world.submit(min(missing, AT_ONCE))

    def measure(self) -> None:
        measured = self.world.workers[0]
        assert measured.is_alive, f"the worker that nobody disturbed has ended: {measured.said[-2000:]}"
        self.samples.append(Sample(time.monotonic(), measured.memory(), measured.descriptors(self.world.models.port)))

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
        return self.chance.choice([worker for worker in self.world.alive() if worker.number > 1])

    # --- what held ----------------------------------------------------------------------------------

    def told(self) -> str:
        world = self.world
        ended = Counter(world.statuses().values())
        assert set(ended) == {"succeeded"}, f"not all runs succeeded: {ended}"
        assert ended.total() == world.submitted, f"{world.submitted - ended.total()} runs are lost"
        until(lambda: not world.jobs(), 30, f"the queue is empty: {world.jobs()[:5]}")
        paid = [each for each in world.requests() if id(each) not in self.weather.refused]
        found = repeats(paid)
        wrong = unexcused(found, self.cuts)
        lines = [
            f"{world.submitted} runs, 0 lost, 0 stuck; faults: {dict(sorted(self.done.items()))}",
            f"{len(paid)} completions, {len(found)} paid twice, {len(wrong)} of them answered {RECORDED} s before",
            f"taken over in {self.taken_over()}",
            f"memory of the undisturbed worker: {self.flat('memory', 2**20, 'MiB')}",
            f"its open files, but for calls in flight: {self.flat('descriptors', 1, '')}",
        ]
        print("\n    ".join(["", *lines]), flush=True)
        first, last = self.thirds("memory")
        assert last <= first * (1 + GROWTH), f"memory grows: {first:.0f} to {last:.0f}"
        first, last = self.thirds("descriptors")
        assert last <= first * (1 + GROWTH) + 5, f"open files grow: {first:.0f} to {last:.0f}"
        return "; ".join(lines)

    def taken_over(self) -> str:
        """Of each worker that was killed; others may be stopped at the time, or PostgreSQL away."""
        events = {run_id: self.world.store.events(run_id) for run_id in self.world.statuses()}
        kills = [cut for cut in self.cuts if cut.worker is not None and cut.until == float("inf")]
        found = [takeovers(self.world.requests(), events, cut).values() for cut in kills]
        return " and ".join(seconds(map(inf_if_none, each)) for each in found) or "no time: none was killed"

    def thirds(self, what: str) -> tuple[float, float]:
        """The mean of the first third and of the last, once everything was used."""
        begun, ended = self.samples[0].at, self.samples[-1].at
        warm = [each for each in self.samples if each.at > begun + max(WARM_UP * (ended - begun), WARM)]
        third = len(warm) // 3
        return mean(getattr(each, what) for each in warm[:third]), mean(getattr(each, what) for each in warm[-third:])

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
        soaked.last(60 * minutes)
        print(f"    {len(world.statuses())} runs begun, faults: {dict(soaked.done)}", file=sys.stderr, flush=True)
        until(lambda: not world.running(), 300, "all runs end")
        return soaked.told()


def patient_flow() -> str:
    """The flow, with nodes that outlive a storm."""
    return story.FLOW.read_text().replace("\nnodes:", "\ndefaults: {retry: {attempts: 10, max: 5s}}\nnodes:", 1)
