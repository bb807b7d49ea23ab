"""Writes a report of an eval as one page of HTML: no script, no other file, light enough for thousands of rows.

Its parts are texts of HTML in which every value is escaped where it enters.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from html import escape
from time import localtime, strftime
from typing import Final

from flowengine.evals.eval_report import Comparison, EvalReport, Moved, format_totals
from flowengine.evals.eval_sets import EvalRow, SetInfo
from flowengine.evals.report_formats import (
    CHANGE_HEADS,
    SCORER_HEADS,
    SLICE_HEADS,
    change_cells,
    falls_short,
    format_number,
    scorer_cells,
    slice_rows,
)
from visualize.viewer import Markup, bare_file, bare_page

STYLE: Final = """
:root{color-scheme:light dark;--line:#8883;--bad:#c33;--good:#283;--dim:#777}
body{font:14px/1.45 system-ui,sans-serif;margin:2rem auto;max-width:76rem;padding:0 1rem}
h1{font-size:1.4rem}h2{font-size:1.1rem;margin-top:2rem}
table{border-collapse:collapse;width:100%}
th,td{text-align:left;padding:.25rem .6rem;border-bottom:1px solid var(--line);vertical-align:top}
th{font-weight:600}td.n,th.n{text-align:right;font-variant-numeric:tabular-nums;white-space:nowrap}
.bad{color:var(--bad)}.good{color:var(--good)}.dim{color:var(--dim)}
code{font-size:.9em}.text{max-width:34rem;overflow-wrap:anywhere}
table.rows{table-layout:fixed}.group{content-visibility:auto;contain-intrinsic-size:auto 2200px}
.bar{height:.6rem;background:#57a;vertical-align:middle}
.w-row{width:5rem}.w-status{width:6rem}.w-run{width:15rem}
:target{outline:2px solid #57a}
@media (max-width:44rem){table{display:block;overflow-x:auto}}
"""
_GROUP: Final = 50
"""Rows that a browser lays out together, when they come into view."""
_MAX_CELL: Final = 120
"""Characters of a slice's name."""
_HEADS: Final = ("row", "status", "scores", "output", "run")
_COLUMNS: Final = "".join(["<colgroup>", *(f'<col class="w-{name}">' for name in _HEADS), "</colgroup>"])
"""Of the groups behind the first one, which has the heads."""

RunLink = Callable[[str], str]
"""Run → the address of its page."""


def report_page(
    report: EvalReport, *, run_link: RunLink | None = None, heading: str = "", stylesheet: str | None = None
) -> str:
    """The page; `run_link`: where a run's page is, None where there is no viewer; `stylesheet`: the address of STYLE,
    None where it stands in the page."""
    current = report.of
    title = f"{current.eval} {current.version}".strip()
    parts = [
        heading,
        f"<h1>{escape(title)}</h1>",
        f"<p>{_summary(report)}</p>",
        f"<p><strong>No language model answered</strong>: {escape(current.stand_in)}.</p>" if current.stand_in else "",
        _scorers_table(report),
        _slices_table(report),
        "" if report.comparison is None else _comparison(report.comparison, run_link),
        _worst(report, run_link),
        _rows_table(report, run_link),
    ]
    return _write_page(title, parts, stylesheet)


def evals_page(
    names: Sequence[str],
    sets: Callable[[str], Sequence[SetInfo]],
    link: Callable[[str], str],
    stylesheet: str | None = None,
) -> str:
    """The page that lists the evals of a store, with their sets."""
    parts = ["<h1>Evals</h1>"]
    for name in names:
        rows = [
            [
                f'<a href="{escape(link(each.id))}"><code>{escape(each.id)}</code></a>',
                escape(strftime("%Y-%m-%d %H:%M", localtime(each.at))),
                escape(each.version),
                escape(f"{each.rows:,}" if each.finished else f"{each.rows:,} (not finished)"),
                escape(", ".join(f"{scorer} {format_number(mean)}" for scorer, mean in each.means.items())),
            ]
            for each in sets(name)
        ]
        parts += [f"<h2>{escape(name)}</h2>", _table(["set", "began", "version", "runs", "means"], rows)]
    if not names:
        parts.append("<p>There are none yet: <code>flowengine eval FILE</code>.</p>")
    return _write_page("Evals", parts, stylesheet)


def _write_page(title: str, parts: Iterable[str], stylesheet: str | None) -> str:
    content = Markup("".join(parts))
    return bare_file(title, STYLE, content) if stylesheet is None else bare_page(title, stylesheet, content)


def _summary(report: EvalReport) -> str:
    current = report.of
    began = strftime("%Y-%m-%d %H:%M", localtime(current.at))
    unfinished = "" if current.finished else ' <strong class="bad">Not finished.</strong>'
    under = "".join(
        f' <strong class="bad">{escape(name)}: {report.explain_bound(name)}.</strong>' for name in report.under
    )
    return (
        f"{report.runs:,} runs of <code>{escape(current.flow)}</code> ({escape(report.statuses_line)}), "
        f"set <code>{escape(current.id)}</code> of {began}: {escape(report.paid_line)}. "
        f"{report.seconds_line.capitalize()}.{unfinished}{under}"
    )


def _table(heads: Sequence[str], rows: Iterable[Sequence[str]], right: Sequence[int] = ()) -> str:
    def cells(tag: str, values: Sequence[str]) -> str:
        return "".join(
            f"<{tag}{' class=n' if place in right else ''}>{value}</{tag}>" for place, value in enumerate(values)
        )

    body = "".join(f"<tr>{cells('td', row)}</tr>" for row in rows)
    return f"<table><thead><tr>{cells('th', heads)}</tr></thead><tbody>{body}</tbody></table>"


def _scorers_table(report: EvalReport) -> str:
    rows: list[list[str]] = []
    for each in report.scorers:
        name, *cells = map(escape, scorer_cells(each))
        rows.append([name, _bar(each.estimate.mean), *cells])
    return f"<h2>Scores</h2>{_table([SCORER_HEADS[0], '', *SCORER_HEADS[1:]], rows, range(2, 8))}"


def _bar(mean: float) -> str:
    return f'<svg class="bar" width="{0 if math.isnan(mean) else round(120 * mean)}" aria-hidden="true"></svg>'


def _slices_table(report: EvalReport) -> str:
    rows = [[escape(cell[:_MAX_CELL]) for cell in cells] for cells in slice_rows(report)]
    return f"<h2>Slices</h2>{_table(SLICE_HEADS, rows, range(2, 7))}" if rows else ""


def _comparison(comparison: Comparison, run_link: RunLink | None) -> str:
    nodes = ", ".join(f"<code>{escape(each)}</code>" for each in comparison.nodes) or "none"
    rows: list[list[str]] = []
    for scorer, each in comparison.differences.items():
        name, change, *cells = map(escape, change_cells(scorer, each))
        mood = "dim" if not each.is_certain else "good" if each.mean > 0 else "bad"
        rows.append([name, f'<span class="{mood}">{change}</span>', *cells])
    against = escape(f"{comparison.before.version} {comparison.before.id}".strip())
    parts = [
        f"<h2>Against {against}</h2><p>Nodes that are defined in another way: {nodes}. "
        f"{escape(format_totals(comparison.totals).capitalize())}.</p>",
        _table(CHANGE_HEADS, rows, range(1, 5)),
    ]
    for word, moved in (("Worse", comparison.worse), ("Better", comparison.better)):
        for name, each in moved.items():
            if each:
                parts += [f"<h2>{word} in {escape(name)}</h2>", _moved_table(each, name, run_link)]
    return "".join(parts)


def _moved_table(moved: Sequence[Moved], scorer: str, run_link: RunLink | None) -> str:
    def side(row: EvalRow) -> str:
        score = row.scores[scorer]
        return f"{format_number(score.value or 0.0)} {_run(row, run_link)}<br>{escape(row.shown)}"

    rows = [[str(each.after.number), side(each.before), side(each.after)] for each in moved[:100]]
    return _table(["row", "before", "after"], rows)


def _run(row: EvalRow, run_link: RunLink | None) -> str:
    if row.run_id is None:
        return '<span class="dim">no run</span>'
    name = f"<code>{escape(row.run_id)}</code>"
    return name if run_link is None else f'<a href="{escape(run_link(row.run_id))}">{name}</a>'


def _worst(report: EvalReport, run_link: RunLink | None) -> str:
    rows = [
        [
            f'<a href="#row-{each.number}-{each.sample}">{each.number}</a>',
            _scores(report, each, reasons=True),
            _run(each, run_link),
            f'<div class="text">{escape(each.shown)}</div>',
        ]
        for each in report.worst
    ]
    return f"<h2>The worst rows</h2>{_table(['row', 'scores', 'run', 'output'], rows)}"


def _scores(report: EvalReport, row: EvalRow, *, reasons: bool) -> str:
    spans: list[str] = []
    for name, each in row.scores.items():
        mood = "bad" if falls_short(report, name, each) else "good"
        value = "no score" if each.value is None else f"{each.value:.2f}"
        reason = f' <span class="dim">{escape(each.reason[:300])}</span>' if reasons and each.reason else ""
        spans.append(f'<span class="{mood}">{escape(name)} {value}</span>{reason}')
    error = f'<br><span class="bad">{escape(row.error)}</span>' if row.error else ""
    return ("<br>" if reasons else " ").join(spans) + error


def _rows_table(report: EvalReport, run_link: RunLink | None) -> str:
    heads = "".join(f'<th class="w-{name}">{name}</th>' for name in _HEADS)
    head = f"<thead><tr>{heads}</tr></thead>"
    return f"<h2>All rows</h2>{''.join(_groups(report, head, run_link))}"


def _groups(report: EvalReport, head: str, run_link: RunLink | None) -> Iterator[str]:
    rows = report.of.rows
    for begin in range(0, len(rows), _GROUP):
        lines = "".join(_row_line(report, each, run_link) for each in rows[begin : begin + _GROUP])
        top = _COLUMNS if begin else head
        yield f'<div class="group"><table class="rows">{top}<tbody>{lines}</tbody></table></div>'


def _row_line(report: EvalReport, row: EvalRow, run_link: RunLink | None) -> str:
    sample = f".{row.sample}" if row.sample > 1 else ""
    cells = (
        f"{row.number}{sample}",
        escape(row.status),
        _scores(report, row, reasons=False),
        escape(row.shown),
        _run(row, run_link),
    )
    return f'<tr id="row-{row.number}-{row.sample}"><td>{"</td><td>".join(cells)}</td></tr>'
