"""Spans of runs: their names, who is inside of whom, and what is not in them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from flowengine.agents.agent import Agent
from flowengine.cli.commands.export import lines_of
from flowengine.core.context import Context
from flowengine.core.records import Receipt
from flowengine.engine.events import Event, NodeRecorded
from flowengine.flow import Flow
from flowengine.journal.memory import MemoryStore
from flowengine.models.messages import ToolRequest
from flowengine.models.scripted import ScriptedModel
from flowengine.nodes.function import FunctionNode
from flowengine.nodes.loop import LoopNode
from flowengine.runtime.telemetry import conventions as names
from flowengine.runtime.telemetry.spans import Span, spans_of

pytestmark = pytest.mark.anyio

SECRET = "ada@example.jp"


async def look(what: str) -> str:
    """Look something up."""
    return f"{what}: {SECRET}"


def flow(said: list[Any] | None = None) -> Flow:
    answers = said or [ToolRequest("c1", "look", '{"what": "mail"}'), f"Write to {SECRET}"]
    agent = Agent("ask", "Answer.", model=ScriptedModel(answers), tools=[look])
    body = {"count": FunctionNode(number)}
    loop = LoopNode(body, max_iterations=2, needs=["ask"])
    return Flow("tea", {"ask": agent, "loop": loop, "end": FunctionNode(number, needs=["loop"])})


async def number(context: Context) -> int:
    return 1


def named(spans: list[Span], name: str) -> Span:
    return next(span for span in spans if span.name == name)


async def test_runs_nodes_agents_calls_and_tools_are_spans_inside_of_each_other():
    run = await flow().run()
    spans = spans_of(run.events)
    tree = [(span.name, span.parent and span.parent.name) for span in spans]
    assert tree == [
        ("invoke_workflow tea", None),
        ("agent ask", "invoke_workflow tea"),
        ("invoke_agent ask", "agent ask"),
        ("chat scripted", "invoke_agent ask"),
        ("execute_tool look", "invoke_agent ask"),
        ("chat scripted", "invoke_agent ask"),
        ("loop loop", "invoke_workflow tea"),
        ("function loop.round[0].count", "loop loop"),
        ("function loop.round[1].count", "loop loop"),
        ("function end", "invoke_workflow tea"),
    ]
    assert all(span.end is not None and span.end >= span.start for span in spans)
    chat = named(spans, "chat scripted")
    assert chat.attributes[names.OPERATION] == "chat"
    assert chat.attributes[names.PURPOSE] == "generation"
    assert named(spans, "invoke_workflow tea").attributes[names.RUN_STATUS] == "succeeded"


async def test_a_prompt_s_context_is_counted_by_provider_also_where_none_is_named():
    kept, dropped = {"source": "files", "tokens": 5, "status": "kept"}, {"tokens": 9, "status": "dropped"}
    run = await flow().run()
    events = [
        each._replace(record=Receipt([kept, {**dropped, "source": "files"}, dropped]))
        if isinstance(each, NodeRecorded)
        else each
        for each in run.events
    ]
    found = [each.attributes for each in spans_of(events) if each.name.startswith("provide_context")][:2]
    counts = [(each[names.CONTEXT_TOKENS], each[names.FRAGMENTS_KEPT], each[names.FRAGMENTS_DROPPED]) for each in found]
    assert counts == [(5, 1, 1), (0, 0, 1)]


async def test_content_is_left_out_unless_asked_for_and_masked_then():
    run = await flow().run()
    silent = "\n".join(lines_of(spans_of(run.events)))
    assert "Answer." not in silent
    assert SECRET not in silent
    told = "\n".join(lines_of(spans_of(run.events, content=True)))
    assert "Answer." in told
    assert "<MAIL:" in told
    assert SECRET not in told


@pytest.mark.parametrize("further", [10, 1_000])
async def test_what_is_cut_ends_in_the_midst_of_no_secret(further: int):
    run = await flow([f"{'word ' * 19_999}ada@example.jp {'and so on ' * further}"]).run()
    chat = named(spans_of(run.events, content=True), "chat scripted").attributes[names.OUTPUT_MESSAGES]
    assert "word <MAIL" in chat
    assert "ada@" not in chat


async def test_errors_are_told_with_their_type_and_masked():
    async def fail(context: Context) -> None:
        raise ValueError(f"no mail from {SECRET}")

    run = await Flow("f", {"bad": FunctionNode(fail)}).run()
    bad = named(spans_of(run.events), "function bad")
    assert bad.error is not None
    assert SECRET not in bad.error
    assert bad.attributes[names.ERROR_TYPE] == "ValueError"


async def test_a_resumed_run_has_a_span_for_each_time_linked_to_the_one_before():
    tries: list[int] = []

    async def second_time(context: Context) -> None:
        tries.append(1)
        if len(tries) == 1:
            raise ValueError("no")

    store = MemoryStore()
    node = Flow("f", {"a": FunctionNode(second_time)})
    await node.run(store=store, run_id="r")
    run = await node.resume("r", store=store)
    roots = [span for span in spans_of(run.events) if span.parent is None]
    assert len(roots) == 2
    assert roots[1].link is roots[0]
    assert [span.error is None for span in roots] == [False, True]


async def test_a_run_that_broke_off_has_spans_that_end():
    run = await flow().run()
    for cut in range(1, len(run.events)):
        spans = spans_of(run.events[:cut])
        assert spans[0].name == "invoke_workflow tea"
        for line in lines_of(spans):
            json.loads(line)


async def test_lines_are_the_same_for_the_same_run_and_their_parents_come_first():
    run = await flow().run()
    rows = [json.loads(line) for line in lines_of(spans_of(run.events))]
    assert rows == [json.loads(line) for line in lines_of(spans_of(run.events))]
    seen: set[str | None] = {None}
    for row in rows:
        assert row["parent_id"] in seen
        seen.add(row["span_id"])


async def test_events_are_only_read(tmp_path: Path):
    run = await flow().run()
    before: list[Event] = list(run.events)
    spans_of(run.events, content=True)
    assert list(run.events) == before
