"""Which evaluation `evaluation_result` is: the nearest one that was to run, and an error where that one failed."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from flowengine.core.context import Context
from flowengine.engine.events import Event
from flowengine.flow import Flow
from flowengine.journal.codec import decode, encode
from flowengine.journal.memory import MemoryStore
from flowengine.nodes.evaluation_node import EvaluationNode
from flowengine.nodes.function import FunctionNode
from flowengine.nodes.loop import LoopNode
from flowengine.nodes.node import FlowNode
from flowengine.runtime.run import Run

pytestmark = pytest.mark.anyio


def passing(**settings: Any) -> EvaluationNode:
    return EvaluationNode(scorer=lambda content: 1.0, target=lambda context: "text", **settings)


def broken(**settings: Any) -> EvaluationNode:
    def down(content: Any) -> float:
        raise ConnectionError("the judge is down")

    return EvaluationNode(scorer=down, target=lambda context: "text", **settings)


async def asked(context: Context) -> bool:
    evaluation = context.evaluation_result
    return evaluation is not None and evaluation.passed


def flow(judge: FlowNode) -> Flow:
    last = FunctionNode(asked, needs=["early", "judge"], join="always")
    return Flow("f", {"early": passing(), "judge": judge, "ship": last})


DOWN = "the evaluation in node 'judge' failed (ConnectionError: the judge is down)"


async def failed(run: Run, why: str = DOWN) -> None:
    assert run.status == "failed"
    assert why in str(run.nodes["ship"].error)


async def test_an_evaluation_that_failed_and_was_skipped_is_no_earlier_ones_result():
    await failed(await flow(broken(needs=["early"], on_error="skip")).run())


async def test_a_node_that_handles_the_failure_cannot_read_an_earlier_result_either():
    handled = Flow(
        "f",
        {
            "early": passing(),
            "judge": broken(needs=["early"], on_error="ship"),
            "ship": FunctionNode(asked),
        },
    )
    await failed(await handled.run())


async def test_a_clean_up_after_an_evaluation_that_failed_cannot_read_an_earlier_result():
    await failed(await flow(broken(needs=["early"])).run())


async def test_a_loop_whose_evaluation_failed_does_not_leave_an_earlier_one_in_its_place():
    loop = LoopNode({"inner": broken()}, max_iterations=2, needs=["early"], on_error="skip")
    await failed(await flow(loop).run(), "node 'judge.round[0].inner' failed")


async def test_a_loop_whose_last_round_skipped_its_evaluation_hands_on_that_it_failed():
    loop = LoopNode({"inner": broken(on_error="skip")}, max_iterations=2, needs=["early"])
    store = MemoryStore()
    flow_of = flow(loop)
    run = await flow_of.run(store=store)
    await failed(run, "node 'judge.round[1].inner' failed")
    await failed(await flow_of.resume(run.id, store=await _copy(run.id, run.events)), "node 'judge.round[1].inner'")


async def _copy(run_id: str, events: Sequence[Event]) -> MemoryStore:
    store = MemoryStore()
    journal = store.create(run_id)
    for event in events:
        journal.append(decode(encode(event)))
    await journal.close()
    return store


async def test_a_later_evaluation_counts_again():
    nodes = {
        "early": broken(on_error="skip"),
        "judge": passing(needs=["early"], join="always"),
        "ship": FunctionNode(asked, needs=["judge"]),
    }
    assert (await Flow("f", nodes).run()).nodes["ship"].output is True


async def test_an_evaluation_that_was_not_to_run_leaves_the_one_before_it():
    judge = broken(needs=["early"], when=lambda context: False)
    assert (await flow(judge).run()).nodes["ship"].output is True


async def test_an_expression_that_reads_the_result_of_a_failed_evaluation_fails(tmp_path: Path):
    (tmp_path / "code.py").write_text("def good(content): return 1.0\ndef down(content): raise ValueError('down')\n")
    file = tmp_path / "f.yaml"
    file.write_text(
        """
flowengine: v1
name: t
inputs: {text: {type: string}}
nodes:
  draft: {type: function, call: "code:good", with: {content: "{{ inputs.text }}"}}
  early: {type: evaluation, call: "code:good", target: "{{ inputs.text }}", needs: [draft]}
  judge: {type: evaluation, call: "code:down", target: "{{ inputs.text }}", needs: [early], on_error: skip}
  gate: {type: condition, needs: [early, judge], if: evaluation_result.passed, then: ship}
  ship: {type: function, call: "code:good", with: {content: shipped}}
"""
    )
    run = await Flow.from_yaml(file).run({"text": "x"})
    assert run.failed_node == "gate", run.error
    assert "the evaluation in node 'judge' failed (ValueError: down)" in str(run.nodes["gate"].error)
    assert run.nodes["ship"].status == "skipped"


async def test_a_scorer_in_code_gives_a_number_not_a_boolean():
    judge = EvaluationNode(scorer=lambda content: True, target=lambda context: "text")
    run = await Flow("f", {"judge": judge}).run()
    assert run.error is not None
    assert "a scorer returns a number from 0.0 to 1.0 or an EvaluationResult, found True" in run.error.message
