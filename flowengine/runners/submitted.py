"""Whether a run is for workers: it was submitted to a queue, and is in a store that has one.

Here so that those who ask need not have the queue's library. A run that was carried into another kind of store goes
on like any other there.
"""

from __future__ import annotations

from typing import Final

from flowengine.engine.events import RunStarted
from flowengine.engine.ports import JournalStore

__all__ = ["SCHEMA", "TASK", "queue_of"]

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
        from flowengine.journal.postgres import PostgresStore  # Only who uses it needs a driver.
    except ImportError:
        return None
    return queue if isinstance(store, PostgresStore) else None
