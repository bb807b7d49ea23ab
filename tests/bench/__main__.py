"""`python -m tests.bench [part of a row's name …]`: the benchmark's table, with a check of each result.

CPU ratios are to a floor that is measured in the same process, in turn with ours. The noise line says
how far two measurements of the floor itself are apart on this machine, now.
"""

from __future__ import annotations

import asyncio
import os
import platform
import sys
from collections.abc import Awaitable, Callable

from tests.bench import (
    agents,
    context,
    engine,
    experiments,
    house,
    levels,
    limits,
    masking,
    memory,
    native,
    pictures,
    postgres,
    processes,
    queue,
    retrieval,
    serve,
    skills,
    viewer,
)
from tests.bench.floor import chain, run_floor
from tests.bench.measure import Row, ratio


def main(wanted: list[str]) -> int:
    print(f"{platform.python_implementation()} {platform.python_version()}, {os.cpu_count()} cores")
    rows: list[Row] = []
    tables = (
        engine,
        levels,
        limits,
        processes,
        agents,
        context,
        pictures,
        skills,
        masking,
        memory,
        native,
        retrieval,
        postgres,
        queue,
        viewer,
        serve,
        experiments,
        house,
    )
    for make in (noise, *(row for table in tables for row in table.ROWS)):
        if wanted and not any(part in make.__name__ for part in wanted):
            continue
        made = make()
        row = made if isinstance(made, Row) else asyncio.run(_awaited(made))
        rows.append(row)
        print(line(row), flush=True)
    missed = [row for row in rows if not row.reached]
    print(f"{len(rows) - len(missed)} reached, {len(missed)} missed")
    return 1 if missed else 0


async def _awaited(row: Awaitable[Row]) -> Row:
    return await row


async def noise() -> Row:
    async def nothing(node: int) -> None: ...

    floor: Callable[[], Awaitable[None]] = lambda: run_floor(chain(1000), nothing)  # noqa: E731
    return await ratio("noise: the floor against itself", 1.5, floor, floor, rounds=9)


def line(row: Row) -> str:
    low, high = row.spread or (row.value, row.value)
    mark = " " if row.reached else "!"
    return (
        f"{mark} {row.name:<44} {row.value:>8.2f} {row.unit:<6} at most {row.target:g}   "
        f"(rounds {low:.2f} to {high:.2f})"
    )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
