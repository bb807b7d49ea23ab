"""Keeps what people say of runs: notes, marks and scores, with who said it and when.

It is kept beside the runs, in any store, and goes with the run when that is removed. The journal is not touched: what
happened stays as it was recorded.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Callable, Mapping, Sequence
from math import isfinite
from time import time
from typing import Any, Final, cast

from flowengine.engine import JournalStore
from flowengine.errors import InputError, did_you_mean
from flowengine.journal.run_digest import RunMark, RunNote, RunNotes, RunScore
from flowengine.journal.run_index import run_index_of

_KIND: Final = "notes"
_NAME: Final = re.compile(r"[^\W_](?:[\w./ -]{0,38}[^\W_])?")
_MAX_NOTES: Final = 200
_MAX_NAMES: Final = 32
"""Marks, and scores, of one run."""
_MAX_TEXT: Final = 10_000
_MAX_BY: Final = 200


def notes_of(store: JournalStore, run_id: str) -> RunNotes:
    """Returns the notes on a run; empty for an unknown run."""
    return decode_notes(store.recall(_KIND, run_id))


def all_notes(store: JournalStore) -> Mapping[str, RunNotes]:
    """Run → what was said of it, for all runs of which anything was."""
    return {run_id: decode_notes(stored) for run_id, stored in run_index_of(store).read_kept(_KIND).items()}


def add_note(store: JournalStore, run_id: str, text: str, by: str = "", at: float | None = None) -> RunNote:
    """Keep a remark on a run. `InputError` for an empty or a giant one."""
    checked_text = _check_text(text)
    note = RunNote(secrets.token_hex(4), checked_text, _check_by(by), time() if at is None else at)

    def add(notes: RunNotes) -> RunNotes:
        if len(notes.notes) >= _MAX_NOTES:
            raise InputError(f"run '{run_id}' has {_MAX_NOTES} notes already: remove one first")
        return notes._replace(notes=[*notes.notes, note])

    _change(store, run_id, add)
    return note


def remove_note(store: JournalStore, run_id: str, note: str) -> None:
    """Take a remark back. `InputError` where there is none of that id."""

    def remove(notes: RunNotes) -> RunNotes:
        ids = [each.id for each in notes.notes]
        if note not in ids:
            raise InputError(f"run '{run_id}' has no note '{note}'{did_you_mean(note, ids)}")
        return notes._replace(notes=[each for each in notes.notes if each.id != note])

    _change(store, run_id, remove)


def set_mark(store: JournalStore, run_id: str, name: str, by: str = "", *, on: bool = True) -> None:
    """Mark a run with a word, or take the mark away."""
    mark = RunMark(_check_name(name, "mark"), _check_by(by), time())

    def put(notes: RunNotes) -> RunNotes:
        others = [each for each in notes.marks if each.name != mark.name]
        if not on:
            return notes._replace(marks=others)
        if len(others) != len(notes.marks):
            return notes
        return notes._replace(marks=_check_bounds([*others, mark], run_id, "marks"))

    _change(store, run_id, put)


def set_score(store: JournalStore, run_id: str, name: str, value: float | None, by: str = "") -> None:
    """Score a run in some respect; the same person's earlier score goes. None only takes that away."""
    who, score_name = _check_by(by), _check_name(name, "score")
    if value is not None and not isfinite(value):
        raise InputError(f"score '{score_name}' is a finite number, found {value}")

    def put(notes: RunNotes) -> RunNotes:
        others = [each for each in notes.scores if (each.name, each.by) != (score_name, who)]
        added = [] if value is None else [RunScore(score_name, float(value), who, time())]
        return notes._replace(scores=_check_bounds([*others, *added], run_id, "scores"))

    _change(store, run_id, put)


def keep_notes(store: JournalStore, run_id: str, notes: RunNotes) -> None:
    """Keep what a file says of a run that came with it; what cannot be said of a run here is left out."""
    checked_notes = RunNotes(
        [
            RunNote(secrets.token_hex(4), _check_text(each.text), _check_by(each.by), each.at)
            for each in notes.notes
            if each.text.replace("\0", "").strip() and len(each.text) <= _MAX_TEXT and _is_moment(each.at)
        ][:_MAX_NOTES],
        [each._replace(by=_check_by(each.by)) for each in notes.marks if _is_name(each.name) and _is_moment(each.at)][
            :_MAX_NAMES
        ],
        [
            each._replace(by=_check_by(each.by))
            for each in notes.scores
            if _is_name(each.name) and isfinite(each.value) and _is_moment(each.at)
        ][:_MAX_NAMES],
    )
    if any(checked_notes):
        _change(store, run_id, lambda known: checked_notes)


def parse_score(text: str) -> tuple[str, float]:
    """A score as it is written.

    >>> parse_score("quality=0.8")
    ('quality', 0.8)
    """
    name, equals, number = text.rpartition("=")
    try:
        value = float(number)
    except ValueError:
        equals, value = "", 0.0
    if not equals or not isfinite(value):
        raise InputError(f"score {text!r:.80}: write it as NAME=NUMBER")
    return _check_name(name, "score"), value


def _change(store: JournalStore, run_id: str, change: Callable[[RunNotes], RunNotes]) -> None:
    """Change what is kept of a run that is there; what is empty then is kept no more."""
    store.events(run_id, _BEYOND)  # It raises where there is no such run.

    def revise(stored: Any) -> Any:
        changed = change(decode_notes(stored))
        return encode_notes(changed) if any(changed) else None

    store.revise(_KIND, run_id, revise)


_BEYOND: Final = 2**30
"""A position that no run has: asking for what is behind it reads no event."""


def encode_notes(notes: RunNotes) -> dict[str, Any]:
    """Encodes notes as JSON types, for `decode_notes`."""
    return {name: [list(each) for each in rows] for name, rows in notes._asdict().items()}


def decode_notes(stored: Any) -> RunNotes:
    """Decodes stored notes; unknown entries, as of another program, are skipped."""
    if not isinstance(stored, Mapping):
        return RunNotes()
    fields = cast("Mapping[str, Any]", stored)
    return RunNotes(
        _rows(RunNote, fields.get("notes"), "sssf"),
        _rows(RunMark, fields.get("marks"), "ssf"),
        _rows(RunScore, fields.get("scores"), "sfsf"),
    )


_SAFE: Final = 2**53
"""From here on integers are no floats."""
_TYPES: Final[Mapping[str, tuple[type, ...]]] = {"s": (str,), "f": (int, float)}


def _rows(kind: Any, value: Any, shape: str) -> list[Any]:
    rows = cast("Sequence[Any]", value) if isinstance(value, list | tuple) else ()
    return [kind(*row) for row in rows if _has_shape(row, shape)]


def _has_shape(row: Any, shape: str) -> bool:
    if not isinstance(row, list | tuple):
        return False
    values = cast("Sequence[Any]", row)
    return len(values) == len(shape) and all(
        isinstance(each, _TYPES[letter]) and not (isinstance(each, int) and abs(each) >= _SAFE)
        for each, letter in zip(values, shape, strict=True)
    )


def _check_bounds(rows: Sequence[Any], run_id: str, what: str) -> Sequence[Any]:
    if len(rows) > _MAX_NAMES:
        raise InputError(f"run '{run_id}' has {_MAX_NAMES} {what} already: take one away first")
    return rows


def _check_name(name: str, what: str) -> str:
    """A mark's or a score's name: in lower case, so that `Golden` and `golden` are one."""
    plain_name = " ".join(name.split()).lower()
    if not _NAME.fullmatch(plain_name):
        raise InputError(f"{what} {name!r:.80}: a name is 1 to 40 letters, digits, spaces, _ . / and -")
    return plain_name


_LAST_MOMENT: Final = 253_402_300_800
"""The year 10,000, in Unix seconds."""


def _is_moment(at: float) -> bool:
    return 0 <= at < _LAST_MOMENT


def _is_name(text: str) -> bool:
    return text == " ".join(text.split()).lower() and _NAME.fullmatch(text) is not None


def _check_by(by: str) -> str:
    return "".join(each for each in by if each.isprintable())[:_MAX_BY].encode(errors="replace").decode()


def _check_text(text: str) -> str:
    plain_text = text.replace("\r\n", "\n").replace("\0", "").strip().encode(errors="replace").decode()
    if not plain_text:
        raise InputError("a note is empty")
    if len(plain_text) > _MAX_TEXT:
        raise InputError(f"a note has at most {_MAX_TEXT:,} characters, found {len(plain_text):,}")
    return plain_text
