"""Answers to approvals of runs that are at work: kept beside them, and taken in by their owner while it works."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread
import pytest

from flowengine import Flow, FunctionNode
from flowengine.core.context import Context
from flowengine.core.records import Answered
from flowengine.engine.events import Event, NodeFinished, NodeRecorded, NodeStarted
from flowengine.engine.ports import JournalStore
from flowengine.errors import ApprovalError, RunBusyError
from flowengine.journal.approvals import Given, answer, keep_answer, open_questions, times_asked
from flowengine.journal.memory import MemoryStore
from flowengine.journal.sqlite.store import SQLiteStore
from flowengine.journal.stores import open_store
from flowengine.nodes.approval import ApprovalNode
from flowengine.nodes.loop import LoopNode
from flowengine.nodes.map import MapNode
from flowengine.nodes.node import FlowNode
from tests.support.postgres import empty_database

pytestmark = pytest.mark.anyio

LONG = 20.0
BEFORE = Path(__file__).with_name("stores_made_before")


@pytest.fixture(params=["memory", "sqlite", "postgresql", "sqlite made before", "postgresql made before"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[JournalStore]:
    """Each kind of store; those made before were written when answers were not kept."""
    if request.param == "memory":
        made: JournalStore = MemoryStore()
    elif request.param.startswith("sqlite"):
        if request.param.endswith("before"):
            import sqlite3

            connection = sqlite3.connect(tmp_path / "runs.db")
            connection.executescript((BEFORE / "sqlite_1.sql").read_text())
            connection.close()
        made = open_store(str(tmp_path / "runs.db"))
    else:
        import psycopg

        url = empty_database()
        if request.param.endswith("before"):
            with psycopg.connect(url, autocommit=True) as connection:
                connection.execute((BEFORE / "postgres_2.sql").read_text().encode())
        made = open_store(url)
    yield made
    made.close()


def ask(message: str = "Ship it?", **settings: Any) -> ApprovalNode:
    return ApprovalNode(lambda context: message, {"yes": "publish", "no": None}, **settings)


class Work:
    """A flow with an approval, what follows it, and a branch beside that works until `done` is set."""

    def __init__(self, **asked: Any) -> None:
        self.begun = anyio.Event()
        self.done = anyio.Event()
        self.published = anyio.Event()
        nodes: dict[str, FlowNode] = {
            "sign_off": ask(**asked),
            "publish": FunctionNode(self._publish),
            "beside": FunctionNode(self._work),
        }
        self.flow = Flow("release", nodes)

    async def _publish(self, context: Context) -> str:
        self.published.set()
        return "out"

    async def _work(self, context: Context) -> str:
        self.begun.set()
        await self.done.wait()
        return "worked"


def _is_there(store: JournalStore) -> bool:
    return any(info.run_id == "r" for info in store.list())


async def until(store: JournalStore, found: Callable[[Sequence[Event]], Any]) -> None:
    """Wait until a run that is at work has come so far."""
    with anyio.fail_after(LONG):
        while not (_is_there(store) and found(store.events("r"))):  # noqa: ASYNC110 - seen as from another process
            await anyio.sleep(0.01)


async def test_what_follows_an_answered_approval_runs_while_another_branch_works(store: JournalStore) -> None:
    work = Work()
    with anyio.fail_after(LONG):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(lambda: work.flow.run(store=store, run_id="r"))
            await work.begun.wait()
            await until(store, open_questions)
            given = await answer(store, "r", None, "yes", by="ann")
            assert given == Given("sign_off", f"process {os.getpid()}")
            await work.published.wait()
            assert not work.done.is_set()
            with pytest.raises(ApprovalError, match="was answered already: 'yes' by ann"):
                await answer(store, "r", "sign_off", "no")
            work.done.set()
    run = await work.flow.resume("r", store=store)
    assert run.status == "succeeded"
    assert run.nodes["sign_off"].output == {"choice": "yes", "comment": "", "by": "ann", "form": None}
    records = [each.record for each in run.events if isinstance(each, NodeRecorded) and each.node == "sign_off"]
    assert [type(record).__name__ for record in records] == ["ApprovalRequested", "Answered"]
    assert store.recall("answer", "r") is None


async def test_an_answer_that_does_not_fit_is_refused_while_the_run_works() -> None:
    store, work = MemoryStore(), Work()
    with anyio.fail_after(LONG):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(lambda: work.flow.run(store=store, run_id="r"))
            await until(store, open_questions)
            with pytest.raises(ApprovalError, match="did you mean 'yes'"):
                await answer(store, "r", None, "yess")
            with pytest.raises(ApprovalError, match="waits for no answer"):
                await answer(store, "r", "beside", "yes")
            assert store.recall("answer", "r") is None
            tasks.cancel_scope.cancel()


@pytest.mark.parametrize("wrong", [{"node": 5}, {"choice": 5}, {"comment": 5}, {"by": 5}, {"by": None}])
async def test_an_answer_that_readers_would_take_for_damage_is_not_written(wrong: Any, tmp_path: Path) -> None:
    store = open_store(str(tmp_path / "runs.db"))
    flow = Flow("f", {"sign_off": ask(), "publish": FunctionNode(lambda context: None)})
    assert (await flow.run(store=store, run_id="r")).status == "waiting"
    given: Any = {"node": None, "choice": "yes", **wrong}
    (name,) = wrong
    with pytest.raises(ApprovalError, match=f"{name} must be a text"):
        await answer(store, "r", **given)
    assert (await flow.approve("r", None, "yes", store=store)).status == "succeeded"
    store.close()


async def test_python_gets_the_run_as_it_is_where_its_owner_takes_the_answer_in() -> None:
    store, work = MemoryStore(), Work()
    with anyio.fail_after(LONG):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(lambda: work.flow.run(store=store, run_id="r"))
            await until(store, open_questions)
            run = await work.flow.approve("r", None, "yes", store=store)
            assert run.status == "running"
            await work.published.wait()
            work.done.set()


async def test_an_answer_from_another_thread_wakes_the_owner(tmp_path: Path) -> None:
    url, work = str(tmp_path / "runs.db"), Work()

    def give() -> Given:
        other = open_store(url)
        try:
            return anyio.run(answer, other, "r", None, "yes")
        finally:
            other.close()

    store = open_store(url)
    with anyio.fail_after(LONG):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(lambda: work.flow.run(store=store, run_id="r"))
            await until(store, open_questions)
            assert (await anyio.to_thread.run_sync(give)).writer
            await work.published.wait()
            work.done.set()
    store.close()


async def test_of_two_answers_at_once_the_first_one_counts(store: JournalStore) -> None:
    work = Work()
    with anyio.fail_after(LONG):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(lambda: work.flow.run(store=store, run_id="r"))
            await until(store, open_questions)
            asked = times_asked(store.events("r"))["sign_off"]
            keep_answer(store, "r", "sign_off", asked, Answered("no", by="ann"))
            with pytest.raises(ApprovalError, match="was answered already: 'no' by ann"):
                keep_answer(store, "r", "sign_off", asked, Answered("yes", by="bob"))
            work.done.set()
    run = await work.flow.resume("r", store=store)  # The owner looked when nothing else could run.
    assert (run.status, run.nodes["publish"].cause) == ("succeeded", "not_selected")


async def test_an_answer_that_a_dead_owner_left_is_taken_in_by_the_next_one() -> None:
    store = MemoryStore()
    work = Work()
    work.done.set()
    assert (await work.flow.run(store=store, run_id="r")).status == "waiting"
    asked = times_asked(store.events("r"))["sign_off"]
    keep_answer(store, "r", "sign_off", asked, Answered("yes", by="ann"))
    with pytest.raises(ApprovalError, match="was answered already: 'yes' by ann"):
        await answer(store, "r", "sign_off", "no")
    assert (await work.flow.resume("r", store=store)).status == "succeeded"


async def test_an_answer_to_an_earlier_question_is_not_taken_for_a_later_one() -> None:
    store, work = MemoryStore(), Work()
    work.done.set()
    await work.flow.run(store=store, run_id="r")
    keep_answer(store, "r", "sign_off", times_asked(store.events("r"))["sign_off"] - 60, Answered("no"))
    assert (await work.flow.resume("r", store=store)).status == "waiting"
    await answer(store, "r", None, "yes")
    assert (await work.flow.resume("r", store=store)).nodes["publish"].status == "succeeded"


async def test_answers_inside_of_containers_are_taken_in_while_other_items_and_branches_work(
    store: JournalStore,
) -> None:
    done, passed = anyio.Event(), anyio.Event()
    counted: list[str] = []

    async def count(context: Context) -> str:
        counted.append(str(context.current_node))
        return "counted"

    async def last(context: Context) -> str:
        if str(context.current_node).startswith("loop.round[1].m[1]"):
            passed.set()
        return "last"

    async def work(context: Context) -> str:
        await done.wait()
        return "worked"

    inner = MapNode(
        {"first": FunctionNode(count), "ok": ApprovalNode(lambda context: "?", {"yes": "last"}, needs=["first"]),
         "last": FunctionNode(last)},
        over=lambda context: [1, 2], name="item",
    )  # fmt: skip
    loop = LoopNode({"m": inner}, max_iterations=2)
    flow = Flow("deep", {"loop": loop, "beside": FunctionNode(work)})
    with anyio.fail_after(LONG):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(lambda: flow.run(store=store, run_id="r"))
            for number in range(2):
                for item in (1, 0) if number == 0 else (0, 1):
                    path = f"loop.round[{number}].m[{item}].ok"
                    await until(store, lambda events, path=path: path in open_questions(events))
                    await answer(store, "r", path, "yes")
            await passed.wait()
            await until(store, lambda events: [e for e in events if type(e) is NodeFinished and e.node == "loop"])
            assert not done.is_set()
            done.set()
    run = await flow.resume("r", store=store)
    assert run.status == "succeeded"
    assert len(counted) == 4  # Nothing that had finished ran again.
    assert sum(type(getattr(each, "record", None)).__name__ == "ApprovalRequested" for each in run.events) == 4


async def test_a_run_that_is_cancelled_takes_no_answer() -> None:
    store, work = MemoryStore(), Work()
    with anyio.move_on_after(LONG) as scope:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(lambda: work.flow.run(store=store, run_id="r"))
            await until(store, open_questions)
            tasks.cancel_scope.cancel()
    assert not scope.cancelled_caught
    with pytest.raises(ApprovalError, match="was cancelled"):
        await answer(store, "r", "sign_off", "yes")


FLOW = """
flowengine: v1
name: release
nodes:
  sign_off:
    type: approval
    message: Release it?
    routes: {ship: announce, hold: {}}
  announce: {type: function, call: "work:announce"}
  beside: {type: function, call: "work:work"}
"""
WORK = """
import time
from functools import partial
from pathlib import Path

def announce():
    Path("announced").touch()
    return "out"

def work():
    while not Path("go").exists():
        time.sleep(0.02)
    return "worked"
"""


@pytest.mark.long
@pytest.mark.parametrize("extra", [(), ("--no-resume",)])
def test_the_command_line_keeps_an_answer_for_the_process_that_writes_the_run(
    tmp_path: Path, extra: Sequence[str]
) -> None:
    (tmp_path / "release.yaml").write_text(FLOW)
    (tmp_path / "work.py").write_text(WORK)
    command = [sys.executable, "-m", "flowengine"]
    url = str(tmp_path / "runs.db")
    owner = subprocess.Popen(
        [*command, "run", "release.yaml", "--run-id", "r", "--store", url],
        cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    store = open_store(url)

    async def asked() -> None:
        with anyio.fail_after(LONG):
            while not (_is_there(store) and open_questions(store.events("r"))):
                assert owner.poll() is None, owner.communicate()
                await anyio.sleep(0.02)

    anyio.run(asked)
    said = subprocess.run(
        [*command, "approve", "r", "sign_off", "--choice", "ship", "--store", url, *extra],
        cwd=tmp_path, capture_output=True, text=True, check=False,
    )  # fmt: skip
    (tmp_path / "go").touch()
    told = owner.communicate(timeout=LONG)
    assert (said.returncode, f"kept; the process {owner.pid} that writes the run takes it in" in said.stderr) == (
        0,
        True,
    ), said
    assert (owner.returncode, (tmp_path / "announced").exists()) == (0, True), told
    store.close()


def test_a_store_says_who_writes_a_run() -> None:
    store = MemoryStore()
    store.create("r").append(NodeStarted("a", 1.0))
    with pytest.raises(RunBusyError) as caught:
        store.open("r")
    assert caught.value.writer == f"process {os.getpid()}"


@pytest.mark.parametrize("kind", ["sqlite", "postgresql"])
async def test_of_answers_of_several_processes_one_counts_and_the_others_are_refused(kind: str, tmp_path: Path) -> None:
    url = str(tmp_path / "runs.db") if kind == "sqlite" else empty_database()
    flow = Flow("f", {"ask": ApprovalNode(lambda context: "Ship it?", {"yes": None})})
    people, refused, taken = ["ann", "bob", "cy", "di"], list[str](), list[str]()
    with contextlib.ExitStack() as stack:
        stores = [stack.enter_context(contextlib.closing(open_store(url))) for _ in people]
        for round_ in range(5):
            assert (await flow.run(store=stores[0], run_id=f"r{round_}")).status == "waiting"
            taken.clear()
            at_once = threading.Barrier(len(people))

            def give(store: JournalStore, by: str, run_id: str, at_once: threading.Barrier) -> None:
                at_once.wait(LONG)
                try:
                    anyio.run(partial(answer, store, run_id, "ask", "yes", by=by))
                    taken.append(by)
                except ApprovalError as error:
                    refused.append(str(error))

            async with anyio.create_task_group() as tasks:
                for each in zip(stores, people, strict=True):
                    tasks.start_soon(anyio.to_thread.run_sync, partial(give, *each, f"r{round_}", at_once))
            events = stores[0].events(f"r{round_}")
            given = [each.record for each in events if isinstance(each, NodeRecorded)]
            assert [each.by for each in given if type(each) is Answered] == taken
            assert stores[0].recall("answer", f"r{round_}") is None
    assert len(refused) == 15
    assert all("was answered already: 'yes' by " in each for each in refused)


async def test_an_answer_that_another_process_keeps_is_taken_in_when_a_node_ends() -> None:
    store, work = MemoryStore(), Work()

    async def keep(context: Context) -> None:
        await until(store, open_questions)
        asked = times_asked(store.events("r"))["sign_off"]
        keep_answer(store, "r", "sign_off", asked, Answered("yes"))  # Nobody is woken by it.
        await anyio.sleep(0.3)  # So long after the last look there is another one.

    nodes = {**work.flow.plan.definitions, "keep": FunctionNode(keep)}
    with anyio.fail_after(LONG):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(lambda: Flow("release", nodes).run(store=store, run_id="r"))
            await work.published.wait()
            assert not work.done.is_set()
            work.done.set()


@pytest.mark.parametrize("is_taken_in", [False, True])
async def test_an_answer_whose_form_equals_no_copy_of_itself_is_taken(is_taken_in: bool, tmp_path: Path) -> None:
    ask = ApprovalNode(lambda context: "How much?", {"yes": None}, form={"type": "object"})
    flow, path = Flow("f", {"ask": ask}), tmp_path / "runs.db"

    class Overtaken(SQLiteStore):
        def revise(self, kind: str, key: str, change: Callable[[Any], Any], /) -> None:
            super().revise(kind, key, change)
            if is_taken_in and kind == "answer" and self.recall(kind, key) is not None:
                owner = threading.Thread(target=anyio.run, args=[partial(flow.resume, key, store=str(path))])
                owner.start()
                owner.join(LONG)

    with contextlib.closing(Overtaken(path)) as store:
        await flow.run(store=store, run_id="r")
        assert await answer(store, "r", "ask", "yes", form={"much": float("nan")}) == Given("ask")
        assert (await flow.resume("r", store=store)).status == "succeeded"
