"""What is counted as paid twice, and what excuses it."""

from __future__ import annotations

import pytest

from tests.faults import story
from tests.faults.account import Cut, Record, Recorded, recorded_answers, repeats, unexcused
from tests.support.model_server import Received


def asked(worker: int, arrived: float, answered: float | None, prompt: str = "p") -> Received:
    body = {"messages": [{"role": "user", "content": prompt}]}
    return Received("POST", f"/w{worker}/v1/chat/completions", {}, body, arrived, answered)


LATER = [Recorded(asked(1, 9.0, 9.95, "another"), 9.97), Recorded(asked(2, 9.0, 9.95, "a third"), 9.97)]
"""What is on record at 10.0."""
KILL = Cut(10.0, worker=1)
STOP = Cut(10.0, 20.0, worker=1)
AWAY = Cut(10.0, 20.0)


@pytest.mark.parametrize(
    ("first", "second", "cut", "is_excused"),
    [
        (asked(1, 9.0, None), asked(2, 15.0, 16.0), KILL, True),
        (asked(1, 9.0, 9.95), asked(2, 15.0, 16.0), KILL, True),
        (asked(1, 9.0, 9.8), asked(2, 15.0, 16.0), KILL, False),
        (asked(2, 9.0, None), asked(1, 15.0, 16.0), KILL, False),
        (asked(1, 9.0, 11.0), asked(2, 9.9, 16.0), KILL, False),
        (asked(1, 9.0, 11.0), asked(2, 17.0, 18.0), STOP, True),
        (asked(2, 17.0, 18.0), asked(1, 20.2, 21.0), STOP, True),
        (asked(2, 17.0, 18.0), asked(1, 25.0, 26.0), STOP, False),
        (asked(2, 9.0, 11.0), asked(3, 25.0, 26.0), AWAY, True),
        (asked(2, 9.0, 9.5), asked(3, 25.0, 26.0), AWAY, False),
        (asked(2, 21.0, 22.0), asked(3, 25.0, 26.0), AWAY, False),
    ],
)
def test_only_what_was_in_flight_may_be_paid_twice(
    first: Received, second: Received, cut: Cut, is_excused: bool
) -> None:
    found = repeats([first, asked(1, 1.0, 2.0, "another"), second])
    assert len(found) == 1
    assert (unexcused(found, [cut], LATER) == []) is is_excused


def test_a_worker_that_is_late_with_all_its_answers_may_lose_those_that_no_later_one_overtook() -> None:
    found = repeats([asked(1, 5.0, 7.5), asked(2, 15.0, 16.0)])
    before, after = Recorded(asked(1, 4.0, 7.0, "before"), 9.9), Recorded(asked(1, 4.0, 8.0, "after"), 9.9)
    others = Recorded(asked(2, 4.0, 8.0, "another's"), 9.9)
    assert unexcused(found, [KILL], [before, others]) == []
    assert unexcused(found, [KILL], [before, after]) == found
    assert unexcused(found, [KILL], [before, after._replace(at=10.1)]) == []


def test_what_is_on_record_when_it_is_asked_again_is_paid_twice_whatever_happened() -> None:
    found = repeats([asked(1, 5.0, 9.99), asked(2, 15.0, 16.0)])
    assert unexcused(found, [KILL], []) == []
    assert unexcused(found, [KILL], [Recorded(found[0].first, 14.9)]) == found
    assert unexcused(found, [KILL], [Recorded(found[0].first, 15.1)]) == []


def test_a_record_is_of_the_last_answer_before_it() -> None:
    requests = [asked(1, 1.0, 2.0), asked(2, 3.0, 4.0), asked(2, 1.0, 2.5, "another"), asked(1, 5.0, None)]
    records = [Record(story.prompt_of(requests[0].body["messages"]), at) for at in (3.5, 4.5)]
    assert recorded_answers(requests, records) == [Recorded(requests[0], 3.5), Recorded(requests[1], 4.5)]
    with pytest.raises(AssertionError, match="without an answer"):
        recorded_answers(requests, [records[0]._replace(at=1.5)])
