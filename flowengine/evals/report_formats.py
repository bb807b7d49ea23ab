"""Writes a report of an eval as text, JSON, JUnit XML, and for GitHub: annotations and a table in Markdown."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, cast
from xml.sax.saxutils import escape, quoteattr

from flowengine.evals.eval_report import (
    Comparison,
    EvalReport,
    Moved,
    ScorerReport,
    SliceReport,
    format_dollars_short,
    format_totals,
)
from flowengine.evals.eval_sets import EvalRow
from flowengine.evals.score_statistics import Difference, Estimate
from flowengine.evals.scoring import Score

MOVED: Final = 5
"""Rows that got better or worse, as text tells them."""
_CONTROLS: Final = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
"""Characters that XML cannot hold."""


# --- Cells of tables, in whatever format

SCORER_HEADS: Final = ("scorer", "mean [95 %]", "p10", "rows", "failures", "unscored", "judging cost")
SLICE_HEADS: Final = ("scorer", "slice", "mean [95 %]", "p10", "rows", "failures", "cost of runs")
CHANGE_HEADS: Final = ("scorer", "change [95 %]", "p", "better", "worse")


def format_number(value: float) -> str:
    """
    >>> format_number(0.8125), format_number(float("nan"))
    ('0.81', '-')
    """
    return "-" if math.isnan(value) else f"{value:.2f}"


def scorer_cells(each: ScorerReport) -> list[str]:
    """What is said of one scorer, under `SCORER_HEADS`."""
    unscored = f"{each.unscored:,}" if each.unscored else ""
    cost = format_dollars_short(each.cost_usd, each.unpriced_calls)
    return [each.name, *_estimate_cells(each.estimate, each.failures), unscored, cost]


def slice_rows(report: EvalReport) -> list[list[str]]:
    """What is said of each slice, under `SLICE_HEADS`."""
    return [
        [
            each.name,
            f"{part.column}={part.value}",
            *_estimate_cells(part.estimate, part.failures),
            format_dollars_short(part.cost_usd, part.unpriced_calls),
        ]
        for each in report.scorers
        for part in each.slices
    ]


def _estimate_cells(estimate: Estimate, failures: int) -> list[str]:
    interval = f" [{estimate.low:.2f}, {estimate.high:.2f}]" if estimate.n > 1 else ""
    return [
        f"{format_number(estimate.mean)}{interval}",
        format_number(estimate.p10),
        f"{estimate.n:,}",
        f"{failures:,}",
    ]


def change_cells(name: str, each: Difference) -> list[str]:
    """What is said of a scorer's change, under `CHANGE_HEADS`. One row has no interval; without a row nothing is known.

    >>> change_cells("quality", Difference(1, 0.5, -math.inf, math.inf, 1.0, 1, 0))
    ['quality', '+0.500', '1.000', '1', '0']
    """
    if not each.n:
        return [name, "-", "-", "0", "0"]
    interval = f" [{each.low:+.3f}, {each.high:+.3f}]" if each.n > 1 else ""
    return [name, f"{each.mean:+.3f}{interval}", f"{each.p:.3f}", f"{each.better:,}", f"{each.worse:,}"]


# --- Text


def report_lines(report: EvalReport) -> Iterator[str | Sequence[Sequence[str]]]:
    """The report for people: lines, and tables whose columns are for the caller to align."""
    current = report.of
    version = f" ({current.version})" if current.version else ""
    runs = f"{report.runs:,} runs of '{current.flow}' ({report.statuses_line})"
    yield f"{current.eval}{version}: {runs}, set {current.id}"
    if current.stand_in:
        yield f"notice: {current.stand_in}"
    yield report.paid_line
    yield report.seconds_line
    yield ""
    yield [_to_capitals(SCORER_HEADS), *map(scorer_cells, report.scorers)]
    if slices := slice_rows(report):
        yield ""
        yield [_to_capitals(SLICE_HEADS), *slices]
    if report.comparison is not None:
        yield ""
        yield from _comparison_lines(report.comparison)
    failing = [each for each in report.worst if _has_shortfall(report, each)]
    if failing:
        yield ""
        yield "the worst rows"
        for row in failing:
            yield from _row_lines(report, row)
    for name in report.under:
        yield f"under: '{name}': {report.explain_bound(name)}"


def _to_capitals(heads: Sequence[str]) -> list[str]:
    return [each.upper() for each in heads]


def falls_short(report: EvalReport, scorer: str, score: Score) -> bool:
    """Tells whether a score is none, or below the scorer's threshold."""
    return score.value is None or score.value < report.of.passes_from.get(scorer, 1.0)


def _has_shortfall(report: EvalReport, row: EvalRow) -> bool:
    return any(falls_short(report, name, each) for name, each in row.scores.items())


def _row_lines(report: EvalReport, row: EvalRow) -> Iterator[str]:
    sample = f", sample {row.sample}" if row.sample > 1 else ""
    hint = "" if row.run_id is None else f"  flowengine runs show {row.run_id}"
    yield f"  row {row.number}{sample}: {row.status}{hint}"
    for name, score in row.scores.items():
        if falls_short(report, name, score):
            reason = score.reason.split("\n")[0][:160]
            value = "no score" if score.value is None else f"{score.value:.2f}"
            yield f"    {name}: {value}{f': {reason}' if reason else ''}"


def _comparison_lines(comparison: Comparison) -> Iterator[str | Sequence[Sequence[str]]]:
    before = f"{comparison.before.version or 'set'} {comparison.before.id}"
    nodes = ", ".join(comparison.nodes) or "none"
    yield f"against {before}; nodes that are defined in another way: {nodes}"
    if comparison.unpaired:
        yield f"{comparison.unpaired:,} rows are in one of both sets, and are not compared"
    yield format_totals(comparison.totals)
    changes = [[*change_cells(name, each), describe_change(each)] for name, each in comparison.differences.items()]
    yield [[*_to_capitals(CHANGE_HEADS), ""], *changes]
    for word, moved in (("worse", comparison.worse), ("better", comparison.better)):
        for name, rows in moved.items():
            if rows:
                yield f"{word} in '{name}'"
                for each in rows[:MOVED]:
                    yield from _moved_lines(each, name)


def describe_change(each: Difference) -> str:
    """The verdict on a change.

    >>> describe_change(Difference(5, 1.0, 1.0, 1.0, 0.0625, 5, 0))
    'may be chance'
    """
    if not each.n:
        return "no row to compare"
    if not each.better and not each.worse:
        return "the same"
    return ("better" if each.mean > 0 else "worse") if each.is_certain else "may be chance"


def _moved_lines(each: Moved, scorer: str) -> Iterator[str]:
    old, new = each.before.scores[scorer].value, each.after.scores[scorer].value
    runs = each.before.run_id, each.after.run_id
    command = "" if None in runs else f"  flowengine diff {runs[0]} {runs[1]}"
    yield f"  row {each.after.number}: {old:.2f} → {new:.2f}{command}"
    yield f"    before: {_one_line(each.before.shown)}"
    yield f"    after:  {_one_line(each.after.shown)}"


def _one_line(text: str) -> str:
    return " ".join(text.split())[:120]


# --- JSON


def to_json(report: EvalReport) -> str:
    """One object; what is not known is null."""
    current = report.of
    return json.dumps(
        without_nan(
            {
                "eval": current.eval,
                "set": current.id,
                "flow": current.flow,
                "version": current.version,
                "finished": current.finished,
                "stand_in": current.stand_in or None,
                "runs": report.runs,
                "statuses": report.statuses,
                "calls": report.calls,
                "paid_calls": report.paid_calls,
                "cost_usd": report.cost_usd,
                "paid_usd": report.paid_usd,
                "unpriced_calls": report.unpriced_calls,
                "paid_unpriced_calls": report.paid_unpriced_calls,
                "seconds": dict(zip(("median", "p90", "longest"), report.seconds, strict=True)),
                "scorers": {each.name: _scorer_object(each) for each in report.scorers},
                "under": report.under,
                "against": None if report.comparison is None else _comparison_object(report.comparison),
                "rows": [_row_object(each) for each in current.rows],
            }
        ),
        ensure_ascii=False,
        indent=2,
    )


def _scorer_object(each: ScorerReport) -> dict[str, Any]:
    data = _with_estimate(each)
    del data["name"]
    return {**data, "slices": [_with_estimate(part) for part in each.slices]}


def _with_estimate(each: ScorerReport | SliceReport) -> dict[str, Any]:
    fields = each._asdict()
    estimate: Estimate = fields.pop("estimate")
    return {**estimate._asdict(), **fields}


def _comparison_object(comparison: Comparison) -> dict[str, Any]:
    def moved(rows: Sequence[Moved]) -> list[dict[str, Any]]:
        return [
            {"row": each.after.number, "before": each.before.run_id, "after": each.after.run_id, "by": each.difference}
            for each in rows
        ]

    return {
        "set": comparison.before.id,
        "version": comparison.before.version,
        "changed_nodes": list(comparison.nodes),
        "unpaired": comparison.unpaired,
        **{name: each._asdict() for name, each in zip(("before", "after"), comparison.totals, strict=True)},
        "scorers": {
            name: {
                **each._asdict(),
                "better_rows": moved(comparison.better[name]),
                "worse_rows": moved(comparison.worse[name]),
            }
            for name, each in comparison.differences.items()
        },
    }


def _row_object(row: EvalRow) -> dict[str, Any]:
    scores = {name: {"score": each.value, "reason": each.reason} for name, each in row.scores.items()}
    fields = row._asdict()
    stand_in = fields.pop("has_stand_in")
    return {**fields, "scores": scores, "stand_in": stand_in}


def without_nan(value: Any) -> Any:
    """A value for JSON: numbers that are none become null, and named tuples become objects."""
    if hasattr(value, "_asdict"):
        return without_nan(value._asdict())
    if isinstance(value, Mapping):
        return {str(key): without_nan(each) for key, each in cast("Mapping[Any, Any]", value).items()}
    if isinstance(value, list | tuple):
        return [without_nan(each) for each in cast("Sequence[Any]", value)]
    return None if isinstance(value, float) and not math.isfinite(value) else value


# --- JUnit XML


def to_junit(report: EvalReport) -> str:
    """A test case for each run; it fails where a scorer is not satisfied. Bounds of means are cases of their own."""
    current = report.of
    cases = [_junit_row(report, row) for row in current.rows]
    for each in report.scorers:
        failure = _junit_failure(report.explain_bound(each.name), "") if each.name in report.under else ""
        cases.append(
            f"<testcase classname={_quote(current.eval)} name={_quote(f'mean of {each.name}')}>{failure}</testcase>"
        )
    failures = sum("<failure" in each for each in cases)
    seconds = math.fsum(each.seconds for each in current.rows)
    head = f'name={_quote(current.eval)} tests="{len(cases)}" failures="{failures}" time="{seconds:.3f}"'
    lines = ['<?xml version="1.0" encoding="UTF-8"?>', f"<testsuites><testsuite {head}>", *cases]
    return "\n".join([*lines, "</testsuite></testsuites>"])


def _junit_row(report: EvalReport, row: EvalRow) -> str:
    sample = f" sample {row.sample}" if row.sample > 1 else ""
    name = _quote(f"row {row.number}{sample}")
    content = ""
    if _has_shortfall(report, row):
        short = [line.strip() for line in list(_row_lines(report, row))[1:]]
        run = "no run" if row.run_id is None else f"run {row.run_id}"
        content = _junit_failure(short[0], "\n".join([*short, row.error, run]))
    return f'<testcase classname={_quote(report.of.eval)} name={name} time="{row.seconds:.3f}">{content}</testcase>'


def _junit_failure(message: str, text: str) -> str:
    return f"<failure message={_quote(message)}>{escape(_clean(text))}</failure>"


def _quote(text: str) -> str:
    return quoteattr(_clean(text))


def _clean(text: str) -> str:
    return _CONTROLS.sub("?", text)


# --- GitHub


def to_annotations(report: EvalReport, file: str) -> Iterator[str]:
    """Workflow commands: an error for each bound that is not reached, a warning for what got worse for certain."""
    for name in report.under:
        yield _command("error", file, f"{report.of.eval}: {name}", report.explain_bound(name))
    for name, each in report.comparison.differences.items() if report.comparison is not None else ():
        if each.is_certain and each.mean < 0:
            text = f"the mean changed by {each.mean:+.3f} [{each.low:+.3f}, {each.high:+.3f}]"
            yield _command("warning", file, f"{report.of.eval}: {name} got worse", text)


def _command(kind: str, file: str, title: str, text: str) -> str:
    def plain(value: str, more: str = "") -> str:
        for each in f"%\r\n{more}":
            value = value.replace(each, f"%{ord(each):02X}")
        return value

    return f"::{kind} file={plain(file, ':,')},title={plain(title, ':,')}::{plain(text)}"


def to_markdown(report: EvalReport) -> str:
    """The report as a table for a pull request."""
    current, comparison = report.of, report.comparison
    counts = f"{report.runs:,} runs, {report.failed_runs:,} failed; {_cell(report.paid_line)}."
    lines = [f"### {_cell(current.eval)}", "", counts, ""]
    if current.stand_in:
        lines += [f"**No language model answered**: {_cell(current.stand_in)}.", ""]
    rows = [[*SCORER_HEADS], *map(scorer_cells, report.scorers)]
    table = [[cells[place] for place in (0, 1, 2, 4)] for cells in rows]
    if comparison is not None:
        changes = {name: change_cells(name, each) for name, each in comparison.differences.items()}
        changed = [CHANGE_HEADS, *(changes.get(each.name, [""] * len(CHANGE_HEADS)) for each in report.scorers)]
        table = [[*cells, *(more[place] for place in (1, 3, 4))] for cells, more in zip(table, changed, strict=True)]
    head, *body = map(_table_line, table)
    lines += [head, f"|{' --- |' * len(table[0])}", *body]
    if comparison is not None:
        nodes = ", ".join(f"`{each}`" for each in comparison.nodes) or "none"
        lines += [
            "",
            f"Nodes that are defined in another way: {nodes}. {_cell(format_totals(comparison.totals).capitalize())}.",
        ]
    lines += ["", *(f"**{_cell(name)}** is under {bound:g}." for name, bound in report.under.items())]
    return "\n".join(lines).rstrip() + "\n"


def _table_line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(map(_cell, cells))} |"


def _cell(text: str) -> str:
    return re.sub(r"([\\|<>&`*_\[\]$])", r"\\\1", " ".join(text.split()))
