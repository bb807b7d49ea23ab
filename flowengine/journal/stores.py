"""Opens the store that `--store` names. The one table of the kinds of store, and the one rule for ids of runs in them.

Other packages bring further kinds under the entry point group `flowengine.stores`: a URL's scheme → a callable that
takes the URL and the durability and gives a `JournalStore`. They are looked for only when a scheme is none of ours.
"""

from __future__ import annotations

import os
import re
from collections.abc import Awaitable, Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from importlib import import_module
from inspect import isfunction
from time import time
from typing import Any, Final, NamedTuple, TypeAlias, cast, get_args

from flowengine.core import (
    UNCHANGEABLE,
    Fence,
    NodeResult,
    copy_mutable,
    describe_error,
    find_entry_points,
    load_entry_point,
    package_of,
)
from flowengine.engine import Durability, Event, Journal, JournalStore, NodeFinished
from flowengine.errors import (
    DefinitionError,
    FlowEngineError,
    InputError,
    RunBusyError,
    StoreUnavailableError,
    did_you_mean,
    refuse_other_kind,
)
from flowengine.version import Extra, install_hint

__all__ = [
    "AnyStore",
    "Listener",
    "OpenRuns",
    "TeeJournal",
    "TeeStore",
    "as_store",
    "busy_error",
    "check_run_id",
    "commit_events",
    "copy_for_listener",
    "now_of",
    "open_store",
    "tell_events",
    "without_password",
]

# --- Ids of runs

_RUN_ID: Final = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9_@-]{0,63}")
"""With `@` in those of schedules; at its beginning it is that of a reference such as `@last`."""


def check_run_id(run_id: str) -> str:
    """Give the id back as it is, or raise `InputError` where no run can have it.

    >>> check_run_id("../x")
    Traceback (most recent call last):
    flowengine.errors.InputError: '../x' is no run's id: 1 to 64 letters, digits, _, - and @, which is not the first
    """
    refuse_other_kind(run_id, str, "a run's id is text", InputError)
    if not _RUN_ID.fullmatch(run_id):
        raise InputError(f"{run_id!r:.80} is no run's id: 1 to 64 letters, digits, _, - and @, which is not the first")
    return run_id


# --- Writers of runs


class OpenRuns:
    """The runs that the journals of a store write, by process: a forked child writes none of its parent's."""

    def __init__(self) -> None:
        self._writers: dict[tuple[int, str], object] = {}

    @contextmanager
    def reserve(self, run_id: str) -> Generator[Callable[[], None]]:
        """Be the only one in this process that writes the run, until what is given is called, or the block fails."""
        key, mine = (os.getpid(), run_id), object()
        if self._writers.setdefault(key, mine) is not mine:
            raise busy_error(run_id, str(os.getpid()))

        def release() -> None:
            self._writers.pop(key, None)

        try:
            yield release
        except BaseException:
            release()
            raise

    def clear(self) -> None:
        self._writers.clear()


def busy_error(run_id: str, process: str) -> RunBusyError:
    """The error for a run that a process of this machine writes."""
    return RunBusyError(
        f"run '{run_id}' is being written by process {process}; wait until it ends, or stop that process",
        f"process {process}",
    )


async def commit_events(journal: Journal, *events: Event, alone: bool = True) -> None:
    """Have a journal take some events, and wait until they are durable."""
    for event in events:
        journal.append(event)
    waiting = journal.commit(alone)
    if waiting is not None:
        await waiting


# --- A store's address as it may be shown

_IN_FRONT: Final = re.compile(r"(://[^:/@]*):.*@")
_BEHIND: Final = re.compile(r"([?&])(?:password|sslpassword|passfile)=[^&]*&?", re.IGNORECASE)


def without_password(url: str) -> str:
    """The address with its password left out: it can still be used where PGPASSWORD or ~/.pgpass has that.

    >>> without_password("postgresql://ann:x:y@z@host:5432/runs")
    'postgresql://ann@host:5432/runs'
    >>> without_password("postgresql://host/runs?user=ann&password=x&sslmode=require")
    'postgresql://host/runs?user=ann&sslmode=require'
    >>> without_password("postgresql:///runs?password=x"), without_password("runs.db")
    ('postgresql:///runs', 'runs.db')
    """
    return _BEHIND.sub(r"\1", _IN_FRONT.sub(r"\1@", url)).rstrip("?&") if "://" in url else url


# --- A store whose new runs are also told, event by event, to one listener

Listener = Callable[[Event], None]
"""Called with each event once the journal has taken it; must not block and must not raise."""


def now_of(store: JournalStore) -> float:
    """Unix seconds by the clock that all who use the store share: its server's, where it has one."""
    clock: Callable[[], float] = getattr(store, "now", time)
    return clock()


class TeeStore:
    """A store with journals that tell a listener; all else goes straight through (`tell_events` is its typed form)."""

    def __init__(
        self, store: JournalStore, listener: Listener, wrap: Callable[[Journal, Listener], Journal] | None = None
    ) -> None:
        """`wrap`: makes the journals that are handed out, by default `TeeJournal`s."""
        self._store = store
        self._listener = listener
        self._wrap = wrap or TeeJournal

    def create(self, run_id: str, /) -> Journal:
        return self._wrap(self._store.create(run_id), self._listener)

    def open(self, run_id: str, /) -> Journal:
        return self._wrap(self._store.open(run_id), self._listener)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)


def tell_events(
    store: JournalStore, listener: Listener, wrap: Callable[[Journal, Listener], Journal] | None = None
) -> JournalStore:
    """The store, with journals that tell the listener what they have taken; `wrap` as for `TeeStore`."""
    return cast("JournalStore", TeeStore(store, listener, wrap))


class TeeJournal:
    """Wraps a journal; what it takes is told the listener as well."""

    fence: Fence
    """There where the journal inside has one."""

    def __init__(self, journal: Journal, listener: Listener) -> None:
        self._journal = journal
        self._listener = listener
        self.flush, self.read, self.close = journal.flush, journal.read, journal.close
        fence: Fence | None = getattr(journal, "fence", None)
        if fence is not None:
            self.fence = fence

    @property
    def flush_interval(self) -> float | None:
        return self._journal.flush_interval

    def commit(self, alone: bool = True, /) -> Awaitable[None] | None:
        return self._journal.commit(alone)

    def append(self, event: Event, /) -> None:
        self._journal.append(event)
        self._listener(copy_for_listener(event))


def copy_for_listener(event: Event) -> Event:
    """The event with copies of its values that can be changed: what a listener does to one reaches no later node."""
    if type(event) is not NodeFinished or UNCHANGEABLE.issuperset(map(type, event.result)):
        return event
    return event._replace(result=NodeResult(*map(copy_mutable, event.result)))


def open_store(url: str | None, durability: Durability = "process") -> JournalStore:
    """The store at a URL or a path; None is one in memory.

    `sqlite:///runs.db` is relative to the working folder and `sqlite:////var/runs.db` is absolute; a path alone
    is a SQLite file too; `memory:` keeps nothing; `postgresql://user@host/database` is a database of a server.

    >>> open_store("sqlite:///runs.db").find("@last")
    Traceback (most recent call last):
    flowengine.errors.RunNotFoundError: no run '@last': runs.db holds no runs
    """
    _check_durability(durability)
    if url is None:
        return _make(_SCHEMES["memory"], "memory:", durability)
    if url in _SCHEMES:
        raise StoreUnavailableError(
            f"'{url}' would be a file of that name: use {url}: for the kind, ./{url} for a file"
        )
    scheme = _scheme_of(url)
    kind = _SCHEMES.get(scheme)
    return _of_package(scheme, url, durability) if kind is None else _make(kind, url, durability)


AnyStore: TypeAlias = JournalStore | str | os.PathLike[str]
"""An open store, or where one is: a URL or a path."""


def as_store(store: AnyStore | None, durability: Durability = "process") -> JournalStore:
    """An open store as it is, or the one that `open_store` opens; `DefinitionError` for what is neither. A path
    object is a SQLite file.

    >>> as_store(5)
    Traceback (most recent call last):
    flowengine.errors.DefinitionError: a store is a URL, a path, or an open store, not int
    """
    if store is None or isinstance(store, str):
        return open_store(store, durability)
    if isinstance(store, os.PathLike):
        _check_durability(durability)
        return _make(_SCHEMES["sqlite"], os.fspath(store), durability)
    if not hasattr(store, "events"):  # One of another package may lack what newer versions ask for.
        raise DefinitionError(f"a store is a URL, a path, or an open store, not {type(store).__name__}")
    _check_durability(durability)
    return store


def _check_durability(durability: object) -> None:
    if durability not in _DURABILITIES:
        near = did_you_mean(durability, _DURABILITIES) if isinstance(durability, str) else ""
        raise DefinitionError(f"durability is one of {', '.join(_DURABILITIES)}, not {durability!r:.60}{near}")


_DURABILITIES: Final[Sequence[str]] = get_args(Durability)
_SCHEME: Final = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+):")


def _scheme_of(url: str) -> str:
    """A path is a SQLite file; a drive's letter is no scheme. Hosts write `postgres:` as well."""
    match = _SCHEME.match(url)
    scheme = match[1].lower() if match else "sqlite"
    return "postgresql" if scheme == "postgres" else scheme


def _make(kind: _StoreKind, url: str, durability: Durability) -> JournalStore:
    return _load(kind)(url, durability)


@cache
def _load(kind: _StoreKind) -> _MakeStore:
    module, _, name = kind.target.partition(":")
    try:
        return getattr(import_module(module), name)
    except ImportError as error:
        if kind.extra is None:
            raise
        raise StoreUnavailableError(f"{kind.says} needs its driver: {install_hint(kind.extra)} ({error})") from error


_GROUP: Final = "flowengine.stores"


def _of_package(scheme: str, url: str, durability: Durability) -> JournalStore:
    points = {name.lower(): point for name, point in find_entry_points(_GROUP).items()}
    point = points.get(scheme)
    if point is None:
        schemes = [*_SCHEMES, *(name for name in points if name not in _SCHEMES)]
        raise StoreUnavailableError(
            f"'{without_password(url)}' names no kind of store that is known: use "
            f"{', '.join(f'{each}:' for each in schemes)} or a path{did_you_mean(scheme, schemes)}"
        )
    try:
        store: object = load_entry_point(point, f"the store '{scheme}:'")(url, durability)
    except DefinitionError as error:
        raise StoreUnavailableError(str(error)) from error
    except FlowEngineError:
        raise
    except Exception as error:  # A package is foreign code: whatever it raises means that there is no store.
        message = describe_error(error).replace(url, without_password(url))
        raise StoreUnavailableError(
            f"'{without_password(url)}' cannot be opened by the package '{package_of(point)}': {message}"
        ) from error
    lacking = [name for name in _METHODS if not callable(getattr(store, name, None))]
    if lacking:
        raise StoreUnavailableError(
            f"the package '{package_of(point)}' gives no store for '{without_password(url)}': "
            f"{type(store).__name__} has no {', '.join(lacking)}"
        )
    return cast("JournalStore", store)


_METHODS: Final = tuple(name for name, each in vars(JournalStore).items() if isfunction(each) and name[0] != "_")

_MakeStore = Callable[[str, Durability], JournalStore]


class _StoreKind(NamedTuple):
    """A kind of store of ours."""

    target: str
    """The function, `module:name`, that makes the store from the URL and the durability; imported for a URL only."""
    says: str
    extra: Extra | None = None
    """The extra to be installed for it."""


_SCHEMES: Final[Mapping[str, _StoreKind]] = {
    "memory": _StoreKind("flowengine.journal.memory:open_memory", "a store in memory"),
    "postgresql": _StoreKind("flowengine.journal.postgres.store:PostgresStore", "a store on PostgreSQL", "queue"),
    "sqlite": _StoreKind("flowengine.journal.sqlite.store:open_sqlite", "a SQLite file"),
}
"""Scheme of a URL → the kind of store."""
