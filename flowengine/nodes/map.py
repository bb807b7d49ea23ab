"""The same body for each item of a list, some at once, results in the items' order."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, ClassVar, Final, Literal, Unpack, cast

import anyio
from anyio.abc import TaskGroup

from flowengine.core.context import Context
from flowengine.core.records import MapBegan
from flowengine.core.values import FrozenDict, describe_value, freeze
from flowengine.engine.levels import Level, Unfinished, enter_level, result_of_level, store_of
from flowengine.engine.ports import CalledOff, Ended, Park
from flowengine.engine.scheduler import BodyError
from flowengine.engine.tasks import meet_deadline
from flowengine.errors import DefinitionError, FlowEngineError, LimitError, OverdueError, RunError, TemplateError
from flowengine.nodes.container import ContainerNode
from flowengine.nodes.node import FlowNode, NodeSettings, Value
from flowengine.nodes.warm_start import WarmStart, begin_warm_start

__all__ = ["MapNode"]

# --- Many equal pieces of work, some at a time, begun in order

ON_THEIR_WAY: Final = 2
FOR_EACH_SUSPENDED: Final = 4
"""As in the scheduler: how many workers are hired ahead. Pieces are larger than nodes, so more of them are."""


class Crew:
    """Does `work(0)` … `work(count - 1)`, `limit` at once; `stop` begins no further piece.

    `work` should raise nothing: what it raises ends the crew.
    """

    def __init__(self, count: int, work: Callable[[int], Awaitable[None]], limit: int | None = None) -> None:
        self._count = count
        self._work = work
        self._limit = limit or count + 1
        self._next = 0
        self._at_work = 0
        self._on_their_way = 0

    async def run(self) -> None:
        if self._count:
            async with anyio.create_task_group() as tasks:
                await self._worker(tasks)

    def stop(self) -> None:
        self._next = self._count

    async def _hired(self, tasks: TaskGroup) -> None:
        self._on_their_way -= 1
        await self._worker(tasks)

    async def _worker(self, tasks: TaskGroup) -> None:
        while self._next < self._count and self._at_work < self._limit:
            index = self._next
            self._next += 1
            self._at_work += 1
            self._hire(tasks)
            try:
                await self._work(index)
            finally:
                self._at_work -= 1

    def _hire(self, tasks: TaskGroup) -> None:
        most = ON_THEIR_WAY + FOR_EACH_SUSPENDED * (self._at_work - 1)
        wanted = min(most, self._count - self._next, self._limit - self._at_work)
        while self._on_their_way < wanted:
            self._on_their_way += 1
            tasks.start_soon(self._hired, tasks)


OnItemError = Literal["fail", "collect", "skip"]

MOST_ITEMS: Final = 100_000
"""Items that a map takes. More is nearly always a mistake, and each is journaled."""


class MapNode(ContainerNode):
    """Runs its body once for each item of the list that `over` gives.

    The body sees the item under the name `name` and in its first nodes as `result`, and `each` with
    `index` and `total`. `result` is worked out from the body; by default it is the output of the
    body's only last node. `concurrency`: items in work at once.

    `on_item_error`: a failed item fails the map (no other is begun; those in work end), has
    `{error, index}` in its place (`collect`), or is left out (`skip`). What a failed item wrote does not
    count. Items come in no order among themselves, so the state that they write needs a merge rule.

    `is_warm`: the first item goes alone until a model has begun to answer it, so that the vendor's cache has what
    the prompts of all items begin with.
    """

    kind: ClassVar[str] = "map"

    def __init__(
        self,
        nodes: Mapping[str, FlowNode],
        *,
        over: Value,
        name: str = "item",
        concurrency: int | None = None,
        on_item_error: OnItemError = "fail",
        result: Value | None = None,
        is_warm: bool = False,
        **settings: Unpack[NodeSettings],
    ) -> None:
        super().__init__(nodes, **settings)
        self.over = over
        self.is_warm = is_warm
        self.name = name
        self.concurrency = concurrency
        self.on_item_error: OnItemError = on_item_error
        self.result = result if result is not None else self._of_the_last()

    def _of_the_last(self) -> Value:
        graph = self.body.graph
        if len(graph.leaves) != 1:
            ends = ", ".join(graph.ids[each] for each in graph.leaves)
            raise DefinitionError(f"a map whose body ends in several nodes ({ends}) needs `result`")
        last = graph.ids[graph.leaves[0]]
        return lambda seen: seen.prev_outputs.get(last)

    async def run(self, context: Context, /) -> Ended:
        items = freeze(_list(self.over(context)))
        if not any(type(record) is MapBegan for record in context.recorded):
            await context.note(MapBegan(len(items)))
        run = _MapRun(self, context, items)
        await run.crew.run()
        return run.ended()


class _MapRun:
    """One run of a map: what became of each item so far."""

    def __init__(self, node: MapNode, context: Context, items: list[Any]) -> None:
        self._node = node
        self._context = context
        self._items = items
        self._outputs: dict[int, Any] = {}
        self._contributions: dict[int, Mapping[str, Any]] = {}
        self._failures: dict[int, FlowEngineError] = {}
        self._unfinished: list[Park | CalledOff] = []
        self._limit: LimitError | None = None
        self.crew = Crew(len(items), self._warm_item if node.is_warm else self._item, node.concurrency)
        self._start = begin_warm_start(context.scope, f"{context.current_node}[0].") if node.is_warm else WarmStart()

    async def _warm_item(self, index: int) -> None:
        if index:
            await self._start.wait()
            await self._item(index)
            return
        try:
            await self._item(index)
        finally:
            self._start.begin()

    async def _item(self, index: int) -> None:
        node, item = self._node, self._items[index]
        names = {node.name: item, "each": FrozenDict(index=index, total=len(self._items))}
        level = enter_level(self._context, node.body, f"[{index}].", variables=names, received=item)
        try:
            await level.run()
            self._done(index, level)
        except Unfinished as end:
            self._unfinished.append(end.answer)
        except LimitError as error:
            self._limit = self._limit or error
            self.crew.stop()
        except OverdueError as error:
            await meet_deadline(error)
        except (BodyError, TemplateError) as error:
            self._failures[index] = error
            if node.on_item_error == "fail":
                self.crew.stop()

    def _done(self, index: int, level: Level) -> None:
        self._outputs[index] = self._node.result(level.seen())
        contribution = level.contribution()
        if contribution:
            self._contributions[index] = contribution

    def ended(self) -> Ended:
        if self._limit is not None and not self._keeps_what_it_has(self._limit):
            raise self._limit
        if self._failures and self._node.on_item_error == "fail":
            index = min(self._failures)
            raise _failure(index, self._failures[index])
        if self._unfinished:
            return next((each for each in self._unfinished if type(each) is CalledOff), self._unfinished[0])
        parts = [self._contributions[index] for index in sorted(self._contributions)]
        return result_of_level(self._output(), store_of(self._context).combined(parts) if parts else {})

    def _keeps_what_it_has(self, error: LimitError) -> bool:
        return error.on_limit == "partial" and error.part == self._context.current_node

    def _output(self) -> list[Any]:
        if self._node.on_item_error == "collect":
            for index, error in self._failures.items():
                self._outputs[index] = {"error": str(error), "index": index}
        return [self._outputs[index] for index in sorted(self._outputs)]


def _failure(index: int, error: FlowEngineError) -> FlowEngineError:
    return error if isinstance(error, BodyError) else RunError(f"item {index}: {error}")


def _list(value: Any) -> list[Any]:
    if not isinstance(value, list | tuple):
        raise TemplateError(f"`over` must give a list, found {describe_value(value)}")
    items = list(cast("list[Any]", value))
    if len(items) > MOST_ITEMS:
        raise RunError(f"`over` gives {len(items):,} items; a map takes at most {MOST_ITEMS:,}")
    return items
