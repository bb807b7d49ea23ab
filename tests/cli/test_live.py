"""The tree that a terminal is shown while a run goes on, in any width, and the line that a pipe gets."""

from __future__ import annotations

import io
from collections.abc import Sequence

import pytest
from rich.console import Console

from flowengine import Context, Flow, FunctionNode
from flowengine.cli import watch
from flowengine.cli.live import draw, draw_bar, format_progress_line
from flowengine.cli.terminal import Results
from flowengine.cli.watch import Reporting, watching
from flowengine.core.context import NodeResult
from flowengine.core.records import MapBegan, ModelCall
from flowengine.engine.events import ErrorInfo, Event, NodeFailed, NodeFinished, NodeRecorded, NodeStarted, RunStarted
from visualize.progress import Progress, folded

BODY = {"nodes": [["write", "agent"], ["check", "function"]], "edges": [["write", "check", []]]}
GRAPH = {"nodes": [["load", "function"], ["each", "map", BODY], ["end", "function"]], "edges": []}


def mapped(done: int, failed: Sequence[int] = (), total: int = 50) -> list[Event]:
    """A map of which so many items are done, and the next two go on."""
    events: list[Event] = [
        RunStarted("2f6c41d09b", "report", 1.0, {}, {}, {}, graph=GRAPH), NodeStarted("load", 1.0),
        NodeFinished("load", 1.5, NodeResult(1)), NodeStarted("each", 2.0), NodeRecorded("each", 2.0, MapBegan(total)),
    ]  # fmt: skip
    for number in range(done):
        path = f"each[{number}]"
        events.append(NodeStarted(f"{path}.write", 2.0))
        if number in failed:
            events.append(NodeFailed(f"{path}.write", 2.5, ErrorInfo("ValueError", "no\x1b[31m such page")))
            continue
        events += [NodeFinished(f"{path}.write", 2.5, NodeResult(1)), NodeStarted(f"{path}.check", 2.5)]
        events.append(NodeFinished(f"{path}.check", 2.6, NodeResult(1)))
    call = ModelCall("m", "p", "generation", [], "", (), 900, 100, cost_usd=0.25)
    for number in (done, done + 1):
        events += [NodeStarted(f"each[{number}].write", 3.0), NodeRecorded(f"each[{number}].write", 3.0, call)]
    return events


def drawn(progress: Progress, rows: int = 20, width: int = 100) -> list[str]:
    console = Console(file=io.StringIO(), width=width, color_system=None)
    console.print(draw(progress, 10.0, rows, width))
    assert isinstance(console.file, io.StringIO)
    return [line.rstrip() for line in console.file.getvalue().splitlines()]


def test_a_map_is_folded_to_its_counts_and_shows_what_goes_on_inside() -> None:
    lines = drawn(folded(mapped(31, failed=[7])))
    assert lines[1].startswith("├─ ✓ load")
    assert lines[2].startswith("├─ ● each 31/50 ███▋ ✗ 1")
    assert [line.split()[2:4] for line in lines[3:5]] == [["●", "[31].write"], ["●", "[32].write"]]
    assert lines[5].startswith("│  └─ ✗ [7].write")
    assert "no\\x1b[31m such page" in lines[5]
    assert lines[6].startswith("└─ · end")
    assert len(lines) == 7


def test_a_map_that_has_ended_is_one_line() -> None:
    lines = drawn(folded([*mapped(48), NodeFinished("each", 9.0, NodeResult([]))]))
    assert [line.split()[2] for line in lines[1:]] == ["load", "each", "end"]


@pytest.mark.parametrize("width", [40, 45, 60, 70, 80])
def test_the_tree_fits_narrow_terminals_and_few_rows(width: int) -> None:
    lines = drawn(folded(mapped(31, failed=range(20))), rows=5, width=width)
    assert max(map(len, lines)) <= width
    assert len(lines) == 6
    assert any("each" in line and "31/50" in line for line in lines), lines
    assert any("1,000 tokens" in line for line in lines) == (width >= 70)


def test_a_line_tells_how_far_a_run_is() -> None:
    line = format_progress_line(folded(mapped(31, failed=[7])), 11.0)
    assert line == "10.0 s: 1 of 3 nodes · each 31/50 ███▋ ✗ 1 · 2,000 tokens · $0.5000"
    assert draw_bar(1, 0) == "██████"


def test_a_pipe_is_told_from_time_to_time(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(watch, "_FIRST_LINE", -1.0)
    with watching(Progress(), Reporting(), Results()) as hear:
        for event in mapped(3):
            hear(event)
    (line,) = capsys.readouterr().err.splitlines()  # The second one is due 15 s later.
    assert "0 of 3 nodes" in line
    with watching(Progress(), Reporting(quiet=True), Results()) as hear:
        hear(mapped(3)[0])
    assert capsys.readouterr().err == ""


async def test_the_authors_own_frame_comes_first_in_a_traceback() -> None:
    import json

    def broken(context: Context) -> object:
        return json.loads("{")

    run = await Flow("f", {"one": FunctionNode(broken)}).run()
    (failed,) = [event for event in run.events if isinstance(event, NodeFailed)]
    first, second, *rest = failed.error.detail.splitlines()
    assert ("test_live.py" in first, "in broken" in first) == (True, True)
    assert second.strip() == 'return json.loads("{")'
    assert "Traceback (most recent call last):" in rest
