"""Rows of the viewer: how soon pages can be used, how soon live events are seen, and what it takes.

Wall clock, in a real browser, with server, browser and writer on the same cores. A process of its own serves, so that
its memory is its own.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import anyio
import httpx

from flowengine import Context, Flow, FunctionNode
from flowengine.engine.events import Event, RunFinished, RunStarted
from flowengine.journal.sqlite.store import SQLiteJournal, SQLiteStore
from flowengine.journal.stores import TeeStore
from flowengine.runtime.local.local import start
from tests.bench.measure import Row, ratio
from tests.support.browser import Browser, Tab, open_browser
from tests.support.sample_run import layered_run, mapped_run, nested_run

__all__ = ["ROWS"]

ROOT = Path(__file__).parents[2]
TOKEN = "the-token-of-the-bench"


@contextmanager
def ui(store: Path) -> Generator[tuple[subprocess.Popen[str], str]]:
    """`flowengine ui` over a store, and its address."""
    options = ["--port", "0", "--token", TOKEN, "--no-open", "--store", str(store)]
    command = [sys.executable, "-m", "flowengine", "ui", str(ROOT / "flows"), *options]
    streams = {"stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
    with subprocess.Popen(command, cwd=ROOT, text=True, **streams) as process:
        try:
            assert process.stdout is not None
            yield process, process.stdout.readline().partition("/?")[0]
        finally:
            process.terminate()


class Stage(NamedTuple):
    """A browser, and the server of a store in which a run begins."""

    browser: Browser
    journal: SQLiteJournal
    address: str
    server: subprocess.Popen[str]

    @property
    def memory(self) -> float:
        """The most that the server has had in memory, in MB."""
        status = Path(f"/proc/{self.server.pid}/status").read_text().splitlines()
        return next(int(line.split()[1]) for line in status if line.startswith("VmHWM")) / 1024


@contextmanager
def stage(events: Sequence[Event], run_id: str) -> Generator[Stage]:
    with tempfile.TemporaryDirectory() as folder, open_browser() as browser:
        store = SQLiteStore(Path(folder, "runs.db"), "process")
        journal = store.create(run_id)
        write(journal, events)
        with ui(store.path) as (process, address):
            yield Stage(browser, journal, address, process)
        anyio.run(journal.close)
        store.close()


def write(journal: SQLiteJournal, events: Sequence[Event]) -> None:
    for event in events:
        journal.append(event)
    journal.commit()


def usable(tab: Tab, address: str, run_id: str) -> float:
    """Seconds until a row of the list has opened its panel and the graph is there."""
    begun = time.perf_counter()
    tab.goto(f"{address}/runs/{run_id}?token={TOKEN}")
    tab.click("#rows .row >> nth=3")
    tab.wait("document.querySelector('#panel h2') && document.querySelector('#graph .node')", 60)
    return time.perf_counter() - begun


def page(name: str, events: Sequence[Event], run_id: str, most: float) -> Row:
    times: list[float] = []
    with stage(events, run_id) as found:
        for _ in range(3):
            with found.browser.tab() as tab:
                times.append(usable(tab, found.address, run_id))
                assert tab.trouble == [], tab.trouble
        memory = found.memory
    assert memory < 300, f"the server has {memory:.0f} MB"
    return Row(f"viewer: {name}, page usable", sorted(times)[1], most, "s", (min(times), max(times)))


def viewer_page_1000() -> Row:
    return page("1,000 nodes", layered_run(1000), "run1000", 2.0)


def viewer_page_2000() -> Row:
    return page("2,000 nodes", layered_run(2000, 40), "run2000", 2.0)


FRAMES = """new Promise((done) => {
  const view = document.getElementById('view');
  const { left, top } = view.getBoundingClientRect();
  let [frames, begun] = [0, null];
  const send = (kind, x, y, more) => {
    const what = { clientX: left + x, clientY: top + y, pointerId: 1, bubbles: true, ...more };
    view.dispatchEvent(new (kind === 'wheel' ? WheelEvent : PointerEvent)(kind, what));
  };
  view.setPointerCapture = () => {};
  send('pointerdown', 300, 200);
  const step = (now) => {
    begun ??= now;
    frames += 1;
    if (now - begun > 2000) { send('pointerup', 300, 200); done((frames - 1) / ((now - begun) / 1000)); return; }
    if (frames % 2) send('pointermove', 300 + 60 * Math.sin(frames / 9), 200 + 60 * Math.cos(frames / 9));
    else send('wheel', 300, 200, { deltaY: 40 * Math.sin(frames / 15) });
    requestAnimationFrame(step);
  };
  requestAnimationFrame(() => requestAnimationFrame(step));
})"""


def viewer_motion() -> Row:
    """Frames a second while a graph of 2,000 nodes is dragged and zoomed, with all of it in sight and near."""
    rates: list[float] = []
    with stage(layered_run(2000, 40), "run2000") as found, found.browser.tab() as tab:
        usable(tab, found.address, "run2000")
        for how in ("fit", *["in"] * 9):
            tab.click(f"[data-zoom={how}]")
            if how == "fit":
                rates.append(tab.evaluate(FRAMES))
        rates.append(tab.evaluate(FRAMES))
        assert tab.trouble == [], tab.trouble
    return Row("viewer: a frame of 2,000 nodes in motion", 1000 / min(rates), 1000 / 30, "ms")


FOLDED = """[...document.querySelectorAll('#graph [data-node]')].filter((each) => each.ariaExpanded === 'false'
  && /^part\\d+ /.test(each.querySelector('title').textContent))"""


def unfold(tab: Tab) -> float:
    """Seconds from a key until the first container that is folded shows its 600 nodes."""
    tab.click("[data-zoom=fit]")
    number = tab.evaluate(f"(() => {{ const [box] = {FOLDED}; box.focus(); return box.dataset.node; }})()")
    begun = time.perf_counter()
    tab.key("o")
    tab.wait(f"document.querySelector('[data-node=\"{number}\"]').ariaExpanded === 'true'")
    tab.evaluate("new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")
    return time.perf_counter() - begun


def viewer_unfolded_motion() -> Row:
    """Frames of a graph of 2,400 nodes in four containers, of which three are unfolded."""
    with stage(nested_run(4, 600), "nested") as found, found.browser.tab() as tab:
        usable(tab, found.address, "nested")  # A node of the first one is chosen by that.
        for _ in range(2):
            unfold(tab)
        assert int(tab.evaluate("document.querySelectorAll('#graph [data-node]').length")) > 1_800
        tab.click("[data-zoom=fit]")
        rates = [tab.evaluate(FRAMES)]
        for _ in range(9):
            tab.click("[data-zoom=in]")
        rates.append(tab.evaluate(FRAMES))
        assert tab.trouble == []
    return Row("viewer: a frame in motion, containers unfolded", 1000 / min(rates), 1000 / 30, "ms")


def viewer_unfolding() -> Row:
    with stage(nested_run(4, 600), "nested") as found, found.browser.tab() as tab:
        usable(tab, found.address, "nested")
        times = [unfold(tab) for _ in range(2)]
    return Row("viewer: 600 nodes unfolded", max(times), 1.0, "s", (min(times), max(times)))


def viewer_page_10000() -> Row:
    return page("10,000 nodes", layered_run(10_000, 100), "run10000", 5.0)


def viewer_page_items() -> Row:
    return page("map of 10,000", mapped_run(10_000), "mapped", 5.0)


def viewer_memory() -> Row:
    """Of the server, with the page, a panel and a live follower of 10,000 nodes."""
    events = layered_run(10_000, 100)
    with stage(events[:-1], "run10000") as found, found.browser.tab() as tab:
        usable(tab, found.address, "run10000")
        write(found.journal, events[-1:])
        tab.wait("document.querySelector('#status').textContent.includes('succeeded')", 60)
        return Row("viewer: 10,000 nodes, memory of the server", found.memory, 300.0, "MB")


def viewer_live() -> Row:
    """From the first of 2,000 events, which are written within half a second, until the page shows the run's end."""
    events = layered_run(1000)
    times: list[float] = []
    for _ in range(3):
        with stage(events[:1002], "run1000") as found, found.browser.tab() as tab:
            usable(tab, found.address, "run1000")
            begun = time.perf_counter()
            for begin in range(1002, len(events), 50):
                write(found.journal, events[begin : begin + 50])
                time.sleep(0.01)
            tab.wait("document.querySelector('#status').textContent.includes('succeeded')", 60)
            tab.wait("document.querySelector(\"[data-node='999']\").classList.contains('s-succeeded')", 60)
            times.append(time.perf_counter() - begun)
            assert tab.trouble == [], tab.trouble
    return Row("viewer: 2,000 live events applied", sorted(times)[1], 5.0, "s", (min(times), max(times)))


def viewer_list_100000() -> Row:
    """The first page of a store of 100,000 runs, as the server sends it."""
    with tempfile.TemporaryDirectory() as folder:
        store = SQLiteStore(Path(folder, "runs.db"), "memory")
        for number in range(100_000):
            at = 1.7e9 + number
            end = RunFinished(at + 1, "failed" if number % 50 == 0 else "succeeded", {"answer": f"parcel {number}"})
            journal = store.create(f"run{number:06}")
            journal.append(RunStarted(f"run{number:06}", f"flow{number % 7}", at, {"question": "where?"}, {}, {}))
            journal.append(end)
            journal.flush()
        store.close()
        times: list[float] = []
        with ui(store.path) as (_, address), httpx.Client(headers={"Authorization": f"Bearer {TOKEN}"}) as client:
            for _ in range(6):
                begun = time.perf_counter()
                page = client.get(f"{address}/", timeout=60).text
                times.append(time.perf_counter() - begun)
                assert "100,000 runs" in page
    times = times[1:]  # The first one reads the templates, too.
    return Row("viewer: first page of 100,000 runs", sorted(times)[2], 0.3, "s", (min(times), max(times)))


async def viewer_listener() -> Row:
    """A run whose events a listener in the same process hears, as the server's do, against the same run without one."""
    plan = chain_of(1000).plan
    with tempfile.TemporaryDirectory() as folder:
        store = SQLiteStore(Path(folder, "runs.db"), "process")
        heard: list[Event] = []

        async def watched() -> None:
            heard.clear()
            assert (await start(plan, {}, TeeStore(store, heard.append))).status == "succeeded"

        async def alone() -> None:
            assert (await start(plan, {}, store)).status == "succeeded"

        row = await ratio("chain of 1,000 on disk with a listener", 1.1, watched, alone, rounds=9)
        store.close()
    return row


def chain_of(count: int) -> Flow:
    async def add(context: Context) -> int:
        return 1

    nodes = {f"n{number}": FunctionNode(add, needs=[f"n{number - 1}"] if number else []) for number in range(count)}
    return Flow("chain", nodes)


ROWS = (
    viewer_page_1000,
    viewer_page_2000,
    viewer_motion,
    viewer_unfolded_motion,
    viewer_unfolding,
    viewer_page_10000,
    viewer_page_items,
    viewer_memory,
    viewer_live,
    viewer_list_100000,
    viewer_listener,
)
