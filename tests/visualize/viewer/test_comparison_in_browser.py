"""The comparison of runs in a real browser: causes, one graph, words and figures, as a person reads them."""

from __future__ import annotations

from pathlib import Path

import pytest

from flowengine.core.context import NodeResult
from flowengine.core.records import ModelCall
from flowengine.engine.events import Event, NodeFinished, NodeRecorded, RunStarted
from tests.support.browser import LOOKS, Browser
from tests.support.sample_run import research_run
from visualize.viewer.comparison import compare_page
from visualize.viewer.reading import Reading

FILE = "nodes:\n  draft:\n    model: {}\n    prompt: Write {} bees\n"


def a_run(name: str, model: str = "gpt-4o-mini", prompt: str = "about", price: float = 1.0) -> list[Event]:
    """The sample run with a draft of one's own."""
    start, *events = research_run()
    assert isinstance(start, RunStarted)
    found: list[Event] = [
        start._replace(run_id=name, source=FILE.format(model, prompt), fingerprints={"draft": model + prompt})
    ]
    for event in events:
        if isinstance(event, NodeRecorded) and event.node == "draft" and isinstance(event.record, ModelCall):
            messages = [{"role": "user", "content": f"Write {prompt} bees"}]
            cost = (event.record.cost_usd or 0) * price
            event = event._replace(record=event.record._replace(model=model, messages=messages, cost_usd=cost))
        if isinstance(event, NodeFinished) and event.node == "draft":
            event = event._replace(result=NodeResult(f"{model} wrote {prompt} bees"))
        found.append(event)
    return found


@pytest.mark.long
def test_a_comparison_explains_itself(browser: Browser, tmp_path: Path):
    runs = [Reading(a_run("first")), Reading(a_run("second", "gpt-4o", "three lines on", 5.0))]
    path = tmp_path / "two.html"
    path.write_text(compare_page(*runs, as_file=True))
    for width, scheme in LOOKS:
        with browser.tab(width, 900, scheme) as tab:
            tab.goto(path.as_uri())
            assert tab.evaluate("document.documentElement.scrollWidth") == width
            assert tab.texts(".causes .cause-kind") == ["model", "prompt", "file"]
            assert tab.texts(".causes li")[0] == "model draft asks gpt-4o in the place of gpt-4o-mini"
            assert tab.texts(".causes li:nth-child(2) del") == ["about"]
            assert tab.texts(".causes li:nth-child(2) ins") == ["three lines on"]
            assert ["Cost", "$0.0152", "$0.0408", "+$0.0256 (+168 %)"] in [
                each.split("\t") for each in tab.inner_text(".figures tbody").splitlines()
            ]
            assert len(tab.texts(".overlay .node")) == len(tab.texts(".overlay .node:is(.same, .differs)")) == 14
            assert [each.split()[0] for each in tab.texts(".overlay .node.differs .name")] == ["draft"]
            tab.click(".overlay a .node")
            assert tab.evaluate("location.hash") == "#node-0"
            assert tab.texts("tr#node-0 td")[0] == "draft"
            tab.click("summary:text('Output of draft')")
            assert tab.is_visible("details[open] .difference del:text('gpt-4o-mini')") or tab.texts("details[open] del")
            assert tab.trouble == []


def test_a_graph_of_two_flows_shows_what_only_one_of_them_has():
    one, other = a_run("first"), a_run("second")
    start = one[0]
    assert isinstance(start, RunStarted)
    nodes = [each for each in start.graph["nodes"] if each[0] != "publish"]
    edges = [each for each in start.graph["edges"] if "publish" not in each[:2]]
    shorter = start._replace(graph={"nodes": [*nodes, ["tell", "function"]], "edges": [*edges, ["ask", "tell", []]]})
    page = compare_page(Reading([shorter, *one[1:]]), Reading(other))
    assert page.count('class="node only-a"') == page.count('class="node only-b"') == 1
    assert "A: not there" in page
    assert "B: not there" in page


def test_up_to_ten_runs_stand_in_a_table():
    runs = [Reading(a_run("first")), Reading(a_run("second", "gpt-4o", price=5.0)), Reading(a_run("third"))]
    page = compare_page(*runs)
    assert page.count("draft asks gpt-4o in the place of gpt-4o-mini") == 1
    assert "+$0.0256 (+168 %)" in page
    assert 'href="/compare?a=first&amp;b=third"' in page
    assert "<a " not in compare_page(*runs, as_file=True).split("<main")[1]
