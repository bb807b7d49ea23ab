"""A map that begins with one item: when the others go, whatever becomes of the first."""

from __future__ import annotations

from typing import Any

import anyio
import pytest

from flowengine.core.context import Context, GivenRuntime
from flowengine.core.run_scope import RunScope
from flowengine.errors import RunError
from flowengine.flow import Flow
from flowengine.nodes.function import FunctionNode
from flowengine.nodes.map import MapNode
from flowengine.nodes.warm_start import begin_warm_start, find_warm_start


class Items:
    """Notes when items are at work; the first one waits until it is let go."""

    def __init__(self) -> None:
        self.begun: list[int] = []
        self.first_is_over = False
        self.came_early: list[int] = []

    async def work(self, context: Context) -> Any:
        number = context.variables["item"]
        self.begun.append(number)
        if number == 0:
            await anyio.wait_all_tasks_blocked()
            self.first_is_over = True
        elif not self.first_is_over:
            self.came_early.append(number)
        return number

    async def failing(self, context: Context) -> Any:
        if await self.work(context) == 0:
            raise RunError("no")
        return context.variables["item"]


def flow_of(node: MapNode) -> Flow:
    return Flow("warm", {"each": node})


async def test_without_a_model_the_others_wait_until_the_first_is_over() -> None:
    items = Items()
    node = MapNode({"one": FunctionNode(items.work)}, over=lambda _: list(range(5)), is_warm=True)
    run = (await flow_of(node).run({})).raise_for_status()
    assert (items.came_early, sorted(items.begun)) == ([], list(range(5)))
    assert run.nodes["each"].output == list(range(5))


async def test_a_map_that_is_not_warm_begins_with_all() -> None:
    items = Items()
    node = MapNode({"one": FunctionNode(items.work)}, over=lambda _: list(range(5)))
    (await flow_of(node).run({})).raise_for_status()
    assert items.came_early == [1, 2, 3, 4]


async def test_a_first_item_that_fails_lets_the_others_go() -> None:
    items = Items()
    node = MapNode(
        {"one": FunctionNode(items.failing)}, over=lambda _: list(range(3)), is_warm=True, on_item_error="skip"
    )
    run = (await flow_of(node).run({})).raise_for_status()
    assert run.nodes["each"].output == [1, 2]


@pytest.mark.parametrize("items", [[], [7]])
async def test_a_warm_map_may_have_no_item_or_one(items: list[int]) -> None:
    async def work(context: Context) -> Any:
        return context.variables["item"]

    node = MapNode({"one": FunctionNode(work)}, over=lambda _: items, is_warm=True)
    assert (await flow_of(node).run({})).raise_for_status().nodes["each"].output == items


def test_a_start_is_forgotten_once_the_others_may_go() -> None:
    scope = RunScope()
    context = Context(current_node="each[0].one", runtime=GivenRuntime(scope=scope))
    starts = [begin_warm_start(scope, f"{name}[0].") for name in ("other", "each")]
    assert find_warm_start(context) is starts[1]
    starts[1].begin()
    assert find_warm_start(context) is None


def test_an_earlier_start_that_ends_late_leaves_the_one_of_the_maps_next_try() -> None:
    scope = RunScope()
    before, now = (begin_warm_start(scope, "each[0].") for _ in range(2))
    before.begin()
    assert find_warm_start(Context(current_node="each[0].one", runtime=GivenRuntime(scope=scope))) is now
