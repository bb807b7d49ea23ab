"""`until` of a map: enough results cancel the rest, on record, and nothing of the rest is done or paid later."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import anyio
import pytest

from flowengine.core.context import Context
from flowengine.core.records import Decided, MapStopped
from flowengine.engine.events import Event, NodeCancelled, NodeFinished, NodeRecorded, NodeStarted, RunFinished
from flowengine.engine.merging import StateKey
from flowengine.flow import Flow
from flowengine.flowfile.compile.scope import boolean
from flowengine.journal.approvals import open_questions
from flowengine.journal.codec import decode, encode
from flowengine.journal.memory import MemoryStore
from flowengine.nodes.approval import ApprovalNode
from flowengine.nodes.condition import ConditionNode
from flowengine.nodes.function import FunctionNode
from flowengine.nodes.map import MapNode
from flowengine.runtime.local.forking import failed_items
from flowengine.runtime.run import Run
from visualize.progress import fold_events
from visualize.why import explain_decision, format_words

pytestmark = pytest.mark.anyio


class Offers:
    """Item → when it is answered; what was begun, and what came to its end."""

    def __init__(self) -> None:
        self.begun: list[Any] = []
        self.ended: list[Any] = []
        self.gates: dict[Any, anyio.Event] = {}

    async def ask(self, context: Context) -> Any:
        item = context.result
        self.begun.append(item)
        if item == "bad":
            raise ValueError("no offer")
        if item in self.gates:
            await self.gates[item].wait()
        self.ended.append(item)
        return item

    def flow(self, items: Sequence[Any], until: Any, **settings: Any) -> Flow:
        node = MapNode({"ask": FunctionNode(self.ask)}, over=lambda context: list(items), until=until, **settings)
        return Flow("offers", {"all": node})


def enough(number: int) -> Any:
    return lambda context: len(context.variables["results"]) >= number


def stops(events: Sequence[Event]) -> list[MapStopped]:
    return [each.record for each in events if isinstance(each, NodeRecorded) and type(each.record) is MapStopped]


async def test_enough_results_end_the_map_and_begin_nothing_more():
    offers = Offers()
    run = await offers.flow("abcdef", enough(2), concurrency=1).run()
    assert (run.outputs["all"], offers.begun) == (["a", "b"], ["a", "b"])
    assert stops(run.events) == [MapStopped([0, 1], [], 4, [])]


async def test_what_is_in_work_is_cancelled_and_told_as_such():
    offers = Offers()
    offers.gates = {each: anyio.Event() for each in "ac"}  # Nobody ever opens them.
    run = await offers.flow("abcd", enough(1), concurrency=3).run()
    assert (run.outputs["all"], offers.ended) == (["b"], ["b"])
    [stop] = stops(run.events)
    assert (stop.done, stop.left) == ([1], 4 - 1 - len(stop.cancelled))
    assert 0 in stop.cancelled
    cancelled = {each.node for each in run.events if isinstance(each, NodeCancelled)}
    assert cancelled == {f"all[{index}].ask" for index in stop.cancelled if "abcd"[index] in offers.begun}
    assert fold_events(run.events).nodes["all[0].ask"].status == "cancelled"


async def test_results_come_in_the_items_order_and_the_body_is_seen():
    offers = Offers()
    offers.gates = {"a": anyio.Event()}

    def until(context: Context) -> bool:
        offers.gates["a"].set()
        return context.prev_outputs["ask"] == "a" and len(context.variables["results"]) == 3

    run = await offers.flow("abc", until).run()
    assert (run.outputs["all"], offers.ended) == (["a", "b", "c"], ["b", "c", "a"])


async def test_where_it_is_never_true_all_items_are_done():
    run = await Offers().flow("abc", enough(9)).run()
    assert (run.outputs["all"], stops(run.events)) == (["a", "b", "c"], [])


async def test_failed_items_are_no_results_but_where_they_are_collected():
    offers = Offers()
    skipped = await offers.flow(["bad", "a", "b"], enough(1), concurrency=1, on_item_error="skip").run()
    assert (skipped.outputs["all"], offers.begun) == (["a"], ["bad", "a"])
    collected = await Offers().flow(["bad", "a", "b"], enough(1), concurrency=1, on_item_error="collect").run()
    assert [each if each == "a" else each["index"] for each in collected.outputs["all"]] == [0, "a"]
    assert stops(collected.events)[0].errors[0]["index"] == 0
    failed = await Offers().flow(["bad", "a"], enough(1), concurrency=1).run()
    assert failed.status == "failed"


async def test_what_is_wrong_with_until_fails_the_map():
    run = await Offers().flow("abc", lambda context: 1, concurrency=1).run()
    assert run.error is not None
    assert (run.status, run.error.message) == ("failed", "`until` must give true or false, found int 1")


async def test_only_what_counts_writes_to_shared_state():
    async def write(context: Context) -> str:
        return str(context.result)

    node = MapNode(
        {"ask": FunctionNode(write, set={"seen": lambda context, output: [output]})},
        over=lambda context: ["a", "b", "c"], until=enough(2), concurrency=1,
    )  # fmt: skip
    flow = Flow("f", {"all": node}, shared_state={"seen": StateKey([], "append")})
    assert (await flow.run()).shared_state["seen"] == ["a", "b"]


def cut(events: Sequence[Event], at: int) -> MemoryStore:
    """A store with the run as a process left it that died after so many events."""
    store = MemoryStore()
    journal = store.create("r1")
    for event in events[:at]:
        journal.append(decode(encode(event)))
    store.close()
    return store


async def test_killed_at_any_event_the_run_comes_to_an_end_and_does_nothing_in_vain():
    offers = Offers()
    offers.gates = {"c": anyio.Event()}
    flow = offers.flow(["a", "bad", "c", "d", "e", "f"], enough(3), concurrency=2, on_item_error="collect")
    run = await flow.run(run_id="r1", store=MemoryStore())
    assert run.status == "succeeded"
    for at in range(1, len(run.events)):
        offers.begun.clear()
        known = run.events[:at]
        done = {each.node for each in known if isinstance(each, NodeFinished)}
        again = await flow.resume("r1", store=cut(run.events, at))
        results = [each for each in again.outputs["all"] if isinstance(each, str)]
        assert (again.status, len(results)) == ("succeeded", 3)
        assert not {f"all[{['a', 'bad', 'c', 'd', 'e', 'f'].index(each)}].ask" for each in offers.begun} & done
        if stops(known):
            assert (offers.begun, again.outputs) == ([], run.outputs)
        else:
            assert len(stops(again.events)) == 1


async def test_results_that_were_enough_before_the_record_of_it_begin_nothing_more():
    offers = Offers()
    flow = offers.flow("abcdef", enough(2), concurrency=1)
    run = await flow.run(run_id="r1", store=MemoryStore())
    at = next(number for number, each in enumerate(run.events) if stops([each]))
    offers.begun.clear()
    again = await flow.resume("r1", store=cut(run.events, at))
    assert (again.outputs["all"], offers.begun) == (["a", "b"], [])


async def test_items_that_wait_for_a_person_are_waited_for_no_more():
    body: dict[str, Any] = {
        "which": ConditionNode(lambda context: context.variables["item"] == "ask", then="ask", otherwise="take"),
        "ask": ApprovalNode(lambda context: "Take it?", {"yes": None}),
        "take": FunctionNode(lambda context: "taken"),
    }
    node = MapNode(
        body,
        over=lambda context: ["ask", "free"],
        until=enough(1),
        result=lambda context: context.prev_outputs.get("take"),
        concurrency=1,
    )
    store = MemoryStore()
    run = await Flow("f", {"all": node}).run(run_id="r1", store=store)
    assert (run.status, run.outputs["all"]) == ("succeeded", ["taken"])
    assert stops(run.events) == [MapStopped([1], [0], 0, [])]
    assert open_questions(run.events) == {}
    assert fold_events(run.events).nodes["all[0].ask"].status == "cancelled"


async def test_failed_items_of_a_map_that_had_enough_are_not_repeated():
    offers = Offers()
    flow = offers.flow(["bad", "a", "b"], enough(1), concurrency=1, on_item_error="skip")
    run: Run = await flow.run()
    assert failed_items(flow.plan, run.events) == {}
    assert sum(isinstance(each, NodeStarted) for each in run.events) == 3
    assert isinstance(run.events[-1], RunFinished)


async def test_why_it_had_enough_is_on_record_with_the_values_that_were_seen():
    text = (
        "flowengine: v1\nname: offers\ninputs: {wanted: {type: integer, default: 2}}\nnodes:\n"
        "  all:\n    type: map\n    over: '[3, 1, 2]'\n    concurrency: 1\n"
        "    until: results | length >= inputs.wanted\n"
        "    nodes: {offer: {prompt: 'Offer {{ item }}.'}}\n"
    )
    run = await Flow.from_text(text, "offers.yaml", model="offline").run()
    assert len(run.outputs["all"]) == 2
    [why] = [each.record for each in run.events if isinstance(each, NodeRecorded) and type(each.record) is Decided]
    assert (why.what, why.answer) == ("enough", "true")
    assert "inputs.wanted" in str(why.tests)
    [words] = explain_decision(why)
    assert format_words(words).endswith("so it had enough")


class Copied:
    """A value that counts its copies."""

    copies = 0

    def __deepcopy__(self, memo: dict[int, Any]) -> Copied:
        Copied.copies += 1
        return Copied()


async def test_looking_costs_no_walk_through_all_results_each_time():
    node = MapNode(
        {"make": FunctionNode(lambda context: Copied())},
        over=lambda context: list(range(60)),
        until=boolean("results | length > 100"),
        concurrency=1,
    )
    Copied.copies = 0
    run = await Flow("many", {"all": node}).run(store=MemoryStore())
    assert len(run.outputs["all"]) == 60
    assert Copied.copies < 60 * 15


async def test_results_stand_in_the_items_order_and_a_function_may_keep_them():
    kept: list[Any] = []
    offers = Offers()
    offers.gates = {"a": anyio.Event()}

    def look(context: Context) -> bool:
        kept.append(context.variables["results"])
        if len(kept) == 2:
            offers.gates["a"].set()
        return False

    await offers.flow("abc", look, concurrency=2).run()
    assert kept == [["b"], ["b", "c"], ["a", "b", "c"]]
