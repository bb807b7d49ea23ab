"""Loops: rounds, their variables, which one is chosen, and what counts of it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import inf, nan
from typing import Any

import anyio
import pytest

from flowengine.core.context import Context, EvaluationResult, NodeResult
from flowengine.core.records import RoundEnded
from flowengine.engine.events import NodeStarted
from flowengine.engine.merging import StateKey
from flowengine.errors import DefinitionError, FlowError
from flowengine.flow import Flow
from flowengine.nodes.condition import ConditionNode
from flowengine.nodes.function import FunctionNode
from flowengine.nodes.loop import LoopNode
from flowengine.nodes.node import FlowNode, NodeLimits, RetryPolicy
from flowengine.runtime.run import Run

pytestmark = pytest.mark.anyio


def of_round(name: str) -> Callable[[Context], Any]:
    return lambda context: context.variables["round"][name]


def counting(**settings: Any) -> LoopNode:
    """Its body adds one to `n`."""

    async def add(context: Context) -> NodeResult:
        n = context.variables["round"]["n"]
        return NodeResult(n + 1, state={"log": [n]})

    given: dict[str, Any] = {
        "max_iterations": 5,
        "initial": {"n": lambda context: 0},
        "carry": {"n": lambda seen: seen.prev_outputs["add"]},
    }
    return LoopNode({"add": FunctionNode(add)}, **given | settings)


async def run(loop: FlowNode, **more: FlowNode) -> Run:
    return await Flow("f", {"loop": loop, **more}, shared_state={"log": StateKey([], "append")}).run()


async def test_a_loop_stops_with_the_round_after_which_until_is_true():
    done = await run(counting(until=lambda seen: seen.prev_outputs["add"] == 3))
    assert done.nodes["loop"].output == {"n": 2, "iterations": 3, "exhausted": False}


async def test_nothing_is_carried_out_of_the_last_round():
    def carried(seen: Context) -> int:
        assert seen.variables["round"]["index"] < 2
        return 0

    done = await run(counting(max_iterations=3, carry={"n": carried}))
    assert done.nodes["loop"].output["iterations"] == 3


@pytest.mark.parametrize(
    ("marks", "chosen"),
    [((5.0, nan, 3.0), 0), ((nan, 3.0, 2.0), 1), ((nan, nan, nan), 2), ((1.0, inf, nan), 1), ((None, nan, -1e308), 2)],
)
async def test_a_mark_that_is_no_number_is_the_worst(marks: Sequence[float | None], chosen: int):
    async def tell(context: Context) -> int:
        return of_round("index")(context)

    loop = LoopNode(
        {"tell": FunctionNode(tell)},
        max_iterations=3,
        initial={"number": lambda context: 0},
        carry={"number": lambda seen: seen.prev_outputs["tell"] + 1},
        best_by=lambda seen: marks[seen.prev_outputs["tell"]],
    )
    done = await run(loop)
    assert done.nodes["loop"].output["number"] == chosen


async def test_what_every_round_wrote_counts():
    done = await run(counting(until=lambda seen: seen.prev_outputs["add"] == 3))
    assert list(done.shared_state["log"]) == [0, 1, 2]


def writing(*rounds: Any) -> FunctionNode:
    """Writes what its round is given here under `key`, and tells what it saw there before."""

    async def write(context: Context) -> NodeResult:
        return NodeResult(context.shared_state["key"], state={"key": rounds[of_round("index")(context)]})

    return FunctionNode(write)


@pytest.mark.parametrize(
    ("key", "writes", "seen", "end"),
    [
        (StateKey(None, "error"), [1, 2, 3], [None, 1, 2], 3),
        (StateKey("none", "replace"), ["a", "b", "c"], ["none", "a", "b"], "c"),
        (StateKey([0], "append"), [[1], [1], [2]], [[0], [0, 1], [0, 1, 1]], [0, 1, 1, 2]),
        (StateKey([0], "union"), [[1], [1], [0, 2]], [[0], [0, 1], [0, 1]], [0, 1, 2]),
        (StateKey(10, "sum"), [1, 2, 3], [10, 11, 13], 16),
        (StateKey(2, "max"), [1, 5, 3], [2, 2, 5], 5),
        (StateKey(2, "min"), [3, 1, 4], [2, 2, 1], 1),
        (StateKey({"z": 0}, "update"), [{"a": 1}, {"b": 1}, {"a": 2}], None, {"z": 0, "a": 2, "b": 1}),
    ],
    ids=lambda each: each.merge if isinstance(each, StateKey) else "",
)
async def test_rounds_see_what_earlier_ones_wrote_and_all_of_it_counts(
    key: StateKey, writes: list[Any], seen: list[Any] | None, end: Any
):
    loop = LoopNode(
        {"w": writing(*writes)},
        max_iterations=3,
        initial={"seen": lambda context: []},
        carry={"seen": lambda after: [*after.variables["round"]["seen"], after.prev_outputs["w"]]},
        best_by=lambda after: -after.variables["round"]["index"],
    )
    flow = Flow("f", {"loop": LoopNode({"inner": loop}, max_iterations=1)}, shared_state={"key": key})
    done = await flow.run()
    assert done.shared_state["key"] == end
    ends = [event.record for event in done.events if type(getattr(event, "record", None)) is RoundEnded]
    if seen is not None:
        assert [*ends[2].variables["seen"]] == seen[:2]


async def test_what_the_rounds_of_a_loop_inside_a_loop_wrote_all_counts():
    done = await run(LoopNode({"inner": counting(max_iterations=2)}, max_iterations=3))
    assert list(done.shared_state["log"]) == [0, 1] * 3


async def test_a_later_round_sees_the_evaluation_of_the_one_before():
    async def judge(context: Context) -> NodeResult:
        before = context.evaluation_result
        score = 0.1 if before is None else before.score + 0.2
        return NodeResult(score, evaluation=EvaluationResult(score=score, passed=score > 0.4))

    async def after(context: Context) -> float:
        assert context.evaluation_result is not None
        return context.evaluation_result.score

    loop = LoopNode({"judge": FunctionNode(judge)}, max_iterations=3, best_by=lambda seen: -seen.prev_outputs["judge"])
    done = await run(loop, after=FunctionNode(after, needs=["loop"]))
    assert done.nodes["after"].output == pytest.approx(0.5)


async def test_a_look_up_in_a_late_round_is_no_deeper_than_in_an_early_one():
    async def look(context: Context) -> NodeResult:
        return NodeResult(len(context.shared_state["log"]), state={"log": [1]})

    done = await run(LoopNode({"look": FunctionNode(look)}, max_iterations=2000))
    assert done.status == "succeeded", done.error
    assert len(done.shared_state["log"]) == 2000


async def test_a_loop_that_is_cut_off_at_its_limit_keeps_what_its_whole_rounds_wrote():
    async def add(context: Context) -> NodeResult:
        if of_round("index")(context) == 2:
            await anyio.sleep_forever()
        return NodeResult(None, state={"log": [of_round("index")(context)]})

    limits = NodeLimits(timeout=1.5, on_limit="partial")
    done = await run(LoopNode({"add": FunctionNode(add)}, max_iterations=5, limits=limits))
    assert done.nodes["loop"].output == {"iterations": 2, "exhausted": True}
    assert list(done.shared_state["log"]) == [0, 1]


async def test_an_exhausted_loop_fails_and_says_how_many_rounds_there_were():
    done = await run(counting(until=lambda seen: False))
    assert done.status == "failed"
    assert done.error is not None
    assert "5 rounds" in done.error.message


async def test_an_exhausted_loop_may_go_on_with_its_last_round():
    done = await run(counting(until=lambda seen: False, exhausted_fails=False))
    assert done.nodes["loop"].output == {"n": 4, "iterations": 5, "exhausted": True}


async def test_an_exhausted_loop_chooses_its_best_round_the_later_on_a_tie():
    marks = [1, 7, 3, 7, 2]
    done = await run(
        counting(
            until=lambda seen: False,
            exhausted_fails=False,
            best_by=lambda seen: marks[seen.variables["round"]["index"]],
        )
    )
    assert done.nodes["loop"].output["n"] == 3
    assert list(done.shared_state["log"]) == [0, 1, 2, 3, 4]  # It is variables that are chosen, not state.


async def test_a_round_without_a_mark_is_never_the_best():
    marks = [None, 1, None]
    done = await run(
        counting(
            max_iterations=3,
            until=lambda seen: False,
            exhausted_fails=False,
            best_by=lambda seen: marks[seen.variables["round"]["index"]],
        )
    )
    assert done.nodes["loop"].output["n"] == 1


async def test_a_mark_that_is_no_number_fails_the_loop():
    done = await run(counting(until=lambda seen: False, best_by=lambda seen: "high"))
    assert done.error is not None
    assert "`best_by` must give a number, found" in done.error.message


async def test_until_must_be_a_boolean():
    done = await run(counting(until=lambda seen: "false"))
    assert done.error is not None
    assert "`until` must give true or false" in done.error.message


async def test_a_loop_without_until_runs_all_its_rounds():
    done = await run(counting())
    assert done.nodes["loop"].output == {"n": 4, "iterations": 5, "exhausted": False}


async def test_a_variable_that_is_not_carried_stays():
    async def nothing(context: Context) -> None: ...

    loop = LoopNode(
        {"a": FunctionNode(nothing)},
        max_iterations=3,
        initial={"kept": lambda context: "k", "n": lambda context: 0},
        carry={"n": lambda seen: seen.variables["round"]["n"] + 10},
    )
    assert (await run(loop)).nodes["loop"].output == {"kept": "k", "n": 20, "iterations": 3, "exhausted": False}


async def test_the_body_knows_its_round_and_whether_it_is_the_last():
    seen: list[tuple[int, bool]] = []

    async def look(context: Context) -> None:
        seen.append((of_round("index")(context), of_round("last")(context)))

    await run(LoopNode({"look": FunctionNode(look)}, max_iterations=3))
    assert seen == [(0, False), (1, False), (2, True)]


async def test_rounds_are_told_and_their_nodes_have_paths():
    done = await run(counting(max_iterations=2))
    started = [event.node for event in done.events if isinstance(event, NodeStarted)]
    assert started == ["loop", "loop.round[0].add", "loop.round[1].add"]
    ends = [event.record for event in done.events if type(getattr(event, "record", None)) is RoundEnded]
    assert [(end.number, dict(end.variables), end.stopped) for end in ends] == [
        (0, {"n": 0}, False),
        (1, {"n": 1}, False),
    ]


async def test_a_failure_inside_fails_the_loop_and_names_the_node_inside():
    async def fail(context: Context) -> None:
        raise ValueError("no luck")

    done = await run(LoopNode({"bad": FunctionNode(fail)}, max_iterations=3))
    assert done.status == "failed"
    assert done.failed_node == "loop.round[0].bad"
    assert done.nodes["loop"].error == "ValueError: no luck"


async def test_a_failed_loop_may_be_skipped_like_any_node():
    async def fail(context: Context) -> None:
        raise ValueError("no luck")

    done = await run(LoopNode({"bad": FunctionNode(fail)}, max_iterations=3, on_error="skip"))
    assert done.status == "succeeded"
    assert done.nodes["loop"].status == "skipped"


async def test_the_body_sees_what_is_before_the_loop_and_nothing_beside_it():
    async def first(context: Context) -> str:
        return "before"

    async def look(context: Context) -> list[str]:
        assert "beside" not in context.nodes
        return [*context.prev_outputs, context.prev_outputs["first"]]

    loop = LoopNode({"look": FunctionNode(look)}, max_iterations=1, needs=["first"], carry={})
    flow = Flow("f", {"first": FunctionNode(first), "beside": FunctionNode(first), "loop": loop})
    done = await flow.run()
    assert done.status == "succeeded", done.error


async def test_routes_work_inside_a_body_and_the_skipped_side_is_undefined_there():
    async def word(context: Context) -> str:
        return str(context.current_node)

    loop = LoopNode(
        {
            "pick": ConditionNode(lambda context: of_round("index")(context) == 1, "yes", "no"),
            "yes": FunctionNode(word),
            "no": FunctionNode(word),
        },
        max_iterations=3,
        until=lambda seen: seen.nodes["yes"].status == "succeeded",
    )
    assert (await run(loop)).nodes["loop"].output["iterations"] == 2


async def test_a_loop_whose_rounds_never_wait_lets_other_tasks_run():
    turns = 0

    async def beside() -> None:
        nonlocal turns
        while True:
            await anyio.lowlevel.checkpoint()
            turns += 1

    async def nothing(context: Context) -> None: ...

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(beside)
        await run(LoopNode({"a": FunctionNode(nothing)}, max_iterations=2000))
        tasks.cancel_scope.cancel()
    assert turns > 10


async def test_loops_nest():
    inner = counting(max_iterations=2)
    outer = LoopNode(
        {"inner": inner},
        max_iterations=2,
        initial={"total": lambda context: 0},
        carry={"total": lambda seen: seen.prev_outputs["inner"]["n"] + 100},
    )
    done = await run(outer)
    assert done.nodes["loop"].output["total"] == 101
    assert "loop.round[1].inner.round[0].add" in [getattr(event, "node", None) for event in done.events]


def test_a_loop_takes_no_retry_and_at_least_one_round():
    with pytest.raises(DefinitionError, match="takes no `retry`"):
        counting(retry=RetryPolicy())
    with pytest.raises(DefinitionError, match="1 at least"):
        counting(max_iterations=0)


def test_a_body_with_a_cycle_is_refused():
    async def nothing(context: Context) -> None: ...

    with pytest.raises(FlowError, match="cycle"):
        LoopNode({"a": FunctionNode(nothing, needs=["b"]), "b": FunctionNode(nothing, needs=["a"])}, max_iterations=1)
