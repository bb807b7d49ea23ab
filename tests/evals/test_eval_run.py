"""An eval's scores: claims, functions and judges, samples, slices, limits, and how two sets compare."""

from __future__ import annotations

import json
import os
import socket
import xml.etree.ElementTree as ET
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from flowengine.core.budget import Budget
from flowengine.errors import InputError, JournalError, RunBusyError
from flowengine.evals.eval_file import EvalFileError, load_eval
from flowengine.evals.eval_report import EvalReport, make_report, parse_bounds
from flowengine.evals.eval_run import EvalRun
from flowengine.evals.eval_sets import EvalSet, list_evals, list_sets, load_set
from flowengine.evals.recorded_rows import parse_runs
from flowengine.evals.report_formats import report_lines, to_annotations, to_json, to_junit, to_markdown
from flowengine.evals.report_page import evals_page, report_page
from flowengine.flow import Flow
from flowengine.journal.memory import MemoryJournal, MemoryStore
from flowengine.runtime.set_lease import born_at

STEPS = """
def shout(text):
    if text == "bad":
        raise ValueError("no <b>bad</b> words")
    return text.upper() + MARK

MARK = ""
"""
SCORERS = """
def exact(row, outputs):
    return outputs["loud"] == row["expected"]

async def told(row, inputs, outputs, run):
    return {"score": 0.5, "reason": f"{row['text']} as {run['status']}"}

def odd(outputs):
    return 7

def silent():
    return {"score": 1, "reason": None}
"""
FLOW = """flowengine: v1
name: shout
inputs: {text: {type: string}}
nodes:
  shout: {type: function, call: "steps:shout", with: {text: "{{ inputs.text }}"}}
outputs: {loud: "{{ nodes.shout.output }}"}
"""
EVAL = """flow: shout.yaml
data: rows.jsonl
slices: [kind]
scorers:
  equal: {outputs: {loud: {equals: "{{ row.expected }}"}}}
  found: {outputs: {loud: {contains: "{{ row.part }}"}}}
  exact: {call: "scorers:exact"}
  told: {call: "scorers:told", threshold: 0.4}
  odd: {call: "scorers:odd"}
"""
ROWS: Sequence[Mapping[str, Any]] = (
    {"text": "a", "expected": "A", "part": "A", "kind": "x"},
    {"text": "b", "expected": "C", "part": "B", "kind": "x"},
    {"text": "bad", "expected": "BAD", "part": "B", "kind": "y"},
)


def project(folder: Path, text: str = EVAL, rows: Sequence[Mapping[str, Any]] = ROWS) -> Path:
    (folder / "flowengine.toml").write_text('allow_calls = ["steps", "scorers"]\n')
    (folder / "steps.py").write_text(STEPS)
    (folder / "scorers.py").write_text(SCORERS)
    (folder / "shout.yaml").write_text(FLOW)
    (folder / "rows.jsonl").write_text("".join(f"{json.dumps(each)}\n" for each in rows))
    path = folder / "shout.floweval.yaml"
    path.write_text(text)
    return path


async def score(path: Path, store: MemoryStore, **options: Any) -> EvalSet:
    return await EvalRun(file=load_eval(path), store=store, **options).run()


def values(made: EvalSet, scorer: str) -> list[float | None]:
    return [each.scores[scorer].value for each in made.rows]


@pytest.mark.needs("scipy", "eval")
async def test_claims_and_functions_score_and_say_why(tmp_path: Path) -> None:
    made = await score(project(tmp_path), MemoryStore())
    assert values(made, "equal") == [1.0, 0.0, 0.0]
    assert values(made, "found") == [1.0, 1.0, 0.0]
    assert values(made, "exact") == [1.0, 0.0, 0.0]  # A run that failed scores nothing.
    assert values(made, "told") == [0.5, 0.5, 0.0]
    assert values(made, "odd") == [None, None, 0.0]
    assert made.rows[1].scores["equal"].reason == 'output \'loud\' was to be "C", found "B"'
    assert made.rows[0].scores["told"].reason == "a as succeeded"
    assert "a score is a number from 0.0 to 1.0, found 7" in made.rows[0].scores["odd"].reason
    assert "no <b>bad</b> words" in made.rows[2].scores["exact"].reason
    report = make_report(made, None, {"equal": 0.5, "told": 0.1})
    assert report.under == {"equal": 0.5}
    found = {each.name: each for each in report.scorers}
    assert (found["equal"].failures, found["odd"].unscored) == (2, 2)
    assert [(each.value, each.estimate.mean) for each in found["equal"].slices] == [("x", 0.5), ("y", 0.0)]
    assert report.worst[0].number == 3


async def test_a_scorer_may_have_no_reason(tmp_path: Path) -> None:
    path = project(tmp_path, EVAL.partition("scorers:")[0] + "scorers: {silent: {call: 'scorers:silent'}}\n")
    assert (await score(path, MemoryStore())).rows[0].scores["silent"] == (1.0, "", 0.0, 0)


async def test_a_scorer_that_ends_its_process_fails_and_nothing_else(tmp_path: Path) -> None:
    path = project(tmp_path, EVAL.partition("scorers:")[0] + "scorers: {leaves: {call: 'scorers:leaves'}}\n")
    (tmp_path / "scorers.py").write_text("def leaves():\n    raise SystemExit(3)\n")
    made = await score(path, MemoryStore())
    assert made.finished
    assert made.rows[0].scores["leaves"].reason == "the scorer failed: SystemExit: 3"


async def test_a_judge_of_a_pair_is_asked_in_both_orders(tmp_path: Path) -> None:
    text = EVAL.partition("scorers:")[0] + (
        "scorers:\n"
        '  better: {judge: {model: offline, target: "{{ outputs.loud }}", other: "{{ row.expected }}"}}\n'
        '  than: {judge: {model: offline, target: "{{ outputs.loud }}", other: "{{ against.outputs.loud }}"}}\n'
        '  gone: {judge: {model: offline, target: "{{ outputs.nothing }}"}}\n'
    )
    store = MemoryStore()
    path = project(tmp_path, text)
    first = await score(path, store)
    assert values(first, "better")[2] == 0.0
    assert values(first, "than") == [None, None, 0.0]  # There is nothing to compare with.
    assert "the question cannot be made" in first.rows[0].scores["gone"].reason
    second = await score(path, store, against=first)
    assert values(second, "than")[0] == 0.5  # It prefers the first place, whatever stands there.
    assert "the two orders disagree" in second.rows[0].scores["than"].reason
    assert (second.rows[0].paid_calls, second.rows[0].calls) == (2, 4)  # Those of `better` are known.


async def test_a_column_that_no_row_has_is_told_before_anything_runs(tmp_path: Path) -> None:
    store = MemoryStore()
    path = project(tmp_path, EVAL.replace("row.expected", "row.expcted").replace("[kind]", "[kin]"))
    with pytest.raises(EvalFileError) as told:
        await score(path, store)
    lines = str(told.value).splitlines()
    assert [line.partition("floweval.yaml:")[2] for line in lines] == [
        "3:10: FE305 the data has no column 'kin'; did you mean 'kind'?",
        "5:21: FE305 the data has no column 'expcted'; did you mean 'expected'?",
    ]
    assert not store.list()


@pytest.mark.needs("scipy", "eval")
async def test_samples_ask_anew_and_count_as_one_row(tmp_path: Path) -> None:
    text = EVAL.replace("slices", "samples: 3\nslices")
    store = MemoryStore()
    path = project(tmp_path, text, [*ROWS[:2], ROWS[0]])
    made = await score(path, store)
    assert [(each.number, each.sample) for each in made.rows][:4] == [(1, 1), (1, 2), (1, 3), (2, 1)]
    assert len({each.run_id for each in made.rows}) == 9
    assert {each.estimate.n for each in make_report(made).scorers if each.name == "equal"} == {3}
    again = await score(path, store)
    assert {each.place for each in again.rows} == {each.place for each in made.rows}
    assert all(store.events(str(each.run_id))[0].settings.get("reuse") for each in again.rows)  # type: ignore[union-attr]


async def test_an_eval_that_was_stopped_goes_on(tmp_path: Path) -> None:
    class Broken(MemoryStore):
        left = 2

        def create(self, run_id: str, /) -> MemoryJournal:
            self.left -= 1
            if self.left < 0:
                raise JournalError("the disk is full")
            return super().create(run_id)

    store, path = Broken(), project(tmp_path)
    with pytest.raises(JournalError, match="the disk is full"):
        await score(path, store, concurrency=1)
    assert not list_sets(store, "shout")[0].finished
    store.left = 100
    made = await score(path, store, concurrency=1)
    assert made.finished
    assert len(store.list()) == 3  # The two that had ended are those of the set.
    assert [each.id for each in list_sets(store, "shout")] == [made.id]
    assert list_evals(store) == ["shout"]
    assert load_set(store, made.id) == made


async def test_a_set_that_another_process_is_at_work_on_stays_as_it_is(tmp_path: Path) -> None:
    judge = '  kind: {judge: {model: offline, target: "{{ outputs.loud }}"}}\n'
    path = project(tmp_path, EVAL.partition("  equal")[0] + judge + "limits: {model_calls: 1}\n")
    store, parent = MemoryStore(), os.getppid()
    made = await score(path, store, concurrency=1)
    assert made.rows
    holder = {"host": socket.gethostname(), "process": parent, "born": born_at(parent), "at": 0.0}
    store.revise("rows.held", made.id, lambda before: holder)
    with pytest.raises(RunBusyError, match=f"set {made.id} are being run by process {parent}"):
        await score(path, store)
    assert load_set(store, made.id) == made


@pytest.mark.needs("scipy", "eval")
async def test_a_row_says_whether_the_stand_in_answered_also_where_its_answer_is_taken_again(tmp_path: Path) -> None:
    path = project(tmp_path)
    plain = json.loads(to_json(make_report(await score(path, MemoryStore()), None)))["rows"]
    assert [each["stand_in"] for each in plain] == [False] * len(plain)
    assert "has_stand_in" not in plain[0]
    judge = '  kind: {judge: {model: offline, target: "{{ outputs.loud }}"}}\n'
    path, store = project(tmp_path, EVAL.partition("  equal")[0] + judge), MemoryStore()
    for _ in range(2):
        report = make_report(await score(path, store), None)
        judged = [each["stand_in"] for each in json.loads(to_json(report))["rows"] if each["judged"]]
        assert judged
        assert all(judged)
    assert report.paid_calls == 0


async def test_a_limit_stops_the_whole_eval(tmp_path: Path) -> None:
    judge = '  kind: {judge: {model: offline, target: "{{ outputs.loud }}"}}\n'
    path = project(tmp_path, EVAL.partition("  equal")[0] + judge + "limits: {model_calls: 1}\n")
    store = MemoryStore()
    made = await score(path, store, concurrency=1)
    assert not made.finished
    rest = await score(path, store, concurrency=1, budget=Budget())
    assert rest.finished
    assert rest.id == made.id
    assert values(rest, "kind")[:2] != [None, None]


@pytest.mark.needs("scipy", "eval")
async def test_two_sets_are_compared_row_by_row(tmp_path: Path) -> None:
    store, path = MemoryStore(), project(tmp_path)
    first = await score(path, store)
    (tmp_path / "shout.yaml").write_text(FLOW.replace('inputs.text }}"}', "inputs.text | replace('b', 'c') }}\"}"))
    second = await score(path, store)
    report = make_report(second, first)
    assert report.comparison is not None
    assert report.comparison.nodes == ["shout"]
    assert [(each.after.number, each.difference) for each in report.comparison.better["equal"]] == [(2, 1.0)]
    assert [each.after.number for each in report.comparison.better["told"]] == [3]
    assert [each.after.number for each in report.comparison.worse["found"]] == [2]
    _check_formats(report, store)


def _check_formats(report: EvalReport, store: MemoryStore) -> None:
    lines = [each if isinstance(each, str) else " ".join(map(str, each)) for each in report_lines(report)]
    assert any("nodes that are defined in another way: shout" in each for each in lines)
    assert any(each.startswith("paid 0 of 0 calls, $0 instead of $0") for each in lines)
    data = json.loads(to_json(report))
    assert data["scorers"]["odd"]["mean"] == 0.0 or data["scorers"]["odd"]["mean"] is None
    assert data["against"]["changed_nodes"] == ["shout"]
    assert data["against"]["before"]["cost_usd"] == data["against"]["after"]["cost_usd"] == 0
    totals = next(each for each in lines if each.startswith("cost $0 → $0, a run takes "))
    assert totals.capitalize().replace("$", r"\$") in to_markdown(report)  # Dollars that begin no formula.
    hostile = report._replace(of=replace(report.of, eval="--- <b>bold</b>"))
    assert to_markdown(hostile).startswith(r"### --- \<b\>bold\</b\>")
    assert totals.capitalize() in report_page(report)
    suite = ET.fromstring(to_junit(report))[0]
    assert suite.attrib["tests"] == str(len(suite)) == "8"
    assert int(suite.attrib["failures"]) == sum(len(each) for each in suite)
    bound = make_report(report.of, report.comparison and report.comparison.before, {"odd": 0.9})
    [error, *_] = to_annotations(bound, "a,b:c.yaml")
    assert error.startswith("::error file=a%2Cb%3Ac.yaml,title=shout%3A odd::no row has a score, ")
    assert "| scorer | mean \\[95 %\\] |" in to_markdown(report)
    page = report_page(report, run_link=lambda run: f"/runs/{run}")
    assert "<script" not in page
    assert " style=" not in page  # No page may hold styles of its own.
    assert "<b>bad" not in page
    assert f'href="/runs/{report.of.rows[0].run_id}"' in page
    listed = evals_page(list_evals(store), lambda name: list_sets(store, name), lambda found: f"/evals/{found}")
    assert f'href="/evals/{report.of.id}"' in listed


async def test_recorded_runs_are_rows(tmp_path: Path) -> None:
    path = project(tmp_path, EVAL.replace("data: rows.jsonl", 'data: {runs: "flow=shout label.team=a limit=2"}'))
    path.write_text(
        path.read_text().replace("row.expected", "row.outputs.loud").replace("row.part", "row.outputs.loud")
    )
    flow, store = Flow.from_yaml(tmp_path / "shout.yaml"), MemoryStore()
    for text in "xyz":
        await flow.run({"text": text}, store=store, labels={"team": "a"})
    made = await score(path, store)
    assert values(made, "equal") == [1.0, 1.0]
    assert [each.shown for each in made.rows] == ["Y", "Z"]  # The newest two, the oldest first.
    with pytest.raises(InputError, match="there are no runs"):
        await score(path, MemoryStore())


@pytest.mark.parametrize(
    "text", ["flow", "flo=x", "since=soon", "limit=0", f"limit={'9' * 5_000}", "status=done", "label.=x", "flow='x"]
)
def test_a_choice_of_runs_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(InputError):
        parse_runs(text)


@pytest.mark.parametrize("pair", ["equal", "equal=2", "=0.5", "quality=0.5", "equal=nan"])
def test_a_bound_that_is_none_is_refused(pair: str) -> None:
    with pytest.raises(InputError):
        parse_bounds([pair], ["equal"])
