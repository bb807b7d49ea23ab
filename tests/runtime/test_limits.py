"""Limits of a run and of its parts: who stops, what becomes of the run, and what a resumed run still may spend."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import anyio
import pytest

from flowengine.core.budget import Budget, Ledger, OnLimit
from flowengine.core.context import Context
from flowengine.core.records import Answered, ModelCall, usage_of
from flowengine.engine.events import NodeStarted, RunFinished
from flowengine.errors import EffectPendingError
from flowengine.flow import Flow
from flowengine.journal.approvals import keep_answer, times_asked
from flowengine.journal.memory import MemoryStore
from flowengine.nodes.approval import ApprovalNode
from flowengine.nodes.function import FunctionNode
from flowengine.nodes.loop import LoopNode
from flowengine.nodes.map import MapNode
from flowengine.nodes.node import FlowNode, NodeLimits, RunLimits
from flowengine.runtime.local.local import start
from flowengine.runtime.run import Run, RunOptions

pytestmark = pytest.mark.anyio

TOKENS = 10


async def call(context: Context) -> str:
    """A model call of ten tokens, as an agent's gateway makes one."""
    done = ModelCall("m", "p", "generation", (), "", prompt_tokens=4, completion_tokens=6, cost_usd=0.01)
    if context.runtime.ledger is None:
        await context.runtime.note(done)
        return "answer"
    room = await context.runtime.ledger.reserve(tokens=TOKENS, cost_usd=0.01)
    await anyio.lowlevel.checkpoint()
    await context.runtime.note(done)
    room.settle(usage_of(done))
    return "answer"


async def forever(context: Context) -> None:
    await anyio.sleep_forever()


def limits(on_limit: OnLimit = "fail", **bounds: Any) -> RunLimits:
    return RunLimits(bounds=Budget(**bounds), on_limit=on_limit)


def chain(length: int) -> Flow:
    return Flow("f", {f"n{i}": FunctionNode(call, needs=[f"n{i - 1}"] if i else []) for i in range(length)})


def called(run: Run) -> int:
    return sum(type(getattr(event, "record", None)) is ModelCall for event in run.events)


async def test_a_run_fails_at_its_limit_and_names_the_node_and_the_limit():
    run = await chain(5).run(limits=limits(model_calls=3))
    assert run.status == "failed"
    assert run.failed_node == "n3"
    assert run.error is not None
    assert run.error.type == "LimitError"
    assert "the run has a limit of 3 model calls" in run.error.message
    assert called(run) == 3


@pytest.mark.parametrize("nothing", [{"model_calls": 0}, {"tokens": 0}, {"cost_usd": 0.0}])
async def test_a_budget_of_nothing_allows_no_call(nothing: dict[str, Any]):
    run = await chain(1).run(limits=limits(**nothing))
    assert run.status == "failed"
    assert run.error is not None
    assert run.error.type == "LimitError"
    assert called(run) == 0


async def test_on_error_of_a_node_does_not_hide_the_limit_of_the_run():
    flow = Flow("f", {f"n{i}": FunctionNode(call, on_error="skip") for i in range(3)})
    run = await flow.run(limits=limits(model_calls=2))
    assert run.status == "failed"


async def test_on_error_of_a_node_handles_its_own_limit():
    own = NodeLimits(Budget(tokens=5))
    flow = Flow("f", {"small": FunctionNode(call, limits=own, on_error="skip"), "other": FunctionNode(call)})
    run = await flow.run()
    assert run.status == "succeeded"
    assert run.nodes["small"].status == "skipped"
    assert run.nodes["other"].status == "succeeded"


async def test_a_run_may_pause_at_its_limit_and_go_on_with_a_higher_one():
    store = MemoryStore()
    paused = await chain(5).run(store=store, run_id="r", limits=limits("pause", tokens=25))
    assert paused.status == "paused"
    assert [part.status for part in paused.nodes.values()][:3] == ["succeeded", "succeeded", "cancelled"]
    still = await chain(5).resume("r", store=store, limits=limits("pause", tokens=25))
    assert still.status == "paused"  # What was spent before counts.
    assert called(still) == 2
    done = await chain(5).resume("r", store=store, limits=limits("pause", tokens=50))
    assert done.status == "succeeded"
    assert called(done) == 5


async def test_a_run_may_end_with_what_it_has():
    flow = Flow(
        "f",
        {"a": FunctionNode(call), "b": FunctionNode(call, needs=["a"])},
        outputs={"first": lambda context: context.prev_outputs["a"], "count": lambda c: len(c.prev_outputs)},
    )
    run = await flow.run(limits=limits("partial", model_calls=1))
    assert run.status == "partial"
    assert run.outputs == {"first": "answer", "count": 1}


async def test_an_output_that_cannot_be_worked_out_takes_no_other_from_a_run_that_ends_early():
    endless: list[object] = []
    endless.append(endless)

    def fail(context: Context) -> object:
        raise KeyError("b")

    flow = Flow(
        "f",
        {"a": FunctionNode(call), "b": FunctionNode(call, needs=["a"])},
        outputs={
            "first": lambda context: context.prev_outputs["a"],
            "endless": lambda context: endless,
            "failed": fail,
            "second": lambda context: context.prev_outputs["b"],
            "list": lambda context: [1],
        },
    )
    store = MemoryStore()
    run = await flow.run(limits=limits("partial", model_calls=1), store=store, run_id="r")
    assert (run.status, run.outputs) == ("partial", {"first": "answer", "list": [1]})
    assert store.list()[0].status == "partial"
    with pytest.raises(TypeError, match="cannot be changed in place"):
        run.outputs["list"].append(2)


async def test_two_hundred_branches_at_once_spend_no_more_than_the_limit():
    flow = Flow("f", {f"n{i}": FunctionNode(call) for i in range(200)})
    run = await flow.run(limits=limits("partial", cost_usd=0.555))
    assert run.status == "partial"
    assert called(run) == 55


async def test_a_map_with_a_limit_of_its_own_may_end_with_the_items_it_has():
    node = MapNode(
        {"call": FunctionNode(call)},
        over=lambda context: list(range(10)),
        concurrency=1,
        limits=NodeLimits(Budget(model_calls=4), on_limit="partial"),
    )
    run = await Flow("f", {"m": node, "after": FunctionNode(call, needs=["m"])}).run()
    assert run.status == "succeeded"
    assert run.nodes["m"].output == ["answer"] * 4


async def test_what_a_part_with_a_limit_of_its_own_spends_counts_for_the_run():
    part = FunctionNode(call, limits=NodeLimits(Budget(model_calls=5)))
    run = await Flow("f", {"part": part, "rest": FunctionNode(call, needs=["part"])}).run(limits=limits(model_calls=1))
    assert (run.status, run.failed_node, called(run)) == ("failed", "rest", 1)


async def test_what_a_part_spent_before_its_run_was_put_aside_counts_for_its_limit():
    own = NodeLimits(Budget(model_calls=4))
    node = MapNode({"call": FunctionNode(call)}, over=lambda context: list(range(9)), concurrency=1, limits=own)
    store, flow = MemoryStore(), Flow("f", {"m": node})
    await flow.run(store=store, run_id="r", limits=limits("pause", model_calls=3))
    done = await flow.resume("r", store=store, limits=RunLimits())
    assert (done.status, called(done)) == ("failed", 4)


async def test_a_loop_with_a_limit_of_its_own_may_end_with_its_best_round():
    loop = LoopNode(
        {"call": FunctionNode(call)},
        max_iterations=10,
        initial={"n": lambda context: 0},
        carry={"n": lambda seen: seen.variables["round"]["n"] + 1},
        until=lambda seen: False,
        limits=NodeLimits(Budget(model_calls=3), on_limit="partial"),
    )
    run = await Flow("f", {"loop": loop}).run()
    assert run.nodes["loop"].output == {"n": 2, "iterations": 3, "exhausted": True}


async def test_the_limit_of_a_map_that_fails_is_handled_by_the_maps_own_on_error():
    node = MapNode(
        {"call": FunctionNode(call, on_error="skip")},
        over=lambda context: [1, 2, 3],
        limits=NodeLimits(Budget(model_calls=1)),
        on_error="skip",
    )
    run = await Flow("f", {"m": node}).run()
    assert (run.status, run.nodes["m"].status, run.nodes["m"].cause) == ("succeeded", "skipped", "error")


async def test_the_limit_of_the_run_holds_inside_maps_as_well():
    node = MapNode({"call": FunctionNode(call)}, over=lambda context: list(range(50)))
    run = await Flow("f", {"m": node}).run(limits=limits("pause", model_calls=7))
    assert run.status == "paused"
    assert called(run) == 7
    assert run.nodes["m"].status == "cancelled"


async def test_a_map_that_paused_goes_on_with_the_items_that_are_left():
    store = MemoryStore()
    node = MapNode({"call": FunctionNode(call)}, over=lambda context: list(range(20)))
    flow = Flow("f", {"m": node})
    await flow.run(store=store, run_id="r", limits=limits("pause", model_calls=7))
    done = await flow.resume("r", store=store, limits=RunLimits())
    assert done.status == "succeeded"
    assert called(done) == 20


async def slow(context: Context) -> str:
    await anyio.sleep(30)
    return "late"


@pytest.mark.parametrize(("on_limit", "status"), [("fail", "failed"), ("pause", "paused"), ("partial", "partial")])
async def test_time_is_a_limit_too(on_limit: OnLimit, status: str):
    run = await Flow("f", {"slow": FunctionNode(slow)}).run(limits=RunLimits(timeout=0.05, on_limit=on_limit))
    assert run.status == status
    assert run.error is not None
    assert "took longer than its limit of 0.05 s" in run.error.message


async def test_the_time_of_a_part_bounds_all_its_attempts_and_a_map_keeps_what_it_has():
    async def first_is_quick(context: Context) -> int:
        if context.variables["item"]:
            await anyio.sleep(30)
        return context.variables["item"]

    node = MapNode(
        {"work": FunctionNode(first_is_quick)},
        over=lambda context: [0, 1, 2],
        limits=NodeLimits(timeout=1.0, on_limit="partial"),
    )
    run = await Flow("f", {"m": node}).run()
    assert run.nodes["m"].output == [0]


async def test_a_function_with_an_external_effect_is_on_record_before_it_begins_and_never_repeated_unasked():
    sent: list[str] = []
    scope = anyio.CancelScope()

    async def send(context: Context) -> None:
        sent.append("letter")
        scope.cancel()
        await anyio.sleep_forever()

    flow = Flow("f", {"send": FunctionNode(send, effect="external")})
    store = MemoryStore()
    with scope:
        await flow.run(store=store, run_id="r")
    with pytest.raises(EffectPendingError, match="send"):
        await flow.resume("r", store=store)
    assert sent == ["letter"]
    done = await flow.resume("r", store=store, assume_done=["send"])
    assert (done.status, sent) == ("succeeded", ["letter"])


async def test_of_several_decisions_about_an_external_function_the_last_one_counts():
    sent: list[str] = []

    async def send(context: Context) -> None:
        sent.append("letter")
        scope.cancel()
        await anyio.sleep_forever()

    store, flow = MemoryStore(), Flow("f", {"send": FunctionNode(send, effect="external")})
    with anyio.CancelScope() as scope:
        await flow.run(store=store, run_id="r")
    with anyio.CancelScope() as scope:
        await flow.resume("r", store=store, retry_effects=["send"])
    with anyio.fail_after(60):
        done = await flow.resume("r", store=store, assume_done=["send"])
    assert (done.status, sent) == ("succeeded", ["letter", "letter"])


@pytest.mark.parametrize("error", [ValueError("no line"), SystemExit(3)])
async def test_an_external_function_that_failed_has_ended_and_may_be_tried_by_a_resume(error: BaseException):
    tries: list[int] = []

    async def send(context: Context) -> str:
        tries.append(1)
        if len(tries) == 1:
            raise error
        return "sent"

    flow = Flow("f", {"send": FunctionNode(send, effect="external")})
    store = MemoryStore()
    failed = await flow.run(store=store, run_id="r")
    assert failed.status == "failed"
    assert (await flow.resume("r", store=store)).outputs == {"send": "sent"}


async def test_an_external_function_whose_exchange_broke_off_is_asked_about_before_it_is_run_again():
    async def send(context: Context) -> str:
        raise TimeoutError("no answer from the post office")

    flow, store = Flow("f", {"send": FunctionNode(send, effect="external")}), MemoryStore()
    assert (await flow.run(store=store, run_id="r")).status == "failed"
    with pytest.raises(EffectPendingError, match="node 'send'"):
        await flow.resume("r", store=store)
    assert (await flow.resume("r", store=store, assume_done=["send"])).status == "succeeded"


async def test_nothing_starts_after_the_limit_but_what_is_in_flight_ends():
    flow = Flow("f", {"a": FunctionNode(call), "b": FunctionNode(call), "c": FunctionNode(call, needs=["a", "b"])})
    run = await flow.run(limits=limits("pause", model_calls=1))
    started = [event.node for event in run.events if isinstance(event, NodeStarted)]
    assert "c" not in started


async def test_a_limit_that_was_raised_once_stays_raised():
    store = MemoryStore()
    await chain(9).run(store=store, run_id="r", limits=limits("pause", model_calls=2))
    kept = await chain(9).resume("r", store=store)
    assert (kept.status, called(kept)) == ("paused", 2)  # That of the start.
    raised = await chain(9).resume("r", store=store, limits=limits("pause", model_calls=4))
    assert (raised.status, called(raised)) == ("paused", 4)
    again = await chain(9).resume("r", store=store)
    assert (again.status, called(again)) == ("paused", 4)
    assert again.limits == limits("pause", model_calls=4)
    done = await chain(9).resume("r", store=store, limits=RunLimits())
    assert (done.status, done.limits) == ("succeeded", RunLimits())


async def test_a_fork_goes_on_with_the_limits_that_its_past_went_on_with():
    store = MemoryStore()
    await chain(4).run(store=store, run_id="r", limits=limits("pause", model_calls=1))
    await chain(4).resume("r", store=store, limits=limits("pause", model_calls=2))
    forked = await chain(4).fork("r", "n0", store=store)
    assert (forked.status, forked.limits.bounds.model_calls, called(forked)) == ("paused", 2, 2)


def in_one_level(on_error: str) -> dict[str, FlowNode]:
    asked = {f"n{i}": FunctionNode(call, on_error=on_error) for i in range(6)}
    return {**asked, "mend": FunctionNode(lambda: "mended", needs=["n0"])} if on_error == "mend" else {**asked}


def in_a_map(on_error: str) -> dict[str, FlowNode]:
    inside = {
        "w": FunctionNode(call, on_error=on_error),
        "mend": FunctionNode(lambda: "mended", needs=["w"], join="always"),
    }
    return {"m": MapNode(inside, over=lambda context: list(range(6)), on_error="skip")}


def in_a_loop(on_error: str) -> dict[str, FlowNode]:
    inside = {
        "w": FunctionNode(call, on_error=on_error),
        "mend": FunctionNode(lambda: "mended", needs=["w"], join="always"),
    }
    return {"l": LoopNode(inside, max_iterations=6, exhausted_fails=False, on_error="skip")}


@pytest.mark.parametrize("made", [in_one_level, in_a_map, in_a_loop])
@pytest.mark.parametrize("on_error", ["skip", "mend"])
async def test_a_run_whose_limit_met_nodes_that_handle_failures_goes_on_at_the_first_resume(
    made: Callable[[str], dict[str, FlowNode]], on_error: str
):
    deeds: list[str] = []
    pay = FunctionNode(lambda: deeds.append("paid"), effect="external")
    flow, store = Flow("f", {"pay": pay, **made(on_error)}), MemoryStore()
    first = await flow.run(store=store, run_id="r", limits=limits(model_calls=2))
    assert (first.status, called(first)) == ("failed", 2)
    kept = await flow.resume("r", store=store)
    assert (kept.status, called(kept)) == ("failed", 2)
    done = await flow.resume("r", store=store, limits=limits(model_calls=100))
    assert (done.status, called(done), deeds) == ("succeeded", 6, ["paid"])


async def test_the_end_at_a_limit_says_which_limit_and_what_it_would_have_to_be():
    run = await chain(5).run(limits=limits("pause", cost_usd=0.025))
    assert run.error is not None
    assert (run.error.part, run.error.limit, run.error.needed) == ("", "cost_usd", 0.03)
    late = await Flow("f", {"n": FunctionNode(forever)}).run(limits=RunLimits(timeout=0.001, on_limit="pause"))
    assert late.error is not None
    assert (late.error.limit, late.error.needed) == ("timeout", None)


class LateAnswers(MemoryStore):
    """Somebody answers when the run has just been put aside."""

    is_answered = False

    def recall(self, kind: str, key: str, /) -> Any:
        events = self.events(key)
        last = events[-1]
        if kind == "answer" and not self.is_answered and isinstance(last, RunFinished) and last.status == "waiting":
            self.is_answered = True
            keep_answer(self, key, "ask", times_asked(events)["ask"], Answered("yes"))
        return super().recall(kind, key)


async def test_a_run_that_was_answered_while_it_was_put_aside_spends_what_it_shares_with_others():
    flow = Flow("f", {"ask": ApprovalNode(lambda context: "?", {"yes": "pay"}), "pay": FunctionNode(call)})
    shared = Ledger(Budget(model_calls=5))
    run = await start(flow.plan, {}, LateAnswers(), RunOptions(above=shared))
    assert (run.status, shared.spent.model_calls) == ("succeeded", 1)


@pytest.mark.parametrize("most", [1e300, float("inf")])
async def test_a_bound_of_money_may_be_as_large_as_a_number_can_be(most: float):
    run = await chain(2).run(limits=limits(cost_usd=most, tokens=TOKENS))
    assert run.error is not None
    assert (run.status, run.error.limit, called(run)) == ("failed", "tokens", 1)
