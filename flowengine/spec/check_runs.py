"""Checks of what can happen in a run, level by level: what is ambiguous is an error, what is doubtful a warning."""

from __future__ import annotations

from flowengine.spec.check_doubts import warn_of_absent_values, warn_of_dead_nodes, warn_of_targets_behind_siblings
from flowengine.spec.check_results import check_results
from flowengine.spec.check_until import warn_of_endless_loop
from flowengine.spec.check_writers import check_engine_values, check_writers
from flowengine.spec.gaps import gaps_of
from flowengine.spec.report import Report
from flowengine.spec.runs import runs_of
from flowengine.spec.schema import FlowSpec

__all__ = ["check_runs"]


def check_runs(spec: FlowSpec, report: Report, *, warnings: bool) -> None:
    """Ambiguous values and unordered writers; with `warnings` also what is merely doubtful."""
    if gaps_of(spec).everything:
        return
    every = runs_of(spec)
    for runs in every.values():
        check_results(spec, runs, report)
        check_engine_values(spec, runs, report)
        check_writers(spec, runs, report)
    for runs in every.values() if warnings else ():
        warn_of_absent_values(spec, runs, report)
        warn_of_targets_behind_siblings(runs, report)
        warn_of_dead_nodes(runs, report)
        warn_of_endless_loop(spec, runs.level, report)
