"""Says how far scores can be trusted: intervals of means, and of paired differences. scipy computes (extra `eval`).

Checked against published examples:

- The interval of a share of passes is Wilson's score interval: Newcombe, R. G. (1998), "Two-sided confidence intervals
  for the single proportion", Statistics in Medicine 17, 857–872, table I, method 3 (81 of 263: 0.2553 to 0.3662).
- The interval of a mean of other scores is Student's: NIST/SEMATECH e-Handbook of Statistical Methods, 1.3.5.2, heat
  flow meter data (n = 195, mean 9.261460, s = 0.02278881: 9.258242 to 9.264679).
- The p-value of paired differences is the permutation test's by signs, exact or of 9,999 drawn ones: Darwin's maize in
  Fisher, R. A. (1935), "The Design of Experiments", section 21 (1,726 of 32,768 sign changes: 0.0527).
- Their interval is the bootstrap's, by percentiles: Efron, B. and Tibshirani, R. (1993), "An Introduction to the
  Bootstrap", table 2.1 and section 6.2 (the mouse data's standard error of the mean: 23.36).

A difference is certain only where both say so: of few rows the bootstrap's interval is too narrow (of two that both
got better it leaves out zero), while the permutation test, exact there, needs six.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from importlib import import_module
from statistics import quantiles
from typing import Any, Final, NamedTuple

from flowengine.errors import InputError
from flowengine.version import install_hint, missing_modules

CONFIDENCE: Final = 0.95
FEWEST: Final = 6
"""Rows with a difference from which on it can be certain: of five that all got better, two sign changes of 32 are as
extreme, which is more than one in twenty."""
_RESAMPLES: Final = 9_999
_BATCH: Final = 200
"""Resamples that are in memory at once."""
_ROUNDING: Final = 1e-9
"""Scores that differ by less are the same: 0.3 and 0.1 + 0.2 are."""
_SEED: Final = 20_240_229
"""So that a report of the same scores is the same."""


class Estimate(NamedTuple):
    """The estimate of a mean."""

    n: int
    mean: float
    low: float
    high: float
    """The interval that holds the mean of all such rows with a confidence of 95 %."""
    p10: float
    """A tenth of the scores are at most this."""


class Difference(NamedTuple):
    """The estimate of a mean of paired differences."""

    n: int
    mean: float
    low: float
    high: float
    p: float
    """How likely differences of this size are where there is none."""
    better: int
    worse: int

    @property
    def is_certain(self) -> bool:
        """Whether the interval and the test both leave out that nothing changed."""
        return (self.low > 0 or self.high < 0) and self.p <= 1 - CONFIDENCE


def require_statistics() -> None:
    """Raise `InputError` where the extra is not installed, before anything is paid."""
    missing = missing_modules("eval")
    if missing:
        raise InputError(f"evals need {', '.join(missing)}: {install_hint('eval')}")


def _load(module: str) -> Any:
    """A module of the extra: half a second, and without types."""
    return import_module(module)


def estimate_mean(scores: Sequence[float]) -> Estimate:
    """The mean of scores from 0.0 to 1.0, with its interval; NaN where there are none.

    >>> estimate_mean([0.5])
    Estimate(n=1, mean=0.5, low=0.0, high=1.0, p10=0.5)
    """
    if not scores:
        return Estimate(0, math.nan, math.nan, math.nan, math.nan)
    n, mean = len(scores), math.fsum(scores) / len(scores)
    p10 = quantiles(scores, n=10, method="inclusive")[0] if n > 1 else mean  # Hyndman and Fan's type 7.
    if all(each in (0.0, 1.0) for each in scores):
        low, high = share_interval(round(math.fsum(scores)), n)
    else:
        variance = math.fsum((each - mean) ** 2 for each in scores) / (n - 1) if n > 1 else math.nan
        low, high = student_interval(mean, math.sqrt(variance), n)
        low, high = max(0.0, low), min(1.0, high)
    return Estimate(n, mean, low, high, p10)


def share_interval(passes: int, n: int) -> tuple[float, float]:
    """Wilson's interval of a share."""
    stats = _load("scipy.stats")
    interval: Any = stats.binomtest(passes, n).proportion_ci(CONFIDENCE, method="wilson")
    return float(interval.low), float(interval.high)


def student_interval(mean: float, deviation: float, n: int) -> tuple[float, float]:
    """Student's interval of a mean; that of one value is unknown, and so all there is."""
    if n < 2:
        return -math.inf, math.inf
    stats = _load("scipy.stats")
    half = float(stats.t.ppf((1 + CONFIDENCE) / 2, n - 1)) * deviation / math.sqrt(n)
    return mean - half, mean + half


def estimate_difference(before: Sequence[float], after: Sequence[float]) -> Difference:
    """The mean of `after - before`, pair by pair, with its interval and the p-value of a permutation test.

    >>> estimate_difference([0.0, 1.0], [0.0, 1.0])
    Difference(n=2, mean=0.0, low=0.0, high=0.0, p=1.0, better=0, worse=0)
    """
    pairs = zip(before, after, strict=True)
    differences = [0.0 if math.isclose(x, y, rel_tol=0, abs_tol=_ROUNDING) else y - x for x, y in pairs]
    n = len(differences)
    if not n:
        return Difference(0, math.nan, math.nan, math.nan, math.nan, 0, 0)
    mean = math.fsum(differences) / n
    better, worse = sum(each > 0 for each in differences), sum(each < 0 for each in differences)
    if not better and not worse:
        return Difference(n, 0.0, 0.0, 0.0, 1.0, 0, 0)
    low, high = bootstrap_interval(differences)[:2] if n > 1 else (-math.inf, math.inf)
    return Difference(n, mean, low, high, permutation_p(differences), better, worse)


def bootstrap_interval(values: Sequence[float]) -> tuple[float, float, float]:
    """The bootstrap's interval of a mean, by percentiles, and its standard error."""
    numpy, stats = _load("numpy"), _load("scipy.stats")
    result: Any = stats.bootstrap(
        (numpy.asarray(values),),
        numpy.mean,
        confidence_level=CONFIDENCE,
        n_resamples=_RESAMPLES,
        batch=_BATCH,
        method="percentile",
        rng=numpy.random.default_rng(_SEED),
    )
    interval = result.confidence_interval
    return float(interval.low), float(interval.high), float(result.standard_error)


def permutation_p(differences: Sequence[float]) -> float:
    """The two-sided p-value of the permutation test by signs; differences of zero tell nothing, and are left out."""
    nonzero = [each for each in differences if each]
    if len(nonzero) < 2:
        return 1.0  # One sign is as likely as the other.
    numpy, stats = _load("numpy"), _load("scipy.stats")

    def mean_of(values: Any, axis: int) -> Any:
        return numpy.mean(values, axis=axis)

    result: Any = stats.permutation_test(
        (numpy.asarray(nonzero),),
        mean_of,
        permutation_type="samples",
        vectorized=True,
        n_resamples=_RESAMPLES if len(nonzero) > 15 else numpy.inf,
        batch=_BATCH,
        rng=numpy.random.default_rng(_SEED),
    )
    return float(result.pvalue)
