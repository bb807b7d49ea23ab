"""The page of a run in a real browser: exported to a file, and live from a server."""

from __future__ import annotations

import re
import time
from collections.abc import Generator
from pathlib import Path

import pytest

from flowengine.core.context import NodeResult
from flowengine.engine.events import (
    Event,
    NodeFinished,
    NodeRecorded,
    NodeStarted,
    RunFinished,
    RunResumed,
    RunStarted,
    TokenStreamed,
)
from tests.support.browser import Browser, Tab
from tests.support.pace import done_within
from tests.support.page_server import PageServer, page_server
from tests.support.sample_run import START, layered_run, model_call, research_run
from visualize.progress import fold_events
from visualize.viewer.reading import Reading
from visualize.viewer.run import export_page

NODE = "[data-node='{}']"
PANEL = "document.querySelector('#panel h2 .path')?.textContent === '{}'"


def class_of(tab: Tab, number: int) -> str:
    return tab.get_attribute(NODE.format(number), "class")


def find(tab: Tab, name: str) -> None:
    """Choose the first node of that name."""
    tab.fill("#find", name)
    tab.press("#find", "Enter")
    tab.press("#find", "Escape")


@pytest.fixture
def file(tmp_path: Path) -> str:
    """The sample run, exported."""
    path = tmp_path / "run.html"
    path.write_text(export_page(Reading(research_run())))
    return path.as_uri()


@pytest.fixture
def tab(browser: Browser, file: str) -> Generator[Tab]:
    with browser.tab() as opened:
        opened.goto(f"{file}#node=draft")
        opened.wait(PANEL.format("draft"))
        yield opened
        assert opened.trouble == []
        assert {url.split("#")[0] for url in opened.requests} - {"data:,"} == {file}


# --- the exported file


def test_the_file_opens_from_a_disk_without_asking_anybody(tab: Tab):
    assert tab.texts("h1") == ["research ‖ waiting"]
    assert re.fullmatch("po.*….* ×3", tab.texts("#graph .name")[0]), "the count of a name that is cut stays"
    for _ in range(6):
        tab.key("+")
    assert tab.texts("#graph .name")[:3] == ["polish ×3 of 4", "investigate ×4 of 4", "widen"]
    assert "✗ 3 of 4, 1 failed" in " ".join(tab.texts("#graph .standing"))
    assert tab.texts("#took") == ["6.1 s"]
    assert len(tab.texts("#rows .row .path")) > 8


def test_a_name_turns_nothing_round_but_itself_and_what_is_empty_says_so(browser: Browser, tmp_path: Path):
    name = "a\u2029\u202eb" + "c" * 20_000
    graph = {"nodes": [[name, "function"]], "edges": []}
    begun = [RunStarted("r1", "flow \u2029\u202ename", START, {}, {}, {}, graph=graph), NodeStarted(name, START)]
    path = tmp_path / "run.html"
    path.write_text(export_page(Reading([*begun, RunFinished(START + 1, "cancelled")])))
    with browser.tab() as tab:
        tab.goto(path.as_uri())
        tab.click(NODE.format(0))
        tab.wait("document.querySelector('#panel h2 .path')")
        box = "document.querySelector('{}').getBoundingClientRect()"
        assert tab.evaluate(f"{box.format('h1 bdi')}.right <= {box.format('#status')}.left")
        assert tab.evaluate(f"{box.format('#panel h2')}.height < 200")
        for pane, told in (("calls", "No model has answered."), ("state", "No node has written shared state.")):
            tab.click(f"[data-tab={pane}]")
            assert tab.texts("#rows > .note") == [told]
        assert tab.trouble == []


def test_a_click_on_a_node_opens_its_panel_and_the_back_button_closes_it_again(tab: Tab):
    tab.click(NODE.format(0))
    tab.wait(PANEL.format("draft"))
    assert "Bees read the sun like a compass" in tab.inner_text("#panel")
    assert tab.evaluate("location.hash") == "#node=draft"
    assert "chosen" in class_of(tab, 0)
    find(tab, "triage")
    tab.wait(PANEL.format("triage"))
    assert "The text names its sources and is short." in tab.inner_text("#panel")
    tab.evaluate("history.back()")
    tab.wait(PANEL.format("draft"))


def test_a_node_of_a_body_opens_the_list_of_its_times_and_leads_to_each(tab: Tab):
    tab.click(NODE.format(2))
    tab.wait(PANEL.format("polish.judge"))
    tab.click("#panel a:text('polish.round[1].judge')")
    tab.wait(PANEL.format("polish.round[1].judge"))
    tab.click("#panel h2 a")
    tab.wait(PANEL.format("polish"))


def test_the_scrubber_repaints_graph_head_panel_timeline_and_state(tab: Tab):
    tab.click(NODE.format(0))
    tab.click("[data-tab=state]")
    assert tab.texts("#rows .row") == [
        'sources["notes.txt","page 0","page 1","page 2"]', "words22", 'title"The way home"',
    ]  # fmt: skip
    tab.evaluate(
        "{ const scrub = document.getElementById('scrub'); scrub.value = 5; scrub.dispatchEvent(new Event('input')); }"
    )
    assert tab.texts("#status") == ["▶ running"]
    assert "s-running" in class_of(tab, 0)
    assert "s-pending" in class_of(tab, 1)
    assert tab.texts("#moment") == ["5 of 62 · judged draft"]
    assert tab.texts("#rows .row") == ["sources[]", "words0", "titlenull"]
    assert tab.evaluate("location.hash") == "#node=draft&at=5"
    assert tab.texts("#panel h2 .badge") == ["▶ running"]
    assert not tab.is_visible("#panel h3:text('Output')")
    assert tab.is_visible("#panel h4:text('Round 1')")
    assert not tab.is_visible("#panel h4:text('Round 2')")
    for _ in range(3):
        tab.key("]")
    assert tab.texts("#moment") == ["8 of 62 · finish draft"]
    assert tab.texts("#rows .row.changed") == ['sources["notes.txt"]', "words17", 'title"The way home"']
    tab.key("[")
    assert tab.texts("#moment") == ["7 of 62 · judged draft"]
    tab.click("[data-step=last]")
    assert tab.texts("#status") == ["‖ waiting"]


def test_a_list_of_times_holds_what_was_known_at_the_moment(browser: Browser, file: str):
    with browser.tab() as tab:
        tab.goto(f"{file}#node=polish")
        tab.wait(PANEL.format("polish"))
        assert len(tab.texts("#panel .times tbody tr:not([hidden])")) == 6
        tab.goto(f"{file}#node=polish&at=30")
        tab.wait("document.querySelectorAll('#panel .times tr[hidden]').length > 0")
        known = {row.id for row in fold_events(research_run()[:31]).nodes.values() if row.ended is not None}
        assert tab.texts("#panel .times tbody tr:not([hidden]) a") == [
            name for name in ("round[0].judge", "round[0].improve", "round[1].judge") if f"polish.{name}" in known
        ]


def test_a_deep_link_opens_node_and_moment(browser: Browser, file: str):
    with browser.tab() as tab:
        tab.goto(f"{file}#node=polish.round%5B1%5D.judge&at=20")
        tab.wait(PANEL.format("polish.round[1].judge"))
        assert tab.texts("#moment")[0].startswith("20 of 62")
        assert "s-pending" in class_of(tab, 7)
        tab.goto(f"{file}#node=nobody&at=99999")
        assert "The run has no such node." in tab.inner_text("#panel")
        assert tab.texts("#moment")[0].startswith("62 of 62")
        tab.goto(f"{file}#at=x&node=%E6%97")
        assert tab.trouble == []


def test_j_and_k_walk_through_the_nodes_and_slash_finds_one(tab: Tab):
    tab.key("k")
    tab.wait(PANEL.format("draft"))
    for _ in range(4):
        tab.key("j")
    tab.wait(PANEL.format("polish.round[1].judge"))
    tab.key("k")
    tab.wait(PANEL.format("polish.round[0].improve"))
    tab.key("/")
    tab.type_text("summ")
    assert tab.texts("#rows .row .path") == ["[0].summarise", "[1].summarise", "[2].summarise"]
    assert "dim" in class_of(tab, 0)
    assert "dim" not in class_of(tab, 6)
    tab.key("Enter")
    tab.wait(PANEL.format("investigate[0].summarise"))
    tab.key("Escape")
    assert "dim" not in class_of(tab, 0)
    tab.key("j")
    tab.wait(PANEL.format("investigate[1].search"))


def test_events_and_model_calls_are_listed_and_lead_to_their_moment(tab: Tab):
    tab.click("[data-tab=calls]")
    assert tab.texts("#rows .row .name")[1] == "draft · generation · gpt-4o-mini"
    assert "800 ms · 480 tokens · $0.0021" in tab.texts("#rows .row .took")[0]
    tab.click("[data-tab=events]")
    tab.click("#rows .row:has-text('round 1: 0.55 did not pass')")
    tab.wait(PANEL.format("draft"))
    assert tab.texts("#moment") == ["5 of 62 · judged draft"]
    assert len(tab.texts("#rows .row.later")) > 3


def test_the_graph_is_moved_and_zoomed(tab: Tab):
    def place() -> str:
        return tab.get_attribute("#graph .scene", "transform")

    before = place()
    tab.click("[data-zoom=in]")
    zoomed = place()
    assert zoomed != before
    tab.drag((400, 400), (300, 300))
    moved = place()
    assert moved != zoomed
    assert tab.texts("#panel h2 .path") == ["draft"]  # A drag is no click.
    tab.wheel((400, 400), 240)
    assert place() != moved
    tab.key("0")
    tab.click("[data-zoom=out]")


def test_the_critical_path_is_marked(tab: Tab):
    marked = tab.texts("#rows .row.critical .path")
    assert marked[:2] == ["draft", "polish"]
    assert "investigate" not in marked
    assert tab.texts("#rows .row.critical .mark")[0] == "◆"


# --- hostile text

EVIL = '"><img src=x onerror="window.owned=1"><script>window.owned=1</script></template></script><!--\u202e'


def hostile_run() -> list[Event]:
    graph = {
        "nodes": [
            [EVIL, "agent"],
            ["end", EVIL],
            ["m", "map", {"nodes": [[EVIL, "agent"]], "edges": []}],
            ["日本語", "agent"],
        ],
        "edges": [[EVIL, "end", [EVIL]]],
        "state": {EVIL: ["replace", EVIL]},
    }
    body = f"m[0].{EVIL}"
    return [
        RunStarted("r", EVIL, START, {EVIL: EVIL}, {}, {}, EVIL, EVIL, graph=graph),
        NodeStarted(EVIL, START),
        NodeRecorded(EVIL, START, model_call(EVIL, EVIL, EVIL, 1, None, 0.1)),
        NodeFinished(EVIL, START + 1, NodeResult(EVIL * 200, {EVIL: EVIL}, EVIL)),
        NodeStarted("m", START + 1),
        NodeStarted(body, START + 1),
        NodeFinished(body, START + 2, NodeResult("\ud800\x00")),
        RunFinished(START + 3, "succeeded", {EVIL: EVIL}),
    ]


def test_a_script_in_what_models_and_flows_say_does_not_run(browser: Browser, tmp_path: Path):
    path = tmp_path / "run.html"
    path.write_text(export_page(Reading(hostile_run())))
    with browser.tab() as tab:
        tab.goto(path.as_uri())
        for _ in range(6):
            tab.key("j")
            tab.evaluate("document.querySelectorAll('#panel details').forEach((each) => { each.open = true; })")
        for name in ("calls", "events", "state", "timeline"):
            tab.click(f"[data-tab={name}]")
        tab.click(NODE.format(0))
        assert "<script>window.owned=1</script>" in tab.inner_text("#panel")
        assert tab.evaluate("window.owned") is None
        assert tab.evaluate("document.querySelectorAll('img, iframe, object').length") == 0
        assert tab.evaluate("document.scripts.length") == 4  # The three blocks of data and ours.
        assert tab.trouble == []
        assert len({url.split("#")[0] for url in tab.requests}) == 1


# --- looks


@pytest.mark.parametrize("width", [1280, 390])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_nothing_is_cut_off_and_words_fit_their_boxes(browser: Browser, file: str, width: int, scheme: str):
    with browser.tab(width, 800, scheme) as tab:
        tab.goto(f"{file}#node=draft")
        assert tab.evaluate("document.documentElement.scrollWidth") == width
        outside = tab.evaluate(
            """[...document.querySelectorAll('#graph .node:not(.frame)')].flatMap((group) => {
              const box = group.querySelector('path').getBBox();
              return [...group.querySelectorAll('text')].filter((text) => text.getBBox().width > box.width - 4)
                .map((text) => text.textContent);
            })"""
        )
        assert outside == []
        for part in ("#view", "#panel", ".scrubber", "#rows"):
            area = tab.evaluate(
                f"(({{left, right}}) => [left, right])(document.querySelector('{part}').getBoundingClientRect())"
            )
            assert 0 <= area[0] < area[1] <= width, part


# --- live


@pytest.fixture
def served(browser: Browser) -> Generator[tuple[PageServer, Tab]]:
    """The sample run up to its loop, with more to come."""
    with page_server(research_run()[:9]) as server, browser.tab() as tab:
        tab.goto(f"{server.url}/runs/2f6c41d09b")
        yield server, tab
        assert tab.trouble == []
        assert all(url.startswith((server.url, "data:")) for url in tab.requests)


def test_events_repaint_the_page_as_they_come(served: tuple[PageServer, Tab]):
    server, tab = served
    assert "s-succeeded" in class_of(tab, 0)
    assert "s-pending" in class_of(tab, 1)
    tab.wait("document.querySelectorAll('#rows .row').length > 3")
    events = research_run()
    server.tell(events[9])
    tab.wait("document.querySelector(\"[data-node='1']\").classList.contains('s-running')")
    assert tab.texts("#status") == ["▶ running"]
    server.tell(*events[10:])
    tab.wait("document.querySelector('#status').textContent.includes('waiting')")
    assert tab.texts("#run-calls") == ["12"]
    assert tab.texts("#moment") == ["62 of 62 · end"]


def test_what_an_agent_writes_is_shown_while_it_writes(served: tuple[PageServer, Tab]):
    server, tab = served
    tab.click(NODE.format(1) + " > .name")
    tab.wait(PANEL.format("polish"))
    server.tell(TokenStreamed("polish", START, "Hel", True), TokenStreamed("polish", START, "lo <b>"))
    tab.wait("document.getElementById('writing')?.textContent === 'Hello <b>'")
    server.tell(TokenStreamed("polish", START, "Anew", True))
    tab.wait("document.getElementById('writing')?.textContent === 'Anew'")
    server.tell(NodeFinished("polish", START + 3, NodeResult("Anew.")))
    tab.wait("document.querySelector('#panel')?.textContent.includes('Anew.')")
    assert tab.query_selector("#writing") is None


def test_whoever_looks_at_an_earlier_moment_stays_there(served: tuple[PageServer, Tab]):
    server, tab = served
    tab.click("[data-step=first]")
    server.tell(*research_run()[9:])
    tab.wait("document.getElementById('scrub').max === '62'")
    assert tab.texts("#status") == ["▶ running"]
    assert tab.texts("#moment")[0].startswith("0 of 62")
    tab.click("[data-step=last]")
    assert tab.texts("#status") == ["‖ waiting"]


def test_an_approval_is_answered_in_the_page(served: tuple[PageServer, Tab]):
    server, tab = served
    server.tell(*research_run()[9:])
    tab.wait("document.querySelector('#status').textContent.includes('waiting')")
    find(tab, "ask")
    tab.wait("document.querySelector('#panel form')")
    tab.select_option("[name='form.channel']", "mail")
    tab.check("[name='form.urgent']")
    tab.fill("[name=comment]", "fine by me")
    tab.click("#panel button:text('yes')")
    tab.wait("document.readyState === 'complete'")
    deadline = time.monotonic() + 30
    while not server.posted and time.monotonic() < deadline:
        time.sleep(0.01)
    path, fields = server.posted[0]
    assert path == "/runs/2f6c41d09b/approve/ask"
    assert fields == {
        "token": ["secret-token"], "choice": ["yes"], "comment": ["fine by me"], "form.channel": ["mail"],
        "form.copies": ["1"], "form.urgent": ["true"], "form.remark": [""],
    }  # fmt: skip


@pytest.mark.long
def test_two_thousand_events_are_applied_within_five_seconds(browser: Browser):
    events = layered_run(1000)
    with page_server(events[:1002]) as server, browser.tab() as tab:
        tab.goto(f"{server.url}/runs/run1000")
        for begin in range(1002, len(events), 50):
            server.tell(*events[begin : begin + 50])
        with done_within(5):
            tab.wait("document.querySelector('#status').textContent.includes('succeeded')", 60)
            tab.wait("document.querySelector(\"[data-node='999']\").classList.contains('s-succeeded')", 60)
        assert tab.texts("#moment") == ["3001 of 3001 · end"]
        assert tab.trouble == []


def test_a_run_of_a_thousand_nodes_can_be_used_within_two_seconds(browser: Browser):
    """The server's own tests do this with ten thousand."""
    with page_server(layered_run(1000)) as server, browser.tab() as tab:
        with done_within(2):
            tab.goto(f"{server.url}/runs/run1000")
            tab.click("#rows .row:has-text('n3')")
        tab.wait("document.querySelector('#panel h2')")
        tab.key("j")
        tab.key("k")
        tab.click("[data-zoom=fit]")
        tab.click("[data-step=back]")
        assert tab.trouble == []


def test_a_timeline_narrows_a_pause_of_days_to_a_mark(browser: Browser, tmp_path: Path):
    """Two days between a pause and its end would leave nothing to be seen of the seconds before and after."""
    graph = {"nodes": [["a", "agent"], ["b", "agent"]], "edges": []}
    later = START + 2 * 86_400
    events: list[Event] = [
        RunStarted("r", "f", START, {}, {}, {}, graph=graph),
        NodeStarted("a", START),
        NodeFinished("a", START + 2, NodeResult()),
        RunFinished(START + 2, "paused"),
        RunResumed(later),
        NodeStarted("b", later),
        NodeFinished("b", later + 2, NodeResult()),
        RunFinished(later + 2, "succeeded"),
    ]
    path = tmp_path / "run.html"
    path.write_text(export_page(Reading(events)))
    with browser.tab() as tab:
        tab.goto(path.as_uri())
        widths = tab.evaluate("[...document.querySelectorAll('#rows .bar')].map((bar) => parseFloat(bar.style.width))")
        assert widths == pytest.approx([100 / 2.1, 100 / 2.1], rel=1e-3), "the mark takes a twentieth of the work"
