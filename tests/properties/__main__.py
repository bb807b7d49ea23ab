"""Examines many random flows, says how many ran as they mean, and prints a shrunk reproduction of each mismatch.

python -m tests.properties --flows 5000 --seed 7
python -m tests.properties --flows 200 --postgres
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from flowengine.journal.postgres.store import PostgresStore
from tests.properties.exploring import Check, Verdict, count, examine, reproduction
from tests.properties.queue_mode import check_in_queue
from tests.properties.run_modes import Bench
from tests.support.postgres import empty_database


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.properties", description=__doc__)
    parser.add_argument("--flows", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0, help="the number of the first flow")
    parser.add_argument("--nodes", type=int, default=8, help="nodes of a flow's top level, at most")
    parser.add_argument("--stop-after", type=int, default=5, help="mismatches that are shrunk and printed")
    parser.add_argument("--postgres", action="store_true", help="run by a worker on PostgreSQL instead")
    options = parser.parse_args()
    reasons: Counter[str] = Counter()
    begun = time.process_time()
    with tempfile.TemporaryDirectory() as folder:
        bench = Bench.make(Path(folder))
        check = (
            partial(check_in_queue, bench, PostgresStore(empty_database(), "full")) if options.postgres else bench.check
        )
        found = count(_verdicts(options, check, reasons), lambda verdict: print(f"\n{reproduction(verdict)}\n"))
    spent = time.process_time() - begun
    print(f"{found.total()} flows from seed {options.seed} in {spent:.0f} s of CPU: {dict(found)}")
    for reason, times in reasons.most_common(10):
        print(f"  {times} × {reason}")
    return 1 if found["mismatch"] else 0


def _verdicts(options: argparse.Namespace, check: Check, reasons: Counter[str]) -> Iterator[Verdict]:
    left = options.stop_after
    for number in range(options.seed, options.seed + options.flows):
        verdict = examine(check, number, options.nodes, models=not options.postgres)
        if verdict.kind in ("unclear", "refused"):
            reasons[f"{verdict.kind}: {verdict.reason.splitlines()[0][-100:]}"] += 1
        yield verdict
        left -= verdict.kind == "mismatch"
        if not left:
            return


if __name__ == "__main__":
    sys.exit(main())
