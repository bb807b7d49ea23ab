"""Tells whether a run is for workers: it was submitted to a queue, and is in a store that has one.

Here so that those who ask need not have the queue's library. A run that was carried into another kind of store goes
on like any other there.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from flowengine.core.context import EMPTY
from flowengine.engine.events import RunStarted
from flowengine.engine.ports import JournalStore
from flowengine.errors import JournalError
from flowengine.flowfile.analysis.shapes import is_map
from flowengine.journal.codec import decode, encode
from flowengine.journal.run_lookup import labels_of

__all__ = ["SCHEMA", "TASK", "queue_of", "refuse_another"]

TASK: Final = "flowengine.run"
"""What the queue's library calls a job that goes on with a run."""
SCHEMA: Final = "flowengine_queue"
"""Where its tables are."""


def queue_of(store: JournalStore, started: RunStarted) -> str | None:
    """The queue that the run goes back into; None where whoever goes on with it does so himself."""
    queue = started.settings.get("queue")
    if not isinstance(queue, str):
        return None
    try:
        from flowengine.journal.postgres.store import PostgresStore  # Only who uses it needs a driver.
    except ImportError:
        return None
    return queue if isinstance(store, PostgresStore) else None


def refuse_another(wanted: RunStarted, known: RunStarted | None) -> None:
    """Raise a `JournalError` where a run is to be submitted whose id is another run's already."""
    others = [] if known is None else list(_differences(_as_recorded(wanted), known))
    if others:
        raise JournalError(
            f"run '{wanted.run_id}' is there already, with {' and '.join(others)}: submit this one under another id"
        )


def _differences(wanted: RunStarted, known: RunStarted) -> Iterator[str]:
    """What makes two runs two: where and when they are worked on does not."""
    if (wanted.flow, wanted.source, _files(wanted)) != (known.flow, known.source, _files(known)):
        yield "another flow"
    if wanted.settings.get("model") != known.settings.get("model"):
        yield "another model"
    if labels_of(wanted) != labels_of(known):
        yield "other labels"
    names = [name for name in {**wanted.inputs, **known.inputs} if wanted.inputs.get(name) != known.inputs.get(name)]
    if names:
        yield f"other inputs ({', '.join(names)})"


def _files(started: RunStarted) -> Mapping[str, Any]:
    """The flows inside the flow."""
    baggage = started.settings.get("baggage")
    return baggage.get("files", EMPTY) if is_map(baggage) else EMPTY


def _as_recorded(started: RunStarted) -> RunStarted:
    """As a journal gives it back, whose values are frozen."""
    event = decode(encode(started))
    assert isinstance(event, RunStarted)
    return event
