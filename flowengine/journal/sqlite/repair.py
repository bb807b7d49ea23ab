"""Makes a new store out of a damaged SQLite file: each run as far as it can be read without a gap.

The damaged file is copied with its log and stays as it is. What was written is judged by the checksums of the rows
and, where there are none, by whether each event can be read. A run is cut at its first event that is missing or is
not what was written; it is then unfinished, and `resume` goes on from there: what came after is done again.
The list of runs is made anew from their first events.
"""

from __future__ import annotations

import os
import shutil
import sqlite3
import tempfile
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from contextlib import closing, suppress
from mmap import ACCESS_READ, mmap
from pathlib import Path
from typing import Any, Final, Literal, NamedTuple, cast

from flowengine.core import hash_of
from flowengine.core.storage import SQLITE_ERRORS
from flowengine.engine import Event, RunStarted
from flowengine.errors import JournalError, StoreCorruptError, StoreUnavailableError, StoreVersionError
from flowengine.journal.blob_owners import beside_owner, named_blobs
from flowengine.journal.codec import decode, decode_value, encode_value
from flowengine.journal.run_digest import session_of
from flowengine.journal.sqlite.database import SPAN, checksum_of_event, checksum_of_texts, connect
from flowengine.journal.sqlite.salvage import SavedRow, read_rows
from flowengine.journal.sqlite.tables import SqliteTables, end_of, finishing, releasing, run_row
from flowengine.journal.sqlite.writer import SqliteWriter, is_alive, process_of
from flowengine.journal.value_types import copying_values


class RepairedRun(NamedTuple):
    """The repair of one run."""

    run_id: str
    """The run's id; `#7`, its number in the store, where its row is lost too."""
    state: Literal["whole", "cut", "lost"]
    kept: int
    """Events."""
    lost: int
    """Events that are known to have been there; there may have been more."""
    reason: str = ""


class Repair(NamedTuple):
    """The result of a repair, and the path of the new store; None if nothing was damaged."""

    path: Path | None
    runs: Sequence[RepairedRun]
    lost_beside: int = 0
    """Values kept beside the runs (sessions, cached results) that are not in the new store."""
    lost_files: int = 0
    """Files that the runs name and whose content is not in the new store."""

    @property
    def is_whole(self) -> bool:
        return not (self.lost_beside or self.lost_files) and all(run.state == "whole" for run in self.runs)


class _Salvage(NamedTuple):
    """The rows that can be read of a file, by table."""

    rows: Mapping[int, Mapping[int, bytes | None]]
    """Run number → position → body; None: it is not what was written."""
    names: Mapping[int, tuple[str, bool]]
    """Run number → its id, and whether it had ended, as its row says."""
    beside: Mapping[tuple[str, str], Any]
    lost_beside: int
    blobs: Mapping[str, bytes]
    """Hash → content, as it was written."""


class _RunEntry(NamedTuple):
    """The parts of a run that enter the new store."""

    lines: Sequence[str]
    events: Sequence[Event]
    run: RepairedRun


def repair_store(path: Path) -> Repair:
    """Write a new store beside the one at `path` with all that can be read of it; none where nothing is wrong."""
    _check_unused(path)
    try:
        with copying_values(), tempfile.TemporaryDirectory(prefix=f".{path.name}.", dir=path.parent) as folder:
            copy = Path(folder, "copy.db")
            _copy(path, copy)
            healthy = _read_healthy(copy)
            return Repair(None, healthy) if healthy is not None else _save(path, copy)
    except OSError as error:
        raise StoreUnavailableError(f"{path} cannot be repaired: {error.strerror}: {error.filename}") from error


def _check_unused(path: Path) -> None:
    if not path.is_file():
        raise StoreUnavailableError(f"{path} is no file")
    locks = Path(f"{os.path.realpath(path)}.locks")
    for name in os.listdir(locks) if locks.is_dir() else ():
        if is_alive(locks, name):
            raise StoreUnavailableError(f"{path} is being written by process {process_of(name)}: stop that first")


def _copy(path: Path, copy: Path) -> None:
    """The file, with what its log holds put where it belongs."""
    shutil.copyfile(path, copy)
    with suppress(FileNotFoundError):
        shutil.copyfile(f"{path}-wal", f"{copy}-wal")
    with suppress(*SQLITE_ERRORS), closing(sqlite3.connect(copy)) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")


def _read_healthy(copy: Path) -> Sequence[RepairedRun] | None:
    """All runs of a store without any damage; None where there is some."""
    if not copy.stat().st_size:  # It would become a new store.
        return None
    other = copy.with_name("healthy.db")
    shutil.copyfile(copy, other)
    try:
        with closing(connect(other, "process", 0)) as connection:
            tables = SqliteTables(other, connection)
            if tables.check() != "ok":
                return None
            runs = [_read_whole(tables, info.run_id) for info in tables.runs()]
            for kind, key in tables.kept_beside():
                tables.recall(kind, key)
            if tables.blobs.find_damaged():
                return None
        rows = _find_rows(copy)
    except StoreVersionError:
        raise
    except JournalError:
        return None
    return None if set(rows.rows) - set(rows.names) else runs


def _read_whole(tables: SqliteTables, run_id: str) -> RepairedRun:
    writer = tables.find_writer(run_id)
    if writer is None:
        raise StoreCorruptError(f"run '{run_id}' is not in the index")
    return RepairedRun(run_id, "whole", len(tables.events(run_id, writer[0].number, 0)), 0)


def _save(path: Path, copy: Path) -> Repair:
    salvage = _find_rows(copy)
    read = [(number, _keep_until_gap(number, salvage)) for number in sorted({*salvage.rows, *salvage.names})]
    runs_by_id: dict[str, _RunEntry] = {}
    for number, one in sorted(read, key=lambda each: each[1].run.state == "lost"):
        if one.run.run_id in runs_by_id:  # A removed run that damage to the list of free pages has brought back.
            one = _RunEntry((), (), RepairedRun(f"#{number}", "lost", 0, one.run.kept, "another run has its id"))
        runs_by_id[one.run.run_id] = one
    if not runs_by_id:
        raise StoreCorruptError(f"{path} holds no run that can be read, or is no store of FlowEngine at all")
    target = copy.with_name("repaired.db")
    lost_count, lost_files = _write(target, list(runs_by_id.values()), salvage)
    runs = [each.run for each in runs_by_id.values()]
    return Repair(_put_beside(path, target), runs, salvage.lost_beside + lost_count, lost_files)


def _find_rows(copy: Path) -> _Salvage:
    if not copy.stat().st_size:
        return _Salvage({}, {}, {}, 0, {})
    with copy.open("rb") as file, mmap(file.fileno(), 0, access=ACCESS_READ) as data:
        return _sort_rows(read_rows(data))


def _sort_rows(rows: Iterable[SavedRow]) -> _Salvage:
    events: dict[int, dict[int, bytes | None]] = defaultdict(dict)
    names: dict[int, tuple[str, bool]] = {}
    beside: dict[tuple[str, str], Any] = {}
    blobs: dict[str, bytes] = {}
    lost_count = 0
    for key, values in rows:
        if key is not None and _is_blob(values):
            blobs[values[1].decode()] = values[3]
        elif key is not None and key >= SPAN and _is_event(values):
            body = _check_body(key, values)
            of_run = events[key // SPAN]
            of_run[key] = body if of_run.get(key, body) == body else None
        elif key is not None and len(values) in _RUN_COLUMNS and isinstance(values[1], bytes):
            names[key] = values[1].decode(errors="replace"), values[3] != b"running"
        elif key is None and _is_beside(values):
            try:
                name, value = _check_beside(values)
                beside[name] = value
            except (JournalError, UnicodeError):
                lost_count += 1
    return _Salvage(events, names, beside, lost_count, blobs)


_RUN_COLUMNS: Final = range(9, 13)
"""Columns of a run's row, in stores of any version."""


def _is_blob(values: Sequence[Any]) -> bool:
    """Tells whether it is a content that is as it was written: its hash stands beside it."""
    if len(values) != 4 or values[0] is not None or not all(isinstance(values[at], bytes) for at in (1, 3)):
        return False
    return hash_of(values[3]).encode() == values[1]


def _is_event(values: Sequence[Any]) -> bool:
    """Rows of two columns are of a store of the first versions, or pages of the index of words: those are no JSON."""
    if len(values) not in (2, 3) or values[0] is not None or not isinstance(values[1], bytes):
        return False
    return len(values) == 3 or values[1].startswith(b"[")


def _check_body(position: int, values: Sequence[Any]) -> bytes | None:
    checksum = values[2] if len(values) == 3 else None
    return values[1] if checksum in (None, checksum_of_event(position, values[1])) else None


def _is_beside(values: Sequence[Any]) -> bool:
    return len(values) in (4, 5) and all(isinstance(values[at], bytes) for at in (0, 1, 3))


def _check_beside(values: Sequence[Any]) -> tuple[tuple[str, str], Any]:
    kind, key, text = (cast("bytes", values[at]).decode() for at in (0, 1, 3))
    if len(values) == 5 and values[4] not in (None, checksum_of_texts(kind, key, text)):
        raise StoreCorruptError("not what was written")
    return (kind, key), decode_value(text)


def _keep_until_gap(number: int, salvage: _Salvage) -> _RunEntry:
    """The run up to its first gap."""
    rows = salvage.rows.get(number, {})
    name, had_ended = salvage.names.get(number, (f"#{number}", False))
    length = max(rows, default=number * SPAN - 1) - number * SPAN + 1
    lines, events, reason = _read_lines(number, rows)
    if not events or not isinstance(events[0], RunStarted):
        return _RunEntry((), (), RepairedRun(name, "lost", 0, length, reason or "its events are gone"))
    started = events[0].run_id
    if not reason and had_ended and end_of(events) is None:
        reason = f"event {len(events)} is missing"
    state = "cut" if reason else "whole"
    return _RunEntry(
        lines, events, RepairedRun(started, state, len(events), max(length - len(events), bool(reason)), reason)
    )


def _read_lines(number: int, rows: Mapping[int, bytes | None]) -> tuple[list[str], list[Event], str]:
    """Lines and events from the first on, and why they end before the last."""
    lines: list[str] = []
    events: list[Event] = []
    for position in sorted(rows):
        body = rows[position]
        parts = [] if body is None else body.split(b"\n")
        begin = position - number * SPAN - len(parts) + 1
        if body is None:
            return lines, events, f"event {len(events)} is not what was written"
        if begin != len(events):
            return lines, events, f"event {len(events)} is missing"
        for part in parts:
            try:
                events.append(decode(part))
            except StoreVersionError:
                raise
            except JournalError:
                return lines, events, f"event {len(events)} is not what was written"
            lines.append(part.decode())
    return lines, events, ""


def _write(path: Path, entries: Sequence[_RunEntry], salvage: _Salvage) -> tuple[int, int]:
    """Make the new store; how many of the values beside the runs it could not take, and how many files are gone."""
    lost_files = set[str]()

    def own(owner: str, text: str) -> None:
        for blob in named_blobs(text):
            content = salvage.blobs.get(blob)
            if content is None:
                lost_files.add(blob)
            else:
                writer.tables.blobs.put(owner, content)

    writer = SqliteWriter(SqliteTables(path, connect(path, "process", 0)))
    with closing(writer):
        for lines, events, run in entries:
            if run.state == "lost":
                continue
            started = cast("RunStarted", events[0])
            hold = writer.begin(run_row(run.run_id, started, ""), lines[0], session_of(started))
            assert hold is not None  # Each id is there once.
            own(run.run_id, lines[0])
            for index, line in enumerate(lines[1:], 1):
                own(run.run_id, line)
                writer.add(hold.number * SPAN + index, line)
            end = end_of(events)
            writer.changes.append(releasing(hold) if end is None else finishing(hold, end))
            writer.write()
        lost_count = 0
        for (kind, key), value in salvage.beside.items():
            try:
                own(beside_owner(kind, key), encode_value(value))
                writer.tables.revise(kind, key, lambda _, value=value: value)
            except JournalError:
                lost_count += 1
    return lost_count, len(lost_files)


def _put_beside(path: Path, source: Path) -> Path:
    """Move the new store to the first free name beside the old one."""
    number = 1
    while True:
        target = path.with_name(f"{path.stem}.repaired{f'-{number}' if number > 1 else ''}{path.suffix}")
        try:
            os.close(os.open(target, os.O_CREAT | os.O_EXCL, 0o600))
        except FileExistsError:
            number += 1
            continue
        os.replace(source, target)
        return target
