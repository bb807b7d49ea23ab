"""Says how long the nodes of a flow take by its earlier runs, and by that how long a run may still take.

The page of a run reckons the same in `static/live.js`. It reads no store.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import median
from typing import Any, Final, NamedTuple

from flowengine.core import EMPTY
from visualize.progress import SETTLED, Progress

RUNS_TIMED: Final = 5
"""Runs by whose times it is said how long another one may still take."""
MOST_EVENTS_TIMED: Final = 5_000
"""Events of each of them."""
_MOST_TIMED: Final = 1_000
"""Nodes of a run whose times are kept."""


class RunPoint(NamedTuple):
    """One run, as plots and estimates need it."""

    run_id: str
    status: str
    seconds: float | None
    cost_usd: float | None
    nodes: Mapping[str, float] = EMPTY
    """Nodes at the top that ran → how many seconds they took."""


def point_of(progress: Progress) -> RunPoint:
    """A run's point, from its fold; the time in which it was not going on is none of its work."""
    run_id = "" if progress.started is None else progress.started.run_id
    top = (progress.nodes[name] for name in list(progress.skeleton.top.sites)[:_MOST_TIMED])
    times = {row.id: seconds for row in top if row.has_run and (seconds := row.seconds()) is not None}
    return RunPoint(run_id, progress.status, progress.working_seconds(progress.last_at), progress.usage.cost_usd, times)


def usual_times(points: Sequence[RunPoint]) -> dict[str, Any]:
    """Returns the median durations of the nodes that at least half of the earlier runs reached.

    >>> usual_times([RunPoint("r", "failed", 3.0, None, {"a": seconds}) for seconds in (1.0, 3.0)])
    {'runs': 2, 'seconds': {'a': 2.0}}
    """
    durations: dict[str, list[float]] = {}
    for point in points:
        for name, seconds in point.nodes.items():
            durations.setdefault(name, []).append(seconds)
    usual = {name: median(times) for name, times in durations.items() if 2 * len(times) >= len(points)}
    return {"runs": len(points), "seconds": usual}


def time_left(progress: Progress, usual: Mapping[str, float], now: float) -> float | None:
    """Seconds until the run's end: the longest way through what is not settled yet. None where nothing is known.

    `usual`: node of the top → seconds that it takes.
    """
    if not usual or progress.finished is not None:
        return None
    top, until = progress.skeleton.top, dict[str, float]()
    for name in top.sites:
        before = max((until.get(each, 0.0) for each in top.parents.get(name, ())), default=0.0)
        until[name] = before + _left_of(progress, name, usual.get(name, 0.0), now)
    return max(until.values(), default=0.0)


def _left_of(progress: Progress, name: str, whole: float, now: float) -> float:
    row = progress.nodes.get(name)
    if row is None or row.status in SETTLED:
        return 0.0
    return whole if row.status == "pending" or row.started is None else max(0.0, whole - (now - row.started))
