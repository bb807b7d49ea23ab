"""The tree that a terminal is shown while a run goes on, in any width, and the line that a pipe gets."""

from __future__ import annotations

import io
from collections.abc import Sequence

import pytest
from rich.cells import cell_len
from rich.console import Console

from flowengine import Context, Flow, FunctionNode
from flowengine.cli import execute, watch
from flowengine.cli.execute import ProgressWatch
from flowengine.cli.live import cut_to_end, draw, draw_bar, format_progress_line
from flowengine.cli.options import Reporting
from flowengine.cli.run_outlook import RunOutlook
from flowengine.cli.terminal import Results
from flowengine.cli.watch import follow
from flowengine.core.context import NodeResult
from flowengine.core.records import ApprovalRequested, MapBegan, ModelCall
from flowengine.engine.events import (
    ErrorInfo,
    Event,
    NodeFailed,
    NodeFinished,
    NodeRecorded,
    NodeStarted,
    RunFinished,
    RunResumed,
    RunStarted,
    TokenStreamed,
)
from flowengine.journal.live_texts import LiveTexts, write_live
from flowengine.journal.memory import MemoryStore
from visualize.progress import Progress, fold_events

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


def drawn(progress: Progress, rows: int = 20, width: int = 100, outlook: RunOutlook | None = None) -> list[str]:
    console = Console(file=io.StringIO(), width=width, color_system=None)
    console.print(draw(progress, 10.0, rows, width, outlook))
    assert isinstance(console.file, io.StringIO)
    return [line.rstrip() for line in console.file.getvalue().splitlines()]


def test_a_map_is_folded_to_its_counts_and_shows_what_goes_on_inside() -> None:
    lines = drawn(fold_events(mapped(31, failed=[7])))
    assert lines[1].startswith("├─ ✓ load")
    assert lines[2].startswith("├─ ● each 31/50 ███▋ ✗ 1")
    assert [line.split()[2:4] for line in lines[3:5]] == [["●", "[31].write"], ["●", "[32].write"]]
    assert lines[5].startswith("│  └─ ✗ [7].write")
    assert "no\\x1b[31m such page" in lines[5]
    assert lines[6].startswith("└─ · end")
    assert len(lines) == 7


def test_a_map_that_has_ended_is_one_line() -> None:
    lines = drawn(fold_events([*mapped(48), NodeFinished("each", 9.0, NodeResult([]))]))
    assert [line.split()[2] for line in lines[1:]] == ["load", "each", "end"]


@pytest.mark.parametrize("width", [40, 45, 60, 70, 80])
def test_the_tree_fits_narrow_terminals_and_few_rows(width: int) -> None:
    lines = drawn(fold_events(mapped(31, failed=range(20))), rows=5, width=width)
    assert max(map(len, lines)) <= width
    assert len(lines) == 6
    assert any("each" in line and "31/50" in line for line in lines), lines
    assert any("1,000 tokens" in line for line in lines) == (width >= 70)


def test_a_line_tells_how_far_a_run_is() -> None:
    line = format_progress_line(fold_events(mapped(31, failed=[7])), 11.0)
    assert line == "10.0 s: 1 of 3 nodes · each 31/50 ███▋ ✗ 1 · 2,000 tokens · $0.50"
    assert draw_bar(1, 0) == "██████"


def test_a_pipe_is_told_from_time_to_time(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(execute, "_FIRST_LINE", -1.0)
    hear = ProgressWatch(Reporting(), Results())
    for event in mapped(3):
        hear(event)
    (line,) = capsys.readouterr().err.splitlines()  # The second one is due 15 s later.
    assert "0 of 3 nodes" in line
    ProgressWatch(Reporting(quiet=True), Results())(mapped(3)[0])
    assert capsys.readouterr().err == ""


NASTY = (
    "a line before\n\x1b[2Jお茶を\u202eどうぞ \u2028 [bold]no\x07 markup[/bold] is it, they said, and what follows"
    " is\ud800 new\n \n"
)


def hearing(progress: Progress, *pieces: TokenStreamed) -> RunOutlook:
    outlook = RunOutlook(progress)
    for piece in pieces:
        outlook.hear(piece)
    return outlook


@pytest.mark.parametrize("width", [30, 40, 60, 100])
def test_what_agents_write_stands_below_them_and_moves_no_cursor(width: int) -> None:
    progress = fold_events(mapped(3))
    asked = [TokenStreamed(f"each[{number}].write", 6.0, "", True, "openai/gpt-4o-mini") for number in (3, 4)]
    outlook = hearing(progress, *asked, TokenStreamed("each[4].write", 7.0, NASTY, True))
    lines = drawn(progress, 20, width, outlook)
    assert max(map(cell_len, lines)) < width
    (at,) = [number for number, line in enumerate(lines) if "[4].wr" in line]
    assert lines[at + 1].endswith("is? new")
    assert not {"\x1b", "\x07", "\u202e", "\u2028", "\ud800"} & set("".join(lines))
    assert ("[bold]no\\x07 markup[/bold] is it, they said, and what follows is? new" in lines[at + 1]) == (width >= 100)
    if width >= 60:
        assert next(line for line in lines if "[3].write" in line).endswith("asked gpt-4o-mini 4 s ago")
    assert len(drawn(progress, 3, width, outlook)) <= 5


def test_what_is_on_record_is_not_being_written_any_more() -> None:
    progress = fold_events(mapped(0))
    asked, text = (
        TokenStreamed("each[0].write", 4.0, "", True, "gpt-4o"),
        TokenStreamed("each[0].write", 5.0, "Te", True),
    )
    outlook = hearing(progress, asked, text)
    call = NodeRecorded("each[0].write", 6.0, ModelCall("m", "p", "generation", [], "", (), 1, 1))
    outlook.apply(call)
    assert outlook.of("each[0].write") is None
    outlook.hear(text)  # What is shown elsewhere may come late.
    assert outlook.of("each[0].write") is None
    outlook.hear(asked._replace(at=6.5))
    outlook.apply(call)
    heard = outlook.of("each[0].write")
    assert heard is not None
    assert (heard.asked, heard.text) == (6.5, "")
    progress.apply(NodeFinished("each[0].write", 8.0, NodeResult(1)))
    assert outlook.of("each[0].write") is None


def test_the_end_of_a_text_is_kept_by_its_columns() -> None:
    assert [cut_to_end("お茶をどうぞ", width) for width in (12, 6, 2, 1, 0)] == ["お茶をどうぞ", "…うぞ", "…", "…", ""]


async def test_the_time_that_is_left_is_that_of_earlier_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("flowengine.cli.run_outlook._QUICK", -1.0)
    store = MemoryStore()
    graph = {"nodes": [["a", "function"], ["b", "function"]], "edges": [["a", "b", []]]}
    for run_id, status in (("one", "succeeded"), ("two", "succeeded"), ("bad", "failed")):
        journal = store.create(run_id)
        for event in (
            RunStarted(run_id, "f", 1.0, {}, {}, {}, graph=graph), NodeStarted("a", 1.0),
            NodeFinished("a", 5.0 if status == "succeeded" else 900.0, NodeResult(1)), NodeStarted("b", 5.0),
            NodeFinished("b", 75.0, NodeResult(1)), RunFinished(80.0, status),
        ):  # fmt: skip
            journal.append(event)
        await journal.close()
    progress = fold_events([RunStarted("now", "f", 9.0, {}, {}, {}, graph=graph), NodeStarted("a", 9.0)])
    outlook = RunOutlook(progress, store)
    outlook.describe_left(10.0)  # From now on they are read.
    outlook.close()
    assert outlook.describe_left(10.0) == "about 1 min 13 s left (by 2 runs)"
    assert "about 1 min 13 s left" in drawn(progress, 9, 60, outlook)[0]
    assert format_progress_line(progress, 10.0, outlook).endswith("a · about 1 min 13 s left (by 2 runs)")
    progress.apply(NodeFinished("a", 10.0, NodeResult(1)))
    progress.apply(NodeStarted("b", 10.0))
    assert outlook.describe_left(500.0) == "done any moment (by 2 runs)"
    progress.apply(RunFinished(501.0, "succeeded"))
    assert outlook.describe_left(502.0) == ""


async def test_a_run_that_waits_is_watched_on_a_terminal_and_its_time_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    store = MemoryStore()
    journal = store.create("r")
    texts = LiveTexts()
    texts.hear(TokenStreamed("ask", 1.0, "Draft", True))
    write_live(store, "r", texts.as_plain())
    asked = NodeRecorded("ask", 2.0, ApprovalRequested("Well?", ["yes", "no"], expires=100.0))
    started = RunStarted("r", "f", 1.0, {}, {}, {}, graph={"nodes": [["ask", "approval"]], "edges": []})
    for event in (started, NodeStarted("ask", 2.0), asked, RunFinished(3.0, "waiting")):
        journal.append(event)
    looks: list[float] = []
    progress = fold_events(store.events("r"))
    assert drawn(progress) == [
        "f  waiting  9.0 s  r",
        "└─ ? ask    8.0 s  asks, 1 min 30 s left: yes or no",
    ]

    def look(seconds: float) -> None:
        """Somebody answers while the run is looked at for the third time."""
        looks.append(seconds)
        if len(looks) == 3:
            journal.append(RunResumed(5.0))
            journal.append(RunFinished(6.0, "succeeded"))
        assert len(looks) < 9

    monkeypatch.setattr(watch, "sleep", look)
    ended = follow(store, "r", Reporting(), Results())
    assert (ended.status, len(looks)) == ("waiting", 1)
    monkeypatch.setattr(execute, "has_live_stderr", lambda: True)
    assert follow(store, "r", Reporting(), Results()).status == "succeeded"
    await journal.close()


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
