"""What the reports of an eval say of few rows, of none, and of rows that have no run."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from flowengine.evals.eval_report import EvalReport, make_report
from flowengine.evals.eval_sets import EvalRow, EvalSet
from flowengine.evals.report_formats import report_lines, to_junit, to_markdown
from flowengine.evals.report_page import report_page
from flowengine.evals.scoring import Score

pytestmark = pytest.mark.needs("scipy", "eval")

SCORER = "quality"


def row(key: str, value: float | None, run_id: str | None = "r") -> EvalRow:
    return EvalRow(key, 1, 1, run_id, None, "succeeded", "", {SCORER: Score(value)}, {}, 0, 0, 0.0, 0.0, 0.0, "")


def report(before: Sequence[EvalRow], after: Sequence[EvalRow], **bounds: float) -> EvalReport:
    one, two = (
        EvalSet(name, "e", "f", 0.0, "", {}, finished=True, rows=list(rows), passes_from={SCORER: 0.5})
        for name, rows in (("one", before), ("two", after))
    )
    return make_report(two, one, bounds)


def to_texts(made: EvalReport) -> tuple[str, str, str]:
    lines = [
        each if isinstance(each, str) else "\n".join(" | ".join(row) for row in each) for each in report_lines(made)
    ]
    return "\n".join(lines), to_markdown(made), report_page(made)


def test_the_change_of_one_row_has_no_interval() -> None:
    for text in to_texts(report([row("a", 0.5)], [row("a", 1.0)])):
        assert "+0.500" in text
        assert "inf" not in text.partition("</style>")[2] + text.partition("<style>")[0]


def test_where_no_row_is_in_both_sets_there_is_no_change_to_tell() -> None:
    made = report([row("a", 0.5)], [row("b", None)], quality=0.5)
    for text in to_texts(made):
        assert "nan" not in text
        assert "no row has a score, and 0.5 was asked for" in text or "is under 0.5" in text
    assert "quality | - | - | 0 | 0 | no row to compare" in to_texts(made)[0]
    assert "no row has a score" in to_junit(made)


def test_rows_without_a_run_name_no_command_and_no_run() -> None:
    made = report([row("a", 0.0, None)], [row("a", 0.4)])
    assert "row 1: 0.00 → 0.40\n" in to_texts(made)[0]
    made = report([], [row("a", 0.0, None)])
    assert "no run" in to_junit(made)
    assert "None" not in to_junit(made)


def test_a_scorer_may_be_called_as_a_line_of_a_table() -> None:
    made = report([], [row("a", 1.0)])
    made = made._replace(scorers=[made.scorers[0]._replace(name="---|x")])
    assert "| ---\\|x | 1.00 |" in to_markdown(made)


def test_a_table_says_whose_cost_it_shows() -> None:
    table, _, page = to_texts(report([], [row("a", 1.0)._replace(slices={"team": "red"})]))
    assert all(head in table for head in ("JUDGING COST", "COST OF RUNS"))
    assert all(head in page for head in ("judging cost", "cost of runs"))
