"""Lets the nodes of a run that wait for an answer go on while others are at work, on all levels of the run.

An answer is journaled, then the history is renewed from the journal, and then what parked is entered again as when a
run is resumed: the node itself where its level still runs, else the container that parked with it. A container that
is still at work has it once it parks. Where answers come from is the mailbox's to know.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from time import perf_counter
from typing import Any, Final, Protocol

from flowengine.core import node_of_question
from flowengine.engine.events import NodeRecorded
from flowengine.engine.ports import Journal, Mailbox
from flowengine.engine.restoring import History
from flowengine.errors import JournalError

_SECONDS_BETWEEN_LOOKS: Final = 0.25
"""Seconds between two looks into the mailbox that only the end of some other node gives reason for."""


class Entrance(Protocol):
    """The level that a node parked on."""

    def enter_again(self, number: int, /) -> bool:
        """Make a parked node ready; False where the level is about to end, or begins nothing more."""
        ...

    def give_up(self, error: JournalError, /) -> None: ...


@dataclass(slots=True, eq=False)
class Parked:
    """The nodes of one run that wait for an answer."""

    mailbox: Mailbox
    journal: Journal
    history: History
    clock: Callable[[], float]
    start_soon: Callable[[Callable[[], Any]], None]
    """Begins a task that lives until the run ends."""
    tell: Callable[[], None] | None = None
    """Called when a node has parked, to have people told of what it asks."""
    nodes: dict[str, tuple[Entrance, int]] = field(default_factory=dict[str, "tuple[Entrance, int]"])
    """Path → what parked there."""
    _listens: bool = False
    _looked: float = 0.0
    _nodes_with_answers: set[str] = field(default_factory=set[str])
    """Nodes whose answer is journaled, and that could not be entered again yet."""

    async def add(self, path: str, level: Entrance, number: int) -> None:
        """A node has parked: from now on answers are heard of."""
        self.nodes[path] = level, number
        if not self._listens:
            self._listens = True
            self.start_soon(self._listen)
        if self.tell is not None:
            self.tell()
        self._go_on()
        await self.take_in()

    def leave(self, level: Entrance) -> None:
        """The level has ended."""
        for path in [path for path, (where, _) in self.nodes.items() if where is level]:
            del self.nodes[path]

    async def look(self) -> None:
        """Take in what has come, some time after the last look."""
        if perf_counter() - self._looked > _SECONDS_BETWEEN_LOOKS:
            await self.take_in()

    async def take_in(self) -> None:
        """Journal the answers that have come, and enter again what waits for them."""
        replies = self.mailbox.collect(self.journal.read)
        self._looked = perf_counter()
        if replies:
            await self._record(replies)
        self._go_on()

    async def _record(self, replies: Mapping[str, Any]) -> None:
        entries = [(node_of_question(path, record), record) for path, record in replies.items()]
        for node, record in entries:
            self.journal.append(NodeRecorded(node, self.clock(), record))
        waiting = self.journal.commit(False)
        if waiting is not None:
            await waiting
        self._nodes_with_answers.update(node for node, _ in entries)

    async def _listen(self) -> None:
        while True:
            await self.mailbox.wait()
            try:
                await self.take_in()
            except JournalError as error:
                for level, _ in list(self.nodes.values()):
                    level.give_up(error)
                return

    def _go_on(self) -> None:
        for node in sorted(self._nodes_with_answers):
            path = next(
                (each for each in self.nodes if node == each or node.startswith((f"{each}.", f"{each}["))), None
            )
            if path is None:
                continue
            level, number = self.nodes[path]
            self.history.renew(self.journal.read(), path)
            if level.enter_again(number):
                self._nodes_with_answers.discard(node)
                self.nodes.pop(path, None)
