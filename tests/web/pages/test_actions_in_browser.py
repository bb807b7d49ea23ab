"""A person acts on runs in a real browser: by mouse and keys, with mistakes, and with a double click."""

from __future__ import annotations

import sys
from collections.abc import Generator

import pytest

from flowengine.web.app import make_app
from tests.support.browser import LOOKS, Browser, Tab
from tests.support.ui_server import Served, served
from tests.web.pages.test_actions import STEPS, STORY

DEAR = """
flowengine: v1
name: dear
limits: {model_calls: 1, on_limit: pause}
nodes:
  one: {prompt: First, model: offline}
  two: {prompt: "Second {{ nodes.one.output }}", model: offline}
"""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Generator[Served]:
    folder = tmp_path_factory.mktemp("acts")
    (folder / "steps.py").write_text(STEPS)
    (folder / "story.yaml").write_text(STORY.lstrip())
    (folder / "dear.yaml").write_text(DEAR.lstrip())
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.delitem(sys.modules, "steps", raising=False)
        app = make_app("sqlite:///runs.db", ["."], durability="process")
        with served(app) as found:
            for run_id, flow, status in (("one", "story", "succeeded"), ("dear", "dear", "paused")):
                found.post("/api/runs", {"flow": flow, "run_id": run_id}, 201)
                found.until(run_id, status)
            yield found
    sys.modules.pop("steps", None)


@pytest.fixture(scope="module")
def opened(browser: Browser, server: Served) -> Generator[Tab]:
    with browser.tab() as found:
        found.goto(server.entry_url)
        yield found
        # That a form could not be taken is an answer which the console tells of.
        assert [each for each in found.trouble if "422" not in each] == []
        assert all(url.startswith((server.url, "data:", "about:")) for url in found.requests)


@pytest.fixture
def tab(opened: Tab) -> Tab:
    opened.goto("about:blank")
    return opened


def open_form(tab: Tab, server: Served, place: str, action: str) -> None:
    tab.goto(f"{server.url}{place}")
    tab.wait(f"document.querySelector('[data-act={action}]')")
    tab.click(f"[data-act={action}]")
    tab.wait("document.querySelector('dialog[open] form.act')")


def test_a_paused_run_is_given_a_higher_limit_that_is_filled_in(tab: Tab, server: Served):
    open_form(tab, server, "/runs/dear", "resume")
    assert tab.texts(".folds [data-act=resume]") == ["Raise the limit"]
    assert tab.evaluate("document.querySelector('dialog [name=model_calls]').value") == "2"
    assert tab.inner_text("dialog .command") == "flowengine resume dear --max-calls 2"
    tab.key("Escape")
    assert not tab.is_visible("dialog")
    assert server.get("/api/runs/dear")["status"] == "paused"
    tab.click("[data-act=resume]")
    tab.wait("document.querySelector('dialog[open] form.act')")
    tab.click("dialog [type=submit]")
    tab.wait("document.querySelector('#status')?.textContent.includes('succeeded')")
    assert tab.evaluate("location.pathname") == "/runs/dear"
    assert not tab.query_selector("[data-act=resume]")


def test_a_run_is_started_again_once_by_a_double_click_after_a_mistake_is_mended(tab: Tab, server: Served):
    before = server.get("/api/runs")["total"]
    open_form(tab, server, "/runs/one", "again")
    tab.fill("dialog [name='input.topic']", "it's $(new)")
    tab.fill("dialog [name='input.tags']", "[1,")
    tab.click("dialog summary")
    tab.fill("dialog [name=labels]", "team=a\nby=me")
    said = tab.inner_text("dialog .command")
    assert said.startswith("flowengine run story.yaml -i 'topic=it'\"'\"'s $(new)' -i ok=true -i 'tags=[1,'")
    assert said.endswith("--label team=a --label by=me")
    tab.click("dialog [type=submit]")
    tab.wait("document.querySelector('dialog .note.bad')?.textContent.includes('expected array as JSON')")
    assert tab.evaluate("document.querySelector('dialog [name=\"input.topic\"]').value") == "it's $(new)"
    assert tab.evaluate("document.querySelector('dialog [name=labels]').value") == "team=a\nby=me"
    tab.fill("dialog [name='input.tags']", "[1]")
    tab.evaluate("""(() => {
      const button = document.querySelector('dialog [type=submit]');
      button.click();
      button.disabled = false;
      button.click();
    })()""")
    tab.wait(
        "location.pathname !== '/runs/one' && document.querySelector('#status')?.textContent.includes('succeeded')"
    )
    assert server.get("/api/runs")["total"] == before + 1
    assert server.get(f"/api{tab.evaluate('location.pathname')}")["labels"] == {"team": "a", "by": "me"}


def test_a_fork_is_made_at_the_chosen_node_and_the_command_copied(tab: Tab, server: Served):
    open_form(tab, server, "/runs/one#node=write", "fork")
    tab.fill("dialog [name='state.tone']", "warm")
    assert tab.inner_text("dialog .command") == "flowengine resume one --from write --set tone=warm"
    tab.click("dialog [data-copy]")
    tab.wait("/opied/.test(document.querySelector('dialog [data-copy]').textContent)")
    tab.click("dialog [type=submit]")
    tab.wait(
        "location.pathname !== '/runs/one' && document.querySelector('#status')?.textContent.includes('succeeded')"
    )
    assert "warm" in server.get(f"/api{tab.evaluate('location.pathname')}")["outputs"]["said"]


@pytest.mark.long
def test_a_call_is_changed_asked_beside_its_answer_and_kept(tab: Tab, server: Served):
    tab.goto(f"{server.url}/runs/one#node=write")
    tab.wait("document.querySelector('#panel .actions a:not([data-act])')")
    tab.click("#panel a:text('Change and ask again')")
    tab.wait("document.querySelector('.playground')")
    assert not tab.is_visible(".play [data-made=fork]")
    tab.fill("[name='text.0']", "Of wasps, dry")
    tab.wait("document.querySelector('[data-said]').textContent.startsWith('No fork: message 1')")
    tab.fill("[name='text.0']", "User input: Of wasps, dry")
    tab.wait(
        "document.querySelector('.play [data-made=fork] .command').textContent.includes(\"--prompt 'Of wasps, dry'\")"
    )
    tab.click("button[value=ask]")
    tab.wait("location.search.includes('tried')")
    assert tab.texts(".playground section section h3") == ["Recorded answer", "New answer"]
    assert "bees" in tab.inner_text(".difference del")
    assert tab.texts(".difference ins")[0] == "wasps"
    for width, scheme in LOOKS:
        tab.look(width, scheme)
        assert tab.evaluate("document.documentElement.scrollWidth") <= width
    tab.look(*LOOKS[0])
    tab.click("button[value=keep]")
    tab.wait("location.pathname.startsWith('/runs/') && !location.pathname.endsWith('/play')")
    tab.wait("document.querySelector('#status')?.textContent.includes('succeeded')")
    assert "wasps" in server.get(f"/api{tab.evaluate('location.pathname')}")["outputs"]["said"]


@pytest.mark.long
def test_forms_fit_a_phone_and_work_without_our_script(tab: Tab, browser: Browser, server: Served):
    tab.look(390, "dark")
    open_form(tab, server, "/runs/one", "again")
    assert tab.evaluate("document.querySelector('dialog').getBoundingClientRect().width") <= 390
    assert tab.evaluate("document.documentElement.scrollWidth") <= 390
    tab.key("Escape")
    tab.look(1280, "light")
    with browser.tab(java_script_enabled=False) as plain:
        plain.goto(server.at("/runs/one/act/again"))
        assert plain.inner_text("h1") == "Run story again"
        plain.click("[type=submit]")
        assert "/runs/one" not in plain.inner_text("h1")
        assert plain.inner_text("h1").startswith("story")
