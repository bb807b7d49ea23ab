"""What a run holds in common: made once, and gone with the run, whatever its end is."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial

import anyio
import anyio.lowlevel
import pytest

from flowengine.core.context import Context
from flowengine.core.run_scope import RunScope
from flowengine.flow import Flow
from flowengine.nodes.function import FunctionNode
from flowengine.nodes.loop import LoopNode


async def until_cancelled(ended: list[str], name: str) -> None:
    try:
        await anyio.sleep_forever()
    finally:
        ended.append(name)


async def held(scope: RunScope, told: list[str]) -> None:
    """A task and something to close; the closing comes first."""

    async def task() -> None:
        await until_cancelled(told, "task ended")

    async def close() -> None:
        await anyio.lowlevel.checkpoint()
        told.append("closed")

    scope.start_soon(task)
    scope.at_end(close)
    await anyio.sleep(0.01)


async def test_tasks_end_with_the_run_after_what_is_to_be_closed() -> None:
    told: list[str] = []
    async with RunScope() as scope:
        await held(scope, told)
        assert told == []
    assert told == ["closed", "task ended"]


async def test_the_last_that_came_is_closed_first() -> None:
    told: list[int] = []

    def closing(number: int) -> Callable[[], Awaitable[None]]:
        async def close() -> None:
            told.append(number)

        return close

    async with RunScope() as scope:
        for number in range(3):
            scope.at_end(closing(number))
    assert told == [2, 1, 0]


async def test_what_comes_while_others_are_closed_is_closed_too() -> None:
    told: list[str] = []

    async def close_late() -> None:
        told.append("late")

    async with RunScope() as scope:

        async def close() -> None:
            scope.at_end(close_late)
            told.append("first")

        scope.at_end(close)
    assert told == ["first", "late"]


async def test_what_fails_to_close_keeps_nothing_else_from_its_end() -> None:
    told: list[str] = []

    async def fail() -> None:
        raise OSError("it does not close")

    async def run() -> None:
        async with RunScope() as scope:
            await held(scope, told)
            scope.at_end(fail)

    with pytest.raises(OSError, match="it does not close"):
        await run()
    assert told == ["closed", "task ended"]


@pytest.mark.parametrize("error", [ValueError("mine"), KeyboardInterrupt()])
async def test_what_the_block_raises_comes_out_as_it_is(error: BaseException) -> None:
    told: list[str] = []

    async def run() -> None:
        async with RunScope() as scope:
            await held(scope, told)
            raise error

    with pytest.raises(type(error)) as caught:
        await run()
    assert caught.value is error
    assert told == ["closed", "task ended"]


async def test_a_run_that_is_cancelled_is_closed_in_peace() -> None:
    told: list[str] = []
    with anyio.move_on_after(60) as outer:
        async with RunScope() as scope:
            await held(scope, told)
            outer.cancel()
            await anyio.sleep_forever()
    assert outer.cancelled_caught
    assert sorted(told) == ["closed", "task ended"]


async def test_a_task_that_fails_ends_the_run() -> None:
    async def fail() -> None:
        raise ValueError("of the task")

    async def run() -> None:
        async with RunScope() as scope:
            scope.start_soon(fail)
            await anyio.sleep_forever()

    with pytest.raises(ExceptionGroup) as caught:
        await run()
    assert [str(each) for each in caught.value.exceptions] == ["of the task"]


async def test_a_scope_of_nodes_that_start_no_tasks_refuses_one_and_closes_all_the_same() -> None:
    told: list[str] = []
    with pytest.raises(RuntimeError, match="starts_tasks = True"):
        async with RunScope(has_tasks=False) as scope:
            await held(scope, told)
    async with RunScope(has_tasks=False) as scope:
        scope.at_end(partial(note_closing, told))
    assert told == ["closed"]


async def note_closing(told: list[str]) -> None:
    told.append("closed")


@pytest.mark.parametrize("starts", [True, False])
async def test_a_node_that_says_so_may_start_tasks_wherever_it_stands(starts: bool) -> None:
    started: list[str] = []

    class Starting(FunctionNode):
        starts_tasks = starts

    async def start(context: Context) -> None:
        assert context.runtime.scope is not None
        context.runtime.scope.start_soon(partial(until_cancelled, started, "ended"))
        await anyio.lowlevel.checkpoint()

    run = await Flow("t", {"round": LoopNode({"start": Starting(start)}, max_iterations=1)}).run()
    assert (run.status, started) == (("succeeded", ["ended"]) if starts else ("failed", []))
