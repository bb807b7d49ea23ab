"""The statistics of evals give what is published."""

from __future__ import annotations

import math

import pytest

from flowengine.evals.score_statistics import (
    bootstrap_interval,
    estimate_difference,
    estimate_mean,
    permutation_p,
    share_interval,
    student_interval,
)

pytestmark = pytest.mark.needs("scipy", "eval")

DARWIN = [49, -67, 8, 16, 6, 23, 28, 41, 14, 29, 56, 24, 75, 60, -48]
"""Differences in the heights of fifteen pairs of maize, in eighths of an inch (Fisher 1935, table 3)."""


@pytest.mark.parametrize(
    ("passes", "n", "low", "high"),
    [(81, 263, 0.2553, 0.3662), (15, 148, 0.0624, 0.1605), (0, 20, 0.0, 0.1611), (1, 29, 0.0061, 0.1718)],
)
def test_the_interval_of_a_share_is_that_of_newcombe_1998(passes: int, n: int, low: float, high: float) -> None:
    assert [round(each, 4) for each in share_interval(passes, n)] == [low, high]
    found = estimate_mean([1.0] * passes + [0.0] * (n - passes))
    assert [round(found.low, 4), round(found.high, 4)] == [low, high]


def test_the_interval_of_a_mean_is_that_of_the_nist_handbook() -> None:
    low, high = student_interval(9.261460, 0.02278881, 195)
    assert (round(low, 5), round(high, 5)) == (9.25824, 9.26468)


def test_the_permutation_test_is_that_of_fisher_1935() -> None:
    assert permutation_p(DARWIN) == 1726 / 32768


def test_students_interval_of_darwins_differences_is_the_known_one() -> None:
    inches = [each / 8 for each in DARWIN]
    mean = sum(inches) / 15
    deviation = math.sqrt(sum((each - mean) ** 2 for each in inches) / 14)
    low, high = student_interval(mean, deviation, 15)
    assert (round(low, 4), round(high, 4)) == (0.0039, 5.2294)


def test_the_bootstrap_has_the_standard_error_of_efron_and_tibshirani_1993() -> None:
    *_, error = bootstrap_interval([94, 197, 16, 38, 99, 141, 23])
    assert error == pytest.approx(23.36, rel=0.01)


def test_differences_are_paired_and_certain_only_where_the_interval_says_so() -> None:
    found = estimate_difference([0.1 * (n % 5) for n in range(60)], [0.1 * (n % 5) + 0.05 for n in range(60)])
    assert (found.mean, found.better, found.worse) == (pytest.approx(0.05), 60, 0)
    assert found.is_certain
    assert found.p < 0.001
    noise = estimate_difference([0.0, 1.0] * 20, [1.0, 0.0] * 20)
    assert (noise.mean, noise.is_certain) == (0.0, False)


@pytest.mark.parametrize(("n", "is_certain"), [(1, False), (2, False), (3, False), (5, False), (6, True)])
def test_few_rows_are_not_certain_however_much_better_they_all_are(n: int, is_certain: bool) -> None:
    found = estimate_difference([0.0] * n, [1.0] * n)
    assert (found.is_certain, found.p) == (is_certain, 1.0 if n == 1 else 2 / 2**n)
    assert not estimate_difference([0.0] * 5 + [1.0] * 40, [1.0] * 45).is_certain


@pytest.mark.parametrize("scores", [[], [0.5], [0.5, 0.5], [0.0, 0.3, 1.0]])
def test_few_scores_are_no_trouble(scores: list[float]) -> None:
    found = estimate_mean(scores)
    assert found.n == len(scores)
    if scores:
        assert 0.0 <= found.low <= found.mean <= found.high <= 1.0
        assert min(scores) <= found.p10 <= found.mean


@pytest.mark.parametrize(("before", "after"), [([], []), ([0.0], [1.0]), ([0.5] * 3, [0.5] * 3)])
def test_few_pairs_are_no_trouble(before: list[float], after: list[float]) -> None:
    assert estimate_difference(before, after).n == len(before)


def test_rounding_is_no_difference() -> None:
    found = estimate_difference([0.3] * 12, [0.1 + 0.2] * 12)
    assert (found.better, found.worse, found.p, found.is_certain) == (0, 0, 1.0, False)
