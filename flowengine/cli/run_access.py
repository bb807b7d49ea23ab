"""Opens the store that a command means, and reads the record of a run from it. It writes nothing."""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from typing import Any, Final, TypeVar

import click

from flowengine.engine.events import Event, NodeRecorded, RunStarted
from flowengine.engine.ports import Durability, JournalStore
from flowengine.errors import RunNotFoundError, StoreCorruptError, did_you_mean
from flowengine.journal.stores import without_password
from flowengine.journal.value_types import only_looking, reading_record
from visualize.progress import Progress

__all__ = [
    "DURABILITIES",
    "ReadingCommand",
    "beginning",
    "choose_store",
    "fold_events",
    "format_command",
    "format_store",
    "keeps",
    "node_events",
    "open_journal",
    "read",
    "records_of",
    "store_option",
]

# --- The chosen store

DEFAULT: Final = os.path.join(".flowengine", "runs.db")
DURABILITIES: Final = ("full", "process", "memory")
"""As in `flowengine.journal.sqlite.database`, which is not imported to print help."""

F = TypeVar("F", bound=Callable[..., Any])


def store_option(function: F) -> F:
    return click.option(
        "--store",
        metavar="URL",
        help=f"Store of the runs: a file, sqlite:///… or postgresql://…  [default: $FLOWENGINE_STORE or {DEFAULT}]",
    )(function)


def choose_store(given: str | None) -> str:
    return given or os.environ.get("FLOWENGINE_STORE") or _find_project_store() or DEFAULT


def _find_project_store() -> str | None:
    """The project's store; a relative path is relative to the project's folder."""
    from flowengine.flowfile.project.project import project_of  # Only where nothing nearer names the store.

    project, _ = project_of(None)
    if project.store is None:
        return None
    path = project.store.removeprefix("sqlite:///")
    is_path = path != project.store or ":" not in path
    return str(project.root / path) if is_path else project.store


def keeps(store: str) -> bool:
    """Tells whether a run can be found there after this process has ended."""
    return not store.lower().startswith("memory:")


@contextmanager
def open_journal(store: str, durability: Durability = "full") -> Generator[JournalStore]:
    """The store, open for as long as the block lasts."""
    from flowengine.journal.stores import open_store  # Commands are imported for their help, too.

    opened = open_store(store, durability)
    try:
        yield opened
    finally:
        opened.close()


def format_command(command: str, run_id: str, store: str | None) -> str:
    """The command line that does something with a run, as it can be pasted; without a password.

    >>> format_command("resume", "3f9a", None)
    'flowengine resume 3f9a'
    """
    words = ["flowengine", *command.split(), run_id, *(["--store", without_password(store)] if store else [])]
    return shlex.join(words)


def format_store(given: str | None) -> str:
    """The chosen store as it may be shown."""
    return without_password(choose_store(given))


# --- Commands that only read a record


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


def fold_events(events: Sequence[Event]) -> Progress:
    progress = Progress()
    for event in events:
        progress.apply(event)
    return progress


def node_events(events: Sequence[Event], node: str) -> list[Event]:
    """The events of one node; an unknown name is an error that names the nearest."""
    known = fold_events(events).nodes
    if node not in known:
        raise RunNotFoundError(f"the run has no node '{node}'{did_you_mean(node, known) or _list_some(list(known))}")
    return [event for event in events if getattr(event, "node", None) == node and not hasattr(event, "outputs")]


def records_of(events: Sequence[Event]) -> list[Any]:
    """Returns the records of all nodes, in order."""
    return [event.record for event in events if isinstance(event, NodeRecorded)]


def _list_some(names: Sequence[str]) -> str:
    rest = len(names) - 10
    return f"; it has {', '.join(names[:10])}" + (f" and {rest} more" if rest > 0 else "")
