"""Code of nodes that ignores that it is cancelled: by a timeout, a failed sibling or the end of the run."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Awaitable, Callable
from typing import Any

import anyio
import pytest

from flowengine.core.context import Context
from flowengine.core.records import Notice
from flowengine.engine.events import NodeCancelled, NodeRecorded
from flowengine.errors import JournalError
from flowengine.flow import Flow
from flowengine.journal.memory import MemoryStore
from flowengine.nodes.function import FunctionNode
from flowengine.nodes.map import MapNode
from flowengine.nodes.node import RetryPolicy, RunLimits

pytestmark = pytest.mark.anyio


@pytest.fixture(autouse=True)
def no_grace(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("flowengine.nodes.policy.GRACE", 0.01)
    monkeypatch.setattr("flowengine.core.cancellation.GRACE", 0.0)


class Stubborn:
    """Waits until it is let go, whatever is told to it meanwhile."""

    def __init__(self) -> None:
        self.begun = anyio.Event()
        self.free = anyio.Event()
        self.ended = anyio.Event()
        self.refused: Exception | None = None

    def __enter__(self) -> Stubborn:
        return self

    def __exit__(self, *error: object) -> None:
        self.free.set()  # Else the event loop of a test that failed would not end.

    async def swallow(self, context: Context) -> str:
        self.begun.set()
        while not self.free.is_set():
            try:
                await self.free.wait()
            except anyio.get_cancelled_exc_class():
                continue
        return await self._end(context)

    async def shield(self, context: Context) -> str:
        self.begun.set()
        with anyio.CancelScope(shield=True):
            await self.free.wait()
            await self._end(context)
        return "too late"

    async def hide(self, context: Context) -> str:
        """The code that ignores the cancellation is in a task that it started."""
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self.swallow, context)
        return "too late"

    async def _end(self, context: Context) -> str:
        try:
            await context.runtime.note(Notice("late"))
        except JournalError as error:
            self.refused = error
        self.ended.set()
        return "too late"


def told(context: Context) -> str | None:
    return context.error


async def sleep(context: Context) -> None:
    await anyio.sleep_forever()


WAYS: list[Callable[[Stubborn], Callable[[Context], Awaitable[Any]]]] = [
    lambda stubborn: stubborn.swallow,
    lambda stubborn: stubborn.shield,
    lambda stubborn: stubborn.hide,
]
MESSAGE = "took longer than its timeout of 0.01 s; its code ignores that it is cancelled, and was left behind"


# On trio a task ends when everything in it has ended.
only_asyncio = pytest.mark.parametrize("anyio_backend", ["asyncio"])


@only_asyncio
@pytest.mark.parametrize("way", WAYS, ids=["swallow", "shield", "hide"])
async def test_a_run_goes_on_without_a_node_that_ignores_its_timeout(way: Callable[[Stubborn], Any]):
    store = MemoryStore()
    with Stubborn() as stubborn:
        nodes = {
            "bad": FunctionNode(way(stubborn), timeout=0.01, on_error="caught"),
            "caught": FunctionNode(told),
        }
        with anyio.fail_after(30):
            run = await Flow("f", nodes).run(store=store)
        assert run.status == "succeeded", run.error
        assert run.nodes["caught"].output == MESSAGE
        before = store.events(run.id)
        notices = [each.record.text for each in before if type(each) is NodeRecorded and type(each.record) is Notice]
        assert notices == [
            "its code still ran 0.01 s after it was cancelled: it was left behind, and its result is dropped"
        ]
        stubborn.free.set()
        with anyio.fail_after(30):
            await stubborn.ended.wait()
            await anyio.wait_all_tasks_blocked()
        assert "left behind" in str(stubborn.refused)
        assert store.events(run.id) == before


@only_asyncio
async def test_a_node_that_was_left_behind_is_tried_again():
    tries = 0
    with Stubborn() as stubborn:

        async def second_time_lucky(context: Context) -> str:
            nonlocal tries
            tries += 1
            return "well" if tries == 2 else await stubborn.swallow(context)

        node = FunctionNode(second_time_lucky, timeout=1.0, retry=RetryPolicy(attempts=2, initial=0.001))
        with anyio.fail_after(30):
            run = await Flow("f", {"bad": node}).run()
        assert run.nodes["bad"].output == "well"
        stubborn.free.set()
        await stubborn.ended.wait()


@only_asyncio
async def test_what_was_left_behind_is_asked_again_to_stop(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("flowengine.nodes.abandonable_body._ASKS_AGAIN", 0.001)
    asked, gone = anyio.Event(), anyio.Event()

    async def deaf_for_a_time(context: Context) -> None:
        try:
            with anyio.CancelScope(shield=True):
                await asked.wait()
            await anyio.sleep_forever()
        finally:
            gone.set()

    with anyio.fail_after(30):
        run = await Flow("f", {"bad": FunctionNode(deaf_for_a_time, timeout=0.01)}).run()
        assert run.nodes["bad"].error == MESSAGE
        asked.set()
        await gone.wait()


@only_asyncio
@pytest.mark.parametrize("way", WAYS, ids=["swallow", "shield", "hide"])
async def test_a_cancelled_run_does_not_wait_for_a_node_with_a_timeout(way: Callable[[Stubborn], Any]):
    store = MemoryStore()
    with Stubborn() as stubborn:
        flow = Flow("f", {"bad": FunctionNode(way(stubborn), timeout=3600)})
        with anyio.fail_after(30):
            await _cancelled_once_begun(flow, store, stubborn)
        [info] = store.list()
        events = store.events(info.run_id)
        assert info.status == "cancelled"
        assert type(events[-2]) is NodeCancelled
        stubborn.free.set()
        await stubborn.ended.wait()
        assert store.events(info.run_id) == events


@only_asyncio
@pytest.mark.parametrize("inside", [False, True], ids=["alone", "in a map"])
async def test_a_cancelled_run_closes_a_node_that_swallows_its_cancellation(inside: bool):
    store = MemoryStore()
    with Stubborn() as stubborn:
        node = FunctionNode(stubborn.swallow)
        around = MapNode({"bad": node}, over=lambda context: [1], result=str) if inside else node
        with anyio.fail_after(30):
            await _cancelled_once_begun(Flow("f", {"m": around}), store, stubborn)
        [info] = store.list()
        assert info.status == "cancelled"
        cancelled = [each.node for each in store.events(info.run_id) if type(each) is NodeCancelled]
        assert cancelled == (["m[0].bad", "m"] if inside else ["m"])


@only_asyncio
async def test_a_failed_sibling_closes_a_node_that_swallows_its_cancellation():
    with Stubborn() as stubborn:

        async def fail(context: Context) -> None:
            await stubborn.begun.wait()
            raise ValueError("no")

        flow = Flow("f", {"bad": FunctionNode(stubborn.swallow), "fails": FunctionNode(fail)})
        with anyio.fail_after(30):
            run = await flow.run(limits=RunLimits(on_failure="cancel"))
        assert run.status == "failed"
        assert run.nodes["bad"].status == "cancelled"


@only_asyncio
async def test_the_timeout_of_a_map_closes_a_node_inside_that_swallows_its_cancellation():
    with Stubborn() as stubborn:
        inside = MapNode({"bad": FunctionNode(stubborn.swallow)}, over=lambda context: [1], result=str, timeout=0.01)
        with anyio.fail_after(30):
            run = await Flow("f", {"m": inside}).run()
        assert run.nodes["m"].error == "took longer than its timeout of 0.01 s"


async def test_time_limits_in_the_code_of_a_node_are_not_taken_for_its_cancellation():
    async def poll(context: Context) -> str:
        for _ in range(5):
            with anyio.move_on_after(0.001):
                await anyio.sleep_forever()
        return "polled"

    run = await Flow("f", {"poll": FunctionNode(poll), "timed": FunctionNode(poll, timeout=3600)}).run()
    assert [run.nodes[each].output for each in ("poll", "timed")] == ["polled", "polled"], run.error


async def test_a_node_that_ends_within_the_grace_keeps_its_clean_up(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("flowengine.nodes.policy.GRACE", 30.0)
    monkeypatch.setattr("flowengine.core.cancellation.GRACE", 30.0)
    cleaned: list[str] = []

    async def tidy(context: Context) -> None:
        try:
            await anyio.sleep_forever()
        finally:
            with anyio.CancelScope(shield=True):
                await anyio.lowlevel.checkpoint()
                cleaned.append("yes")

    run = await Flow("f", {"slow": FunctionNode(tidy, timeout=0.01)}).run()
    assert run.nodes["slow"].error == "took longer than its timeout of 0.01 s"
    assert cleaned == ["yes"]


async def test_the_timeout_of_the_run_is_not_taken_for_that_of_a_node():
    flow = Flow("f", {"slow": FunctionNode(sleep, timeout=3600)})
    run = await flow.run(limits=RunLimits(timeout=0.01))
    assert run.status == "failed"
    assert run.error is not None
    assert run.error.type == "LimitError"


ENDS = """
import anyio, asyncio
from flowengine.flow import Flow
from flowengine.nodes import policy
from flowengine.nodes.function import FunctionNode

policy.GRACE = 0.0

async def for_ever():
    while True:
        try:
            await asyncio.sleep(3600)
        except asyncio.CancelledError:
            pass

async def bad(context):
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(for_ever)
        await for_ever()

async def main():
    run = await Flow("f", {"bad": FunctionNode(bad, timeout=0.01)}).run()
    print(run.status)

anyio.run(main)
"""


def test_a_process_ends_although_something_was_left_behind():
    done = subprocess.run([sys.executable, "-c", ENDS], capture_output=True, text=True, timeout=60, check=False)
    assert (done.stdout, done.stderr, done.returncode) == ("failed\n", "", 0)


async def _cancelled_once_begun(flow: Flow, store: MemoryStore, stubborn: Stubborn) -> None:
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(lambda: flow.run(store=store))
        await stubborn.begun.wait()
        tasks.cancel_scope.cancel()
