"""Sends followers the events of runs: one watch a run looks at the store, and all of its followers share it.

A follower first reads what there is from the store at its own pace, and joins the watch once it is up with it.
What it does not take is kept up to a limit; beyond it that is thrown away, and the follower reads from the store
again. So no follower delays a run or another follower, and none costs more memory than the limit.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from time import monotonic, time
from typing import Any, Final, Literal, TypeAlias

import anyio
from anyio.abc import TaskGroup
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream

from flowengine.core.json_values import dumps
from flowengine.engine.events import (
    Event,
    NodeCancelled,
    NodeFailed,
    NodeFinished,
    NodeStarted,
    RunFinished,
    TokenStreamed,
)
from flowengine.errors import JournalError, StoreUnavailableError
from flowengine.journal.live_texts import LiveFollower, LiveTexts
from flowengine.web.gate.problems import ProblemError
from flowengine.web.service.run_cache import RunCache
from visualize.viewer.feed import feed_line
from visualize.viewer.html import whole

__all__ = ["EventBatch", "Form", "RunWatches", "merge_tokens", "to_plain_event"]

# --- New events as server-sent events

Form = Literal["feed", "plain"]
TimedItem: TypeAlias = "tuple[int | None, Event | TokenStreamed]"
"""Position and event; what no journal has is without a position."""

_PARKED_STATUSES: Final = frozenset({"waiting", "paused", "running"})


class EventBatch:
    """The new events of a run."""

    def __init__(self, told: Sequence[TimedItem]) -> None:
        self.told = told
        self.next = max((seq + 1 for seq, _ in told if seq is not None), default=0)
        """The position behind the last of them."""
        self._lines: dict[Form, list[tuple[int | None, bytes]]] = {}

    def messages(self, form: Form, after: int) -> bytes:
        """Those from a position on."""
        lines = self._lines.get(form)
        if lines is None:
            lines = self._lines[form] = [
                (seq, _format_message(seq, event, form))
                for seq, event in self.told
                if form == "feed" or not isinstance(event, TokenStreamed) or event.text
            ]
        return b"".join([line for seq, line in lines if seq is None or seq >= after])


def to_plain_event(event: Event | TokenStreamed, seq: int | None = None) -> Mapping[str, Any]:
    """The whole event in JSON's types, with its name as `type` and its position as `seq`."""
    return {**({} if seq is None else {"seq": seq}), **event.as_dict()}


def has_ended(event: Event | TokenStreamed) -> bool:
    """Tells whether nothing follows it, unless somebody takes the run up again that was over."""
    return isinstance(event, RunFinished) and event.status not in _PARKED_STATUSES


def merge_tokens(events: Sequence[Event], first: int, tokens: Iterable[TokenStreamed]) -> list[TimedItem]:
    """Events with their positions, and between them, by time, what agents wrote; pieces of one text are joined."""
    told: list[TimedItem] = []
    waiting = sorted(tokens, key=lambda each: each.at)  # Those of several nodes come node by node.
    for seq, event in enumerate(events, first):
        begins = isinstance(event, NodeStarted)
        earlier = [each for each in waiting if each.at < event.at or (each.at == event.at and not begins)]
        waiting = waiting[len(earlier) :]
        told += [(None, each) for each in _join_tokens(earlier)]
        told.append((seq, event))
    told += [(None, each) for each in _join_tokens(waiting)]
    return told


def _join_tokens(tokens: Iterable[TokenStreamed]) -> list[TokenStreamed]:
    found: dict[tuple[str, bool], TokenStreamed] = {}
    # By node, and whether the piece only says who is asked: then what was written before is of no interest any more.
    for token in tokens:
        before = found.get((token.node, False))
        if token.model:
            found.pop((token.node, False), None)
            found[token.node, True] = token
        elif before is None or token.begins:
            found[token.node, False] = token
        else:
            found[token.node, False] = before._replace(text=before.text + token.text, at=token.at)
    return list(found.values())


def _format_message(seq: int | None, event: Event | TokenStreamed, form: Form) -> bytes:
    line = feed_line(event, seq) if form == "feed" else whole(dumps(to_plain_event(event, seq)))
    return (f"data: {line}\n\n" if seq is None else f"id: {seq}\ndata: {line}\n\n").encode()


_QUICK: Final = 0.1
"""Seconds between two looks at a run that has just had something new."""
_SLOW_PAUSE: Final = 0.5
_SLOW_AFTER: Final = 10.0
"""Seconds without anything new after which a run is looked at slowly."""
_HEARTBEAT_AFTER: Final = 15.0
_BATCH_SIZE: Final = 500
"""Events that are written at once."""
_MOST: Final = 4_000_000
"""Bytes that wait for a follower; they are shared by all. Whatever comes at once waits, however much it is."""
_MOST_OWN: Final = 64
"""Runs of this process whose texts are kept for followers who come later."""
_SETTLE_TIME: Final = 0.15
"""Seconds after which an event that an agent's text follows is in the store."""


class RunWatches:
    """All watches of one store."""

    def __init__(self, shelf: RunCache) -> None:
        self._shelf = shelf
        self._tasks: TaskGroup | None = None
        self._watches: dict[str, _Watch] = {}
        self._own: OrderedDict[str, LiveTexts] = OrderedDict()
        """What the runs of this process are writing, for followers who come later."""

    def begin(self, tasks: TaskGroup) -> None:
        """Watches run in this group from now on."""
        self._tasks = tasks

    def end(self) -> None:
        """Drop every follower, and take no more."""
        self._tasks = None
        for watch in self._watches.values():
            watch.close()

    @property
    def followers(self) -> int:
        return sum(len(watch.followers) for watch in self._watches.values())

    def hear(self, run_id: str, token: TokenStreamed) -> None:
        """A piece of what an agent of a run is writing."""
        if run_id not in self._own and len(self._own) >= _MOST_OWN:
            self._own.popitem(last=False)
        self._own.setdefault(run_id, LiveTexts()).hear(token)
        watch = self._watches.get(run_id)
        if watch is not None:
            watch.tokens.append(token)

    async def has_more(self, run_id: str, after: int) -> bool:
        """Tells whether there is or may come anything from a position on. Raises where there is no such position."""
        if self._tasks is None:
            raise ProblemError(503, "Not running", "the app's lifespan has not begun, or is over")
        events = await self._shelf.events(run_id, max(0, after - 1))
        if after and not events:
            raise ProblemError(404, "No such position", f"run '{run_id}' has fewer than {after} events")
        return len(events) > 1 or not has_ended(events[-1])

    async def messages(self, run_id: str, after: int, form: Form) -> AsyncGenerator[bytes]:
        """Server-sent events from a position on, until the run has ended or the follower is dropped.

        The reader decides how long it waits for its client; a comment comes where nothing else does.
        """
        follower: _Follower | None = None
        while follower is None or follower.is_behind:
            watch = None
            while watch is None or watch.next > after:
                events = await self._shelf.events(run_id, after)
                for begin in range(0, len(events), _BATCH_SIZE):
                    piece = events[begin : begin + _BATCH_SIZE]
                    yield EventBatch(list(enumerate(piece, after))).messages(form, after)
                    after += len(piece)
                if (events and has_ended(events[-1])) or self._tasks is None:
                    return
                watch = self._watch(run_id, after, self._tasks)
            async with watch.follow(form, after) as follower:
                follower.tell(EventBatch([(None, piece) for piece in watch.texts.pieces()]))
                while (piece := await follower.take()) is not None:
                    yield piece
            after = follower.taken

    def _watch(self, run_id: str, after: int, tasks: TaskGroup) -> _Watch:
        """The run's watch; a new one begins at the position."""
        watch = self._watches.get(run_id)
        if watch is None:
            watch = self._watches[run_id] = _Watch(after)
            for piece in self._own[run_id].pieces() if run_id in self._own else ():
                watch.texts.hear(piece)
            tasks.start_soon(self._look, run_id, watch)
        return watch

    async def _look(self, run_id: str, watch: _Watch) -> None:
        """Look at the run for as long as somebody follows it."""
        last = monotonic()
        try:
            while True:
                await anyio.sleep(_QUICK if monotonic() - last < _SLOW_AFTER else _SLOW_PAUSE)
                if not watch.followers:
                    return
                events: Sequence[Event] = ()
                with suppress(StoreUnavailableError):  # Locked, or a disk that is full: it may go by.
                    if run_id not in self._own:
                        watch.tokens += await self._shelf.do(watch.follower.look, self._shelf.store, run_id)
                    events = await self._shelf.events(run_id, watch.next)
                if events or watch.tokens:
                    last = monotonic()
                    watch.tell(events)
                if events and has_ended(events[-1]):
                    return
        except JournalError:  # Removed or damaged meanwhile; the next request is told.
            return
        finally:
            del self._watches[run_id]
            watch.close()


class _Watch:
    """One run that is followed."""

    def __init__(self, after: int) -> None:
        self.next = after
        """The position up to which its followers were told."""
        self.followers: set[_Follower] = set()
        self.tokens: list[TokenStreamed] = []
        self.texts = LiveTexts()
        """What its followers were told that is being written."""
        self.follower = LiveFollower()
        """Reads what another process shows."""

    def follow(self, form: Form, after: int) -> _Follower:
        follower = _Follower(form, after, self.followers.discard)
        self.followers.add(follower)
        return follower

    def tell(self, events: Sequence[Event]) -> None:
        """Text that is so new that the event it follows may not be in the store yet is kept for the next time."""
        until = max([time() - _SETTLE_TIME, *(event.at for event in events)])
        ready = [token for token in self.tokens if token.at <= until]
        self.tokens = [token for token in self.tokens if token.at > until]
        for token in ready:
            self.texts.hear(token)
        for event in events:
            if isinstance(event, NodeFinished | NodeFailed | NodeCancelled):
                self.texts.settle(event.node)
        told = merge_tokens(events, self.next, ready)
        self.next += len(events)
        for begin in range(0, len(told), _BATCH_SIZE):
            news = EventBatch(told[begin : begin + _BATCH_SIZE])
            for follower in list(self.followers):
                follower.tell(news)

    def close(self) -> None:
        for follower in list(self.followers):
            follower.close()


class _Follower:
    """The pending events of one client."""

    def __init__(self, form: Form, after: int, leave: Callable[[_Follower], None]) -> None:
        self.taken = after
        """The position up to which the client has everything."""
        self.is_behind = False
        """Whether what waited was thrown away, because it was too much."""
        self._form: Form = form
        self._leave = leave
        self._size = 0
        self._send: MemoryObjectSendStream[tuple[int, bytes]]
        self._receive: MemoryObjectReceiveStream[tuple[int, bytes]]
        self._send, self._receive = anyio.create_memory_object_stream[tuple[int, bytes]](float("inf"))

    async def __aenter__(self) -> _Follower:
        return self

    async def __aexit__(self, *exception: object) -> None:
        self.close()
        self._receive.close()

    def tell(self, news: EventBatch) -> None:
        piece = news.messages(self._form, self.taken)
        if self._size and self._size + len(piece) > _MOST:
            self.is_behind = True
            self.close()
        elif piece:
            self._size += len(piece)
            self._send.send_nowait((news.next, piece))

    def close(self) -> None:
        self._leave(self)
        self._send.close()

    async def take(self) -> bytes | None:
        """Returns the next message, a comment after a long pause, and None at the end."""
        if self.is_behind:
            return None
        with anyio.move_on_after(_HEARTBEAT_AFTER):
            try:
                position, piece = await self._receive.receive()
            except anyio.EndOfStream:
                return None
            self._size -= len(piece)
            self.taken = max(self.taken, position)
            return piece
        return b":\n\n"
