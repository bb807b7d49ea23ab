"""The ways in which one flow can be run: live, resumed, re-used, from the cache, exported and imported, by a worker.

Each gives what a live run gives, or the property is broken. Models are scripted: what they answer follows from the
request alone, as `think` says, which the oracle asks as well.
"""

from __future__ import annotations

import importlib.util
import json
import os
import re
import sys
from collections.abc import AsyncIterator, Awaitable, Generator, Iterable, Iterator, Sequence
from contextlib import chdir, contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

from flowengine.core.budget import Budget
from flowengine.core.user_code import is_of_project
from flowengine.engine.events import Event
from flowengine.engine.ports import JournalStore
from flowengine.errors import FlowError
from flowengine.flow import Flow
from flowengine.journal.approvals import answer, open_questions
from flowengine.journal.codec import decode, encode
from flowengine.journal.memory import MemoryStore
from flowengine.journal.run_export import pack_run, store_run, unpack_run
from flowengine.models.model import Request
from flowengine.models.scripted import Answer, ScriptedModel
from flowengine.models.wrappers.rate import limiter_for
from flowengine.nodes.node import RunLimits
from flowengine.runtime.local.local import beginning
from flowengine.runtime.queue.worker_flows import WorkerFlows
from flowengine.runtime.run import Run, RunOptions
from flowengine.testing.model_overrides import with_models
from tests.properties import world
from tests.properties.comparing import Observed, differences, observe
from tests.properties.lib_code import write_libs
from tests.properties.oracle import Meaning, mean
from tests.properties.oracle_scope import Library
from tests.properties.random_flows import Case, Given

__all__ = ["Bench", "Mismatch", "Refused", "answer_all", "raise_differences", "think"]


def think(instructions: str, text: str) -> str:
    """What a model answers: a score or a route that it is told to give, else its instructions and its input."""
    told = re.search(r"score (\d\.\d)|pick (\w+)!", instructions)
    return (told[1] or told[2]) if told else f"{instructions}<{text}>"


def _answer(request: Request) -> Answer:
    system, user = request.messages[0].content, request.messages[-1].content
    asked: Any = (request.response_schema or {}).get("properties", {})
    if "next_route" in asked:
        told = re.search(r"pick (\w+)!", " ".join(each.content for each in request.messages))
        return {"next_route": told[1] if told else "?", "confidence": 1.0, "reasoning": ""}
    if "score" in asked:
        score, criteria = float(think(system, "")), asked["criteria_scores"]["properties"]
        return {"score": score, "criteria_scores": dict.fromkeys(criteria, score), "feedback": "", "suggestions": []}
    return think(system, user.removeprefix("User input: "))


class Refused(Exception):  # noqa: N818 - of a flow that means nothing
    """The flow is none."""


class Mismatch(AssertionError):  # noqa: N818
    """A way of running gives something else than the flow means."""


Way = tuple[str, Meaning, Observed]
"""Its name, what the flow means, and what the run gave, observed before anything else happened to it."""


class Bench(NamedTuple):
    """Two project folders, whose code differs, and what the oracle calls of them."""

    folders: tuple[Path, Path]
    codes: tuple[ModuleType, ModuleType]

    @classmethod
    def make(cls, folder: Path) -> Bench:
        folders = write_libs(folder)
        first, edited = (_imported(each / "lib.py") for each in folders)
        return cls(folders, (first, edited))

    def meaning(self, case: Case, given: Given, down: frozenset[str] = frozenset()) -> Meaning:
        library = Library(self.codes[given.edited_code], self._placed(given), case.answers, think)
        world.begin(down)
        with world.standing_still():
            return mean(given.flow, given.inputs, library)

    def flow(self, given: Given) -> Flow:
        folder = self._placed(given)
        try:
            return _seated(Flow.from_text(json.dumps(given.flow), folder / "flow.yaml"))
        except FlowError as error:
            raise Refused(str(error)) from error

    def _placed(self, given: Given) -> Path:
        folder = self.folders[given.edited_code]
        for name, document in given.files.items():
            (folder / name).write_text(json.dumps(document))
        return folder

    async def check(self, case: Case) -> None:
        """Raise `Mismatch` where a way of running is not what the flow means, and say which ways those are."""
        raise_differences([each async for each in self._ways(case)])

    async def _ways(self, case: Case) -> AsyncIterator[Way]:
        first, second = case.first, case.second
        wanted, store = self.meaning(case, first), MemoryStore()
        at_first = self.meaning(case, first, case.down) if case.down else wanted
        flow = self.flow(first)
        world.begin(case.down)
        run = await _asked(flow, case, store, flow.run(first.inputs, store=store, run_id="r1"))
        yield "live", at_first, observe(run)
        events = list(run.events)
        if case.down:
            run = await _until_up(flow, case, store, run)
            yield "resumed after a failure", wanted, observe(run)
        for way, past in _pasts(events, case.cut):
            other = MemoryStore()
            await store_run(other, past)
            run = await _until_up(flow, case, other, await _resumed(flow, case, other))
            yield way, wanted, observe(run)
        if wanted.status == "succeeded" and "'model': 'offline'" in repr(first):
            calls = Budget(model_calls=1 + case.cut % 3)
            limits = RunLimits(bounds=calls, on_limit="pause")
            yield "paused at a limit and resumed", wanted, observe(await _paused(flow, case, limits))
        run = await self._worked(flow, case, store)
        yield "by a worker", wanted, observe(await _until_up(flow, case, store, run))
        run = await _asked(flow, case, store, flow.run(first.inputs, store=store, run_id="r2", reuse="r1"))
        yield "re-used", wanted, observe(await _until_up(flow, case, store, run))
        changed, meant = self.flow(second), self.meaning(case, second)
        world.begin()
        run = await _asked(changed, case, store, changed.run(second.inputs, store=store, run_id="r4"))
        yield "edited, in the same store", meant, observe(run)
        written = [encode(each) for each in store.events("r1")]
        with self._only_loaded(second):
            world.begin()
            later = MemoryStore()
            await store_run(later, [decode(each) for each in written])
            options: Any = {"store": later, "run_id": "r6", "reuse": "r1"}
            yield (
                "edited and re-used",
                meant,
                observe(await _asked(changed, case, later, changed.run(second.inputs, **options))),
            )

    @contextmanager
    def _only_loaded(self, given: Given) -> Generator[None]:
        """Only the code that is run now is loaded: a process that begins after an edit never saw the code before."""
        own = self.folders[given.edited_code] / "lib.py"
        libs = {name: each for name, each in sys.modules.items() if is_of_project(name) and name.endswith(".lib")}
        hidden = {name: each for name, each in libs.items() if Path(each.__file__ or "") != own}
        for name in hidden:
            del sys.modules[name]
        try:
            yield
        finally:
            sys.modules.update(hidden)

    async def _worked(self, flow: Flow, case: Case, store: JournalStore) -> Run:
        """As a worker of a queue does it: from the run's first event, with the flow's text and files in it."""
        world.begin()
        with chdir(self._placed(case.first)):
            settings = {"baggage": flow.plan.baggage}
            started = beginning(flow.plan, case.first.inputs, store, "r3", RunOptions(settings=settings))
            await store_run(store, [decode(encode(started))])
            carried = _seated(Flow.of(WorkerFlows(os.environ, limiter_for).load(started)))
            return await _asked(carried, case, store, carried.resume("r3", store=store))


def raise_differences(ways: Iterable[Way]) -> None:
    """Raise `Mismatch` with what is not as it is meant, for each way by its name."""
    lines: list[str] = []
    for name, meaning, seen in ways:
        found = differences(meaning, seen)
        lines += [f"{name}:", *(f"  {each}" for each in found)] if found else []
    if lines:
        raise Mismatch("\n".join(lines))


def _imported(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"oracle_{path.parent.name}", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def _seated(flow: Flow) -> Flow:
    return with_models(flow, lambda seat, settings: ScriptedModel(_answer, latency=0.0))


def _pasts(events: Sequence[Event], thousandths: int) -> Iterator[tuple[str, list[Event]]]:
    """Beginnings of a journal, as a killed process and as a file leave it."""
    cut = 1 + (len(events) - 1) * thousandths // 1000
    yield f"cut after {cut} of {len(events)} events", [decode(encode(each)) for each in events[:cut]]
    yield "exported whole and imported", unpack_run(list(pack_run(events)), "run.jsonl")


async def _asked(flow: Flow, case: Case, store: JournalStore, running: Awaitable[Run]) -> Run:
    """The run, gone on with until no person is asked any more."""
    run = await running
    while run.status == "waiting":
        await answer_all(case, store, run.id)
        run = await flow.resume(run.id, store=store)
    return run


async def answer_all(case: Case, store: JournalStore, run_id: str) -> None:
    """All questions that the run waits with are answered."""
    for path in open_questions(store.events(run_id)):
        await answer(store, run_id, path, case.answers[path.rpartition(".")[2]])


async def _resumed(flow: Flow, case: Case, store: JournalStore) -> Run:
    return await _asked(flow, case, store, flow.resume("r1", store=store))


async def _until_up(flow: Flow, case: Case, store: JournalStore, run: Run) -> Run:
    """The run, resumed for as long as something fails that was down."""
    for _ in range(len(case.down) + 1):
        if run.status != "failed":
            break
        run = await _asked(flow, case, store, flow.resume(run.id, store=store))
    return run


async def _paused(flow: Flow, case: Case, limits: RunLimits) -> Run:
    """The run, begun with limits, and gone on with without them once they were reached."""
    store = MemoryStore()
    world.begin()
    run = await flow.run(case.first.inputs, store=store, run_id="r5", limits=limits)
    while run.status in ("paused", "waiting"):
        await answer_all(case, store, run.id)
        run = await flow.resume("r5", store=store, limits=RunLimits())
    return run
