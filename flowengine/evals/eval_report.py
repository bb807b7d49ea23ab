"""Makes of a set's scores what a report says: means with intervals, slices, the worst rows, what changed since another.

Samples of one row are one row: their scores are averaged before anything is said of rows. Pure.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from flowengine.core import cost_text
from flowengine.errors import InputError, did_you_mean
from flowengine.evals.eval_sets import EvalRow, EvalSet
from flowengine.evals.score_statistics import Difference, Estimate, estimate_difference, estimate_mean

WORST: Final = 10
"""Rows that a report tells of one by one."""


class SliceReport(NamedTuple):
    """One scorer over the rows with one value in a column."""

    column: str
    value: str
    estimate: Estimate
    failures: int
    cost_usd: float
    unpriced_calls: int


class ScorerReport(NamedTuple):
    """One scorer over all rows."""

    name: str
    estimate: Estimate
    failures: int
    """Rows whose score is below the scorer's threshold."""
    unscored: int
    """Rows that it gave no score."""
    passes_from: float
    cost_usd: float
    """Cost of the judge."""
    unpriced_calls: int
    slices: Sequence[SliceReport]


class Moved(NamedTuple):
    """A row whose score is another one."""

    before: EvalRow
    after: EvalRow
    difference: float


class Totals(NamedTuple):
    """The cost and the time of a set's runs; what is re-used counts as if it was made again."""

    cost_usd: float
    unpriced_calls: int
    seconds: float
    """Median of the runs."""


class Comparison(NamedTuple):
    """Two sets, row by row."""

    before: EvalSet
    totals: tuple[Totals, Totals]
    """Before and after, of the rows that are in both."""
    nodes: Sequence[str]
    """Nodes that are defined in another way, or are in one of both."""
    differences: Mapping[str, Difference]
    better: Mapping[str, Sequence[Moved]]
    worse: Mapping[str, Sequence[Moved]]
    unpaired: int
    """Rows that are in one of both."""


class EvalReport(NamedTuple):
    """The report on a set."""

    of: EvalSet
    scorers: Sequence[ScorerReport]
    statuses: Mapping[str, int]
    calls: int
    paid_calls: int
    cost_usd: float
    paid_usd: float
    unpriced_calls: int
    """Calls, of `calls`, without a known price."""
    paid_unpriced_calls: int
    seconds: Sequence[float]
    """Median, 90th percentile and longest of the runs."""
    worst: Sequence[EvalRow]
    comparison: Comparison | None
    under: Mapping[str, float]
    """Scorer → the bound that its mean is under."""

    @property
    def paid_line(self) -> str:
        """A line with the actual cost and the cost without re-use.

        Printed as: paid 500 of 4,000 calls, $1.10 instead of $9.40
        """
        paid = format_dollars_short(self.paid_usd, self.paid_unpriced_calls)
        count = self.unpriced_calls
        unknown = f"; the price of {count:,} call{'s' * (count != 1)} is not known" if count else ""
        return (
            f"paid {self.paid_calls:,} of {self.calls:,} calls, {paid} "
            f"instead of {format_dollars_short(self.cost_usd, count)}{unknown}"
        )

    @property
    def statuses_line(self) -> str:
        return ", ".join(f"{count:,} {status}" for status, count in self.statuses.items())

    @property
    def seconds_line(self) -> str:
        median, most, longest = self.seconds
        return f"a run takes {median:.3g} s, nine of ten at most {most:.3g} s, the longest {longest:.3g} s"

    def explain_bound(self, scorer: str) -> str:
        """Why a scorer that is in `under` is there."""
        mean = next(each.estimate.mean for each in self.scorers if each.name == scorer)
        result = "no row has a score" if math.isnan(mean) else f"the mean is {mean:.3f}"
        return f"{result}, and {self.under[scorer]:g} was asked for"

    @property
    def runs(self) -> int:
        return len(self.of.rows)

    @property
    def failed_runs(self) -> int:
        return self.runs - self.statuses.get("succeeded", 0)


def format_dollars_short(amount: float, unpriced_calls: int) -> str:
    """A cost in US dollars, with a `+` where some calls have no known price.

    >>> format_dollars_short(1.1, 0), format_dollars_short(0.0, 0), format_dollars_short(0.0, 2)
    ('$1.10', '$0', '$0+')
    """
    return cost_text(amount) + "+" * bool(unpriced_calls)


def format_totals(totals: tuple[Totals, Totals]) -> str:
    """Cost and time of two sets of the same rows.

    >>> format_totals((Totals(0.5, 0, 2.0), Totals(0.25, 0, 1.5)))
    'cost $0.50 → $0.25 (-50 %), a run takes 2 s → 1.5 s (-25 %)'
    >>> format_totals((Totals(0.0, 2, 0.0), Totals(0.25, 0, 1.5)))
    'cost $0+ → $0.25, a run takes 0 s → 1.5 s'
    """
    before, after = totals
    costs = " → ".join(format_dollars_short(each.cost_usd, each.unpriced_calls) for each in totals)
    unpriced = before.unpriced_calls or after.unpriced_calls
    cheaper = "" if unpriced else _format_change(before.cost_usd, after.cost_usd)
    seconds = f"{before.seconds:.3g} s → {after.seconds:.3g} s{_format_change(before.seconds, after.seconds)}"
    return f"cost {costs}{cheaper}, a run takes {seconds}"


def _format_change(before: float, after: float) -> str:
    return f" ({after / before - 1:+.0%})".replace("%", " %") if before else ""


def make_report(
    current: EvalSet, before: EvalSet | None = None, bounds: Mapping[str, float] | None = None
) -> EvalReport:
    """The report of a set; `before`: the set to compare with; `bounds`: scorer → what its mean has to reach."""
    scorers = [_report_scorer(current, name) for name in current.scorers]
    means = {each.name: each.estimate.mean for each in scorers}
    under = {name: bound for name, bound in (bounds or {}).items() if not means[name] >= bound}
    rows = current.rows
    return EvalReport(
        current,
        scorers,
        dict(Counter(each.status for each in rows).most_common()),
        sum(each.calls for each in rows),
        sum(each.paid_calls for each in rows),
        math.fsum(each.cost_usd for each in rows),
        math.fsum(each.paid_usd for each in rows),
        sum(each.unpriced_calls for each in rows),
        sum(each.paid_unpriced_calls for each in rows),
        _quantiles([each.seconds for each in rows]),
        sorted(rows, key=_badness)[:WORST],
        None if before is None else _compare(before, current),
        under,
    )


def parse_bounds(pairs: Iterable[str], scorers: Sequence[str]) -> Mapping[str, float]:
    """Read `scorer=mean` pairs; a number alone is every scorer's.

    >>> parse_bounds(["quality=0.8"], ["quality"])
    {'quality': 0.8}
    """
    thresholds: dict[str, float] = {}
    for pair in pairs:
        name, equals, text = pair.rpartition("=")
        try:
            bound = float(text)
        except ValueError:
            bound = math.nan
        if not 0 <= bound <= 1:
            raise InputError(f"--fail-under {pair!r:.80}: write it as SCORER=0.8, a number from 0.0 to 1.0")
        if equals and name not in scorers:
            raise InputError(f"--fail-under {pair!r:.80}: there is no scorer '{name}'{did_you_mean(name, scorers)}")
        thresholds |= {name: bound} if equals else dict.fromkeys(scorers, bound)
    return thresholds


# --- Scores of rows


def scores_by_row(rows: Iterable[EvalRow], scorer: str) -> Mapping[str, float]:
    """Row → the mean of its samples' scores."""
    values_by_row: defaultdict[str, list[float]] = defaultdict(list)
    for row in rows:
        score = row.scores.get(scorer)
        if score is not None and score.value is not None:
            values_by_row[row.key].append(score.value)
    return {key: math.fsum(values) / len(values) for key, values in values_by_row.items()}


def _report_scorer(current: EvalSet, name: str) -> ScorerReport:
    passes_from = current.passes_from[name]
    scores = scores_by_row(current.rows, name)
    groups: defaultdict[tuple[str, str], list[EvalRow]] = defaultdict(list)
    for row in current.rows:
        for column, value in row.slices.items():
            groups[column, value].append(row)
    slices = [_report_slice(*group, rows, name, passes_from) for group, rows in sorted(groups.items())]
    keys = {row.key for row in current.rows}
    judged = [score for row in current.rows if (score := row.scores.get(name)) is not None]
    values = list(scores.values())
    return ScorerReport(
        name,
        estimate_mean(values),
        _failures(values, passes_from),
        len(keys) - len(scores),
        passes_from,
        math.fsum(each.cost_usd for each in judged),
        sum(each.unpriced_calls for each in judged),
        slices,
    )


def _report_slice(column: str, value: str, rows: Sequence[EvalRow], scorer: str, passes_from: float) -> SliceReport:
    values = list(scores_by_row(rows, scorer).values())
    cost, unpriced = math.fsum(each.cost_usd for each in rows), sum(each.unpriced_calls for each in rows)
    return SliceReport(column, value, estimate_mean(values), _failures(values, passes_from), cost, unpriced)


def _failures(scores: Iterable[float], passes_from: float) -> int:
    return sum(each < passes_from for each in scores)


def _badness(row: EvalRow) -> tuple[float, int]:
    values = [score.value for score in row.scores.values() if score.value is not None]
    return (math.fsum(values) / len(values) if values else -1.0), row.number


def _quantiles(seconds: Sequence[float]) -> Sequence[float]:
    if not seconds:
        return (0.0, 0.0, 0.0)
    ordered = sorted(seconds)
    last = len(ordered) - 1
    return ordered[round(0.5 * last)], ordered[round(0.9 * last)], ordered[-1]


# --- Two sets


def _compare(before: EvalSet, after: EvalSet) -> Comparison:
    names = [each for each in after.scorers if each in before.scorers]
    differences: dict[str, Difference] = {}
    better: dict[str, Sequence[Moved]] = {}
    worse: dict[str, Sequence[Moved]] = {}
    for name in names:
        old, new = scores_by_row(before.rows, name), scores_by_row(after.rows, name)
        keys = [each for each in new if each in old]
        differences[name] = estimate_difference([old[each] for each in keys], [new[each] for each in keys])
        moved = _list_moved_rows(before, after, name)
        better[name] = sorted((each for each in moved if each.difference > 0), key=lambda each: -each.difference)
        worse[name] = sorted((each for each in moved if each.difference < 0), key=lambda each: each.difference)
    one, other = ({row.place for row in each.rows} for each in (before, after))
    totals = _add_up(before.rows, one & other), _add_up(after.rows, one & other)
    nodes = dict.fromkeys([*after.fingerprints, *before.fingerprints])
    changed = [each for each in nodes if before.fingerprints.get(each) != after.fingerprints.get(each)]
    return Comparison(before, totals, changed, differences, better, worse, len(one ^ other))


def _add_up(rows: Iterable[EvalRow], places: Collection[tuple[str, int]]) -> Totals:
    rows = [each for each in rows if each.place in places]
    median, _, _ = _quantiles([each.seconds for each in rows])
    return Totals(math.fsum(each.cost_usd for each in rows), sum(each.unpriced_calls for each in rows), median)


def _list_moved_rows(before: EvalSet, after: EvalSet, scorer: str) -> list[Moved]:
    earlier = before.by_place()
    moves: list[Moved] = []
    for row in after.rows:
        other = earlier.get(row.place)
        one = None if other is None else other.scores.get(scorer)
        two = row.scores.get(scorer)
        if other is None or one is None or two is None or one.value is None or two.value is None:
            continue
        if one.value != two.value:
            moves.append(Moved(other, row, two.value - one.value))
    return moves
