"""Holds what the nodes of one run share beside values (servers, caches, sources) and closes it with the run.

It knows neither what it holds nor who runs. Values that a later node may see never go through here:
they are results, and journaled.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine, Hashable
from contextlib import AsyncExitStack
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, TypeAlias, TypeVar, cast

import anyio
from anyio.abc import TaskGroup

from flowengine.core.user_code import DEFAULT_THREADS

if TYPE_CHECKING:  # Loaded by the code that opens a run.
    from flowengine.core.file_keeper import FileKeeper

T = TypeVar("T")
Fence: TypeAlias = Callable[[], Awaitable[None]]
"""Raises where another process goes on with the run by now."""

CLOSING_SECONDS: Final = 10.0
"""Seconds that everything together may take to close."""


class RunScope:
    """Open for as long as a run: `async with RunScope() as scope`. What the block raises comes out as it is.

    >>> scope = RunScope()
    >>> scope.once("cache", dict) is scope.once("cache", dict)
    True
    """

    def __init__(
        self,
        fence: Fence | None = None,
        threads: int | None = None,
        make_files: Callable[[], FileKeeper | None] | None = None,
        *,
        has_tasks: bool = True,
    ) -> None:
        """`threads`: plain functions that are at work at once, `DEFAULT_THREADS` where it is None. `has_tasks`: whether
        tasks may be started; to be ready for them takes a third of the time of a short run."""
        self._most = threads or DEFAULT_THREADS
        self.fence = fence
        """Asked before a node and before a model call begins; None where no other process can take the run."""
        self._make_files = make_files
        self._resources: dict[Hashable, Any] = {}
        self._closing: list[Callable[[], Awaitable[None]]] = []
        self._may_start = has_tasks
        self._tasks: TaskGroup | None = None
        self._has_started = False

    def once(self, key: Hashable, make: Callable[[], T]) -> T:
        """Returns the value stored under a key; the first caller creates it."""
        if key not in self._resources:
            self._resources[key] = make()
        return cast(T, self._resources[key])

    @property
    def files(self) -> FileKeeper | None:
        """Takes files in for the run; None where its store keeps none."""
        return None if self._make_files is None else self.once("files", self._make_files)

    @property
    def threads(self) -> anyio.CapacityLimiter:
        """The turns of the run's plain functions."""
        return self.once(RunScope, lambda: anyio.CapacityLimiter(self._most))

    def start_soon(self, task: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """A task that lives until the run ends; then it is cancelled. What it raises ends the run."""
        if self._tasks is None:
            raise RuntimeError(
                "no node of this run starts tasks: set `starts_tasks = True` in the class of the one that does"
            )
        self._has_started = True
        self._tasks.start_soon(task)

    def at_end(self, close: Callable[[], Awaitable[None]]) -> None:
        """Called when the run ends, whatever its end is; the last one that came goes first."""
        self._closing.append(close)

    async def __aenter__(self) -> RunScope:
        if self._may_start:
            self._tasks = await anyio.create_task_group().__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool | None:
        try:
            if self._closing:
                with anyio.move_on_after(CLOSING_SECONDS, shield=True):
                    await self._close()
        except BaseException:
            await self._end_tasks()
            raise
        if error is None or isinstance(error, anyio.get_cancelled_exc_class()):
            return await self._end_tasks(kind, error, trace)
        await self._end_tasks()  # Given the error, the group of tasks would put a group of errors round it.
        return None

    async def _close(self) -> None:
        """Close all that is to be closed; what fails in it keeps no other from it, and is raised at the end."""
        while self._closing:  # The tasks of the run are still there, and may bring more.
            closing, self._closing = self._closing, []
            async with AsyncExitStack() as stack:
                for close in closing:
                    stack.push_async_callback(close)

    async def _end_tasks(
        self,
        kind: type[BaseException] | None = None,
        error: BaseException | None = None,
        trace: TracebackType | None = None,
    ) -> bool | None:
        if self._tasks is None:
            return None
        if self._has_started:  # A cancellation costs as much as the rest of a short run.
            self._tasks.cancel_scope.cancel()
        return await self._tasks.__aexit__(kind, error, trace)
