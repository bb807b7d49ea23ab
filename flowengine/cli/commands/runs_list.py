"""`flowengine runs list` finds runs by rows and words; `flowengine runs note` keeps what somebody says of one."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable, Mapping, Sequence
from datetime import date, datetime, timedelta
from functools import wraps
from time import time
from typing import Any, Final

import click

from flowengine.cli.environment import find_user
from flowengine.cli.options import choose_store, duration, format_store, label_option, open_journal, store_option
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
from flowengine.core.json_values import dumps
from flowengine.journal.run_digest import RunNotes
from flowengine.journal.run_index import RunLine
from flowengine.journal.run_lookup import STATUS_WORDS, RunQuery
from flowengine.journal.run_notes import add_note, notes_of, parse_score, remove_note, set_mark, set_score
from flowengine.runners.run_listing import RunLister

__all__ = ["add_filter_options", "format_notes", "list_runs", "note_run", "notes_to_object"]

Command = Callable[..., int]

# --- Which runs


def since(ctx: click.Context, param: click.Parameter, value: str | None) -> float | None:
    """A day (`2026-03-01`, `today`) or how long ago (`12h`, `7d`), as Unix seconds."""
    if value is None:
        return None
    if value == "today" or re.fullmatch(r"\d{4}-\d\d-\d\d", value):
        try:
            day = date.today() if value == "today" else date.fromisoformat(value)
            return datetime(day.year, day.month, day.day).astimezone().timestamp()
        except (ValueError, OverflowError, OSError):
            raise click.BadParameter(f"{value!r} is no day") from None
    ago = duration(ctx, param, value)
    return None if ago is None else time() - ago


def until(ctx: click.Context, param: click.Parameter, value: str | None) -> float | None:
    """The end of a day (`2026-03-01`, `today`), as Unix seconds."""
    if value is None:
        return None
    try:
        day = (date.today() if value == "today" else date.fromisoformat(value)) + timedelta(days=1)
        return datetime(day.year, day.month, day.day).astimezone().timestamp()
    except (ValueError, OverflowError, OSError):
        raise click.BadParameter(f"{value!r} is no day: write today or 2026-03-01") from None


def add_filter_options(function: Command) -> Command:
    """The options that say which runs are meant, as the argument `query`."""

    @click.option("--flow", default="", metavar="NAME", help="Only runs of this flow.")
    @click.option(
        "--status",
        type=click.Choice(STATUS_WORDS),
        metavar="STATUS",
        help=f"Only those that are {', '.join(STATUS_WORDS[:-1])} or {STATUS_WORDS[-1]}.",
    )
    @label_option("Only runs with this label; given several times, with all of them.")
    @click.option(
        "--since", callback=since, metavar="TIME", help="Only runs that began since: 30m, 12h, 7d, today, 2026-03-01."
    )
    @click.option(
        "--older-than", callback=duration, metavar="TIME", help="Only runs that began earlier: 30m, 12h, 30d."
    )
    @click.option(
        "--until", callback=until, metavar="DAY", help="Only runs that began on this day or before: today, 2026-03-01."
    )
    @click.option(
        "--ended-since", callback=since, metavar="TIME", help="Only runs that stopped since: 30m, 12h, 7d, today."
    )
    @click.option(
        "--search",
        default="",
        metavar="WORDS",
        help='Only runs with these words in inputs, outputs, errors, id, flow, file or labels; "in quotes": in a row.',
    )
    @click.option("--mark", default="", metavar="NAME", help="Only runs with this mark.")
    @click.option("--session", default="", metavar="NAME", help="Only runs of this session.")
    @click.option(
        "--waits-for",
        metavar="WHO",
        help="Only runs that wait for an answer that WHO may give; me: this machine's user.",
    )
    @wraps(function)
    def command(
        flow: str,
        status: str | None,
        labels: Mapping[str, str],
        since: float | None,
        older_than: float | None,
        until: float | None,
        ended_since: float | None,
        search: str,
        mark: str,
        session: str,
        waits_for: str | None,
        **others: Any,
    ) -> int:
        ends = [each for each in (until, None if older_than is None else time() - older_than) if each is not None]
        who = find_user() if waits_for == "me" else waits_for
        query = RunQuery(
            flow, status or "", labels, since, min(ends, default=None), search.strip(), mark, who, ended_since,
            session.strip(),
        )  # fmt: skip
        return function(query=query, **others)

    return command


_PATIENCE: Final = 600.0
"""Seconds for which runs of an older store are read for a search."""
_SHOWN: Final = 100
"""Runs that a terminal is shown by default."""
_WIDTH: Final = 48
"""Columns of an input or an error."""
_DROPPED: Final = ("SESSION", "TOKENS", "MODEL", "LABELS", "MARKS", "COST", "TOOK", "STARTED", "INPUT", "FLOW")
"""What a narrow terminal is not shown, the first first."""


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
    with open_journal(choose_store(store)) as kept:
        found = RunLister(kept).page(query, most, patience=_PATIENCE)
    if as_json:
        results.json(dumps([_to_object(line) for line in found.lines], indent=2))
        return 0
    if not found.lines:
        complain(f"there are no {'such ' * bool(found.every)}runs in {format_store(store)}")
        return 0
    rows = [_format_row(line) for line in found.lines]
    head = [name for name in rows[0] if name in _ALWAYS or any(row[name] for row in rows)]
    cells = [head, *([row[name] for name in head] for row in rows)]
    if results.on_terminal:
        cells = fit_columns(cells, shutil.get_terminal_size().columns, _DROPPED)
    results.lines(format_table(cells))
    if limit is None and found.total > len(found.lines):
        complain(f"and {found.total - len(found.lines):,} older ones: --limit N shows more")
    if found.unread:
        complain(f"{found.unread:,} older runs could not be searched yet: the same command goes on with them")
    return 0


_ALWAYS: Final = frozenset({"RUN", "FLOW", "STATUS", "STARTED", "TOOK"})


def _format_row(line: RunLine) -> dict[str, str]:
    run, digest, notes = line.info, line.digest, line.notes
    scores = sorted({each.name for each in notes.scores})
    said = [*(mark.name for mark in notes.marks), *(f"{name}={notes.mean(name):g}" for name in scores)]
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
        "MARKS": " ".join([*said, *([f"{len(notes.notes)} notes"] if notes.notes else [])]),
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
    given = [parse_score(each) for each in scores]
    who = find_user() if by is None else by
    with open_journal(choose_store(store)) as kept:
        run_id = kept.find(reference)
        for each in removed:
            remove_note(kept, run_id, each)
        if text:
            add_note(kept, run_id, text, who)
        for name in (*marks, *unmarks):
            set_mark(kept, run_id, name, who, on=name in marks)
        for name, value in given:
            set_score(kept, run_id, name, value, who)
        said = notes_of(kept, run_id)
    results = Results()
    if as_json:
        results.json(dumps({"run_id": run_id, **notes_to_object(said)}, indent=2))
        return 0
    lines = format_notes(said)
    results.lines(lines)
    if not lines:
        complain(f"run {run_id} has no notes")
    return 0


def format_notes(said: RunNotes) -> list[str]:
    """Formats the notes on a run, one per line; further lines of a note are indented."""
    lines = [f"marked {each.name} by {each.by or 'unknown'}, {format_clock(each.at)}" for each in said.marks]
    lines += [f"{each.name} {each.value:g} by {each.by or 'unknown'}, {format_clock(each.at)}" for each in said.scores]
    for each in said.notes:
        lines.append(f"note {each.id} by {each.by or 'unknown'}, {format_clock(each.at)}")
        lines += [f"  {line}" for line in each.text.splitlines()]
    return lines
