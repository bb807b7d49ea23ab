"""Runs a flow over rows of data on the command line: progress while it goes on, and a summary at its end."""

from __future__ import annotations

import os
import sys
from collections import Counter, deque
from collections.abc import Mapping
from contextlib import aclosing, nullcontext
from dataclasses import dataclass
from time import monotonic
from typing import Any, Final

import click

from flowengine.cli.ending import INTERRUPTED, report, run_until_interrupted
from flowengine.cli.options import Reporting, RowsOptions, RunningOptions
from flowengine.cli.run_access import format_command
from flowengine.cli.terminal import (
    Results,
    complain,
    cut_cell,
    format_dollars,
    format_span,
    has_live_stderr,
    width_of_stderr,
)
from flowengine.core import Budget, dumps
from flowengine.engine import JournalStore
from flowengine.errors import FlowChangedError, InputError
from flowengine.evals import BatchPace, DataFile, ResultsFile, open_collector, open_data, parse_mapping, to_record
from flowengine.nodes import CompiledFlow
from flowengine.runtime import RunOptions, hold_set
from flowengine.runtime.local import RowResult, RowRuns, RowSet, open_row_set

_BOUNDS: Final = Budget._fields
CONCURRENCY: Final = 20
"""Rows in flight at once, where nothing is said."""
_WIDEST_ERROR: Final = 300
"""Characters of a row's error below the summary; the results have all of it."""

# --- Progress


class RowMeter:
    """Counts rows as they end: rate, cost and time left."""

    def __init__(self, total: int, *, quiet: bool, is_batched: bool = False) -> None:
        """`is_batched`: rows wait for batches and then end many at once, so nothing is said of rate and time left."""
        self.total = total
        self.statuses: Counter[str] = Counter()
        self.were_there = 0
        self.cost = 0.0
        """USD paid by this command, as far as prices are known."""
        self.is_whole = True
        self.first_errors: dict[str, str] = {}
        """Status → row and error of the first row that ended so."""
        self.begun = monotonic()
        self._quiet = quiet
        self._is_batched = is_batched
        self._is_live = has_live_stderr()
        self._pause = 0.25 if self._is_live else 15.0
        self._said_at = self.begun
        self._recent: deque[tuple[float, int]] = deque([(self.begun, 0)], maxlen=40)

    @property
    def done(self) -> int:
        return self.statuses.total()

    @property
    def seconds(self) -> float:
        return monotonic() - self.begun

    def hear(self, result: RowResult) -> None:
        """Take a row that has ended, and say from time to time how far it is."""
        self.statuses[result.status] += 1
        if result.error is not None and result.status not in self.first_errors:
            self.first_errors[result.status] = f"row {result.row.number}: {result.error.message}"
        if result.was_there:
            self.were_there += 1
        else:
            self.cost += result.spent.cost_usd
            self.is_whole &= not result.spent.unpriced_calls
        now = monotonic()
        if self._quiet or now - self._said_at < self._pause:
            return
        self._said_at = now
        self._recent.append((now, self.done - self.were_there))
        if self._is_live:
            sys.stderr.write(f"\r\x1b[K{cut_cell(self.line(), width_of_stderr() - 1)}")
            sys.stderr.flush()
        else:
            complain(self.line())

    def line(self) -> str:
        """Formats the progress as one line."""
        (before, then), (now, count) = self._recent[0], (monotonic(), self.done - self.were_there)
        rate = (count - then) / (now - before) if now > before and not self._is_batched else 0.0
        parts = [f"{self.done:,} of {self.total:,} rows", *self._describe_trouble()]
        if rate > 0:
            parts.append(f"{rate:,.1f} rows/s" if rate >= 1 else f"{60 * rate:,.1f} rows/min")
        if self.cost:
            parts.append(format_dollars(self.cost, is_whole=self.is_whole))
        if rate > 0 and self.done < self.total:
            parts.append(f"about {format_span((self.total - self.done) / rate)} left")
            if self.cost and count:
                whole = self.cost + self.cost / count * (self.total - self.done)
                parts.append(f"about {format_dollars(whole)} in all")
        return " · ".join(parts)

    def _describe_trouble(self) -> list[str]:
        return [
            f"{count:,} {status}" for status, count in sorted(self.statuses.items()) if status != "succeeded" and count
        ]

    def complain(self, text: str) -> None:
        """Say something beside the progress."""
        self.end()
        if not self._quiet:
            complain(text)

    def end(self) -> None:
        """Take the line back."""
        if self._is_live and not self._quiet:
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()

    def summary(self) -> str:
        """Formats the result as one line."""
        parts = [f"{count:,} {status}" for status, count in self.statuses.most_common()]
        if self.were_there:
            parts.append(f"{self.were_there:,} were done before")
        rest = self.total - self.done
        if rest:
            parts.append(f"{rest:,} left")
        paid = format_dollars(self.cost, is_whole=self.is_whole)
        return f"{self.total:,} row{'s' * (self.total != 1)}: {', '.join(parts)}; {paid}, {format_span(self.seconds)}"


def rows_exit_code(statuses: Mapping[str, int], rest: int) -> int:
    """The exit code of a set of rows: a limit before failures, failures before questions.

    >>> rows_exit_code({"succeeded": 2}, 0), rows_exit_code({"failed": 1}, 0), rows_exit_code({}, 3)
    (0, 1, 4)
    """
    if rest or statuses.get("paused") or statuses.get("partial"):
        return 4
    if statuses.get("failed") or statuses.get("refused") or statuses.get("cancelled"):
        return 1
    return 3 if statuses.get("waiting") else 0


# --- The command


def tell_notices(plan: CompiledFlow) -> None:
    """Say before the first row that the stand-in will answer, where nobody chose it, and that nobody will be told."""
    for notice in (plan.stand_in_notice, plan.untold_notice):
        if notice is not None:
            complain(f"notice: {notice}")


def how_to_go_on(fresh: bool) -> str:
    """Says with which command the rows that are left are run. `fresh`: with `--fresh`, which pays for all again."""
    return f"the same command{' without --fresh' * fresh} goes on where it was"


def pace_of(*, batch: bool, deadline: float | None) -> BatchPace | None:
    """Returns the batch settings of `--batch` and `--deadline`; None for direct calls."""
    if deadline is not None and not batch:
        raise click.UsageError("--deadline goes with --batch")
    return BatchPace(deadline=deadline) if batch else None


@dataclass(frozen=True, slots=True)
class RowsCommand:
    """One `flowengine run --data`."""

    plan: CompiledFlow
    options: RowsOptions
    inputs: Mapping[str, Any]
    """Inputs that every row gets."""
    labels: Mapping[str, str]
    running: RunningOptions
    results: Results

    @property
    def _reporting(self) -> Reporting:
        return self.running.reporting

    def run(self) -> int:
        """Run the rows, tell what became of them, and give the exit code."""
        pace = pace_of(batch=self.options.batch, deadline=self.options.deadline)
        data = open_data(self.options.data, self.plan.inputs, parse_mapping(self.options.mapping), self.inputs)
        output = self.options.output
        if output is not None and os.path.realpath(output) == os.path.realpath(self.options.data):
            raise InputError(f"-o {output}: that is the file with the data")
        if data.unused and not self._reporting.quiet:
            complain(f"notice: no input takes the column{'s' * (len(data.unused) > 1)} {', '.join(data.unused)}")
        if not self._reporting.quiet:
            data.tell_invalid(complain)
            tell_notices(self.plan)
        with self.running.open_store() as store:
            try:
                rows = self._open_set(data, store)
            except FlowChangedError as error:
                code = report(error)
                complain("  --allow-changed goes on with what is here now; --fresh runs all rows anew")
                return code
            with hold_set(store, rows.id):  # Before the results of another process at work on it are written over.
                return self._run(data, rows, store, pace)

    def _open_set(self, data: DataFile, store: JournalStore) -> RowSet:
        options = self.options
        key = dumps([os.path.realpath(options.data), data.mapping, self.running.settings.get("model")])
        return open_row_set(
            self.plan, store, data.path.name, key, fresh=options.fresh, allow_changed=options.allow_changed
        )

    def _run(self, data: DataFile, rows: RowSet, store: JournalStore, pace: BatchPace | None) -> int:
        meter = RowMeter(data.total, quiet=self._reporting.quiet, is_batched=pace is not None)
        all_settings = self.running.settings
        settings = {name: value for name, value in all_settings.items() if name not in (*_BOUNDS, "concurrency")}
        runs = RowRuns(
            plan=self.plan,
            store=store,
            rows=rows,
            concurrency=all_settings.get("concurrency", CONCURRENCY),
            budget=Budget(**{name: all_settings.get(name) for name in _BOUNDS}),
            options=RunOptions(settings=settings, labels=self.labels, allow_changed=self.options.allow_changed),
            retry_failed=self.options.retry_failed,
            heard=meter.hear,
            tell=meter.complain,
        )
        if rows.was_edited and not self._reporting.quiet:
            done = sum(each.status == "succeeded" for each in rows.known.values())
            complain(f"notice: the flow was edited since; {done:,} finished rows keep their results (--fresh: anew)")
        outputs = list(self.plan.outputs or self.plan.graph.ids)
        output = self.options.output
        output_file = ResultsFile(output, columns=data.columns, outputs=outputs) if output else nullcontext()
        numbers: set[int] = set()  # Rows that this go has written.

        async def job() -> bool:
            collector = open_collector(store, rows.id, pace, complain)
            async with collector, aclosing(runs.results(data.rows())) as results:
                async for result in results:
                    if file is not None:
                        file.write(result)
                        numbers.add(result.row.number)
                    elif not self._reporting.json:
                        self.results.json(dumps(to_record(result)))
            return True

        failure: Exception | None = None
        ended = None
        try:
            with self.results.alone(), output_file as file:
                try:
                    ended = run_until_interrupted(job)
                finally:
                    if file is not None and len(numbers) < meter.total:  # The file had those that ended before.
                        for result in runs.read_ended(data.rows(), numbers):
                            file.write(result)
        except Exception as error:
            failure = error
        finally:
            meter.end()
        return self._tell(meter, rows, ended is True, failure)

    def _tell(self, meter: RowMeter, rows: RowSet, has_ended: bool, failure: Exception | None) -> int:
        code = rows_exit_code(meter.statuses, meter.total - meter.done)
        if failure is not None:
            code = report(failure, has_run=True)
        elif not has_ended:
            complain("interrupted")
            code = INTERRUPTED
        if self._reporting.json:
            self.results.value(self._to_object(meter, rows))
        if not self._reporting.quiet:
            complain(meter.summary())
            for status, error in sorted(meter.first_errors.items()):
                complain(f"  first {status}: {' '.join(error.split())[:_WIDEST_ERROR]}")
            if self.running.is_kept:
                self._tell_how_to_go_on(meter, rows, code)
        return code

    def _tell_how_to_go_on(self, meter: RowMeter, rows: RowSet, code: int) -> None:
        failed = sum(meter.statuses[each] for each in ("failed", "partial"))
        if code in (INTERRUPTED, 4) or meter.done < meter.total:
            complain(f"  {how_to_go_on(self.options.fresh)}")
        if failed:
            complain("  --retry-failed goes on with the rows that failed")
        elif meter.were_there == meter.total:
            complain("  all were done before; --fresh runs them anew")
        complain(f"  the runs: {format_command('runs list --label', f'set={rows.id}', self.running.store)}")

    def _to_object(self, meter: RowMeter, rows: RowSet) -> Mapping[str, Any]:
        return {
            "set": rows.id,
            "data": rows.name,
            "rows": meter.total,
            "statuses": dict(meter.statuses),
            "done_before": meter.were_there,
            "cost_usd": meter.cost if meter.is_whole else None,
            "seconds": meter.seconds,
        }
