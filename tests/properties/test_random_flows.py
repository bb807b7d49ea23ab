"""Whatever way a flow is run, it gives what its file means; `python -m tests.properties` tries thousands of flows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.properties.comparing import Observed, differences
from tests.properties.exploring import examine, reproduction
from tests.properties.oracle import Meaning
from tests.properties.oracle_scope import Outcome
from tests.properties.random_flows import INPUTS, STATE, Case, Given
from tests.properties.run_modes import Bench, Mismatch

BLOCKS, FLOWS = 10, 25
"""Blocks of flows, a test each, and the flows of a block."""


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Bench:
    return Bench.make(tmp_path_factory.mktemp("properties"))


@pytest.mark.long
@pytest.mark.parametrize("block", range(BLOCKS))
def test_every_way_of_running_a_flow_gives_what_the_flow_means(bench: Bench, block: int):
    kinds: list[str] = []
    for number in range(block * FLOWS, (block + 1) * FLOWS):
        verdict = examine(bench.check, number)
        assert verdict.kind != "mismatch", f"flow {number}\n{reproduction(verdict)}"
        kinds.append(verdict.kind)
    assert kinds.count("good") > 0.8 * FLOWS  # Else the flows say too little.


async def test_a_value_of_a_class_is_one_of_the_edited_code_after_an_edit(bench: Bench):
    hold = {"type": "function", "call": "lib:hold", "with": {"x": "{{ inputs.a }}"}}
    see = {"type": "function", "call": "lib:seen_result", "needs": ["made"], "set": {"slot": "{{ inputs.b }}"}}
    outputs = {"seen": "{{ nodes.seen.output }}"}
    flow = {"flowengine": "v1", "inputs": INPUTS, "shared_state": STATE, "nodes": {"made": hold, "seen": see}}
    first = Given({**flow, "name": "t", "outputs": outputs}, {}, {"a": 6, "b": 0})
    second = first._replace(inputs={"a": 6, "b": None}, edited_code=True)
    await bench.check(Case(first, second, {}, frozenset(), 127))


def test_the_same_number_is_the_same_flow():
    cases: list[Any] = []

    async def keep(case: Any) -> None:
        cases.append(case)

    for number in (3, 4, 3):
        examine(keep, number)
    assert cases[0] == cases[2] != cases[1]


# --- the comparison sees what it is for ---------------------------------------------------------------

STATE_AT_END = {"log": [1], "total": 0, "best": 0, "slot": "start"}
MEANING = Meaning(
    "succeeded",
    {"a": True},
    STATE_AT_END,
    {
        "a": Outcome("succeeded", {"x": [1, None]}),
        "b": Outcome("skipped", cause="condition_false"),
        "m": Outcome("succeeded", [3]),
        "m[0].c": Outcome("succeeded", 3),
    },
    frozenset(),
)
SEEN = Observed(
    "succeeded",
    {"a": True},
    STATE_AT_END,
    {
        "a": ("succeeded", {"x": [1, None]}, None),
        "b": ("skipped", None, "condition_false"),
        "m": ("succeeded", [3], None),
        "m[0].c": ("succeeded", 3, None),
    },
    None,
    None,
    frozenset(),
)


def nodes(**changed: Any) -> dict[str, Any]:
    return {**SEEN.nodes, **changed}


def test_a_run_as_it_is_meant_differs_in_nothing():
    assert set(STATE_AT_END) == set(STATE)
    assert differences(MEANING, SEEN) == []
    inside = {path: each for path, each in SEEN.nodes.items() if path != "m[0].c"}
    assert differences(MEANING, SEEN._replace(nodes=inside, reused=frozenset({"m"}))) == []


@pytest.mark.parametrize(
    "change",
    [
        lambda seen: seen._replace(status="failed", failed_node="a"),
        lambda seen: seen._replace(outputs={"a": 1}),
        lambda seen: seen._replace(outputs={}),
        lambda seen: seen._replace(state={**STATE_AT_END, "total": 1}),
        lambda seen: seen._replace(nodes=nodes(a=("succeeded", {"x": [1, False]}, None))),
        lambda seen: seen._replace(nodes=nodes(a=("succeeded", {"x": [1]}, None))),
        lambda seen: seen._replace(nodes=nodes(b=("skipped", None, "not_selected"))),
        lambda seen: seen._replace(nodes=nodes(b=("succeeded", None, None))),
        lambda seen: seen._replace(nodes=nodes(z=("succeeded", None, None))),
        lambda seen: seen._replace(nodes={path: each for path, each in seen.nodes.items() if path != "m[0].c"}),
        lambda seen: seen._replace(nodes={path: each for path, each in seen.nodes.items() if path != "b"}),
    ],
)
def test_every_difference_is_seen(change: Callable[[Observed], Observed]):
    assert differences(MEANING, change(SEEN))


def test_a_mismatch_is_shrunk_and_written_down():
    sizes: list[int] = []

    async def refuse_two_nodes(case: Any) -> None:
        if len(case.first.flow["nodes"]) > 1:
            sizes.append(len(case.first.flow["nodes"]))
            raise Mismatch("live:\n  two nodes")

    verdict = examine(refuse_two_nodes, 8, patience=5.0)
    assert verdict.case is not None
    assert len(verdict.case.first.flow["nodes"]) == 2 < max(sizes)
    written = reproduction(verdict)
    assert written.startswith("live:\n  two nodes")
    assert "flowengine: v1" in written
