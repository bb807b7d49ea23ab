"""The contexts of one agent: order, ids, tools, failures, and what they keep."""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Iterator
from typing import Any

import anyio
import anyio.to_thread
import pytest
from pydantic import BaseModel

from flowengine.agents.tools.toolset import Offer, ToolSet
from flowengine.agents.typed_contexts.manager import ContextManager
from flowengine.agents.typed_contexts.typed import ToolCallResult, TypedContext
from flowengine.core.records import ProviderFailed
from flowengine.errors import DefinitionError, RunError, StateError

RESULT = ToolCallResult("add", {"a": 1}, 2)


class Count(BaseModel):
    calls: int = 0


def counted(context: TypedContext[Count], result: ToolCallResult) -> None:
    context.update_data(calls=context.get_data().calls + 1)


def counter(id: str, **options: Any) -> TypedContext[Count]:
    return TypedContext.create(id, f"Calls seen by {id}", Count, **{"on_tool_call": counted} | options)


def failing(context: TypedContext[Count], result: ToolCallResult) -> None:
    raise LookupError("no such shelf")


async def test_all_contexts_are_rendered_in_their_order_and_silent_ones_leave_no_gap():
    manager = ContextManager([counter("b", render_prompt=lambda context: "B")])
    manager.register_context(counter("silent", render_prompt=lambda context: "  "))
    manager.register_context(counter("a", render_prompt=lambda context: "A"))
    assert await manager.render_prompt() == "B\n\nA"
    assert [(each.source, each.label) for each in await manager.fragments()] == [("context:b", "b"), ("context:a", "a")]
    assert await ContextManager().render_prompt() == ""


def test_contexts_are_found_by_their_id():
    first, second = counter("a"), counter("b")
    manager = ContextManager([first, second])
    assert manager.context_list == (first, second)
    assert manager.find_context_by_id("b") is second
    assert manager.find_context_by_id("c") is None


def test_a_second_context_of_an_id_is_refused():
    manager = ContextManager([counter("a")])
    with pytest.raises(DefinitionError, match="two typed contexts have the id 'a'"):
        manager.register_context(counter("a"))


async def test_every_context_hears_of_a_call_though_one_of_them_fails(caplog: pytest.LogCaptureFixture):
    manager = ContextManager([counter("a"), counter("broken", on_tool_call=failing), counter("z")])
    with caplog.at_level(logging.WARNING, "flowengine.typed_contexts"):
        failures = await manager.tool_called(RESULT)
    assert failures == [ProviderFailed("context:broken", "LookupError: no such shelf")]
    assert "context 'broken' failed on the call of 'add': LookupError" in caplog.text
    assert manager.dump() == {"context:a": {"calls": 1}, "context:z": {"calls": 1}}


async def test_a_handler_that_breaks_its_schema_is_a_failure_and_its_data_stay():
    def broken(context: TypedContext[Count], result: ToolCallResult) -> None:
        context.set_data({"calls": "many"})

    manager = ContextManager([counter("a", on_tool_call=broken)])
    (failure,) = await manager.tool_called(RESULT)
    assert failure.error.startswith("StateError: the data of context 'a' do not fit Count: calls")
    assert manager.dump() == {}


async def test_handlers_that_wait_are_told_one_call_at_a_time():
    async def slow(context: TypedContext[Count], result: ToolCallResult) -> None:
        before = context.get_data().calls
        await anyio.sleep(0.001)
        context.update_data(calls=before + 1)

    manager = ContextManager([counter("a", on_tool_call=slow)])
    async with anyio.create_task_group() as tasks:
        for _ in range(5):
            tasks.start_soon(manager.tool_called, RESULT)
    assert manager.dump() == {"context:a": {"calls": 5}}


def test_agents_in_other_threads_may_be_told_at_the_same_time():
    begun, may_end = threading.Event(), threading.Event()

    async def wait(context: TypedContext[Count], result: ToolCallResult) -> None:
        counted(context, result)
        begun.set()
        await anyio.to_thread.run_sync(may_end.wait)

    manager = ContextManager([counter("a", on_tool_call=wait)])

    async def tell() -> None:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(manager.tool_called, RESULT)
            await anyio.wait_all_tasks_blocked()
            may_end.set()

    threads = [
        threading.Thread(target=anyio.run, args=each, daemon=True) for each in ((manager.tool_called, RESULT), (tell,))
    ]
    for each in threads:
        each.start()
        begun.wait()
    for each in threads:
        each.join(5)
    assert not any(each.is_alive() for each in threads)
    context = manager.find_context_by_id("a")
    assert context is not None
    assert context.get_data().calls == 2


async def test_the_next_rendering_shows_what_a_call_changed():
    manager = ContextManager([counter("a", render_prompt=lambda context: f"calls: {context.get_data().calls}")])
    assert await manager.render_prompt() == "calls: 0"
    await manager.tool_called(RESULT)
    assert await manager.render_prompt() == "calls: 1"


async def test_a_context_that_cannot_be_rendered_is_an_error_that_names_it():
    def broken(context: TypedContext[Count]) -> str:
        raise KeyError("shelf")

    with pytest.raises(RunError, match="context 'a' cannot be rendered: KeyError: 'shelf'"):
        await ContextManager([counter("a", render_prompt=broken)]).render_prompt()
    with pytest.raises(RunError, match="context 'a': render_prompt must return text, not int"):
        await ContextManager([counter("a", render_prompt=lambda context: 3)]).render_prompt()


def double(number: int) -> int:
    """Twice the number."""
    return 2 * number


def test_the_sets_of_all_contexts_are_offered_but_for_the_inactive_ones():
    def sets(context: TypedContext[Count]) -> list[ToolSet]:
        used_up = context.get_data().calls > 0
        return [ToolSet("sums", "", [double], active=not used_up), ToolSet("mine", "", [], source="a file")]

    context = counter("a", tool_set=sets)
    manager = ContextManager([context, counter("b")])
    assert [(each.name, each.source) for each in manager.tool_sets()] == [("sums", "context 'a'"), ("mine", "a file")]
    assert [tool.name for tool in Offer(manager.tool_sets())] == ["double"]
    counted(context, RESULT)
    assert [tool.name for tool in Offer(manager.tool_sets())] == []


def test_what_is_no_tool_set_is_refused_with_the_contexts_id():
    with pytest.raises(DefinitionError, match="context 'a': tool_set must return ToolSets, found <function double"):
        ContextManager([counter("a", tool_set=lambda context: [double])]).tool_sets()


def test_a_tool_set_that_fails_or_is_none_of_the_kind_is_told_with_the_contexts_id():
    def broken(context: TypedContext[Count]) -> ToolSet:
        raise KeyError("shelf")

    def broken_halfway(context: TypedContext[Count]) -> Iterator[ToolSet]:
        yield ToolSet("sums", "", [double])
        raise KeyError("shelf")

    for function in (broken, broken_halfway):
        with pytest.raises(RunError, match="context 'a': tool_set failed: KeyError: 'shelf'"):
            ContextManager([counter("a", tool_set=function)]).tool_sets()
    with pytest.raises(DefinitionError, match="context 'a': tool_set must return ToolSets, found 5"):
        ContextManager([counter("a", tool_set=lambda context: 5)]).tool_sets()


@pytest.mark.parametrize("given", [None, "a", Count, Count()])
def test_what_is_no_typed_context_is_not_registered(given: Any):
    with pytest.raises(DefinitionError, match=f"a ContextManager holds TypedContexts, not {type(given).__name__}"):
        ContextManager().register_context(given)


async def test_runs_share_nothing_and_what_one_changed_loads_into_another():
    made = ContextManager([counter("a"), counter("b", on_tool_call=None)])
    first, second = made.fresh(), made.fresh()
    await first.tool_called(RESULT)
    assert (first.dump(), second.dump(), made.dump()) == ({"context:a": {"calls": 1}}, {}, {})
    kept = json.loads(json.dumps({**first.dump(), "conversation": [], "context:unknown": 3}))
    second.load(kept)
    assert second.dump() == {}, "what was loaded is no change"
    await second.tool_called(RESULT)
    assert second.dump() == {"context:a": {"calls": 2}}


def test_kept_data_that_do_not_fit_name_the_context():
    with pytest.raises(StateError, match="context 'a' do not fit Count: calls"):
        ContextManager([counter("a")]).load({"context:a": {"calls": None}})
