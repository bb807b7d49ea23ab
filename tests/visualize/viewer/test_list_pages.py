"""The lists and the other pages in a real browser."""

from __future__ import annotations

from collections.abc import Generator, Sequence

import pytest

from flowengine.engine.ports import RunInfo
from flowengine.errors import Diagnostic, RunNotFoundError
from flowengine.journal.run_digest import RunDigest
from flowengine.journal.run_index import ListedRuns, RunLine
from flowengine.web.gate.problems import problem_response
from tests.support.browser import LOOKS, Browser, Tab
from tests.support.page_server import PageServer, page_server
from tests.support.sample_run import GRAPH, START, research_run
from visualize.picture import picture_of_skeleton
from visualize.usual_times import RunPoint
from visualize.viewer.comparison import compare_page
from visualize.viewer.flows import FlowLine, flow_page, flows_page
from visualize.viewer.forms import Acting
from visualize.viewer.reading import Reading
from visualize.viewer.runs import ListFrame, presets_of, runs_page

INFOS = [
    RunInfo(f"run{number:03}", "a_flow_of_a_long_name", "failed" if number % 3 else "succeeded", START, START, 9, "f")
    for number in range(120)
]
PROBLEMS = [Diagnostic("FE203", "unknown target 'x'", "f.yaml", 1, 1), Diagnostic("FE310", "unused", "f.yaml", 1, 1)]
POINTS = [
    RunPoint(f"run{number:03}", "failed" if number % 5 == 3 else "succeeded", 2.0 + number % 4, 0.01)
    for number in range(20)
]
DIGEST = RunDigest(
    9, 2, 1234, 0.5, True, "openai/gpt-4o", "Where is the parcel that I ordered in the spring?", "", "ann"
)


def listed(infos: Sequence[RunInfo]) -> ListedRuns:
    lines = [RunLine(info, info.status, DIGEST._replace(error="x" * (info.status == "failed"))) for info in infos]
    return ListedRuns(lines[:100], len(infos), len(infos))


FRAME = ListFrame(["a_flow_of_a_long_name"], presets_of("ann"), Acting("token"))
PAGES = {
    "/": runs_page(listed(INFOS), frame=FRAME),
    "/compare": compare_page(Reading(research_run()), Reading(research_run()[:40])),
    "/flows": flows_page(
        [FlowLine("research", "flows/research.yaml", "Finds out and writes.", 1, 0, ("run001", "failed"))]
    ),
    "/flows/research": flow_page("research", "a: 1\n" * 60, picture_of_skeleton("research", GRAPH), PROBLEMS, POINTS),
    "/missing": bytes(problem_response(RunNotFoundError("no run 'x'"), as_page=True).body).decode(),
}


@pytest.fixture
def server() -> Generator[PageServer]:
    with page_server(research_run()) as served:
        served.pages = dict(PAGES)
        yield served


@pytest.mark.parametrize("path", PAGES)
def test_each_page_fits_its_width_and_loads_only_what_is_ours(browser: Browser, server: PageServer, path: str):
    with browser.tab() as tab:
        for width, scheme in LOOKS:
            tab.look(width, scheme)
            tab.requests.clear()
            tab.goto(server.url + path)
            assert tab.evaluate("document.documentElement.scrollWidth") == width
            assert tab.trouble == []
            asked = {url.removeprefix(server.url) for url in tab.requests if not url.startswith("data:")}
            assert asked == {path, "/static/viewer.css", "/static/viewer.js"}


def test_keys_walk_through_the_list_and_open_a_run(browser: Browser, server: PageServer):
    with browser.tab() as tab:
        tab.goto(server.url)
        for key in ("j", "j", "j", "k"):
            tab.key(key)
        assert tab.texts("tr.chosen a[href^='/runs/']") == ["run001"]
        tab.key("/")
        assert tab.evaluate("document.activeElement.name") == "q"
        tab.type_text("j")  # A letter in a field is a letter.
        assert tab.texts("tr.chosen a[href^='/runs/']") == ["run001"]
        tab.evaluate("document.activeElement.blur()")
        tab.key("Enter")
        tab.wait("location.pathname === '/runs/run001'")


@pytest.mark.long
def test_the_list_renews_itself_and_keeps_what_is_chosen(browser: Browser, server: PageServer):
    with browser.tab() as tab:
        tab.goto(server.url)
        tab.key("j")
        server.pages["/"] = runs_page(
            listed([INFOS[0]._replace(run_id="fresh", status="running"), *INFOS]), frame=FRAME
        )
        tab.wait("document.querySelector('tbody tr a').textContent === 'fresh'")
        assert tab.texts("tr.chosen a[href^='/runs/']") == ["run000"]
        assert tab.trouble == []


def test_a_point_of_the_plot_leads_to_its_run(browser: Browser, server: PageServer):
    with browser.tab() as tab:
        tab.goto(f"{server.url}/flows/research")
        assert len(tab.texts(".plot a title")) == 40
        assert tab.get_attribute(".plot a >> nth=3", "href") == "/runs/run003"


def test_without_our_script_the_pages_still_say_everything_that_the_server_made(browser: Browser, server: PageServer):
    with browser.tab(java_script_enabled=False) as tab:
        tab.goto(f"{server.url}/runs/2f6c41d09b")
        assert "✗ failed" in tab.content() or "✗ 1" in tab.content()
        assert tab.inner_text("#status") == "‖ waiting"


def all_colours(tab: Tab) -> list[tuple[str, str, float]]:
    """Colours of text and page, and the contrast that they need: signs less than words (WCAG 2.2, 1.4.3 and 1.4.11)."""
    found: list[tuple[str, str, float]] = tab.evaluate(
        """[...document.querySelectorAll('body *')].filter((each) => each.childNodes.length && !each.closest('svg')
          && [...each.childNodes].some((node) => node.nodeType === 3 && node.data.trim())).map((each) => {
            let page = each;
            const behind = () => getComputedStyle(page).backgroundColor;
            while (page.parentElement && / 0\\)$/.test(behind())) page = page.parentElement;
            return [getComputedStyle(each).color, behind(), each.classList.contains('glyph') ? 3 : 4.5];
          })"""
    )
    return found


def luminance(colour: str) -> float:
    """Source of the formula: WCAG 2.2, relative luminance."""
    parts = [float(part) / 255 for part in colour[colour.index("(") + 1 : -1].split(",")[:3]]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


@pytest.mark.long
@pytest.mark.parametrize("path", ["/", "/compare", "/flows/research", "/runs/2f6c41d09b#node=draft"])
def test_words_have_enough_contrast_in_both_themes(browser: Browser, server: PageServer, path: str):
    with browser.tab() as tab:
        pages: set[str] = set()
        for scheme in ("light", "dark"):
            tab.look(1280, scheme)
            tab.goto(server.url + path)
            tab.wait_for_timeout(200)
            pages.add(tab.evaluate("getComputedStyle(document.body).backgroundColor"))
            for text, page, needed in all_colours(tab):
                light, dark = sorted((luminance(text), luminance(page)), reverse=True)
                assert (light + 0.05) / (dark + 0.05) >= needed, (scheme, text, page)
        assert len(pages) == 2  # They are themes of their own.
