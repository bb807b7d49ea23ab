"""The networkx graph of a flow and of a run: a fresh one each time, with all that algorithms and files need."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import networkx as nx
import pytest

from flowengine import Agent, Flow, FunctionNode, RoutingAgent, RoutingNode
from flowengine.models.scripted import ScriptedModel
from tests.support.sample_run import research_run
from visualize import to_networkx
from visualize.picture import picture_of_run

SAMPLES = ("support_triage", "parallel_research", "draft_until_good", "channel_reply")


def test_a_flows_graph_has_kinds_routes_descriptions_and_places():
    graph = Flow.from_yaml("flows/support_triage.yaml").graph
    triage = graph.nodes["triage"]
    assert (triage["kind"], triage["parent"]) == ("routing", None)
    text = Path(triage["file"]).read_text("utf-8").splitlines()
    assert text[triage["line"] - 1].strip().startswith("triage:")
    assert graph.edges["triage", "settle", "billing"] == {"route": "billing", "state": "declared", "critical": False}


def test_a_runs_graph_has_what_each_node_took_and_which_way_was_taken():
    graph = to_networkx(picture_of_run(research_run()))
    draft = graph.nodes["draft"]
    assert draft["status"] == "succeeded"
    assert draft["seconds"] > 0
    assert draft["tokens"] > 0
    assert draft["cost_usd"] > 0
    assert {state for _, _, state in graph.edges(data="state")} >= {"taken", "undecided"}
    inside = [name for name, parent in graph.nodes(data="parent") if parent == "polish"]
    assert inside
    assert all(name.startswith("polish.") for name in inside)


def test_two_routes_to_one_node_are_two_edges():
    def step(name: str) -> FunctionNode:
        return FunctionNode(lambda context: name)

    router = RoutingAgent("router", "choose", {"yes": "", "sure": ""}, model=ScriptedModel(["yes"]))
    flow = Flow("two", {"router": RoutingNode(router, {"yes": "end", "sure": "end"}), "end": step("end")})
    assert sorted(route for _, _, route in flow.graph.edges(keys=True)) == ["sure", "yes"]


def test_each_graph_is_its_readers_own():
    flow = Flow.from_yaml("flows/support_triage.yaml")
    first = flow.graph
    first.nodes["triage"]["color"] = "red"
    assert "color" not in first.nodes["reply"]
    assert "color" not in flow.graph.nodes["triage"]


@pytest.mark.parametrize("name", SAMPLES)
def test_node_link_json_of_a_flow_and_of_its_run_comes_back_as_it_was(name: str):
    for graph in (Flow.from_yaml(f"flows/{name}.yaml").graph, to_networkx(picture_of_run(research_run()))):
        text = json.dumps(nx.node_link_data(graph, edges="edges"))
        back: Any = nx.node_link_graph(json.loads(text), edges="edges")
        assert dict(back.nodes(data=True)) == dict(graph.nodes(data=True))
        assert list(back.edges(keys=True, data=True)) == list(graph.edges(keys=True, data=True))


def test_networkx_finds_the_longest_way_and_the_dominators_of_a_flow():
    agents = {name: Agent(name, "go", model=ScriptedModel([name])) for name in ("draft", "check", "send")}
    graph: Any = Flow.sequential(agents).graph
    assert nx.dag_longest_path(nx.DiGraph(graph)) == ["draft", "check", "send"]
    dominators = nx.immediate_dominators(graph, "draft")
    assert (dominators["check"], dominators["send"]) == ("draft", "check")


def test_the_critical_edges_of_a_run_are_one_way_through_it():
    graph: Any = to_networkx(picture_of_run(research_run()))
    critical = [(source, target) for source, target, on in graph.edges(data="critical") if on]
    at_the_top = [pair for pair in critical if "." not in pair[0]]
    assert nx.is_path(graph, [at_the_top[0][0], *[target for _, target in at_the_top]])
    sources = [source for source, _ in at_the_top]
    assert len(sources) == len(set(sources))
