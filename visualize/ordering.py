"""The rows of a run in the order of its flow: those of a body below their container, by item or by round."""

from __future__ import annotations

from visualize.progress import NodeRow, Progress
from visualize.skeleton import Level
from visualize.taken import units_of

__all__ = ["in_order"]


def in_order(progress: Progress) -> list[NodeRow]:
    """Every row once; those that the skeleton does not know come last."""
    found: dict[str, NodeRow] = {}
    _gather(progress, progress.skeleton.top, "", found)
    found.update((path, row) for path, row in progress.nodes.items() if path not in found)
    return list(found.values())


def _gather(progress: Progress, level: Level, unit: str, found: dict[str, NodeRow]) -> None:
    for name, site in level.sites.items():
        row = progress.nodes.get(unit + name)
        if row is None:
            continue
        found[row.id] = row
        if site.body is not None:
            for each in units_of(row):
                _gather(progress, site.body, each, found)
