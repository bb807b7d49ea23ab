"""Runs the same body for each item of a list, some at once, results in the items' order."""

from __future__ import annotations

from bisect import bisect
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, ClassVar, Final, Literal, Unpack, cast

import anyio
from anyio.abc import TaskGroup

from flowengine.core import (
    UNCHANGEABLE,
    USER_CODE,
    Context,
    Decided,
    FrozenDict,
    FrozenList,
    MapBegan,
    MapStopped,
    MixedList,
    NodeResult,
    check_arguments,
    describe_error,
    describe_value,
    freeze,
)
from flowengine.core.templating import excerpt
from flowengine.engine import (
    BodyError,
    CalledOff,
    Ended,
    Level,
    Park,
    Unfinished,
    enter_level,
    history_of,
    meet_deadline,
    result_of_level,
    store_of,
)
from flowengine.errors import (
    DefinitionError,
    FlowEngineError,
    LimitError,
    OverdueError,
    RunError,
    SupersededError,
    TemplateError,
)
from flowengine.nodes.compiled_flow import ContainerNode
from flowengine.nodes.node import FlowNode, NodeSettings, Testable, Value, check_least
from flowengine.nodes.warm_start import begin_warm_start

# --- Many equal pieces of work, some at a time, begun in order

ON_THEIR_WAY: Final = 2
FOR_EACH_SUSPENDED: Final = 4
"""As in the scheduler: how many workers are hired ahead. Pieces are larger than nodes, so more of them are."""


class Crew:
    """Does `work(0)` … `work(count - 1)`, `limit` at once; `stop` begins no further piece.

    What a piece raises ends the crew and comes out alone, once the pieces in work have ended.
    """

    def __init__(self, count: int, work: Callable[[int], Awaitable[None]], limit: int | None = None) -> None:
        self._count = count
        self._work = work
        self._limit = limit or count + 1
        self._next = 0
        self._at_work = 0
        self._on_their_way = 0
        self._error: Exception | KeyboardInterrupt | None = None

    async def run(self) -> None:
        if self._count:
            async with anyio.create_task_group() as tasks:
                await self._worker(tasks)
        if self._error is not None:
            raise self._error

    def stop(self) -> None:
        self._next = self._count

    async def _hire_workers(self, tasks: TaskGroup) -> None:
        self._on_their_way -= 1
        await self._worker(tasks)

    async def _worker(self, tasks: TaskGroup) -> None:
        while self._next < self._count:
            index = self._next
            self._next += 1
            self._at_work += 1
            self._hire(tasks)
            try:
                await self._work(index)
            except (Exception, KeyboardInterrupt) as error:  # As in the scheduler: raised when the others have ended.
                self._error = self._error or error
                self.stop()
                if not isinstance(error, SupersededError):  # What is paid for is stored all the same.
                    tasks.cancel_scope.cancel()
            finally:
                self._at_work -= 1

    def _hire(self, tasks: TaskGroup) -> None:
        most = ON_THEIR_WAY + FOR_EACH_SUSPENDED * (self._at_work - 1)
        target = min(most, self._count - self._next, self._limit - self._at_work)
        while self._on_their_way < target:
            self._on_their_way += 1
            tasks.start_soon(self._hire_workers, tasks)


OnItemError = Literal["fail", "collect", "skip"]

MOST_ITEMS: Final = 100_000
"""Items that a map takes. More is nearly always a mistake, and each is journaled."""


_MAX_TOLD: Final = 1_000
_MAX_ITEM: Final = 300
"""Items, and characters of each, that are on record when a map begins."""


class MapNode(ContainerNode):
    """Runs its body once for each item of the list that `over` gives.

    The body sees the item under the name `name` and in its first nodes as `result`, and `each` with
    `index` and `total`. `result` is worked out from the body; by default it is the output of the
    body's only last node. `concurrency`: items in work at once.

    `on_item_error`: a failed item fails the map (no other is begun; those in work end), has
    `{error, index}` in its place (`collect`), or is left out (`skip`). What a failed item wrote does not
    count. Items come in no order among themselves, so the state that they write needs a merge rule.

    `until`: looked at after each item that succeeds, as the body sees it, with `results`: those so far, in the items'
    order. True is enough: what is in work is cancelled, nothing more begins, and the output is what there is. Which
    items count is on record, so it stays so when the run is resumed, and nothing of the rest is done or paid then.

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
        until: Callable[[Context], Any] | None = None,
        is_warm: bool = False,
        **settings: Unpack[NodeSettings],
    ) -> None:
        super().__init__(nodes, **settings)
        check_arguments(MapNode.__init__, locals())
        check_least("concurrency", concurrency, 1, whole=True)
        self.over = over
        self.is_warm = is_warm
        self.name = name
        self.concurrency = concurrency
        self.on_item_error: OnItemError = on_item_error
        self.until = until
        self.tests_until = until.test if isinstance(until, Testable) else None
        self.result = result if result is not None else self._of_the_last()

    @property
    def remark(self) -> str:
        return "" if self.until is None else "until enough"

    def _of_the_last(self) -> Value:
        graph = self.body.graph
        if len(graph.leaves) != 1:
            ends = ", ".join(graph.ids[each] for each in graph.leaves)
            raise DefinitionError(f"a map whose body ends in several nodes ({ends}) needs `result`")
        last = graph.ids[graph.leaves[0]]
        return lambda view: view.prev_outputs.get(last)

    async def run(self, context: Context, /) -> Ended:
        with USER_CODE:
            value = self.over(context)
        items = freeze(_list(value))
        if not any(type(record) is MapBegan for record in context.runtime.recorded):
            excerpts = [excerpt(item, _MAX_ITEM) for item in items[:_MAX_TOLD]]
            await context.runtime.note(MapBegan(len(items), excerpts))
        run = _MapRun(self, context, items)
        await run.work()
        return run.describe_end()


class _Results:
    """The results of items that are done, in the items' order: a further one costs no walk through all of them."""

    def __init__(self) -> None:
        self._indices: list[int] = []
        self._values = FrozenList()

    def add(self, index: int, value: Any) -> None:
        at = bisect(self._indices, index)
        self._indices.insert(at, index)
        frozen = freeze(value)
        if type(self._values) is FrozenList and type(frozen) not in UNCHANGEABLE:
            self._values = MixedList(self._values)
        list[Any].insert(self._values, at, frozen)  # It refuses its own `insert` to all who see it.

    def to_list(self, *, shared: bool) -> FrozenList:
        """`shared`: the very list, which grows; else one for somebody who may keep it."""
        return self._values if shared else type(self._values)(self._values)


class _MapRun:
    """One run of a map: what became of each item so far."""

    def __init__(self, node: MapNode, context: Context, items: list[Any]) -> None:
        self._node = node
        self._context = context
        self._items = items
        self._outputs: dict[int, Any] = {}
        self._results = _Results()
        self._contributions: dict[int, Mapping[str, Any]] = {}
        self._failures: dict[int, FlowEngineError] = {}
        self._unfinished: list[Park | CalledOff] = []
        self._waiting: set[int] = set()
        """Items that wait for a person."""
        self._wrong: TemplateError | None = None
        """What is wrong with `until`."""
        self._limit: LimitError | None = None
        self._stopped: MapStopped | None = None
        self._in_work: dict[int, anyio.CancelScope] = {}
        self._levels: dict[int, Level] = {}
        """Of items that earlier owners of the run had begun, where it matters which of them are done."""
        self._order: Sequence[int] = range(len(items))
        """Indices of the items that are left to the crew."""
        self._start = begin_warm_start(context.runtime.scope, f"{context.current_node}[0].") if node.is_warm else None

    async def work(self) -> None:
        if self._node.until is not None:
            await self._recall()
        if self._stopped is None:
            work = self._warm_item if self._node.is_warm else self._next_item
            self._crew = Crew(len(self._order), work, self._node.concurrency)
            await self._crew.run()

    async def _recall(self) -> None:
        """First the items that are done already, which costs nothing; then nothing is begun in vain."""
        stopped = next((each for each in self._context.runtime.recorded if type(each) is MapStopped), None)
        if stopped is None:
            self._levels = self._enter_begun()
        done = [index for index, level in self._levels.items() if level.walk.done] if stopped is None else stopped.done
        self._crew = Crew(0, self._next_item)
        for index in done:
            await self._run_item(index)
        self._order = [index for index in self._order if index not in done]
        self._stopped = stopped
        for index in done if stopped is None else ():
            await self._look(index, self._levels[index])

    def _enter_begun(self) -> dict[int, Level]:
        path, prefixes = self._context.current_node, history_of(self._context).prefixes()
        return {index: self._enter(index) for index in range(len(self._items)) if f"{path}[{index}]." in prefixes}

    async def _warm_item(self, number: int) -> None:
        assert self._start is not None  # The map is warm.
        if number:
            await self._start.wait()
            await self._next_item(number)
            return
        try:
            await self._next_item(number)
        finally:
            self._start.begin()

    async def _next_item(self, number: int) -> None:
        index = self._order[number]
        if self._node.until is None:
            await self._run_item(index)
            return
        with anyio.CancelScope() as self._in_work[index]:
            level = await self._run_item(index)
            if level is not None and self._stopped is None:
                await self._look(index, level)
        del self._in_work[index]

    def _enter(self, index: int) -> Level:
        node, item = self._node, self._items[index]
        names = {node.name: item, "each": FrozenDict(index=index, total=len(self._items))}
        return enter_level(self._context, node.body, f"[{index}].", variables=names, received=item)

    async def _run_item(self, index: int) -> Level | None:
        """Run an item to its end; its level, where its result counts."""
        node = self._node
        level = self._levels.get(index) or self._enter(index)
        try:
            await level.run()
            if self._stopped is None:
                self._note_done(index, level)
                return level
        except Unfinished as end:
            self._unfinished.append(end.answer)
            self._waiting.add(index)
        except LimitError as error:
            self._limit = self._limit or error
            self._crew.stop()
        except OverdueError as error:
            await meet_deadline(error)
        except (BodyError, TemplateError) as error:
            self._failures[index] = error
            if node.on_item_error == "fail":
                self._crew.stop()
        return None

    async def _look(self, index: int, level: Level) -> None:
        """Ends the map if there are enough results; records that before anything is cancelled."""
        until, has_failed = self._node.until, self._failures and self._node.on_item_error == "fail"
        if until is None or has_failed or self._stopped is not None or index not in self._outputs:
            return
        view = level.make_context(results=self._results.to_list(shared=self._node.tests_until is not None))
        try:
            test = None if self._node.tests_until is None else self._node.tests_until(view)
            enough = _work_out("until", until, view) if test is None else test["answer"]
            if not isinstance(enough, bool):
                raise TemplateError(f"`until` must give true or false, found {describe_value(enough)}")
        except OverdueError as error:
            await meet_deadline(error)
        except TemplateError as error:
            self._wrong = self._wrong or error
            self._crew.stop()
            return
        if not enough:
            return
        others = sorted({*self._in_work, *self._waiting} - {index})
        rest = len(self._items) - len(self._outputs.keys() | self._failures.keys() | {*others})
        errors = [each for _, each in sorted(self._placeholders().items())]
        self._stopped = MapStopped(sorted(self._outputs.keys() - self._failures.keys()), others, rest, errors)
        self._crew.stop()
        if test is not None:
            self._context.runtime.note_with_next(Decided("enough", "true", (test,)))
        await self._context.runtime.note(self._stopped)
        for other in others:
            if other in self._in_work:
                self._in_work[other].cancel()

    def _note_done(self, index: int, level: Level) -> None:
        self._outputs[index] = output = _work_out("result", self._node.result, level.make_context())
        if self._node.until is not None:
            self._results.add(index, output)
        contribution = level.contribution()
        if contribution:
            self._contributions[index] = contribution

    def describe_end(self) -> Ended:
        if self._wrong is not None:
            raise self._wrong
        if self._stopped is not None:
            return self._result()
        if self._limit is not None and not self._keeps_what_it_has(self._limit):
            raise self._limit
        if self._failures and self._node.on_item_error == "fail":
            index = min(self._failures)
            raise _failure(index, self._failures[index])
        if self._unfinished:
            return next((each for each in self._unfinished if type(each) is CalledOff), self._unfinished[0])
        return self._result()

    def _result(self) -> NodeResult:
        parts = [self._contributions[index] for index in sorted(self._contributions)]
        return result_of_level(self._output(), store_of(self._context).combined(parts) if parts else {})

    def _keeps_what_it_has(self, error: LimitError) -> bool:
        return error.on_limit == "partial" and error.part == self._context.current_node

    def _output(self) -> list[Any]:
        outputs = {**self._outputs, **self._placeholders()}
        return [outputs[index] for index in sorted(outputs)]

    def _placeholders(self) -> Mapping[int, Any]:
        """Returns what stands in the place of failed items."""
        if self._node.on_item_error != "collect":
            return {}
        if self._stopped is not None:
            return {each["index"]: each for each in self._stopped.errors}
        return {index: {"error": str(error), "index": index} for index, error in self._failures.items()}


def _failure(index: int, error: FlowEngineError) -> FlowEngineError:
    return error if isinstance(error, BodyError) else RunError(f"item {index}: {error}")


def _work_out(name: str, value: Value, view: Context) -> Any:
    try:
        return value(view)
    except TemplateError:
        raise
    except Exception as error:  # A function of somebody's.
        raise TemplateError(f"`{name}` failed: {describe_error(error)}") from error


def _list(value: Any) -> list[Any]:
    if not isinstance(value, list | tuple):
        raise TemplateError(f"`over` must give a list, found {describe_value(value)}")
    items = list(cast("list[Any]", value))
    if len(items) > MOST_ITEMS:
        raise RunError(f"`over` gives {len(items):,} items; a map takes at most {MOST_ITEMS:,}")
    return items
