"""The graph of a run as people use it: looked at, folded, searched, walked by keys, read as a tree; and the palette."""

from __future__ import annotations

from collections.abc import Generator
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest

from flowengine.engine.events import Event, NodeRecorded, NodeStarted, RunFinished, RunStarted, TokenStreamed
from tests.support.browser import Browser, Tab
from tests.support.page_server import page_server
from tests.support.sample_run import START, layered_run, mapped_run, model_call, research_run
from visualize.layout import arrange
from visualize.picture import picture_of_run
from visualize.viewer.graph import graph_data
from visualize.viewer.reading import Reading
from visualize.viewer.run import export_page, head_of, run_page

PANEL = "document.querySelector('#panel h2 .path')?.textContent === '{}'"
SHOWN = "[...document.querySelectorAll('#graph .node:not([display])')].map((each) => head.drawn[each.dataset.node])"
DRAWN = "(() => {{ const head = JSON.parse(document.getElementById('head').textContent); return {}; }})()"
FOCUSED = "document.activeElement.dataset.node === undefined ? null : head.drawn[document.activeElement.dataset.node]"


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("graph") / "run.html"
    path.write_text(export_page(Reading(research_run())))
    return path.as_uri()


@pytest.fixture
def tab(browser: Browser, file: str) -> Generator[Tab]:
    with browser.tab(1400, 1000) as opened:
        opened.goto(f"{file}#node=draft")
        opened.wait(PANEL.format("draft"))
        yield opened
        assert opened.trouble == []


def of_head(tab: Tab, what: str) -> Any:
    return tab.evaluate(DRAWN.format(what))


def test_the_graph_shows_all_of_itself_with_signs_models_progress_and_text_that_can_be_read(tab: Tab):
    inside = tab.evaluate(
        """(() => {
          const view = document.getElementById('view').getBoundingClientRect();
          return [...document.querySelectorAll('#graph .node')].every((each) => {
            const box = each.getBoundingClientRect();
            return box.left >= view.left && box.right <= view.right && box.top >= view.top && box.bottom <= view.bottom;
          });
        })()"""
    )
    assert inside
    sizes = """[...document.querySelectorAll('#graph text')].filter((each) => each.getBoundingClientRect().height)
      .map((each) => parseFloat(getComputedStyle(each).fontSize) * each.getScreenCTM().a)"""
    assert min(tab.evaluate(sizes)) >= 11.9
    for _ in range(9):
        tab.key("+")
    assert min(tab.evaluate(sizes)) >= 11.9
    assert len(tab.query_selector_all("#graph .sign.k-agent")) == 4
    assert tab.texts("#graph .node[data-node='0'] .kind") == ["agent · gpt-4o-mini"]
    assert tab.evaluate("Number(document.querySelector('#graph .progress .failed').getAttribute('width')) > 0")
    tab.click(".legend summary")
    assert {"agent", "loop", "data is moving", "✓ succeeded", "most"} <= set(tab.texts(".legend li"))
    tab.click(".legend summary")
    assert tab.is_visible(".minimap")
    before = tab.get_attribute("#graph .scene", "transform")
    tab.click(".minimap", position={"x": 10, "y": 10})
    assert tab.get_attribute("#graph .scene", "transform") != before
    tab.key("0")
    assert not tab.is_visible(".minimap")  # Everything is in sight.
    tab.select_option("#heat", "seconds")
    assert "heat-4" in tab.get_attribute("#graph [data-node='0']", "class")
    tab.select_option("#heat", "")
    assert "heat" not in tab.get_attribute("#graph [data-node='0']", "class")


def test_containers_fold_and_what_is_searched_for_is_shown(tab: Tab):
    tab.click("[data-foldall]")
    assert of_head(tab, SHOWN) == ["polish", "investigate", "widen", "draft", "triage", "ask", "publish"]
    assert tab.get_attribute("#graph [data-node='1']", "aria-expanded") == "false"
    tab.fill("#find", "summarise")
    shown = of_head(tab, SHOWN)  # Its container is open, and no other is.
    assert "investigate.search" in shown
    assert "polish.judge" not in shown
    assert tab.texts("#hits") == ["1 of 14"]
    assert tab.evaluate(
        """(() => {
          const box = document.querySelector("[data-node='6']").getBoundingClientRect();
          const view = document.getElementById('view').getBoundingClientRect();
          return box.left > view.left && box.right < view.right && box.height > 50;
        })()"""
    )
    tab.fill("#find", "")
    tab.key("Escape")
    tab.click("#graph [data-node='4'] .fold")
    assert "investigate.search" not in of_head(tab, SHOWN)
    assert tab.texts("#panel h2 .path") == ["draft"]  # To fold is not to choose.


def test_arrows_go_along_the_edges_and_the_tree_says_the_same(tab: Tab):
    tab.evaluate("document.querySelector(\"#graph [tabindex='0']\").focus()")
    walked = []
    for key in ("ArrowDown", "ArrowRight", "ArrowLeft", "Shift+ArrowDown", "ArrowDown", "Shift+ArrowUp", "ArrowDown",
                "ArrowDown", "End", "Home"):  # fmt: skip
        tab.key(key)
        walked.append(of_head(tab, FOCUSED))
    assert walked == ["polish", "investigate", "polish", "polish.judge", "polish.improve", "polish", "triage", "ask",
                      "publish", "draft"]  # fmt: skip
    tab.key("ArrowDown")
    tab.key("o")
    assert tab.get_attribute("#graph [data-node='1']", "aria-expanded") == "false"
    tab.key("Enter")
    tab.wait(PANEL.format("polish"))
    assert "polish ×3" in tab.get_attribute("#graph [data-node='1']", "aria-label")
    tab.key("t")
    assert tab.evaluate("document.activeElement.dataset.path") == "polish"
    assert len(tab.query_selector_all("#tree [role=treeitem]")) == 7
    tab.key("ArrowRight")
    tab.key("ArrowRight")
    assert tab.evaluate("document.activeElement.dataset.path") == "polish.judge"
    tab.key("Enter")
    tab.wait(PANEL.format("polish.judge"))
    tab.key("ArrowLeft")
    tab.key("ArrowLeft")
    assert tab.evaluate("document.activeElement.getAttribute('aria-expanded')") == "false"
    assert "→ triage" in tab.texts("#tree [data-path=polish] .ways")[0]
    tab.key("t")
    tab.evaluate("document.querySelector('#rows [role=listbox]').focus()")
    tab.key("Home")
    tab.wait(PANEL.format("draft"))
    tab.key("ArrowDown")
    tab.wait(PANEL.format("polish"))
    assert tab.texts("#rows [aria-selected=true] .path") == ["polish"]
    tab.evaluate("document.getElementById('tab-timeline').focus()")
    tab.key("ArrowRight")
    assert tab.evaluate("document.querySelector('[data-tab][aria-selected=true]').dataset.tab") == "calls"


def test_the_palette_finds_nodes_and_actions_and_a_question_mark_shows_the_keys(tab: Tab):
    tab.key("Control+k")
    tab.type_text("triage")
    tab.key("Enter")
    tab.wait(PANEL.format("triage"))
    tab.key("Control+k")
    tab.type_text("model calls")
    assert tab.get_attribute(".palette input", "aria-activedescendant") == "palette-0"
    tab.key("Enter")
    assert tab.evaluate("document.querySelector('[data-tab][aria-selected=true]').dataset.tab") == "calls"
    tab.key("Control+k")
    tab.type_text("zzzz")
    assert tab.texts(".palette [role=option]") == ["Nothing fits."]
    tab.key("Enter")
    tab.key("Escape")
    tab.key("?")
    assert "in the graph: along the edges, and to the nodes beside" in tab.texts(".keys td")
    tab.key("Escape")
    assert not tab.is_visible(".keys")


def test_both_layouts_place_the_same(browser: Browser):
    place = """(head) => arrangeBoxes(
      head.drawn.map((path, number) => ({ parent: head.parents[number], size: head.sizes[number] })), head.edges,
    ).boxes.map((box) => [box.x, box.y, box.width, box.height])"""
    with browser.tab() as tab:
        tab.add_script_tag(content=files("visualize").joinpath("static", "arrange.js").read_text("utf-8"))
        for events in (research_run(), layered_run(120), mapped_run(40)):
            picture = picture_of_run(events)
            head = {**head_of(Reading(events)), **graph_data(picture, picture)}
            parents = {node.id: node.parent for node in picture.nodes}
            numbers = {path: number for number, path in enumerate(head["drawn"])}
            head["parents"] = [numbers.get(parents[path] or "") for path in head["drawn"]]
            sizes = dict(zip(head["drawn"], head["sizes"], strict=True))
            placed = arrange(picture, lambda node: tuple(sizes[node.id]))  # noqa: B023 - used at once
            assert tab.evaluate(place, head) == [pytest.approx(list(placed.boxes[path])) for path in head["drawn"]]


# --- live


@pytest.mark.long
def test_a_live_run_says_whom_it_asks_what_is_left_and_that_its_server_is_gone(browser: Browser):
    graph = {"nodes": [["draft", "agent"], ["end", "agent"]], "edges": [["draft", "end", []]]}
    start = RunStarted("2f6c41d09b", "research", START, {}, {}, {}, graph=graph)
    usual = {"runs": 3, "seconds": {"draft": 1e9, "end": 20.0}}
    events: list[Event] = [start, NodeStarted("draft", START)]
    with page_server(events) as server, browser.tab(1400, 1000) as tab:
        server.pages["/runs/live"] = run_page(Reading(events), None, usual)
        tab.add_init_script(
            """localStorage.setItem('flowengine.notify', 'yes'); window.told = [];
            window.Notification = class { static permission = 'granted'; constructor(...given) { told.push(given); } };
            document.hasFocus = () => false;"""
        )
        tab.goto(f"{server.url}/runs/live")
        tab.wait("document.getElementById('left').textContent.includes('(by 3 runs)')")
        server.wait_for_listener()
        server.tell(TokenStreamed("draft", START, "", True, "openai/gpt-4o"))
        tab.wait("document.querySelector('#graph .detail').textContent.startsWith('asked gpt-4o ')")
        tab.click("[data-follow]")
        tab.wait(PANEL.format("draft"))
        server.tell(NodeRecorded("draft", START + 5, model_call("generation", "?", "!", 7, 0.5, 4.0)))
        tab.wait("!document.querySelector('#graph .detail').textContent.includes('asked')")
        server.tell(NodeStarted("end", START + 6))
        tab.wait(PANEL.format("end"))
        tab.click("#graph [data-node='0'] .name")
        assert tab.get_attribute("[data-follow]", "aria-pressed") == "false"
        server.close()
        tab.wait("!document.querySelector('.banner').hidden")
        assert "The server cannot be reached since" in tab.inner_text(".banner")
        took = tab.texts("#took")
        tab.evaluate("new Promise((done) => setTimeout(done, 1100))")
        assert tab.texts("#took") == took  # The clock stands.
        tab.trouble.clear()  # The browser says that there was no answer.
        server.is_open = True
        tab.wait("document.querySelector('.banner').hidden")
        server.tell(RunFinished(START + 9, "failed"))
        tab.wait("window.told.length === 1")
        assert tab.evaluate("window.told[0][0]") == "research: failed"


@pytest.mark.long
def test_two_thousand_nodes_are_moved_on_a_canvas_and_are_themselves_again_at_rest(browser: Browser, tmp_path: Path):
    path = tmp_path / "run.html"
    path.write_text(export_page(Reading(layered_run(2_000, 40))))
    with browser.tab() as tab:
        tab.goto(path.as_uri())
        tab.wait("document.querySelector('#graph .node.s-succeeded')")
        moved = (
            "document.querySelector('.motion').hidden === {} && document.querySelector('#graph').style.opacity === '{}'"
        )
        tab.evaluate("document.getElementById('view').dispatchEvent(new WheelEvent('wheel', { deltaY: -200 }))")
        tab.wait(moved.format("false", "0"))
        tab.wait(moved.format("true", ""))
        tab.fill("#find", "n1999")
        assert tab.evaluate("!document.querySelector(\"[data-node='1999']\").hasAttribute('display')")
        assert tab.trouble == []
