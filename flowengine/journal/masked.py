"""A run's events without personal data and secrets, for what leaves the machine: pages, bug reports.

The journal itself keeps values as they were, since a resumed run needs them. Names of nodes, flows and runs
stay, and so do numbers, hashes and times; everything that was said is masked, equal values by equal tokens. Vectors
are left out, since a text can be guessed from its vector.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import Any, Final

from flowengine.engine.events import Event, NodeRecorded
from flowengine.journal.codec import decode, encode
from flowengine.masking.masker import Masker
from flowengine.records import ModelCall

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
        version, name, *fields = json.loads(encode(_without_vectors(event)))
        hidden: list[Any] = [
            value if field in _KEPT else hides.value(value)
            for field, value in zip(type(event)._fields, fields, strict=False)
        ]
        yield decode(json.dumps([version, name, *hidden], ensure_ascii=False))


def _without_vectors(event: Event) -> Event:
    if isinstance(event, NodeRecorded) and isinstance(event.record, ModelCall) and event.record.vectors:
        return event._replace(record=event.record._replace(vectors=()))
    return event
