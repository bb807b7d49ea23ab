"""Which ticks of a schedule are due, and what becomes of them, with clocks that jump and days of 23 hours."""

from __future__ import annotations

from datetime import UTC, datetime
from itertools import islice, takewhile
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flowengine.core.schedule import Schedule, ScheduleState, decide_ticks, find_cron_problem, find_zone_problem

DAY = 86_400.0


def at(text: str) -> float:
    return datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp()


def shown(ticks: Any) -> list[str]:
    return [datetime.fromtimestamp(each, UTC).isoformat()[:16] for each in ticks]


def hourly(**said: Any) -> Schedule:
    return Schedule("h", "h.yaml", "0 * * * *", **said)


BERLIN = [
    # Clocks go forward at 2:00 on 29 March 2026, and back at 3:00 on 25 October.
    ("30 2 * * *", "2026-03-28T00:00", 3, ["2026-03-28T01:30", "2026-03-29T01:00", "2026-03-30T00:30"]),
    ("30 2 * * *", "2026-10-24T00:00", 3, ["2026-10-24T00:30", "2026-10-25T00:30", "2026-10-26T01:30"]),
    ("0 * * * *", "2026-10-24T23:30", 3, ["2026-10-25T00:00", "2026-10-25T01:00", "2026-10-25T02:00"]),
    ("*/30 * * * *", "2026-03-29T00:15", 3, ["2026-03-29T00:30", "2026-03-29T01:00", "2026-03-29T01:30"]),
    ("*/30 2 * * *", "2026-03-28T12:00", 2, ["2026-03-30T00:00", "2026-03-30T00:30"]),
    ("15-45/30 2 * * *", "2026-10-24T12:00", 3, ["2026-10-25T00:15", "2026-10-25T00:45", "2026-10-26T01:15"]),
    ("*/45 2 * * *", "2026-10-24T12:00", 3, ["2026-10-25T00:00", "2026-10-25T00:45", "2026-10-25T01:00"]),
    ("0 7 * * MON-FRI", "2026-03-27T12:00", 2, ["2026-03-30T05:00", "2026-03-31T05:00"]),
]  # fmt: skip


@pytest.mark.parametrize(("cron", "after", "count", "expected"), BERLIN)
def test_each_tick_is_there_once_when_clocks_are_changed(cron: str, after: str, count: int, expected: list[str]):
    schedule = Schedule("b", "b.yaml", cron, "Europe/Berlin")
    found = list(islice(schedule.next_ticks(at(after)), count))
    assert shown(found) == expected
    assert schedule.ticks_between(at(after), found[-1]) == found
    assert len({schedule.run_id(each) for each in found}) == count


@settings(max_examples=60, deadline=None)
@given(
    st.sampled_from(["0 * * * *", "*/20 2,3 * * *", "30 2 * * *", "15 1-3 * * SUN", "0 0 L * *"]),
    st.sampled_from(["Europe/Berlin", "Australia/Lord_Howe", "UTC", "Asia/Kathmandu"]),
    st.integers(int(at("2026-01-01T00:00")), int(at("2027-01-01T00:00"))),
    st.integers(0, 4 * int(DAY)),
)
def test_looking_back_finds_the_ticks_that_looking_forward_finds(cron: str, zone: str, after: int, span: int):
    schedule, until = Schedule("s", "s.yaml", cron, zone), float(after + span)
    forward = list(takewhile(lambda tick: tick <= until, schedule.next_ticks(float(after))))
    found = schedule.ticks_between(float(after), until)
    # Ticks of an hour that is there twice: each of them is in both, or in neither.
    assert set(found) <= set(forward) | {tick for tick in found if _is_doubled(tick, zone)}
    assert set(forward) <= set(found) | {tick for tick in forward if _is_doubled(tick, zone)}


def _is_doubled(tick: float, zone: str) -> bool:
    from zoneinfo import ZoneInfo

    here = datetime.fromtimestamp(tick, ZoneInfo(zone))
    return here.replace(fold=0).utcoffset() != here.replace(fold=1).utcoffset()


T = at("2026-05-01T00:00")
"""A tick of `hourly`."""
H = 3600.0
RUN = "h@20260501T0000Z"
SKIPPED = "was skipped: the run before it went on"


def state(decided: float, *pending: float, last: str = "h@before") -> ScheduleState:
    return ScheduleState(decided, pending, last)


@pytest.mark.parametrize(
    ("said", "known", "now", "busy", "start", "pending", "told"),
    [
        ("a new schedule has missed nothing", None, T + 1, False, None, (), ""),
        ("on time", state(T - 10), T + 1, False, T, (), ""),
        ("just before it", state(T - 10), T - 0.5, False, None, (), ""),
        ("at the very moment", state(T - 10), T, False, T, (), ""),
        ("once", state(T + 1), T + 2, False, None, (), ""),
        ("late, and still on time", state(T - 10), T + 59, False, T, (), ""),
        ("missed", state(T - 10), T + 61, False, None, (), f"{RUN} was missed"),
        ("a night was missed", state(T - 8 * H), T + 5, False, T, (), "h@20260430T2300Z was missed"),
        ("skipped, as another goes on", state(T - 10), T + 1, True, None, (), f"{RUN} {SKIPPED}"),
        ("a clock set back by little decides nothing again", state(T + 50), T + 1, False, None, (), ""),
        ("a clock set back by much goes on with the ticks that come", state(T + 5 * H), T - 1, False, None, (), ""),
        ("and with those after them", state(T - 1), T, False, T, (), ""),
        ("a clock set forward by a year", state(T - 365 * DAY), T + 1, False, T, (), "h@20260430T2300Z was missed"),
    ],
)  # fmt: skip
def test_what_is_due(
    said: str, known: Any, now: float, busy: bool, start: float | None, pending: tuple[float, ...], told: str
):
    found = decide_ticks(hourly(), known, now, busy)
    assert (found.start, found.state.pending, found.state.told) == (start, pending, told), said
    assert found.state.decided == (max(now, known.decided) if known is not None and known.decided <= now + 60 else now)
    assert found.state.last_run == (hourly().run_id(start) if start else "" if known is None else known.last_run)


def test_a_run_that_goes_on_is_cancelled_for_the_next_tick_or_waited_for():
    cancelling = decide_ticks(hourly(overlap="cancel"), state(T - 10), T + 1, True)
    assert (cancelling.start, cancelling.cancels) == (T, True)
    assert not decide_ticks(hourly(overlap="cancel"), state(T - 10), T + 1, False).cancels
    waiting = decide_ticks(hourly(overlap="queue"), state(T - 10), T + 1, True)
    assert (waiting.start, waiting.state.pending) == (None, (T,))
    more = decide_ticks(hourly(overlap="queue"), waiting.state, T + H + 1, True)
    assert (more.start, more.state.pending) == (None, (T, T + H))
    freed = decide_ticks(hourly(overlap="queue"), more.state, T + H + 9, False)
    assert (freed.start, freed.state.pending, freed.state.last_run) == (T, (T + H,), RUN)
    skipping = decide_ticks(hourly(), more.state, T + 2 * H + 1, False)
    assert (skipping.start, skipping.state.pending) == (T, (T + H,))  # What waits goes first.
    assert skipping.state.told.endswith("was skipped: the run before it went on")


def test_what_was_missed_is_caught_up_one_after_the_other_or_the_last_of_it():
    away = state(T - 3 * H - 10)
    every = decide_ticks(hourly(catch_up=True), away, T + H / 2, False)
    assert (every.start, every.state.pending) == (T - 3 * H, (T - 2 * H, T - H, T))
    last = decide_ticks(hourly(catch_up="last"), away, T + H / 2, False)
    assert (last.start, last.state.pending) == (T, ())
    on_time = decide_ticks(hourly(catch_up="last"), away, T + 5, False)
    assert (on_time.start, on_time.state.pending) == (T, ())
    long_away = decide_ticks(hourly(catch_up=True), state(T - 500 * H), T + H / 2, False)
    assert (long_away.start, len(long_away.state.pending)) == (T - 99 * H, 99)


def test_no_more_than_a_hundred_ticks_wait():
    known = state(T - 10, *(T - n * H for n in range(100, 0, -1)))
    found = decide_ticks(hourly(overlap="queue"), known, T + 1, True)
    assert (len(found.state.pending), found.state.pending[-1]) == (100, T)
    assert "was skipped: 100 others wait" in found.state.told


@pytest.mark.parametrize(
    ("cron", "problem"),
    [
        ("0 7 * * *", None), ("*/5 0-6 1,15 * MON-FRI", None), ("0 0 L * *", None), ("0 7 * *", "it has five fields"),
        ("* * * * * *", "it has five fields"), ("@daily", "it has five fields"), ("", "it has five fields"),
        ("60 * * * *", "bad minute"), ("0 25 * * *", "bad hour"), ("0 0 31 2 *", "bad day-of-month"),
        ("a b c d e", "bad minute"), ("0 0 * * \u0661", "bad day-of-week"), ("0/0 * * * *", "bad minute"),
    ],
)  # fmt: skip
def test_a_cron_expression_is_checked(cron: str, problem: str | None):
    found = find_cron_problem(cron)
    assert (found is None) == (problem is None)
    assert (found or "").startswith(problem or "")


def test_a_zone_is_one_of_the_machine_and_no_path():
    assert find_zone_problem("Europe/Berlin") is None
    for name in ("Europe/Berln", "../../etc/passwd", "/etc/localtime", "", "a\0b", "Europe"):
        assert find_zone_problem(name) is not None, name
