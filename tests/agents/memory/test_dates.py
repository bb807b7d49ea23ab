"""Times that questions name."""

from __future__ import annotations

from datetime import UTC, date, datetime
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flowengine.agents.memory.items.words import find_time

NOW = datetime(2025, 7, 2, 15, 30, tzinfo=UTC)
"""A Wednesday."""


@pytest.mark.parametrize(
    ("question", "begin", "end"),
    [
        ("What happened on 2024-03-14?", "2024-03-14", "2024-03-15"),
        ("What happened on 14 March 2024?", "2024-03-14", "2024-03-15"),
        ("What happened on the 14th of March, 2024?", "2024-03-14", "2024-03-15"),
        ("Did it rain on March 14, 2024?", "2024-03-14", "2024-03-15"),
        ("Did it rain on August 3rd?", "2024-08-03", "2024-08-04"),
        ("What was decided in December 2024?", "2024-12-01", "2025-01-01"),
        ("What was decided in May?", "2025-05-01", "2025-06-01"),
        ("What was decided in August?", "2024-08-01", "2024-09-01"),
        ("Where did we meet in 2023?", "2023-01-01", "2024-01-01"),
        ("What did Mika say yesterday?", "2025-07-01", "2025-07-02"),
        ("What did Mika say last week?", "2025-06-23", "2025-06-30"),
        ("Last month's plan?", "2025-06-01", "2025-07-01"),
        ("What changed this year?", "2025-01-01", "2026-01-01"),
        ("2024年3月14日に何がありましたか。", "2024-03-14", "2024-03-15"),
        ("2024年3月に何がありましたか。", "2024-03-01", "2024-04-01"),
        ("2023年は？", "2023-01-01", "2024-01-01"),
        ("3月14日の会議は？", "2025-03-14", "2025-03-15"),
        ("12月の会議は？", "2024-12-01", "2025-01-01"),
        ("先週の会議は？", "2025-06-23", "2025-06-30"),
        ("昨日は？", "2025-07-01", "2025-07-02"),
        ("２０２４年３月１４日に何がありましたか。", "2024-03-14", "2024-03-15"),
        ("2024年3月14号发生了什么？", "2024-03-14", "2024-03-15"),
        ("上个月发生了什么？", "2025-06-01", "2025-07-01"),
        ("去年的计划", "2024-01-01", "2025-01-01"),
    ],
)
def test_a_time_that_a_question_names_is_a_period(question: str, begin: str, end: str):
    period = find_time(question, NOW).period
    assert period is not None
    assert (period.begin.date(), period.end.date()) == (date.fromisoformat(begin), date.fromisoformat(end))
    assert period.begin.time().isoformat() == "00:00:00"


@pytest.mark.parametrize(
    "question",
    [
        "May I ask you something?",
        "Will they march on?",
        "Call extension 2024 please.",
        "What happened on 2024-02-31?",
        "三月の会議は？",
        "3月間の計画",
        "0000-01-01",
        "",
    ],
)
def test_what_names_no_time_is_left_as_it_is(question: str):
    found = find_time(question, NOW)
    assert found.period is None
    assert found.rest == question


def test_the_rest_of_a_question_lacks_the_time_and_nothing_else():
    found = find_time("Where did Mika live in March 2024?", NOW)
    assert found.rest.split() == ["Where", "did", "Mika", "live", "?"]
    assert found.phrase == "in March 2024"


def test_days_are_those_of_the_zone_of_the_present():
    tokyo = datetime(2025, 7, 3, 1, 0, tzinfo=ZoneInfo("Asia/Tokyo"))
    period = find_time("今日の予定は？", tokyo).period
    assert period is not None
    assert period.begin.astimezone(UTC) == datetime(2025, 7, 2, 15, tzinfo=UTC)


@given(st.text(max_size=60), st.datetimes(datetime(1, 1, 1), datetime(9999, 12, 31), timezones=st.just(UTC)))
@settings(deadline=None, max_examples=200)
def test_no_question_whatever_and_no_present_is_an_error(question: str, now: datetime):
    for text in (question, f"{question} 9999年12月31日", f"last year {question}", "昨日", "in December 9999", "12月"):
        period = find_time(text, now).period
        assert period is None or period.begin < period.end
