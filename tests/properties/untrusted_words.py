"""Random flows in which one input holds a stranger's word, and what a run shows of where that word got.

Wherever a run has the word (what a node gave, what state holds), the analysis of the flow's file has to have a way to
it. The word goes by more ways than in flows as they are drawn: agents, judges and routers are told it too.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from copy import deepcopy
from typing import Any

import networkx as nx

from flowengine.engine.events import NodeFinished
from flowengine.flowfile.loader import load_flow
from flowengine.flowfile.project.project import find_project
from flowengine.flowfile.risks.text_flow import TextGraph, TextVertex, graph_of
from flowengine.journal.memory import MemoryStore
from tests.properties import world
from tests.properties.comparing import plain
from tests.properties.random_flows import INPUTS, Case, Given
from tests.properties.run_modes import Bench, Mismatch, answer_all
from visualize.skeleton import Skeleton

__all__ = ["WORD", "reached_in", "show_words"]

WORD = "strangersword"
_TOLD = (
    "",
    "{{ inputs.b }}",
    "{{ inputs.b }}",
    "{{ inputs.b }}",
    "{{ shared_state.slot }}",
    "{{ shared_state.log | last | default('') }}",
    "{{ shared_state._last_generation | default('') }}",
    "{{ ('' ~ prev_outputs)[:400] }}",
)
_TAKING = ("lib:show", "lib:poke", "lib:log", "lib:put", "lib:mixed")
_NUMBERS = ("lib:table", "lib:value", "lib:card", "lib:bag", "lib:pick", "lib:flag", "lib:num", "lib:plain")
_OF_ENGINE = {"_last_prompt": "prompt", "_last_generation": "out"}
_TEXTS = {"agent": ("prompt", "instructions"), "evaluation": ("target",), "routing": ("target",)}


async def show_words(bench: Bench, case: Case) -> list[str]:
    """Run a flow with the word in it, and raise `Mismatch` where the word is found and no way leads; the places where
    it was found."""
    given = _with_word(case)
    flow = bench.flow(given)
    path = bench.folders[0] / "flow.yaml"
    spec = load_flow(path, text=json.dumps(given.flow))
    text = graph_of(spec, find_project(path))
    reached = reached_in(text)
    world.begin()
    store = MemoryStore()
    run = await flow.run(given.inputs, store=store, run_id="r1")
    while run.status == "waiting":
        await answer_all(case, store, run.id)
        run = await flow.resume(run.id, store=store)
    skeleton = Skeleton(flow.plan.skeleton)
    found: list[str] = []
    for event in store.events("r1"):
        if isinstance(event, NodeFinished) and event.result is not None and _has_word(event.result.output):
            site = skeleton.spot(event.node).site
            found.append(site)
            _expect(text, reached, {TextVertex("out", tuple(site.split(".")))}, event.node)
    for key in run.shared_state if run.status == "succeeded" else ():
        if _has_word(run.shared_state[key]):
            found.append(f"shared_state.{key}")
            kind = _OF_ENGINE.get(key, "set")
            written = {each for each in text.vertices() if each.kind == kind and each.key in ("", key)}
            _expect(text, reached, written, f"shared_state.{key}")
    return found


def reached_in(text: TextGraph) -> set[TextVertex]:
    """What can be reached from a source."""
    made: Any = nx.DiGraph
    graph = made([(one, other) for one, targets in text.edges.items() for other in targets])
    return {each for layer in nx.bfs_layers(graph, list(text.sources)) for each in layer}


def _expect(text: TextGraph, reached: set[TextVertex], wanted: set[TextVertex], place: str) -> None:
    if not wanted & reached:
        raise Mismatch(f"{place} has the word, and no way leads there")


def _has_word(value: Any) -> bool:
    return WORD in repr(plain(value))


def _with_word(case: Case) -> Given:
    """The first flow of a case, told the word."""
    first, chance = case.first, random.Random(case.cut)
    flow, files = deepcopy(first.flow), deepcopy(first.files)
    flow["inputs"] = {**INPUTS, "b": {"type": "string", "untrusted": True}}
    for document in (flow, *files.values()):
        for node in _nodes_in(document["nodes"]):
            for key in _TEXTS.get(node.get("type", "agent"), ()):
                if isinstance(node.get(key), str):
                    node[key] = f"{node[key]} {chance.choice(_TOLD)}".rstrip()
            if node.get("call") in _TAKING and chance.random() < 0.5:
                node["with"] = dict.fromkeys(node["with"], chance.choice(_TOLD[1:]))
            if node.get("call") in _NUMBERS and chance.random() < 0.4:
                node |= {"call": "lib:show", "with": {"value": chance.choice(_TOLD[1:])}}
            if node.get("over") == '["a", {"k": none}]':
                node["over"] = '[inputs.b, {"k": none}]'
            if "slot" in node.get("set", ()):
                node["set"]["slot"] = chance.choice(["{{ output }}", "{{ inputs.b }}"])
    return Given(flow, files, {**first.inputs, "b": WORD})


def _nodes_in(nodes: dict[str, Any]) -> Iterator[dict[str, Any]]:
    for node in nodes.values():
        yield node
        yield from _nodes_in(node.get("nodes", {}))
