"""The records by name, and what they say for people: amounts of money and durations."""

from __future__ import annotations

import pytest

from flowengine.core.records import RECORDS, seconds_text

DURATIONS = {
    -1.0: "0 ms", 0.0: "0 ms", 0.9994: "999 ms", 0.9996: "1.0 s", 59.94: "59.9 s", 59.96: "1 min 0 s",
    119.6: "2 min 0 s", 150.5: "2 min 31 s", 3599.6: "1 h 0 min", 3600: "1 h 0 min", 7199: "2 h 0 min",
    86_390: "1 d 0 h", 266_400: "3 d 2 h", 90_000_000: "1,041 d 16 h",
}  # fmt: skip


@pytest.mark.parametrize(("seconds", "text"), DURATIONS.items())
def test_a_duration_is_rounded_and_has_two_units_at_most(seconds: float, text: str) -> None:
    assert seconds_text(seconds) == text


def test_each_record_stands_under_the_name_that_journals_have() -> None:
    assert list(RECORDS) == [kind.__name__ for kind in RECORDS.values()]
