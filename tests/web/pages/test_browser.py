"""The server's pages in a real browser: live runs of other processes, approvals, hostile text, many viewers."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable, Generator
from functools import partial
from pathlib import Path

import anyio
import pytest

from flowengine.core.context import NodeResult
from flowengine.core.records import ApprovalRequested
from flowengine.engine.events import Event, NodeFinished, NodeRecorded, NodeStarted, RunFinished, RunStarted
from flowengine.engine.ports import Journal
from flowengine.journal.live_texts import read_live
from flowengine.journal.sqlite.store import SQLiteStore
from flowengine.web.app import make_app
from tests.support.browser import LOOKS, Browser, Tab
from tests.support.pace import done_within
from tests.support.quiet_ports import quiet_port
from tests.support.sample_run import START, layered_run, mapped_run, model_call, research_run
from tests.support.ui_server import Served, served
from tests.web.conftest import FLOWS
from tests.web.service.test_run_follower import other_process

PANEL = "document.querySelector('#panel h2 .path')?.textContent === '{}'"
EVIL = "</script><script>window.owned=1</script><img src=x onerror=window.owned=1>"


@pytest.fixture
def tab(browser: Browser, server: Served) -> Generator[Tab]:
    """A tab that is signed in, and has seen nothing but ours when it is closed."""
    with browser.tab() as opened:
        opened.goto(server.entry_url)
        yield opened
        assert opened.trouble == []
        assert all(url.startswith((server.url, "data:")) for url in opened.requests)


def keep(events: list[Event], run_id: str) -> None:
    """Write a run into the store `runs.db`."""

    async def write(journal: Journal) -> None:
        for event in events:
            journal.append(event)
        await journal.close()

    store = SQLiteStore("runs.db", "process")
    anyio.run(write, store.create(run_id))
    store.close()


@pytest.mark.long
def test_a_run_of_another_process_appears_in_the_list_and_moves_to_its_end(tab: Tab, server: Served):
    assert tab.evaluate("location.search") == ""
    with other_process(pause=0.01):
        tab.wait("document.querySelector('tbody tr a')?.textContent === 'other'")
        assert "running" in tab.texts("tbody tr")[0]
        tab.click("tbody tr a")
        tab.wait("document.querySelector('#status')?.textContent.includes('running')")
        tab.wait("document.querySelector(\"[data-node='5']\")?.classList.contains('s-succeeded')")
        tab.wait("document.querySelector('#status').textContent.includes('succeeded')")
    assert tab.texts("#moment") == ["301 of 301 · end"]
    tab.goto(server.url)
    tab.wait("document.querySelector('tbody tr')?.textContent.includes('succeeded')")


def test_scrubber_panel_and_keys_work_on_a_recorded_run(tab: Tab, server: Served):
    keep(research_run(), "2f6c41d09b")
    tab.goto(f"{server.url}/runs/2f6c41d09b#node=draft&at=5")
    tab.wait(PANEL.format("draft"))
    assert tab.texts("#moment") == ["5 of 62 · judged draft"]
    tab.key("]")
    tab.key("]")
    assert tab.texts("#moment")[0].startswith("7 of 62")
    tab.click("[data-step=last]")
    tab.key("j")
    tab.wait("document.querySelector('#panel h2 .path')?.textContent !== 'draft'")
    tab.key("k")
    tab.wait(PANEL.format("draft"))
    assert "Bees read the sun like a compass" in tab.inner_text("#panel")


def test_two_runs_are_compared_and_a_run_with_the_one_before_it(tab: Tab, server: Served):
    for number in range(2):
        server.post("/api/runs", {"flow": "shout", "inputs": {"text": f"run {number}"}, "run_id": f"r{number}"}, 201)
        server.until(f"r{number}", "succeeded")
    tab.goto(server.url)
    for number in range(2):
        tab.check(f"[name=run][value=r{number}]")
    tab.click("[value=compare]")
    tab.wait("document.querySelector('h1')?.textContent === 'Two runs'")
    assert "RUN 0" in tab.inner_text("main")
    assert "Outputs: different" in tab.texts("h2")
    tab.goto(f"{server.url}/runs/r1")
    tab.click("text=Compare with the run before")
    tab.wait("document.querySelector('h1')?.textContent === 'Two runs'")
    assert tab.texts("main h2")[0].startswith("A: r0")


@pytest.mark.long
def test_an_approval_is_answered_in_the_page_and_the_run_goes_on(tab: Tab, server: Served):
    run_id = server.post("/api/runs", {"flow": "ask"}, 201)["run_id"]
    server.until(run_id, "waiting")
    tab.goto(f"{server.url}/runs/{run_id}#node=ask")
    tab.wait("document.querySelector('#panel .approval.dressed')")
    assert "It is **read** by all → publish" in tab.inner_text("#panel .choices")
    assert not tab.is_visible("[name='form.channel']")
    # Nothing happens, and time goes by: in the head, on the node and in the timeline.
    for place in ("#took", "[data-node] .standing", "#rows .row"):
        said = f"[...document.querySelectorAll({place!r})].map((each) => each.textContent).join()"
        tab.wait(f"{said} !== {json.dumps(tab.evaluate(said))}")
    tab.click("#panel button:text('yes')")  # The choice that has a form opens it first.
    tab.select_option("[name='form.channel']", "mail")
    tab.fill("[name=comment]", "fine by me")
    tab.click("#panel button:text('yes')")
    tab.wait("document.querySelector('#status')?.textContent.includes('succeeded')")
    assert tab.evaluate("location.hash") == "#node=ask"
    answered = server.get(f"/api/runs/{run_id}")
    assert answered["nodes"]["publish"]["output"] == "YES"
    told = [json.loads(line[6:]) for line in server.client.get(f"/api/runs/{run_id}/events").text.splitlines()
            if line.startswith("data:")]  # fmt: skip
    [record] = [each["record"] for each in told if each.get("record", {}).get("type") == "Answered"]
    assert record == {
        "type": "Answered", "choice": "yes", "comment": "fine by me", "by": "ada", "form": {"channel": "mail"},
        "name": "",
    }  # fmt: skip


def test_a_flow_is_started_in_its_page_and_the_run_is_cancelled_in_its_own(tab: Tab, server: Served):
    tab.goto(f"{server.url}/flows/shout")
    tab.click("text=Start it")
    tab.fill("[name='form.text']", "oh")
    tab.click("button:text('Start')")
    tab.wait("document.querySelector('#status')?.textContent.includes('succeeded')")
    tab.wait("document.querySelector('.folds')?.innerHTML.includes('OH')")
    tab.goto(f"{server.url}/flows/sleep")
    tab.click("text=Start it")
    tab.fill("[name=form]", "{}") if tab.query_selector("[name=form]") else None
    tab.click("button:text('Start')")
    tab.wait("document.querySelector('#status')?.textContent.includes('running')")
    tab.click("text=Cancel the run")
    tab.wait("document.querySelector('#status')?.textContent.includes('cancelled')")
    assert not tab.is_visible("text=Cancel the run")
    tab.goto(f"{server.url}/flows/bad")
    assert tab.query_selector("text=Start it") is None


def test_a_page_that_the_browser_kept_goes_on_where_it_was(tab: Tab, server: Served):
    run_id = server.post("/api/runs", {"flow": "sleep"}, 201)["run_id"]
    tab.goto(f"{server.url}/runs/{run_id}")
    tab.wait("document.querySelector('#status')?.textContent.includes('running')")
    tab.evaluate("dispatchEvent(new PageTransitionEvent('pagehide', { persisted: true }))")
    server.post(f"/api/runs/{run_id}/cancel", {}, 200)
    tab.evaluate("dispatchEvent(new PageTransitionEvent('pageshow', { persisted: true }))")
    tab.wait("document.querySelector('#status').textContent.includes('cancelled')", 10)


def test_a_node_is_shown_although_a_form_of_another_is_being_filled_in(tab: Tab, server: Served):
    run_id = server.post("/api/runs", {"flow": "ask"}, 201)["run_id"]
    server.until(run_id, "waiting")
    tab.goto(f"{server.url}/runs/{run_id}#node=publish")
    tab.wait(PANEL.format("publish"))
    tab.click("#rows .row:has-text('ask')")
    tab.wait("document.querySelector('#panel .approval.dressed')")
    tab.fill("[name=comment]", "half")
    tab.go_back()
    tab.wait(PANEL.format("publish"), 10)


def test_an_answer_that_comes_too_late_is_told(tab: Tab, server: Served):
    run_id = server.post("/api/runs", {"flow": "ask"}, 201)["run_id"]
    server.until(run_id, "waiting")
    tab.goto(f"{server.url}/runs/{run_id}#node=ask")
    tab.wait("document.querySelector('#panel form')")
    tab.evaluate("document.querySelector('#panel form').action += 'x'")
    tab.click("#panel button:text('yes')")  # The choice that has a form opens it first.
    tab.select_option("[name='form.channel']", "mail")
    tab.click("#panel button:text('yes')")
    tab.wait("document.querySelector('h1').textContent === 'The question is closed'")
    tab.click("text=Back")
    tab.wait("document.querySelector('#status')?.textContent.includes('waiting')")
    tab.trouble.clear()  # The console tells the status 409.


def test_a_script_in_what_models_and_flows_say_does_not_run(tab: Tab, server: Served):
    graph = {"nodes": [[EVIL, "agent"], ["ask", "approval"]], "edges": []}
    keep(
        [
            RunStarted("evil", EVIL, START, {EVIL: EVIL}, {}, {}, EVIL, EVIL, graph=graph),
            NodeStarted(EVIL, START),
            NodeRecorded(EVIL, START, model_call("generation", EVIL, EVIL, 1, None, 0.1)),
            NodeFinished(EVIL, START + 1, NodeResult(EVIL, {EVIL: EVIL})),
            NodeStarted("ask", START),
            NodeRecorded("ask", START, ApprovalRequested(EVIL, [EVIL], {"type": "object", "properties": {EVIL: {}}})),
            RunFinished(START + 2, "waiting"),
        ],
        "evil",
    )
    for path in ("/", "/runs/evil", "/compare?a=evil&b=evil", "/flows", "/flows/x%3Cscript%3E", "/runs/%3Cscript%3E"):
        tab.goto(server.url + path)
        assert tab.evaluate("window.owned") is None
        assert tab.evaluate("document.querySelectorAll('img, iframe').length") == 0
    tab.goto(f"{server.url}/runs/evil#node=ask")
    tab.wait("document.querySelector('#panel form')")
    tab.key("k")
    tab.wait("document.querySelector('#panel')?.textContent.includes('window.owned')")
    assert tab.evaluate("window.owned") is None
    tab.trouble[:] = [each for each in tab.trouble if "404" not in each]


def test_flows_are_shown_with_source_picture_marks_and_their_last_runs(tab: Tab, server: Served):
    for number in range(3):
        server.post("/api/runs", {"flow": "shout", "run_id": f"r{number}"}, 201)
        server.until(f"r{number}", "succeeded")
    tab.goto(f"{server.url}/flows")
    assert len(tab.texts("tbody tr")) == len(FLOWS)
    assert "✗" in next(each for each in tab.texts("tbody tr") if each.startswith("bad"))
    tab.click("tbody a:text-is('shout')")
    tab.wait("document.querySelector('h1')?.textContent === 'shout'")
    assert len(tab.texts(".plot a title")) == 6
    assert tab.texts("#graph .name") == ["shout"]
    tab.goto(f"{server.url}/flows/bad")
    assert "FE" in tab.texts(".source .mark")[0]


@pytest.mark.parametrize("path", ["/", "/flows", "/flows/ask", "/runs/x", "/runs/nobody", "/compare?a=x&b=x"])
def test_each_page_fits_its_width(browser: Browser, server: Served, path: str):
    keep([research_run()[0]._replace(run_id="x"), *research_run()[1:]], "x")
    with browser.tab() as tab:
        for width, scheme in LOOKS:
            tab.look(width, scheme)
            tab.goto(server.at(path))
            assert tab.evaluate("document.documentElement.scrollWidth") == width
            assert [each for each in tab.trouble if "404" not in each] == []


def test_a_tab_without_the_token_sees_how_to_get_in(browser: Browser, server: Served):
    with browser.tab() as tab:
        tab.goto(server.url)
        assert tab.texts("h1") == ["A token is needed"]
        tab.goto(server.entry_url)
        assert tab.texts("h1") == ["Runs"]
        assert server.token not in tab.evaluate("location.href + document.cookie")
        tab.goto(f"{server.url}/flows")
        assert tab.texts("h1") == ["Flows"]


def test_a_page_of_another_site_cannot_post_here(browser: Browser, server: Served, tmp_path: Path):
    run_id = server.post("/api/runs", {"flow": "ask"}, 201)["run_id"]
    server.until(run_id, "waiting")
    page = tmp_path / "evil.html"
    page.write_text(
        f'<form method=post action="{server.url}/runs/{run_id}/approve/ask"><button name=choice value=yes>x'
    )
    with browser.tab() as tab:
        tab.goto(server.entry_url)
        tab.goto(page.as_uri())
        tab.click("button")
        tab.wait("document.querySelector('h1')?.textContent === \"Another site's request\"")
    assert server.get(f"/api/runs/{run_id}")["status"] == "waiting"


@pytest.mark.long
def test_the_page_goes_on_when_the_connection_was_lost(browser: Browser, folder: Path):
    """The browser asks again with the last event that it has."""
    with other_process(pause=0.02), browser.tab() as tab:
        port = quiet_port()
        with served(make_app("sqlite:///runs.db", token="x" * 20, durability="process"), port) as first:
            tab.goto(first.at("/runs/other"))
            tab.wait("document.getElementById('scrub').max > 10")
        with served(make_app("sqlite:///runs.db", token="x" * 20, durability="process"), port):
            tab.wait("document.querySelector('#status').textContent.includes('succeeded')")


# --- speed


@pytest.mark.long
def test_two_thousand_live_events_are_applied_within_five_seconds(browser: Browser, server: Served):
    """Of a run with 1,000 nodes, written by somebody else while the page is open."""
    events = layered_run(1000)
    store = SQLiteStore("runs.db", "process")
    journal = store.create("run1000")
    for event in events[:1002]:
        journal.append(event)
    journal.commit()
    with browser.tab() as tab:
        with done_within(2):
            tab.goto(server.at("/runs/run1000"))
            tab.click("#rows .row:has-text('n3')")
        for begin in range(1002, len(events), 50):
            for event in events[begin : begin + 50]:
                journal.append(event)
            journal.commit()
            time.sleep(0.01)
        with done_within(5):
            tab.wait("document.querySelector('#status').textContent.includes('succeeded')", 60)
            tab.wait("document.querySelector(\"[data-node='999']\").classList.contains('s-succeeded')", 60)
        assert tab.texts("#moment") == ["3001 of 3001 · end"]
        assert tab.trouble == []
    anyio.run(journal.close)
    store.close()


@pytest.mark.long
@pytest.mark.parametrize(
    ("make", "run_id"),
    [(partial(layered_run, 10_000, 100), "run10000"), (partial(mapped_run, 10_000), "mapped")],
    ids=["nodes", "items"],
)
def test_a_run_of_ten_thousand_nodes_can_be_used_within_five_seconds(
    browser: Browser, server: Served, make: Callable[[], list[Event]], run_id: str
):
    keep(make(), run_id)
    with browser.tab() as tab:
        with done_within(5):
            tab.goto(server.at(f"/runs/{run_id}"))
            tab.click("#rows .row >> nth=3")
        tab.wait("document.querySelector('#panel h2')")
        tab.key("j")
        tab.key("k")
        tab.click("[data-zoom=fit]")
        tab.click("[data-step=back]")
        assert tab.trouble == []


WRITER = """
import sys, anyio
from contextlib import asynccontextmanager
from flowengine import Agent, AgentNode, Flow
from flowengine.journal.sqlite.store import SQLiteStore
from flowengine.models.scripted import ScriptedModel
from flowengine.runtime.local.local import start
from flowengine.runtime.run import RunOptions, unheard

class Slow(ScriptedModel):
    @asynccontextmanager
    async def stream(self, request):
        async def pieces():
            async for piece in all_of_them:
                await anyio.to_thread.run_sync(sys.stdin.readline)
                yield piece
        async with super().stream(request) as all_of_them:
            yield pieces()

flow = Flow("slow", {"say": AgentNode(Agent("a", "Say it.", model=Slow(["Green tea, please."])))})
store = SQLiteStore("runs.db", "process")
print("begun", flush=True)
anyio.run(lambda: start(flow.plan, {}, store, RunOptions(run_id="slow", live=unheard)))
"""


@pytest.mark.long
def test_what_an_agent_of_another_process_writes_is_seen_and_whom_it_asks(browser: Browser, server: Served):
    root = Path(__file__).parents[3]
    code = f"import sys; sys.path.insert(0, {str(root)!r})\n{WRITER}"
    with subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process, browser.tab() as tab:  # fmt: skip
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stdout.readline() == "begun\n"
        store = SQLiteStore("runs.db")
        while not any(info.run_id == "slow" for info in store.list()):
            time.sleep(0.02)
        tab.goto(server.at("/runs/slow#node=say"))
        tab.wait("document.querySelector('#graph .detail').textContent.startsWith('asked scripted ')")
        process.stdin.write("\n\n")
        process.stdin.flush()
        tab.wait("document.getElementById('writing')?.textContent.startsWith('Green tea')")
        with browser.tab() as late:  # Who comes now is told of the beginning, too.
            late.goto(server.at("/runs/slow#node=say"))
            late.wait("document.getElementById('writing')?.textContent.startsWith('Green tea')")
        process.stdin.write("\n" * 9)
        process.stdin.flush()
        tab.wait("document.querySelector('#status').textContent.includes('succeeded')")
        tab.wait("!document.getElementById('writing')")
        tab.wait("!document.querySelector('#graph .detail').textContent.includes('asked')")
        process.stdin.close()
        assert process.wait(20) == 0
        assert tab.trouble == []
    assert read_live(store, "slow") is None
    assert not any("token" in type(event).__name__.lower() for event in store.events("slow"))
    store.close()
