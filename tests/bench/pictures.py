"""Rows of pictures and pages: what drawing a large graph takes, and what a page of a large run takes of its server."""

from __future__ import annotations

import statistics
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from time import perf_counter, process_time

from flowengine.core.context import NodeResult
from flowengine.engine.events import NodeFinished
from flowengine.engine.graph import Edge, Graph, Vertex
from tests.bench.measure import Row
from tests.support.sample_run import layered_run, mapped_run
from visualize.draw import render
from visualize.picture import Picture, picture_of_flow
from visualize.run_times import times_of
from visualize.viewer.comparison import compare_page
from visualize.viewer.reading import Reading
from visualize.viewer.run import export_page, run_page
from visualize.word_diff import diff_words

__all__ = ["ROWS"]

ROOT = Path(__file__).parents[2]
ROUNDS = 3


def large(count: int, width: int = 10) -> Picture:
    """A flow of many nodes, each of which waits for three of the row above."""
    edges = [
        Edge(f"n{(row - 1) * width + (at + step) % width}", f"n{row * width + at}")
        for row in range(1, count // width)
        for at in range(width)
        for step in range(3)
    ]
    return picture_of_flow("large", Graph([Vertex(f"n{number}", "agent") for number in range(count)], edges))


def measured(name: str, target: float, work: Callable[[], object], clock: Callable[[], float]) -> Row:
    times: list[float] = []
    for _ in range(ROUNDS):
        begun = clock()
        work()
        times.append(clock() - begun)
    return Row(name, statistics.median(times), target, "s", (min(times), max(times)))


def graph_through_dot() -> Row:
    picture = large(1000)
    drawn = b""

    def draw() -> None:
        nonlocal drawn
        drawn = render(picture, "png")

    row = measured("graph of 1,000 nodes, PNG by dot, wall", 3.0, draw, perf_counter)
    assert drawn.startswith(b"\x89PNG"), "dot did not draw it"
    return row


def graph_layered() -> Row:
    picture = large(10_000, 100)
    return measured("graph of 10,000 nodes, layered", 2.0, lambda: render(picture, "svg"), process_time)


def page_of_1000() -> Row:
    events = layered_run(1000)
    return measured("page of a run, 1,000 nodes", 1.0, lambda: run_page(Reading(events)), process_time)


def page_of_10000() -> Row:
    events = layered_run(10_000, 100)
    return measured("page of a run, 10,000 nodes", 3.0, lambda: run_page(Reading(events)), process_time)


def export_of_1000() -> Row:
    events = layered_run(1000)
    return measured("export of a run, 1,000 nodes", 2.0, lambda: export_page(Reading(events)), process_time)


def time_of_10000() -> Row:
    """Where the time of a run with a map of 10,000 items went, as a page asks for it after it was opened."""
    events = mapped_run(10_000)
    return measured("time of a map of 10,000, divided", 3.0, lambda: times_of(events).to_plain(), process_time)


def comparison_of_1000() -> Row:
    """The page of two runs of 1,000 nodes that differ in one of them."""
    events = layered_run(1000)
    other = [
        event._replace(result=NodeResult("another output"))
        if isinstance(event, NodeFinished) and event.node == "n500"
        else event
        for event in events
    ]
    runs = Reading(events), Reading(other)
    return measured("page of two runs, 1,000 nodes", 2.0, lambda: compare_page(*runs), process_time)


def words_of_a_megabyte() -> Row:
    """Two texts of a megabyte each, in which every second line has another word."""
    lines = [f"line {number} says that tea is hot and the kettle sings" for number in range(20_000)]
    other = [line.replace("hot", "cold") if number % 2 else line for number, line in enumerate(lines)]
    texts = "\n".join(lines), "\n".join(other)
    return measured("words of two texts of 1 MB told apart", 2.0, lambda: diff_words(*texts), process_time)


def page_memory() -> Row:
    code = (
        "from tests.support.sample_run import layered_run\n"
        "from visualize.viewer.reading import Reading\n"
        "from visualize.viewer.run import run_page\n"
        "run_page(Reading(layered_run(10_000, 100)))\n"
        "print([line.split()[1] for line in open('/proc/self/status') if line.startswith('VmHWM')][0])"
    )
    finished = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    return Row("page of a run, 10,000 nodes, resident memory", float(finished.stdout) / 1024, 300, "MB")


ROWS = (
    *(graph_through_dot, graph_layered, page_of_1000, page_of_10000, export_of_1000),
    *(time_of_10000, comparison_of_1000, words_of_a_megabyte, page_memory),
)
