"""The list of runs and the head of a run in a real browser, as somebody uses them."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from time import time

import pytest

from flowengine.core.context import NodeResult
from flowengine.core.records import ApprovalRequested, ModelCall
from flowengine.engine.events import (
    ErrorInfo,
    Event,
    NodeFailed,
    NodeFinished,
    NodeRecorded,
    NodeStarted,
    RunFinished,
    RunStarted,
)
from flowengine.journal.run_export import unpack_run, unpack_runs
from flowengine.journal.run_notes import notes_of
from flowengine.journal.sqlite.store import SQLiteStore
from flowengine.web.app import make_app
from tests.support.browser import Browser, Tab
from tests.support.ui_server import Served, served

SHIFT_CLICK = "new MouseEvent('click', {shiftKey: true, bubbles: true})"
GRAPH = {"nodes": [["ask", "agent"], ["pay", "function"]], "edges": [["ask", "pay", []]]}


def events_of(run_id: str, at: float, question: str, *ends: Event, **settings: object) -> list[Event]:
    call = ModelCall("gpt-4o", "openai", "generation", [{"role": "user", "content": question}], "so", (), 900, 100,
                     cost_usd=0.25)  # fmt: skip
    start = RunStarted(run_id, "refund_desk", at, {"question": question}, {}, {}, graph=GRAPH, settings=settings)
    begun = [NodeStarted("ask", at), NodeRecorded("ask", at, call), NodeRecorded("ask", at, call)]
    return [start, *begun, NodeFinished("ask", at + 1, NodeResult("so")), *ends]


def put(store: SQLiteStore, events: list[Event]) -> None:
    start = events[0]
    assert isinstance(start, RunStarted)
    journal = store.create(start.run_id)
    for event in events:
        journal.append(event)
    journal.flush()


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SQLiteStore]:
    """140 runs: among them one that waits for ann, one for bob, and one that failed just now."""
    made = SQLiteStore(tmp_path_factory.mktemp("list") / "runs.db", "memory")
    now = time()
    for number in range(136):
        put(
            made, events_of(f"old{number:03}", now + number, f"parcel {number}", RunFinished(now + number, "succeeded"))
        )
    for run_id, who in (("asks-ann", "ann"), ("asks-bob", "bob")):
        asked = NodeRecorded("pay", now, ApprovalRequested("Pay?", ["yes", "no"], approvers=[who]))
        put(made, events_of(run_id, now + 200, "Pay the invoice", asked, RunFinished(now + 201, "waiting")))
    error = ErrorInfo("ValueError", "the card was <declined>")
    failed = [
        NodeStarted("pay", now),
        NodeFailed("pay", now + 301, error),
        RunFinished(now + 301, "failed", None, error),
    ]
    put(made, events_of("broken", now + 300, "Refund 山田", *failed, session="s-1"))
    lineage = {"forked": "broken", "from": "pay"}
    put(made, events_of("forked", now + 400, "Refund", RunFinished(now + 401, "succeeded"), **lineage))
    made.close()
    yield made
    made.close()


@pytest.fixture(scope="module")
def server(store: SQLiteStore) -> Iterator[Served]:
    with closing(SQLiteStore(store.path)) as own, served(make_app(own, by="ann")) as running:
        yield running


@pytest.mark.long
def test_runs_are_found_chosen_over_pages_and_forgotten(browser: Browser, server: Served, store: SQLiteStore):
    with browser.tab() as tab:
        tab.goto(server.entry_url)
        assert tab.inner_text("[data-list] p.note") == "140 runs"
        assert tab.texts("#presets a") == ["All", "Waits for me1", "Failed today1", "Running", "Today"]
        tab.click("text=Waits for me")
        tab.wait("location.search === '?mine=1'")
        assert tab.texts("[data-list] tbody td:nth-child(2) a") == ["asks-ann"]
        tab.fill("[name=q]", "declined")
        tab.evaluate("document.querySelector('[name=mine]').remove()")
        tab.click("text=Filter")
        tab.wait("location.search.includes('q=declined')")
        assert tab.texts(".runs .found") == ["error: the card was <declined>"]
        tab.goto(f"{server.url}/?q=%E5%B1%B1%E7%94%B0")
        assert tab.texts("[data-list] tbody td:nth-child(2) a") == ["broken"]
        tab.goto(server.url)
        assert tab.evaluate("document.querySelector('.selection').hidden")
        tab.check("[value=forked]")
        tab.check("[value=asks-bob]")
        tab.click("text=older →")
        tab.wait("document.querySelector('.selection').hidden === false")
        tab.check("[value=old001]")
        tab.evaluate(f"document.querySelector('[value=old003]').dispatchEvent({SHIFT_CLICK})")
        assert tab.inner_text("#chosen-count") == "5 chosen, 2 of them elsewhere"
        tab.click("text=Choose none")
        assert tab.evaluate("document.querySelector('.selection').hidden")
        tab.check("[value=old001]")
        tab.click("text=← newer")
        tab.wait("document.querySelector('[value=forked]')")
        tab.check("[value=asks-bob]")
        tab.click("text=Forget…")
        tab.wait("document.title.includes('Forget 2 runs?')")
        assert sorted(tab.texts("main li")) == ["asks-bob", "old001"]
        tab.click("text=Forget them")
        tab.wait("document.querySelector('h1').textContent.includes('1 of 2 runs forgotten')")
        assert "run 'asks-bob' has not ended, it is waiting" in tab.inner_text("main")
        tab.goto(server.url)
        assert tab.inner_text("[data-list] p.note") == "139 runs"
        assert tab.evaluate("document.querySelector('.selection').hidden")
        assert [text for text in tab.trouble if "409" not in text] == []
    with closing(sqlite3.connect(store.path)) as connection:
        assert connection.execute("SELECT count(*) FROM digest").fetchone() == (139,)


def read_two_runs_of_a_file(tab: Tab, address: str) -> None:
    """Its list, a run and its node, a link to another node, the run it came from, and back to the list."""
    shown = "[...document.querySelectorAll('#bundle tbody tr:not([hidden]) a')].map((each) => each.textContent).join()"
    tab.goto(address)
    assert (tab.inner_text("h1"), tab.evaluate(shown)) == ("2 runs", "broken,forked")
    tab.fill("#bundle-find", "declined refund")
    tab.wait(f"{shown} === 'broken'")
    tab.fill("#bundle-find", "")
    tab.click("#bundle >> text=forked")
    tab.wait("document.querySelector('.facts')?.innerText.includes('Forked from')")
    assert tab.evaluate("document.title").startswith("✓ refund_desk forked")
    tab.click("[data-node='1']")
    tab.wait("location.hash === '#run=forked&node=pay' && document.querySelector('#panel a[href=\"#node=ask\"]')")
    tab.click("#panel a[href='#node=ask']")
    tab.wait("location.hash === '#run=forked&node=ask' && document.querySelector('#panel h2, #panel h3')")
    tab.wait("document.querySelector('.call-link')?.hash === '#run=forked&node=ask&call=2'")
    tab.click(".facts >> text=broken")
    tab.wait("location.hash.startsWith('#run=broken&node=pay') && document.querySelector('#error')?.innerText")
    assert tab.inner_text("#error") == "the card was <declined>"
    tab.click("text=All 2 runs")
    tab.wait("document.querySelector('#bundle')")
    assert tab.trouble == []


@pytest.mark.long
def test_two_chosen_runs_are_compared_and_exported(browser: Browser, server: Served, tmp_path: Path):
    with browser.tab() as tab:
        tab.goto(server.entry_url)
        tab.check("[value=forked]")
        assert tab.evaluate("document.querySelector('[value=compare]').disabled")
        tab.check("[value=broken]")
        tab.click("text=Compare")
        tab.wait("location.pathname === '/compare'")
        assert tab.evaluate("location.search") == "?run=broken&run=forked"
        assert tab.trouble == []
    token = server.client.get("/").text.split('name="token" value="')[1].split('"')[0]
    cookies = {"Sec-Fetch-Site": "same-origin", "Origin": server.url}
    one = server.client.post("/selection", data={"token": token, "do": "export", "run": "broken"}, headers=cookies)
    assert one.headers["content-disposition"] == 'attachment; filename="broken.jsonl"'
    assert len(unpack_run(one.text.splitlines(), "x")) == 8
    fields = {"token": token, "do": "export", "run": ["broken", "forked"]}
    both = server.client.post("/selection", data=fields, headers=cookies)
    assert both.headers["content-disposition"] == 'attachment; filename="runs.jsonl"'
    assert [len(each.events) for each in unpack_runs(both.text.splitlines(), "x")] == [8, 6]
    page = server.client.post("/selection", data={**fields, "do": "page"}, headers=cookies)
    assert page.headers["content-disposition"] == 'attachment; filename="runs.html"'
    file = tmp_path / "runs.html"
    file.write_bytes(page.content)
    with browser.tab() as tab:
        read_two_runs_of_a_file(tab, file.as_uri())
    for fields, status in (
        ({"do": "export", "run": "broken"}, 403), ({"token": token, "do": "export"}, 400),
        ({"token": token, "do": "dance", "run": "broken"}, 400),
        ({"token": token, "do": "export", "run": "nobody"}, 404),
        ({"token": token, "do": "cancel", "run": "broken"}, 409),
    ):  # fmt: skip
        assert server.client.post("/selection", data=fields, headers=cookies).status_code == status, fields


@pytest.mark.long
def test_a_run_tells_its_family_its_notes_and_its_status_in_the_tab(
    browser: Browser, server: Served, store: SQLiteStore
):
    with browser.tab() as tab:
        tab.goto(server.at("/runs/forked"))
        assert tab.evaluate("document.title").startswith("✓ refund_desk forked")
        assert tab.evaluate("document.getElementById('icon').href").startswith("data:image/svg+xml")
        tab.click(".facts >> text=broken")
        tab.wait("location.pathname === '/runs/broken'")
        assert tab.evaluate("document.title").startswith("✗ refund_desk broken")
        facts = tab.inner_text(".run-head .facts")
        assert ("Led to" in facts, "forked" in facts, "s-1" in facts) == (True, True, True)
        tab.click("summary >> text=Notes")
        tab.fill("[name=text]", "Who declined it?\n<b>")
        tab.fill("[name=mark]", "Odd")
        tab.fill("[name=score]", "quality=0.25")
        tab.click("text=Keep")
        tab.wait("document.querySelector('.chip')")
        tab.click("summary >> text=Notes")
        assert tab.texts(".notes .said") == ["Who declined it? <b>"]
        assert "ann" in tab.inner_text(".notes")
        tab.click("[aria-label='Take it back'] >> nth=0")
        tab.wait("document.querySelectorAll('.chip').length && !document.querySelector('[name=unmark]')")
        said = notes_of(store, "broken")
        assert ([each.by for each in said.notes], said.marks, said.scores[0].value) == (["ann"], [], 0.25)
        tab.goto(f"{server.url}/?mark=odd")
        assert tab.inner_text("[data-list] p.note").startswith("0 of ")
        # A link to one call opens it.
        tab.goto(f"{server.url}/runs/broken#node=ask&call=3")
        tab.wait("document.querySelector('.panel-target')?.dataset.seq === '3'")
        assert tab.get_attribute("section.call .call-link >> nth=0", "href") == "#node=ask&call=2"
        # On paper: what is folded is open, and there is nothing to click at.
        tab.evaluate("dispatchEvent(new Event('beforeprint'))")
        assert tab.evaluate("document.querySelectorAll('details:not([open])').length") == 0
        tab.emulate_media(media="print")
        assert tab.evaluate("getComputedStyle(document.querySelector('.scrubber')).display") == "none"
        assert tab.trouble == []


def test_the_api_lists_what_the_page_lists(server: Served):
    found = server.get("/api/runs?q=declined")
    assert [run["run_id"] for run in found["runs"]] == ["broken"]
    (run,) = found["runs"]
    assert (run["cost_usd"], run["tokens"], run["model"], run["session"]) == (0.5, 2000, "gpt-4o", "s-1")
    assert (run["error"], run["found"], run["standing"]) == (
        "the card was <declined>", "error: the card was <declined>", "failed"
    )  # fmt: skip
    assert [run["run_id"] for run in server.get("/api/runs?mine=1")["runs"]] == ["asks-ann"]
    assert server.get("/api/runs?page=9")["runs"] == []
