"""Defines the seam behind which memories are kept.

A protocol: no database, no model, no prompt. Nothing is deleted: saving closes what held before.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from types import NoneType
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol, TypeVar, cast

from flowengine.errors import DefinitionError, did_you_mean, find_attribute, refuse_other_kind

# --- Whose a memory is, of what kind, and since when it holds


WORKSPACE_ID: Final = "workspace"
"""The scope id of the one workspace, where nothing else is said: what is kept of it is found under this."""


class MemoryScope(StrEnum):
    """The scopes of memories, from the widest to the narrowest."""

    WORKSPACE = "workspace"
    CHANNEL = "channel"
    THREAD = "thread"


class MemoryType(StrEnum):
    """One of the two memories of a scope."""

    LONG_TERM = "long_term"
    """The history: merged from the one before and what is new."""
    SHORT_TERM = "short_term"
    """Recent events."""


class Thread(NamedTuple):
    """A thread of a channel; `ts` is that of its first message."""

    channel_id: str
    ts: str


def thread_scope_id(channel_id: str, thread_ts: str) -> str:
    """The id under which a thread's memories are kept; reads back with `parse_thread_scope_id`.

    >>> thread_scope_id("C1", "1700000000.000100")
    'C1:1700000000.000100'
    """
    for part in (channel_id, thread_ts):
        refuse_other_kind(part, (str, NoneType), "a thread is named by texts, its channel and its ts", DefinitionError)
    if not channel_id or not thread_ts:
        raise DefinitionError(f"a thread is a channel and a ts, found channel {channel_id!r} and ts {thread_ts!r}")
    return f"{_quote_part(channel_id)}:{_quote_part(thread_ts)}"


def parse_thread_scope_id(scope_id: str) -> Thread:
    """The channel and the thread of a thread's scope id; any other text is a `DefinitionError`.

    >>> parse_thread_scope_id("C1:1700000000.000100")
    Thread(channel_id='C1', ts='1700000000.000100')
    """
    refuse_other_kind(scope_id, str, "a thread's scope id is text", DefinitionError)
    channel_id, colon, ts = scope_id.partition(":")
    thread = Thread(_unquote_part(channel_id), _unquote_part(ts))
    if not colon or not all(thread) or thread_scope_id(*thread) != scope_id:
        raise DefinitionError(
            f"{scope_id!r} is no thread's scope id: expected 'channel:ts', as thread_scope_id makes it"
        )
    return thread


def _quote_part(part: str) -> str:
    """Without the one character that separates: ids of some chats hold it."""
    return part.replace("%", "%25").replace(":", "%3A")


def _unquote_part(part: str) -> str:
    return part.replace("%3A", ":").replace("%25", "%")


def scope_of(name: str) -> MemoryScope:
    """The scope of this name; any other text is a `DefinitionError` with the nearest one.

    >>> scope_of("thread")
    <MemoryScope.THREAD: 'thread'>
    """
    return _member_of(MemoryScope, "scope of memories", name)


def type_of(name: str) -> MemoryType:
    """The type of this name."""
    return _member_of(MemoryType, "type of memories", name)


E = TypeVar("E", bound=StrEnum)


def _member_of(kind: type[E], what: str, name: str) -> E:
    names = [each.value for each in kind]
    if name in names:
        return kind(name)
    hint = did_you_mean(name, names) if isinstance(cast(object, name), str) else ""
    raise DefinitionError(f"there is no {what} {name!r}; there are {', '.join(names)}{hint}")


def aware(name: str, time: datetime) -> datetime:
    """The time, which must say of which zone it is: stores and prompts are read in several."""
    refuse_other_kind(time, datetime, f"{name} is a datetime", DefinitionError)
    if time.utcoffset() is None:
        raise DefinitionError(f"{name} needs a time zone, found {time!r}; write datetime(..., tzinfo=UTC)")
    return time


_MOST_DAYS: Final = 36_500
"""A century."""


def days_of(name: str, days: float) -> timedelta:
    """Makes so many days, which no calendar is too short for.

    >>> days_of("days", 0.5)
    datetime.timedelta(seconds=43200)
    """
    is_number = isinstance(cast(object, days), int | float) and not isinstance(days, bool)
    if not is_number or not 0 < days <= _MOST_DAYS:
        raise DefinitionError(f"'{name}' is a number of days above 0, at most {_MOST_DAYS}, not {days!r}")
    return timedelta(days=days)


@dataclass(frozen=True, slots=True)
class Memory:
    """One memory as it is kept."""

    scope: MemoryScope
    scope_id: str
    type: MemoryType
    text: str
    valid_from: datetime
    valid_to: datetime | None = None
    """When another one took its place; None for the one that holds."""

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            return find_attribute(self, name, "Memory")

    def __post_init__(self) -> None:
        """A scope and a type may be given by their names."""
        object.__setattr__(self, "scope", scope_of(self.scope))
        object.__setattr__(self, "type", type_of(self.type))
        refuse_other_kind(self.text, str, "a memory is text", DefinitionError)
        if not self.text.isascii() or "\0" in self.text:  # As every store can keep it.
            plain = self.text.encode(errors="replace").decode().replace("\0", "\ufffd")
            object.__setattr__(self, "text", plain)
        aware("valid_from", self.valid_from)
        if self.valid_to is not None:
            aware("valid_to", self.valid_to)
        if self.scope is MemoryScope.THREAD:
            parse_thread_scope_id(self.scope_id)
        elif not isinstance(cast(object, self.scope_id), str) or not self.scope_id.strip():
            raise DefinitionError(f"a memory of a {self.scope} needs that {self.scope}'s id")


class MemoryRepository(Protocol):
    """Memories by scope and type: one holds at a time, and those before it are its history."""

    async def save(self, memory: Memory) -> None:
        """Keep a memory: from its `valid_from` on it takes the place of the one that held.

        One that is older than what is kept enters the history, and what holds stays.
        """
        ...

    async def find_by_scope_and_type(
        self, scope: MemoryScope, scope_id: str, type: MemoryType, *, at: datetime | None = None
    ) -> Memory | None:
        """The memory that holds, or that held at a time; None where there is none."""
        ...

    async def find_recent_thread_memories(
        self, channel_id: str, days: float, *, now: datetime | None = None
    ) -> Sequence[Memory]:
        """The memories that hold of this channel's threads, those of the last `days`, the newest first.

        `now` is the present where it is not given.
        """
        ...

    async def history(self, scope: MemoryScope, scope_id: str, type: MemoryType) -> Sequence[Memory]:
        """All memories of a scope and type, the newest first."""
        ...
