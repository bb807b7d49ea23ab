"""The floor: the least that a scheduler on anyio can do — a task group, one task a node, in-degree counters."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence

import anyio
from anyio.abc import TaskGroup

__all__ = ["Shape", "chain", "fan", "layers", "run_floor"]

Shape = Sequence[Sequence[int]]
"""Node → its parents, numbered so that parents come first."""


def chain(size: int) -> Shape:
    return [[] if node == 0 else [node - 1] for node in range(size)]


def fan(width: int) -> Shape:
    """`width` nodes and one that joins them."""
    return [*([] for _ in range(width)), list(range(width))]


def layers(depth: int, width: int, parents: int = 3) -> Shape:
    return [
        [(layer - 1) * width + (at + step) % width for step in range(parents)] if layer else []
        for layer in range(depth)
        for at in range(width)
    ]


async def run_floor(shape: Shape, work: Callable[[int], Awaitable[None]]) -> None:
    """Run `work` for each node, once its parents are done."""
    children: list[list[int]] = [[] for _ in shape]
    pending = [len(parents) for parents in shape]
    for node, parents in enumerate(shape):
        for parent in parents:
            children[parent].append(node)

    async def run(node: int, tasks: TaskGroup) -> None:
        await work(node)
        for child in children[node]:
            pending[child] -= 1
            if pending[child] == 0:
                tasks.start_soon(run, child, tasks)

    async with anyio.create_task_group() as tasks:
        for node, parents in enumerate(shape):
            if not parents:
                tasks.start_soon(run, node, tasks)
