"""Which settings hold for a node."""

from __future__ import annotations

from typing import Any

from flowengine.flowfile.analysis.flow_nodes import agent_path, retry_of, setting_of, settings_of, timeout_of
from flowengine.flowfile.loader import load_flow
from flowengine.flowfile.schema.flow_file import FlowSpec

TEXT = """
flowengine: v1
name: settings
agents:
  writer: {model: big, temperature: 0.5, instructions: write, improve: {threshold: 0.9}, timeout: 5s}
defaults:
  agent: {model: small, max_retries: 1}
  retry: {attempts: 2}
  timeout: 30s
nodes:
  named: {agent: writer, temperature: 0.1, prompt: x}
  judged: {agent: writer, evaluate: {}, prompt: x}
  inline: {agent: {model: mid}, prompt: x, timeout: 1s}
  plain: {prompt: x}
  route: {type: routing, agent: writer, target: t, instruction: i, routes: {a: {}}}
  check: {type: condition, if: "true", then: {}}
"""


def spec_and(name: str) -> tuple[FlowSpec, Any]:
    spec = load_flow(text=TEXT)
    return spec, spec.nodes[name]


def given(name: str) -> dict[str, Any]:
    return settings_of(*spec_and(name)).model_dump(exclude_unset=True)


def test_the_nodes_own_settings_go_before_its_agents() -> None:
    found = given("named")
    assert (found["model"], found["temperature"], found["instructions"], found["timeout"]) == ("big", 0.1, "write", 5.0)


def test_an_agent_of_the_node_goes_instead_of_the_default_one() -> None:
    assert given("inline") == {"model": "mid"}
    assert given("plain") == {"model": "small", "max_retries": 1}


def test_a_node_that_evaluates_does_not_improve() -> None:
    found = given("judged")
    assert "improve" not in found
    assert "evaluate" in found
    assert setting_of(*spec_and("judged"), "improve") is None


def test_a_router_takes_the_model_of_an_agent_and_not_its_temperature() -> None:
    assert given("route") == {"model": "big", "timeout": 5.0}


def test_defaults_of_retry_and_timeout_are_for_all_but_conditions() -> None:
    spec, plain = spec_and("plain")
    retry = retry_of(spec, plain)
    assert retry is not None
    assert (retry.attempts, timeout_of(spec, plain)) == (2, 30.0)
    assert timeout_of(*spec_and("inline")) == 1.0
    assert (retry_of(*spec_and("check")), timeout_of(*spec_and("check"))) == (None, None)


def test_where_an_agent_stands_in_the_file() -> None:
    spec = load_flow(text=TEXT)
    paths = {name: agent_path(spec, ("nodes", name), node) for name, node in spec.nodes.items() if node.type == "agent"}
    assert paths == {
        "named": ("agents", "writer"),
        "judged": ("agents", "writer"),
        "inline": ("nodes", "inline", "agent"),
        "plain": ("defaults", "agent"),
    }
