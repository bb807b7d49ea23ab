"""How a stopped run ends: by what code makes of its cancellation, by what stops it, and by where it runs."""

from __future__ import annotations

import itertools
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

import anyio
import pytest

from flowengine.core.context import Context
from flowengine.engine.events import NodeStarted, RunFinished
from flowengine.engine.ports import JournalStore
from flowengine.flow import Flow
from flowengine.journal.memory import MemoryStore
from flowengine.journal.stores import open_store
from flowengine.nodes.function import FunctionNode
from flowengine.nodes.map import MapNode
from flowengine.nodes.node import NodeLimits, RunLimits
from flowengine.runtime.local.local import new_run_id
from tests.support.postgres import empty_database


class Panic(BaseException):
    """As extension modules raise it."""


async def obeys(_: Stopped) -> str:
    await anyio.sleep_forever()
    return "never"


async def finishes(_: Stopped) -> str:
    try:
        await anyio.sleep_forever()
    except BaseException:
        return "made of it"
    return "never"


async def shields(stopped: Stopped) -> str:
    with anyio.CancelScope(shield=True):
        await stopped.free.wait()
    return "of its own"


async def swallows(_: Stopped) -> str:
    for _try in range(5):
        with suppress(BaseException):
            await anyio.sleep_forever()
    return "made of it"


async def fails(_: Stopped) -> str:
    try:
        await anyio.sleep_forever()
    except BaseException:
        raise ConnectionError("made of it") from None
    return "never"


async def panics(_: Stopped) -> str:
    try:
        await anyio.sleep_forever()
    except BaseException:
        raise Panic("made of it") from None
    return "never"


async def blocks(stopped: Stopped) -> str:
    until = time.perf_counter() + 2 * stopped.soon
    while time.perf_counter() < until:
        pass
    return "of its own"


Habit: TypeAlias = "Callable[[Stopped], Awaitable[str]]"
HABITS: Sequence[Habit] = (obeys, finishes, shields, swallows, fails, panics, blocks)
NOT_TOLD = (shields, blocks)
"""The cancellation does not reach them: they come to their end, and that counts."""
STATUSES = {"timeout": "failed", "pause": "paused", "node": "failed", "part": "failed", "failure": "failed"}
STOPS = ("cancel", "scope", "stream", *STATUSES)


@dataclass
class Stopped:
    """A flow of a node with a habit, one beside it and one behind both, which is stopped while these are at work."""

    habit: Habit
    stop: str
    is_host: bool
    store: Any
    soon: float
    """Seconds after which time limits are over."""
    run_id: str = field(default_factory=new_run_id)
    calls: list[str] = field(default_factory=list[str])
    begun: anyio.Event = field(default_factory=anyio.Event)
    free: anyio.Event = field(default_factory=anyio.Event)
    """Set some time after the stop."""
    goes_on: bool = False

    async def f(self, _: Context) -> str:
        self.calls.append("f")
        self.begun.set()
        return "of its own" if self.goes_on else await self.habit(self)

    async def g(self, _: Context) -> str:
        if not self.goes_on:
            await (self.free.wait() if self.stop in ("node", "part") else anyio.sleep_forever())
        return "beside"

    async def b(self, _: Context) -> str:
        if not self.goes_on:
            await self.begun.wait()
            raise ValueError("the sibling's")
        return "mended"

    async def z(self, context: Context) -> str:
        self.calls.append("z")
        found = context.prev_outputs["f"]
        return found if isinstance(found, str) else found[0]

    async def always(self, _: Context) -> None:
        self.calls.append("always")

    def flow(self) -> Flow:
        within = 60 if self.goes_on else self.soon
        f: Any = FunctionNode(self.f, timeout=within if self.stop == "node" else None)
        if self.stop == "part":
            limits = NodeLimits(timeout=within)
            f = MapNode({"inner": f}, over=lambda _: [1], result=lambda c: c.prev_outputs["inner"], limits=limits)
        pair = {"f": f, "g": FunctionNode(self.g)} if self.is_host else {"g": FunctionNode(self.g), "f": f}
        sibling = {"b": FunctionNode(self.b)} if self.stop == "failure" else {}
        behind = {"z": FunctionNode(self.z, needs=["f", "g", *sibling])}
        if self.stop not in ("node", "part", "failure"):  # These are failures: then clean-up is to run.
            behind["always"] = FunctionNode(self.always, needs=["f"], join="always")
        return Flow("stopped", {**pair, **sibling, **behind}, outputs={"z": lambda c: c.prev_outputs["z"]})

    async def run(self) -> None:
        flow = self.flow()
        how: dict[str, Any] = {"store": self.store, "run_id": self.run_id}
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._let_go)
            if self.stop in ("timeout", "pause"):
                end: Any = "pause" if self.stop == "pause" else "fail"
                run = await flow.run(limits=RunLimits(timeout=self.soon, on_limit=end), **how)
                assert run.error is not None
                assert f"limit of {self.soon:g} s" in run.error.message
            elif self.stop == "failure":
                await flow.run(limits=RunLimits(on_failure="cancel"), **how)
            elif self.stop == "stream":
                async with flow.stream(**how):
                    await self.begun.wait()
            elif self.stop == "cancel":
                async with anyio.create_task_group() as inner:
                    inner.start_soon(lambda: flow.run(**how))
                    await self.begun.wait()
                    inner.cancel_scope.cancel()
            elif self.stop == "scope":
                with anyio.move_on_after(self.soon):
                    await flow.run(**how)
            else:
                await flow.run(**how)
            tasks.cancel_scope.cancel()

    async def _let_go(self) -> None:
        await self.begun.wait()
        await anyio.sleep(2 * self.soon)
        self.free.set()

    async def check(self) -> None:
        """Stop it and go on with it: what is on record, what ran, and that it gives what an undisturbed run gives."""
        await self.run()
        if not self.begun.is_set():
            return
        events = self.store.events(self.run_id)
        [end] = [each for each in events if isinstance(each, RunFinished)]
        assert end == events[-1]
        is_told = self.habit not in NOT_TOLD
        if self.stop == "part" and not is_told and end.status == "succeeded":
            return  # The part has come to its end before its limit was told to anything in it.
        assert end.status == STATUSES.get(self.stop, "cancelled")
        started = [each.node for each in events if isinstance(each, NodeStarted)]
        assert "z" not in started
        if self.habit is not blocks or self.stop not in ("cancel", "stream"):  # It blocked those who were to stop it.
            assert "always" not in started
        self.goes_on = True
        run = await self.flow().resume(self.run_id, store=self.store, limits=RunLimits(), allow_changed=True)
        assert run.status == "succeeded", run.error
        assert run.outputs == {"z": "of its own"}
        assert self.calls.count("z") == 1
        assert self.calls.count("f") == (2 if is_told or self.stop == "node" else 1)


EVERYWHERE = tuple(itertools.product(STOPS, (True, False)))
ALTERNATELY = tuple((stop, number % 2 == 0) for number, stop in enumerate(STOPS))
"""Half of them: trio's events are read as a part of the code, which takes ten times as long as a run."""


def check_all(
    habit: Habit,
    backend: str,
    make_store: Callable[[int], JournalStore],
    soon: float,
    stops: Sequence[tuple[str, bool]] = EVERYWHERE,
) -> None:
    for number, (stop, is_host) in enumerate(stops):
        store, begun, within = make_store(number), False, soon
        while not begun:  # On a busy machine a time limit may be over before there is anything to stop.
            stopped = Stopped(habit, stop, is_host, store, within)
            try:
                anyio.run(stopped.check, backend=backend)
            except BaseException as error:
                error.add_note(f"stopped by {stop}, in the {'host' if is_host else 'hired'} worker")
                raise
            begun, within = stopped.begun.is_set(), 2 * within
        store.close()


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
@pytest.mark.parametrize("habit", HABITS, ids=lambda each: each.__name__)
def test_a_stopped_run_says_so_starts_nothing_more_and_goes_on_as_if_undisturbed(habit: Habit, backend: str):
    check_all(habit, backend, lambda _: MemoryStore(), 0.01, EVERYWHERE if backend == "asyncio" else ALTERNATELY)


@pytest.mark.long
@pytest.mark.parametrize("backend", ["asyncio", "trio"])
@pytest.mark.parametrize("kind", ["sqlite", "postgresql"])
@pytest.mark.parametrize("habit", HABITS, ids=lambda each: each.__name__)
def test_so_does_one_on_a_disk_or_a_server(habit: Habit, kind: str, backend: str, tmp_path: Path):
    url = "" if kind == "sqlite" else empty_database()
    check_all(habit, backend, lambda number: open_store(url or f"sqlite:///{tmp_path}/{number}.db"), 0.2)
