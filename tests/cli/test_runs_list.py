"""`flowengine runs list` with its filters, search and narrow layouts, and `flowengine runs note`."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from flowengine import Flow, FunctionNode, Runs
from flowengine.cli.terminal import fit_columns, format_table
from flowengine.core.records import ApprovalRequested, ModelCall
from flowengine.engine.events import NodeRecorded, NodeStarted, RunFinished, RunStarted
from flowengine.errors import InputError
from flowengine.journal.memory import MemoryStore
from flowengine.journal.run_lookup import RunQuery
from flowengine.journal.sqlite.store import SQLiteStore
from flowengine.runtime.run_listing import RunLister

Command = Callable[..., Any]


@pytest.fixture
def listed(flowengine: Command, folder: Path) -> Command:
    """The command, and a store with a few runs: one that asks, one that failed, one that goes on."""
    store = SQLiteStore(folder / ".flowengine" / "runs.db")
    call = ModelCall("gpt-4o", "openai", "generation", [], "", (), 900, 100, cost_usd=0.25)
    asked = NodeRecorded("ok", 3.0, ApprovalRequested("ok?", ["yes"], approvers=["ann"]))
    for run_id, at, question, ends in (
        (
            "r1",
            1e9,
            "Refund the order",
            [NodeRecorded("a", 2.0, call), RunFinished(1e9 + 2, "succeeded", {"a": "granted"})],
        ),
        ("r2", 1.1e9, "Where is my parcel", [RunFinished(1.1e9 + 1, "failed")]),
        ("r3", 1.2e9, "Pay 3 €", [asked, RunFinished(1.2e9, "waiting")]),
    ):
        journal = store.create(run_id)
        settings = {"labels": {"team": run_id}, "session": "bob" if run_id == "r2" else "ann"}
        for event in (
            RunStarted(run_id, "desk", at, {"q": question}, {}, {}, settings=settings),
            NodeStarted("a", at),
            *ends,
        ):
            journal.append(event)
        journal.flush()
    store.close()
    return flowengine


def ids(said: Any) -> list[str]:
    assert said.code == 0, said.err
    return [run["run_id"] for run in json.loads(said.out)]


def test_runs_are_found_by_words_time_status_label_and_number(listed: Command) -> None:
    for options, wanted in {
        (): ["r3", "r2", "r1"],
        ("--search", "refund gran"): ["r1"],
        ("--search", '"my parcel"'): ["r2"],
        ("--search", "nowhere"): [],
        ("--limit", "2"): ["r3", "r2"],
        ("--since", "2004-11-09"): ["r3", "r2"],
        ("--since", "1d"): [],
        ("--ended-since", "2004-11-09"): ["r3", "r2"],
        ("--ended-since", "today"): [],
        ("--since", "yesterday"): [],
        ("--until", "yesterday", "--since", "2004-11-09"): ["r3", "r2"],
        ("--status", "waiting"): ["r3"],
        ("--label", "team=r2", "--flow", "desk"): ["r2"],
        ("--session", " ann "): ["r3", "r1"],
        ("--session", "an"): [],
        ("--until", "2004-11-09"): ["r2", "r1"],
        ("--until", "2004-11-09", "--older-than", "1d"): ["r2", "r1"],
        ("--waits-for", "ann"): ["r3"],
        ("--waits-for", "eve"): [],
    }.items():
        assert ids(listed("runs", "list", "--json", *options)) == wanted, options
    for bad, said in {
        ("--since", "soon"): "write today, yesterday or 2026-03-01, or how long ago, as 12h or 7d",
        ("--since", "2026-13-01"): "no day",
        ("--until", "9999-12-31"): "is no day",
        ("--limit", "0"): "x>=1",
    }.items():
        refused = listed("runs", "list", *bad)
        assert (refused.code, said in refused.err) == (2, True), refused.err


def test_the_list_tells_cost_model_session_input_and_what_people_say(listed: Command) -> None:
    assert (
        listed(
            "runs", "note", "r1", "as it should be", "--mark", "Golden", "--score", "quality=0.5", "--by", "ann"
        ).code
        == 0
    )
    said = listed("runs", "list", "--search", "refund")
    head, row = said.out.splitlines()
    for name, cell in {
        "COST": "$0.25", "TOKENS": "1,000", "MODEL": "gpt-4o", "SESSION": "ann", "LABELS": "team=r1",
        "MARKS": "golden quality=0.5 1 notes", "INPUT": "input: q: Refund the order",
    }.items():  # fmt: skip
        assert row[head.index(name) :].startswith(cell), said.out
    assert ids(listed("runs", "list", "--mark", "golden", "--json")) == ["r1"]


def test_notes_are_printed_and_taken_back(listed: Command) -> None:
    assert "run r2 has no notes" in listed("runs", "note", "r2").err
    said = listed("runs", "note", "r2", "line one\nline two", "--mark", "odd", "--by", "bob", "--json")
    kept = json.loads(said.out)
    assert [note["text"] for note in kept["notes"]] == ["line one\nline two"]
    shown = listed("runs", "note", "r2").out
    assert ("marked odd by bob" in shown, "  line two" in shown) == (True, True)
    assert "line one" in listed("runs", "show", "r2").out
    assert listed("runs", "note", "r2", "--remove", kept["notes"][0]["id"], "--unmark", "odd").out == ""
    for bad in (["--score", "x"], ["--mark", "<b>"], ["--remove", "zz"]):
        assert listed("runs", "note", "r2", *bad).code == 2


def test_runs_are_removed_by_words(listed: Command) -> None:
    assert "would remove r2" in listed("runs", "rm", "--search", "parcel", "--dry-run").err
    assert listed("runs", "rm", "--search", "parcel").code == 0
    assert ids(listed("runs", "list", "--json")) == ["r3", "r1"]


@pytest.mark.parametrize("width", [40, 60, 80, 200])
def test_a_table_fits_its_terminal(width: int) -> None:
    head = ["RUN", "FLOW", "STATUS", "STARTED", "TOOK", "COST", "MODEL", "INPUT", "ERROR"]
    row = ["2f6c41d09b5e", "support_triage", "interrupted", "2026-11-23 00:00:00", "1 min 3 s", "$0.0012", "openai/x",
           "請求書の支払いについて教えてください" * 2, "ValueError: it is broken"]  # fmt: skip
    from rich.cells import cell_len

    rows = fit_columns([head, row], width, ["MODEL", "COST", "TOOK", "STARTED", "INPUT", "FLOW"])
    assert max(map(cell_len, format_table(rows))) <= width
    assert rows[0][:1] == ["RUN"]
    assert "STATUS" in rows[0]
    assert (rows[0] == head) == (width == 200)


async def test_a_list_reads_what_still_goes_on_and_whom_it_waits_for(listed: Command, folder: Path) -> None:
    store = SQLiteStore(folder / ".flowengine" / "runs.db")
    journal = store.create("r4")
    journal.append(RunStarted("r4", "desk", 1.3e9, {"q": "now"}, {}, {}))
    journal.flush()
    lister = RunLister(store)
    assert [line.digest.first_input for line in lister.page(RunQuery(), 1).lines if line.digest] == ["now"]
    journal.append(NodeRecorded("a", 2.0, ModelCall("m", "p", "generation", [], "", (), 1, 1)))
    journal.flush()
    (line,) = lister.page(RunQuery(), 1).lines
    assert (line.word, line.digest and line.digest.model) == ("running", "m")
    assert [line.info.run_id for line in lister.page(RunQuery(answerer="ann")).lines] == ["r3"]
    assert list(lister.count(RunQuery(answerer="bob"), RunQuery(answerer=""), RunQuery(status="failed"))) == [0, 0, 1]
    journal.append(NodeRecorded("ok", 3.0, ApprovalRequested("ok?", ["yes"], approvers=["bob"])))
    journal.flush()  # It asks while other nodes go on.
    assert list(lister.count(RunQuery(answerer="bob"), RunQuery(answerer="bob", status="waiting"))) == [1, 0]
    await journal.close()
    assert [line.word for line in lister.page(RunQuery(status="interrupted")).lines] == ["interrupted"]
    store.close()


def test_python_lists_by_words_and_keeps_notes() -> None:
    store = MemoryStore()
    flow = Flow("say", {"one": FunctionNode(lambda context: "hello there")})
    flow.run_sync(store=store, run_id="a1")
    with Runs(store) as runs:
        assert [info.run_id for info in runs.list(text="hello")] == ["a1"]
        runs.mark("a1", "golden", by="ann")
        runs.score("@last", "quality", 1.0)
        note = runs.note("a1", "fine")
        assert (runs.notes("a1").notes, runs.list(mark="golden") == runs.list()) == ([note], True)
        with pytest.raises(InputError):
            runs.note("a1", "")
