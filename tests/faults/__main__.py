"""Faults, tried for real, the whole table: `python -m tests.faults all`, or one row by its name.

Each row prints what held. The exit code is 1 where something did not.

    python -m tests.faults killed --times 20 --seed 7
    python -m tests.faults soak --minutes 30
"""

from __future__ import annotations

import argparse
import importlib
import sys
import time
import traceback
from collections.abc import Callable, Iterator

ROWS = {
    "killed": ("queue_killed", "killed", 20),
    "stopped": ("queue_killed", "stopped", 5),
    "terminated": ("queue_killed", "terminated", 5),
    "away": ("queue_database", "away", 3),
    "full": ("queue_database", "full", 2),
    "owners": ("queue_database", "two_owners", 5),
}
"""Name → module and function, and how many times by default."""


def rows(name: str, options: argparse.Namespace) -> Iterator[tuple[str, Callable[[], str]]]:
    """The rows of a name: what each tries, and what tries it."""
    module, function, times = ROWS[name]
    check = getattr(importlib.import_module(f"tests.faults.{module}"), function)
    told = " ".join((check.__doc__ or "").split())
    yield told, lambda: check(options.times or times, options.seed)


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
    parser.add_argument("name", choices=["all", *ROWS])
    parser.add_argument("--times", type=int, help="how often each fault is made; else as the row has it")
    parser.add_argument("--seed", type=int, default=1, help="of the random moments")
    parser.add_argument("--minutes", type=float, default=30.0, help="of the soak")
    options = parser.parse_args()
    names = list(ROWS) if options.name == "all" else [options.name]
    held = [tried(what, check) for name in names for what, check in rows(name, options)]
    print(f"{sum(held)} of {len(held)} rows held")
    return 0 if all(held) else 1


if __name__ == "__main__":
    sys.exit(main())
