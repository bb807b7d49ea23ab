"""Fields of posted forms: read as by every other reader of forms, in little memory and time whatever they hold."""

from __future__ import annotations

import tracemalloc
from urllib.parse import parse_qsl

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flowengine.web.gate.problems import ProblemError
from flowengine.web.gate.requests import BodyRoom, parse_form, parse_json


@given(st.text("%%%09afFC3g+&=ä;\0", max_size=30))
def test_a_form_is_read_as_the_standard_library_does(text: str) -> None:
    assert parse_form(text.encode()) == dict(parse_qsl(text, keep_blank_values=True))


def test_a_form_of_percent_signs_takes_no_more_room_than_another() -> None:
    body = b"a=" + b"%" * 100_000
    parse_form(body)
    tracemalloc.start()
    try:
        assert parse_form(body) == {"a": "%" * 100_000}
        assert tracemalloc.get_traced_memory()[1] < 6 * len(body)
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("body", [b"a=\xff", b"&".join([b"a=1"] * 1_001)])
def test_what_is_no_form_is_told(body: bytes) -> None:
    with pytest.raises(ProblemError, match="no form of at most 1,000 fields"):
        parse_form(body)


@pytest.mark.parametrize("body", [b"[" * 102 + b"1" + b"]" * 102, b"[" * 20_000])
def test_what_is_nested_too_deep_is_told_each_time_by_an_error_of_its_own(body: bytes) -> None:
    told: list[ProblemError] = []
    for _ in range(2):  # An error that is raised again keeps what it was raised of before.
        with pytest.raises(ProblemError, match="nested deeper than 100") as caught:
            parse_json(body)
        told.append(caught.value)
    assert told[0] is not told[1]
    assert parse_json(b"[" * 100 + b"{}" + b"]" * 100)


def test_bodies_of_unproved_senders_share_one_room() -> None:
    room = BodyRoom(100)
    room.take(60)
    with pytest.raises(ProblemError, match="too many calls are on their way"):
        room.take(60)
    room.free(60)
    room.take(100)
