"""Lets the first item of a map go alone until a model has begun to answer it, so that a vendor's cache has its prompt.

It knows where in a run the first item is. Which prompts are kept, and how they are marked, is the matter of models.
"""

from __future__ import annotations

import anyio

from flowengine.core import Context, RunScope


class WarmStart:
    """Of one run of a map. It is among the `starts` of the run, under its prefix, until the other items may go."""

    def __init__(self, starts: dict[str, WarmStart], prefix: str) -> None:
        self._has_begun = anyio.Event()
        self._starts = starts
        self._prefix = prefix
        starts[prefix] = self

    def begin(self) -> None:
        """The other items may go: a model has begun to answer, or the first item is over."""
        self._has_begun.set()
        if self._starts.get(self._prefix) is self:  # The map may have been begun again meanwhile.
            del self._starts[self._prefix]

    async def wait(self) -> None:
        await self._has_begun.wait()


def begin_warm_start(scope: RunScope | None, prefix: str) -> WarmStart:
    """`prefix`: of the paths of the nodes in the first item. Without a scope no item waits."""
    start = WarmStart({} if scope is None else _starts_of(scope), prefix)
    if scope is None:
        start.begin()
    return start


def find_warm_start(context: Context) -> WarmStart | None:
    """The start that waits for a node; None for all nodes but those of a first item."""
    starts = None if context.runtime.scope is None else _starts_of(context.runtime.scope)
    path = context.current_node
    if not starts or path is None:
        return None
    return next((start for prefix, start in starts.items() if path.startswith(prefix)), None)


def _starts_of(scope: RunScope) -> dict[str, WarmStart]:
    return scope.once(WarmStart, dict[str, WarmStart])
