"""What is told of flows without running them."""

from __future__ import annotations

from pathlib import Path

import pytest

from flowengine.flow import Flow
from flowengine.web.service.flow_inspection import nodes_with_shared_memory

AGENTS = {
    "nothing": "{}",
    "everybodys": "{memory: {}}",
    "of_a_templated_agent": "{memory: {scope: channel}, instructions: 'Help {{ inputs.who }}.'}",
    "as_a_provider": "{context: [long_term_memory]}",
    "named": "{memory: {scope_id: faq}}",
    "of_somebody": "{memory: {scope_id: '{{ inputs.who }}'}}",
}


@pytest.fixture(scope="module")
def flow(tmp_path_factory: pytest.TempPathFactory) -> Flow:
    folder: Path = tmp_path_factory.mktemp("memories")
    nodes = "".join(f"\n  {name}: {{prompt: hi, model: offline, {keys[1:]}" for name, keys in AGENTS.items())
    inside = "{type: map, over: '[1]', nodes: {inner: {prompt: hi, model: offline, memory: {}}}}"
    text = f"flowengine: v1\nname: f\ninputs: {{who: {{type: string}}}}\nnodes:{nodes}\n  each: {inside}\n"
    return Flow.from_text(text, folder / "f.yaml")


def test_a_memory_of_which_nothing_says_whose_it_is_is_told(flow: Flow):
    assert nodes_with_shared_memory(flow) == ["everybodys", "of_a_templated_agent", "as_a_provider", "each.inner"]
