"""`python -m tests.bench.skill_caching`: CPU and memory of each level of skills, read for the first time and again.

The library is the 175 skills of `skills`. CPU time is that of one load, in the median over skills.
"""

from __future__ import annotations

import statistics
import tracemalloc
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from time import process_time

from flowengine.agents.skills.skill_store import SkillStore
from flowengine.models.tokens import count_tokens
from tests.bench.skills import library, temporary

__all__ = ["measure_levels"]


def measure_levels(folder: Path) -> list[tuple[str, float, float, float]]:
    """Level, milliseconds of the first load and of a later one, and kilobytes that are kept, all together."""
    count_tokens("The table of tokens is read once.")
    roots = library(folder)
    times = [(level, *_time(loads)) for level, loads in _levels(SkillStore(roots))]
    tracemalloc.start()  # In a pass of its own: it makes loads slower.
    kept = [_memory(loads) for _, loads in _levels(SkillStore(roots))]
    tracemalloc.stop()
    return [(*row, memory) for row, memory in zip(times, kept, strict=True)]


def _levels(store: SkillStore) -> Iterator[tuple[str, Sequence[Callable[[], object]]]]:
    yield "1: the list of 175 skills", [store.skills]
    skills = store.skills()
    yield "2: a body", [partial(store.body, each) for each in skills]
    yield "3: a file", [partial(store.file, each, "references/notes.md") for each in skills]


def _time(loads: Sequence[Callable[[], object]]) -> tuple[float, float]:
    first = [_milliseconds(load) for load in loads]
    again = [_milliseconds(load) for _ in range(5) for load in loads]
    return statistics.median(first), statistics.median(again)


def _memory(loads: Sequence[Callable[[], object]]) -> float:
    held = tracemalloc.get_traced_memory()[0]
    for load in loads:
        load()
    return (tracemalloc.get_traced_memory()[0] - held) / 1_000


def _milliseconds(load: Callable[[], object]) -> float:
    begun = process_time()
    load()
    return (process_time() - begun) * 1_000


if __name__ == "__main__":
    with temporary() as place:
        for name, first, again, kept in measure_levels(place):
            print(f"{name:<28} first {first:8.3f} ms   again {again:8.3f} ms   kept {kept:9.1f} kB")
