"""The graph of a run as people use it: looked at, folded, searched, walked by keys, read as a tree; and the palette."""

from __future__ import annotations

from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest

from flowengine import Flow
from flowengine.engine.events import Event, NodeRecorded, NodeStarted, RunFinished, RunStarted, TokenStreamed
from tests.support.browser import Browser, Tab
from tests.support.page_server import page_server
from tests.support.sample_run import START, layered_run, mapped_run, model_call, nested_run, research_run
from visualize.layout import arrange
from visualize.picture import picture_of_run
from visualize.viewer.graph import graph_data
from visualize.viewer.reading import Reading
from visualize.viewer.run import export_page, head_of, run_page
from visualize.viewer.scripts import join_modules

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
    outside = """[...document.querySelectorAll('#graph .node:not(.frame)')].flatMap((node) => {
      const box = node.querySelector('path').getBoundingClientRect();
      return [...node.querySelectorAll('text')].map((each) => [each.textContent, each.getBoundingClientRect()])
        .filter(([, { top, right, bottom }]) => bottom && (top < box.top || bottom > box.bottom || right > box.right));
    })"""
    told = """[...document.querySelectorAll('#graph .standing')]
      .filter((each) => each.getBoundingClientRect().height).length"""
    assert min(tab.evaluate(sizes)) >= 11.9
    counts = [tab.evaluate(told)]
    for _ in range(9):
        tab.key("+")
        counts.append(tab.evaluate(told))
        assert tab.evaluate(outside) == []
    assert sorted(set(counts)) == [0, 10, 14]  # None, then below the names of boxes, then all.
    assert counts == sorted(counts)
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


def test_a_status_below_a_name_is_whole_where_its_box_has_room(browser: Browser, tmp_path: Path):
    run = Flow.from_yaml("flows/support_triage.yaml", model="offline").run_sync({"message": "I was charged twice"})
    path = tmp_path / "run.html"
    path.write_text(export_page(Reading(run.events)))
    with browser.tab(1200, 800) as opened:
        opened.goto(path.as_uri())
        opened.wait("document.querySelector('#graph.two-lines, #graph .two-lines') !== null")
        told = opened.texts("#graph .standing")
        assert told.count("– skipped: not selected") == 2
        assert not any("…" in each for each in told)
        assert opened.trouble == []


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
        tab.add_script_tag(content=join_modules(["arrange.js"]))
        for events in (research_run(), layered_run(120), mapped_run(40)):
            picture = picture_of_run(events)
            head = {**head_of(Reading(events)), **graph_data(picture, picture)}
            parents = {node.id: node.parent for node in picture.nodes}
            numbers = {path: number for number, path in enumerate(head["drawn"])}
            head["parents"] = [numbers.get(parents[path] or "") for path in head["drawn"]]
            sizes = dict(zip(head["drawn"], head["sizes"], strict=True))
            placed = arrange(picture, lambda node: tuple(sizes[node.id]))  # noqa: B023 - used at once
            assert tab.evaluate(place, head) == [pytest.approx(list(placed.boxes[path])) for path in head["drawn"]]


BOXES = """[...document.querySelectorAll('#graph [data-node]')].map((group) => {
  const head = JSON.parse(document.getElementById('head').textContent);
  const numbers = (text) => (text ?? '').match(/-?[\\d.]+/g)?.map(Number) ?? [];
  const place = (each, name) => numbers(each?.getAttribute(name));
  const texts = [...group.querySelectorAll(':scope > text')];
  const words = texts.map((each) => [each.textContent, ...place(each, 'x'), ...place(each, 'y')]);
  const path = group.querySelector(':scope > path');
  const parts = [group, ...['.sign', '.fold', '.progress'].map((each) => group.querySelector(each))];
  return [
    head.drawn[group.dataset.node], [...group.classList].filter((each) => each !== 'chosen').sort().join(' '),
    ...parts.flatMap((each) => place(each, 'transform')), group.getAttribute('aria-label'),
    group.getAttribute('aria-expanded'), path.getAttribute('d').replace(/[-\\d. ]+/g, ''), ...place(path, 'd'),
    ...words.flat(),
  ];
}).sort((a, b) => (a[0] < b[0] ? -1 : 1))"""
LINES = """[...document.querySelectorAll('#graph path.edge, #graph .label')].map((each) => [
  each.dataset.edge ?? each.dataset.of, each.getAttribute('class'), each.textContent,
  ...(each.getAttribute('d') ?? '').match(/-?[\\d.]+/g)?.map(Number) ?? [],
]).sort((a, b) => (String(a.slice(0, 2)) < String(b.slice(0, 2)) ? -1 : 1))"""


@pytest.mark.long
def test_what_a_large_graph_has_folded_is_made_in_the_page_as_the_server_would_draw_it(
    browser: Browser, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """A graph counts as large from four nodes on here; what is unfolded has its paths, words and places."""
    seen: list[Any] = []
    for events, most in ((research_run(), 1_500), (research_run(), 3), (nested_run(2, 3), 3)):
        monkeypatch.setattr("visualize.viewer.reading.OPEN_NODES", most)
        page = tmp_path / f"{len(seen)}.html"
        page.write_text(export_page(Reading(events)))
        with browser.tab(1400, 1000) as tab:
            tab.goto(f"{page.as_uri()}#node={'draft' if len(seen) < 2 else 'part0'}")
            tab.wait("document.querySelector('#panel h2')")
            folded = tab.evaluate("document.querySelectorAll('#graph [data-node]').length")
            if most == 3 and len(seen) < 2:
                tab.click("[data-foldall]")
                tab.wait("document.querySelectorAll('#graph .frame').length === 4")
                tab.click("[data-zoom=fit]")
                tab.wait(
                    "[...document.querySelectorAll('#graph title')].every((each) => each.textContent.includes(' · '))"
                )
            if len(seen) < 2:
                tab.click("[data-zoom=fit]")
                seen.append((folded, tab.evaluate(BOXES), tab.evaluate(LINES)))
                assert tab.trouble == []
                continue
            # By keys: unfolded, inside, along its edges, and folded again. A search unfolds what it finds.
            tab.focus("[data-node='0']")
            tab.key("o")
            assert tab.get_attribute("[data-node='0']", "aria-expanded") == "true"
            for key, now in (("Shift+ArrowDown", "part0.way"), ("ArrowDown", "part0.n0"), ("ArrowDown", "part0.each")):
                tab.key(key)
                assert of_head(tab, FOCUSED) == now
            tab.key("Shift+ArrowDown")
            assert of_head(tab, FOCUSED) == "part0.each"  # It is folded.
            tab.key("o")
            tab.key("Shift+ArrowDown")
            assert of_head(tab, FOCUSED) == "part0.each.leaf"
            assert tab.query_selector("#graph .label[data-of]") is not None
            tab.fill("#find", "part1.each.ok")
            titles = "[...document.querySelectorAll('#graph title')]"
            tab.wait(f"{titles}.some((each) => each.textContent.startsWith('part1.each.ok'))")
            assert tab.inner_text("#hits") == "1 of 16"
            assert folded == 2
            assert tab.trouble == []
    (whole, boxes, lines), (folded, made, made_lines) = seen
    assert (whole, folded) == (len(boxes), 7)
    assert len(made) == len(boxes)
    for mine, theirs in zip(made, boxes, strict=True):
        assert mine == [pytest.approx(each, abs=0.11) if isinstance(each, float | int) else each for each in theirs]
    for mine, theirs in zip(made_lines, lines, strict=True):
        assert mine == [pytest.approx(each, abs=0.11) if isinstance(each, float | int) else each for each in theirs]


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
        tab.evaluate(
            """
            window.seen = [];
            const [motion, graph] = [document.querySelector(".motion"), document.querySelector("#graph")];
            const look = () => window.seen.push(`${motion.hidden ? "nodes" : "canvas"} ${graph.style.opacity || "1"}`);
            for (const each of [motion, graph]) new MutationObserver(look).observe(each, { attributes: true });
            const turning = setInterval(() => {  // Until there was a frame of it.
              if (window.seen.includes("canvas 0")) clearInterval(turning);
              else document.getElementById("view").dispatchEvent(new WheelEvent("wheel", { deltaY: -20 }));
            }, 20);
            """
        )
        tab.wait("seen.includes('canvas 0') && seen.at(-1) === 'nodes 1'")
        tab.fill("#find", "n1999")
        assert tab.evaluate("!document.querySelector(\"[data-node='1999']\").hasAttribute('display')")
        assert tab.trouble == []


@pytest.mark.long
def test_what_is_out_of_sight_is_not_laid_out_and_says_what_is_true_once_it_comes_into_sight(
    browser: Browser, tmp_path: Path
):
    path = tmp_path / "large.html"
    path.write_text(export_page(Reading(layered_run(200))))
    with browser.tab() as tab:
        tab.goto(path.as_uri())
        first, last = (f"document.querySelector('#graph [data-node=\"{number}\"]')" for number in (0, 199))
        assert not tab.evaluate(f"{first}.closest('.unseen')")
        assert tab.evaluate(f"{last}.parentNode.classList.contains('unseen') && {last}.hasAttribute('display')")
        tab.click("[data-step=first]")  # None has begun yet.
        assert tab.evaluate(f"{last}.querySelector('.standing').textContent").startswith("✓ succeeded")
        tab.fill("#find", "n199")
        assert not tab.evaluate(f"{last}.closest('.unseen')")
        assert tab.evaluate(f"{last}.querySelector('.standing').textContent") == "○ pending"
        tab.fill("#find", "n0")
        assert tab.evaluate(f"{last}.parentNode.classList.contains('unseen')")
        tab.click("[data-step=last]")
        tab.click("[data-zoom=fit]")
        assert tab.evaluate(f"{last}.querySelector('title').textContent").startswith("n199 · ✓ succeeded")
        assert tab.trouble == []
