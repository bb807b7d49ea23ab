"""Functions of users that raise what no function should, or end too late; and how many of them run at once."""

from __future__ import annotations

import asyncio
import sys
import threading
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, cast

import anyio
import pytest

from flowengine.core import argument_kinds
from flowengine.core.context import Context, GivenRuntime, NodeResult
from flowengine.core.records import Retry, Waited
from flowengine.engine.events import NodeRecorded
from flowengine.errors import RunError
from flowengine.flow import Flow
from flowengine.journal.memory import MemoryStore
from flowengine.nodes.function import FunctionNode
from flowengine.nodes.map import MapNode
from flowengine.nodes.node import FlowNode, RetryPolicy, RunLimits, check_result
from flowengine.nodes.policy import wrap_node

pytestmark = pytest.mark.anyio


class SpeechlessError(Exception):
    def __str__(self) -> str:
        raise KeyError("no text")


def speechless(context: Context) -> None:
    raise SpeechlessError


def generator_exit(context: Context) -> None:
    raise GeneratorExit


def keyboard_interrupt(context: Context) -> None:
    raise KeyboardInterrupt


def leave(context: Context) -> None:
    sys.exit(3)


def cancelled(context: Context) -> None:
    raise asyncio.CancelledError


async def speechless_on_the_loop(context: Context) -> None:
    raise SpeechlessError


async def generator_exit_at_once(context: Context) -> None:
    raise GeneratorExit


async def generator_exit_later(context: Context) -> None:
    await anyio.lowlevel.checkpoint()
    raise GeneratorExit


async def leave_later(context: Context) -> None:
    await anyio.lowlevel.checkpoint()
    sys.exit(3)


class Panic(BaseException):
    """As extension modules raise it."""


async def panic(context: Context) -> None:
    raise Panic


async def panic_later(context: Context) -> None:
    await anyio.lowlevel.checkpoint()
    raise Panic


async def panic_in_a_group(context: Context) -> None:
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(panic_later, context)


CODE: list[tuple[Callable[[Context], Any], str]] = [
    (panic, "Panic"),
    (panic_later, "Panic"),
    (panic_in_a_group, "BaseExceptionGroup"),
    (speechless, "SpeechlessError"),
    (generator_exit, "GeneratorExit"),
    (keyboard_interrupt, "KeyboardInterrupt"),
    (leave, "SystemExit"),
    (cancelled, "CancelledError"),
    (speechless_on_the_loop, "SpeechlessError"),
    (generator_exit_at_once, "GeneratorExit"),
    (generator_exit_later, "GeneratorExit"),
    (leave_later, "SystemExit"),
]


@pytest.mark.parametrize(("function", "error"), CODE, ids=[each.__name__ for each, _ in CODE])
async def test_whatever_a_function_raises_is_its_nodes_failure(function: Callable[[Context], Any], error: str):
    flow = Flow(
        "f",
        {
            "bad": FunctionNode(function, on_error="caught", retry=RetryPolicy(attempts=2, initial=0.001)),
            "caught": FunctionNode(lambda context: context.error),
        },
    )
    run = await flow.run()
    assert run.status == "succeeded", run.error
    assert str(run.nodes["caught"].output).startswith(error)


async def test_a_run_that_begins_in_a_cancelled_task_is_not_stopped_by_that():
    """As where an application cleans up: only asyncio counts what a task was cancelled for."""

    async def bounded(context: Context) -> str:
        with anyio.move_on_after(0.001):
            await anyio.sleep_forever()
        return "done"

    async def clean_up() -> None:
        try:
            await anyio.sleep_forever()
        except BaseException:
            with anyio.CancelScope(shield=True):
                found.append((await Flow("f", {"a": FunctionNode(bounded)}).run()).status)
            raise

    found: list[str] = []
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(clean_up)
        await anyio.wait_all_tasks_blocked()
        tasks.cancel_scope.cancel()
    assert found == ["succeeded"]


@pytest.mark.parametrize("anyio_backend", ["asyncio"])  # Only its tasks can be cancelled by other code.
async def test_a_cancellation_that_a_function_awaited_is_its_failure_and_not_the_runs():
    async def wait_for_a_cancelled_task(context: Context) -> None:
        task = asyncio.ensure_future(asyncio.sleep(60))
        task.cancel()
        await task

    run = await Flow("f", {"bad": FunctionNode(wait_for_a_cancelled_task)}).run()
    assert run.status == "failed"
    assert run.error is not None
    assert run.error.type == "CancelledError"


async def wait_long(context: Context) -> None:
    await anyio.sleep(2)


async def cancel_scope_of(run: Callable[[], Awaitable[Any]]) -> None:
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(run)
        await anyio.wait_all_tasks_blocked()
        tasks.cancel_scope.cancel()


async def cancel_task_of(run: Callable[[], Awaitable[Any]]) -> None:
    task = asyncio.ensure_future(run())
    await anyio.wait_all_tasks_blocked()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


@pytest.mark.parametrize("anyio_backend", ["asyncio"])  # Only its tasks can be cancelled without a scope.
@pytest.mark.parametrize("cancel", [cancel_scope_of, cancel_task_of])
async def test_a_cancelled_node_is_not_tried_again(cancel: Callable[[Callable[[], Awaitable[Any]]], Awaitable[None]]):
    flow, store = Flow("f", {"a": FunctionNode(wait_long, retry=RetryPolicy(initial=0))}), MemoryStore()
    await cancel(lambda: flow.run(store=store, run_id="r"))
    assert [type(each).__name__ for each in store.events("r")] == [
        "RunStarted",
        "NodeStarted",
        "NodeCancelled",
        "RunFinished",
    ]
    assert [each.status for each in store.list()] == ["cancelled"]


async def test_a_node_that_ends_well_after_its_time_was_up_has_failed():
    async def stubborn(context: Context) -> str:
        try:
            await anyio.sleep_forever()
        except anyio.get_cancelled_exc_class():
            return "done all the same"

    run = await Flow("f", {"slow": FunctionNode(stubborn, timeout=0.01)}).run()
    assert run.nodes["slow"].error == "took longer than its timeout of 0.01 s"


async def test_as_many_plain_functions_run_at_once_as_the_run_may_have_nodes_in_flight():
    together = threading.Barrier(60)

    def meet(context: Context) -> None:
        together.wait(30)

    nodes = {f"n{number}": FunctionNode(meet) for number in range(60)}
    for limits in (None, RunLimits(concurrency=60)):
        run = await Flow("f", nodes).run(limits=limits)
        assert run.status == "succeeded", run.error


async def test_functions_of_runs_in_one_process_do_not_wait_for_one_another():
    together = threading.Barrier(60)

    def meet(context: Context) -> None:
        together.wait(30)

    flow = Flow("f", {f"n{number}": FunctionNode(meet) for number in range(20)})
    async with anyio.create_task_group() as tasks:
        for _ in range(3):
            tasks.start_soon(flow.run)


async def test_at_most_so_many_threads_of_a_run_are_at_work_at_once(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("flowengine.core.run_scope.DEFAULT_THREADS", 2)
    busy, most = 0, 0
    lock = threading.Lock()

    def work(context: Context) -> None:
        nonlocal busy, most
        with lock:
            busy += 1
            most = max(most, busy)
        threading.Event().wait(0.02)
        with lock:
            busy -= 1

    over = MapNode({"work": FunctionNode(work)}, over=lambda context: list(range(24)), result=str)
    run = await Flow("f", {"m": over}).run()
    assert run.status == "succeeded", run.error
    assert most == 2
    waits = [each.record for each in run.events if isinstance(each, NodeRecorded) and type(each.record) is Waited]
    assert max(waits, default=Waited(0)).seconds >= 0.01, "items wait for a thread, and their records say how long"


@pytest.mark.long
async def test_waiting_for_a_thread_does_not_count_against_a_nodes_timeout(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("flowengine.core.run_scope.DEFAULT_THREADS", 2)

    def hold(context: Context) -> None:
        threading.Event().wait(2.5)

    quick = FunctionNode(lambda context: 1, timeout=2.0)
    run = await Flow("f", {"one": FunctionNode(hold), "two": FunctionNode(hold), "quick": quick}).run()
    assert run.status == "succeeded", run.error


async def test_a_node_that_failed_a_thousand_times_before_it_was_interrupted_is_tried_again() -> None:
    tries = iter([ValueError("not yet"), None])

    def work(_: Context) -> int:
        if (error := next(tries)) is not None:
            raise error
        return 1

    failed = [Retry(number, "no", 0.0) for number in range(1, 1101)]
    node = wrap_node(FunctionNode(work, retry=RetryPolicy(attempts=2000, max=0)))
    result = await node.run(Context(runtime=GivenRuntime(recorded=failed)))
    assert isinstance(result, NodeResult)
    assert result.output == 1


class Chooser(FlowNode):
    kind = "chooser"

    def __init__(self, result: NodeResult) -> None:
        super().__init__()
        self.result = result

    @property
    def routes(self) -> Mapping[str, str | None]:
        return {"left": None, "right": None}

    async def run(self, context: Context, /) -> NodeResult:
        return self.result


def function_of(result: NodeResult) -> FunctionNode:
    def give(context: Context) -> NodeResult:
        return result

    return FunctionNode(give)


@pytest.mark.parametrize(
    ("node", "result", "error"),
    [
        (function_of, NodeResult(1, route="x"), "route='x'): the node's kind has no routes; a condition chooses"),
        (
            function_of,
            NodeResult(1, state=cast("Any", 5)),
            "state must be a mapping of texts to values or None, not int 5",
        ),
        (Chooser, NodeResult(1, route="lefd"), "the node's routes are: left, right; did you mean 'left'?"),
        (Chooser, NodeResult(1, evaluation=cast("Any", 0.9)), "evaluation must be an EvaluationResult, a Failed"),
    ],
)
async def test_a_result_that_the_run_cannot_use_fails_its_node(
    node: Callable[[NodeResult], FlowNode], result: NodeResult, error: str
):
    run = await Flow("f", {"a": node(result)}).run()
    assert run.status == "failed"
    assert error in (run.nodes["a"].error or "")


async def test_a_nodes_own_kind_may_choose_between_its_routes():
    run = await Flow("f", {"a": Chooser(NodeResult(1, route="left"))}).run()
    assert run.outputs == {"a": 1}


def test_a_result_with_an_output_and_state_is_taken_without_reading_annotations() -> None:
    read: set[str] = set()
    sys.setprofile(lambda frame, event, argument: read.add(frame.f_code.co_filename) if event == "call" else None)
    try:
        check_result(NodeResult(1, state={"counter": 2}), {})
    finally:
        sys.setprofile(None)
    assert argument_kinds.__file__ not in read


@pytest.mark.parametrize(
    ("field", "value"),
    [("state", {"a": 1, 2: 3}), ("routing", 1), ("evaluation", 1), ("prompt", 1), ("kept", 1), ("given", 1)],
)
def test_a_field_of_another_kind_is_refused_also_beside_an_output(field: str, value: object) -> None:
    with pytest.raises(RunError, match=f"NodeResult: {field} must be "):
        check_result(NodeResult(1)._replace(**{field: value}), {})
