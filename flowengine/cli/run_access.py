"""Reads the record of a run from a store, for commands that show it. It writes nothing."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from typing import Any

import click

from flowengine.engine import Event, JournalStore, NodeRecorded, RunStarted
from flowengine.errors import RunNotFoundError, StoreCorruptError, did_you_mean
from flowengine.journal import only_looking, reading_record, without_password
from visualize.progress import fold_events


def format_command(command: str, run_id: str, store: str | None) -> str:
    """The command line that does something with a run, as it can be pasted; without a password.

    >>> format_command("resume", "3f9a", None)
    'flowengine resume 3f9a'
    """
    words = ["flowengine", *command.split(), run_id, *(["--store", without_password(store)] if store else [])]
    return shlex.join(words)


class ReadingCommand(click.Command):
    """A command whose failure on a record is the record's."""

    def invoke(self, ctx: click.Context) -> Any:
        with reading_record():
            return super().invoke(ctx)


def read(store: JournalStore, run_id: str) -> Sequence[Event]:
    """The events of a run, of which there is at least the first. To look at: values of the flow's own classes
    come as what they held."""
    with only_looking():
        events = store.events(run_id)
    beginning(events)
    return events


def beginning(events: Sequence[Event]) -> RunStarted:
    if not events or not isinstance(events[0], RunStarted):
        raise StoreCorruptError("the run's record does not begin with its start")
    return events[0]


def node_events(events: Sequence[Event], node: str) -> list[Event]:
    """The events of one node; an unknown name is an error that names the nearest."""
    nodes = fold_events(events).nodes
    if node not in nodes:
        raise RunNotFoundError(f"the run has no node '{node}'{did_you_mean(node, nodes) or _list_some(list(nodes))}")
    return [event for event in events if getattr(event, "node", None) == node and not hasattr(event, "outputs")]


def records_of(events: Sequence[Event]) -> list[Any]:
    """Returns the records of all nodes, in order."""
    return [event.record for event in events if isinstance(event, NodeRecorded)]


def _list_some(names: Sequence[str]) -> str:
    rest = len(names) - 10
    return f"; it has {', '.join(names[:10])}" + (f" and {rest} more" if rest > 0 else "")
