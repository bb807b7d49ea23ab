"""The panel's parts and the forms of values, in a real browser, as a person uses them."""

from __future__ import annotations

import json
from collections.abc import Generator

import pytest

from flowengine.core.context import NodeResult
from flowengine.core.records import Received, ToolCall
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
from tests.support.browser import Browser, Tab
from tests.support.page_server import page_server
from tests.support.sample_run import model_call, research_run

ANSWER = "# Found\n\n- **six** books <img src=x onerror=window.owned=1>\n\n" + "word " * 3000 + "needle"
ROWS = [{"title": f"Book {number}", "price": number} for number in range(3)]
SOURCE = """flowengine: v1
name: shop
nodes:
  look:
    type: agent
    prompt: Look it up
  act:
    call: steps:act
"""


def shop_run() -> list[Event]:
    graph = {"nodes": [["look", "agent"], ["act", "function"]], "edges": [["look", "act", []]]}
    return [
        RunStarted("shop", "shop", 1.0, {"q": "bees"}, {}, {}, "shop.yaml", SOURCE, "0.2", {}, graph),
        NodeStarted("look", 1.0),
        NodeRecorded("look", 2.0, ToolCall("search", {"q": "bees"}, json.dumps(ROWS))),
        NodeRecorded("look", 3.0, model_call("generation", "Look", ANSWER, 10, 0.1, 1.0)),
        NodeFinished("look", 3.0, NodeResult(ANSWER)),
        NodeStarted("act", 3.0),
        NodeRecorded("act", 3.0, Received({"text": json.dumps(ANSWER)[:100] + "…", "n": "3"})),
        NodeFinished("act", 4.0, NodeResult({"lines": "one\ntwo", "rows": ROWS})),
        RunFinished(4.0, "succeeded", {"answer": ANSWER}),
    ]


@pytest.fixture(scope="module")
def opened(browser: Browser) -> Generator[tuple[Tab, str]]:
    with page_server(shop_run()) as server, browser.tab() as tab:
        yield tab, f"{server.url}/runs/shop"
        assert tab.trouble == []
        assert tab.evaluate("window.owned") is None


FAILED = [
    *shop_run()[:4],
    NodeFailed("look", 3.0, ErrorInfo("ValueError", "no books")),
    NodeSkipped("act", 3.0, "upstream_failed"),
    RunFinished(3.0, "failed", None, ErrorInfo("ValueError", "no books"), "look"),
]


@pytest.fixture
def tab(opened: tuple[Tab, str]) -> Tab:
    """The page, anew at a node."""
    found, url = opened
    found.goto("about:blank")
    found.goto(f"{url}#node=look")
    found.wait("document.querySelector('#panel .value.dressed')")
    return found


def test_the_chosen_part_of_the_panel_is_in_the_address_and_stays_from_node_to_node(tab: Tab):
    tab.click("[data-open=output]")
    assert tab.evaluate("location.hash") == "#node=look&tab=output"
    shown = (
        "[...document.querySelectorAll('#panel .pane')].filter((each) => !each.hidden).map((each) => each.dataset.pane)"
    )
    assert tab.evaluate(shown) == ["output"]
    tab.key("j")
    tab.wait("document.querySelector('#panel h2 .path')?.textContent === 'act'")
    assert tab.evaluate(shown) == ["output"]
    assert tab.evaluate("location.hash") == "#node=act&tab=output"
    tab.evaluate("history.back()")
    tab.wait("document.querySelector('#panel h2 .path')?.textContent === 'look'")
    assert tab.evaluate(shown) == ["output"]
    tab.click("[data-open=definition]")
    assert "prompt: Look it up" in tab.inner_text("[data-pane=definition]")
    assert "shop.yaml:4" in tab.inner_text("[data-pane=definition]")


def test_what_went_in_stands_before_the_calls_and_what_came_out(tab: Tab):
    order = "[...document.querySelectorAll('#panel .pane')].map((each) => each.dataset.pane)"
    tab.wait(f"{order}.join() === 'input,calls,output,definition'")
    tab.key("j")
    tab.wait("document.querySelector('#panel h2 .path')?.textContent === 'act'")
    given = tab.inner_text("[data-pane=input]")
    assert "Handed to it" in given
    assert "n: 3" in given
    assert "From look" in given


def test_a_click_beside_an_edge_tells_why_it_was_taken(tab: Tab):
    tab.key("j")
    tab.wait("document.querySelector('#panel h2 .path')?.textContent === 'act'")
    x, y = tab.evaluate("""(() => {
      const edge = document.querySelector('[data-edge]');
      const at = edge.getPointAtLength(edge.getTotalLength() / 2).matrixTransform(edge.getScreenCTM());
      return [at.x + 3, at.y];
    })()""")
    tab.evaluate(f"""document.elementFromPoint({x}, {y}).dispatchEvent(
      new MouseEvent('click', {{ bubbles: true, clientX: {x}, clientY: {y} }}))""")
    tab.wait("document.querySelector('#panel h2 .path')?.textContent === 'look'")
    tab.wait("document.querySelector('#panel details:has(> ul.why)')?.open")
    assert "To act: taken" in tab.inner_text("#panel")


def test_markdown_is_read_a_table_made_and_markup_left_as_text(tab: Tab):
    tab.click("[data-open=output]")
    assert tab.texts("[data-pane=output] .markdown h3") == ["Found"]
    assert tab.texts("[data-pane=output] .markdown strong") == ["six"]
    assert "<img src=x onerror=window.owned=1>" in tab.inner_text("[data-pane=output] .markdown")
    tab.click("[data-open=calls]")
    assert tab.texts("[data-pane=calls] .value-view th") == ["title", "price"]
    assert "q: bees" in tab.inner_text("[data-pane=calls]")


def test_a_long_value_opens_whole_and_is_searched(tab: Tab):
    tab.click("[data-open=output]")
    assert "needle" not in tab.inner_text("[data-pane=output]")
    tab.click("[data-pane=output] .value-tools button:text('Search')")
    tab.fill("[data-pane=output] input[type=search]", "needle")
    assert tab.texts("[data-pane=output] .found") == ["1 of 1"]
    assert "needle" in tab.inner_text("[data-pane=output]")
    tab.click("[data-pane=output] .value-tools button:text('Text')")
    assert tab.inner_text("[data-pane=output] pre").startswith("# Found")


def test_a_page_opens_at_the_question_the_failure_or_the_outputs(tab: Tab, opened: tuple[Tab, str]):
    tab.goto("about:blank")
    tab.goto(opened[1])
    tab.wait("document.querySelector('#panel .value.dressed')")
    assert "Outputs of the run" in tab.inner_text("#panel")
    for run_id, events, node in (("2f6c41d09b", research_run(), "ask"), ("shop", FAILED, "look")):
        with page_server(events) as server:
            tab.goto(f"{server.url}/runs/{run_id}")
            tab.wait(f"document.querySelector('#panel h2 .path')?.textContent === '{node}'")
            assert tab.evaluate("location.hash") == ""
            tab.goto("about:blank")


def test_the_layout_is_changed_by_hand_and_by_keys_and_kept(tab: Tab, opened: tuple[Tab, str]):
    width = "document.querySelector('#panel').offsetWidth"
    before = tab.evaluate(width)
    tab.evaluate("document.querySelector('.splitter.panel').focus()")
    tab.key("ArrowLeft")
    assert tab.evaluate(width) == before + 24
    box = "document.querySelector('.splitter.panel').getBoundingClientRect()"
    x, y = tab.evaluate(f"{box}.x + 2"), 300
    tab.drag((x, y), (x - 100, y))
    assert abs(tab.evaluate(width) - before - 124) < 6
    tab.click("[data-fold]")
    assert not tab.is_visible("#rows")
    tab.goto("about:blank")
    tab.goto(opened[1])
    assert abs(tab.evaluate(width) - before - 124) < 6
    assert not tab.is_visible("#rows")
    tab.evaluate("document.querySelector('.splitter.panel').dispatchEvent(new MouseEvent('dblclick', {bubbles: true}))")
    tab.click("[data-fold]")
    assert tab.evaluate(width) == before


@pytest.mark.parametrize(("width", "height"), [(1024, 768), (640, 400), (390, 844)])
def test_no_page_is_wider_than_a_small_screen(tab: Tab, width: int, height: int):
    tab.set_viewport_size({"width": width, "height": height})
    assert tab.evaluate("document.documentElement.scrollWidth") <= width
    assert tab.evaluate("document.querySelector('#panel').getBoundingClientRect().width") >= min(280, width)
    tab.set_viewport_size({"width": 1280, "height": 800})
