"""What a run has new, as server-sent events, written once for all who want it in the same form. Pure.

Two forms: `feed`, what the viewer's script reads (`visualize.viewer.feed`), and `plain`, the whole event as the
command line prints it. A message has the event's position as its `id`; pieces of text that agents are writing,
which no journal has, have none.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, Literal, TypeAlias

from flowengine.engine.events import Event, NodeStarted, RunFinished, TokenStreamed
from flowengine.journal.plain import dumps
from visualize.viewer.feed import feed_line
from visualize.viewer.html import whole

__all__ = ["Form", "News", "Told", "has_ended", "merged", "plain_event"]

Form = Literal["feed", "plain"]
Told: TypeAlias = "tuple[int | None, Event | TokenStreamed]"
"""Position and event; what no journal has is without a position."""

_PARKED: Final = frozenset({"waiting", "paused", "running"})


class News:
    """What one look at a run has brought."""

    def __init__(self, told: Sequence[Told]) -> None:
        self.told = told
        self.next = max((seq + 1 for seq, _ in told if seq is not None), default=0)
        """The position behind the last of them."""
        self._lines: dict[Form, list[tuple[int | None, bytes]]] = {}

    def messages(self, form: Form, after: int) -> bytes:
        """Those from a position on."""
        lines = self._lines.get(form)
        if lines is None:
            lines = self._lines[form] = [(seq, _message(seq, event, form)) for seq, event in self.told]
        return b"".join([line for seq, line in lines if seq is None or seq >= after])


def plain_event(event: Event | TokenStreamed, seq: int | None = None) -> Mapping[str, Any]:
    """The whole event in JSON's types, with its name as `type` and its position as `seq`."""
    return {**({} if seq is None else {"seq": seq}), **event.as_dict()}


def has_ended(event: Event | TokenStreamed) -> bool:
    """Whether nothing follows it, unless somebody takes the run up again that was over."""
    return isinstance(event, RunFinished) and event.status not in _PARKED


def merged(events: Sequence[Event], first: int, tokens: Iterable[TokenStreamed]) -> list[Told]:
    """Events with their positions, and between them, by time, what agents wrote; pieces of one text are joined."""
    told: list[Told] = []
    waiting = list(tokens)
    for seq, event in enumerate(events, first):
        begins = isinstance(event, NodeStarted)
        earlier = [each for each in waiting if each.at < event.at or (each.at == event.at and not begins)]
        waiting = waiting[len(earlier) :]
        told += [(None, each) for each in _joined(earlier)]
        told.append((seq, event))
    told += [(None, each) for each in _joined(waiting)]
    return told


def _joined(tokens: Iterable[TokenStreamed]) -> list[TokenStreamed]:
    found: dict[str, TokenStreamed] = {}
    for token in tokens:
        before = found.get(token.node)
        if before is None or token.begins:
            found[token.node] = token
        else:
            found[token.node] = before._replace(text=before.text + token.text, at=token.at)
    return list(found.values())


def _message(seq: int | None, event: Event | TokenStreamed, form: Form) -> bytes:
    line = feed_line(event, seq) if form == "feed" else whole(dumps(plain_event(event, seq)))
    return (f"data: {line}\n\n" if seq is None else f"id: {seq}\ndata: {line}\n\n").encode()
