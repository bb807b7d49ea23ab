"""What deaths of workers say about their runs, as properties of the rule."""

from __future__ import annotations

from math import ceil, log

from hypothesis import given
from hypothesis import strategies as st

from flowengine.runtime.queue.suspicion import SUSPECT, Suspicion, share_out, weigh_death

COMPANIES = st.integers(1, 1_000)
HISTORIES = st.lists(st.none() | COMPANIES, max_size=30).map(tuple)
TAKEOVERS = st.integers(0, 20)


@given(COMPANIES, COMPANIES)
def test_a_death_says_the_less_the_more_runs_shared_it(few: int, many: int) -> None:
    few, many = sorted((few, many))
    assert 0 < weigh_death(many) <= weigh_death(few) <= 1


@given(HISTORIES, st.none() | COMPANIES, TAKEOVERS)
def test_one_more_death_exonerates_no_run(history: tuple[int | None, ...], company: int | None, takeovers: int) -> None:
    before, after = Suspicion(history), Suspicion((*history, company))
    assert after.is_suspect(takeovers) >= before.is_suspect(takeovers)
    assert after.is_proven(takeovers) >= before.is_proven(takeovers)


@given(st.lists(st.none() | st.integers(2, 1_000), max_size=200).map(tuple), st.integers(1, 20))
def test_a_run_that_never_died_alone_is_never_given_up(history: tuple[int | None, ...], takeovers: int) -> None:
    assert not Suspicion(history).is_proven(takeovers)


@given(st.lists(st.integers(5, 1_000), max_size=2).map(tuple), st.integers(1, 20))
def test_two_crashes_of_a_host_with_many_runs_make_none_of_them_a_suspect(
    history: tuple[int, ...], takeovers: int
) -> None:
    assert not Suspicion(history).is_suspect(takeovers)


@given(st.lists(COMPANIES, min_size=80, max_size=80), st.integers(1, 20))
def test_a_run_that_kills_each_of_its_workers_is_isolated_and_given_up_in_time(
    companies: list[int], takeovers: int
) -> None:
    history: tuple[int, ...] = ()
    while not Suspicion(history).is_proven(takeovers):
        is_alone = Suspicion(history).is_suspect(takeovers)
        history = (*history, 1 if is_alone else companies[len(history)])
    shared = ceil(1 + log(max(companies), 4))  # Deaths of which each weighs two parts of so many.
    assert takeovers < len(history) <= max(2, shared) + takeovers
    assert sum(company == 1 for company in history) >= max(1, takeovers - 1)


@given(st.lists(COMPANIES, min_size=40, max_size=40), st.integers(1, 20))
def test_a_run_at_fault_takes_no_other_run_with_it_that_was_beside_it_every_time(
    companies: list[int], takeovers: int
) -> None:
    """Both are suspects at the same time; then the one at fault dies alone, and the other one ends when it is."""
    guilty: tuple[int, ...] = ()
    beside: tuple[int, ...] = ()
    while not Suspicion(guilty).is_proven(takeovers):
        if Suspicion(guilty).is_suspect(takeovers):
            guilty = (*guilty, 1)  # The other one waits: none of its nodes is at work.
        else:
            company = companies[len(guilty)] + 1
            guilty, beside = (*guilty, company), (*beside, company)
    assert not Suspicion(beside).is_proven(takeovers)


@given(st.integers(0, 30), st.lists(COMPANIES, max_size=40))
def test_a_suspicion_knows_of_each_death_and_of_none_before(deaths: int, noted: list[int]) -> None:
    companies = Suspicion.of(deaths, noted).companies
    assert len(companies) == deaths
    known = [company for company in companies if company is not None]
    assert known == noted[len(noted) - len(known) :]
    assert len(known) == min(deaths, len(noted))


def test_a_run_that_may_be_taken_over_not_once_is_given_up_after_its_first_death() -> None:
    assert Suspicion((60,)).is_proven(0)
    assert not Suspicion(()).is_suspect(0)
    assert Suspicion((1, 1)).weight == SUSPECT


@given(st.integers(0, 500), st.integers(0, 50))
def test_idle_workers_are_left_their_share_of_what_waits(waiting: int, idle: int) -> None:
    leaving = share_out(waiting, idle)
    assert 0 <= leaving <= waiting
    assert (leaving > 0) == (waiting > 0 and idle > 0)
    assert (waiting - leaving) * idle <= leaving
