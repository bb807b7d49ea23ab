"""The timeline in a real browser: attempts, waits and breaks as a person sees them, exported and live."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from flowengine.core.context import NodeResult
from flowengine.core.records import Answered, ApprovalRequested, MapBegan, Retry
from flowengine.engine.events import Event, NodeFinished, NodeRecorded, NodeStarted, RunFinished, RunResumed, RunStarted
from tests.support.browser import Browser
from tests.support.page_server import page_server
from tests.support.sample_run import START, model_call
from visualize.viewer.reading import Reading
from visualize.viewer.run import export_page

DAY = 86_400.0
GRAPH = {
    "nodes": [
        ["draft", "agent"], ["check", "function"],
        ["each", "map", {"nodes": [["page", "function"]], "edges": []}],
        ["ask", "approval"], ["publish", "function"],
    ],
    "edges": [
        ["draft", "check", []], ["draft", "each", []], ["check", "ask", []], ["each", "ask", []],
        ["ask", "publish", ["yes"]],
    ],
}  # fmt: skip


def timed_run() -> list[Event]:
    """A call behind a 429, a node at its third attempt, a map with two places, two days at a person's, a crash."""
    timeline = [
        {"what": "loading", "ago": 4.4, "seconds": 0.9},
        {"what": "queued", "ago": 3.5, "seconds": 0.6},
        {"what": "attempt", "ago": 2.9, "seconds": 0.4, "error": "429 Too Many Requests"},
        {"what": "rate_limit", "ago": 2.5, "seconds": 1.1, "error": "429 Too Many Requests"},
    ]
    call = model_call("generation", "Write", "Text", 320, 0.0021, 1.4)._replace(timeline=timeline)

    def start(node: str, at: float) -> Event:
        return NodeStarted(node, START + at)

    def done(node: str, at: float, route: str | None = None) -> Event:
        return NodeFinished(node, START + at, NodeResult("ok", route=route))

    def note(node: str, at: float, record: Any) -> Event:
        return NodeRecorded(node, START + at, record)

    return [
        RunStarted("timed", "release", START, {}, {}, {}, graph=GRAPH),
        start("draft", 0.0), note("draft", 4.6, call), done("draft", 4.7),
        start("check", 4.7), start("each", 4.7), note("each", 4.7, MapBegan(3)),
        start("each[0].page", 4.7), start("each[1].page", 4.7),
        note("check", 5.4, Retry(1, "ValueError: no JSON", 0.5)),
        done("each[0].page", 5.5), start("each[2].page", 5.5), done("each[1].page", 6.0),
        note("check", 6.4, Retry(2, "ValueError: no JSON", 1.0)),
        done("each[2].page", 7.2), done("each", 7.2), done("check", 8.0),
        start("ask", 8.0),
        note("ask", 8.0, ApprovalRequested("Ship it?", ["yes", "no"])),
        RunFinished(START + 8.1, "waiting"),
        note("ask", 2 * DAY, Answered("yes", by="ada")), RunResumed(START + 2 * DAY + 4),
        start("ask", 2 * DAY + 4), done("ask", 2 * DAY + 4.1, "yes"), start("publish", 2 * DAY + 4.1),
        RunResumed(START + 2 * DAY + 65), start("publish", 2 * DAY + 65), done("publish", 2 * DAY + 67),
        RunFinished(START + 2 * DAY + 67, "succeeded", {"text": "done"}),
    ]  # fmt: skip


BARS = """(path) => [...document.querySelectorAll('#rows .row')]
  .filter((row) => row.querySelector('.name')?.title === path)
  .flatMap((row) => [...row.querySelectorAll('.bar')].map((bar) => [
    [...bar.classList].find((name) => name.startsWith('s-') || name.startsWith('p-')) ?? 'call',
    bar.title, Math.round(bar.getBoundingClientRect().width),
  ]))"""


def test_a_timeline_tells_work_from_waits_attempts_and_breaks(browser: Browser, tmp_path: Path):
    path = tmp_path / "run.html"
    path.write_text(export_page(Reading(timed_run())))
    with browser.tab(1400, 1000) as tab:
        tab.goto(f"{path.as_uri()}#node=check")
        tab.wait("document.querySelector('#panel .time-parts')")
        assert tab.texts("#panel .time-parts") == ["Timeretried 2.7 s, worked 600 ms"]
        told = tab.texts("#parts .part-of")
        assert [each.split()[0] for each in told] == ["worked", "loading", "retried", "queued", "waited", "stopped"]
        assert "waited 2 d 0 h" in told

        check = tab.evaluate(BARS, "check")
        assert [name for name, _, _ in check] == ["s-failed", "s-failed", "p-retried", "s-succeeded", "p-retried"]
        assert check[0][1] == "failed, 700 ms, attempt 1: ValueError: no JSON"
        assert check[2][1] == "retried 500 ms: backoff 500 ms"
        names = [name for name, _, _ in tab.evaluate(BARS, "draft")]
        assert names == ["s-succeeded", "p-loading", "p-queued", "p-retried", "p-retried", "call"]
        assert [name for name, _, _ in tab.evaluate(BARS, "each[2].page")] == ["s-queued", "p-queued", "s-succeeded"]
        assert tab.evaluate(BARS, "publish")[0][0] == "s-interrupted"

        (asked,) = [each for each in tab.evaluate(BARS, "ask") if each[0] == "p-waited"]
        seconds = next(each for each in tab.evaluate(BARS, "draft") if each[0] == "s-succeeded")[2]
        assert 0 < asked[2] < seconds, "two days are narrower than what was worked"
        assert tab.texts(".ruler .break.told") == ["≈ 2 d 0 h"]
        assert any(each.startswith("2 d") for each in tab.texts(".ruler .tick")), "behind it, the clock goes on"

        tab.evaluate("location.hash = '#node=draft'")
        tab.wait("document.querySelector('#panel .waits')")
        assert tab.texts("#panel .waits li")[1:] == [
            "waited 600 ms for its turn among the vendor's limits",
            "an attempt failed after 400 ms: 429 Too Many Requests",
            "waited 1.1 s after too many requests: 429 Too Many Requests",
        ]
        tab.click("[data-tab=calls]")
        waits = tab.eval_on_selector_all("#rows .row .bar.span", "all => all.map(each => each.title)")
        assert waits[-1] == "retried 1.1 s: 429: 429 Too Many Requests"
        tab.click("[data-tab=timeline]")
        tab.evaluate("location.hash = '#node=check&at=10'")
        tab.wait("document.querySelectorAll('#rows .row').length > 0 && document.body.classList.contains('past')")
        assert [name for name, _, _ in tab.evaluate(BARS, "check")] == ["s-failed", "s-running", "p-retried"]
        assert tab.texts(".ruler .break") == [], "at that moment nobody had waited yet"
        assert tab.trouble == []


def test_how_long_a_row_took_is_not_written_over_its_wait(browser: Browser, tmp_path: Path):
    begun = timed_run()[:1]
    ok = NodeResult("ok")
    for number, (at, end) in enumerate([(0, 8), (8, 10)]):
        begun += [
            NodeStarted(f"each[{number}].page", START + at),
            NodeFinished(f"each[{number}].page", START + end, ok),
        ]
    begun[1:1] = [NodeStarted("each", START), NodeRecorded("each", START, MapBegan(2))]
    path = tmp_path / "run.html"
    path.write_text(
        export_page(Reading([*begun, NodeFinished("each", START + 10, ok), RunFinished(START + 10, "succeeded")]))
    )
    with browser.tab() as tab:
        tab.goto(path.as_uri())
        tab.wait("document.querySelectorAll('#rows .row .took').length > 2")
        row = "document.querySelector('#rows .name[title=\"each[1].page\"]').parentElement"
        assert tab.evaluate(f"{row}.querySelector('.p-queued') !== null")
        assert tab.evaluate(f"{row}.querySelector('.took.inside') !== null"), (
            "words on a bar have a ground of their own"
        )


def test_a_page_of_a_server_asks_where_the_time_went_again_when_more_is_known(browser: Browser):
    events = timed_run()
    with page_server(events[:9]) as pages, browser.tab() as tab:
        tab.goto(f"{pages.url}/runs/timed")
        tab.wait("document.querySelectorAll('#parts .part-of').length > 0")
        assert "queued" in " ".join(tab.texts("#parts .part-of"))
        pages.tell(*events[9:20])
        tab.wait("[...document.querySelectorAll('#rows .bar.s-failed')].length === 2")
        assert tab.trouble == []
