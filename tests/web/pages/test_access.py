"""The pages as people with other eyes and hands use them: WCAG 2.2 AA by axe-core, in light and in dark."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.browser import Browser, Tab
from tests.support.node import node_package
from tests.support.sample_run import layered_run, research_run
from tests.support.ui_server import Served
from tests.web.pages.test_browser import keep

RULES = "['wcag2a', 'wcag2aa', 'wcag21a', 'wcag21aa', 'wcag22a', 'wcag22aa']"
RUN = f"""axe.run(document, {{ runOnly: {{ type: 'tag', values: {RULES} }}, resultTypes: ['violations'] }})
  .then((found) => found.violations.map((each) => [each.id, each.nodes.length, each.nodes[0].html.slice(0, 200)]))"""

READY = "document.readyState === 'complete' && (!location.hash || document.querySelector('#panel h2 .path'))"


@pytest.fixture(scope="module")
def axe() -> str:
    return Path(node_package("axe-core", "axe.min.js")[1]).read_text("utf-8")


def find_violations(tab: Tab, axe: str) -> list[object]:
    tab.evaluate(f"{axe}; 0")
    found: list[object] = tab.evaluate(RUN)
    return found


@pytest.mark.long
def test_a_run_and_the_list_of_runs_break_no_rule(browser: Browser, server: Served, axe: str):
    keep(research_run(), "2f6c41d09b")
    with browser.tab(1280, 900, "dark") as tab:
        tab.goto(server.entry_url)
        assert find_violations(tab, axe) == []
        tab.goto(f"{server.url}/runs/2f6c41d09b#node=draft")
        tab.wait(READY)
        assert find_violations(tab, axe) == []


@pytest.mark.long
@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1280, 390])
def test_no_page_breaks_a_rule(browser: Browser, server: Served, axe: str, scheme: str, width: int):
    keep(research_run(), "2f6c41d09b")
    keep(layered_run(30), "run30")
    run_id = server.post("/api/runs", {"flow": "shout"}, 201)["run_id"]
    server.until(run_id, "succeeded")
    asking = server.post("/api/runs", {"flow": "ask"}, 201)["run_id"]
    server.until(asking, "waiting")
    failed = server.post("/api/runs", {"flow": "fail"}, 201)["run_id"]
    server.until(failed, "failed")
    pages = (
        *("/", "/flows", "/flows/shout", "/flows/bad", "/evals", "/runs/nobody", f"/runs/{asking}", f"/runs/{failed}"),
        *("/runs/2f6c41d09b#node=draft", "/runs/2f6c41d09b#node=polish.round%5B0%5D.judge", "/runs/run30#node=n3"),
        "/compare?a=2f6c41d09b&b=run30",
    )
    with browser.tab(width, 900, scheme) as tab:
        tab.goto(server.entry_url)
        for page in pages:
            tab.goto("about:blank")
            tab.goto(f"{server.url}{page}")
            tab.wait(READY)
            assert find_violations(tab, axe) == [], page
        tab.goto(f"{server.url}/runs/2f6c41d09b#node=ask")
        for key in ("t", "?", "Escape", "Control+k"):
            tab.key(key)
            assert find_violations(tab, axe) == [], key
