"""A run as one file, for bug reports and other machines: its events, one a line, behind a line that says so.

    {"flowengine_run": 1, "run_id": "3f9a…", "events": 12}
    [1,"RunStarted",…]

Reading trusts nothing: each line is decoded as the journal decodes it, and a run that is not whole is
refused before anything is written.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final

from flowengine.engine.events import Event, RunStarted
from flowengine.engine.ports import JournalStore
from flowengine.errors import StoreCorruptError, StoreVersionError
from flowengine.journal.codec import decode, encode

__all__ = ["pack_run", "store_run", "unpack_run"]

_VERSION: Final = 1


def pack_run(events: Sequence[Event]) -> Iterator[str]:
    """The lines of the file."""
    started = events[0]
    assert isinstance(started, RunStarted)  # Stores give out no other runs.
    yield json.dumps({"flowengine_run": _VERSION, "run_id": started.run_id, "events": len(events)})
    for event in events:
        yield encode(event)


def unpack_run(lines: Iterable[str], name: str) -> list[Event]:
    """The events of a file; `name` is the file's, for messages."""
    rest = iter(lines)
    head = _head(next(rest, ""), name)
    events: list[Event] = []
    for number, line in enumerate(rest, 2):
        if line.strip():
            try:
                events.append(decode(line.strip()))
            except StoreCorruptError as error:
                raise StoreCorruptError(f"{name}:{number}: {error}") from error
    if len(events) != head["events"]:
        raise StoreCorruptError(f"{name} is not whole: it has {len(events)} of {head['events']} events")
    if not events or not isinstance(events[0], RunStarted):
        raise StoreCorruptError(f"{name} does not begin with a run's start")
    return events


def _head(line: str, name: str) -> dict[str, Any]:
    try:
        head = json.loads(line)
        version, events = head["flowengine_run"], head["events"]
        if not isinstance(version, int) or not isinstance(events, int):
            raise TypeError
    except (ValueError, TypeError, KeyError):
        raise StoreCorruptError(f"{name} is no exported run: `flowengine runs export` makes one") from None
    if version > _VERSION:
        raise StoreVersionError(f"{name} was exported by a newer FlowEngine (version {version}): upgrade to read it")
    return head


async def store_run(store: JournalStore, events: Sequence[Event], run_id: str | None = None) -> str:
    """Write a run into a store, under its own id or another; `JournalError` where the id is taken."""
    started = events[0]
    assert isinstance(started, RunStarted)  # As `unpack_run` and stores give them.
    if run_id is not None:
        started = started._replace(run_id=run_id)
    journal = store.create(started.run_id)
    try:
        for event in (started, *events[1:]):
            journal.append(event)
        waiting = journal.commit(True)
        if waiting is not None:
            await waiting
    finally:
        await journal.close()
    return started.run_id
