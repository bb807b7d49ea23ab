"""Runs as a journal would hold them, for the tests of pictures, pages and the server."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from flowengine.core.context import EvaluationResult, NodeResult, RoutingResult
from flowengine.core.records import (
    ApprovalRequested,
    MapBegan,
    ModelCall,
    Notice,
    Receipt,
    Retry,
    Round,
    RoundEnded,
    ToolCall,
)
from flowengine.engine.events import (
    ErrorInfo,
    Event,
    NodeFailed,
    NodeFinished,
    NodeRecorded,
    NodeSkipped,
    NodeStarted,
    RunFinished,
    RunStarted,
)

__all__ = ["GRAPH", "START", "layered_run", "mapped_run", "model_call", "nested_run", "research_run"]

START: Final = 1_767_262_380.0
"""When the runs start, in Unix seconds."""

GRAPH: Final[dict[str, Any]] = {
    "nodes": [
        ["draft", "agent"],
        ["polish", "loop", {"nodes": [["judge", "evaluation"], ["improve", "agent"]],
                            "edges": [["judge", "improve", ["fail"]]], "most": 4}],
        ["investigate", "map", {"nodes": [["search", "function"], ["summarise", "agent"]],
                                "edges": [["search", "summarise", []]]}],
        ["triage", "routing"],
        ["widen", "subflow", {"nodes": [["plan", "agent"], ["each", "map", {"nodes": [["leaf", "function"]],
                                                                            "edges": []}]],
                              "edges": [["plan", "each", []]]}],
        ["ask", "approval"],
        ["publish", "function"],
    ],
    "edges": [
        ["draft", "polish", []], ["draft", "investigate", []], ["polish", "triage", []], ["investigate", "triage", []],
        ["triage", "widen", ["wider"]], ["triage", "ask", ["ready"]], ["widen", "publish", []],
        ["ask", "publish", ["yes"]],
    ],
    "state": {"sources": ["union", []], "words": ["sum", 0], "title": ["error", None]},
}  # fmt: skip

FORM: Final[dict[str, Any]] = {
    "type": "object",
    "properties": {
        "channel": {"type": "string", "enum": ["blog", "mail"], "description": "Where it goes"},
        "copies": {"type": "integer", "minimum": 1, "default": 1},
        "urgent": {"type": "boolean"},
        "remark": {"type": "string", "maxLength": 500},
    },
    "required": ["channel"],
}


def model_call(purpose: str, prompt: str, answer: str, tokens: int, cost: float | None, seconds: float) -> ModelCall:
    messages = [
        {"role": "system", "content": "You write for people who have little time."},
        {"role": "user", "content": prompt},
    ]
    return ModelCall(
        "gpt-4o-mini", "openai", purpose, messages, answer, (), tokens, tokens // 2, None, cost, seconds,
        finish_reason="stop", request={"temperature": 0.7},
    )  # fmt: skip


def research_run() -> list[Event]:
    """A run with everything in it: a loop, a map, a subflow that was skipped, and a person who is waited for."""
    start = RunStarted(
        "2f6c41d09b", "research", START, {"question": "How do bees find home?"}, {}, {}, "flows/research.yaml",
        None, "0.2.0", {}, GRAPH,
    )  # fmt: skip
    inside = sorted([*_polish(START + 2.4), *_investigate(START + 2.4)], key=lambda event: event.at)
    return [start, *_draft(), *inside, *_end(START + 5.5)]


def _draft() -> Iterator[Event]:
    at = START
    yield NodeStarted("draft", at)
    fragments = [
        {"source": "conversation", "label": "turn 3", "tokens": 180, "state": "kept"},
        {"source": "fixed_file", "label": "style.md", "tokens": 640, "state": "shortened", "why": "over the budget"},
        {"source": "retrieval", "label": "bees.txt#4", "tokens": 900, "state": "dropped", "why": "lowest priority"},
    ]
    yield NodeRecorded("draft", at + 0.1, Receipt(fragments, 800))
    first = "Bees find their way home by the sun."
    yield NodeRecorded("draft", at + 0.9, model_call("generation", "Write about: bees", first, 320, 0.0021, 0.8))
    judged = "Say how they use the sun, and what they do when it is hidden."
    yield NodeRecorded(
        "draft", at + 1.3, model_call("evaluation", "Judge the text.", '{"score": 0.55}', 210, 0.0009, 0.4)
    )
    yield NodeRecorded("draft", at + 1.3, Round(1, first, 0.55, False, judged))
    second = (
        "Bees read the sun like a compass; under clouds they read polarised light, and near home they use landmarks."
    )
    yield NodeRecorded("draft", at + 2.0, model_call("improvement", judged, second, 410, 0.0034, 0.7))
    yield NodeRecorded("draft", at + 2.3, Round(2, second, 0.86, True, "Clear and complete."))
    evaluation = EvaluationResult(
        score=0.86, passed=True, criteria_scores={"clear": 0.9, "complete": 0.82}, feedback="Clear and complete."
    )
    state = {"words": 17, "title": "The way home", "sources": ["notes.txt"]}
    yield NodeFinished("draft", at + 2.4, NodeResult(second, state, evaluation=evaluation, prompt="Write about: bees"))


def _polish(at: float) -> Iterator[Event]:
    yield NodeStarted("polish", at)
    for number in range(3):
        path, score, passed = f"polish.round[{number}].", 0.5 + number / 5, number == 2
        yield NodeStarted(f"{path}judge", at)
        reply = model_call("evaluation", "Judge it.", f'{{"score": {score}}}', 120, 0.0006, 0.45)
        yield NodeRecorded(f"{path}judge", at + 0.45, reply)
        found = EvaluationResult(
            score=score, passed=passed, criteria_scores={"clear": score, "exact": min(1.0, score + 0.1)},
            feedback="Good." if passed else "Name the experiment that shows it.",
        )  # fmt: skip
        route = "pass" if passed else "fail"
        yield NodeFinished(f"{path}judge", at + 0.5, NodeResult({"score": score}, route=route, evaluation=found))
        if passed:
            yield NodeSkipped(f"{path}improve", at + 0.5, "not_selected")
        else:
            yield NodeStarted(f"{path}improve", at + 0.5)
            better = model_call("generation", "Rewrite it.", f"Version {number + 1}", 380, 0.0031, 0.45)
            yield NodeRecorded(f"{path}improve", at + 0.95, better)
            yield NodeFinished(f"{path}improve", at + 1.0, NodeResult(f"Version {number + 1}", {"words": 5}))
        variables = {"text": f"Version {number}"}
        yield NodeRecorded("polish", at + 1.0, RoundEnded(number, variables, passed, score))
        at += 1.0
    output = {"text": "Version 2", "iterations": 3, "exhausted": False}
    yield NodeFinished("polish", at, NodeResult(output, {"words": 5}))


def _investigate(at: float) -> Iterator[Event]:
    yield NodeStarted("investigate", at)
    yield NodeRecorded("investigate", at, MapBegan(4))
    for number in range(4):
        path, began = f"investigate[{number}].", at + number * 0.3
        yield NodeStarted(f"{path}search", began)
        arguments = {"query": f"bees, part {number}"}
        yield NodeRecorded(f"{path}search", began + 0.2, ToolCall("find", arguments, "three pages", number == 3))
        if number == 3:
            yield NodeRecorded(f"{path}search", began + 0.2, Retry(1, "ConnectionError: no route to host", 0.2))
            trace = 'Traceback (most recent call last):\n  File "search.py", line 7, in find\nConnectionError'
            yield NodeFailed(f"{path}search", began + 0.8, ErrorInfo("ConnectionError", "no route to host", trace))
            continue
        found = NodeResult(["a page", "another page"], {"sources": [f"page {number}", "notes.txt"]})
        yield NodeFinished(f"{path}search", began + 0.5, found)
        yield NodeStarted(f"{path}summarise", began + 0.5)
        call = model_call("generation", "Sum it up.", "Bees dance.", 260, None, 0.7)
        yield NodeRecorded(f"{path}summarise", began + 1.2, call)
        yield NodeFinished(f"{path}summarise", began + 1.24, NodeResult("Bees dance."))
    yield NodeRecorded("investigate", at + 2.6, Notice("one item of four failed and was left out"))
    sources = {"sources": ["page 0", "notes.txt", "page 1", "page 2"]}
    yield NodeFinished("investigate", at + 2.7, NodeResult(["Bees dance."] * 3, sources))


def _end(at: float) -> Iterator[Event]:
    yield NodeStarted("triage", at)
    yield NodeRecorded(
        "triage", at + 0.4, model_call("routing", "Which way?", '{"next_route": "ready"}', 190, 0.0008, 0.4)
    )
    decision = RoutingResult(next_route="ready", confidence=0.87, reasoning="The text names its sources and is short.")
    yield NodeFinished("triage", at + 0.5, NodeResult("ready", route="ready", routing=decision))
    yield NodeSkipped("widen", at + 0.5, "not_selected")
    yield NodeStarted("ask", at + 0.5)
    asked = ApprovalRequested("May this be published?", ["yes", "no"], FORM, START + 7200, "no")
    yield NodeRecorded("ask", at + 0.5, asked)
    yield RunFinished(at + 0.6, "waiting")


def layered_run(count: int, width: int = 10) -> list[Event]:
    """A finished run of many nodes: each row of them waits for three of the row above. Four events a node."""
    edges = [
        [f"n{(row - 1) * width + (at + step) % width}", f"n{row * width + at}", []]
        for row in range(1, count // width)
        for at in range(width)
        for step in range(3)
    ]
    nodes = [[f"n{number}", "agent"] for number in range(count)]
    events: list[Event] = [
        RunStarted(f"run{count}", "large", START, {}, {}, {}, graph={"nodes": nodes, "edges": edges})
    ]
    for number in range(count):
        at = START + number // width
        events += [
            NodeStarted(f"n{number}", at),
            NodeRecorded(f"n{number}", at + 0.6, model_call("generation", "Go on.", "text", 20, 0.0001, 0.5)),
            NodeFinished(f"n{number}", at + 0.7, NodeResult(f"What node {number} says.")),
        ]
    return [*events, RunFinished(START + count / width, "succeeded", {"text": "done"})]


def mapped_run(items: int) -> list[Event]:
    """A run whose map has many items."""
    graph = {"nodes": [["each", "map", {"nodes": [["leaf", "function"]], "edges": []}]], "edges": []}
    events: list[Event] = [
        RunStarted("mapped", "many", START, {}, {}, {}, graph=graph),
        NodeStarted("each", START),
        NodeRecorded("each", START, MapBegan(items)),
    ]
    for number in range(items):
        at = START + number / 1000
        events.append(NodeStarted(f"each[{number}].leaf", at))
        if number % 1000 == 7:
            events.append(NodeFailed(f"each[{number}].leaf", at + 0.1, ErrorInfo("ValueError", f"item {number}")))
        else:
            events.append(NodeFinished(f"each[{number}].leaf", at + 0.1, NodeResult(number)))
    return [
        *events,
        NodeFinished("each", START + items / 1000 + 1, NodeResult([])),
        RunFinished(START + 99, "succeeded"),
    ]


def nested_run(containers: int, inside: int) -> list[Event]:
    """A finished run of many subflows one after the other; each has so many nodes and a map inside, with routes."""
    mapped = {"nodes": [["leaf", "function"], ["ok", "approval"]], "edges": [["leaf", "ok", []]]}
    agents = [f"n{number}" for number in range(inside)]
    body = {
        "nodes": [["way", "condition"], *([name, "agent"] for name in agents), ["each", "map", mapped]],
        "edges": [*(["way", name, ["yes"]] for name in agents), ["n0", "each", []]],
    }
    graph = {
        "nodes": [[f"part{number}", "subflow", body] for number in range(containers)],
        "edges": [[f"part{number}", f"part{number + 1}", []] for number in range(containers - 1)],
    }
    events: list[Event] = [RunStarted("nested", "nested", START, {}, {}, {}, graph=graph)]
    for number in range(containers):
        part, at = f"part{number}", START + number
        events += [NodeStarted(part, at), NodeStarted(f"{part}.way", at)]
        events.append(NodeFinished(f"{part}.way", at, NodeResult(None, route="yes")))
        for node in range(inside):
            events.append(NodeStarted(f"{part}.n{node}", at + 0.1))
            is_last = (number, node) == (containers - 1, inside - 1)
            if is_last:
                events.append(NodeFailed(f"{part}.n{node}", at + 0.2, ErrorInfo("ValueError", "no such page")))
            else:
                events.append(NodeFinished(f"{part}.n{node}", at + 0.2, NodeResult(node)))
        if number < containers - 1:
            events.append(NodeFinished(part, at + 0.9, NodeResult(number)))
    failed = ErrorInfo("ValueError", "no such page")
    last = f"part{containers - 1}"
    return [
        *events,
        NodeFailed(last, START + containers, failed),
        RunFinished(START + containers, "failed", None, failed, last),
    ]
