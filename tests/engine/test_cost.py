"""What a node costs is counted in calls of functions: the same on every machine, and whatever else runs on it."""

from __future__ import annotations

import asyncio
import inspect
import sys
from collections import Counter
from collections.abc import Callable
from contextlib import closing
from functools import cache
from pathlib import Path
from typing import Any

import pytest

import flowengine
from flowengine import ConditionNode, Flow
from flowengine.journal.stores import open_store
from tests.bench.engine import add, flow_of, value
from tests.bench.floor import chain, fan, layers

OURS = str(Path(flowengine.__file__).parent)
SUSPENDS = inspect.CO_COROUTINE | inspect.CO_GENERATOR
"""Functions that are entered again each time that they go on, which the clock decides."""


def conditions_in_code(size: int) -> Flow:
    return Flow(
        "code",
        {f"c{at}": ConditionNode(lambda context: True, f"c{at + 1}" if at + 1 < size else None) for at in range(size)},
    )


def conditions_in_yaml(size: int) -> Flow:
    lines = ["flowengine: v1", "name: yaml", "shared_state: {counter: {type: integer, default: 3}}", "nodes:"]
    for at in range(size):
        then = f", then: c{at + 1}" if at + 1 < size else ""
        lines.append(f"  c{at}: {{type: condition, if: shared_state.counter < {at + 5}{then}}}")
    return Flow.from_text("\n".join(lines), "conditions.yaml")


async def wait_once(context: Any) -> int:
    await asyncio.sleep(0)
    return 1


def count_calls(flow: Flow, **options: Any) -> Counter[str]:
    """How often a run calls each function of ours, and each built-in one from ours; the second run is counted."""
    calls: Counter[str] = Counter()

    def note(frame: Any, event: str, function: Any) -> None:
        if not frame.f_code.co_filename.startswith(OURS):
            return
        if event == "call" and not frame.f_code.co_flags & SUSPENDS:
            calls[frame.f_code.co_qualname] += 1
        elif event == "c_call":
            calls[f"built-in {function.__qualname__}"] += 1

    async def run() -> None:
        assert (await flow.run(**options)).status == "succeeded"
        sys.setprofile(note)
        try:
            done = await flow.run(**options)
        finally:
            sys.setprofile(None)
        assert done.status == "succeeded"

    asyncio.run(run())
    return calls


def calls_per_node(make: Callable[[int], Flow], size: int = 100, **options: Any) -> tuple[float, str]:
    """The calls that each further node adds, and the functions that are called most for one."""
    small, large = count_calls(make(size), **options), count_calls(make(size + 200), **options)
    added = {name: (large[name] - small[name]) / 200 for name in large}
    most = sorted(added.items(), key=lambda entry: -entry[1])[:12]
    return sum(added.values()), ", ".join(f"{name} {count:.2f}" for name, count in most)


SHAPES: dict[str, tuple[Callable[[int], Flow], int]] = {
    "a chain that counts": (lambda size: flow_of(chain(size), add, counter=0), 42),
    "conditions in code": (conditions_in_code, 27),
    "conditions in a file": (conditions_in_yaml, 54),
    "a fan-out": (lambda size: flow_of(fan(size), value), 22),
    "a fan-out that waits": (lambda size: flow_of(fan(size), wait_once), 23),
    "layers of ten, three parents": (lambda size: flow_of(layers(size // 10, 10), value), 28),
}
"""The shape of a flow, with the calls that each node may cost."""


@cache
def calls_of_few(shape: str) -> tuple[float, str]:
    """In a small graph, which two tests ask for."""
    return calls_per_node(SHAPES[shape][0])


@pytest.mark.parametrize("shape", SHAPES)
def test_a_node_costs_no_more_calls_than_it_did(shape: str):
    calls, most = calls_of_few(shape)
    assert calls <= SHAPES[shape][1], most


@pytest.mark.parametrize("size", [600, pytest.param(2_000, marks=pytest.mark.long)])
@pytest.mark.parametrize("shape", SHAPES)
def test_a_node_of_a_large_graph_costs_what_one_of_a_small_graph_costs(shape: str, size: int):
    make, _ = SHAPES[shape]
    (few, _), (many, most) = calls_of_few(shape), calls_per_node(make, size)
    assert many <= few * 1.03, most


def test_a_node_whose_events_are_stored_costs_no_more_calls_than_it_did(tmp_path: Path):
    with closing(open_store(f"sqlite:///{tmp_path}/runs.db", "process")) as store:
        calls, most = calls_per_node(SHAPES["a chain that counts"][0], store=store)
    assert calls <= 87, most
