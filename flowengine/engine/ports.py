"""Defines the two seams of the engine: what it runs (`Node`) and where it writes (`Journal`)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Coroutine, Mapping, Sequence
from typing import Any, Literal, NamedTuple, Protocol, TypeAlias

from flowengine.core import EMPTY, Context, Decided, NodeResult, RunStatus, SkipCause
from flowengine.engine.events import Event

__all__ = [
    "CalledOff",
    "Durability",
    "Ended",
    "Journal",
    "JournalStore",
    "Known",
    "Mailbox",
    "Node",
    "Park",
    "RunInfo",
    "Skip",
]

Durability = Literal["full", "process", "memory"]
"""The failures that a store's events survive: a failure of the machine, of the process, or neither."""


class Skip(NamedTuple):
    """A node's answer that it will not run (its `when` is false)."""

    cause: SkipCause = "condition_false"
    why: Decided | None = None


class Park(NamedTuple):
    """A node's answer that it waits for somebody outside. It stays unsettled, and is entered again when the run
    goes on."""


class CalledOff(NamedTuple):
    """A container's answer that its body was stopped before its end, because the run was."""


class Known(NamedTuple):
    """A node's answer that its result is known from elsewhere, where it is kept already."""

    result: NodeResult
    record: Any
    """The record that the journal gets of it."""


Ended: TypeAlias = NodeResult | Skip | Park | CalledOff | Known
"""How a node's run may end, where it raises nothing."""


class Node(Protocol):
    """Something that runs: an async `run`. Wrappers (retry, timeout, when) have this same shape."""

    def run(self, context: Context, /) -> Coroutine[Any, Any, Ended]: ...


class Journal(Protocol):
    """The record of one run. One writer.

    `append` takes the events in order and raises `NotJournalableError` before anything of the
    event is taken. `commit` makes all that was appended durable, as the store promises it; it
    returns None where that was done at once, else something to await. `alone` says that no other
    node of the run is in flight, so that there is no other to share a commit with.
    """

    @property
    def flush_interval(self) -> float | None:
        """Seconds after which what was appended is shown to readers although nothing committed it; None: never."""
        ...

    def append(self, event: Event, /) -> None: ...

    def commit(self, alone: bool = True, /) -> Awaitable[None] | None: ...

    def flush(self) -> None:
        """Write what was appended, without any promise; cheap when there is nothing. Called on a timer."""
        ...

    def read(self, after: int = 0, /) -> Sequence[Event]:
        """The events from position `after` on, counted from 0; what was appended and not yet committed included."""
        ...

    async def close(self) -> None:
        """Commit what is left and let go of the run."""
        ...


class Mailbox(Protocol):
    """Receives what people leave for waiting nodes while another process writes the run."""

    def collect(self, read: Callable[[], Sequence[Event]], /) -> Mapping[str, Any]:
        """Path of a question → the answer that the run's journal is to have. Each is given out once; `read` gets the
        journal."""
        ...

    async def wait(self) -> None:
        """Until somebody of this process has left something."""
        ...


class RunInfo(NamedTuple):
    """One line of `runs list`."""

    run_id: str
    flow: str
    status: RunStatus
    started: float
    finished: float | None
    events: int
    path: str | None
    """The flow file, as it was given."""
    labels: Mapping[str, str] = EMPTY
    """Chosen when the run was started (see `flowengine.journal.run_lookup`)."""


class JournalStore(Protocol):
    """Many journals: what `--store` names."""

    def create(self, run_id: str, /) -> Journal:
        """A new, empty journal; its first event is a `RunStarted`. An id that exists is an error."""
        ...

    def open(self, run_id: str, /) -> Journal:
        """The journal of a run that exists, to be continued. `RunNotFoundError` otherwise."""
        ...

    def events(self, run_id: str, after: int = 0, /) -> Sequence[Event]:
        """Returns the committed events of a run, without becoming its writer."""
        ...

    def list(self) -> Sequence[RunInfo]:
        """All runs, the newest first."""
        ...

    def abandoned(self) -> Collection[str]:
        """Runs that are `running` on record and have no writer: their writers died, or let go of them."""
        ...

    def remove(self, run_id: str, /) -> None:
        """Forget a run and all its events. `StoreUnavailableError` while somebody writes it."""
        ...

    def recall(self, kind: str, key: str, /) -> Any:
        """Returns the value stored under a key beside the runs (a session, a cached result), or None."""
        ...

    def revise(self, kind: str, key: str, change: Callable[[Any], Any], /) -> None:
        """Keep what `change` makes of what is kept there; no other change comes between. None keeps nothing.

        Raises `NotJournalableError` for a value that cannot be written down.
        """
        ...

    def find(self, reference: str, /) -> str:
        """The full id for `@last`, an id or a unique prefix; `RunNotFoundError` says which exist."""
        ...

    def close(self) -> None: ...
