"""Answers that have arrived whole when their caller is cancelled: they get on record, and the caller is cancelled."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager
from typing import Any

import anyio
import pytest

from flowengine.agents.standalone import DirectGateway
from flowengine.core.records import ModelCall
from flowengine.core.threads import post_to_this_loop as post_here
from flowengine.models.litellm.event_loop import Job, LoopThread
from flowengine.models.litellm.model import LiteLLMModel
from flowengine.models.messages import Message
from flowengine.models.model import Reply, Request, TokenUsage

pytestmark = pytest.mark.anyio

REQUEST = Request("m", ())


class Elsewhere:
    """A model that is asked in a thread of its own; `arrived` is set once its answer is on its way back."""

    name, provider = "m", "p"

    def __init__(self, thread: LoopThread) -> None:
        self._thread = thread
        self.asked = anyio.Event()
        self.may_answer = threading.Event()
        self.arrived = threading.Event()

    async def complete(self, request: Request) -> Reply:
        async def answer() -> Reply:
            await asyncio.to_thread(self.may_answer.wait, 30)
            asyncio.get_running_loop().call_soon(self.arrived.set)
            return Reply("whole", usage=TokenUsage(7, 3))

        job = self._thread.begin(answer)
        self.asked.set()
        return await job.wait()

    def stream(self, request: Request) -> AbstractAsyncContextManager[AsyncIterator[str | Reply]]:
        raise NotImplementedError

    def let_arrive(self) -> None:
        """Without letting the loop of the caller hear of it."""
        self.may_answer.set()
        assert self.arrived.wait(30)


async def test_an_answer_that_has_arrived_is_on_record_although_its_caller_is_cancelled(thread: LoopThread):
    records: list[Any] = []
    ended: list[str] = []

    async def note(record: Any) -> None:
        records.append(record)
        await anyio.lowlevel.checkpoint()
        ended.append("was not cancelled")

    model = Elsewhere(thread)
    with anyio.fail_after(30):
        async with anyio.create_task_group() as tasks:

            async def ask() -> None:
                await DirectGateway(note).complete(model, REQUEST, purpose="generation")

            tasks.start_soon(ask)
            await model.asked.wait()
            model.let_arrive()
            tasks.cancel_scope.cancel()
    assert [(type(each), each.content, each.prompt_tokens, each.completion_tokens) for each in records] == [
        (ModelCall, "whole", 7, 3)
    ]
    assert ended == []


@pytest.mark.parametrize("anyio_backend", ["asyncio"])  # Only its tasks can be cancelled by other code.
async def test_a_task_that_is_cancelled_is_so_after_what_has_arrived(thread: LoopThread):
    records: list[Any] = []

    async def note(record: Any) -> None:
        records.append(record)

    async def ask() -> None:
        await DirectGateway(note).complete(model, REQUEST, purpose="generation")
        await asyncio.sleep(60)

    model = Elsewhere(thread)
    task = asyncio.create_task(ask())
    await model.asked.wait()
    model.let_arrive()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert [each.content for each in records] == ["whole"]
    assert task.cancelling() == 1


async def test_a_call_that_is_cancelled_before_its_answer_is_aborted(thread: LoopThread):
    aborted, begun = threading.Event(), threading.Event()

    async def never() -> None:
        begun.set()
        try:
            await asyncio.sleep(3600)
        finally:
            aborted.set()

    async def ask() -> None:
        await thread.call(never)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(ask)
        assert await anyio.to_thread.run_sync(begun.wait, 30)
        tasks.cancel_scope.cancel()
    assert await anyio.to_thread.run_sync(aborted.wait, 30)


@pytest.mark.parametrize("anyio_backend", ["asyncio"])  # On trio every job is in another loop.
async def test_a_job_of_the_same_loop_gives_what_it_has():
    async def answer() -> str:
        return "whole"

    got: list[str] = []

    async def ask() -> None:
        job = Job(answer)
        asyncio.get_running_loop().call_soon(asyncio.current_task().cancel)  # type: ignore[union-attr]
        got.append(await job.wait())
        await asyncio.sleep(60)

    task = asyncio.create_task(ask())
    with pytest.raises(asyncio.CancelledError):
        await task
    assert got == ["whole"]


@pytest.mark.long
async def test_a_streamed_answer_that_has_arrived_is_handed_on(server: Any, monkeypatch: pytest.MonkeyPatch):
    complete = anyio.Event()

    def post_to_this_loop() -> Any:
        post = post_here()

        def tell(call: Any, *args: Any) -> None:
            post(call, *args)
            if call.__name__ == "close":
                post(complete.set)

        return tell

    monkeypatch.setattr("flowengine.models.litellm.model.post_to_this_loop", post_to_this_loop)
    server.respond_with(["some words"])
    model = LiteLLMModel("gpt-4o-mini", "openai", settings={"api_base": server.url, "api_key": "secret"})
    request = Request("gpt-4o-mini", (Message("user", "Why?"),))
    replies: list[Any] = []
    with anyio.CancelScope() as scope:
        async with model.stream(request) as pieces:
            await complete.wait()
            scope.cancel()
            replies.append(await anext(pieces))
            replies.extend([each async for each in pieces])
            replies.append("the loop ended")
            await anyio.lowlevel.checkpoint()
            replies.append("was not cancelled")
    assert [getattr(each, "content", each) for each in replies] == ["some words", "the loop ended"]
