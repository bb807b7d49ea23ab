"""Runs the body of a node for a time, and leaves it behind where its code ignores that it is cancelled.

It is done on asyncio, in a task of the body's own. What is left behind goes on beside the run until it ends by itself:
nothing of it gets on record any more, it is asked to stop again and again, and the event loop does not wait for it.
It knows neither retries nor what a timeout means for a node.
"""

from __future__ import annotations

import asyncio
from asyncio.tasks import _unregister_task  # pyright: ignore[reportPrivateUsage] - documented in "Extending asyncio"
from typing import Any, Final

import anyio

from flowengine.core import Context, Ledger, Note, RunScope, Tell
from flowengine.engine import Ended, Listener, Node, NodeContext
from flowengine.errors import JournalError

_ASKS_AGAIN: Final = 1.0
"""Seconds between two cancellations of a body that was left behind."""

_left: Final[set[asyncio.Task[None]]] = set()
"""What was left behind; the event loop itself remembers its tasks only weakly."""


class AbandonableBody:
    """One run of a node, in a task of its own, with `deadline` as the time at which it is cancelled."""

    def __init__(self, node: Node, context: Context, deadline: float) -> None:
        self.result: Ended | None = None
        self.error: BaseException | None = None
        self.overran = False
        """Whether its time was up, or it was cancelled, before it ended."""
        self._cut_listener: _CutListener | None = None
        if isinstance(context, NodeContext):
            self._cut_listener = _CutListener(context.runtime.listener)
            context = context.with_(runtime=context.runtime.heard_by(self._cut_listener))
        self._scope = anyio.CancelScope(deadline=deadline)
        self._shield = anyio.CancelScope()  # Shielded, it keeps the body's cancellation from being told all the time.
        self._task = asyncio.create_task(self._run(node, context))

    async def _run(self, node: Node, context: Context) -> None:
        # What it raises is the caller's, not the event loop's: a task that raises SystemExit ends the loop.
        try:
            with self._scope, self._shield:
                result = await node.run(context)
                self.overran = self._scope.cancel_called or anyio.current_time() >= self._scope.deadline
                if not self.overran:
                    self.result = result
        except BaseException as error:
            self.error = error
        self.overran |= self._scope.cancel_called

    async def wait(self, until: float) -> bool:
        """Tells whether it has ended by then."""
        with anyio.move_on_at(until):
            await asyncio.wait([self._task])
        return self._task.done()

    async def cancel(self, grace: float) -> bool:
        """Tells whether it ended within `grace` seconds after its cancellation."""
        self._scope.cancel()
        with anyio.CancelScope(shield=True):
            await self.wait(anyio.current_time() + grace)
        return self._task.done()

    def leave_behind(self) -> None:
        """Nothing waits for it from here on, and nothing that it tells is heard."""
        if self._cut_listener is not None:
            self._cut_listener.is_cut = True
        _left.add(self._task)
        self._task.add_done_callback(_left.discard)
        for task in _with_those_below(self._task):
            _unregister_task(task)  # The end of the event loop would wait for it.
            task._log_destroy_pending = False  # type: ignore[attr-defined] # as asyncio does with what it leaves
        self._ask_again()

    def _ask_again(self) -> None:
        """Cancel it once more, and then not for a while: anyio would tell it at each turn of the event loop."""
        if self._task.done():
            return
        loop = self._task.get_loop()
        self._shield.shield = False
        loop.call_soon(setattr, self._shield, "shield", True)
        loop.call_later(_ASKS_AGAIN, self._ask_again)


class _CutListener:
    """The listener of a body, until the body is abandoned; later records are refused."""

    def __init__(self, listener: Listener) -> None:
        self._listener = listener
        self.is_cut = False

    def _refuse_late(self, node: str) -> None:
        if self.is_cut:
            raise JournalError(f"node '{node}' has timed out and was left behind: nothing of it gets on record")

    def note_with_next(self, node: str, record: Any, /) -> None:
        self._refuse_late(node)
        self._listener.note_with_next(node, record)

    def note_of(self, node: str, /) -> Note:
        note = self._listener.note_of(node)

        async def heard(record: Any) -> None:
            self._refuse_late(node)
            await note(record)

        return heard

    def tell_of(self, node: str, /) -> Tell | None:
        tell = self._listener.tell_of(node)
        if tell is None:
            return None

        def heard(text: str, begins: bool = False, model: str = "", /) -> None:
            if not self.is_cut:
                tell(text, begins, model)

        return heard

    @property
    def scope(self) -> RunScope | None:
        return self._listener.scope

    @property
    def ledger(self) -> Ledger | None:
        return self._listener.ledger


def _with_those_below(task: asyncio.Task[Any]) -> list[asyncio.Task[Any]]:
    """A task and those that task groups of anyio have started in it, at any depth."""
    below = {id(task)}
    pairs = [(each.id, each.parent_id) for each in anyio.get_running_tasks()]
    size = 0
    while size < len(below):
        size = len(below)
        below.update(one for one, parent in pairs if parent in below)
    return [each for each in asyncio.all_tasks() if id(each) in below]
