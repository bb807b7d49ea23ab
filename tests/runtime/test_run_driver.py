"""Runs of this process: begun once the store has them, put back or cancelled at the end."""

from __future__ import annotations

from typing import Any

import anyio
import pytest

from flowengine.core.context import NodeResult
from flowengine.engine.events import Event
from flowengine.engine.ports import Journal, JournalStore
from flowengine.errors import StoreUnavailableError
from flowengine.flow import Flow
from flowengine.journal.memory import MemoryStore
from flowengine.journal.stores import TeeStore
from flowengine.nodes.function import FunctionNode
from flowengine.runtime.driven_run import DrivenRun
from flowengine.runtime.run import Run
from flowengine.runtime.run_driver import Admission, RunDriver, StoppingError
from flowengine.web.app import make_app
from flowengine.web.service.flow_service import FlowService


class GatedStore(TeeStore):
    """Runs in memory, which has what was written when a gate opens, or fails to take it."""

    def __init__(self, failure: Exception | None = None) -> None:
        super().__init__(MemoryStore(), lambda event: None)
        self.asked = anyio.Event()
        """The first commit is on its way."""
        self.gate = anyio.Event()
        self.failure = failure

    def create(self, run_id: str, /) -> Journal:
        return _GatedJournal(super().create(run_id), self)


class _GatedJournal:
    def __init__(self, journal: Journal, store: GatedStore) -> None:
        self._journal, self._store = journal, store
        self._waiting: list[Event] = []

    def append(self, event: Event, /) -> None:
        self._waiting.append(event)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._journal, name)

    async def commit(self, alone: bool = True, /) -> None:
        self._store.asked.set()
        await self._store.gate.wait()
        if self._store.failure is not None:
            raise self._store.failure
        for event in self._waiting:
            self._journal.append(event)
        self._waiting.clear()

    async def close(self) -> None:
        if self._store.gate.is_set():
            await self.commit()
        await self._journal.close()


def _flow() -> Flow:
    return Flow("say", {"say": FunctionNode(lambda context: NodeResult(output="oh"))})


async def _begin_in_viewer(store: JournalStore, ids: list[str]) -> None:
    app = make_app(store, [_flow()])
    async with app.router.lifespan_context(app):
        ids.append(await app.state.parts.acts.start("say", {}))


async def _begin_in_service(store: JournalStore, ids: list[str]) -> None:
    async with FlowService(store, [_flow()]) as service:
        ids.append((await service.start("say", {})).run_id)


BEGIN = pytest.mark.parametrize("begin", [_begin_in_viewer, _begin_in_service])


@BEGIN
async def test_the_id_of_a_run_is_told_once_the_store_has_it(begin: Any) -> None:
    store, ids = GatedStore(), list[str]()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(begin, store, ids)
        await store.asked.wait()
        await anyio.wait_all_tasks_blocked()
        assert ids == []
        store.gate.set()
    assert [info.run_id for info in store.list()] == ids


@BEGIN
async def test_a_run_that_could_not_be_kept_was_not_begun(begin: Any) -> None:
    store = GatedStore(StoreUnavailableError("the disk is full"))
    store.gate.set()
    with pytest.raises(Exception) as caught:
        await begin(store, [])
    error = caught.value
    while isinstance(error, ExceptionGroup):  # Of the lifespan's tasks.
        [error] = error.exceptions
    assert isinstance(error, StoreUnavailableError)


async def test_one_that_is_cancelled_before_the_store_has_it_was_not_begun() -> None:
    store, ids = GatedStore(), list[str]()
    app = make_app(store, [_flow()])
    async with app.router.lifespan_context(app), anyio.create_task_group() as tasks:

        async def start() -> None:
            with pytest.raises(Exception, match="was cancelled before it began"):
                ids.append(await app.state.parts.acts.start("say", {}, run_id="r"))

        tasks.start_soon(start)
        await store.asked.wait()
        assert await app.state.parts.acts.driver.cancel("r")
    assert ids == []


async def test_a_run_that_was_about_to_begin_when_the_server_stopped_does_not_hold_it_up() -> None:
    store = MemoryStore()
    driver = RunDriver(store, Admission(), lambda what, error: None)
    async with anyio.create_task_group() as tasks:
        driver.begin(tasks)
        driven = driver.reserve("r", "quick")
        driven.journal = driven.store.create("r")
        tasks.start_soon(driver.end, 0)
        await anyio.wait_all_tasks_blocked()
        await driver.launch(driven, _never)
    assert isinstance(driven.failure, StoppingError)
    assert driver.find("r") is None


async def _never(driven: DrivenRun) -> Run:
    raise AssertionError("nothing is begun after the end")
