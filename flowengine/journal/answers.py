"""Answers to approvals of a run that another task or process writes: kept beside it until its owner takes them in.

There is one record for each run, which holds an answer for each node path and the moment at which the node asked, so
that no answer is taken for another question. The first answer to a question stays. It is kept after the owner has
journaled it, so that a second one is refused at any moment, and is forgotten with the run's end.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from types import TracebackType
from typing import Any, Final

from flowengine.engine.events import Event, NodeRecorded
from flowengine.engine.ports import JournalStore
from flowengine.errors import ApprovalError
from flowengine.llm.wakeup import Post, event_of_this_loop
from flowengine.records import Answered, Asked
from flowengine.values import thaw

__all__ = ["Mail", "answers_left", "forget_answers", "keep_answer", "ring_owner", "times_asked"]

_KIND: Final = "answer"

_bells: Final[dict[str, list[Mail]]] = {}
"""Run → those of this process that wait for its answers."""
_lock: Final = threading.Lock()


def times_asked(events: Sequence[Event]) -> Mapping[str, float]:
    """Node path → when it last asked its question."""
    return {each.node: each.at for each in events if isinstance(each, NodeRecorded) and type(each.record) is Asked}


def keep_answer(store: JournalStore, run_id: str, node: str, asked: float, answered: Answered) -> None:
    """Keep an answer for the run's owner; `ApprovalError` where there is one already."""

    def change(known: Any) -> Any:
        kept: dict[str, Any] = {} if known is None else thaw(known)
        found = kept.get(node)
        if found is not None and found["asked"] == asked:
            who = f" by {found['by']}" if found["by"] else ""
            raise ApprovalError(f"node '{node}' of run {run_id} was answered already: '{found['choice']}'{who}")
        return {**kept, node: {"asked": asked, **answered._asdict()}}

    store.revise(_KIND, run_id, change)


def answers_left(store: JournalStore, run_id: str, events: Sequence[Event]) -> Mapping[str, Answered]:
    """Node path → the answer that is kept for it and that the journal does not have yet."""
    if not times_asked(events):
        return {}
    kept: Mapping[str, Any] = store.recall(_KIND, run_id) or {}
    return _unanswered(kept, events)


def forget_answers(store: JournalStore, run_id: str) -> None:
    """The run has ended, or is no more."""
    if store.recall(_KIND, run_id) is not None:
        store.revise(_KIND, run_id, lambda known: None)


def ring_owner(run_id: str) -> None:
    """Wake the run's owner where it is in this process, in whichever thread."""
    with _lock:
        listening = list(_bells.get(run_id, ()))
    for mail in listening:
        mail.ring()


class Mail:
    """What people leave for one run, for its owner: `with Mail(store, run_id) as mail`. One event loop uses it.

    It is listened for from the first look into it on; most runs never look.
    """

    def __init__(self, store: JournalStore, run_id: str) -> None:
        self._store = store
        self._run_id = run_id
        self._given: set[tuple[str, float]] = set()
        """Node and moment of its question, of all that was ever collected."""
        self._post: Post | None = None
        self._rung: Any

    def __enter__(self) -> Mail:
        return self

    def _listen(self) -> None:
        """From now on whoever keeps an answer in this process rings."""
        if self._post is None:
            self._post, self._rung = event_of_this_loop()
            with _lock:
                _bells.setdefault(self._run_id, []).append(self)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._post is None:
            return
        with _lock:
            _bells[self._run_id].remove(self)
            if not _bells[self._run_id]:
                del _bells[self._run_id]

    def collect(self, read: Callable[[], Sequence[Event]], /) -> Mapping[str, Answered]:
        self._listen()  # First: what is kept after the look is told by a ring.
        kept: Mapping[str, Any] = self._store.recall(_KIND, self._run_id) or {}
        fresh = {node: each for node, each in kept.items() if (node, each["asked"]) not in self._given}
        if not fresh:
            return {}
        self._given.update((node, each["asked"]) for node, each in fresh.items())
        return _unanswered(fresh, read())

    async def wait(self) -> None:
        self._listen()
        await self._rung.wait()
        self._rung = event_of_this_loop()[1]

    def forget(self) -> None:
        """The run needs no answer any more."""
        if self._given:
            forget_answers(self._store, self._run_id)

    def ring(self) -> None:
        """From any thread; a loop that has ended needs no answer."""
        if self._post is not None:
            with suppress(RuntimeError):
                self._post(self._set)

    def _set(self) -> None:
        self._rung.set()


def _unanswered(kept: Mapping[str, Any], events: Sequence[Event]) -> Mapping[str, Answered]:
    asked: dict[str, float] = {}
    for event in events:
        if isinstance(event, NodeRecorded) and type(event.record) is Asked:
            asked[event.node] = event.at
        elif isinstance(event, NodeRecorded) and type(event.record) is Answered:
            asked.pop(event.node, None)
    return {
        node: Answered(each["choice"], each["comment"], each["by"], each["form"])
        for node, each in kept.items()
        if asked.get(node) == each["asked"]
    }
