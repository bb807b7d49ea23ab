"""Writes the events of a run as server-sent events: short for pages, whole for programs. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

from flowengine.core import dumps
from flowengine.engine import Event, TokenStreamed
from flowengine.runtime import Followed
from flowengine.web.service import join_tokens
from visualize.viewer import feed_line, whole

EventForm = Literal["feed", "plain"]


def encode_events(items: Sequence[Followed], form: EventForm) -> bytes:
    """One message an event, and one for what a node wrote between two events."""
    return b"".join(
        _encode_event(seq, event, form)
        for seq, event in join_tokens(items)
        if form == "feed" or not isinstance(event, TokenStreamed) or event.text
    )


def to_plain_event(event: Event | TokenStreamed, seq: int | None = None) -> Mapping[str, Any]:
    """The whole event in JSON's types, with its name as `type` and its position as `seq`."""
    return {**({} if seq is None else {"seq": seq}), **event.as_dict()}


def _encode_event(seq: int | None, event: Event | TokenStreamed, form: EventForm) -> bytes:
    line = feed_line(event, seq) if form == "feed" else whole(dumps(to_plain_event(event, seq)))
    return (f"data: {line}\n\n" if seq is None else f"id: {seq}\ndata: {line}\n\n").encode()
