"""Streams of server-sent events, cut in every way."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flowengine.models.http.chat_protocol import EventReader, IncompleteAnswerError, StreamedEvent

STREAM = (
    "\ufeffdata: first\n\n: a comment\n\n"
    'event: delta\ndata: {"a":\ndata: 1}\nid: 7\nretry: 10\n\n'
    "data:no blank\r\n\r\n"
    "data:  two blanks\r\r"
    "data: line\u2028separator\u0085next 茶\n\n"
    "unknown\nevent: alone\n\n"
    "data\n\n"
    "data: [DONE]\n\n"
    "data: cut off"
).encode()

EVENTS = [
    StreamedEvent("first"),
    StreamedEvent('{"a":\n1}', "delta"),
    StreamedEvent("no blank"),
    StreamedEvent(" two blanks"),
    StreamedEvent("line\u2028separator\u0085next 茶"),
    StreamedEvent(""),
    StreamedEvent("[DONE]"),
    StreamedEvent("cut off"),
]


@given(st.lists(st.integers(0, len(STREAM))))
def test_events_are_the_same_however_their_bytes_come(cuts: list[int]) -> None:
    places = [0, *sorted(cuts), len(STREAM)]
    reader = EventReader()
    found = [event for at, end in pairwise(places) for event in reader.feed(STREAM[at:end])]
    assert [*found, *reader.close()] == EVENTS


def test_an_event_is_handed_on_once_its_blank_line_has_come() -> None:
    reader = EventReader()
    assert list(reader.feed(b"data: a\n")) == []
    assert list(reader.feed(b"\n")) == [StreamedEvent("a")]


@pytest.mark.parametrize("piece", [b"data: " + b"a" * (1 << 20) + b"\n", b"a" * (1 << 20)])
def test_an_event_without_an_end_is_refused(piece: bytes) -> None:
    reader = EventReader()

    def read() -> None:
        for _ in range(20):
            assert list(reader.feed(piece)) == []

    with pytest.raises(IncompleteAnswerError, match="more than"):
        read()
