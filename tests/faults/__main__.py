"""Faults, tried for real, the whole table: `python -m tests.faults all`, or one row by its name.

Each row prints what held. The exit code is 1 where something did not.

    python -m tests.faults killed --times 20 --seed 7
    python -m tests.faults soak --minutes 30
"""

from __future__ import annotations

import argparse
import importlib
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

ROWS = {
    "killed": ("queue_killed", "killed", 20),
    "crashing": ("queue_killed", "crashing", 12),
    "stopped": ("queue_killed", "stopped", 5),
    "terminated": ("queue_killed", "terminated", 5),
    "away": ("queue_database", "away", 3),
    "full": ("queue_database", "full", 2),
    "storms": ("queue_storms", "storms", 1),
    "rates": ("queue_rates", "rates", 1),
    "soak": ("queue_soak", "soak", 1),
    "serve": ("serve_killed", "served", 0),
    "owners": ("queue_database", "two_owners", 5),
}
"""Name → module and function, and how many times by default."""

PROCESSES = (
    "process_killed",
    "process_agents",
    "process_calls",
    "process_disk",
    "process_cut",
    "process_signals",
    "process_clock",
    "process_model",
    "process_answers",
    "process_batches",
)
"""Names that are modules, each with rows of its own: faults of a single process."""


def rows(name: str, options: argparse.Namespace) -> Iterator[tuple[str, Callable[[], str]]]:
    """The rows of a name: what each tries, and what tries it."""
    if name in PROCESSES:
        for told, work in importlib.import_module(f"tests.faults.{name}").rows():
            yield told, partial(in_a_folder, work)
        return
    module, function, times = ROWS[name]
    check = getattr(importlib.import_module(f"tests.faults.{module}"), function)
    told = " ".join((check.__doc__ or "").split())
    yield told, lambda: check(options.minutes if name == "soak" else options.times or times, options.seed)


def in_a_folder(work: Callable[[Path], str]) -> str:
    """What a row says that works in a folder, which is gone afterwards."""
    with tempfile.TemporaryDirectory() as folder:
        return work(Path(folder))


def tried(what: str, check: Callable[[], str]) -> bool:
    """Try a row and print what was seen; whether it held."""
    print(f"{what}", flush=True)
    begun = time.monotonic()
    try:
        seen, holds = check(), True
    except Exception:
        seen, holds = traceback.format_exc(), False
    print(f"    {'held' if holds else 'DID NOT HOLD'} ({time.monotonic() - begun:.0f} s): {seen}\n", flush=True)
    return holds


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.faults", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("name", choices=["all", *ROWS, *PROCESSES])
    parser.add_argument("--times", type=int, help="how often each fault is made; else as the row has it")
    parser.add_argument("--seed", type=int, default=1, help="of the random moments")
    parser.add_argument("--minutes", type=float, default=30.0, help="of the soak")
    options = parser.parse_args()
    names = [*ROWS, *PROCESSES] if options.name == "all" else [options.name]
    held = [tried(what, check) for name in names for what, check in rows(name, options)]
    print(f"{sum(held)} of {len(held)} rows held")
    return 0 if all(held) else 1


if __name__ == "__main__":
    sys.exit(main())
