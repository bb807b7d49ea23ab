"""Reads a streamed answer: its next bytes, what its events add, and whether it is whole though its connection broke."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from flowengine.models.http.chat_protocol import (
    AnswerCollector,
    IncompleteAnswerError,
    StreamedEvent,
    StreamFailureError,
)
from flowengine.models.http.loop_client import BrokenExchangeError, HttpAnswer
from flowengine.models.http.vendor_endpoint import Patience


def is_whole(answer: HttpAnswer, beginning: bytes) -> bool:
    """Tells whether the answer is one JSON value, whatever its server calls it, or however it was asked for."""
    text = beginning.lstrip()
    if text.startswith((b"data:", b"event:", b":")):
        return False
    return text.startswith(b"{") or answer.headers.get("content-type", "").startswith("application/json")


def add_events(collector: AnswerCollector, events: Iterable[StreamedEvent], is_broken: bool) -> tuple[list[str], bool]:
    """(what the events add to the text, whether nothing more can be read). What comes after the end is not looked at,
    and what cannot be read after the last word loses nothing."""
    texts: list[str] = []
    try:
        for event in events:
            if collector.is_complete:
                break
            texts.append(collector.add(event))
    except (IncompleteAnswerError, StreamFailureError) as error:
        if not collector.has_ended:
            if isinstance(error, StreamFailureError):
                error.has_begun = collector.has_begun
            raise
        is_broken = True
    return texts, is_broken


_TAIL: Final = 10.0
"""Seconds to wait for what may follow the last word of an answer, such as its usage."""


async def receive_piece(answer: HttpAnswer, collector: AnswerCollector, patience: Patience) -> tuple[bytes, bool]:
    """(the next bytes, whether there can be no more). After an answer's own end nothing is lost by that."""
    has_ended = collector.has_ended
    try:
        with patience.limit(_TAIL if has_ended else None):
            return await answer.receive(), False
    except (BrokenExchangeError, TimeoutError) as error:
        if not has_ended or (isinstance(error, BrokenExchangeError) and error.is_final):
            raise
        return b"", True
