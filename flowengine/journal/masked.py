"""A run's events without personal data and secrets, for what leaves the machine: pages, bug reports.

The journal itself keeps values as they were, since a resumed run needs them. Names of nodes, flows and runs
stay, and so do numbers, hashes and times; everything that was said is masked, equal values by equal tokens. Vectors
and digests of arguments are left out, since what they were made from can be guessed.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import Any, Final

from flowengine.context import NodeResult
from flowengine.engine.events import Event, NodeFinished, NodeRecorded
from flowengine.journal.codec import decode, encode
from flowengine.masking.masker import Masker
from flowengine.records import ModelCall, Reused

__all__ = ["masked"]

_KEPT: Final = frozenset(
    {"run_id", "flow", "node", "status", "cause", "fingerprints", "graph", "code", "engine", "path"}
)
"""Fields of events that are names, not what was said."""


def masked(events: Iterable[Event], masker: Masker | None = None) -> Iterator[Event]:
    """The events, one by one; `masker`: by default a new one, whose tokens nobody else can make.

    >>> from flowengine.engine.events import RunFinished
    >>> [event] = masked([RunFinished(1.0, "succeeded", {"to": "ada@example.jp"})], Masker(key=b"of this run"))
    >>> event.outputs
    {'to': '<MAIL:mpjhklbn>'}
    """
    hides = masker or Masker()
    for event in events:
        version, name, *fields = json.loads(encode(_without_hints(event)))
        hidden: list[Any] = [
            value if field in _KEPT else hides.value(value)
            for field, value in zip(type(event)._fields, fields, strict=False)
        ]
        yield decode(json.dumps([version, name, *hidden], ensure_ascii=False))


def _without_hints(event: Event) -> Event:
    """Without vectors and digests of single values, from which these can be guessed."""
    match event:
        case NodeRecorded(record=ModelCall(vectors=[_, *_]) as record):
            return event._replace(record=record._replace(vectors=()))
        case NodeRecorded(record=Reused(calls=[_, *_]) as record):
            return event._replace(record=record._replace(calls=()))
        case NodeFinished(result=NodeResult(given=str()) as result):
            return event._replace(result=result._replace(given=None))
        case _:
            return event
