"""A model server that refuses, is slow, away, or talks nonsense: runs finish or fail clearly, and none storms back."""

from __future__ import annotations

import random
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import pairwise
from typing import Any

from flowengine.engine.events import RunFinished
from tests.faults import story
from tests.faults.world import World, until
from tests.support.model_answers import Answer, Completion, Failure
from tests.support.model_server import Received

__all__ = ["STORMS", "storms"]

RUNS = 16
SECONDS = 5.0
ASKED = 1.0
"""What `Retry-After` says."""
ATTEMPTS = 4
"""Requests for one completion, at most: a first one, and three more."""
REASONS = (f"gave up after {ATTEMPTS} attempts", "JSON")

Storm = Callable[[World, random.Random], Any]


@contextmanager
def answering(world: World, answer: Callable[[Mapping[str, Any]], Answer]) -> Iterator[None]:
    world.models.respond_with(answer)
    try:
        yield
    finally:
        world.models.respond_with(story.answer)


def refusing(world: World, chance: random.Random) -> Any:
    """429, and when to come back"""
    return answering(world, lambda body: Failure(429, "too many requests", retry_after=ASKED))


def refusing_silently(world: World, chance: random.Random) -> Any:
    """429, and no word of when to come back"""
    return answering(world, lambda body: Failure(429, "too many requests"))


def half_refusing(world: World, chance: random.Random) -> Any:
    """429 or 503 for every second request"""

    def answer(body: Mapping[str, Any]) -> Answer:
        return Failure(chance.choice([429, 503]), "busy") if chance.random() < 0.5 else story.answer(body)

    return answering(world, answer)


def slow(world: World, chance: random.Random) -> Any:
    """answers that take 3 s"""
    return answering(world, lambda body: Completion(story.answer(body), latency=3.0))


def nonsense(world: World, chance: random.Random) -> Any:
    """every second answer is broken off in its middle"""

    def answer(body: Mapping[str, Any]) -> Answer:
        whole = story.answer(body)
        return whole[: len(whole) // 2] if "response_format" in body and chance.random() < 0.5 else whole

    return answering(world, answer)


@contextmanager
def down(world: World, chance: random.Random) -> Iterator[None]:
    """nobody listens"""
    world.models.__exit__()
    try:
        yield
    finally:
        world.models.__enter__()


STORMS: Sequence[Storm] = (refusing, refusing_silently, half_refusing, slow, nonsense, down)


def storms(times: int, seed: int, kinds: Sequence[Storm] = STORMS) -> str:
    """Storms of a model server on the queue: runs finish or fail clearly, with a bounded number of requests."""
    chance = random.Random(seed)
    told: list[str] = []
    with World() as world:
        world.start(2)
        world.ready()
        for kind in kinds * times:
            before = len(world.models.requests)
            ids = world.submit(RUNS)
            until(lambda before=before: len(world.models.requests) >= before + RUNS, 180, "the runs move")
            begun = time.time()
            with kind(world, chance):
                time.sleep(SECONDS)
            until(lambda: not world.running(), 120, "all runs end")
            seen = world.requests()[before:]
            succeeded = sum(ended_clearly(world, run_id) for run_id in ids)
            most = bounded(seen, begun, kind is refusing)
            told.append(f"{kind.__doc__}: {succeeded} of {RUNS} succeeded, at most {most} requests in a minute")
        assert all(worker.is_alive for worker in world.workers), "a worker ended"
    return "; ".join(told)


def ended_clearly(world: World, run_id: str) -> bool:
    """Whether it succeeded; where not, its error says why."""
    last = world.store.events(run_id)[-1]
    assert isinstance(last, RunFinished), f"{run_id}: {last}"
    if last.status == "succeeded":
        assert last.outputs["text"].startswith(f"story-{run_id}: draft "), last.outputs
        return True
    assert last.status == "failed", f"{run_id}: {last}"
    assert last.error is not None, f"{run_id}: {last}"
    assert any(reason in last.error.message for reason in REASONS), last.error
    return False


def bounded(seen: Sequence[Received], begun: float, has_asked: bool) -> int:
    """The most requests in a minute. None is made more often than allowed, or sooner than was asked for."""
    by_completion: dict[str, list[Received]] = defaultdict(list)
    for request in seen:
        by_completion[story.identity(request.body)].append(request)
    for same in by_completion.values():
        assert len(same) <= ATTEMPTS, f"{len(same)} requests for one completion"
        for first, second in pairwise(same):
            if has_asked and first.answered is not None and begun < first.answered < begun + SECONDS:
                assert second.arrived - first.answered > 0.95 * ASKED, f"back after {second.arrived - first.answered} s"
    times = [request.arrived for request in seen]
    return max(sum(at <= each < at + 60 for each in times) for at in times)
