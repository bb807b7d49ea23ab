"""The service of flows without HTTP: keys, attaching, taking turns, stopping, and what goes on at the next start."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import anyio
import anyio.from_thread
import anyio.to_thread
import pytest

from flowengine.core.budget import Budget
from flowengine.core.context import Context
from flowengine.engine.events import NodeStarted, RunFinished, RunResumed
from flowengine.engine.ports import JournalStore
from flowengine.errors import (
    DefinitionError,
    FlowNotFoundError,
    InputError,
    JournalError,
    RunNotFoundError,
    StoreCorruptError,
    StoreUnavailableError,
)
from flowengine.flow import Flow
from flowengine.journal.memory import MemoryStore
from flowengine.journal.postgres.store import PostgresStore
from flowengine.journal.stores import open_store
from flowengine.nodes.approval import ApprovalNode
from flowengine.nodes.function import FunctionNode
from flowengine.nodes.node import RunLimits
from flowengine.runtime.driven_run import DrivenRun
from flowengine.runtime.run_driver import Admission, OverloadedError, StoppingError
from flowengine.web.api.serving_metrics import ServingMetrics
from flowengine.web.service import local_runs
from flowengine.web.service.day_budgets import DayBudgets, QuotaError
from flowengine.web.service.flow_service import FlowService
from flowengine.web.service.outcomes import FlowCaller, KeyReusedError
from tests.support.counted_flows import Counted
from tests.support.postgres import empty_database
from tests.support.queue_runs import drain

ANN, BEN = FlowCaller("ann"), FlowCaller("ben", flows=("slow",))


@pytest.fixture(params=["memory:", "sqlite"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[JournalStore]:
    with closing(open_store(_url(tmp_path) if request.param == "sqlite" else request.param)) as opened:
        yield opened


def _url(folder: Path) -> str:
    return f"sqlite:///{folder / 'runs.db'}"


async def test_the_same_key_is_the_same_run_whether_it_goes_on_or_is_done(store: JournalStore, counted: Counted):
    async with FlowService(store, counted.flows) as service:
        first = await service.start("slow", {}, run_key="a", caller=ANN)
        again = await service.start("slow", {}, run_key="a", caller=ANN)
        assert (first.is_new, again.is_new, again.run_id) == (True, False, first.run_id)
        counted.gate.set()
        assert (await service.wait(first.run_id)).outputs == {"wait": "through"}
        assert not (await service.start("slow", {}, run_key="a", caller=ANN)).is_new
        other = await service.start("slow", {}, run_key="a", caller=BEN)
        assert other.is_new
        assert (await service.wait(other.run_id)).caller == "ben"
    assert len(counted.calls) == 2


async def test_the_same_key_for_another_flow_is_another_run(store: JournalStore, counted: Counted):
    counted.gate.set()
    async with FlowService(store, [*counted.flows, Flow("other", {"n": FunctionNode(lambda context: 1)})]) as service:
        first = await service.start("slow", {}, run_key="a", caller=ANN)
        other = await service.start("other", {}, run_key="a", caller=ANN)
        assert other.is_new
        assert other.run_id != first.run_id


async def test_a_key_with_other_inputs_is_refused_while_and_after_its_run(store: JournalStore, counted: Counted):
    async with FlowService(store, counted.flows) as service:
        run = await service.start("quick", {"text": "one"}, run_key="a")
        for _ in range(2):
            with pytest.raises(KeyReusedError):
                await service.start("quick", {"text": "two"}, run_key="a")
            await service.wait(run.run_id)
        with pytest.raises(InputError, match="1 to 255 characters"):
            await service.start("quick", {"text": "one"}, run_key="")
    assert counted.calls == ["one"]


async def test_many_callers_with_one_key_begin_one_run(store: JournalStore, counted: Counted):
    async with FlowService(store, counted.flows) as service, anyio.create_task_group() as tasks:
        found: list[Any] = []

        async def call() -> None:
            run = await service.start("quick", {"text": "x"}, run_key="a")
            found.append((run.run_id, (await service.wait(run.run_id)).outputs["say"]))

        for _ in range(20):
            tasks.start_soon(call)
    assert counted.calls == ["x"]
    assert set(found) == {(found[0][0], "X")}


async def test_a_call_of_a_run_that_is_done_reads_its_record_once(counted: Counted, monkeypatch: pytest.MonkeyPatch):
    store, reads = MemoryStore(), list[str]()
    async with FlowService(store, counted.flows) as service:
        first = await service.start("quick", {"text": "x"}, run_key="a")
        done = await service.wait(first.run_id)
        read = store.events
        monkeypatch.setattr(store, "events", lambda run_id, after=0: (reads.append(run_id), read(run_id, after))[1])
        again = await service.start("quick", {"text": "x"}, run_key="a")
        assert (again.is_new, again.outcome, reads) == (False, done, [first.run_id])


async def test_a_call_of_a_run_that_was_just_answered_is_not_told_its_question(counted: Counted):
    async with FlowService(MemoryStore(), counted.flows) as service:
        first = await service.start("ask", {}, run_key="a")
        assert (await service.wait(first.run_id)).status == "waiting"
        driven = service.driver.reserve(first.run_id, "ask")  # As it is taken up with the answer, before that is told.
        driven.begun.set()
        assert (await service.start("ask", {}, run_key="a")).outcome is None
        service.driver.release(driven)


async def test_two_servers_on_one_store_begin_the_run_of_a_key_once(tmp_path: Path, counted: Counted):
    with closing(open_store(_url(tmp_path))) as one, closing(open_store(_url(tmp_path))) as two:
        async with FlowService(one, counted.flows) as first, FlowService(two, counted.flows) as second:
            run = await first.start("slow", {}, run_key="a")
            assert (await second.start("slow", {}, run_key="a"))[:2] == (run.run_id, False)
            with pytest.raises(KeyReusedError):
                await second.start("slow", {}, run_key="a", session="other")
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(second.wait, run.run_id)
                counted.gate.set()
            assert (await second.outcome(run.run_id)).outputs == {"wait": "through"}
    assert counted.calls == ["slow"]


async def test_wrong_inputs_leave_nothing_behind_and_the_key_stays_free(store: JournalStore, counted: Counted):
    async with FlowService(store, counted.flows) as service:
        with pytest.raises(InputError):
            await service.start("quick", {"txt": "x"}, run_key="a")
        assert list(store.list()) == []
        assert (await service.start("quick", {"text": "x"}, run_key="a")).is_new


async def test_runs_are_listed_without_reading_all_of_a_store(
    tmp_path: Path, counted: Counted, monkeypatch: pytest.MonkeyPatch
):
    with closing(open_store(_url(tmp_path))) as store:
        async with FlowService(store, counted.flows) as service:
            for text in ("one", "two"):
                await service.wait((await service.start("quick", {"text": text}, caller=ANN)).run_id)
            monkeypatch.setattr(type(store), "list", None)
            (newest,) = await service.list_runs(ANN, flow="quick", status="succeeded", limit=1)
            assert newest.labels == {"caller": "ann"}
            assert not await service.list_runs(ANN, flow="\ud800\0", labels={"none": "such"})
            with pytest.raises(InputError, match="did you mean 'succeeded'"):
                await service.list_runs(ANN, status="suceeded")


async def test_a_caller_sees_its_own_flows_and_runs_alone(store: JournalStore, counted: Counted):
    async with FlowService(store, counted.flows) as service:
        run = await service.start("quick", {"text": "x"}, caller=ANN)
        await service.wait(run.run_id, ANN)
        with pytest.raises(FlowNotFoundError):
            await service.start("quick", {"text": "x"}, caller=BEN)
        for look in (service.outcome, service.wait, service.record, service.cancel, service.resume):
            with pytest.raises(RunNotFoundError):
                await look(run.run_id, caller=BEN)
        with pytest.raises(RunNotFoundError):
            await service.answer(run.run_id, None, "yes", caller=BEN)
        with pytest.raises(RunNotFoundError):
            await anext(service.follow(run.run_id, caller=BEN))
        assert [each.run_id for each in await service.list_runs(ANN)] == [run.run_id]
        assert list(await service.list_runs(BEN)) == []
        assert list(await service.list_runs(BEN, labels={"caller": "ann"})) == []
        with pytest.raises(InputError, match="set by the server"):
            await service.start("quick", {"text": "x"}, caller=ANN, labels={"caller": "ben"})


async def test_runs_take_turns_and_too_many_are_refused(store: JournalStore, counted: Counted):
    async with FlowService(store, counted.flows, admission=Admission(at_once=1, waiting=1)) as service:
        first = await service.start("slow", {})
        second = await service.start("slow", {}, run_key="second")
        with pytest.raises(OverloadedError) as refused:
            await service.start("slow", {})
        assert 1 <= refused.value.retry_after <= 60
        assert (await service.start("slow", {}, run_key="second")).run_id == second.run_id
        assert (await service.outcome(second.run_id)).status == "running"
        counted.gate.set()
        assert [(await service.wait(each.run_id)).status for each in (first, second)] == ["succeeded"] * 2
    assert len(store.list()) == 2


async def test_callers_take_turns_and_none_keeps_the_others_out(store: JournalStore, counted: Counted):
    ben = FlowCaller("ben")
    async with FlowService(store, counted.flows, admission=Admission(at_once=2, waiting=6)) as service:
        first = [await service.start("slow", {}, caller=ANN) for _ in range(5)]
        with pytest.raises(OverloadedError):  # Of the places to wait in one caller has half.
            await service.start("slow", {}, caller=ANN)
        quick = await service.start("quick", {"text": "ben"}, caller=ben)
        counted.gate.set()
        await service.wait(quick.run_id)
        for each in first:
            await service.wait(each.run_id)
    began = {each.run_id: first_start(store, each.run_id) for each in (*first, quick)}
    assert sorted(began, key=began.__getitem__).index(quick.run_id) == 2  # Right after the two that were at work.


def first_start(store: JournalStore, run_id: str) -> float:
    return min(event.at for event in store.events(run_id) if isinstance(event, NodeStarted))


async def test_a_run_that_waits_for_its_turn_can_be_cancelled(store: JournalStore, counted: Counted):
    async with FlowService(store, counted.flows, admission=Admission(at_once=1, waiting=1)) as service:
        first, second = await service.start("slow", {}), await service.start("slow", {})
        await counted.at_gate.wait()
        for run in (second, first):
            await service.cancel(run.run_id)
            assert (await service.outcome(run.run_id)).status == "cancelled"
    assert counted.calls == ["slow"]


async def test_what_is_left_at_the_end_goes_on_at_the_next_start(store: JournalStore, counted: Counted):
    async with FlowService(store, counted.flows, admission=Admission(at_once=1), grace=0) as service:
        runs = [await service.start("slow", {}, run_key=key) for key in "ab"]
        await counted.at_gate.wait()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(service.drain)
            with pytest.raises(StoppingError):
                await service.wait(runs[0].run_id)
        with pytest.raises(StoppingError):
            await service.start("quick", {"text": "x"})
    assert {info.status for info in store.list()} == {"running"}
    counted.gate.set()
    async with FlowService(store, counted.flows) as service:
        for run in runs:
            assert (await service.wait(run.run_id)).outputs == {"wait": "through"}
    assert len(counted.calls) == 2  # What had ended before is not done again.


async def test_a_run_that_is_cancelled_or_put_back_is_counted_and_settled(store: JournalStore, counted: Counted):
    ann = FlowCaller("ann", budget_usd_day=1.0)
    async with FlowService(store, counted.flows, grace=0) as service:
        metrics = ServingMetrics(service)
        run = await service.start("slow", {}, caller=ann)
        await service.cancel(run.run_id)
        with anyio.fail_after(20):
            while service.budgets.open_runs(ann):  # noqa: ASYNC110 - nobody is told that it was settled
                await anyio.sleep(0.01)
        await service.start("slow", {})
        await service.drain()
        text = metrics.text().decode()
    for caller, status in (("ann", "cancelled"), ("", "interrupted")):
        assert f'flowengine_runs_total{{caller="{caller}",flow="slow",status="{status}"}} 1.0' in text


async def test_a_run_is_answered_and_goes_on_here(store: JournalStore, counted: Counted):
    async with FlowService(store, counted.flows) as service:
        run = await service.start("ask", {}, run_key="a")
        outcome = await service.wait(run.run_id)
        assert (outcome.status, outcome.questions[0].choices) == ("waiting", ["yes", "no"])
        assert (await service.start("ask", {}, run_key="a"))[:2] == (run.run_id, False)
        assert (await service.wait(run.run_id)).status == "waiting"
        seen: list[str] = []

        async def follow() -> None:
            seen.extend([type(event).__name__ async for _, event in service.follow(run.run_id, stay=True)])

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(follow)
            assert await service.answer(run.run_id, None, "yes", by="ann") == ("ask", True)
        assert seen == [type(event).__name__ for event in store.events(run.run_id)]
        assert (await service.outcome(run.run_id)).outputs == {"done": "SLOW"}


async def test_a_run_goes_on_by_itself_when_its_question_expires(store: JournalStore, counted: Counted):
    node = ApprovalNode(lambda context: "Go on?", {"yes": None, "no": None}, expires=0.05, on_expire="no")
    async with FlowService(store, [Flow("ask", {"ask": node})]) as service:
        run = await service.start("ask", {})
        events = [event async for _, event in service.follow(run.run_id, stay=True)]
        assert [each.status for each in events if isinstance(each, RunFinished)] == ["waiting", "succeeded"]


async def test_followers_get_every_event_once_wherever_they_come_in(store: JournalStore, counted: Counted):
    async with FlowService(store, counted.flows) as service, anyio.create_task_group() as tasks:
        run = await service.start("slow", {})
        found: dict[int, list[int | None]] = {}

        async def follow(after: int) -> None:
            found[after] = [position async for position, _ in service.follow(run.run_id, after)]

        for after in (0, 1, 3):
            tasks.start_soon(follow, after)
        await anyio.wait_all_tasks_blocked()
        counted.gate.set()
    count = len(store.events(run.run_id))
    assert found == {after: list(range(after, count)) for after in (0, 1, 3)}


async def test_a_run_whose_process_keeps_dying_is_left_to_a_person(
    store: JournalStore, counted: Counted, monkeypatch: pytest.MonkeyPatch
):
    left = anyio.Event()
    monkeypatch.setattr("flowengine.web.service.local_runs.log_failure", lambda run_id, error: left.set())
    async with FlowService(store, counted.flows, grace=0) as service:
        run = await service.start("slow", {})
        await counted.at_gate.wait()
    for _ in range(5):
        counted.at_gate = anyio.Event()
        async with FlowService(store, counted.flows, grace=0):
            await counted.at_gate.wait()
    async with FlowService(store, counted.flows, grace=0):
        await left.wait()
    assert sum(isinstance(event, RunResumed) for event in store.events(run.run_id)) == 5


def test_two_flows_of_one_name_are_refused(store: JournalStore):
    flows = [Flow("same", {"a": FunctionNode(lambda context: 1)}) for _ in range(2)]
    with pytest.raises(DefinitionError, match="two flows are named 'same'"):
        FlowService(store, flows)


async def test_files_are_contents_and_never_paths_of_the_server(store: JournalStore):
    flow = Flow("read", {"size": FunctionNode(lambda context: context.inputs["file"].size)}, inputs={"file": "file"})
    async with FlowService(store, [flow]) as service:
        run = await service.start("read", {"file": "data:text/plain;base64,aGVsbG8="})
        assert (await service.wait(run.run_id)).outputs == {"size": 5}
        for wrong in ("/etc/passwd", "notes.txt", "file:///etc/passwd", "data:text/plain,hello", "data:;base64,%"):
            with pytest.raises(InputError, match="input 'file'"):
                await service.start("read", {"file": wrong})


async def test_on_postgresql_runs_go_into_the_queue(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "hello.yaml").write_text(
        "flowengine: v1\nname: hello\ninputs: {who: {type: string}}\nnodes:\n"
        '  ask: {type: approval, message: "Greet {{ inputs.who }}?", routes: {"yes": {}, "no": {}}}\n'
        'outputs: {said: "{{ nodes.ask.output.choice }} {{ inputs.who }}"}\n'
    )
    monkeypatch.chdir(tmp_path)
    with closing(PostgresStore(empty_database(), "full")) as store:
        async with FlowService(store, ["hello.yaml"]) as service:
            run = await service.start("hello", {"who": "Ann"}, run_key="a", caller=ANN, session="s")
            again = await service.start("hello", {"who": "Ann"}, run_key="a", caller=ANN, session="s")
            assert again[:2] == (run.run_id, False)
            with pytest.raises(KeyReusedError):
                await service.start("hello", {"who": "Ben"}, run_key="a", caller=ANN)
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(drain, store)
                assert (await service.wait(run.run_id, ANN)).status == "waiting"
            await service.answer(run.run_id, "ask", "yes")
            await drain(store)
            assert (await service.wait(run.run_id, ANN)).outputs == {"said": "yes Ann"}
            assert store.events(run.run_id)[0].settings["session"] == "ann/s"  # type: ignore[union-attr]


async def test_on_postgresql_a_run_that_is_resumed_keeps_its_part_of_the_budget_until_a_worker_comes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    (tmp_path / "hello.yaml").write_text(
        'flowengine: v1\nname: hello\nnodes: {ask: {type: approval, message: "Hi?", routes: {"yes": {}}}}\n'
    )
    monkeypatch.chdir(tmp_path)
    ann = FlowCaller("ann", budget_usd_day=1.0)
    with closing(PostgresStore(empty_database(), "full")) as store:
        async with FlowService(store, ["hello.yaml"]) as service:
            run = await service.start("hello", {}, caller=ann)
            await service.cancel(run.run_id, ann)
            await service.start("hello", {}, caller=ann)
            assert service.budgets.read_spending("ann") == (0.0, pytest.approx(0.1))
            await service.resume(run.run_id, caller=ann)
            await service.start("hello", {}, caller=ann)
            assert service.budgets.read_spending("ann") == (0.0, pytest.approx(0.1 + 0.1 + 0.08))


async def test_on_postgresql_a_worker_books_what_a_run_has_cost_when_it_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """No server has to look at the key again, and none has to run; a run that waits keeps its part."""
    (tmp_path / "hello.yaml").write_text(
        'flowengine: v1\nname: hello\nnodes: {ask: {type: approval, message: "Hi?", routes: {"yes": {}}}}\n'
    )
    monkeypatch.chdir(tmp_path)
    ann = FlowCaller("ann", budget_usd_day=1.0)
    with closing(PostgresStore(empty_database(), "full")) as store:
        command = ["worker", "--until-idle", "--any-folder", "-q", "--store", store.url]
        async with FlowService(store, ["hello.yaml"]) as service:
            run = await service.start("hello", {}, caller=ann)
            assert (await anyio.to_thread.run_sync(_run_command, command)).returncode == 0
            assert service.budgets.read_spending("ann") == (0.0, pytest.approx(0.1))
            await service.answer(run.run_id, "ask", "yes")
        assert (await anyio.to_thread.run_sync(_run_command, command)).returncode == 0
        assert store.status_of(run.run_id) == "succeeded"
        assert DayBudgets(store).read_spending("ann") == (0.0, 0.0)


def _run_command(words: Sequence[str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-m", "flowengine", *words], capture_output=True, text=True, check=False)


async def _never(driven: DrivenRun) -> Any:
    raise AssertionError("nothing is begun after the end")


async def test_calls_with_one_key_at_once_are_one_run_of_the_day_s_budget(store: JournalStore, counted: Counted):
    ann = FlowCaller("ann", budget_usd_day=1.0)
    found: list[str] = []
    async with FlowService(store, counted.flows) as service:

        async def call() -> None:
            found.append((await service.start("slow", {}, run_key="a", caller=ann)).run_id)

        async with anyio.create_task_group() as tasks:
            for _ in range(4):
                tasks.start_soon(call)
        assert len(found) == 4
        assert len(set(found)) == 1
        assert service.budgets.read_spending("ann") == (0.0, pytest.approx(0.1))
        counted.gate.set()


async def test_a_start_that_is_given_up_leaves_no_budget_reserved(
    store: JournalStore, counted: Counted, monkeypatch: pytest.MonkeyPatch
):
    ann = FlowCaller("ann", budget_usd_day=1.0)
    async with FlowService(store, counted.flows) as service:
        with anyio.CancelScope() as scope:

            async def never(*given: Any, **how: Any) -> bool:
                scope.cancel()
                await anyio.sleep_forever()
                return True

            monkeypatch.setattr(service, "begin", never)
            await service.start("quick", {"text": "x"}, caller=ann)
        assert service.budgets.read_spending("ann") == (0.0, 0)


class Billed:
    """A flow whose call is sent, could cost 3 cents, and is never answered; one that ends it by its own time limit."""

    def __init__(self) -> None:
        self.sent = anyio.Event()
        limits = RunLimits(bounds=Budget(cost_usd=0.1))
        self.flows = [
            Flow("ask", {"ask": FunctionNode(self._ask)}, limits=limits),
            Flow("late", {"ask": FunctionNode(self._ask, timeout=0.05)}, limits=limits),
        ]

    async def _ask(self, context: Context) -> None:
        ledger = context.runtime.ledger
        assert ledger is not None
        assert ledger.needs_prices
        room = await ledger.reserve(tokens=10, cost_usd=0.03)
        try:
            self.sent.set()
            await anyio.sleep_forever()
        finally:
            room.settle_in_full()


async def test_a_call_that_is_cancelled_counts_to_the_day_s_budget(store: JournalStore):
    ann, billed = FlowCaller("ann", budget_usd_day=0.2), Billed()
    async with FlowService(store, billed.flows) as service:
        run = await service.start("ask", {}, caller=ann)
        for spent in (0.03, 0.06, 0.09):  # Each time that it goes on, on top of what was.
            await billed.sent.wait()
            billed.sent = anyio.Event()
            await service.cancel(run.run_id, ann)
            assert (await service.wait(run.run_id)).status == "cancelled"
            end = store.events(run.run_id)[-1]
            assert isinstance(end, RunFinished)
            assert end.unrecorded_usd == pytest.approx(spent)
            await service.resume(run.run_id, caller=ann)
        await service.wait(run.run_id)
    assert store.events(run.run_id)[-1].error.type == "LimitError"  # type: ignore[union-attr]


async def test_a_call_that_is_out_of_time_counts_to_the_day_s_budget(store: JournalStore):
    ann, billed = FlowCaller("ann", budget_usd_day=0.2), Billed()
    async with FlowService(store, billed.flows) as service:
        run = await service.start("late", {}, caller=ann)
        assert (await service.wait(run.run_id)).status == "failed"
    async with FlowService(store, billed.flows) as service:
        other = await service.start("ask", {}, caller=ann)
        assert service.budgets.read_spending("ann") == (pytest.approx(0.03), pytest.approx(0.1))
        await service.cancel(other.run_id, ann)


async def test_a_run_that_failed_has_its_part_of_the_budget_again_when_it_is_resumed(
    store: JournalStore, monkeypatch: pytest.MonkeyPatch
):
    has_failed, gate, ann = False, anyio.Event(), FlowCaller("ann", budget_usd_day=1.0)

    async def work() -> str:
        nonlocal has_failed
        if not has_failed:
            has_failed = True
            raise ValueError("broken")
        await gate.wait()
        return "done"

    async with FlowService(store, [Flow("flaky", {"work": FunctionNode(work)})]) as service:
        settle, settled = service.budgets.settle, anyio.Event()

        def told_settle(*given: Any) -> None:
            settle(*given)
            anyio.from_thread.run_sync(settled.set)

        monkeypatch.setattr(service.budgets, "settle", told_settle)
        run = await service.start("flaky", {}, caller=ann)
        assert (await service.wait(run.run_id)).status == "failed"
        await settled.wait()
        monkeypatch.undo()
        taken, day = service.budgets.reserve(ann, "other", 0.95)
        with pytest.raises(QuotaError, match=r"no 0\.1 US dollars left"):
            await service.resume(run.run_id, caller=ann)
        service.budgets.settle("ann", day, "other", 0.5 * taken)
        await service.resume(run.run_id, caller=ann)
        assert service.budgets.read_spending("ann") == (pytest.approx(0.475), pytest.approx(0.1))
        gate.set()
        assert (await service.wait(run.run_id)).status == "succeeded"


async def test_a_run_that_is_resumed_while_it_is_settled_keeps_its_part_of_the_budget(
    store: JournalStore, monkeypatch: pytest.MonkeyPatch
):
    has_failed, gate, ann = False, anyio.Event(), FlowCaller("ann", budget_usd_day=1.0)

    async def work() -> None:
        nonlocal has_failed
        if not has_failed:
            has_failed = True
            raise ValueError("broken")
        await gate.wait()

    async with FlowService(store, [Flow("flaky", {"work": FunctionNode(work)})]) as service:
        run = await service.start("flaky", {}, caller=ann)
        assert (await service.wait(run.run_id)).status == "failed"
        go_on = service._local.go_on

        async def settle_before(*given: Any) -> bool:
            tasks.start_soon(service._settle, run.run_id)
            await anyio.wait_all_tasks_blocked()
            return await go_on(*given)

        monkeypatch.setattr(service._local, "go_on", settle_before)
        async with anyio.create_task_group() as tasks:
            await service.resume(run.run_id, caller=ann)
        assert service.budgets.read_spending("ann") == (0.0, pytest.approx(0.1))
        gate.set()
        assert (await service.wait(run.run_id)).status == "succeeded"


async def test_a_question_that_expires_before_an_earlier_one_would_have_is_not_forgotten(store: JournalStore):
    late, soon = ({"expires": seconds, "on_expire": "no"} for seconds in (1_000.0, 0.01))
    first = ApprovalNode(lambda context: "A?", {"yes": "second", "no": None}, **late)
    second = ApprovalNode(lambda context: "B?", {"yes": None, "no": "done"}, **soon)
    flow = Flow("two", {"first": first, "second": second, "done": FunctionNode(lambda: "done")})
    async with FlowService(store, [flow]) as service:
        run = await service.start("two", {})
        assert (await service.wait(run.run_id)).status == "waiting"
        await service.answer(run.run_id, "first", "yes")
        with anyio.fail_after(30):
            told = [event async for _, event in service.follow(run.run_id, stay=True)]
    assert told[-1].outputs == {"done": "done"}  # type: ignore[union-attr]


async def test_a_question_of_a_run_that_no_server_began_does_not_expire_here(store: JournalStore):
    approval = ApprovalNode(lambda context: "A?", {"yes": None, "no": "done"}, expires=0.5, on_expire="no")
    flow = Flow("one", {"ask": approval, "done": FunctionNode(lambda: "done")})
    foreign = await flow.run(store=store)
    async with FlowService(store, [flow]) as service:
        own = await service.start("one", {})
        assert (await service.wait(own.run_id)).status == "waiting"
    async with FlowService(store, [flow]) as service:
        with anyio.fail_after(30):
            assert [event async for _, event in service.follow(own.run_id, stay=True)]
        assert (await service.outcome(foreign.id)).status == "waiting"


@pytest.mark.parametrize("away", ["list", "open"])
async def test_a_store_that_is_away_for_a_moment_forgets_no_expiry(
    store: JournalStore, monkeypatch: pytest.MonkeyPatch, away: str
):
    approval = ApprovalNode(lambda context: "A?", {"yes": None, "no": "done"}, expires=0.5, on_expire="no")
    flow = Flow("one", {"ask": approval, "done": FunctionNode(lambda: "done")})
    async with FlowService(store, [flow]) as service:
        run = await service.start("one", {})
        assert (await service.wait(run.run_id)).status == "waiting"
    errors, found = [StoreUnavailableError("locked")], getattr(store, away)

    def failing_once(*given: Any, **named: Any) -> Any:
        if errors:
            raise errors.pop()
        return found(*given, **named)

    monkeypatch.setattr(store, away, failing_once)
    monkeypatch.setattr(local_runs, "_RESCUE_PAUSE", 0.001)
    async with FlowService(store, [flow]) as service:
        with anyio.fail_after(30):
            told = [event async for _, event in service.follow(run.run_id, stay=True)]
    assert not errors
    assert told[-1].outputs == {"done": "done"}  # type: ignore[union-attr]


async def test_a_store_that_is_away_while_waiting_runs_are_read_forgets_no_expiry(
    store: JournalStore, monkeypatch: pytest.MonkeyPatch
):
    approval = ApprovalNode(lambda context: "A?", {"yes": None, "no": "done"}, expires=0.05, on_expire="no")
    flow = Flow("one", {"ask": approval, "done": FunctionNode(lambda: "done")})
    async with FlowService(store, [flow]) as service:
        run = await service.start("one", {})
        assert (await service.wait(run.run_id)).status == "waiting"
    events, was_away = store.events, anyio.Event()

    def failing_once(*given: Any) -> Any:
        if was_away.is_set():
            return events(*given)
        anyio.from_thread.run_sync(was_away.set)
        raise StoreUnavailableError("locked")

    monkeypatch.setattr(store, "events", failing_once)
    monkeypatch.setattr(local_runs, "_RESCUE_PAUSE", 0.001)
    async with FlowService(store, [flow]) as service:
        with anyio.fail_after(30):
            await was_away.wait()
            told = [event async for _, event in service.follow(run.run_id, stay=True)]
    assert told[-1].outputs == {"done": "done"}  # type: ignore[union-attr]


async def test_a_store_that_is_away_for_a_moment_ends_no_rescue(
    store: JournalStore, counted: Counted, monkeypatch: pytest.MonkeyPatch
):
    async with FlowService(store, counted.flows, grace=0) as service:
        waiting = await service.start("ask", {})
        await service.wait(waiting.run_id)
        left = await service.start("slow", {})
        await counted.at_gate.wait()
    events, find_abandoned = store.events, store.abandoned
    errors = [StoreUnavailableError("locked")]

    def abandoned() -> Any:
        if errors:
            raise errors.pop()
        return find_abandoned()

    def damaged(run_id: str, *position: int) -> Any:
        if run_id == waiting.run_id:
            raise StoreCorruptError("damaged")
        return events(run_id, *position)

    monkeypatch.setattr(store, "abandoned", abandoned)
    monkeypatch.setattr(store, "events", damaged)
    monkeypatch.setattr(local_runs, "_RESCUE_PAUSE", 0.001)
    counted.gate.set()
    async with FlowService(store, counted.flows) as service:
        with anyio.fail_after(30):
            assert (await service.wait(left.run_id)).status == "succeeded"
    assert not errors


async def test_a_run_that_ended_since_is_not_cancelled(store: JournalStore, counted: Counted):
    async with FlowService(store, counted.flows) as service:
        run = await service.start("quick", {"text": "x"})
        await service.wait(run.run_id)
        stale = store.events(run.run_id)[:1]

        async def before(*given: Any) -> Any:
            return stale

        service.follower.events = before  # type: ignore[method-assign]  # As it stood a moment ago.
        with pytest.raises(JournalError, match="cannot be cancelled"):
            await service.cancel(run.run_id)
    assert store.list()[0].status == "succeeded"


async def test_an_answer_is_taken_although_another_server_goes_on_with_the_run(tmp_path: Path, counted: Counted):
    with closing(open_store(_url(tmp_path))) as store, closing(open_store(_url(tmp_path))) as other:
        async with FlowService(store, counted.flows) as service:
            run = await service.start("ask", {})
            await service.wait(run.run_id)
            go_on = service._local.go_on

            async def after_another(run_id: str) -> None:
                journal = other.open(run_id)
                try:
                    await go_on(run_id)
                finally:
                    await journal.close()

            service._local.go_on = after_another  # type: ignore[method-assign]
            assert await service.answer(run.run_id, None, "yes") == ("ask", True)


async def test_a_run_that_has_ended_since_it_was_looked_for_is_not_taken_up_again(
    counted: Counted, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = MemoryStore()
    async with FlowService(store, counted.flows) as service:
        run_id = (await service.start("slow", {})).run_id
        await counted.at_gate.wait()
        await service.cancel(run_id)
    was_looked_for = threading.Event()

    def list_abandoned() -> list[str]:
        was_looked_for.set()
        return [run_id]

    monkeypatch.setattr(store, "abandoned", list_abandoned)
    counted.gate.set()
    async with FlowService(store, counted.flows) as service:
        await anyio.to_thread.run_sync(was_looked_for.wait)
        await anyio.sleep(0.2)
    assert store.list()[0].status == "cancelled"
