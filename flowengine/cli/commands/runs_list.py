"""`flowengine runs list` finds runs by rows and words; `flowengine runs note` keeps what somebody says of one."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from typing import Any, Final

import click

from flowengine.cli.environment import find_user
from flowengine.cli.options import format_store, open_journal, store_option
from flowengine.cli.run_selection import PATIENCE, add_filter_options
from flowengine.cli.terminal import (
    Results,
    complain,
    cut_cell,
    fit_columns,
    format_clock,
    format_dollars,
    format_span,
    format_table,
)
from flowengine.journal import (
    RunLine,
    RunNotes,
    RunQuery,
    add_note,
    notes_of,
    parse_score,
    remove_note,
    set_mark,
    set_score,
)
from flowengine.runtime import RunLister

_SHOWN: Final = 100
"""Runs that a terminal is shown by default."""
_WIDTH: Final = 48
"""Columns of an input or an error."""
_DROPPED: Final = ("SESSION", "TOKENS", "MODEL", "LABELS", "MARKS", "COST", "TOOK", "STARTED", "INPUT", "FLOW")
"""Columns left out on a narrow terminal, in this order."""


@click.command("list")
@store_option
@add_filter_options
@click.option("--limit", type=click.IntRange(1), metavar="N", help="At most so many, the newest.")
@click.option("--json", "as_json", is_flag=True, help="Print an array of objects.")
def list_runs(store: str | None, query: RunQuery, limit: int | None, as_json: bool) -> int:
    """The runs of the store, the newest first.

    `queued`: no worker has it yet; `interrupted`: no process works on it any more; `flowengine resume` goes on with it.
    """
    results = Results()
    most = _SHOWN if limit is None and results.on_terminal and not as_json else limit
    with open_journal(store) as journal:
        page = RunLister(journal).page(query, most, patience=PATIENCE)
    if as_json:
        results.value([_to_object(line) for line in page.lines])
        return 0
    if not page.lines:
        complain(f"there are no {'such ' * bool(page.every)}runs in {format_store(store)}")
        return 0
    rows = [_format_row(line) for line in page.lines]
    head = [name for name in rows[0] if name in _ALWAYS or any(row[name] for row in rows)]
    cells = [head, *([row[name] for name in head] for row in rows)]
    if results.on_terminal:
        cells = fit_columns(cells, shutil.get_terminal_size().columns, _DROPPED)
    results.lines(format_table(cells))
    if limit is None and page.total > len(page.lines):
        complain(f"and {page.total - len(page.lines):,} older ones: --limit N shows more")
    if page.unread:
        complain(f"{page.unread:,} older runs could not be searched yet: the same command goes on with them")
    return 0


_ALWAYS: Final = frozenset({"RUN", "FLOW", "STATUS", "STARTED", "TOOK"})


def _format_row(line: RunLine) -> dict[str, str]:
    run, digest, notes = line.info, line.digest, line.notes
    scores = sorted({each.name for each in notes.scores})
    words = [*(mark.name for mark in notes.marks), *(f"{name}={notes.mean(name):g}" for name in scores)]
    has_calls = digest is not None and digest.calls
    return {
        "RUN": run.run_id,
        "FLOW": run.flow,
        "STATUS": line.word,
        "STARTED": format_clock(run.started),
        "TOOK": "" if run.finished is None else format_span(run.finished - run.started),
        "COST": format_dollars(digest.cost_usd, is_whole=digest.is_whole) if digest and has_calls else "",
        "TOKENS": f"{digest.tokens:,}" if digest and has_calls and digest.tokens is not None else "",
        "MODEL": digest.model if digest else "",
        "LABELS": " ".join(f"{name}={value}" for name, value in run.labels.items()),
        "SESSION": digest.session if digest else "",
        "MARKS": " ".join([*words, *([f"{len(notes.notes)} notes"] if notes.notes else [])]),
        "INPUT": cut_cell(line.excerpt or (digest.first_input if digest else ""), _WIDTH),
        "ERROR": cut_cell(digest.error if digest else "", _WIDTH),
    }


def _to_object(line: RunLine) -> dict[str, Any]:
    digest = line.digest
    return line.info._asdict() | {
        "standing": line.word,
        "cost_usd": None if digest is None else digest.cost_usd,
        "tokens": None if digest is None else digest.tokens,
        "model_calls": None if digest is None else digest.calls,
        "model": None if digest is None else digest.model,
        "session": None if digest is None else digest.session,
        "first_input": None if digest is None else digest.first_input,
        "error": None if digest is None else digest.error,
        "found": line.excerpt,
        **notes_to_object(line.notes),
    }


def notes_to_object(notes: RunNotes) -> dict[str, Any]:
    return {name: [each._asdict() for each in rows] for name, rows in notes._asdict().items()}


# --- What people say of a run


@click.command("note")
@click.argument("reference", metavar="RUN")
@click.argument("text", default="", required=False)
@click.option("--mark", "marks", multiple=True, metavar="NAME", help="Mark the run, as `golden`.")
@click.option("--unmark", "unmarks", multiple=True, metavar="NAME", help="Remove a mark.")
@click.option("--score", "scores", multiple=True, metavar="NAME=NUMBER", help="Score the run in some respect.")
@click.option("--remove", "removed", multiple=True, metavar="ID", help="Remove a note.")
@click.option("--by", help="Author.  [default: the user of this machine]")
@click.option("--json", "as_json", is_flag=True, help="Print the notes as one JSON object.")
@store_option
def note_run(
    reference: str,
    text: str,
    marks: Sequence[str],
    unmarks: Sequence[str],
    scores: Sequence[str],
    removed: Sequence[str],
    by: str | None,
    as_json: bool,
    store: str | None,
) -> int:
    """Keep a note TEXT, marks or scores of RUN: an id, the start of one, or @last. With neither, print what is kept.

    They are kept beside the run with who said it and when; its record stays as it is.
    """
    scored = [parse_score(each) for each in scores]
    who = find_user() if by is None else by
    with open_journal(store) as journal:
        run_id = journal.find(reference)
        for each in removed:
            remove_note(journal, run_id, each)
        if text:
            add_note(journal, run_id, text, who)
        for name in (*marks, *unmarks):
            set_mark(journal, run_id, name, who, on=name in marks)
        for name, value in scored:
            set_score(journal, run_id, name, value, who)
        notes = notes_of(journal, run_id)
    results = Results()
    if as_json:
        results.value({"run_id": run_id, **notes_to_object(notes)})
        return 0
    lines = format_notes(notes)
    results.lines(lines)
    if not lines:
        complain(f"run {run_id} has no notes")
    return 0


def format_notes(notes: RunNotes) -> list[str]:
    """Formats the notes on a run, one per line; further lines of a note are indented."""
    lines = [f"marked {each.name} by {each.by or 'unknown'}, {format_clock(each.at)}" for each in notes.marks]
    lines += [f"{each.name} {each.value:g} by {each.by or 'unknown'}, {format_clock(each.at)}" for each in notes.scores]
    for each in notes.notes:
        lines.append(f"note {each.id} by {each.by or 'unknown'}, {format_clock(each.at)}")
        lines += [f"  {line}" for line in each.text.splitlines()]
    return lines
