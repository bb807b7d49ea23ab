"""What is counted as paid twice, and what excuses it."""

from __future__ import annotations

import pytest

from tests.faults.account import Cut, repeats, unexcused
from tests.support.model_server import Received


def asked(worker: int, arrived: float, answered: float | None, prompt: str = "p") -> Received:
    body = {"messages": [{"role": "user", "content": prompt}]}
    return Received("POST", f"/w{worker}/v1/chat/completions", {}, body, arrived, answered)


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
    assert (unexcused(found, [cut]) == []) is is_excused
