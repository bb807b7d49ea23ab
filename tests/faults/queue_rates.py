"""What a vendor allows, asked for by three workers, one of them killed: never more reaches the model server."""

from __future__ import annotations

import random
import time
from collections.abc import Sequence

from flowengine.flow import Flow
from tests.faults import story
from tests.faults.world import World, until
from tests.support.model_server import Received

__all__ = ["rates"]

RUNS = 48
A_MINUTE = 240
AT_ONCE = 6
ON_ITS_WAY = 10.0
"""Seconds that a request may be on its way longer than another: a worker's first ones are slow, and machines busy.
Where three workers kept a limit each, so many requests would arrive within twenty."""
PROJECT = f"[providers.openai]\nrequests_per_minute = {A_MINUTE}\nmax_parallel = {AT_ONCE}\n"


def rates(times: int, seed: int) -> str:
    """Three workers keep one limit, and the slots of one that is killed are free again"""
    seen = [_once(random.Random(seed + number)) for number in range(times)]
    return "; ".join(seen)


def _once(chance: random.Random) -> str:
    with World(latency=0.3) as world:
        (world.folder / "flowengine.toml").write_text(PROJECT)
        world.plan = Flow.from_yaml(world.folder / "flow.yaml", environ=world.environ()).plan
        world.start(3)
        world.ready()
        names = world.submit(RUNS)
        until(lambda: len(world.requests()) > A_MINUTE // 4, 120, "workers ask")
        time.sleep(chance.random())
        victim = chance.choice(world.alive())
        victim.kill()
        until(lambda: all(world.statuses()[name] == "succeeded" for name in names), 400, "runs end")
        asked = world.requests()
        ended = victim.ended_at or 0.0
    most = max_in_flight(asked, ended)
    assert most <= AT_ONCE, f"{most} at once"
    shortest = min(later.arrived - first.arrived for first, later in zip(asked, asked[A_MINUTE:], strict=False))
    assert shortest > 60 - ON_ITS_WAY, f"{A_MINUTE + 1} requests within {shortest:.1f} s"
    later_on = asked[24:]
    calm = min(later.arrived - first.arrived for first, later in zip(later_on, later_on[A_MINUTE:], strict=False))
    took = asked[-1].arrived - asked[0].arrived
    assert len(asked) >= RUNS * story.COMPLETIONS
    return (
        f"{len(asked)} requests in {took:.0f} s, {A_MINUTE + 1} of them within {shortest:.2f} s at least "
        f"({calm:.2f} after the first calls), {most} at once at most"
    )


def max_in_flight(asked: Sequence[Received], killed: float) -> int:
    """How many requests were under way at the same time; those of a worker that was killed until then."""
    steps: list[tuple[float, int]] = []
    for each in asked:
        steps += [(each.arrived, 1), (each.answered or max(killed, each.arrived), -1)]
    now = most = 0
    for _, step in sorted(steps):
        now += step
        most = max(most, now)
    return most
