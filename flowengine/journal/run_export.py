"""Exports runs and values: as JSON for people and scripts, without personal data, and as one file a run."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final

from flowengine.core.context import NodeResult
from flowengine.core.records import ModelCall, Reused
from flowengine.engine.events import Event, NodeFinished, NodeRecorded, RunStarted, to_json_value
from flowengine.engine.ports import JournalStore
from flowengine.errors import StoreCorruptError, StoreVersionError
from flowengine.journal.codec import decode, encode
from flowengine.masking.masker import Masker

__all__ = ["dumps", "event_line", "masked", "pack_run", "shown", "store_run", "unpack_run"]

# --- Values and events as JSON


def dumps(value: Any, *, indent: int | None = None) -> str:
    """One JSON text; characters stay as they are."""
    return json.dumps(to_json_value(value), ensure_ascii=False, indent=indent)


def event_line(event: Event) -> str:
    """One event on one line."""
    return json.dumps(event.as_dict(), ensure_ascii=False)


def shown(value: Any) -> str:
    """A value for people: text as it is, anything else as JSON.

    >>> shown("text"), shown({"a": [1]})
    ('text', '{"a": [1]}')
    """
    return value if isinstance(value, str) else dumps(value)


# --- Events without personal data and secrets

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
        version, name, *fields = json.loads(encode(_remove_hints(event)))
        hidden: list[Any] = [
            value if field in _KEPT else hides.value(value)
            for field, value in zip(type(event)._fields, fields, strict=False)
        ]
        yield decode(json.dumps([version, name, *hidden], ensure_ascii=False))


def _remove_hints(event: Event) -> Event:
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


# --- A run as one file

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
    head = _read_head(next(rest, ""), name)
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


def _read_head(line: str, name: str) -> dict[str, Any]:
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
