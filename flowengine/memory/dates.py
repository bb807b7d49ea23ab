"""Times that a question names: `in March 2024`, `2024年3月`, `先週`. Pure functions; the present is given.

It knows absolute days, months and years and the nearest relative ones, in English, Japanese and Chinese. What it does
not understand stays a part of the question's words.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Final, NamedTuple

__all__ = ["Period", "Timed", "timed"]


class Period(NamedTuple):
    """From `begin` on, up to and without `end`."""

    begin: datetime
    end: datetime


class Timed(NamedTuple):
    """A question, read for the time that it names."""

    period: Period | None
    rest: str
    """What it says beside the time."""
    named: str = ""
    """How it names the time."""


def timed(question: str, now: datetime) -> Timed:
    """The first time that a question names; days are those of the zone of `now`.

    >>> from datetime import UTC
    >>> found = timed("Where did Mika live in March 2024?", datetime(2025, 7, 1, tzinfo=UTC))
    >>> found.period.begin.date().isoformat(), found.period.end.date().isoformat(), found.rest
    ('2024-03-01', '2024-04-01', 'Where did Mika live  ?')
    """
    for pattern, read in _FORMS:
        for match in pattern.finditer(question):
            period = _existing(read, match, now)
            if period is not None:
                return Timed(period, f"{question[: match.start()]} {question[match.end() :]}", match[0])
    return Timed(None, question)


Read = Callable[[re.Match[str], datetime], Period]

_MONTHS: Final = (
    "january", "february", "march", "april", "may", "june",
    "july", "august", "september", "october", "november", "december",
)  # fmt: skip
_MONTH: Final = "(?P<name>January|February|March|April|May|June|July|August|September|October|November|December)"


def _existing(read: Read, match: re.Match[str], now: datetime) -> Period | None:
    try:
        return read(match, now)
    except (ValueError, OverflowError):  # 31 February is no day, and year 0 no year.
        return None


def _absolute(match: re.Match[str], now: datetime) -> Period:
    """A day, a month or a year; where no year is named, the last one that is not ahead."""
    parts = match.groupdict()
    month = _MONTHS.index(parts["name"].lower()) + 1 if parts.get("name") else _number(parts.get("month"))
    day, year = _number(parts.get("day")), _number(parts.get("year"))
    begin = _midnight(now).replace(year=now.year if year is None else year, month=month or 1, day=day or 1)
    if year is None and begin > now:
        begin = begin.replace(year=now.year - 1)
    if day:
        return Period(begin, begin + timedelta(days=1))
    return Period(begin, _next_month(begin) if month else begin.replace(year=begin.year + 1))


def _number(text: str | None) -> int | None:
    return int(text) if text else None


def _next_month(begin: datetime) -> datetime:
    return begin.replace(year=begin.year + begin.month // 12, month=begin.month % 12 + 1)


def _days(back: int, length: int = 1) -> Read:
    """So many days, the first of them so many days ago."""

    def read(match: re.Match[str], now: datetime) -> Period:
        begin = _midnight(now) - timedelta(days=back)
        return Period(begin, begin + timedelta(days=length))

    return read


def _week(back: int) -> Read:
    def read(match: re.Match[str], now: datetime) -> Period:
        begin = _midnight(now) - timedelta(days=now.weekday() + 7 * back)
        return Period(begin, begin + timedelta(days=7))

    return read


def _month(back: int) -> Read:
    def read(match: re.Match[str], now: datetime) -> Period:
        months = now.year * 12 + now.month - 1 - back
        begin = _midnight(now).replace(year=months // 12, month=months % 12 + 1, day=1)
        return Period(begin, _next_month(begin))

    return read


def _year(back: int) -> Read:
    def read(match: re.Match[str], now: datetime) -> Period:
        begin = _midnight(now).replace(year=now.year - back, month=1, day=1)
        return Period(begin, begin.replace(year=begin.year + 1))

    return read


def _midnight(now: datetime) -> datetime:
    return now.replace(hour=0, minute=0, second=0, microsecond=0)


def _form(pattern: str, read: Read) -> tuple[re.Pattern[str], Read]:
    return re.compile(pattern), read


_FORMS: Final = (
    _form(r"\b(?P<year>\d{4})[-/](?P<month>\d{1,2})[-/](?P<day>\d{1,2})\b", _absolute),
    _form(r"(?P<year>\d{4})\s*年\s*(?P<month>\d{1,2})\s*月\s*(?P<day>\d{1,2})\s*[日号]", _absolute),
    _form(r"(?P<year>\d{4})\s*年\s*(?P<month>\d{1,2})\s*月份?", _absolute),
    _form(r"(?P<year>\d{4})\s*年", _absolute),
    _form(r"(?<!\d)(?P<month>\d{1,2})\s*月\s*(?P<day>\d{1,2})\s*[日号]", _absolute),
    _form(r"(?<!\d)(?P<month>\d{1,2})\s*月(?!間)份?", _absolute),
    _form(
        rf"\b(?:on )?(?:the )?(?P<day>\d{{1,2}})(?:st|nd|rd|th)?(?: of)? {_MONTH}(?:,? (?P<year>\d{{4}}))?\b", _absolute
    ),
    _form(rf"\b(?:on )?{_MONTH} (?P<day>\d{{1,2}})(?:st|nd|rd|th)?\b(?:,? (?P<year>\d{{4}}))?", _absolute),
    _form(rf"\b(?:in |of |since |during |from )?{_MONTH},? (?P<year>\d{{4}})\b", _absolute),
    # Alone a month needs its preposition: May and March are words as well.
    _form(rf"\b(?:in|of|since|during|from|last) {_MONTH}\b", _absolute),
    _form(r"\b(?:in|of|since|during|from) (?P<year>(?:19|20)\d{2})\b", _absolute),
    _form(r"(?i)\byesterday\b|昨日|昨天", _days(1)),
    _form(r"(?i)\btoday\b|今日|今天", _days(0)),
    _form(r"(?i)\blast week\b|先週|上周|上个?星期", _week(1)),
    _form(r"(?i)\bthis week\b|今週|这周|本周|这个?星期", _week(0)),
    _form(r"(?i)\blast month\b|先月|上个?月", _month(1)),
    _form(r"(?i)\bthis month\b|今月|这个?月|本月", _month(0)),
    _form(r"(?i)\blast year\b|去年|昨年", _year(1)),
    _form(r"(?i)\bthis year\b|今年", _year(0)),
)
"""Forms of naming a time; those that say more come first."""
